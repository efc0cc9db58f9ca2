"""A run in parts imports no file of which it runs nothing, misses no test, and makes what is costly once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import TOGETHER

TESTS = Path(__file__).parents[1]
COSTLY = re.compile(r"scope=\"(?:module|session)\"[^\n]*\ndef \w+\([^)]*tmp_path_factory")
"""A fixture of a whole file with a folder of its own: a server, a site, an environment, a day."""
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
    others = [path for path in TESTS.rglob("*.py") if not path.name.startswith("test_")]
    found = [path for path in others if "mark.slow" in path.read_text(encoding="utf-8")]
    assert found == [TESTS / "conftest.py"]


def test_what_a_whole_file_shares_is_made_by_one_process() -> None:
    """Else each process that gets one of the file's tests makes it once more."""
    costly = [
        path.relative_to(TESTS).with_suffix("").as_posix()
        for path in TESTS.rglob("test_*.py")
        if COSTLY.search(path.read_text(encoding="utf-8"))
    ]
    assert len(costly) >= 10
    kept = {shared.partition(".py::")[0] for shared in TOGETHER}
    assert not [name for name in costly if not name.startswith(tuple(kept))]
