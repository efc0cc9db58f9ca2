"""What a reading says beside the numbers of every day."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.telemetry.test_diagnosis import consumer, stream
from tsnb.show.words import incidents
from tsnb.telemetry.readings import MoveReading


def test_an_undisturbed_stream_has_none() -> None:
    """No line for what did not happen."""
    assert incidents(stream(consumer("a"))) == []


def test_what_was_given_up_and_who_was_refused_is_said() -> None:
    """With the numbers."""
    skipped: Any = {"skipped": 7}
    refused: Any = {"refused": 2}
    reading = replace(stream(replace(consumer("a"), **skipped), consumer("b")), **refused)
    assert incidents(reading) == [
        "a skipped 7 batches to keep pace",
        "2 connections were dropped: malformed or hostile messages",
    ]


def test_the_last_moves_of_cores_are_said_with_reason_and_effect() -> None:
    """As far as the effect is known; and why none are made, where somebody asked for them."""
    reading = stream(consumer("a"), time_s=200.0)
    moves = (
        MoveReading(125.0, "a", "2 threads for a", "it sets the pace", "pace 4.1 -> 5.3 batches/s"),
        MoveReading(190.0, "", "all cores to all", "it was switched off"),
    )
    assert incidents(replace(reading, moves=moves, rebalancing="stands back: why")) == [
        "cores are not moved: the balancer stands back: why",
        "1:15 ago 2 threads for a (it sets the pace): pace 4.1 -> 5.3 batches/s",
        "0:10 ago all cores to all (it was switched off)",
    ]
