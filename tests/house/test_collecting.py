"""A run of the slow tests only, or of the others only, imports no file of which it runs nothing, and misses no test."""

from __future__ import annotations

from pathlib import Path

import pytest

SOME = "import pytest\n\n@pytest.mark.slow\n@pytest.mark.system\ndef test_a() -> None: ...\n"
WHOLE = "import pytest\n\npytestmark = [pytest.mark.system, pytest.mark.slow]\n"


@pytest.mark.parametrize(
    ("wanted", "left_out"),
    [("not slow", ["whole"]), ("slow", ["none"]), ("", []), ("slow or gpu", [])],
)
def test_a_file_of_which_nothing_runs_is_not_imported(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wanted: str,
    left_out: list[str],
) -> None:
    """By the words in it: a file that is left out is not even compiled."""
    monkeypatch.setattr(request.config.option, "markexpr", wanted)
    found = []
    for name, text in (("some", SOME), ("whole", WHOLE), ("none", "def test_a() -> None: ...\n")):
        path = tmp_path / f"test_{name}.py"
        path.write_text(text, encoding="utf-8")
        ask = request.config.hook.pytest_ignore_collect
        if ask(collection_path=path, config=request.config):
            found.append(name)
    assert found == left_out


def test_no_test_is_slow_by_words_that_stand_in_another_file() -> None:
    """Such as a list of marks that is imported: a run of the slow tests would not see it."""
    folder = Path(__file__).parents[1]
    others = [path for path in folder.rglob("*.py") if not path.name.startswith("test_")]
    found = [path for path in others if "mark.slow" in path.read_text(encoding="utf-8")]
    assert found == [folder / "conftest.py"]
