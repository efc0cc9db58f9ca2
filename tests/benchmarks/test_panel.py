"""The benchmark of the panel: the counts that it prints hold here; its times depend on the machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import panel
from benchmarks.panel import GOALS, a_day, opening, reading, ticks, told
from tsnb.panel.tape import Tape
from tsnb.telemetry.shown.curves import POINT, POINTS
from tsnb.telemetry.shown.history import MOST, PAGE_BYTES

MOST_CALLS = 5000
"""Calls a tick of 50 trials, of Python's and C's functions: 4,730 when this was written, and 6,200 before."""


def test_a_tick_has_no_more_bytes_than_it_may() -> None:
    """Of 3 and of 50 trials that all log two numbers in each; 20 streams have twenty times those of one."""
    assert ticks(3, 60)["bytes"] <= GOALS["bytes 3"]
    assert ticks(50, 24)["bytes"] <= GOALS["bytes 50"]
    assert ticks(3, 24, 20)["bytes"] == pytest.approx(20 * ticks(3, 24)["bytes"], rel=0.02)


def test_a_tick_of_fifty_trials_costs_few_calls() -> None:
    """Calls are counted, since times say little on a busy machine."""
    tape, calls = Tape(), 0
    readings = [reading(number, 50) for number in range(48)]

    def count(_frame: Any, event: str, _what: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    for one in readings[:16]:
        tape.feed(one)
    sys.setprofile(count)
    try:
        for one in readings[16:]:
            tape.feed(one)
    finally:
        sys.setprofile(None)
    assert calls / 32 < MOST_CALLS


@pytest.mark.slow
def test_what_a_page_is_given_does_not_grow_with_the_hours() -> None:
    """Nor does what the kernel keeps: frames and curves stay within their bounds."""
    tape = told(3, 6000)
    assert len(tape._history) <= MOST
    assert opening(tape)["bytes"] <= PAGE_BYTES + 3 * 2 * POINTS * 4 * len(POINT) + 20_000


def test_it_prints_what_it_has_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row each with its aim, and the same as JSON."""
    found = {
        "cores": 2,
        "load": 0.5,
        "tick": {"3": ticks(3, 8)},
        "opening": {"3 trials, 8 readings": opening(told(3, 8))},
        "page": {},
        "day MiB": a_day(1, 8),
    }
    monkeypatch.setattr(panel, "measured", lambda quick, page: found)
    assert panel.main(["--quick", "--json", str(tmp_path / "panel.json")]) == 0
    said = capsys.readouterr().out
    assert "| kernel ms a tick, 3 |" in said and "| 0.2 |" in said and "Not measured: a page" in said
    assert json.loads((tmp_path / "panel.json").read_text(encoding="utf-8"))["day MiB"] == found["day MiB"]
