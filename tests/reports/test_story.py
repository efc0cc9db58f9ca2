"""What a report says: the sentence over the whole life, the numbers, what changed."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.panel.streams import Stream, Trial, three_models
from tests.reports.made import START_S, consumer, reading
from tsnb.errors import TsnbError
from tsnb.panel.tape import Tape
from tsnb.reports import Report
from tsnb.reports.plain import plain, ticks_s
from tsnb.reports.story import story
from tsnb.telemetry.lives.limits import limited
from tsnb.telemetry.readings import ConsumerReading, EndReading, HostReading, ProcessReading, StreamReading
from tsnb.telemetry.shown.history import History
from tsnb.telemetry.shown.view import StreamView
from tsnb.text.numbers import DASH, clock

LOG = Path(__file__).parents[1] / "panel" / "quickstart.jsonl"


@pytest.fixture
def quickstart() -> list[StreamReading]:
    return [StreamReading.from_json(line) for line in LOG.read_text(encoding="utf-8").splitlines()]


def test_it_names_the_model_that_held_the_others(quickstart: list[StreamReading]) -> None:
    """The panel's words, over all that was read."""
    told = story(quickstart, ended=True)
    assert told.pace == "wide-cnn"
    assert told.lead == "wide-cnn set the pace."
    assert told.rest.startswith("small-cnn and mlp waited for slower trials 55 % and 60 % of their time")
    rows = {trial.name: f"{trial.share('held'):.0%}" for trial in told.trials}
    assert (rows["small-cnn"], rows["mlp"]) == ("55%", "60%"), "the sentence says what the rows say"
    going = story(quickstart)
    assert going.lead == "wide-cnn sets the pace." and "wait for slower trials" in going.rest
    assert told.watched_late, "the log begins in the fourth epoch"
    assert (told.batches, told.delivered) == (228, 676)


def test_the_text_has_each_trial_and_what_changed() -> None:
    """As a terminal shows it."""
    text = plain(story(list(three_models().run(100)), ended=True))
    assert text.startswith("stream mnist, ended: 4 trials, trained for 1:40")
    for words in (
        "cnn-small",
        "resnet18-wide-sgd timed out",
        "0:20  resnet18-wide-sgd joined",
        "batches prepared once",
    ):
        assert words in text
    head, row = (
        next(line for line in text.splitlines() if line.startswith(name))
        for name in ("trial", "resnet18-wide-sgd ")
    )
    assert row[: head.index("timed out") + len("timed out")].endswith(("0:29", "0:30"))
    assert "paused" not in head, "nobody was"
    assert max(map(len, text.splitlines())) < 180


def test_batches_of_every_producer_count() -> None:
    """A stream that was started again counts from zero; the report has all of it."""
    readings = [
        reading(0, consumer("a"), pid=1, batches=0),
        reading(5, consumer("a", 5.0), pid=1, batches=50),
        reading(8, consumer("a", 1.0), pid=2, batches=10),
        reading(9, consumer("a", 2.0), pid=2, batches=20),
    ]
    told = story(readings)
    assert told.batches == 70
    assert [mark.kind for mark in told.marks] == ["restarted"]


def test_advice_on_workers_takes_the_machine_as_it_was_on_average() -> None:
    """All cores busy over the stream's life: cheaper transforms, not more workers."""

    def host(cpu: float) -> HostReading:
        return HostReading(4, cpu, 1, 2, producer=ProcessReading(1.9, 1, 4))

    waiting = [reading(k, consumer("a", k * 0.2, k * 0.8), workers=2) for k in range(10)]
    busy = [replace(r, host=host(4.0 if k % 2 else 3.9)) for k, r in enumerate(waiting)]
    assert story(waiting).kind == story(busy).kind == "loader-bound"
    assert "more workers would help if cores are free" in story(waiting).rest
    assert "all 4 cores are busy" in story(busy).rest
    assert story(busy).cpu == pytest.approx(3.95, abs=0.01)


def test_a_stream_that_rests_afterwards_is_no_slower_for_it() -> None:
    """The loader's pace is of the time in which somebody read."""
    trained = [reading(k, consumer("a", k * 0.2, k * 0.8)) for k in range(11)]
    rested = [reading(k, state="idle", batches=100) for k in range(11, 200)]
    assert story(trained).lead == "The loader is the limit at 10.0 batches/s."
    assert abs(float(story(trained + rested).lead.split()[-2]) - 10.0) < 1.0


@pytest.mark.parametrize(
    ("readings", "lead"),
    [
        ([reading(0), reading(5)], "No trial has attached."),
        ([reading(0, consumer("a", state="joining"))], "No batch was read."),
        ([reading(0), reading(5, state="failed", failure="ValueError: bad file")], "The loader failed:"),
    ],
)
def test_streams_on_which_nothing_happened_have_a_story_too(readings: list[StreamReading], lead: str) -> None:
    """No trial, no batch, a broken loader."""
    told = story(readings)
    assert told.lead == lead
    assert plain(told)


def test_nothing_read_is_an_error() -> None:
    with pytest.raises(TsnbError, match="no reading"):
        story([])


def test_all_of_it_is_json() -> None:
    """Numbers, texts, lists and dictionaries only."""
    told = story(list(three_models().run(5)))
    again = json.loads(json.dumps(told.to_dict()))
    assert again["trials"][0]["computing_s"] == told.trials[0].computing_s


@pytest.mark.parametrize("seconds", [0.5, 7, 61, 1000, 5000, 90_000, 5_000_000])
def test_an_axis_has_few_round_times(seconds: float) -> None:
    ticks = list(ticks_s(seconds, 8))
    assert ticks[0] == 0
    assert ticks[-1] <= seconds
    assert len(ticks) <= 10


def test_names_that_begin_alike_can_be_told_apart_below_the_heads() -> None:
    """Numbers stand below their heads, also where names need a letter more than their column has."""
    lrs, nets = ("0.0003", "0.003"), ("small-cnn", "wide-cnn")
    names = [f"train-lr{lr}-net{net}-decay{k}" for lr in lrs for net in nets for k in (0.1, 0.01)]
    readings = list(Stream([Trial(name, 0.05) for name in names]).run(10))
    lines = plain(story(readings)).splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("trial "))
    rows = lines[at + 1 : at + 1 + len(names)]
    assert len({row.split()[0] for row in rows}) == len(names), rows
    end = lines[at].index("attached") + len("attached")
    assert all(re.search(r"\d:\d\d$", row[:end]) for row in rows), rows


def test_live_advice_does_not_flip_and_is_that_of_the_report() -> None:
    """Two cores, each look another load: the panel's sentence and the report's advise the same, by one mean."""
    readings, view, said = [], StreamView(), []
    for k in range(1200):
        after_s = k / 4
        host = None
        if k % 8 == 0:  # between busy and half idle, in turns; before the first trial all is idle
            load = (1.98, 1.4, 1.9, 1.95)[k // 8 % 4] if after_s > 20 else 0.1
            host = HostReading(2, load, 1 << 30, 8 << 30, ProcessReading(0.5 * load, 1 << 20, 2), {}, ())
        read_s = max(0.0, after_s - 20)
        waiting = 0.5 + 0.2 * math.sin(k / 30)
        trial = consumer("a", read_s * (1 - waiting), read_s * waiting, batches=round(10 * read_s))
        here = (trial,) if after_s >= 20 else ()
        readings.append(reading(after_s, *here, host=host, workers=1, state="serving" if here else "idle"))
        view.feed(readings[-1])
        if view.say.kind == "loader-bound" and after_s > 60:
            said.append(view.say.text.partition("; ")[2])
    assert len(said) > 300
    assert set(said) == {story(readings).rest.partition("; ")[2]}


def test_nobody_waited_for_a_trial_that_had_gone_before_it_came() -> None:
    """It said that a had set the pace and d had waited; d came an hour later, and waited for c."""

    def slow(name: str, s: float, state: str = "sets the pace") -> ConsumerReading:
        return consumer(name, s, attached_s=s, state=state, pid=sum(name.encode()))

    def quick(name: str, s: float) -> ConsumerReading:
        return consumer(name, 0.6 * s, held_s=0.4 * s, attached_s=s, pid=sum(name.encode()))

    first = [reading(s, slow("a", s), quick("b", s)) for s in range(60)]
    later = [reading(3600 + s, slow("c", s), quick("d", s)) for s in range(40)]
    alone = [reading(s, slow("a", s)) for s in range(60)]
    assert story([*first, *later], ended=True).lead == "a set the pace."
    assert story([*first, *later], ended=True).rest.startswith("b waited for slower trials 40 % of its time")
    told = story([*alone, *later], ended=True)
    assert (told.lead, told.pace) == ("c set the pace.", "c")
    assert told.rest.startswith("d waited for slower trials 40 % of its time")
    view, history = StreamView(), History()
    for each in (*alone, *later, replace(later[-1], time_s=START_S + 3641, consumers=())):
        view.feed(each)
        history.add(each)
    ends = tuple(EndReading(name, "done", START_S + 3642, sum(name.encode())) for name in "acd")
    last = replace(later[-1], time_s=START_S + 3643, consumers=(), ends=ends)
    view.feed(last)
    history.add(last)
    assert limited(view, history).startswith("c set the pace. d waited")


def test_a_thousand_trials_one_after_another_have_a_closing_sentence() -> None:
    """Each of them was looked at inside the look at the one before, and Python's stack was at its end."""
    readings = []
    for k in range(1200):
        alone = (
            consumer(f"t{k}", s, attached_s=s, state="sets the pace", pid=1000 + k) for s in (0.0, 2.0, 4.0)
        )
        readings += [reading(6 * k + 2 * at, one) for at, one in enumerate(alone)]
    for s in (0.0, 1.0, 2.0, 3.0):
        slow = consumer("c", s, attached_s=s, state="sets the pace", pid=1)
        quick = consumer("d", 0.6 * s, held_s=0.4 * s, attached_s=s, pid=2)
        readings.append(reading(7200 + s, slow, quick))
    told = story(readings, ended=True)
    assert (told.lead, told.rest[:20]) == ("c set the pace.", "d waited for slower ")


def test_the_time_of_training_is_the_same_for_who_came_late() -> None:
    """From when the first trial attached to when the last one ended, by what the trials told at their ends."""
    a, b = consumer("a", 1.0, pid=4), consumer("b", 1.0, pid=5)
    ends = (
        EndReading("a", "done", START_S + 20.5, 4, since_s=START_S + 4.5),
        EndReading("b", "done", START_S + 27.25, 5, since_s=START_S + 5.0),
    )
    early = [
        reading(0),
        reading(5, a, b),
        reading(20, a, b),
        replace(reading(21, b), ends=ends[:1]),
        replace(reading(28), ends=ends[1:]),
        reading(90),
    ]
    late = [replace(reading(80), ends=ends), reading(90)]
    for readings in (early, late):
        told = story(readings, ended=True)
        assert told.trained_s == 22.75
        assert f"2 trials, trained for {clock(22.75)}" in plain(told)
        tape = Tape("s")
        for one in readings:
            tape.feed(one)
        from_s, to_s, busy_s = tape.scene()["say"]["trained"]
        assert round(to_s - from_s, 2) == busy_s == 22.75


def test_the_time_of_training_has_no_hours_in_which_nobody_trained() -> None:
    """Two models of six seconds and a sweep of twelve, a minute later, had "trained for 1:09"."""
    a, b, c = consumer("a", 1.0, pid=4), consumer("b", 1.0, pid=5), consumer("c", 1.0, pid=6)
    ends = (
        EndReading("a", "done", START_S + 6, 4, since_s=START_S + 1.0),
        EndReading("b", "left", START_S + 7, 5, attached_s=5.0),
        EndReading("c", "done", START_S + 70, 6, since_s=START_S + 60.0),
    )
    early = [reading(0), reading(2, a, b), replace(reading(7), ends=ends[:2]), reading(30), reading(60.5, c)]
    for readings in ([*early, replace(reading(71), ends=ends[2:])], [replace(reading(80), ends=ends)]):
        told, tape = story(readings, ended=True), Tape("s")
        assert told.trained_s == pytest.approx(16.0)
        for one in readings:
            tape.feed(one)
        assert tape.scene()["say"]["trained"][2] == 16.0
    assert story(early).trained_s == pytest.approx(6.0), "a report while the sweep runs"
    unseen = (ends[1], EndReading("d", "left", START_S + 70, 7, attached_s=10.0))
    late = story([replace(reading(80), ends=unseen), reading(81, consumer("e"))])
    assert late.trained_s == pytest.approx(1.0), "it was below 0: nobody knows when the first began"


def early() -> list[StreamReading]:
    """One trial trains; another has failed before it attached, and its notebook has not told since that it waits."""
    end = EndReading("classify-lr10.0", "failed", START_S + 2, 7, "ValueError: lr", {})
    waits = {"classify-lr10.0": "starting", "classify-lr0.1": "starting"}
    return [
        reading(0, consumer("classify-lr1.0", 0.0), pending=waits),
        reading(2, consumer("classify-lr1.0", 1.5, attached_s=2.0), pending=waits),
        reading(3, consumer("classify-lr1.0", 2.5, attached_s=3.0), pending=waits, ends=(end,)),
    ]


def test_a_trial_that_never_attached_has_no_numbers() -> None:
    """It had 0:00, 0 % and samples/s 0, as if it had been slow; the panel and `tsnb status` have dashes."""
    told = Report(early())
    (row,) = [line for line in told.text.splitlines() if line.startswith("classify-lr10.0 ")]
    assert "0:00" not in row and "0 %" not in row and row.split()[1] == "failed", row
    assert set(row.split()[2:]) == {DASH}, row
    tree = ET.fromstring(told.svg)
    texts = [(one.get("y"), "".join(one.itertext())) for one in tree.iter("{http://www.w3.org/2000/svg}text")]
    at = next(y for y, text in texts if text == "classify-lr10.0" * 2)  # its tooltip and itself
    assert [text for y, text in texts if y == at][1:] == [DASH] * 6


def test_what_is_missing_of_one_trial_is_not_said_to_be_missing_here() -> None:
    """The column of CPU seconds had values, and below it stood that it cannot be measured here."""
    assert "not measurable here" in Report(early()).text.partition("Energy")[0]
    uses = {"classify-lr1.0": ProcessReading(0.5, 0, 1)}
    hosts = [HostReading(2, 1.0, 0, 1, consumers=uses) for _ in early()]
    seen = [replace(one, host=host) for one, host in zip(early(), hosts, strict=True)]
    assert f"CPU s {DASH}" not in Report(seen).text, "what never attached needs no reason"
    late = reading(4, consumer("classify-lr1.0", 3.5, attached_s=4.0), consumer("b", 0.5, attached_s=0.6))
    assert f"CPU s {DASH}: not measured for this trial." in Report([*seen, late]).text


def test_a_trial_that_has_failed_is_not_starting_as_well() -> None:
    """One of the same name that is started again is."""
    text = Report(early()).text
    assert "classify-lr0.1 starting." in text and "classify-lr10.0 starting." not in text
    (*_, last) = early()
    again = [
        replace(last, time_s=START_S + 4, pending={}),
        replace(last, time_s=START_S + 5, pending={"classify-lr10.0": "starting"}),
    ]
    assert "classify-lr10.0 starting." in Report([*early(), *again]).text


def test_columns_stand_below_their_heads_whatever_the_state() -> None:
    """A row of "sets the pace" was two letters further right."""
    states = {"a": "sets the pace", "b": "held back", "c": "streaming"}
    here = [consumer(name, 2.0, state=state, attached_s=3.0) for name, state in states.items()]
    lines = Report([reading(0, *here), reading(3, *here)]).text.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("trial "))
    for head in ("attached", "computing", "held back", "alone", "epochs"):
        end = lines[at].index(head) + len(head)
        assert all(
            line[end - 1] != " " and line[end : end + 1] in ("", " ") for line in lines[at + 1 : at + 4]
        ), head
