"""The tape: what is sent each tick, what only when it has changed, and what a page gets that loads again."""

from __future__ import annotations

import json
import random
import struct
from dataclasses import replace

import numpy as np
import pytest

from tests.panel.streams import Stream, Trial, rebalance, rebalanced, three_models
from tsnb.panel.frames import GPU, HEADER, MACHINE, PROCESS, RECENT_TICKS, ROW
from tsnb.panel.tape import MARKS, METRICS, Tape
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
    assert row["place"] == 16 * 2 + CONSUMER_STATES.index(reading.consumers[0].state)
    last = frame[len(HEADER) + 2 * (len(ROW) + 2)]
    assert last == 2 * 128 + 16 * 2 + CONSUMER_STATES.index(reading.consumers[2].state)
    assert row["position"] == reading.consumers[0].position
    assert frame[len(HEADER) + len(ROW)] == pytest.approx(reading.consumers[0].metrics["loss"])


def test_the_machine_stands_at_the_end_of_its_frame() -> None:
    """The frame of a host reading goes on with the machine, its processes by lane, and its GPUs; no other does."""
    stream, tape = rebalanced(gpus=2), Tape()
    frames = [(reading, numbers(tape.feed(reading).frame)) for reading in stream.run(10)]
    rows = len(HEADER) + 4 * (len(ROW) + 2)
    assert {len(frame) for reading, frame in frames[-8:] if reading.host is None} == {rows}
    reading, frame = next((r, f) for r, f in reversed(frames) if r.host)
    assert reading.host
    assert frame[1] == len(frame)
    machine = dict(zip(MACHINE, frame[rows:], strict=False))
    assert (machine["mark"], machine["cores"], machine["processes"]) == (-1, 4, 5)
    assert machine["used_mib"] == 3170
    at = rows + len(MACHINE)
    process = dict(zip(PROCESS, frame[at:], strict=False))
    assert process["lane"] == 0
    assert process["cpu"] == pytest.approx(reading.host.consumers["cnn-small"].cpu)
    at += 5 * len(PROCESS)
    assert frame[at - len(PROCESS)] == -1  # the producer
    devices = [dict(zip(GPU, frame[k:], strict=False)) for k in range(at, len(frame), len(GPU))]
    assert [device["index"] for device in devices] == [0, 1]
    assert devices[0]["total_mib"] == 80 * 1024


def test_consumers_of_one_process_share_its_numbers() -> None:
    """Each of them has all of its process in the host reading: the panel's sums must not count it twice."""
    stream, tape = rebalanced(), Tape()
    reading = next(r for r in stream.run(12) if r.host and len(r.consumers) == 4)
    assert reading.host
    one = reading.host.consumers["cnn-small"]
    same = tuple(replace(consumer, pid=4242) for consumer in reading.consumers)
    host = replace(reading.host, consumers=dict.fromkeys(reading.host.consumers, one))
    frame = numbers(tape.feed(replace(reading, consumers=same, host=host)).frame)
    rows = len(HEADER) + sum(len(ROW) + len(consumer.metrics) for consumer in same)
    processes = np.reshape(frame[rows + len(MACHINE) :], (5, len(PROCESS)))
    assert processes[:4, 1].sum() == pytest.approx(one.cpu)
    assert processes[:4, 2].sum() == pytest.approx(one.memory_bytes / 2**20)


def test_a_tick_of_three_trials_is_small() -> None:
    """Numbers and words of three trials and of their machine stay within 0.28 kB a tick on average."""
    trials = [Trial("cnn-small", 0.02), Trial("resnet10", 0.045), Trial("resnet18-wide", 0.1)]
    random.seed(7)
    stream, tape, sizes = Stream(trials, gpus=1), Tape(), []
    for reading in stream.run(60):
        message = tape.feed(reading)
        sizes.append(len(message.frame) + len(json.dumps(message.content, separators=(",", ":"))))
    assert np.mean(sizes[20:]) <= 280


def test_what_changed_is_marked_once_and_kept() -> None:
    """A parked trial and a core that moved: each told in its tick, and to a page that loads later."""
    stream, tape, told = rebalanced(), Tape(), []
    for reading in rebalance(stream):
        told += tape.feed(reading).content.get("marks", [])
    assert [mark[1:] for mark in told[-2:]] == [
        ["parked", "resnet18-wide-sgd", "resnet18-wide-sgd parked"],
        ["cores", "resnet18-wide", "1 core to resnet18-wide"],
    ]
    assert told[-2][0] == pytest.approx(120, abs=0.5)
    assert tape.scene()["marks"] == told


def test_marks_are_bounded() -> None:
    """A sweep of a thousand trials does not swell what a page loads."""
    tape, reading = Tape(), three_models().reading()
    one = next(r for r in three_models().run(2) if r.consumers).consumers[0]
    for k in range(300):
        tape.feed(replace(reading, time_s=reading.time_s + k, consumers=(replace(one, name=f"t{k}"),)))
    assert len(tape.scene()["marks"]) == MARKS
    assert tape.scene()["marks"][-1][3] == "t298 left"


def test_names_of_gpus_travel_once() -> None:
    """They are words: said with the first host reading only."""
    stream, tape = rebalanced(gpus=1), Tape()
    told = [tape.feed(reading).content.get("gpus") for reading in stream.run(20)]
    assert [gpus for gpus in told if gpus] == [["NVIDIA A100-SXM4-80GB"]]
    assert tape.scene()["gpus"] == ["NVIDIA A100-SXM4-80GB"]


def test_buttons_are_allowed_by_who_can_do_what_they_say() -> None:
    """Said when it changes, numbered as a tick, so that a page that missed it asks."""
    tape = Tape("mnist")
    assert tape.scene()["can"] == {"interrupt": False, "report": False}
    message = tape.allow(interrupt=True)
    assert message is not None
    assert message.content == {"op": "tick", "n": 1, "can": {"interrupt": True, "report": False}}
    assert tape.allow(interrupt=True) is None
    assert tape.scene()["can"]["interrupt"]


def test_words_are_sent_once() -> None:
    """A reading that changes no word is a number and a frame, nothing else."""
    tape, reading = Tape(), three_models().reading()
    first = tape.feed(reading).content
    assert {"state", "stream", "say", "origin_s"} <= first.keys()
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
    assert numbers(message.frame)[len(HEADER)] < 128  # lane 0


def test_a_new_metric_changes_only_its_lane() -> None:
    """The front end hears of a metric's name once; frames grow by one number."""
    tape, reading = Tape(), replace(three_models().reading(), consumers=())
    one = next(r for r in three_models().run(2) if r.consumers).consumers[0]
    tape.feed(replace(reading, consumers=(replace(one, metrics={}),)))
    message = tape.feed(
        replace(reading, time_s=reading.time_s + 1, consumers=(replace(one, metrics={"loss": 0.5}),))
    )
    assert message.content["lanes"]["0"]["metrics"] == ["loss"]
    assert numbers(message.frame)[-1] == 0.5
    assert len(numbers(message.frame)) == len(HEADER) + len(ROW) + 1


def test_whom_a_rank_waits_for_is_sent_when_that_changes() -> None:
    """The front end shows it in the row's tooltip, until the rank waits no more."""
    tape, reading = Tape(), three_models().reading()
    rank = replace(next(r for r in three_models().run(2) if r.consumers).consumers[0], name="bert[0]")
    sent = []
    for awaits in ("rank 1 of 2", "rank 1 of 2", ""):
        message = tape.feed(replace(reading, consumers=(replace(rank, awaits=awaits),)))
        sent.append(message.content.get("lanes", {}).get("0", {}).get("awaits"))
    assert sent == ["rank 1 of 2", None, ""]


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


def test_history_is_all_of_ten_minutes_and_some_of_what_was_before() -> None:
    """Every tick of the last ten minutes, a frame every few seconds of the time before, oldest first."""
    tape, reading = Tape(), replace(three_models().reading(), consumers=())
    for k in range(RECENT_TICKS + 400):
        tape.feed(replace(reading, time_s=reading.time_s + k * 0.25))
    times_s = np.frombuffer(tape.history(), "<f4").reshape(-1, len(HEADER))[:, 0]
    assert times_s[0] == 0.0
    assert np.all(np.diff(times_s) > 0)
    assert np.all(np.diff(times_s[-RECENT_TICKS:]) == 0.25)
    assert 10 <= len(times_s) - RECENT_TICKS <= 30
    assert tape.scene()["n"] == RECENT_TICKS + 400


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
