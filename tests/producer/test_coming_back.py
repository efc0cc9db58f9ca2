"""A consumer that comes back, or a clone, to a place whose batches lie in more than one pass over the loader."""

from __future__ import annotations

from typing import Any

import pytest

from tests.producer.simulation import Simulation, asked, joined, released, tells, took
from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.dispatch import Dispatch
from tsnb.stream.protocol import messages as ms


class Stream:
    """One dispatch, and a loader that has a batch whenever one is wanted."""

    def __init__(self, *, first_epoch: int = 0, window: int = 4) -> None:
        self.dispatch = Dispatch(window, window, 30.0, first_epoch)
        self.dispatch.note_repeatable(True)
        self.now = 0.0
        self.slot = 0

    def step(self, event: ev.Event) -> list[ev.Instruction]:
        out = self.dispatch.step(event, self.now)
        self.dispatch.check()
        return out

    def load(self, most: int = 100) -> list[ev.Granted]:
        """Let the loader go on as far as it should; return what was granted."""
        out: list[ev.Granted] = []
        while most and (wanted := self.dispatch.wanted) is not None:
            self.slot, most = self.slot + 1, most - 1
            batch = ev.Placed(self.slot, b"", 4, 0, 0)
            out += granted(self.step(ev.BatchLoaded(wanted.run, batch)))
        return out


def granted(out: list[ev.Instruction]) -> list[ev.Granted]:
    """Return what consumers are granted."""
    return [made for made in out if isinstance(made, ev.Granted)]


def moved_over() -> tuple[Stream, list[ev.Granted]]:
    """Return a stream where 1 has yet to take batches 90 and 91 of a pass that was given up, as 2 came back to 85."""
    stream = Stream(first_epoch=4)
    stream.step(joined(1, "first"))
    stream.step(asked(1, 1, 4, 90, exact=True))
    mine = stream.load(2)
    assert [(g.member, g.seq) for g in mine] == [(1, 90), (1, 91)]
    stream.step(joined(2, "second"))
    others = granted(stream.step(asked(2, 1, 4, 85, exact=True)))
    for _ in range(7):  # 2 has had its own 90 and 91, too
        others += stream.load() + granted(stream.step(took(2)))
    for grant in others[:7]:
        stream.step(released(2, grant.lease))
    assert stream.dispatch.members[1].run == stream.dispatch.members[2].run
    stream.now += 40.0  # too late to begin once more
    return stream, mine


@pytest.mark.parametrize("clone", [False, True])
def test_one_that_was_moved_over_and_is_interrupted_or_cloned_loses_nothing(clone: bool) -> None:
    """What it was granted before lies in the pass that was given up, the rest in the one that others take."""
    stream, mine = moved_over()
    key = 3 if clone else 1
    if clone:
        stream.step(joined(3, "clone"))
    out = stream.step(asked(key, 2, 4, 90, exact=True))
    assert not tells(out, ms.NotJoined)
    again = granted(out)
    assert [(g.member, g.epoch, g.seq) for g in again] == [(key, 4, 90), (key, 4, 91)]
    assert [g.batch for g in again] == [g.batch for g in mine], "it is the same batch, not one in its place"
    for _ in again:
        out += stream.step(took(key))
    assert [g.seq for g in granted(out) + stream.load() if g.member == key] == [90, 91, 92, 93]


def test_what_was_granted_of_a_pass_that_was_given_up_goes_when_it_is_let_go() -> None:
    """Nobody else keeps it."""
    stream, mine = moved_over()
    again = granted(stream.step(asked(1, 2, 4, 90, exact=True)))
    for _ in again:
        stream.step(took(1))
    freed = [
        made.slot
        for g in again
        for made in stream.step(released(1, g.lease))
        if isinstance(made, ev.FreeSlot)
    ]
    assert {*freed} >= {grant.batch.slot for grant in mine}
    stream.step(ev.Tick())
    assert [e.run for e in stream.dispatch.epochs.remembered] == [stream.dispatch.epochs.newest.run]


@pytest.mark.parametrize("clone", [False, True])
def test_one_that_skips_is_given_the_rest_of_what_it_was_granted_in_an_epoch_that_has_ended(
    clone: bool,
) -> None:
    """It was granted a late batch after one that was early: what lies between has gone."""
    stream = Stream(window=2)
    for key, skips in ((1, False), (2, True)):
        stream.step(joined(key, str(key), skips))
        stream.step(asked(key, 1))
    leases: dict[int, dict[int, int]] = {1: {}, 2: {}}

    def note(grants: list[ev.Granted]) -> None:
        for grant in grants:
            leases[grant.member][grant.seq] = grant.lease

    for seq in range(8):
        note(stream.load())
        note(granted(stream.step(took(1))))
        stream.step(released(1, leases[1][seq]))
    note(granted(stream.step(took(2))))  # batch 0; the next is 1, which it was granted then
    run = stream.dispatch.epochs.newest.run
    stream.step(ev.LoaderEnded(run))
    (second, late) = stream.dispatch.members[2].granted
    assert second.seq == 1 and late.seq > 2
    stream.step(took(2))
    key = 3 if clone else 2
    if clone:
        stream.step(joined(3, "clone", True))
    out = stream.step(asked(key, 2, 0, 2, exact=True, held=() if clone else (leases[2][1],)))
    assert not tells(out, ms.NotJoined)
    assert [(g.member, g.seq) for g in granted(out)] == [(key, late.seq)]
    assert stream.dispatch.members[key].share.skipped >= late.seq - 2
    assert tells(out, ms.EpochEnded)


@pytest.mark.parametrize(
    ("seed", "steps", "flags"),
    [
        (9963, 600, ("failures", "clones")),  # its parent was moved over
        (
            20_068,
            800,
            ("skips", "rounds", "modes", "clones", "parts"),
        ),  # its parent skips, in an epoch that has ended
        # as the same, and the loader had failed in that epoch
        (600_084, 150, ("failures", "skips", "parts", "pauses", "clones", "rounds", "rotates", "extends")),
    ],
)
def test_clones_that_were_turned_away(seed: int, steps: int, flags: tuple[str, ...]) -> None:
    """Each history was found among many: its clone had no place (`Simulation.clone` looks)."""
    switched_on: dict[str, Any] = dict.fromkeys(flags, True)
    simulation = Simulation(seed, **switched_on)
    simulation.run(steps)
    simulation.failures = False
    simulation.settle()


@pytest.mark.parametrize("seed", range(20))
def test_trials_that_are_extended_or_were_killed_go_on_at_their_places_whatever_happens(seed: int) -> None:
    """None is refused its kept place, however far the others are; across restarts, pauses and clones, too."""
    simulation = Simulation(
        610_000 + seed,
        extends=True,
        restarts=seed % 2 == 0,
        pauses=seed % 3 == 0,
        clones=seed % 4 == 1,
        skips=seed % 5 == 2,
        rounds=seed % 7 == 3,
        failures=seed % 7 == 4,
    )
    simulation.run(500)
    simulation.failures = False
    simulation.extend(simulation.rng.choice(simulation.gone))
    simulation.settle()


@pytest.mark.parametrize("seed", range(20))
def test_an_extended_trial_gets_whole_epochs_beside_others_that_go_on(seed: int) -> None:
    """Its loop was over: it begins with the epoch after, and takes no other in its place."""
    simulation = Simulation(620_000 + seed, kills=False)
    for consumer in [simulation.join(skips=False) for _ in range(2)]:
        consumer.ask()
    simulation.poll()

    def go_on(steps: int) -> None:
        for _ in range(steps):
            simulation.now += 0.01
            simulation.load()
            simulation.rng.choice(list(simulation.consumers.values())).run_steadily()
            simulation.poll()

    first = simulation.consumers[0]
    go_on(simulation.rng.randrange(20, 150))
    while first.iterating or not first.complete:
        go_on(1)
    had = max(first.complete)
    simulation.end(0)
    go_on(simulation.rng.randrange(100))
    simulation.now += simulation.dispatch.stall_timeout_s  # the stream is not young any more
    again = simulation.extend(first)
    simulation.settle()
    assert had + 1 in again.complete and not again.parked
