"""Groups: the ranks of one job go on together or not at all. Simulated, without a process.

The simulated ranks train in lockstep: none takes a batch before all have taken the one before, as if each step ended
in a collective. So whatever leaves one rank without a batch that another has, hangs the simulation as it would them.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.producer.simulation import SimConsumer, Simulation, asked, joined, left_epoch, tells, took, waits
from tsnb.stream.consumer.talking.session import stricter
from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.dispatch import Dispatch
from tsnb.stream.decisions.groups import awaited
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.messages import WHOLE_EPOCH, RankGone


def in_step(ranks: list[SimConsumer]) -> None:
    """Each rank has had the same batches, but for those of the step that is being taken."""
    taken = [[(e, seq) for e, seqs in sorted(rank.epochs.items()) for seq in seqs] for rank in ranks]
    shortest = min(map(len, taken))
    assert all(len(one) <= shortest + 1 for one in taken)
    assert all(one[:shortest] == taken[0][:shortest] for one in taken), taken


def begun(seed: int, size: int, others: int = 2) -> tuple[Simulation, list[SimConsumer]]:
    """Return a stream with a group and some consumers outside of it, all of which have asked."""
    simulation = Simulation(seed, kills=False)
    ranks = simulation.join_group("bert", size)
    outside = [simulation.join() for _ in range(others)]
    for consumer in [*ranks, *outside]:
        consumer.ask()
    simulation.poll()
    return simulation, ranks


def turn(simulation: Simulation, of: list[SimConsumer]) -> None:
    """One turn of the loader, and of somebody."""
    simulation.now += 0.01
    simulation.look()
    simulation.load()
    simulation.rng.choice(of).run_steadily()
    simulation.poll()


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_all_ranks_take_the_same_epochs_in_step_whatever_their_speed(seed: int, size: int) -> None:
    """Whoever asks first: no rank is let into an epoch that another does not get, and none waits for good."""
    simulation, ranks = begun(seed, size)
    for _ in range(500):
        turn(simulation, list(simulation.consumers.values()))
        in_step(ranks)
    simulation.settle()
    assert ranks[0].complete


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_a_group_stays_in_step_however_often_the_producer_is_killed(seed: int, size: int) -> None:
    """Ranks come back one by one, some with a batch more than others, and go on where each was; nothing is lost."""
    simulation, ranks = begun(seed, size, others=1)
    for _ in range(600):
        turn(simulation, list(simulation.consumers.values()))
        in_step(ranks)
        if simulation.rng.random() < 0.02:
            simulation.kill_producer()
    assert simulation.restarted
    simulation.settle()
    for rank in ranks:
        # the loop of one that was cut off behind the last batch may not have come to its end: it has had all the same
        cut = {epoch for epoch, had in rank.epochs.items() if had != list(range(simulation.batches))}
        given = rank.session.given  # what was received may be further
        assert cut <= ({given.epoch} if given.batch else set())


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4), st.booleans())
def test_a_group_is_paused_and_goes_on_as_one(seed: int, size: int, restarts: bool) -> None:
    """At any moment, over and over, across interrupts and producers: in step, each batch once, nobody hangs."""
    simulation, ranks = begun(seed, size, others=1)
    rng, everybody = simulation.rng, list(simulation.consumers.values())
    for _ in range(200):
        turn(simulation, everybody)
        in_step(ranks)
        choice = rng.random()
        if choice < 0.03:
            simulation.pause(rng.randrange(size), on=rng.random() < 0.6)
        elif choice < 0.05:
            rng.choice(ranks).interrupt(lost=rng.randrange(3))
        elif choice < 0.06 and restarts:
            simulation.kill_producer()
    simulation.settle()
    for rank in ranks:
        assert not rank.parked
        cut = {epoch for epoch, had in rank.epochs.items() if had != list(range(simulation.batches))}
        given = rank.session.given
        assert cut <= ({given.epoch} if given.batch else set())


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_a_paused_group_stands_still_and_the_others_go_on(seed: int, size: int) -> None:
    """From the batch on that the furthest of its ranks had been granted; time alone changes nothing."""
    simulation, ranks = begun(seed, size)
    outside = [c for c in simulation.consumers.values() if c not in ranks]
    for _ in range(simulation.rng.randrange(60)):
        turn(simulation, list(simulation.consumers.values()))
    simulation.pause(simulation.rng.randrange(size))
    for _ in range(30 * size):
        turn(simulation, ranks)
    had, others = [rank.steps for rank in ranks], sum(len(c.complete) for c in outside)
    for _ in range(200):
        turn(simulation, list(simulation.consumers.values()))
        simulation.now += 1.0
        simulation.step(ev.Tick())
    assert [rank.steps for rank in ranks] == had
    assert sum(len(c.complete) for c in outside) > others, "those outside were held up"
    simulation.settle()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 3))
def test_a_rank_that_stands_still_has_its_whole_group_parked_at_one_place(seed: int, size: int) -> None:
    """The others outside go on; the group goes on together or begins the next epoch together, and nobody hangs."""
    simulation, ranks = begun(seed, size)
    outside = [c for c in simulation.consumers.values() if c not in ranks]
    for _ in range(simulation.rng.randrange(60)):
        turn(simulation, list(simulation.consumers.values()))
    still = simulation.rng.choice(ranks)
    had = sum(len(c.complete) for c in outside)
    for _ in range(300):
        turn(simulation, [c for c in simulation.consumers.values() if c is not still])
        simulation.now += 1.0
        simulation.step(ev.Tick())
    assert sum(len(c.complete) for c in outside) > had, "those outside were held up"
    simulation.settle()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_ranks_that_break_at_the_same_batch_take_the_next_epoch_together(seed: int, size: int) -> None:
    """`max_steps`, say: one after the other leaves, and none goes on into an epoch that another does not get."""
    simulation, ranks = begun(seed, size)
    last = simulation.rng.randint(1, simulation.batches)
    for _ in range(500):
        turn(simulation, list(simulation.consumers.values()))
        for rank in ranks:
            if rank.iterating and rank.place.batch == last:
                rank.leave_early()
        simulation.poll()
        in_step(ranks)
    assert len(ranks[0].epochs) > 1


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_when_a_rank_is_killed_the_others_are_told_and_hold_nobody(seed: int, size: int) -> None:
    """At any moment: every other rank hears of it, and those outside go on without waiting for the group."""
    simulation, ranks = begun(seed, size)
    for _ in range(simulation.rng.randrange(200)):
        turn(simulation, list(simulation.consumers.values()))
    victim = simulation.rng.randrange(size)
    simulation.kill(victim)
    simulation.poll()
    left = [rank for rank in ranks if rank is not ranks[victim]]
    for rank in left:
        rank.receive()
    assert all(rank.gone is not None for rank in left)
    if all(rank.gone and rank.gone[1] for rank in left):  # it had its epoch: the others may have theirs, too
        for _ in range(2000):
            turn(simulation, list(simulation.consumers.values()))
        assert len({len(rank.complete) for rank in left}) == 1
    for key in [k for k, c in simulation.consumers.items() if c in ranks]:
        simulation.consumers.pop(key)  # stuck in a collective: they take and release nothing any more
    simulation.settle()


@pytest.mark.parametrize("seed", range(20))
def test_groups_beside_others_that_come_and_go_and_skip(seed: int) -> None:
    """Any history, restarts and other modes too: every invariant holds after every step, and all can go on."""
    simulation = Simulation(8000 + seed, kills=False, restarts=seed % 2 == 0, skips=True, modes=seed % 3 == 0)
    groups = [simulation.join_group("a", 2), simulation.join_group("b", 3)]
    simulation.run(500)
    for ranks in groups:
        for rank in ranks:
            for taken in rank.epochs.values():
                assert taken == list(range(len(taken)))


# -- single decisions ---------------------------------------------------------------------------------------


class Stream:
    """A dispatch with a loader that has a batch whenever one is wanted, and a group of two (keys 0 and 1)."""

    def __init__(self, window: int = 4) -> None:
        self.dispatch = Dispatch(window, 2, 30.0)
        self.slots = iter(range(1000))
        for rank in range(2):
            self.join(rank, rank)

    def join(self, key: int, rank: int, *, back: bool = False) -> None:
        self.do(joined(key, "bert", rank=rank, of=2, back=back))

    def do(self, event: ev.Event, now: float = 0.0) -> list[ev.Instruction]:
        out = self.dispatch.step(event, now)
        self.dispatch.check()
        return out

    def load(self, batches: int, now: float = 0.0) -> None:
        for _ in range(batches):
            wanted = self.dispatch.wanted
            assert wanted is not None
            self.do(ev.BatchLoaded(wanted.run, ev.Placed(next(self.slots), b"", 4, 0, 0)), now)


def gone(out: list[ev.Instruction]) -> list[tuple[int, ms.RankGone]]:
    return tells(out, ms.RankGone)


def started(out: list[ev.Instruction]) -> list[tuple[int, int, int]]:
    """Who was let in, into which epoch, at which batch."""
    return [(m, x.epoch, x.seq) for m, x in tells(out, ms.EpochStarted)]


def test_a_group_is_let_in_when_its_last_rank_has_asked_and_not_before() -> None:
    """The first to ask gets nothing; with the second both get the same epoch, in the same step."""
    stream = Stream()
    stream.load(1)
    assert stream.do(asked(0, 1)) == []
    out = stream.do(asked(1, 1, epoch=3))
    assert started(out) == [(0, 3, 0), (1, 3, 0)], "the later of the epochs they asked for"


def test_ranks_that_would_begin_at_different_places_are_all_turned_away() -> None:
    """A saved state that only rank 0 has loaded, or another one in each: both are told, and may ask again."""
    stream = Stream()
    stream.dispatch.note_repeatable(True)
    stream.do(asked(0, 1, epoch=1, seq=3, exact=True))
    for other in (asked(1, 1), asked(1, 2, epoch=1, seq=4, exact=True)):
        out = stream.do(other)
        told = [(m, x.code) for m, x in tells(out, ms.Refused)]
        assert sorted(told) == [(0, "group"), (1, "group")]
        assert "batch 3 of pass 2 in rank 0" in tells(out, ms.Refused)[0][1].reason
        assert started(out) == []
        stream.do(asked(0, 2, epoch=1, seq=3, exact=True))
    assert started(stream.do(asked(1, 3, epoch=1, seq=3, exact=True))) == [(0, 1, 3), (1, 1, 3)]


def test_a_rank_that_is_new_does_not_get_an_epoch_that_the_others_are_in_the_middle_of() -> None:
    """The producer was started again, and one rank anew: that one waits, for they could not be in step.

    Who comes back, too, gets the epoch of whose beginning it had not heard.
    """
    for back, expected in ((True, [(3, 2, 0)]), (False, [])):
        stream = Stream()
        for key in (0, 1):
            stream.do(ev.Left(key))
        stream.dispatch.note_repeatable(True)
        stream.join(2, 0, back=True)
        assert started(stream.do(asked(2, 1, epoch=2, seq=1, exact=True))) == [(2, 2, 1)]
        stream.join(3, 1, back=back)
        assert started(stream.do(asked(3, 1))) == expected


def test_ranks_that_came_back_to_different_places_can_be_paused_before_the_first_batch() -> None:
    """One has had two batches more, and those are not there to be granted: each goes on at its own place."""
    stream = Stream()
    for key in (0, 1):
        stream.do(ev.Left(key))
    stream.dispatch.note_repeatable(True)
    for key, seq in ((2, 1), (3, 3)):
        stream.join(key, key - 2, back=True)
        stream.do(asked(key, 1, epoch=2, seq=seq, exact=True))
    told = stream.do(ev.Paused((2,), True))
    assert [(m, x.seq) for m, x in tells(told, ms.Parked)] == [(2, 1), (3, 3)]
    for key, seq in ((2, 1), (3, 3)):
        stream.do(asked(key, 2, epoch=2, seq=seq, exact=True))
    assert started(stream.do(ev.Paused((2,), False))) == [(2, 2, 1), (3, 2, 3)]


def test_a_rank_that_breaks_its_loop_waits_for_the_others_and_then_all_take_the_next_epoch() -> None:
    """Its own affair, and nobody else's: nobody is told that the group is broken, and the stream goes on."""
    stream = Stream()
    for key in (0, 1):
        stream.do(asked(key, 1))
    stream.load(2)
    stream.do(took(0))
    assert gone(stream.do(left_epoch(0))) == []
    assert started(stream.do(asked(0, 2, epoch=1))) == []
    stream.do(ev.LoaderEnded(0))
    for _ in range(2):
        stream.do(took(1))
    assert sorted(started(stream.do(asked(1, 2, epoch=1)))) == [(0, 1, 0), (1, 1, 0)]


def test_who_would_rather_not_wait_is_refused_with_its_whole_group_and_not_before_it_is_there() -> None:
    """`join="now"`: one rank alone is not refused while another has yet to ask; then both are, at once."""
    stream = Stream(window=2)
    stream.do(joined(7, "other"))
    stream.do(asked(7, 1))
    for _ in range(4):
        stream.load(1)
        stream.do(took(7))
    assert stream.do(asked(0, 1, now=True)) == []
    refused = [m for m, _ in tells(stream.do(asked(1, 1, now=True)), ms.NotJoined)]
    assert sorted(refused) == [0, 1]


def test_ranks_that_are_parked_have_been_granted_the_same_batches() -> None:
    """One has taken two batches more; when both are parked, both can read on to the same place."""
    stream = Stream()
    stream.do(joined(7, "other"))
    for key in (0, 1, 7):
        stream.do(asked(key, 1))
    stream.load(4)
    for _ in range(2):
        stream.do(took(1), 1.0)
    for _ in range(4):
        stream.do(took(7), 1.0)
    stream.do(waits(7), 1.0)
    out = stream.do(ev.Tick(), 40.0)
    assert [(m, x.seq) for m, x in tells(out, ms.Parked)] == [(0, 4), (1, 4)]
    assert [(x.member, x.seq) for x in out if isinstance(x, ev.Granted)] == [(0, 2), (0, 3)]
    assert stream.dispatch.wanted is not None


def test_a_rank_that_waits_for_its_own_group_gets_nobody_parked() -> None:
    """Alone on the stream, a group may take its time: an evaluation on rank 0, a breakpoint."""
    stream = Stream(window=1)
    for key in (0, 1):
        stream.do(asked(key, 1))
    stream.load(1)
    stream.do(took(1), 1.0)
    stream.do(waits(1), 1.0)
    assert stream.do(ev.Tick(), 1000.0) == []


def test_a_rank_that_ended_in_order_lets_the_others_finish_its_last_epoch() -> None:
    """It took all of it: the others may, too, and no further. Who left in the middle marks how far they may go."""
    for taken, far in ((2, WHOLE_EPOCH), (1, 1)):
        stream = Stream()
        for key in (0, 1):
            stream.do(asked(key, 1))
        stream.load(2)
        stream.do(ev.LoaderEnded(0))
        for _ in range(taken):
            stream.do(took(0))
        out = stream.do(ev.Heard(0, ms.Bye()))
        assert gone(out) == [(1, ms.RankGone(0, 0, far))]
        assert stream.dispatch.members[1].phase.value == "streaming"
        assert gone(stream.do(ev.Left(0))) == [], "told once"


def test_a_rank_that_was_parked_and_had_its_epoch_after_all_did_not_die_in_it() -> None:
    """Both were parked with its last batches in hand, and took them: the first to end does not stop the other."""
    for events, far in (
        ((left_epoch(0), ev.Heard(0, ms.Bye())), WHOLE_EPOCH),
        ((left_epoch(0), ev.Left(0)), WHOLE_EPOCH),
        ((ev.Left(0),), 0),  # perhaps in the last step's collective
    ):
        stream = Stream(window=2)
        stream.do(joined(7, "other"))
        for key in (0, 1, 7):
            stream.do(asked(key, 1))
        stream.load(2)
        stream.do(ev.LoaderEnded(0))
        for _ in range(2):
            stream.do(took(7), 1.0)
        stream.do(asked(7, 2, epoch=1), 1.0)
        stream.do(ev.Tick(), 40.0)
        assert stream.dispatch.members[0].parked
        for key in (0, 1, 0, 1):
            stream.do(took(key), 41.0)
        out = [x for event in events for x in stream.do(event, 42.0)]
        assert gone(out) == [(1, ms.RankGone(0, 0, far))]


def test_ranks_do_not_hold_each_other_back_by_weight() -> None:
    """One that has computed more waits for nobody of its own group: the others wait for it in the step anyway."""
    stream = Stream()
    stream.do(ev.Balanced("weights", {"other": 10}, 8))
    stream.do(joined(7, "other"))
    for key in (0, 1, 7):
        stream.do(asked(key, 1))
    stream.load(1)
    for key in (0, 1, 7):
        stream.do(took(key))
    stream.do(waits(1))
    stream.load(1, 9.9)
    stream.do(took(1), 9.9)
    rank = stream.dispatch.members[0]
    assert rank.times.withheld_since_s is not None, "who has a larger share goes first"
    stream.do(ev.Left(7), 10.0)
    assert rank.times.withheld_since_s is None
    assert rank.granted


def test_who_waits_for_whom_is_said_in_words() -> None:
    """For the panel: those that are not there, and those that have not asked; many are counted."""
    stream = Stream()
    assert awaited(stream.dispatch.members[0]) == "", "it has not asked itself"
    stream.do(asked(0, 1))
    assert awaited(stream.dispatch.members[0]) == "rank 1 of 2"
    for key, rank in ((10, 0), (11, 2)):
        stream.do(joined(key, "big", rank=rank, of=4))
    stream.do(asked(10, 1))
    assert awaited(stream.dispatch.members[10]) == "ranks 1, 2 and 3 of 4"
    stream.do(joined(20, "huge", rank=0, of=16))
    stream.do(asked(20, 1))
    assert awaited(stream.dispatch.members[20]) == "15 of 16 ranks"


def test_of_two_ranks_that_have_gone_the_one_counts_that_went_less_far() -> None:
    """By epoch first; one that died in the middle of an epoch ends everything."""
    early, late, died = RankGone(0, 3, WHOLE_EPOCH), RankGone(1, 4, 5), RankGone(2, 4, 0)
    for order in ((early, late), (late, early)):
        assert stricter(stricter(None, order[0]), order[1]) == early
    assert stricter(early, died) == stricter(died, early) == died


def test_a_rank_that_died_takes_the_others_off_the_window_at_once() -> None:
    """Nothing of the epoch counts any more, and the loader goes on for those outside."""
    stream = Stream(window=1)
    stream.do(joined(7, "other"))
    for key in (0, 1, 7):
        stream.do(asked(key, 1))
    stream.load(1)
    stream.do(took(7))
    assert stream.dispatch.wanted is None, "the group holds the window"
    out = stream.do(ev.Left(0))
    assert gone(out) == [(1, ms.RankGone(0, 0, 0))]
    assert stream.dispatch.wanted is not None


def test_a_new_group_of_the_name_does_not_wait_for_the_old_ones_last_process() -> None:
    """Rank 0 was killed; a new rank 0 and 1 come while the old rank 1 still hangs."""
    stream = Stream()
    for key in (0, 1):
        stream.do(asked(key, 1))
    stream.load(1)
    stream.do(ev.Left(0))
    stream.join(2, 0)
    stream.join(3, 1)
    stream.do(asked(2, 1))
    out = stream.do(asked(3, 1))
    assert {m for m, _, _ in started(out)} == {2, 3}
    assert gone(stream.do(ev.Left(1))) == []


def test_a_rank_that_detached_before_it_asked_can_be_replaced() -> None:
    """Attached, looked at `len`, closed, attached again: nobody is told that the group is broken."""
    stream = Stream()
    stream.do(asked(0, 1))
    assert gone(stream.do(ev.Heard(1, ms.Bye()))) == []
    stream.join(2, 1)
    stream.do(asked(2, 1))
    stream.load(1)
    assert {m.phase.value for k, m in stream.dispatch.members.items() if k != 1} == {"streaming"}


def test_ranks_that_differ_are_told_in_what() -> None:
    """Another world_size, another cut; a name whose group has gone is free for any."""
    stream = Stream()
    groups = stream.dispatch.groups
    assert groups.misfit("bert", 2, "") == ""
    assert "world_size: 2 in rank 0, 1, 4 in this rank" in groups.misfit("bert", 4, "")
    assert "batch_size=8" in groups.misfit("bert", 2, "batch_size=8")
    assert groups.misfit("other", 4, "batch_size=8") == ""
    stream.do(ev.Left(0))
    assert groups.misfit("bert", 4, "") == ""
