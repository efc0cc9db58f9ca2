"""A recorded log draws the panel: eleven seconds of the quickstart (2 cores), one reading a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tsnb.panel.tape import Tape
from tsnb.show.view_text import as_text
from tsnb.telemetry.readings import StreamReading

LOG = Path(__file__).with_name("quickstart.jsonl")


@pytest.fixture
def readings() -> list[StreamReading]:
    return [StreamReading.from_json(line) for line in LOG.read_text(encoding="utf-8").splitlines()]


def test_it_names_the_model_that_holds_the_others(readings: list[StreamReading]) -> None:
    """What a person would conclude from the numbers is what the panel says."""
    tape = Tape()
    for reading in readings:
        tape.feed(reading)
    paces = {name: row.pace for name, row in tape.view.rows.items()}
    assert paces["wide-cnn"].computing > 0.9
    assert paces["mlp"].held > 0.7
    assert tape.sentence.startswith("wide-cnn sets the pace")
    assert tape.sentence in as_text(tape.view, "the quickstart")


def test_a_real_tick_of_three_trials_is_small(readings: list[StreamReading]) -> None:
    """Numbers and words stay within 0.25 kB a tick on average."""
    tape = Tape()
    messages = [tape.feed(reading) for reading in readings][1:]  # the first carries all names
    sizes = [len(m.frame) + len(json.dumps(m.content, separators=(",", ":"))) for m in messages]
    assert sum(sizes) / len(sizes) <= 250
