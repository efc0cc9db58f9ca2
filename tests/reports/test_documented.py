"""What docs/panel.md says is so: its words, its examples, the tests that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tsnb
from tests.panel.streams import three_models
from tsnb.reports.figures import WORDS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "panel.md").read_text(encoding="utf-8")


def test_every_word_for_a_figure_is_in_the_table_and_the_other_way_round() -> None:
    table = TEXT.partition("| word | figure |")[2].partition("\n\n")[0]
    assert re.findall(r"`(\w+)`(?=[^|]*\|[^|]*\|)", table) == list(WORDS)


def test_every_test_that_it_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)
    assert len(named) >= 8
    for file, name in named:
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), (file, name)


def test_its_examples_work_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a recording in place of the stream that they name."""
    monkeypatch.chdir(tmp_path)
    lines = [
        '{"tsnb":"0.1.0","recording":1,"stream":"mnist"}',
        *(r.to_json() for r in three_models().run(20)),
    ]
    Path("mnist.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    readings = tsnb.report("mnist.jsonl")._readings
    source = type("Source", (), {"readings": readings, "ended": True})
    monkeypatch.setattr("tsnb.reports.document.streamed", lambda name: source)
    monkeypatch.setattr("tsnb.reports.plotting.streamed", lambda name: source)
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 2
    exec("\n".join(blocks), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "mnist.jsonl",
        "report.html",
        "throughput.html",
    ]
