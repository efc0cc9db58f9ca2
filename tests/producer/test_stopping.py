"""A trial that stops, to validate, to save or to compile, holds no other back while memory has room for its lag."""

from __future__ import annotations

import itertools

import pytest

from benchmarks.standing_simulated import Case, Trial, simulate
from tests.producer.simulation import asked, joined, took, waits
from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.dispatch import Dispatch
from tsnb.stream.decisions.phases import Phase
from tsnb.stream.producer.limits import MOST_LAG, most_lag
from tsnb.stream.protocol import messages as ms

MIB = 1 << 20


class Stream:
    """Two trials, of which the first takes a batch whenever there is one; and a loader that always has one."""

    def __init__(self, window: int = 4, widest: int = 50) -> None:
        self.dispatch = Dispatch(window, window, 30.0)
        self.dispatch.note_repeatable(True)
        self.dispatch.widen(widest)
        self.now = 0.0
        self._slots = itertools.count()
        for member in (1, 2):
            self.step(joined(member, "ab"[member - 1]))
        for member in (1, 2):
            self.step(asked(member, 1))

    def step(self, event: ev.Event, seconds: float = 0.0) -> None:
        self.now += seconds
        self.dispatch.step(event, self.now)
        self.dispatch.check()

    def take(self, member: int, batches: int = 1, seconds: float = 0.01) -> None:
        for _ in range(batches):
            self.load()
            assert self.dispatch.members[member].granted, "there is no batch for it"
            self.step(took(member), seconds)
            self.step(ms_release(self.dispatch, member))

    def load(self) -> None:
        while (wanted := self.dispatch.wanted) is not None:
            self.step(ev.BatchLoaded(wanted.run, ev.Placed(next(self._slots), b"", 4, 0, 0)))

    def end_epoch(self) -> None:
        """Let the loader come to its end, and both trials take what is left."""
        loading = self.dispatch.epochs.loading
        assert loading is not None
        self.step(ev.LoaderEnded(loading.run))
        for key, member in self.dispatch.members.items():
            while member.granted and member.run == loading.run:
                self.step(took(key))
                self.step(ms_release(self.dispatch, key))

    def run_ahead(self) -> int:
        """Let the first trial take all that it can get now; return how far ahead the loader is then."""
        self.load()
        while self.dispatch.members[1].granted:
            self.take(1, seconds=0.0)
            self.load()
        return self.dispatch.drift.ahead


def ms_release(dispatch: Dispatch, member: int) -> ev.Heard:
    """Return the release of the oldest batch that a trial holds."""
    return ev.Heard(member, ms.Release(next(iter(dispatch.members[member].leases))))


def both_train(stream: Stream, batches: int = 10) -> None:
    """Let both train in step: their steps take 10 ms."""
    for _ in range(batches):
        stream.take(2)
        stream.take(1, seconds=0.0)


def test_one_that_is_slow_all_the_time_holds_the_others_at_the_window() -> None:
    """Its step takes as long as its steps do: nothing is kept beyond the window."""
    stream = Stream()
    for _ in range(20):
        stream.take(2, seconds=1.0)
        assert stream.run_ahead() == 4
    assert stream.dispatch.members[2].stood == 0


def test_one_that_stops_in_the_middle_of_an_epoch_holds_nobody_before_memory_ends() -> None:
    """At once after a twentieth of a second, when the clock looks; and it holds the others when no room is left."""
    stream = Stream()
    both_train(stream)
    assert stream.run_ahead() == 4, "its step may be an ordinary one"
    assert stream.dispatch.due_s is not None
    stream.step(ev.Tick(), stream.dispatch.due_s - stream.now)
    assert stream.run_ahead() == 50
    assert [m.key for m in stream.dispatch.drift.pace_setters()] == [2]


def test_where_all_stop_no_more_is_loaded_than_the_window_holds() -> None:
    """None of them could take it: memory is used only while one lags."""
    stream = Stream()
    both_train(stream)
    stream.load()
    for _ in range(5):
        stream.step(ev.Tick(), 1.0)
        stream.load()
    assert stream.dispatch.drift.ahead == 4


def test_it_may_stay_as_far_behind_as_it_got_and_catches_up_for_good() -> None:
    """The others go on at its side's pace; what it has caught up is not given to it again."""
    stream = Stream()
    both_train(stream)
    stream.run_ahead()
    stream.step(ev.Tick(), 1.0)
    before = stream.run_ahead()
    assert before == 50
    stream.take(2, 10)
    assert stream.run_ahead() > 40, "the others do not wait until it has caught up"
    stream.step(waits(1))
    while stream.dispatch.members[2].granted:
        stream.take(2)
        if not stream.dispatch.drift.ahead:
            break
    assert stream.dispatch.members[2].stood == 0
    stream.run_ahead()
    assert stream.dispatch.drift.ahead <= 4


def test_one_between_two_epochs_is_not_waited_for_and_gets_its_next_one_whole() -> None:
    """It validates, while the other trains through two more epochs."""
    found = simulate(Case("", 4, 0.001, (Trial(0.005), Trial(0.005, 4.0))), "stopping")
    alone = simulate(Case("", 4, 0.001, (Trial(0.005),)), "narrow")
    assert found.done_s[0] <= 1.01 * alone.done_s[0]
    assert found.most_behind == 300


def between_two_epochs(stream: Stream, batches: int = 10) -> None:
    """Let the second trial validate after its first epoch, while the first trains through most of another."""
    both_train(stream, batches)
    stream.end_epoch()
    for member in (1, 2):
        stream.step(ev.Heard(member, ms.Leave()))
    stream.step(asked(1, 2, epoch=1))
    stream.step(ev.Tick(), 0.1)
    for _ in range(3 * batches):
        stream.take(1)


def test_one_that_comes_while_another_is_far_behind_waits_for_the_next_epoch_and_holds_nobody() -> None:
    """The epoch is kept from its start for the one that validates; who comes late would stay as far behind for ever."""
    stream = Stream(window=4, widest=50)
    between_two_epochs(stream)
    assert stream.dispatch.drift.ahead > 20
    stream.step(joined(3, "c"))
    stream.step(asked(3, 1))
    assert stream.dispatch.members[3].phase is Phase.ASKED
    stream.take(1)
    stream.end_epoch()
    stream.step(ev.Heard(1, ms.Leave()))
    stream.step(asked(1, 3, epoch=2))
    assert [stream.dispatch.members[key].epoch for key in (1, 3)] == [2, 2]


@pytest.mark.parametrize("repeatable", [True, False])
def test_one_that_is_paused_keeps_its_place_as_far_as_memory_goes_and_then_holds_nobody(
    repeatable: bool,
) -> None:
    """Without a seed its batches cannot be given again, so they are kept; the others go on before it has caught up."""
    stream = Stream(window=4, widest=50)
    stream.dispatch.note_repeatable(repeatable)
    both_train(stream)
    stream.step(ev.Paused((2,), True))
    for _ in range(30):
        stream.take(1)
    place = stream.dispatch.members[2].position
    stream.step(ev.Paused((2,), False))
    stream.take(1)  # it is in a long step, and does not ask yet
    stream.step(asked(2, 2, epoch=0, seq=place, exact=True))
    assert stream.dispatch.members[2].phase is Phase.STREAMING
    assert stream.dispatch.members[2].position == place
    for _ in range(5):
        stream.take(1)
        stream.take(2)
    assert stream.dispatch.drift.ahead > 25


def test_the_clone_of_one_that_is_far_behind_goes_on_where_that_is_and_holds_nobody() -> None:
    """Though its epoch can no longer be taken from the start by others: its parent was granted the first batches."""
    stream = Stream(window=4, widest=50)
    stream.dispatch.note_repeatable(False)
    between_two_epochs(stream)
    stream.step(asked(2, 2, epoch=1))
    stream.step(joined(3, "clone"))
    stream.step(asked(3, 2, epoch=1))
    assert stream.dispatch.members[3].epoch == 1 and stream.dispatch.members[3].position == 0
    before = stream.dispatch.drift.ahead
    for _ in range(5):  # all train at one pace
        stream.take(1)
        stream.take(2)
        stream.take(3)
    assert abs(stream.dispatch.drift.ahead - before) <= 1


@pytest.mark.parametrize("cores", [2, 8])
def test_models_that_differ_steadily_keep_in_step_and_lose_nothing(cores: int) -> None:
    """The balance of the narrow window stays."""
    case = Case("", cores, 0.01, (Trial(0.02), Trial(0.11), Trial(0.4)))
    narrow, stopping = simulate(case, "narrow"), simulate(case, "stopping")
    assert max(stopping.done_s) <= 1.01 * max(narrow.done_s)
    assert stopping.most_behind < 40


@pytest.mark.parametrize(
    ("batch_bytes", "free_bytes", "kept", "asked_for", "expected"),
    [
        (1 * MIB, None, 0, False, 1024),
        (1 * MIB, 800 * MIB, 0, False, 100),
        (1 * MIB, 800 * MIB, 0, True, 400),
        (1 * MIB, 800 * MIB, 60, False, 160),
        (1000, None, 0, False, MOST_LAG),
        (2 << 30, 1 << 40, 0, False, 0),
    ],
)
def test_the_lag_is_bounded_in_batches_in_bytes_and_by_what_is_free(
    batch_bytes: int, free_bytes: int | None, kept: int, asked_for: bool, expected: int
) -> None:
    """An eighth of the free memory, or half of it where a size was asked for, beside what is kept already."""
    assert most_lag(1 << 30, batch_bytes, free_bytes, kept, asked=asked_for) == expected
