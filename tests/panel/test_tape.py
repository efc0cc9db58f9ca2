"""The tape: what is sent each tick, what only when it has changed, and what a page gets that loads again."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.panel.streams import Stream, Trial, logging_each_batch, rebalance, rebalanced, three_models
from tsnb.panel.tape import Tape
from tsnb.reports.story import story
from tsnb.show.view_text import as_text
from tsnb.show.words import cached
from tsnb.telemetry.lives.spent import spent
from tsnb.telemetry.readings import ABSENT, CONSUMER_STATES, CacheReading, EndReading, StreamReading
from tsnb.telemetry.shown.curves import POINT, POINTS, Curves
from tsnb.telemetry.shown.frames import (
    ALL,
    APART,
    GPU,
    HEADER,
    LOGGED,
    MACHINE,
    PACE,
    PROCESS,
    ROW,
)
from tsnb.telemetry.shown.history import History
from tsnb.telemetry.shown.view import MARKS, StreamView
from tsnb.text.numbers import count, percent

module = sys.modules["tsnb.telemetry.shown.view"]

Told = Callable[[Iterator[StreamReading]], Iterator[StreamReading]]


def numbers(frame: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(frame) // 4}f", frame))


def test_a_frame_says_what_its_header_promises() -> None:
    """Each number stands where `HEADER` and `ROW` say, and the frame carries its own length."""
    stream, tape = three_models(), Tape()
    for reading in stream.run(10):
        message = tape.feed(reading)
    frame = numbers(message.frame)
    header = dict(zip(HEADER, frame, strict=False))
    assert header["numbers"] == len(frame)
    assert header["time_s"] == pytest.approx(9.75, abs=0.02)
    assert header["batches"] == reading.batches
    assert header["touched_mib"] == 212
    row = dict(zip(ROW, frame[len(HEADER) :], strict=False))
    assert row["place"] == CONSUMER_STATES.index(reading.consumers[0].state)
    last = frame[len(HEADER) + 2 * len(ROW)]
    assert last == 2 * 16 + CONSUMER_STATES.index(reading.consumers[2].state)
    assert row["batches"] == reading.consumers[0].batches
    paces = frame[len(HEADER) + 3 * len(ROW) :]
    assert paces[:2] == [-3, 3], "every eighth tick, and this is the fortieth"
    assert paces[2 + len(ALL)] == 0, "the first lane, behind what is left of all of them"
    said = paces[2 + len(ALL) + 3 * len(PACE) :]
    assert (said[0], len(said)) == (-2, 13), "a loss and an accuracy of each"
    logged = [dict(zip(LOGGED, said[k:], strict=False)) for k in range(1, len(said), len(LOGGED))]
    assert [one["place"] for one in logged] == [1024 * k + m for k in range(3) for m in range(2)]
    assert logged[0]["value"] == pytest.approx(reading.consumers[0].metrics["loss"])


def test_the_machine_stands_at_the_end_of_its_frame() -> None:
    """The frame of a host reading goes on with the machine, its processes by lane, and its GPUs; no other does."""
    stream, tape = rebalanced(gpus=2), Tape()
    frames = [(reading, numbers(tape.feed(reading).frame)) for reading in stream.run(10)]
    rows = len(HEADER) + 4 * len(ROW)
    assert {frame[rows] for reading, frame in frames[-8:] if reading.host is None} <= {-2, -3}
    reading, frame = next((r, f) for r, f in reversed(frames) if r.host)
    assert reading.host
    assert frame[1] == len(frame)
    machine = dict(zip(MACHINE, frame[rows:], strict=False))
    assert [machine[name] for name in ("mark", "cores", "processes", "gpus")] == [-1, 4, 5, 2]
    assert machine["used_mib"] == 3170
    at = rows + len(MACHINE)
    process = dict(zip(PROCESS, frame[at:], strict=False))
    assert process["lane"] == 0
    assert process["cpu"] == pytest.approx(reading.host.consumers["cnn-small"].cpu)
    at += 5 * len(PROCESS)
    assert frame[at - len(PROCESS)] == -1  # the producer
    devices = [dict(zip(GPU, frame[k:], strict=False)) for k in (at, at + len(GPU))]
    assert [device["index"] for device in devices] == [0, 1]
    assert devices[0]["total_mib"] == 80 * 1024
    assert frame[at + 2 * len(GPU)] == -2, "what was logged comes last"


def test_consumers_of_one_process_share_its_numbers() -> None:
    """Each of them has all of its process in the host reading: the panel's sums must not count it twice."""
    stream, tape = rebalanced(), Tape()
    reading = next(r for r in stream.run(12) if r.host and len(r.consumers) == 4)
    assert reading.host
    one = reading.host.consumers["cnn-small"]
    same = tuple(replace(consumer, pid=4242) for consumer in reading.consumers)
    host = replace(reading.host, consumers=dict.fromkeys(reading.host.consumers, one))
    frame = numbers(tape.feed(replace(reading, consumers=same, host=host)).frame)
    at = len(HEADER) + 4 * len(ROW) + len(MACHINE)
    processes = np.reshape(frame[at : at + 5 * len(PROCESS)], (5, len(PROCESS)))
    assert processes[:4, 1].sum() == pytest.approx(one.cpu)
    assert processes[:4, 2].sum() == pytest.approx(one.memory_bytes / 2**20)


@pytest.mark.parametrize("told", [iter, logging_each_batch], ids=["a reading", "a batch"])
def test_a_tick_of_three_trials_is_small(told: Told) -> None:
    """Numbers and words of three trials and of their machine stay within 0.3 kB a tick, two metrics new in each."""
    trials = [Trial("cnn-small", 0.02), Trial("resnet10", 0.045), Trial("resnet18-wide", 0.1)]
    random.seed(7)
    stream, tape, sizes = Stream(trials, gpus=1), Tape(), []
    for reading in told(stream.run(60)):
        message = tape.feed(reading)
        sizes.append(len(message.frame) + len(json.dumps(message.content, separators=(",", ":"))))
    assert np.mean(sizes[20:]) <= 300


@pytest.mark.slow
@pytest.mark.parametrize("told", [iter, logging_each_batch], ids=["a reading", "a batch"])
def test_a_tick_of_fifty_trials_is_small_and_says_now_and_then_what_a_batch_costs_each(told: Told) -> None:
    """Within 3 kB a tick with two metrics new in each; paces every eighth tick, as the rows of the view have them."""
    random.seed(7)
    stream, tape = Stream([Trial(f"cnn-{k}", 0.05 + 0.002 * (k % 9)) for k in range(50)], gpus=0), Tape()
    sizes, seen = [], 0
    for k, reading in enumerate(told(stream.run(40)), 1):
        message = tape.feed(reading)
        sizes.append(len(message.frame) + len(json.dumps(message.content, separators=(",", ":"))))
        frame = numbers(message.frame)
        at = len(HEADER) + 50 * len(ROW)
        if frame[at:][:1] != [-3]:
            assert k % 8
            continue
        seen += 1
        assert k % 8 == 0 and frame[at + 1] == 50
        for row in tape.view.rows.values():
            lane, step_ms, alone, *left = frame[at + 2 + len(ALL) + len(PACE) * row.number :][: len(PACE)]
            assert lane == row.number
            assert left == pytest.approx([row.eta.left_s, row.eta.epochs], nan_ok=True)
            assert step_ms == pytest.approx(row.pace.step_s * 1000)
            assert alone == pytest.approx(row.pace.alone_per_s)
    assert seen == 20
    assert np.mean(sizes[20:]) <= 3000


def test_what_changed_is_marked_once_and_kept() -> None:
    """A parked trial and a core that moved: each told in its tick, and to a page that loads later."""
    stream, tape, told = rebalanced(), Tape(), []
    for reading in rebalance(stream):
        told += tape.feed(reading).content.get("marks", [])
    assert [mark[1:] for mark in told[-2:]] == [
        ["timed out", "resnet18-wide-sgd", "resnet18-wide-sgd timed out"],
        ["cores", "resnet18-wide", "1 core to resnet18-wide"],
    ]
    assert told[-2][0] == pytest.approx(120, abs=0.5)
    assert tape.scene()["marks"] == told


@pytest.mark.slow
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


def test_a_cache_is_told_in_the_words_of_status() -> None:
    """Hits and bytes, and only when they have changed; nothing of a stream without one."""
    tape, reading = Tape(), three_models().reading()
    assert tape.feed(reading).content["stream"]["cache"] == ""
    cache = CacheReading("serving", "", 50, 40, 3 << 20, 4 << 20, 0, 300, 100, 1.5)
    later = replace(reading, time_s=reading.time_s + 1, cache=cache)
    said = tape.feed(later).content["stream"]["cache"]
    assert said == "serving, 40 of 50 samples in 3.0 MiB of 4.0 MiB, 75 % of samples served from it"
    assert f"cache: {said}" == cached(cache)
    assert "stream" not in tape.feed(replace(later, time_s=later.time_s + 1)).content


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


@pytest.mark.parametrize("computing_s", [74.496, 74.504, 9.4996, 50.496])
def test_shares_of_all_its_time_are_those_of_the_report(computing_s: float) -> None:
    """To the last digit shown, as near to the next one as they may be."""
    stream, tape = three_models(), Tape()
    first = next(iter(stream.run(1)))
    begun = replace(first.consumers[0], computing_s=0.0, waiting_s=0.0, held_s=0.0)
    done = replace(begun, computing_s=computing_s, waiting_s=100 - computing_s, samples=99496)
    readings = [
        replace(first, time_s=first.time_s + seconds, consumers=consumers)
        for seconds, consumers in ((0, (begun,)), (100, (done,)), (101, ()))
    ]
    for reading in readings:
        tape.feed(reading)
    rate, computing, *_ = tape.scene()["lanes"][0]["whole"]
    (trial,) = spent(readings)
    assert (percent(computing), count(rate)) == (
        percent(trial.share("computing")),
        count(trial.samples_per_s),
    )


def test_words_of_the_ticks_add_up_to_the_scene() -> None:
    """Whatever changes of a trial: joins, metrics, who is awaited, its part, its end, another run of its name."""
    tape, told = Tape(), dict[str, dict[str, Any]]()
    readings = list(three_models().run(30))
    first = readings[-1].consumers[0]
    end = EndReading(
        first.name, "failed", readings[-1].time_s + 1, first.pid, "ValueError: no", {"loss": 7.0}
    )
    changes: list[dict[str, Any] | None] = [
        {"awaits": "rank 2 of 4"},
        {"awaits": ""},
        {"part": "fold 1 of 5"},
        {"metrics": {"f1": 0.5}},
        {"pid": 7},
        None,
        None,
        {"pid": 8, "batches": 0},
    ]
    for number, change in enumerate(changes):
        rest = readings[-1].consumers[1:]
        readings.append(
            replace(
                readings[-1],
                time_s=readings[-1].time_s + 0.25,
                consumers=rest if change is None else (replace(first, **change), *rest),
                ends=(end,) if number == 6 else (),
            )
        )
    for reading in readings:
        told |= tape.feed(reading).content.get("lanes", {})
        assert [told[str(k)] for k in range(len(told))] == tape.scene()["lanes"]
    assert told["0"]["run"] == 2 and told["0"]["metrics"][-1] == "f1"


def test_a_lane_stays_with_its_name() -> None:
    """A trial that leaves and comes back has its place, and with it its colour."""
    trials = [Trial("a", 0.02, leaves_s=5), Trial("b", 0.02, joins_s=2)]
    stream, tape = Stream(trials), Tape()
    for reading in stream.run(8):
        tape.feed(reading)
    assert [(lane.name, lane.here) for lane in tape.view.rows.values()] == [("a", False), ("b", True)]
    trials[0].leaves_s = 1e9
    for reading in stream.run(2):
        message = tape.feed(reading)
    assert list(tape.view.rows) == ["a", "b"]
    assert tape.view.rows["a"].here
    assert numbers(message.frame)[len(HEADER)] < 16  # lane 0


def test_a_new_metric_changes_only_its_lane() -> None:
    """The front end hears of a metric's name once; a frame has a value when it is logged, and not again."""
    tape, reading = Tape(), replace(three_models().reading(), consumers=())
    one = next(r for r in three_models().run(2) if r.consumers).consumers[0]
    tape.feed(replace(reading, consumers=(replace(one, metrics={}),)))
    message = tape.feed(
        replace(reading, time_s=reading.time_s + 1, consumers=(replace(one, metrics={"loss": 0.5}),))
    )
    assert message.content["lanes"]["0"]["metrics"] == ["loss"]
    assert numbers(message.frame)[-1] == 0.5
    assert numbers(message.frame)[len(HEADER) + len(ROW) :] == [-2, 0, 0.5]
    again = replace(reading, time_s=reading.time_s + 2, consumers=(replace(one, metrics={"loss": 0.5}),))
    assert len(numbers(tape.feed(again).frame)) == len(HEADER) + len(ROW)


def test_whom_a_rank_waits_for_is_sent_when_that_changes() -> None:
    """The front end shows it in the row's tooltip, until the rank waits no more."""
    tape, reading = Tape(), three_models().reading()
    rank = replace(next(r for r in three_models().run(2) if r.consumers).consumers[0], name="bert[0]")
    sent = []
    for awaits in ("rank 1 of 2", "rank 1 of 2", ""):
        message = tape.feed(replace(reading, consumers=(replace(rank, awaits=awaits),)))
        sent.append(message.content.get("lanes", {}).get("0", {}).get("awaits"))
    assert sent == ["rank 1 of 2", None, ""]


def test_a_trial_that_is_not_attached_yet_is_a_lane_and_costs_nothing_while_there_is_none() -> None:
    """With state and reason, in no frame; hidden once nobody tells of it, until it is attached or has ended."""
    readings = [r for r in three_models().run(3) if r.consumers]
    tape, plain = Tape(), Tape()
    rank = replace(readings[-1].consumers[0], name="big")
    why, sent, sizes = "queued: it starts when 'a' is done", [], []
    consumers = readings[-1].consumers
    for k, pending in enumerate(
        [{}, {"big": why}, {"big": why}, {"big": "starting"}, {}, {"big": why}, None]
    ):
        reading = replace(readings[-1], time_s=readings[-1].time_s + k, pending=pending or {})
        if pending is None:
            reading = replace(reading, consumers=(*consumers, rank), pending={"big": why})
        message, without = tape.feed(reading), plain.feed(replace(reading, pending={}))
        sizes.append((len(message.frame), len(without.frame)))
        sent.append(message.content.get("lanes", {}).get(str(len(consumers))))
        if k == 0:
            assert message == without and "pending" not in str(message.content)
        if k == 1:
            assert [row.name for row in tape.view.shown(9)][-1] == "big"
            assert ["big", why] in [line.split(None, 1) for line in as_text(tape.view, "it").splitlines()]
    assert all(size == same for size, same in sizes), "its numbers are in no frame"
    told = [lane and (lane["here"], lane.get("pending"), lane.get("unknown")) for lane in sent]
    assert told == [
        None, (False, why, None), None, (False, "starting", None), (False, None, True), (False, why, None),
        (True, None, None),
    ]  # fmt: skip
    tape.feed(replace(readings[-1], time_s=readings[-1].time_s + 9, pending={"small": why}))
    assert tape.view.rows["small"].state == "queued"
    tape.note("gone", "The stream has ended.")
    assert tape.view.rows["small"].unknown, "it waits, but not for this stream"


def test_all_metrics_are_kept_and_cost_nothing_while_they_rest() -> None:
    """A trial may log a hundred numbers: each can be drawn, and a tick in which none was logged is as small as ever."""
    tape, reading = Tape(), three_models().reading()
    one = next(r for r in three_models().run(2) if r.consumers).consumers[0]
    many = {f"m{k}": float(k) for k in range(100)}
    message = tape.feed(replace(reading, consumers=(replace(one, metrics=many),)))
    assert message.content["lanes"]["0"]["metrics"] == list(many)
    assert len(tape.view.curves) == 100
    message = tape.feed(replace(reading, time_s=reading.time_s + 1, consumers=(replace(one, metrics=many),)))
    assert len(numbers(message.frame)) == len(HEADER) + len(ROW)


def test_curves_have_every_value_by_time_batch_and_epoch() -> None:
    """A page that opens gets them all, a value for each reading in which it had changed."""
    tape, readings = Tape(), list(three_models().run(20))
    for reading in readings:
        tape.feed(reading)
    losses = [c.metrics["loss"] for r in readings for c in r.consumers[:1] if c.metrics]
    points = [dict(zip(POINT, point, strict=True)) for point in tape.view.curves.points(0, 0)]
    assert [point["last"] for point in points] == pytest.approx(losses)
    assert points[-1]["batches"] == readings[-1].consumers[0].batches
    assert points[-1]["epochs"] == pytest.approx(points[-1]["batches"] / 63)
    assert numbers(tape.curves())[:4] == [0, 0, 1, len(points)]
    assert len(numbers(tape.curves())) == sum(
        4 + len(POINT) * len(tape.view.curves.points(lane, metric))
        for lane in range(3)
        for metric in range(2)
    )


@pytest.mark.slow
def test_a_long_curve_is_as_fine_at_its_beginning_as_at_its_end() -> None:
    """A day of values: bounded, in order, with the newest and the one outlier of all, in stretches of one width."""
    curves = Curves()
    for k in range(50_000):
        curves.add(0, 0, (k / 4, k, k / 63), 1e4 if k == 12_345 else 1 / (1 + k % 9))
    points = [dict(zip(POINT, point, strict=True)) for point in curves.points(0, 0)]
    assert POINTS // 2 <= len(points) <= POINTS
    batches = [point["batches"] for point in points]
    assert {after - before for before, after in itertools.pairwise(batches[:-1])} == {128}
    assert points[-1]["time_s"] == 49_999 / 4 and points[-1]["last"] == pytest.approx(1 / (1 + 49_999 % 9))
    assert sum(point["values"] for point in points) == 50_000
    assert max(point["high"] for point in points) == 1e4
    mean = sum(1 / (1 + k % 9) for k in range(128)) / 128
    assert points[0]["mean"] == pytest.approx(mean) and points[-2]["mean"] == pytest.approx(mean, rel=0.05)
    for lane in range(1, 2000):
        for k in range(200):
            curves.add(lane, 0, (k, k, k), k)
    assert len(curves.to_bytes()) < 3_000_000, "two thousand trials too"


def test_what_is_not_finite_does_not_spoil_a_stretch() -> None:
    """A loss that was nan for a while: the mean of a stretch is of its numbers; nan where it has none."""
    curves = Curves()
    for k in range(4 * POINTS):
        curves.add(0, 0, (k, k, k), math.nan if k % 2 or 800 <= k < 900 else 1.0)
    points = [dict(zip(POINT, point, strict=True)) for point in curves.points(0, 0)]
    empty = [point for point in points if point["values"] == 0]
    assert 20 < len(empty) < 30 and all(math.isnan(point["mean"]) for point in empty)
    assert all(point["mean"] == point["low"] == 1.0 for point in points if point["values"])


def test_a_trial_that_runs_again_begins_its_curve_anew() -> None:
    """The name has its colour, the run its own curve: batches count from 0 again."""
    tape, readings = Tape(), list(three_models().run(6))
    for reading in readings[:12]:
        tape.feed(reading)
    for reading in readings[12:]:
        again = tuple(replace(each, pid=each.pid + 1000) for each in reading.consumers)
        message = tape.feed(replace(reading, consumers=again))
    assert tape.scene()["lanes"][0]["run"] == 1
    points = tape.view.curves.points(0, 0)
    assert 1 <= len(points) <= 12 and points[0][0] >= 3.0
    assert "lanes" not in message.content


def test_numbers_that_are_not_finite_do_no_harm() -> None:
    """Larger than float32 holds: infinite in a curve; the words are JSON all the same."""
    tape, reading = Tape(), three_models().reading()
    one = next(r for r in three_models().run(2) if r.consumers).consumers[0]
    for k, value in enumerate((1e300, -1e300, math.nan, math.inf, 0.5)):
        now = replace(one, batches=one.batches + k, metrics={"loss": value})
        told = replace(reading, time_s=reading.time_s + k, consumers=(now,))
        json.dumps(tape.feed(told).content, allow_nan=False)
    values = [dict(zip(POINT, point, strict=True))["last"] for point in tape.view.curves.points(0, 0)]
    assert values[:2] == [math.inf, -math.inf] and values[-1] == 0.5


def test_one_that_only_says_how_it_ended_is_nowhere_in_the_stream() -> None:
    """Its last numbers come in a row without buffer and lag: charts over time end where it left."""
    tape, reading = Tape(), next(r for r in three_models().run(2) if r.consumers)
    tape.feed(reading)
    tape.feed(replace(reading, time_s=reading.time_s + 1, consumers=()))
    end = EndReading(reading.consumers[0].name, "done", reading.time_s + 9, metrics={"loss": 0.25})
    message = tape.feed(replace(reading, time_s=reading.time_s + 10, consumers=(), ends=(end,)))
    row = dict(zip(ROW, numbers(message.frame)[len(HEADER) :], strict=False))
    assert np.isnan([row["fill"], row["lag"], row["samples_per_s"]]).all()
    assert message.content["lanes"]["0"]["last"] == {"loss": 0.25}


def test_a_stream_that_is_over_says_what_limited_it_as_its_report_does() -> None:
    """The panel ended with who was best, and only the report said which trial had set the pace."""
    tape, readings = Tape(), list(three_models().run(60))
    assert not any("limited" in tape.feed(reading).content.get("say", {}) for reading in readings)
    last = readings[-1]
    ends = tuple(
        EndReading(c.name, "done", last.time_s + 1, c.pid, metrics=c.metrics) for c in last.consumers
    )
    readings.append(replace(last, time_s=last.time_s + 1, consumers=(), ends=ends, state="idle"))
    limited = tape.feed(readings[-1]).content["say"]["limited"]
    told = story(readings)
    assert limited == f"{told.lead} {told.rest}" and limited.startswith("The loader was the limit at")
    assert tape.scene()["say"]["limited"] == limited
    readings.append(replace(readings[-1], time_s=last.time_s + 2, ends=()))
    assert tape.feed(readings[-1]).content["say"]["limited"] == limited


def test_a_trial_that_ended_unseen_has_its_speed_and_shares_on_every_screen() -> None:
    """`tsnb status` looks at a stream anew each time; the producer knows what those that left did in all."""
    here = next(r for r in three_models().run(5) if r.consumers)
    took = {
        "samples": 6400,
        "computing_s": 6.0,
        "waiting_s": 3.0,
        "held_s": 0.5,
        "batches": 100,
        "attached_s": 10.0,
    }
    left = EndReading("gone", "left", here.time_s - 1, 7, metrics={"loss": 0.5}, **took)  # type: ignore[arg-type]
    done = EndReading("gone", "done", here.time_s, 7, since_s=here.time_s - 11)
    tape = Tape()
    tape.feed(replace(here, ends=(left, done)))
    row = tape.view.rows["gone"].whole.pace
    assert (row.samples_per_s, row.computing, row.waiting, row.held) == pytest.approx((640, 0.6, 0.3, 0.05))
    line = next(each for each in as_text(tape.view, "mnist").splitlines() if each.startswith("gone "))
    assert line.split() == ["gone", "done", "640", "60", "%", "30", "%", "5", "%", "5", "%", "loss", "0.5"]
    trial = next(each for each in spent([replace(here, ends=(left, done))]) if each.name == "gone")
    assert trial.samples_per_s == pytest.approx(640) and trial.share("waiting") == pytest.approx(0.3)
    assert trial.active_s == pytest.approx(10)


def test_the_sentence_is_not_rewritten_at_every_tick() -> None:
    """Its numbers change every tick; it is sent every other second at most."""
    stream, tape, said = three_models(), Tape(), 0
    for k, reading in enumerate(stream.run(60)):
        said += "say" in tape.feed(reading).content and k > 60
    assert 5 < said < 40


def test_panel_and_status_name_the_samples_that_a_consumer_takes() -> None:
    """Of one that takes a part; the others' lines stay as they are."""
    tape, reading = Tape(), list(three_models().run(20))[-1]
    first, *others = reading.consumers
    tape.feed(replace(reading, consumers=(replace(first, part="fold 1 of 5"), *others)))
    told = {lane["name"]: lane["part"] for lane in tape.scene()["lanes"]}
    assert told == {first.name: "fold 1 of 5", **dict.fromkeys((each.name for each in others), "")}
    lines = as_text(tape.view, "mnist").splitlines()
    assert [line.split()[0] for line in lines if "(fold 1 of 5)" in line] == [first.name]


def test_a_trial_that_is_held_back_does_not_set_the_pace() -> None:
    """A row had said both: that it sets the pace, and that it was held back all the time."""
    tape, last = Tape(), next(r for r in three_models().run(12) if len(r.consumers) > 1)
    for k in range(12):
        slow = replace(last.consumers[0], state="sets the pace", held_s=last.consumers[0].held_s + k / 4)
        tape.feed(replace(last, time_s=last.time_s + k / 4, consumers=(slow, *last.consumers[1:])))
    row = tape.view.rows[last.consumers[0].name]
    assert row.pace.held > 0.9 and row.state == row.reading.state == "held back"


def test_the_sentence_says_the_numbers_of_the_rows() -> None:
    """At every moment, whatever has changed since: the same shares beside each other, in text, panel and `tsnb top`."""
    tape, frames, told = Tape(), {}, 0
    for reading in three_models().run(90):
        message = tape.feed(reading)
        frame = numbers(message.frame)
        frames[round(frame[0], 2)] = frame
        text = as_text(tape.view, "mnist").splitlines()
        said = re.search(r"\. (.+?) (?:wait|waits) for slower trials (.+) % of (?:its|their) time", text[1])
        if not said:
            continue
        rows = {line.split()[0]: line for line in text[2:] if "samples/s" not in line and "%" in line}
        named = re.split(r", | and ", said[1])
        shares = re.findall(r"\d+", said[2])
        if len(named) != len(shares):
            continue
        told += 1
        drawn = frames[tape.scene()["say"]["at"]]
        for name, share in zip(named, shares, strict=True):
            assert rows[name].split("%")[2].strip() == share, text
            lane = tape.view.rows[name].number
            at = next(k for k in range(len(HEADER), len(drawn), len(ROW)) if drawn[k] // 16 == lane)
            held = dict(zip(ROW, drawn[at:], strict=False))["held"]
            assert math.floor(round(held * 100, 4) + 0.5) == int(share)
    assert told > 100


def test_the_best_is_the_best_of_what_is_shown() -> None:
    """The star stands at the lowest loss of all at every tick, not at the one that had it seconds ago."""
    tape = Tape()
    for reading in three_models().run(30):
        tape.feed(reading)
        losses = {name: row.metrics["loss"] for name, row in tape.view.rows.items() if row.metrics}
        if len(losses) > 1:
            assert tape.view.best["loss"] == min(losses, key=lambda name: losses[name])


@pytest.mark.slow
def test_a_panel_that_opens_late_takes_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of hours: no reading is told again and no sentence is made; the page has all that is kept."""
    view, history = StreamView(), History()
    for reading in rebalanced().run(900):
        history.add(reading, view.feed(reading).frame)
    work: list[str] = []
    monkeypatch.setattr(StreamView, "feed", lambda *_: work.append("feed"))
    monkeypatch.setattr(module, "diagnose", lambda *_: work.append("diagnose"))
    tape = Tape("mnist")
    tape.share(view, history)
    scene, frames, curves = tape.scene(), tape.history(), tape.curves()
    assert work == []
    assert scene["n"] == history.added == 3600
    assert (tape.state, tape.sentence) == (view.state, view.say.text)
    assert [lane["name"] for lane in scene["lanes"]] == list(view.rows)
    assert frames == history.frames() and len(frames) > 100_000
    assert numbers(curves[:12])[:2] == [0, 0]


def test_several_panels_of_one_view_say_the_same() -> None:
    """One opened at the start, one in the middle: the same words, and ticks that follow on what each has."""
    view, history = StreamView(), History()
    early, late = Tape("mnist"), Tape("mnist")
    early.share(view, history)
    heard = []
    for k, reading in enumerate(three_models().run(30)):
        if k == 60:
            late.share(view, history)
            late_n = late.scene()["n"]
        tick = view.feed(reading)
        history.add(reading, tick.frame)
        heard.append(early.tell(tick))
        if k >= 60:
            late_n += 1
            assert late.tell(tick).content["n"] == late_n
    assert early.scene() == late.scene()
    assert early.history() == late.history()


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


def test_a_page_may_open_while_a_reading_comes() -> None:
    """The watch's thread adds trials and values while the kernel's takes all of it: nothing is torn."""
    tape, reading = Tape(), three_models().reading()
    one = next(r for r in three_models().run(2) if r.consumers).consumers[0]
    done = threading.Event()

    def feed() -> None:
        for k in range(400):
            metrics = {f"m{k % 50}": float(k), "loss": 1 / (1 + k)}
            now = replace(one, name=f"t{k // 10}", metrics=metrics)
            tape.feed(replace(reading, time_s=reading.time_s + k / 4, consumers=(now,)))
        done.set()

    feeding = threading.Thread(target=feed)
    often_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        feeding.start()
        while not done.is_set():
            scene = json.loads(json.dumps(tape.scene()))
            assert set(scene["ways"]) <= {name for lane in scene["lanes"] for name in lane["metrics"]}
            as_text(tape.view, "a page")
            tape.view.shown(20)
            assert isinstance(tape.view.energy, str)
            curves, at = numbers(tape.curves()), 0
            while at < len(curves):
                at += 4 + len(POINT) * int(curves[at + 3])
            assert at == len(curves)
    finally:
        sys.setswitchinterval(often_s)
        feeding.join()


def test_what_a_trial_does_apart_travels_only_while_it_does_so() -> None:
    """A pause, and the wait for a pass to join; a paused trial has no speed, and is none of those that wait."""
    readings = list(three_models().run(30))
    tape = Tape()
    for reading in readings:
        plain = tape.feed(reading)
    first, *others = reading.consumers
    paused = replace(first, state="paused", pause_s=1.0, paused_s=1.0, attached_s=first.attached_s + 1)
    message = tape.feed(replace(reading, time_s=reading.time_s + 1, consumers=(paused, *others)))
    rows = len(HEADER) + len(reading.consumers) * len(ROW)
    assert numbers(plain.frame)[rows : rows + 1] != [-4]
    assert numbers(message.frame)[rows : rows + 2 + len(APART)] == [-4, 1, 0, 0, 1, 0]
    assert dict(zip(ROW, numbers(message.frame)[len(HEADER) :], strict=False))["held"] == 0
    tape.view.settle()
    assert first.name not in tape.view.say.text


def test_panels_that_were_opened_early_and_late_tell_the_same_parts_of_a_pause() -> None:
    """The late one has nothing but the end: three minutes of a pause were three minutes between epochs, or nothing."""
    stream = three_models()
    readings = list(stream.run(30))
    last = readings[-1]
    gone = replace(
        last.consumers[0], paused_s=12.0, joining_s=2.0, attached_s=last.consumers[0].attached_s + 14
    )
    told = {name: getattr(gone, name) for name in ("samples", *TIMES)}
    end = EndReading(gone.name, "left", last.time_s + 0.25, gone.pid, batches=gone.batches, **told)
    over = replace(last, time_s=last.time_s + 0.25, consumers=last.consumers[1:], ends=(end,))
    early, late = StreamView(), StreamView()
    for reading in [*readings, over]:
        early.feed(reading)
    late.feed(over)
    one, other = (view.rows[gone.name].whole for view in (early, late))
    assert one == other and (one.paused_s, one.joining_s) == (12.0, 2.0)
    (row,) = [trial for trial in spent([*readings, over]) if trial.name == gone.name]
    assert row.paused_s == 12.0 and row.samples_per_s == pytest.approx(one.pace.samples_per_s)


TIMES = ("computing_s", "waiting_s", "held_s", "joining_s", "paused_s", "timed_out_s", "attached_s")


def test_that_no_other_trial_reads_is_not_said_once_another_has_come() -> None:
    """In a duel the sentence stood for two seconds above the rows of the next four."""
    trials = [Trial("slow", 0.4, leaves_s=20.0), Trial("quick", 0.05), Trial("next", 0.05, joins_s=21.0)]
    stream, tape, alone = Stream(trials), Tape("s"), []
    for reading in stream.run(24.0):
        tape.feed(reading)
        if tape.view.say.lead == "No other trial is reading.":
            alone.append(len(reading.consumers))
    assert set(alone) == {1}, alone
