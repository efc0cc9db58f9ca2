"""Marks: what changed between two readings, in a few words."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.panel.streams import Stream, Trial, three_models
from tests.telemetry.test_diagnosis import consumer, stream
from tsnb.reports.figures import draw_word
from tsnb.reports.story import story
from tsnb.telemetry.readings import (
    EndReading,
    HostReading,
    MoveReading,
    ProbeReading,
    ProcessReading,
    StreamReading,
    TuningReading,
)
from tsnb.telemetry.shown.marks import MARK_KINDS, Mark, Marker, Taken, all_marks, marks
from tsnb.telemetry.shown.view import StreamView
from tsnb.telemetry.trial_readings import LoggedReading


def said(earlier: StreamReading, later: StreamReading, host: HostReading | None = None) -> list[str]:
    return [mark.text for mark in marks(earlier, later, host)]


def cores(**by_name: int) -> HostReading:
    use = {name: ProcessReading(cpu=0.5, memory_bytes=1, cores=number) for name, number in by_name.items()}
    return HostReading(cores=4, cpu=1.0, memory_used_bytes=1, memory_total_bytes=2, consumers=use)


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ((), (consumer("a"),), ["a joined"]),
        ((consumer("a"),), (), ["a left"]),
        ((consumer("a"),), (consumer("a", state="gone"),), ["a left"]),
        ((consumer("a"),), (consumer("a", pid=2),), ["a joined"]),
        ((consumer("a"),), (consumer("a", batches=1),), ["a joined again"]),
        ((consumer("a"),), (consumer("a", state="timed out"),), ["a timed out"]),
        ((consumer("a", state="timed out"),), (consumer("a"),), ["a back"]),
        ((consumer("a", state="timed out"),), (consumer("a", state="timed out"),), []),
        ((consumer("a"),), (consumer("a", state="paused"),), ["a paused"]),
        ((consumer("a", state="paused"),), (consumer("a"),), ["a resumed"]),
        ((consumer("a"),), (consumer("a", live={"lr": "0.1"}),), []),
        (
            (consumer("a", live={"lr": "0.1", "width": "3"}),),
            (consumer("a", live={"lr": "0.03", "width": "3"}),),
            ["a: lr 0.1 → 0.03"],
        ),
        ((consumer("a"),), (consumer("a", skipped=7),), ["a skipped 7"]),
        ((consumer("a"), consumer("b")), (consumer("b", state="waiting"), consumer("a")), []),
    ],
)
def test_what_happens_to_a_consumer_is_marked(before: Any, after: Any, text: list[str]) -> None:
    """Each change once; passing states (waiting, streaming) are no change."""
    assert said(stream(*before), stream(*after)) == text


def test_another_number_of_workers_is_marked() -> None:
    """Whoever changed it: `workers="auto"` does so by itself. A producer that was started again has not changed it."""
    two, three = stream(workers=2), stream(workers=3)
    assert said(two, three) == ["workers: 3, 2 before"]
    assert said(stream(workers=0), two) == []  # it has not begun yet
    assert said(two, replace(three, pid=2)) == ["producer restarted"]


def test_a_mark_says_when_what_and_to_whom() -> None:
    """The time is that of the reading that first shows it."""
    later = stream(consumer("a"), time_s=102.0)
    assert marks(stream(), later) == [Mark(102.0, "joined", "a", "a joined")]


def probed(time_s: float, *probes_s: float) -> StreamReading:
    """A stream whose workers were measured: a reading tells of it a moment after it was."""
    probes = tuple(ProbeReading(probe_s, 1 + k, 40.0, 0.1, True, 2) for k, probe_s in enumerate(probes_s))
    return replace(stream(time_s=time_s), tuning=TuningReading("auto", 1, 2, None, False, probes))


def test_marks_stand_in_the_order_of_time() -> None:
    """What carries a time of its own is heard of after what the reading before has shown: on all screens alike."""
    readings = [
        probed(100.0),
        replace(probed(102.0), consumers=(consumer("a"),)),
        replace(probed(102.5, 101.5, 102.25), consumers=(consumer("a"), consumer("b"))),
    ]
    told = [(101.5, "workers"), (102.0, "joined"), (102.25, "workers"), (102.5, "joined")]
    assert [(mark.time_s, mark.kind) for mark in all_marks(readings)] == told
    assert [(mark.time_s, mark.kind) for mark in story(readings).marks] == told
    drawn = [note.hovertext for note in draw_word("lag", readings).layout.annotations]
    assert "<br>".join(drawn).split("<br>")[1::2] == ["a joined", "b joined"]
    view = StreamView()
    for one in readings:
        view.feed(one)
    assert [(mark.time_s, mark.kind) for mark in view.marks] == told


def test_a_producer_started_again_is_one_mark() -> None:
    """Its consumers, whose counters begin anew, have neither left nor joined, even those who come back later."""
    both = stream(consumer("a"), consumer("b"))
    marker = Marker()
    assert marker.feed(both) == []
    first = marker.feed(stream(consumer("a", batches=0), pid=2))
    assert [mark.text for mark in first] == ["producer restarted"]
    assert marker.feed(stream(consumer("a"), consumer("b", batches=1), pid=2)) == []
    left = marker.feed(stream(consumer("a"), pid=2))
    assert [mark.text for mark in left] == ["b left"]
    again = marker.feed(stream(consumer("a"), consumer("b"), pid=2))
    assert [mark.text for mark in again] == ["b joined"], "only its first return is the restart's"


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (cores(a=1, b=3), cores(a=2, b=2), ["1 core to a"]),
        (cores(a=4, b=1), cores(a=2, b=1), ["2 cores from a"]),
        (cores(a=1), cores(a=1, b=2), []),
        (cores(a=1, b=2), cores(a=1, b=2), []),
    ],
)
def test_cores_that_move_are_marked(before: HostReading, after: HostReading, text: list[str]) -> None:
    """Who gained; who lost where nobody gained; a newcomer's cores did not move."""
    two = (consumer("a"), consumer("b"))
    assert said(stream(*two, host=before), stream(*two, host=after)) == text
    assert said(stream(*two), stream(*two, host=after), before) == text


def test_a_move_of_the_balancers_is_one_mark_with_its_reason() -> None:
    """Not another one when the machine's next reading shows it; later changes, by others, are marked again."""
    moves = (MoveReading(101.0, "a", "2 threads for a", "it sets the pace at 4.1 batches/s, computing 93%"),)
    marker = Marker()
    one = stream(consumer("a"), consumer("b"), time_s=100.0, host=cores(a=2, b=2))
    assert marker.feed(one) == []
    moved = replace(one, time_s=101.2, moves=moves, host=None)
    [mark] = marker.feed(moved)
    assert (mark.time_s, mark.kind, mark.consumer) == (101.0, "cores", "a")
    assert mark.text == "2 threads for a: it sets the pace at 4.1 batches/s"
    judged = (replace(moves[0], effect="pace 4.1 -> 5.3 batches/s"),)
    assert marker.feed(replace(moved, time_s=103.0, moves=judged, host=cores(a=3, b=1))) == []
    [mark] = marker.feed(replace(moved, time_s=300.0, moves=judged, host=cores(a=2, b=2)))
    assert mark.text == "1 core to b"


def test_cores_are_compared_over_readings_without_a_host() -> None:
    """The machine is looked at less often than the stream is read."""
    marker = Marker()
    one = stream(consumer("a"))
    for host in (cores(a=1), None, None):
        assert marker.feed(replace(one, host=host)) == []
    assert [mark.kind for mark in marker.feed(replace(one, host=cores(a=2)))] == ["cores"]


def test_who_skips_all_the_time_is_marked_once() -> None:
    """A run of skips is one mark; skips after a pause are another."""
    marker = Marker()
    times = [100.0, 100.25, 100.5, 109.0, 130.0]
    found = [marker.feed(stream(consumer("a", skipped=k), time_s=time_s)) for k, time_s in enumerate(times)]
    assert [len(new) for new in found] == [0, 1, 0, 0, 1]


def test_a_number_that_is_none_any_more_is_marked_with_its_batch() -> None:
    """Once, however often it comes and goes; of another run of the trial anew."""
    marker = Marker()

    def feed(value: float, **more: Any) -> list[str]:
        one = consumer("a", metrics={"loss": value}, logged_at={"loss": 312}, **more)
        return [mark.text for mark in marker.feed(stream(one)) if mark.kind == "not finite"]

    assert feed(0.5) == []
    assert feed(math.nan) == ["a: loss became nan at batch 312"]
    assert feed(math.nan) == feed(0.5) == feed(math.inf) == []
    assert feed(math.inf, pid=2) == ["a: loss became inf at batch 312"]
    parts = (LoggedReading(300, 0.5), LoggedReading(305, None), LoggedReading(312, None))
    marker = Marker()
    assert feed(0.5) == []
    assert feed(math.nan, logged={"loss": parts}) == ["a: loss became nan at batch 305"]


def test_a_whole_stream_is_marked_where_its_story_turns() -> None:
    """Joins, a trial that is parked, one that leaves: all of them, nothing else, and only known kinds."""
    imagined = three_models()
    imagined.trials.append(Trial("passing", 0.05, joins_s=30.0, leaves_s=50.0))
    marker = Marker()
    found = [mark for reading in imagined.run(90) for mark in marker.feed(reading)]
    assert [mark.text for mark in found] == [
        "resnet10 joined",
        "resnet18-wide joined",
        "resnet18-wide-sgd joined",
        "passing joined",
        "passing left",
        "resnet18-wide-sgd timed out",
    ]
    assert {mark.kind for mark in found} <= set(MARK_KINDS)
    quiet = Stream([Trial("a", 0.02), Trial("b", 0.05)])
    marker = Marker()
    assert not [mark for reading in quiet.run(30) for mark in marker.feed(reading)]


def test_a_report_knows_where_to_draw_every_kind_of_mark() -> None:
    """A kind that its picture did not know would cost the whole report."""
    from tsnb.reports.drawing import MARK_ORDER

    assert set(MARK_ORDER) == set(MARK_KINDS)


def test_another_mode_and_other_weights_are_marked() -> None:
    """Once, in the words that the panel's header has."""
    pace, free = stream(), stream(pacing="free")
    weighed = stream(pacing="weights", weights={"cnn": 2.0})
    assert said(pace, free) == ["pacing: free"]
    assert said(free, weighed) == ["pacing: weights (cnn 2, others 1)"]
    assert said(weighed, stream(pacing="weights")) == ["pacing: weights (all 1)"]
    assert said(weighed, weighed) == []


def test_a_clones_curve_begins_where_it_branched_off() -> None:
    """What lay behind it counts, over a restart of the producer too; a process that takes its name begins anew."""
    taken = Taken()
    clone = replace(consumer("a"), batches=0, epoch=2, epochs_before=2, batches_before=41)
    first = replace(stream(clone), epoch_batches=20)
    taken.feed(first)
    assert (taken.batches("a"), taken.epochs("a")) == (41, 41 / 20)
    taken.feed(replace(first, consumers=(replace(clone, batches=5),)))
    assert taken.batches("a") == 46
    again = replace(clone, batches=1, epochs_before=0, batches_before=0)
    taken.feed(replace(first, pid=first.pid + 1, consumers=(again,)))
    assert taken.batches("a") == 47
    taken.feed(replace(first, epoch_batches=None, consumers=(replace(clone, pid=clone.pid + 1, epochs=1),)))
    assert (taken.batches("a"), taken.epochs("a")) == (41, 3.0)


def test_what_a_trial_took_is_known_to_who_comes_after_it_has_left() -> None:
    """By its end, of each of its attachments; whoever has seen it counts by its readings."""
    left = EndReading("a", "left", 5.0, 71, epochs=2, batches=30)
    taken = Taken()
    late = replace(stream(ends=(left, EndReading("a", "done", 6.0, 71))), epoch_batches=20)
    taken.feed(late)
    assert (taken.batches("a"), taken.epochs("a")) == (30, 1.5)
    taken.feed(late)
    assert taken.batches("a") == 30, "an end that is told again is no other one"
    taken.feed(replace(late, ends=(replace(left, time_s=7.0, batches=10),)))
    assert (taken.batches("a"), taken.epochs("a")) == (40, 2.0)
    taken.feed(replace(late, epoch_batches=None, ends=()))
    assert taken.epochs("a") == 4.0
    view = StreamView()
    view.feed(late)
    assert (view.rows["a"].end, view.rows["a"].epochs, view.rows["a"].batches) == ("done", 1.5, 30)
    seen = Taken()
    seen.feed(replace(late, consumers=(replace(consumer("a"), batches=30),), ends=()))
    seen.feed(late)
    assert seen.batches("a") == 30
