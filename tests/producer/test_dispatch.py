"""The decisions of a producer, simulated: no process, no socket, many seeded runs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.producer.simulation import (
    SimConsumer,
    Simulation,
    asked,
    joined,
    left_epoch,
    released,
    tells,
    took,
    waits,
)
from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.dispatch import Dispatch
from tsnb.stream.decisions.members import Member
from tsnb.stream.protocol import messages as ms


@pytest.mark.parametrize("seed", range(60))
def test_joins_leaves_silences_and_kills_in_any_order_keep_every_invariant(seed: int) -> None:
    """Whatever consumers do, no batch is freed under a reader, lost, or kept for nobody (`check` each step)."""
    simulation = Simulation(seed)
    simulation.run(1500)
    for consumer in [*simulation.consumers.values(), *simulation.gone]:
        for taken in consumer.epochs.values():
            assert taken == list(range(len(taken))), "out of order, twice, or with a hole"


@pytest.mark.parametrize("seed", range(20))
def test_a_batch_that_only_goes_on_is_granted_as_if_all_consumers_had_been_looked_at(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = []

    class Twice(Dispatch):
        """Takes each batch of the short way by the whole way too, in a copy."""

        def _is_next(self, event: ev.Event) -> bool:
            return not self.whole and super()._is_next(event)

        whole = False

        def step(self, event: ev.Event, now: float) -> list[ev.Instruction]:
            if not self._is_next(event):
                return super().step(event, now)
            twin = copy.deepcopy(self)
            twin.whole = True
            expected = Dispatch.step(twin, event, now)
            made = super().step(event, now)
            assert made == expected
            assert (self.wanted, self.due_s, self.drift.ahead) == (twin.wanted, twin.due_s, twin.drift.ahead)
            assert [*map(repr, self.members.values())] == [*map(repr, twin.members.values())]
            short.append(event)
            return made

    monkeypatch.setattr("tests.producer.simulation.Dispatch", Twice)
    skips, rotates = seed % 4 == 0, seed % 5 == 4
    simulation = Simulation(
        9000 + seed,
        modes=seed % 3 == 0,
        skips=skips,
        pauses=seed % 2 == 0,
        clones=not rotates,
        rotates=rotates,
    )
    simulation.run(400)
    assert short or skips or rotates  # these are looked at as a whole


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_loader_that_raises_now_and_then_stops_nobody_for_good(seed: int) -> None:
    """After a failure the next epoch is a new attempt: epochs are still completed."""
    simulation = Simulation(1000 + seed, failures=True, kills=False)
    simulation.run(4000)
    assert any(c.failures for c in simulation.consumers.values()) or simulation.batches == 1
    simulation.failures = False
    for consumer in simulation.consumers.values():
        consumer.silent = False
    simulation.run(3000)
    assert any(c.complete for c in simulation.consumers.values())


@pytest.mark.parametrize("seed", range(20))
def test_after_everybody_has_left_every_slot_is_free_or_kept_by_the_rubber_band(seed: int) -> None:
    """Killed consumers give back what they held."""
    simulation = Simulation(2000 + seed)
    simulation.run(800)
    for key in list(simulation.consumers):
        simulation.kill(key)
    simulation.poll()
    assert simulation.dispatch.epochs.kept <= simulation.dispatch.epochs.band
    assert len(simulation.slots) + simulation.dispatch.epochs.kept == 400


@pytest.mark.parametrize("seed", range(60))
def test_whatever_has_happened_everybody_who_is_alive_can_go_on(seed: int) -> None:
    """No deadlock: after any history, each consumer completes two more epochs."""
    simulation = Simulation(4000 + seed)
    simulation.run(400)
    simulation.settle()


@pytest.mark.parametrize("seed", range(20))
def test_consumers_that_behave_all_get_the_same_complete_epochs(seed: int) -> None:
    """Three that ask before the loader has gone on share every epoch, whatever their speeds."""
    simulation = Simulation(3000 + seed, kills=False)
    three = [simulation.join() for _ in range(3)]
    for consumer in three:
        consumer.ask()
    simulation.poll()
    for _ in range(4000):
        simulation.now += 0.01
        simulation.load()
        one = simulation.rng.choice(three)
        if one.iterating or len(one.complete) < 5:
            one.run_steadily()
        simulation.poll()
    assert [sorted(c.complete) for c in three] == [[0, 1, 2, 3, 4]] * 3


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_lost_or_given_twice_however_often_the_producer_is_killed(seed: int) -> None:
    """Three that come back one by one go on where they were (each batch is checked as it comes) and finish."""
    simulation = Simulation(5000 + seed, kills=False)
    three = [simulation.join() for _ in range(3)]
    for consumer in three:
        consumer.ask()
    simulation.poll()
    for _ in range(6000):
        simulation.now += 0.01
        simulation.load()
        one = simulation.rng.choice(three)
        if one.iterating or len(one.complete) < 5:
            one.run_steadily()
        simulation.poll()
        if simulation.rng.random() < 0.01:
            simulation.kill_producer()
    assert simulation.restarted > 10
    assert [len(c.complete) for c in three] == [5, 5, 5]
    assert all(set(c.epochs) == c.complete for c in three), "an epoch was left in its middle"


@pytest.mark.parametrize("seed", range(10))
def test_a_round_begins_when_it_is_due_and_is_given_whole_to_all_whatever_happens(seed: int) -> None:
    """Kills of either side, pauses, clones: no more rounds begin than were due, and all alive go on with the next."""
    mixed = seed % 2 == 1
    simulation = Simulation(
        12_000 + seed, rounds=True, restarts=True, pauses=mixed, clones=mixed, skips=seed % 4 == 2
    )
    simulation.run(800)
    assert simulation.logged == set(range(len(simulation.logged))), "a number was left out"
    # one that was due when the producer was killed is due again
    assert len(simulation.logged) <= simulation.due
    simulation.settle()
    assert len(simulation.logged) <= simulation.due


def test_consumers_wait_for_a_round_and_one_that_comes_back_to_one_that_began_does_not() -> None:
    """None is turned away while it waits, however long; `join="now"` is."""
    dispatch = Dispatch(4, 4, 30.0, 3)
    dispatch.note_repeatable(True)
    for event in (
        ev.RoundDue(0),
        ev.Withdrawn(0),
        joined(1, "a"),
        joined(2, "b"),
        joined(3, "c"),
        joined(4, "d"),
    ):
        dispatch.step(event, 0.0)
    out = [*dispatch.step(asked(1, epoch=3), 0.0), *dispatch.step(asked(2, epoch=3, exact=True), 0.0)]
    out += dispatch.step(ev.Tick(), 1000.0)
    assert not out and dispatch.wanted is None
    assert tells(dispatch.step(asked(3, now=True), 1000.0), ms.NotJoined)
    out = dispatch.step(ev.RoundDue(1), 1001.0)
    assert [(key, told.epoch) for key, told in tells(out, ms.EpochStarted)] == [(1, 3), (2, 3)]
    assert dispatch.admission.rounds == 0
    for key in (1, 2):
        dispatch.step(left_epoch(key), 1001.0)
    out = dispatch.step(asked(1, 1, epoch=4), 1002.0) + dispatch.step(
        asked(4, epoch=2, seq=1, exact=True), 1002.0
    )
    assert [(key, told.epoch) for key, told in tells(out, ms.EpochStarted)] == [(4, 2)]
    dispatch.step(left_epoch(4), 1003.0)
    assert not tells(dispatch.step(ev.Tick(), 2000.0), ms.EpochStarted)
    out = dispatch.step(ev.RoundDue(None), 2001.0)
    assert [(key, told.epoch) for key, told in tells(out, ms.EpochStarted)] == [(1, 4)]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_with_restarts_failures_and_consumers_that_skip_all_can_go_on(seed: int) -> None:
    """Each keeps its order (checked at every batch), and nobody waits for good."""
    simulation = Simulation(6000 + seed, restarts=True, skips=True, failures=seed % 2 == 0)
    simulation.run(500)
    simulation.settle()


@pytest.mark.parametrize("seed", range(40))
def test_however_often_compute_is_divided_anew_nothing_is_lost_and_all_can_go_on(seed: int) -> None:
    """Nobody waits for nothing (`FairShares.check` each step), each batch comes once, and no mode leaves a deadlock."""
    simulation = Simulation(7000 + seed, modes=True, restarts=seed % 2 == 0, skips=seed % 3 == 0)
    simulation.run(800)
    simulation.settle()


@pytest.mark.parametrize("seed", range(40))
def test_pauses_at_any_moment_lose_nothing_and_all_can_go_on(seed: int) -> None:
    """Across restarts, interrupts, breaks and kills, too: each batch is checked as it is given."""
    simulation = Simulation(
        9000 + seed, pauses=True, restarts=seed % 2 == 0, skips=seed % 3 == 0, modes=seed % 5 == 0
    )
    simulation.run(600)
    simulation.settle()


@pytest.mark.parametrize("seed", range(40))
def test_clones_at_any_moment_lose_nothing_and_all_can_go_on(seed: int) -> None:
    """Across restarts, interrupts, breaks, pauses and kills of either, too: each batch is checked as it is given."""
    simulation = Simulation(
        9900 + seed,
        clones=True,
        pauses=seed % 2 == 1,
        restarts=seed % 3 == 0,
        skips=seed % 4 == 0,
        parts=seed % 5 == 0,
        seeded=seed % 3 == 0 or seed % 2 == 0,
    )
    simulation.run(600)
    simulation.settle()


def test_one_that_skips_keeps_nothing_of_a_pass_that_came_after_its_own() -> None:
    """Though no other consumer is left that drives the loader: what others of its kind gave up has gone."""
    simulation = Simulation(20_068, skips=True, rounds=True, restarts=True, clones=True)
    simulation.run(800)
    simulation.settle()


@pytest.mark.parametrize("seed", [38, 63, 92])
def test_a_clone_of_one_in_whose_epoch_the_loader_failed_is_given_what_its_parent_still_is(seed: int) -> None:
    """And hears of the failure after it, as its parent does (`Simulation.clone` looks)."""
    simulation = Simulation(seed, failures=True, clones=True)
    simulation.run(600)
    simulation.settle()


def test_a_clone_of_one_that_skips_is_let_in_however_far_behind_the_others_its_place_is() -> None:
    """In an epoch that has ended, too: what its parent was granted is kept."""
    simulation = Simulation(20_002, restarts=True, skips=True, clones=True)
    simulation.run(1500)
    simulation.settle()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_a_clone_is_given_all_that_its_parent_is_given_from_there_on_without_a_seed(seed: int) -> None:
    """Cloned at any step, in the last batch, between two epochs, paused, of a clone: the same epochs, to their ends."""
    simulation = Simulation(9950 + seed, kills=False)
    simulation.dispatch.note_repeatable(False)
    two = [simulation.join(skips=False) for _ in range(2)]
    for consumer in two:
        consumer.ask()
    simulation.poll()

    def turns(steps: int) -> None:
        for _ in range(steps):
            simulation.now += 0.01
            simulation.load()
            simulation.rng.choice(list(simulation.consumers.values())).run_steadily()
            simulation.poll()

    turns(simulation.rng.randrange(5, 90))
    key, paused = 0, seed % 3 == 0
    if paused:
        simulation.pause(*simulation.consumers)  # all: nobody goes on past the place
        turns(4)
    place = simulation.consumers[0].place
    for _ in range(2):
        simulation.clone(key, simulation.rng.random() < 0.5)
        key = max(simulation.consumers)
        turns(0 if paused else 7)
    if paused:
        simulation.resume_all()
    turns(400)
    simulation.settle()
    ends = [sorted(c.complete) for key, c in simulation.consumers.items() if key != 1]
    least = min(map(len, ends))
    assert least >= 2
    for consumer, own in zip([c for key, c in simulation.consumers.items() if key != 1], ends, strict=True):
        assert not consumer.parked
        assert paused or own[:least] == ends[0][:least]
        assert not place.begun or place.epoch in own


@pytest.mark.parametrize("seed", range(30))
def test_paused_at_any_batch_a_consumer_gets_every_batch_once_and_nobody_waits_for_it(seed: int) -> None:
    """Two go on through whole epochs meanwhile, never held up; then it gets what it has missed, where it was."""
    simulation = Simulation(9500 + seed, kills=False)
    simulation.batches = 20
    three = [simulation.join(skips=False) for _ in range(3)]
    for consumer in three:
        consumer.ask()
    simulation.poll()

    def turns(who: list[SimConsumer], epochs: int) -> None:
        target = [len(c.complete) + epochs for c in who]
        for _ in range(5000):
            simulation.now += 0.01
            simulation.load()
            simulation.rng.choice(who).run_steadily()
            simulation.poll()
            if all(len(c.complete) >= n for c, n in zip(who, target, strict=True)):
                return
        raise AssertionError(f"somebody waits for good: {simulation.dispatch.members}")

    for _ in range(simulation.rng.randrange(60)):
        turns_before = simulation.rng.choice(three)
        simulation.load()
        turns_before.run_steadily()
        simulation.poll()
    key = next(k for k, c in simulation.consumers.items() if c is three[0])
    simulation.pause(key)
    had = three[0].steps
    began = simulation.now
    turns(three[1:], 2)
    assert simulation.now - began < simulation.dispatch.stall_timeout_s, "stall timeout has no part in it"
    for _ in range(3):
        three[0].run_steadily()
    assert three[0].steps == had, "it takes nothing from the next batch on"
    simulation.pause(key, on=False)
    turns(three, 2)
    for consumer in three:
        assert set(consumer.epochs) - consumer.complete <= {consumer.place.epoch}, (
            "an epoch was left in its middle"
        )
        assert not consumer.parked


@pytest.mark.parametrize("seed", range(12))
def test_one_that_died_goes_on_from_a_kept_place_wherever_the_others_are(seed: int) -> None:
    """It gets the rest of that epoch, whole epochs after it, and the others lose nothing by it."""
    simulation = Simulation(9700 + seed, kills=False)
    simulation.batches = 20
    those = [simulation.join(skips=False) for _ in range(1 + seed % 3)]
    simulation.poll()

    def turns(who: list[SimConsumer], count: int) -> None:
        for _ in range(count if who else 0):
            simulation.now += 0.01
            simulation.load()
            simulation.rng.choice(who).run_steadily()
            simulation.poll()

    def whole(who: list[SimConsumer], epochs: int) -> None:
        target = [len(c.complete) + epochs for c in who]
        for _ in range(500):
            turns(who, 10)
            if all(len(c.complete) >= n for c, n in zip(who, target, strict=True)):
                return
        raise AssertionError(f"somebody waits for good: {simulation.dispatch.members}")

    turns(those, simulation.rng.randrange(20, 150))
    key, first = next(iter(simulation.consumers.items()))
    place = first.session.given
    turns(those, simulation.rng.randrange(60))
    simulation.kill(key)
    simulation.poll()
    turns(those[1:], simulation.rng.randrange(120))
    again = simulation.join(skips=False)
    again.prefetch = 0
    again.session.load(place, same_order=True, patient=True)
    again.epochs[place.epoch] = list(range(place.batch))
    simulation.now += simulation.dispatch.stall_timeout_s  # the stream is not young any more
    simulation.step(ev.Tick())
    whole([again, *those[1:]], 2)
    assert min(again.complete) == place.epoch or not place.begun
    assert not again.parked
    for consumer in those[1:]:
        assert set(consumer.epochs) - consumer.complete <= {consumer.place.epoch}


@pytest.mark.parametrize("seed", range(60))
def test_while_nobody_goes_far_on_a_paused_one_keeps_its_place_without_a_seed(seed: int) -> None:
    """One alone, or all of them: paused wherever they are and for however long, they lose nothing."""
    simulation = Simulation(9900 + seed, kills=False)
    simulation.dispatch.note_repeatable(False)
    rng = simulation.rng
    those = [simulation.join(skips=False) for _ in range(rng.choice([1, 1, 2, 3]))]
    simulation.poll()

    def go_on(steps: int) -> None:
        for _ in range(steps):
            simulation.now += 0.01
            simulation.load()
            rng.choice(those).run_steadily()
            simulation.poll()

    for _ in range(6):
        go_on(rng.randrange(30))
        keys = list(simulation.consumers)
        rng.shuffle(keys)
        simulation.pause(*keys)
        simulation.poll() if rng.random() < 0.5 else None
        simulation.now += rng.choice([0.0, 1000.0])
        simulation.step(ev.Tick())
        go_on(rng.randrange(10))
        before = [c.steps for c in those]
        go_on(10)
        assert [c.steps for c in those] == before, "they take nothing"
        rng.shuffle(keys)
        simulation.pause(*keys, on=False)
    simulation.settle()
    assert not any(c.parked for c in those)
    for consumer in those:
        left = set(consumer.epochs) - consumer.complete
        assert left <= {consumer.session.given.epoch}, "an epoch was left in its middle"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_nobody_waits_longer_than_the_patience_for_those_who_only_stand_still(seed: int) -> None:
    """After any history some stop for good, wherever they are: the others, and latecomers, each get whole epochs."""
    simulation = Simulation(8000 + seed, skips=seed % 2 == 0, modes=seed % 3 == 0, restarts=seed % 5 == 0)
    rng = simulation.rng
    simulation.batches = rng.choice([simulation.batches, 30])
    simulation.run(rng.choice([10, 100, 300]))
    for consumer in simulation.consumers.values():
        consumer.silent = False
    idle = [simulation.join() for _ in range(rng.randrange(3))] + [
        c for c in simulation.consumers.values() if rng.random() < rng.choice([0.3, 1.0])
    ]
    for _ in range(rng.randrange(60)):
        simulation.now += 0.1
        simulation.load()
        rng.choice(list(simulation.consumers.values()) or [simulation.join()]).run_steadily()
        simulation.poll()
    for _ in range(2):
        simulation.join()
    simulation.go_on_beside(idle)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_each_gets_every_sample_of_its_part_once_in_the_common_order_whatever_happens(seed: int) -> None:
    """Subsets and folds, late joins, interrupts, breaks and killed producers: nothing lost, doubled or foreign.

    One that skips gets the samples of its part in the batches that it has not missed.
    """
    simulation = Simulation(
        11_000 + seed, parts=True, restarts=seed % 2 == 0, kills=seed % 3 == 0, skips=seed % 4 == 1
    )
    simulation.run(1500)
    simulation.settle()
    assert simulation.check_samples() or all(c.part is None for c in simulation.consumers.values())


def test_a_pass_prepares_what_those_take_who_are_attached_and_others_wait_for_the_next() -> None:
    """The stream's first one everything; who takes a part of what is prepared joins as ever."""
    dispatch = stream(window=4)
    for key, mask in ((1, b"\x03"), (2, b"\x06")):
        dispatch.step(takes_part(key), 0.0)
        dispatch.step(ev.Heard(key, ms.Wants(0, mask)), 0.0)
    dispatch.step(asked(1), 0.0)
    assert dispatch.wanted is not None and dispatch.wanted.cover is None
    dispatch.step(ev.BatchLoaded(0, ev.Placed(0, b"", 4, 0, 0)), 0.0)
    dispatch.step(ev.LoaderEnded(0), 0.0)
    dispatch.step(took(1), 0.0)
    dispatch.step(asked(1, 1, epoch=1), 0.0)
    assert dispatch.wanted is not None and dispatch.wanted[1:] == (1, 0, 0b111)
    dispatch.step(takes_part(3), 0.0)
    dispatch.step(ev.Heard(3, ms.Wants(0, b"\x08")), 0.0)
    for key, begins in ((2, [1]), (3, [])):
        out = dispatch.step(asked(key, 1, epoch=1), 0.0)
        assert [told.epoch for _, told in tells(out, ms.EpochStarted)] == begins, key
    dispatch.step(ev.BatchLoaded(1, ev.Placed(1, b"", 3, 0, 0)), 0.0)
    dispatch.step(ev.LoaderEnded(1), 0.0)
    dispatch.step(took(1), 0.0)
    dispatch.step(took(2), 0.0)
    assert dispatch.wanted is not None and dispatch.wanted[1:] == (2, 0, 0b1111)
    dispatch.step(joined(4, "all"), 0.0)
    assert dispatch.wanted.cover == 0b1111, "a pass that has begun stays what it is"
    dispatch.check()


def test_one_that_takes_a_part_is_waited_for_between_two_epochs_as_others_are() -> None:
    """The first batches of a pass with its samples are kept for it, and the loader goes no further than the window."""
    dispatch = stream(window=2)
    for key in (1, 2):
        dispatch.step(takes_part(key), 0.0)
        dispatch.step(ev.Heard(key, ms.Wants(0, b"\x03")), 0.0)
        dispatch.step(asked(key), 0.0)
    dispatch.step(ev.BatchLoaded(0, ev.Placed(0, b"", 4, 0, 0)), 0.0)
    dispatch.step(ev.LoaderEnded(0), 0.0)
    dispatch.step(took(1), 0.0)
    dispatch.step(took(2), 0.0)
    dispatch.step(asked(1, 1, epoch=1), 0.0)
    for slot in (1, 2):
        assert dispatch.wanted is not None and dispatch.wanted.cover == 0b11
        dispatch.step(ev.BatchLoaded(1, ev.Placed(slot, b"", 2, 0, 0)), 0.0)
        dispatch.step(took(1), 0.0)
    assert dispatch.wanted is None, "the other one is expected back"
    out = dispatch.step(asked(2, 1, epoch=1), 0.0)
    assert [told.epoch for _, told in tells(out, ms.EpochStarted)] == [1]
    dispatch.check()


def test_one_that_comes_back_to_a_pass_without_its_samples_has_it_begun_again() -> None:
    """After a restart all come back one by one: those who stream move over to a pass that has the samples of all."""
    dispatch = stream(window=4)
    dispatch.note_repeatable(True)
    for key, seq, mask in ((1, 20, b"\x01"), (2, 22, b"\x02")):
        dispatch.step(takes_part(key), 0.0)
        dispatch.step(ev.Heard(key, ms.Wants(0, mask)), 0.0)
        out = dispatch.step(asked(key, 1, 3, seq, exact=True), 0.0)
    assert dispatch.wanted is not None and dispatch.wanted[1:] == (3, 20, 0b11)
    assert [(key, told.seq) for key, told in tells(out, ms.EpochStarted)] == [(1, 20), (2, 22)]


def takes_part(key: int) -> ev.Heard:
    """A consumer attaches that takes a part of the samples."""
    return ev.Heard(key, ms.Hello("consumer", f"c{key}", "", part="subset"))


def test_one_that_skips_holds_nobody_and_counts_what_it_misses() -> None:
    """The others run on at their own pace; it gets what is still there when it comes."""
    simulation = Simulation(1, kills=False)
    simulation.batches, simulation.window = 40, 4
    simulation.start(0)
    fast, slow = simulation.join(), simulation.join(skips=True)
    for consumer in (fast, slow):
        consumer.ask()
    simulation.poll()
    for turn in range(400):
        simulation.load()
        if not fast.complete:
            fast.run_steadily()
        if turn % 10 == 0 and not slow.complete:
            slow.run_steadily()
        simulation.poll()
    assert fast.epochs == {0: list(range(40))}
    assert slow.complete == {0}
    assert 0 < len(slow.epochs[0]) < 40
    assert len(slow.epochs[0]) + simulation.dispatch.members[1].share.skipped == 40


# -- single decisions ---------------------------------------------------------------------------------------


def placed(slot: int, rows: int = 4) -> ev.Placed:
    return ev.Placed(slot, b"", rows, 0, 0)


def stream(window: int = 4, band: int = 2, stall_timeout_s: float = 30.0, batches: int = 0) -> Dispatch:
    dispatch = Dispatch(window, band, stall_timeout_s)
    for slot in range(batches):
        dispatch.step(ev.BatchLoaded(0, placed(slot)), 0.0)
    return dispatch


def wanted(dispatch: Dispatch) -> int | None:
    return None if dispatch.wanted is None else dispatch.wanted.epoch


def grants(out: list[ev.Instruction]) -> list[tuple[int, int, int]]:
    return [(g.member, g.epoch, g.seq) for g in out if isinstance(g, ev.Granted)]


def test_the_first_batch_is_loaded_before_anybody_asks_and_no_more() -> None:
    """A broken loader shows at once; an unwatched stream does not spin."""
    dispatch = stream()
    assert wanted(dispatch) == 0
    dispatch.step(ev.BatchLoaded(0, placed(0)), 0.0)
    assert dispatch.wanted is None


def test_a_latecomer_within_the_rubber_band_gets_the_whole_epoch() -> None:
    """Batches 0 and 1 are kept though the first consumer has released them."""
    dispatch = stream(band=2)
    dispatch.step(joined(1, "a"), 0.0)
    dispatch.step(asked(1), 0.0)
    for slot in range(2):
        out = dispatch.step(ev.BatchLoaded(0, placed(slot)), 0.0)
        dispatch.step(took(1), 0.0)
        (grant,) = (g for g in out if isinstance(g, ev.Granted))
        assert dispatch.step(released(1, grant.lease), 0.0) == []
    dispatch.step(joined(2, "b"), 1.0)
    assert grants(dispatch.step(asked(2), 1.0)) == [(2, 0, 0), (2, 0, 1)]


def test_a_latecomer_past_the_rubber_band_gets_the_next_epoch() -> None:
    """It is granted nothing of the running epoch, and everything of the next."""
    dispatch = stream(band=1)
    dispatch.step(joined(1, "a"), 0.0)
    dispatch.step(asked(1), 0.0)
    for slot in range(3):
        out = dispatch.step(ev.BatchLoaded(0, placed(slot)), 0.0)
        dispatch.step(took(1), 0.0)
        for grant in out:
            if isinstance(grant, ev.Granted):
                dispatch.step(released(1, grant.lease), 0.0)
    dispatch.step(joined(2, "b"), 1.0)
    assert dispatch.step(asked(2), 1.0) == []
    out = dispatch.step(ev.LoaderEnded(0), 1.0)
    assert wanted(dispatch) == 1
    assert grants(dispatch.step(ev.BatchLoaded(1, placed(9)), 1.0)) == [(2, 1, 0)]


def test_the_loader_stops_at_the_window_and_goes_on_when_the_slowest_moves() -> None:
    """Back-pressure: the fast one may be `window` batches ahead, no more."""
    dispatch = stream(window=2, batches=1)
    for member in (1, 2):
        dispatch.step(joined(member, str(member)), 0.0)
        dispatch.step(asked(member), 0.0)
    dispatch.step(took(1), 0.0)
    dispatch.step(ev.BatchLoaded(0, placed(1)), 0.0)
    dispatch.step(took(1), 0.0)
    assert dispatch.wanted is None, "two ahead of the one that has taken nothing"
    assert [m.name for m in dispatch.drift.pace_setters()] == ["2"]
    dispatch.step(took(2), 5.0)
    assert wanted(dispatch) == 0
    assert dispatch.drift.blocked_s(9.0) == 5.0


def test_time_is_told_apart_into_computing_waiting_and_held() -> None:
    """One second of each, in the right account."""
    dispatch = stream(window=1, band=1, batches=1)
    for member in (1, 2):
        dispatch.step(joined(member, str(member)), 0.0)
    for member in (1, 2):
        dispatch.step(asked(member), 0.0)
    fast = dispatch.members[1]
    dispatch.step(took(1), 0.0)
    dispatch.step(waits(1), 1.0)  # computed for a second
    dispatch.step(took(2), 2.0)  # the slow one held it for a second
    dispatch.step(ev.BatchLoaded(0, placed(1)), 3.0)  # the loader needed a second
    dispatch.step(took(1), 3.0)
    assert (fast.times.computing_s, fast.times.held_s, fast.times.waiting_s) == (1.0, 1.0, 1.0)


def test_a_consumer_that_stands_still_is_parked_after_patience_and_told() -> None:
    """The others go on; it keeps what it was granted."""
    dispatch = stream(window=1, stall_timeout_s=30.0, batches=1)
    for member in (1, 2):
        dispatch.step(joined(member, str(member)), 0.0)
        dispatch.step(asked(member), 0.0)
    dispatch.step(took(1), 1.0)
    dispatch.step(waits(1), 5.0)
    assert dispatch.step(ev.Tick(), 34.0) == [], "the other has waited for less than the stall timeout"
    out = dispatch.step(ev.Tick(), 40.0)
    assert len(out) == len(tells(out, ms.Parked)) == 1
    assert wanted(dispatch) == 0
    assert dispatch.members[2].leases, "what it was granted stays readable"


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("idle_with", [2, 0])
def test_who_stands_still_in_an_epoch_that_a_latecomer_waits_for_is_parked_after_patience(
    skips: bool, idle_with: int
) -> None:
    """Nobody else takes the epoch; the window need not be full. The latecomer is told who holds it, then let in."""
    dispatch = stream(window=4, band=1, stall_timeout_s=30.0, batches=1)
    for member in (1, 2):
        dispatch.step(joined(member, f"first{member}", skips), 0.0)
        dispatch.step(asked(member), 0.0)
    for slot in range(1, 4):
        dispatch.step(ev.BatchLoaded(0, placed(slot)), 0.0)
        dispatch.step(took(1), 0.0)
    dispatch.step(took(1), 1.0)  # it has had all there is, and computes
    while len(dispatch.members[2].granted) > idle_with:
        dispatch.step(took(2), 1.0)
        dispatch.step(ev.BatchLoaded(0, placed(9)), 1.0) if idle_with else None
    dispatch.step(joined(3, "late"), 2.0)
    assert dispatch.step(asked(3, 7, now=False), 2.0) == []
    told = [x for s in range(3, 32) for x in dispatch.step(ev.Tick(), float(s))]
    held = tells(told, ms.HeldUp)
    assert len(told) == len(held), "nobody has stood still for the stall timeout"
    assert [(m, x.ask, x.epoch, x.holders) for m, x in held] == [(3, 7, 0, "first1 and first2")] * 2
    assert [x.still_s for _, x in held] == [4.0, 15.0]
    out = dispatch.step(ev.Tick(), 32.0)
    assert {m for m, _ in tells(out, ms.Parked)} == {1, 2}
    assert tells(out, ms.EpochStarted) == [(3, ms.EpochStarted(7, 1, 0))]
    dispatch.check()


def test_who_gets_on_in_an_epoch_is_not_parked_for_a_latecomer() -> None:
    """However long the epoch is: a batch every twenty seconds is not standing still. The latecomer is told."""
    dispatch = stream(window=4, band=1, stall_timeout_s=30.0, batches=1)
    dispatch.step(joined(1, "slow"), 0.0)
    dispatch.step(asked(1), 0.0)
    dispatch.step(joined(2, "late"), 0.0)
    for slot in range(1, 5):
        dispatch.step(ev.BatchLoaded(0, placed(slot)), 0.0)
    dispatch.step(took(1), 0.0)
    dispatch.step(asked(2), 0.0)
    told = []
    for second in range(1, 200):
        told += dispatch.step(ev.Tick(), float(second))
        if second % 20 == 0:
            dispatch.step(took(1), float(second))
            dispatch.step(ev.BatchLoaded(0, placed(4 + second)), float(second))
    assert len(told) == len(tells(told, ms.HeldUp)) == 2
    assert dispatch.members[1].phase.value == "streaming"


def test_one_that_holds_nobody_up_may_take_its_time() -> None:
    """A sole consumer at a breakpoint, or two that validate at once, are not parked."""
    dispatch = stream(window=1, stall_timeout_s=30.0, batches=1)
    for member in (1, 2):
        dispatch.step(joined(member, str(member)), 0.0)
        dispatch.step(asked(member), 0.0)
    assert dispatch.step(ev.Tick(), 1000.0) == []


def test_one_that_leaves_before_its_epoch_began_holds_nobody() -> None:
    """Interrupted while it waited for the next epoch: that epoch is not started for it."""
    dispatch = stream(window=1, band=1, batches=1)
    dispatch.step(joined(1, "a"), 0.0)
    dispatch.step(joined(2, "b"), 0.0)
    dispatch.step(asked(1), 0.0)
    dispatch.step(ev.BatchLoaded(0, placed(1)), 0.0)
    dispatch.step(took(1), 0.0)
    dispatch.step(ev.BatchLoaded(0, placed(2)), 0.0)
    dispatch.step(asked(2), 0.0)
    assert dispatch.members[2].phase.value == "asked"
    dispatch.step(left_epoch(2), 1.0)
    dispatch.step(ev.LoaderEnded(0), 1.0)
    assert dispatch.wanted is None
    assert dispatch.members[2].phase.value == "away"


def test_computing_on_the_last_batch_counts_until_the_loop_has_ended() -> None:
    """Else a stream of one-batch epochs would look loader-bound."""
    dispatch = stream(band=1, batches=1)
    dispatch.step(joined(1, "a"), 0.0)
    dispatch.step(asked(1), 0.0)
    dispatch.step(ev.LoaderEnded(0), 0.0)
    dispatch.step(took(1), 1.0)
    assert dispatch.members[1].read(3.0, 0.0)[0] == 2.0
    dispatch.step(left_epoch(1), 4.0)
    assert dispatch.members[1].read(9.0, 0.0)[0] == 3.0


def test_one_that_is_between_epochs_is_waited_for_until_patience_is_over() -> None:
    """The next epoch's first batches are kept for it, up to the window; then the others go on."""
    dispatch = stream(window=1, band=1, stall_timeout_s=30.0, batches=1)
    for member in (1, 2):
        dispatch.step(joined(member, str(member)), 0.0)
        dispatch.step(asked(member), 0.0)
    for member in (1, 2):
        dispatch.step(took(member), 0.0)
    dispatch.step(ev.LoaderEnded(0), 0.0)
    dispatch.step(asked(1, 2, epoch=1), 1.0)
    assert wanted(dispatch) == 1
    dispatch.step(ev.BatchLoaded(1, placed(1)), 1.0)
    dispatch.step(took(1), 1.0)
    assert dispatch.wanted is None, "the second is expected back"
    dispatch.step(ev.Tick(), 31.0)
    assert wanted(dispatch) == 1, "its stall timeout is over"
    dispatch.step(ev.Heard(2, ms.Rest()), 31.0)


def test_one_that_says_that_its_thread_waits_for_another_is_parked_at_once() -> None:
    """No tick has to come first: a validation in the middle of an epoch would wait for that each time."""
    dispatch = stream(window=1, stall_timeout_s=30.0, batches=1)
    for member in (1, 2):
        dispatch.step(joined(member, str(member)), 0.0)
        dispatch.step(asked(member), 0.0)
    dispatch.step(took(1), 1.0)
    dispatch.step(waits(1), 5.0)
    assert dispatch.wanted is None, "the other has not taken its batch"
    out = dispatch.step(ev.Heard(2, ms.Rest(stands=True)), 5.5)
    assert len(tells(out, ms.Parked)) == 1
    assert wanted(dispatch) == 0


def test_one_that_asks_again_in_mid_epoch_gets_the_next_epoch_though_the_first_could_still_be_joined() -> (
    None
):
    """Alone on the stream, its loop was left behind: the epoch that nobody takes must not be waited for."""
    dispatch = stream(band=20, batches=1)
    dispatch.step(joined(1, "a"), 0.0)
    dispatch.step(asked(1, 1), 0.0)
    dispatch.step(took(1), 0.0)
    dispatch.step(asked(1, 2, epoch=1), 0.0)
    assert wanted(dispatch) == 1


def test_an_epoch_that_everybody_left_is_abandoned_and_the_next_asker_starts_a_fresh_one() -> None:
    """Killed in mid-epoch and started again: no wait for an epoch that nobody takes."""
    dispatch = stream(band=1, batches=1)
    dispatch.step(joined(1, "a"), 0.0)
    dispatch.step(asked(1), 0.0)
    dispatch.step(took(1), 0.0)
    dispatch.step(ev.BatchLoaded(0, placed(1)), 0.0)
    dispatch.step(took(1), 0.0)
    out = dispatch.step(ev.Left(1), 0.0)
    assert ev.Abandon(0) in out
    assert {x.slot for x in out if isinstance(x, ev.FreeSlot)} == {0, 1}
    assert dispatch.step(ev.BatchLoaded(0, placed(2)), 0.0) == [ev.FreeSlot(2)], "was still on its way"
    dispatch.step(joined(2, "a"), 1.0)
    dispatch.step(asked(2), 1.0)
    assert wanted(dispatch) == 1


def test_one_that_would_rather_not_wait_is_told_how_far_the_epoch_is() -> None:
    """`join="now"`: in from the start, or refused at once with the numbers."""
    dispatch = stream(window=2, band=2)
    for member in (1, 2, 3):
        dispatch.step(joined(member, str(member)), 0.0)
    dispatch.step(asked(1, 1), 0.0)
    for slot in range(3):
        dispatch.step(ev.BatchLoaded(0, placed(slot)), 0.0)
        if slot == 1:
            out = dispatch.step(asked(2, 1, now=True), 0.0)
            assert [type(x) for x in out] == [ev.Tell, ev.Granted, ev.Granted]
            dispatch.step(took(2), 0.0)
        dispatch.step(took(1), 0.0)
    assert ev.Tell(3, ms.NotJoined(1, 0, 3, 2)) in dispatch.step(asked(3, 1, now=True), 0.0)


@pytest.mark.parametrize("endless", [False, True])
def test_who_waits_for_no_epoch_begins_with_the_batch_that_the_slowest_takes(endless: bool) -> None:
    """With `join="here"`, or where no epoch may come; two at a time with the same one. Who has left it waits longer."""
    dispatch = stream(window=4, band=1, stall_timeout_s=10.0)
    dispatch.note_dataset(5 * placed(0).rows if endless else None)
    for member in (1, 2, 3, 4):
        dispatch.step(joined(member, str(member)), 0.0)
    dispatch.step(asked(1, 1), 0.0)
    for slot in range(5):
        dispatch.step(ev.BatchLoaded(0, placed(slot)), 0.0)
        dispatch.step(took(1), 0.0)
    out = dispatch.step(asked(2, 1, here=not endless), 0.0)
    if endless:  # so far, it may end with its fifth
        assert not tells(out, ms.EpochStarted)
        out = dispatch.step(ev.BatchLoaded(0, placed(5)), 0.0)
    else:
        dispatch.step(ev.BatchLoaded(0, placed(5)), 0.0)
    assert tells(out, ms.EpochStarted) == [(2, ms.EpochStarted(1, 0, 5))]
    dispatch.step(took(1), 0.0)
    dispatch.check()
    assert tells(dispatch.step(asked(3, 1, here=not endless), 0.0), ms.EpochStarted) == [
        (3, ms.EpochStarted(1, 0, 5))
    ]
    dispatch.check()
    assert not tells(dispatch.step(asked(4, 1, now=True), 0.0), ms.EpochStarted)
    dispatch.step(left_epoch(2), 1.0)
    out = dispatch.step(asked(2, 2, epoch=1, here=not endless), 1.0)
    out += [*dispatch.step(took(3), 9.0), *dispatch.step(ev.Tick(), 10.0)]
    assert not tells(out, ms.EpochStarted)
    assert tells(dispatch.step(ev.Tick(), 11.0), ms.EpochStarted) == [(2, ms.EpochStarted(2, 0, 6))]
    dispatch.check()


def test_a_batch_that_got_lost_on_its_way_is_given_again() -> None:
    """Interrupted between receiving a batch and taking it: the consumer says where it is and what it holds."""
    dispatch = stream(window=2, band=1, batches=1)
    dispatch.step(joined(1, "a"), 0.0)
    (_, first) = dispatch.step(asked(1, 1), 0.0)
    dispatch.step(took(1), 0.0)
    (lost,) = dispatch.step(ev.BatchLoaded(0, placed(1)), 0.0)
    assert isinstance(first, ev.Granted)
    assert isinstance(lost, ev.Granted)
    out = dispatch.step(asked(1, 2, 0, 1, exact=True, held=(first.lease,)), 0.0)
    assert grants(out) == [(1, 0, 1)]
    assert lost.lease not in dispatch.members[1].leases


def test_who_comes_back_is_not_waited_for_by_loading_what_nobody_takes() -> None:
    """A resumed epoch begins at its position; near the start it begins there, so that others can have all of it."""
    for seq, first in ((100, 100), (3, 0)):
        dispatch = stream(window=4)
        dispatch.note_repeatable(True)
        dispatch.step(joined(1, "a"), 0.0)
        dispatch.step(asked(1, 1, 7, seq, exact=True), 0.0)
        assert dispatch.wanted is not None
        assert (dispatch.wanted.epoch, dispatch.wanted.first) == (7, first)


def test_an_epoch_that_cannot_be_given_again_is_refused_at_once() -> None:
    """Shuffled without a seed: its rest would be another epoch's."""
    dispatch = stream()
    dispatch.step(joined(1, "a"), 0.0)
    out = dispatch.step(asked(1, 1, 7, 100, exact=True), 0.0)
    assert [type(x) for x in out] == [ev.Abandon, ev.Tell] and tells(out, ms.NotJoined)


class Driven:
    """One dispatch with a loader that has a batch whenever one is wanted."""

    def __init__(self, first_epoch: int = 0, window: int = 8, repeatable: bool = True) -> None:
        self.dispatch = Dispatch(window, window, 30.0, first_epoch)
        self.dispatch.note_repeatable(repeatable)
        self.now = 0.0
        self.slots = iter(range(10_000))

    def step(self, event: ev.Event, seconds: float = 0.0) -> list[ev.Instruction]:
        self.now += seconds
        out = self.dispatch.step(event, self.now)
        self.dispatch.check()
        return out

    def load(self) -> bool:
        wanted = self.dispatch.wanted
        if wanted is not None:
            self.step(ev.BatchLoaded(wanted.run, placed(next(self.slots))))
        return wanted is not None


@pytest.mark.parametrize("first_back", [1, 2])
def test_who_comes_back_to_the_next_epoch_waits_for_those_in_the_one_before(first_back: int) -> None:
    """Places on both sides of an epoch's end, slow steps: whoever comes first, nobody loses its place."""
    stream = Driven(first_epoch=4)
    stream.load()
    for member in (first_back, 3 - first_back):
        stream.step(joined(member, str(member)))
        epoch, seq = {1: (4, 90), 2: (5, 3)}[member]
        stream.step(asked(member, 1, epoch, seq, exact=True))
    for _ in range(12):
        stream.load()
        stream.step(took(1), 4.0)
        assert not tells(stream.step(ev.Tick()), ms.NotJoined)
    assert stream.dispatch.wanted is not None
    stream.step(ev.LoaderEnded(stream.dispatch.wanted.run))
    while stream.dispatch.members[1].granted:
        stream.step(took(1))
    while stream.load():
        pass
    (first, _) = stream.dispatch.members[2].granted
    assert (stream.dispatch.members[2].epoch, first.seq) == (5, 3)


def test_one_that_skips_and_was_interrupted_holds_nobody_and_is_not_refused() -> None:
    """It goes back to a batch that has gone, and gets what is there; the others do not load it for its sake."""
    for repeatable in (True, False):
        stream = Driven(window=2, repeatable=repeatable)
        stream.load()
        for member, skips in ((1, False), (2, True)):
            stream.step(joined(member, str(member), skips))
            stream.step(asked(member, 1))
        stream.step(took(2))
        for _ in range(10):
            while stream.load():
                pass
            stream.step(took(1))
            for lease in list(stream.dispatch.members[1].leases)[:-2]:
                stream.step(released(1, lease))
        run = stream.dispatch.epochs.newest.run
        out = stream.step(asked(2, 2, 0, 1, exact=True, held=()))
        assert stream.dispatch.epochs.newest.run == run, "the others would load it all again"
        assert [g.member for g in out if isinstance(g, ev.Granted)] == [2, 2]
        assert stream.dispatch.members[2].share.skipped > 0


def test_one_that_leaves_while_it_is_moved_over_makes_nobody_stand_still() -> None:
    """It waits for nothing any more: a lone consumer may take as long as it likes."""
    stream = Driven(first_epoch=4)
    stream.load()
    stream.step(joined(2, "moved"))
    stream.step(asked(2, 1, 4, 90, exact=True))
    stream.step(waits(2))
    stream.step(joined(1, "slow"))
    stream.step(asked(1, 1, 4, 50, exact=True))
    stream.step(left_epoch(2))
    while stream.load():
        pass
    stream.step(took(1))
    while stream.load():
        pass
    for _ in range(40):
        assert stream.step(ev.Tick(), 1.0) == []


def _joined(dispatch: Dispatch, key: int, **ask: Any) -> list[ev.Instruction]:
    dispatch.step(joined(key, f"c{key}"), 0.0)
    return dispatch.step(asked(key, 1, **ask), 0.0)


def test_a_pass_may_turn_out_to_be_of_a_later_epoch() -> None:
    """Who takes any epoch is told the number again and gets it whole; who came back for just that one is refused."""
    dispatch = Dispatch(window=2, band=2, stall_timeout_s=1.0)
    dispatch.note_repeatable(True)
    dispatch.step(ev.Withdrawn(0), 0.0)
    assert dispatch.wanted is None, "nothing is loaded before somebody asks"
    _joined(dispatch, 1, epoch=0)
    assert dispatch.wanted == ev.Wanted(1, 0, 0), "the first epoch is still the first"
    _joined(dispatch, 2, epoch=0, seq=1, exact=True)
    told = dispatch.step(ev.Renumbered(1, 7), 0.0)
    assert ev.Tell(1, ms.EpochStarted(1, 7, 0)) in told
    assert [m for m, _ in tells(told, ms.NotJoined)] == [2]
    out = dispatch.step(ev.BatchLoaded(1, ev.Placed(0, b"", 4, 0, 0)), 0.0)
    assert [(i.member, i.epoch, i.seq) for i in out if isinstance(i, ev.Granted)] == [(1, 7, 0)]
    dispatch.check()
    dispatch.step(took(1), 0.0)
    dispatch.step(ev.LoaderEnded(1), 0.0)
    dispatch.step(asked(1, 2, 8), 0.0)
    assert dispatch.wanted == ev.Wanted(2, 8, 0), "the next one follows on it"
    assert dispatch.step(ev.Renumbered(1, 9), 0.0) == [], "of a pass that is over: too late to matter"


def test_a_pass_is_withdrawn_only_while_nobody_takes_it() -> None:
    """What was kept of it goes, and nobody joins the rest."""
    dispatch = Dispatch(window=2, band=2, stall_timeout_s=1.0)
    _joined(dispatch, 1)
    dispatch.step(ev.BatchLoaded(0, ev.Placed(0, b"", 4, 0, 0)), 0.0)
    assert dispatch.step(ev.Withdrawn(0), 0.0) == []
    assert not dispatch.idle
    dispatch.step(ev.Left(1), 0.0)
    assert dispatch.idle
    assert dispatch.step(ev.Withdrawn(0), 0.0) == [ev.Abandon(0), ev.FreeSlot(0)]
    assert dispatch.epochs.kept == 0
    _joined(dispatch, 2)
    assert dispatch.wanted == ev.Wanted(1, 1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("pacing", ["in step", "by weight", "all skip", "one waits"])
def test_a_batch_costs_in_proportion_to_the_consumers(monkeypatch: pytest.MonkeyPatch, pacing: str) -> None:
    """Each of them takes each batch: a look at all of them at each take would be the square of their number."""
    looks = [0]

    def counted(member: Member, name: str) -> Any:
        looks[0] += 1
        return object.__getattribute__(member, name)

    monkeypatch.setattr(Member, "__getattribute__", counted)
    found = {}
    for consumers in (2, 128):
        dispatch = Dispatch(4, 4, 30.0)
        if pacing == "by weight":
            dispatch.step(ev.Balanced("weights", {"c0": 3.0}, 16), 0.0)
        for key in range(consumers):
            skips = pacing == "all skip" or (pacing == "one waits" and key > 0)
            dispatch.step(joined(key, f"c{key}", skips), 0.0)
            out = dispatch.step(asked(key), 0.0)
        for at in range(20):
            looks[0] = looks[0] if at > 5 else 0
            wanted = dispatch.wanted
            assert wanted is not None
            out = dispatch.step(ev.BatchLoaded(wanted.run, ev.Placed(at, b"", 1, 0, 0)), float(at))
            granted = [made for made in out if isinstance(made, ev.Granted)]
            now = float(at)
            while granted:
                made, now = granted.pop(0), now + 0.01
                for said in (took(made.member), waits(made.member), released(made.member, made.lease)):
                    out = dispatch.step(said, now)
                    granted += [more for more in out if isinstance(more, ev.Granted)]
        dispatch.check()
        assert all(m.share.batches >= 10 for m in dispatch.members.values())
        found[consumers] = looks[0]
    assert found[128] < 75 * found[2], found
