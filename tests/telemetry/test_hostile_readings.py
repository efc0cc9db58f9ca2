"""Readings from elsewhere, a producer or a recording: one error, or fit to be drawn in terminal, panel and report."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.hostile import HOSTILE_TEXTS, JUNK, changed_somewhere
from tests.panel.streams import three_models
from tests.top.test_screen import HOST
from tsnb.errors import TsnbError
from tsnb.panel.tape import Tape
from tsnb.reports import Report
from tsnb.show.view_text import as_text
from tsnb.show.words import incidents
from tsnb.telemetry.readings import MoveReading, StreamReading
from tsnb.telemetry.recording import read_recording
from tsnb.telemetry.shown.view import StreamView
from tsnb.top.view import screen

READINGS = [replace(reading, host=HOST) for reading in three_models().run(4)]
HEADER = b'{"tsnb": "1", "recording": 1, "stream": "s"}\n'
WHOLE = asdict(
    replace(
        READINGS[8],
        weights={"resnet10": 2.0},
        moves=(MoveReading(READINGS[0].time_s, "resnet10", "one core", "it waits"),),
        consumers=tuple(
            replace(c, metrics={"loss": 0.5}, awaits="rank 2 of 4", part="fold 1 of 5")
            for c in READINGS[8].consumers
        ),
    )
)


def draw(found: StreamReading) -> list[str]:
    """Draw it among others, everywhere; return what a terminal shows."""
    told = [*READINGS[:8], found, *READINGS[9:]]
    view, tape = StreamView(), Tape()
    for reading in told:
        view.feed(reading)
        tape.feed(reading)
    console = Console(width=100, file=io.StringIO(), color_system=None)
    console.print(screen(view, 100, ""))
    assert isinstance(console.file, io.StringIO)
    json.dumps(tape.scene(), allow_nan=False)
    tape.history()
    report = Report(told, ended=True)
    assert report.svg
    return [
        *console.file.getvalue().splitlines(),
        *as_text(tape.view, "s").splitlines(),
        *incidents(found),
        *str(report).splitlines(),
    ]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_reading_that_was_changed_anywhere_is_one_error_or_can_be_drawn(data: st.DataObject) -> None:
    """Any field of a real one replaced by anything."""
    fields = changed_somewhere(json.loads(json.dumps(WHOLE)), data, JUNK | st.sampled_from(HOSTILE_TEXTS))
    try:
        found = StreamReading.from_json(json.dumps(fields))
    except ValueError:
        return
    assert all(line.isprintable() for line in draw(found))


def test_texts_in_every_field_are_shown_without_their_sequences() -> None:
    """All at once; letters of every script stay."""
    text = json.dumps(WHOLE)
    for word in ("resnet10", "cnn-small", "loss", "one core", "it waits", "rank 2 of 4", "H200", "mnist"):
        text = text.replace(word, json.dumps(word + "".join(HOSTILE_TEXTS) + "Größe 学习 🤖")[1:-1])
    found = StreamReading.from_json(text)
    shown = draw(found)
    assert all(line.isprintable() for line in shown)
    assert "Größe 学习 🤖" in found.consumers[0].name + found.name


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=st.binary(max_size=60) | st.just(HEADER), lines=st.lists(st.binary(max_size=80), max_size=4))
@example(b'{"recording": 1e999}\n', [])
@example(b"[" * 100_000 + b"\n", [])
@example(b'{"recording": 99, "tsnb": "\\u001b]0;x\\u0007"}\n', [])
@example(HEADER, [b"[" * 100_000, b"{}", b"", b'{"time_s": ' + b"9" * 5000 + b"}"])
def test_a_file_that_is_not_a_recording_is_one_error(
    tmp_path: Path, header: bytes, lines: list[bytes]
) -> None:
    """Any bytes: what is wrong is told in printable words."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(header + b"\n".join([*lines, b""]))
    told = ""
    try:
        read_recording(path)
    except (ValueError, TsnbError) as error:
        told = str(error)
    assert told.isprintable()


def test_a_reading_needs_its_numbers() -> None:
    """What is missing is named."""
    with pytest.raises(ValueError, match="time_s"):
        StreamReading.from_json("{}")
