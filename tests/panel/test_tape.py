"""The tape: what is sent each tick, what only when it has changed, and what a page gets that loads again."""

from __future__ import annotations

import json
import random
import struct
from dataclasses import replace

import numpy as np
import pytest

from tests.panel.streams import Stream, Trial, three_models
from tsnb.panel.frames import HEADER, ROW
from tsnb.panel.tape import HISTORY_TICKS, METRICS, Tape
from tsnb.telemetry.readings import ABSENT, CONSUMER_STATES


def numbers(frame: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(frame) // 4}f", frame))


def test_a_frame_says_what_its_header_promises() -> None:
    """Each number stands where `HEADER` and `ROW` say, and the frame carries its own length."""
    stream, tape = three_models(), Tape()
    for reading in stream.run(10):
        message = tape.feed(reading)
    frame = numbers(message.frame)
    header = dict(zip(HEADER, frame, strict=False))
    assert header["numbers"] == len(frame) == len(HEADER) + 3 * (len(ROW) + 2)
    assert header["time_s"] == pytest.approx(9.75, abs=0.02)
    assert header["batches"] == reading.batches
    assert header["touched_mib"] == 212
    row = dict(zip(ROW, frame[len(HEADER) :], strict=False))
    assert CONSUMER_STATES[int(row["state"])] == reading.consumers[0].state
    assert row["lane"] == 0
    assert row["metrics"] == 2
    assert row["position"] == reading.consumers[0].position
    assert frame[len(HEADER) + len(ROW)] == pytest.approx(reading.consumers[0].metrics["loss"])


def test_a_tick_of_three_trials_is_small() -> None:
    """Numbers and words of three trials stay within 0.25 kB a tick on average."""
    trials = [Trial("cnn-small", 0.02), Trial("resnet10", 0.045), Trial("resnet18-wide", 0.1)]
    random.seed(7)
    stream, tape, sizes = Stream(trials), Tape(), []
    for reading in stream.run(60):
        message = tape.feed(reading)
        sizes.append(len(message.frame) + len(json.dumps(message.content, separators=(",", ":"))))
    assert np.mean(sizes[20:]) <= 250


def test_words_are_sent_once() -> None:
    """A reading that changes no word is a number and a frame, nothing else."""
    tape, reading = Tape(), three_models().reading()
    first = tape.feed(reading).content
    assert {"state", "stream", "say"} <= first.keys()
    again = tape.feed(replace(reading, time_s=reading.time_s + 0.25)).content
    assert again == {"op": "tick", "n": 2}


def test_a_lane_stays_with_its_name() -> None:
    """A trial that leaves and comes back has its place, and with it its colour."""
    trials = [Trial("a", 0.02, leaves_s=5), Trial("b", 0.02, joins_s=2)]
    stream, tape = Stream(trials), Tape()
    for reading in stream.run(8):
        tape.feed(reading)
    assert [(lane.name, lane.here) for lane in tape.lanes] == [("a", False), ("b", True)]
    trials[0].leaves_s = 1e9
    for reading in stream.run(2):
        message = tape.feed(reading)
    assert [lane.name for lane in tape.lanes] == ["a", "b"]
    assert tape.lanes[0].here
    assert numbers(message.frame)[len(HEADER)] == 0


def test_a_new_metric_changes_only_its_lane() -> None:
    """The front end hears of a metric's name once; frames grow by one number."""
    tape, reading = Tape(), replace(three_models().reading(), consumers=())
    one = next(r for r in three_models().run(2) if r.consumers).consumers[0]
    tape.feed(replace(reading, consumers=(replace(one, metrics={}),)))
    message = tape.feed(
        replace(reading, time_s=reading.time_s + 1, consumers=(replace(one, metrics={"loss": 0.5}),))
    )
    assert message.content["lanes"]["0"]["metrics"] == ["loss"]
    assert numbers(message.frame)[-2:] == [1.0, 0.5]


def test_only_so_many_metrics_are_kept() -> None:
    """A trial that logs a hundred numbers does not swell every tick."""
    tape, reading = Tape(), three_models().reading()
    one = next(r for r in three_models().run(2) if r.consumers).consumers[0]
    many = {f"m{k}": float(k) for k in range(100)}
    message = tape.feed(replace(reading, consumers=(replace(one, metrics=many),)))
    assert len(numbers(message.frame)) == len(HEADER) + len(ROW) + METRICS


def test_the_sentence_is_not_rewritten_at_every_tick() -> None:
    """Its numbers change every tick; it is sent every other second at most."""
    stream, tape, said = three_models(), Tape(), 0
    for k, reading in enumerate(stream.run(60)):
        said += "say" in tape.feed(reading).content and k > 60
    assert 5 < said < 40


def test_history_is_bounded_and_complete() -> None:
    """All frames of the last ten minutes, oldest first."""
    tape, reading = Tape(), three_models().reading()
    for k in range(HISTORY_TICKS + 100):
        tape.feed(replace(reading, time_s=reading.time_s + k * 0.25))
    history = np.frombuffer(tape.history(), "<f4").reshape(HISTORY_TICKS, -1)
    assert history[0, 0] == 25.0
    assert np.all(np.diff(history[:, 0]) > 0)
    assert tape.scene()["n"] == HISTORY_TICKS + 100


def test_a_note_is_sent_once_and_named() -> None:
    """Nobody serves the stream: said once; the end: said once, history kept."""
    tape = Tape("mnist")
    assert tape.state == ABSENT
    first = tape.note(ABSENT, "No stream named mnist is served yet.")
    assert first is not None
    assert tape.note(ABSENT, "No stream named mnist is served yet.") is None
    for reading in three_models().run(2):
        tape.feed(reading)
    ended = tape.note("gone", "The stream mnist has ended.", "mnist")
    assert ended is not None
    assert ended.content["state"] == "gone"
    assert ended.frame == b""
    assert tape.history()
    assert tape.sentence == "The stream mnist has ended."


def test_a_scene_is_json() -> None:
    """Everything in it can travel."""
    tape = Tape()
    for reading in three_models().run(30):
        tape.feed(reading)
    scene = json.loads(json.dumps(tape.scene()))
    assert scene["stream"]["name"] == "mnist"
    assert [lane["name"] for lane in scene["lanes"]][:2] == ["cnn-small", "resnet10"]
