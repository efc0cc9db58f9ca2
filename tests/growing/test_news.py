"""What is told of rounds and of samples that enter: counted together, and in the same words on every surface."""

from __future__ import annotations

import io
import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console
from torch.utils.data import DataLoader

import tsnb
from tests.telemetry.test_diagnosis import stream
from tests.waiting import wait_until
from tsnb.growing.news import TOGETHER_S, GrowthNews
from tsnb.growing.selection import Standing
from tsnb.panel.tape import Tape
from tsnb.reports import Report
from tsnb.telemetry.readings import GrowthReading, StreamReading
from tsnb.telemetry.shown.marks import Marker
from tsnb.telemetry.shown.view import StreamView
from tsnb.top.view import screen


def test_samples_that_enter_one_by_one_are_told_together_and_add_up() -> None:
    """The first at once, later ones every ten seconds, at the end of their epoch, or where another one gets some."""
    now_s = 100.0
    news = GrowthNews(lambda: now_s)

    def told() -> list[tuple[str, int, int]]:
        return [(one.kind, one.epoch, one.samples) for one in news.readings]

    news.enter(2, 1)
    assert told() == [("entered", 2, 1)]
    news.enter(2, 3)
    news.enter(2, 4)
    now_s += TOGETHER_S - 1
    news.look()
    assert told() == [("entered", 2, 1)]
    now_s += 1
    news.look()
    assert told() == [("entered", 2, 1), ("entered", 2, 7)]
    news.enter(2, 5)
    news.end_epoch()
    news.end_epoch()
    assert told()[2:] == [("entered", 2, 5)]
    news.enter(2, 6)
    news.enter(3, 8)
    news.enter(3, 9)
    now_s = 50.0  # somebody has set the clock
    news.begin_round(4, 10, "all", "why")
    assert told()[3:] == [("entered", 2, 6), ("entered", 3, 8), ("entered", 3, 9), ("round", 4, 10)]
    times = [one.time_s for one in news.readings]
    assert times == sorted(set(times)), "who watches knows by the time what is new"


def test_each_is_one_mark_also_where_a_producer_was_started_again() -> None:
    """What the reading before had is not marked again; another process's are all new."""
    one = GrowthReading(90.0, "entered", 2, 1)
    two = GrowthReading(95.0, "round", 3, 1200, "hard:0.3", "after 60 s")
    marker = Marker()
    found = [
        [(mark.time_s, mark.kind, mark.text) for mark in marker.feed(reading)]
        for reading in (
            stream(),
            stream(growth=(one,)),
            stream(growth=(one, two)),
            stream(pid=2, growth=(GrowthReading(80.0, "round", 4, 1, "new", ""),)),
        )
    ]
    assert found == [
        [],
        [(90.0, "entered", "1 new sample in pass 3")],
        [(95.0, "round", "round 4: 1,200 samples (hard:0.3), after 60 s")],
        [(100.0, "restarted", "producer restarted"), (80.0, "round", "round 5: 1 sample (new)")],
    ]


def test_a_trigger_says_why_a_round_begins() -> None:
    """Which of several it was, and by how much."""
    trigger = tsnb.data.every(20) | tsnb.data.interval(60) | tsnb.data.worse("val_loss", min_delta=0.1)
    since = Standing(100, 50.0, {("cnn", "val_loss"): 0.5})
    assert trigger.reason(since, Standing(119, 60.0, {("cnn", "val_loss"): 0.59})) == ""
    assert trigger.reason(since, Standing(1120, 60.0)) == "1,020 new samples"
    assert trigger.reason(since, Standing(100, 110.0)) == "after 60 s"
    worse = trigger.reason(since, Standing(100, 60.0, {("cnn", "val_loss"): 0.6251}))
    assert worse == "val_loss of cnn worse by 0.125"
    assert trigger.reason(Standing(0, 0.0), Standing(1, 0.0)) == "the first"


def surfaces(readings: list[StreamReading]) -> dict[str, str]:
    """What each of them shows of a stream."""
    tape, view = Tape(), StreamView()
    for reading in readings:
        tape.feed(reading)
        view.feed(reading)
    console = Console(width=150, file=(top := io.StringIO()), color_system=None)
    console.print(screen(view, 150, ""))
    report = Report(readings)
    picture = ET.fromstring(report.svg)
    return {
        "panel": json.dumps(tape.scene(), ensure_ascii=False),
        "top": top.getvalue(),
        "text": report.text,
        "picture": "\n".join(picture.itertext()),
        "json": json.dumps(report.to_dict(), ensure_ascii=False),
    }


@pytest.mark.system
def test_a_round_and_samples_that_enter_are_marks_with_the_same_words_everywhere(tmp_path: Path) -> None:
    """In the panel, `tsnb top`, and a report's text, picture and JSON; each once."""
    names = [str(number) for number in range(40)]
    grown = tsnb.data.grow(lambda: list(names), int, index=tmp_path / "index")
    loader = DataLoader(grown, 4, shuffle=True)
    with tsnb.serve(loader, name="g", seed=1, window=1) as producer, tsnb.attach("a", "g") as consumer:
        readings, taken = [producer.status()], [0, 0]
        for batch in consumer:
            if not taken[0]:
                names.append("40")
                wait_until(lambda: producer.status().found == 41)
            taken[0] += len(batch)
            readings.append(producer.status())
        tsnb.data.rounds("g", tsnb.data.every(5), "hard:0.3")
        names.extend(str(number) for number in range(41, 46))
        taken[1] = sum(len(batch) for batch in consumer)
        readings.append(producer.status())
    assert taken == [41, 14]
    shown = surfaces(readings)
    for text in ("1 new sample in pass 1", "round 2: 14 samples (hard:0.3), 5 new samples"):
        counts = {surface: found.count(text) for surface, found in shown.items()}
        assert counts == dict.fromkeys(shown, 1), (text, readings[-1].growth)
