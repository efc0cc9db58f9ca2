"""What a reading says beside the numbers of every day."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.telemetry.test_diagnosis import consumer, stream
from tsnb.telemetry.incidents import incidents


def test_an_undisturbed_stream_has_none() -> None:
    """No line for what did not happen."""
    assert incidents(stream(consumer("a"))) == []


def test_what_was_given_up_and_who_was_refused_is_said() -> None:
    """With the numbers."""
    skipped: Any = {"skipped": 7}
    refused: Any = {"refused": 2}
    reading = replace(stream(replace(consumer("a"), **skipped), consumer("b")), **refused)
    assert incidents(reading) == [
        "a gave up 7 batches to keep pace",
        "2 connections were dropped: malformed or hostile messages",
    ]
