"""A stream whose cache lies in part on other machines: the same bit for bit, whatever becomes of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.caching.lending import LendingMachine
from tests.caching.test_caching import SAMPLES, Kept, Pictures, equal, jitter, plain, work
from tsnb.caching import lenders, lent, owners
from tsnb.caching.memory import AWAY, GIVEN, OFF, SEEN, SERVING, WRITTEN
from tsnb.show.words import cached
from tsnb.telemetry.readings import CacheReading

pytestmark = pytest.mark.system

HERE = 24_000
"""Memory of the producer's machine, in bytes: a few samples, beside the notes on all."""
ROOM = 1 << 20
PATIENCE_S = 60.0
"""A busy machine's answers may take long; only where they are to be late is that told."""


class Costly(Pictures):
    """Each costs clearly more than to fetch it, however busy the machine is."""

    def raw(self, index: int) -> torch.Tensor:
        work(8)
        return super().raw(index)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((lent, "ANSWER_S"), (lenders, "PROBE_S"), (lenders, "PROBES_S")):
        monkeypatch.setattr(module, name, PATIENCE_S)


@pytest.fixture
def lending(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[LendingMachine]]]:
    """Start machines that lend memory to a stream."""
    made: list[LendingMachine] = []

    def start(kept: Kept, *rooms: int) -> list[LendingMachine]:
        token = kept.keeper.lenders.token
        mine = [LendingMachine(f"machine {n}", token, room) for n, room in enumerate(rooms)]
        made.extend(mine)
        kept.keeper.lenders.heard([machine.lender for machine in mine])
        return mine

    yield start
    for machine in made:
        machine.kill()


@pytest.mark.parametrize(
    ("transform", "method"),
    [(None, "fork"), (jitter, "fork"), pytest.param(jitter, "spawn", marks=pytest.mark.slow)],
)
def test_what_does_not_fit_here_lies_on_other_machines_and_the_stream_is_the_same(
    lending: Any, transform: Any, method: str
) -> None:
    """From the third epoch on nothing is prepared; the densest lie here, each other on one machine."""
    wanted = plain(Costly(transform), 5)
    pictures = Costly(transform)
    with Kept(pictures, HERE, multiprocessing_context=method, persistent_workers=method == "spawn") as kept:
        machines = lending(kept, ROOM, ROOM)
        found = kept.epochs(0, 2)
        counts = kept.keeper.counts()
        assert counts.state == "serving"
        assert 0 < counts.kept < SAMPLES
        assert (counts.lenders, counts.kept + counts.lent_kept) == (2, SAMPLES)
        assert counts.lent_bytes == int(kept.keeper._memory.sizes[kept.keeper._memory.states == AWAY].sum())
        assert all(machine.give_back(0) > 0 for machine in machines), "both have a share"
        found += kept.epochs(2, 5)
        assert equal(found, wanted)
        after = kept.keeper.counts()
        assert after.lent_hits > 0
        if method == "fork":  # a spawned worker counts for itself, and is less patient
            assert after.hits == 3 * SAMPLES
            assert after.lent_hits == 3 * counts.lent_kept
            assert after.misses == counts.misses
            assert pictures.prepared.max() <= 2 + 2, "and a few to probe"


@pytest.mark.slow
def test_machines_that_die_stand_still_give_memory_back_or_leave_change_no_batch(
    lending: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in the middle of an epoch: what lay there is prepared again, and that alone."""
    wanted = plain(Costly(jitter), 8)
    with Kept(Costly(jitter), HERE) as kept:
        machines = lending(kept, ROOM, ROOM, ROOM, ROOM)
        found = kept.epochs(0, 3)
        whole = kept.keeper.counts()
        assert (whole.lenders, whole.kept + whole.lent_kept) == (4, SAMPLES)
        for module, name in ((lent, "ANSWER_S"), (lenders, "PROBE_S")):
            monkeypatch.setattr(module, name, 2.0)
        leaving = [m.lender for m in machines]
        for number, what in enumerate(
            (
                machines[0].kill,
                machines[1].stand_still,
                lambda: machines[2].give_back(ROOM),
                lambda: kept.keeper.lenders.heard(leaving[:3]),
            )
        ):
            given = kept.stand.give(3 + number)
            epoch = [next(given), next(given)]
            what()
            found.append(epoch + list(given))
        before = kept.keeper.counts()
        found.append(kept.stand.epoch(7))
        after = kept.keeper.counts()
        assert equal(found, wanted)
        assert after.hits - before.hits == after.kept, "what lies here is taken as ever"
        assert after.lent_hits == before.lent_hits
        states = kept.keeper._memory.states
        assert (states == GIVEN).any(), "what was given back is not asked for again"


@pytest.mark.slow
def test_a_machine_that_comes_gets_what_is_kept_nowhere_and_one_that_leaves_moves_its_own_alone(
    lending: Any,
) -> None:
    """Between two epochs; what lies on the others stays where it is."""
    wanted = plain(Costly(), 9)
    with Kept(Costly(), HERE) as kept:
        memory = kept.keeper._memory
        first, second, third = lending(kept, 10_000, ROOM, ROOM)
        kept.keeper.lenders.heard([first.lender])
        found = kept.epochs(0, 3)
        one = kept.keeper.counts()
        assert (one.lenders, memory.phase) == (1, SERVING)
        assert 0 < one.lent_kept < SAMPLES - one.kept
        there = np.flatnonzero(memory.away())
        places = memory.offsets[there].tolist()
        kept.keeper.lenders.heard([machine.lender for machine in (third, first, second)])
        found += kept.epochs(3, 5)
        three = kept.keeper.counts()
        assert three.kept + three.lent_kept == SAMPLES
        assert three.lenders == 3
        assert memory.offsets[there].tolist() == places
        assert set(memory.owners[there].tolist()) == {0}
        before = memory.owners.copy()
        kept.keeper.lenders.heard([machine.lender for machine in (third, first)])
        assert 0 < kept.keeper.counts().lent_kept < three.lent_kept
        found += kept.epochs(5, 7)
        two = kept.keeper.counts()
        assert (two.lenders, two.kept + two.lent_kept) == (2, SAMPLES)
        stayed = memory.away() & np.isin(before, list(kept.keeper.lenders._rows))
        assert stayed.any()
        assert (memory.owners[stayed] == before[stayed]).all()
        found += kept.epochs(7, 9)
        assert kept.keeper.counts().misses == two.misses
        assert equal(found, wanted)


@pytest.mark.slow
def test_a_machine_that_is_gone_before_anything_lies_there_lends_nothing(lending: Any) -> None:
    """Nobody listens, or one that knows another token: as without it. One that goes while samples are written, too."""
    wanted = plain(Costly(), 4)
    with Kept(Costly(), HERE) as kept:
        [one] = lending(kept, ROOM)
        other = LendingMachine("other", bytes(32), ROOM)
        try:
            kept.keeper.lenders.heard([one.lender, other.lender])
            one.kill()
            found = kept.epochs(0, 4)
            counts = kept.keeper.counts()
        finally:
            other.kill()
    assert equal(found, wanted)
    assert (counts.lenders, counts.lent_kept, counts.lent_hits) == (0, 0, 0)
    with Kept(Costly(), HERE) as kept:
        [one] = lending(kept, ROOM)
        found = kept.epochs(0, 1)
        given = kept.stand.give(1)
        epoch = [next(given)]
        one.kill()
        found.append(epoch + list(given))
        found += kept.epochs(2, 4)
        assert equal(found, wanted)
        assert kept.keeper.counts().state == "serving"


@pytest.mark.slow
def test_a_machine_that_did_not_answer_when_it_was_first_asked_lends_once_it_does(
    lending: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was busy for a second: that it lends memory is not heard of twice, so it is asked again."""
    wanted = plain(Costly(), 5)
    with Kept(Costly(), HERE) as kept:
        _, busy = lending(kept, 10_000, ROOM)
        busy.stand_still()
        with monkeypatch.context() as patch:
            patch.setattr(lenders, "PROBE_S", 1.0)
            found = kept.epochs(0, 3)
        before = kept.keeper.counts()
        assert (before.state, before.lenders) == ("serving", 1)
        assert before.kept + before.lent_kept < SAMPLES
        busy.go_on()
        kept.keeper.lenders._again_at_s = 0.0  # that time has passed
        found += kept.epochs(3, 5)
        after = kept.keeper.counts()
        assert (after.lenders, after.kept + after.lent_kept) == (2, SAMPLES)
        assert equal(found, wanted)


def test_a_machine_that_was_slow_when_its_pace_was_measured_is_measured_again(
    lending: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All samples seemed as cheap to prepare as to fetch, in one busy moment."""
    with Kept(Costly(), HERE) as kept:
        lending(kept, ROOM)
        with monkeypatch.context() as patch:
            patch.setattr(owners, "FETCH_TIMES", float("inf"))
            kept.epochs(0, 3)
        before = kept.keeper.counts()
        assert (before.state, before.lenders) == ("serving", 0)
        kept.keeper.lenders._again_at_s = 0.0  # that time has passed
        kept.epochs(3, 5)
        after = kept.keeper.counts()
        assert (after.lenders, after.kept + after.lent_kept) == (1, SAMPLES)


def test_machines_are_looked_at_again_ever_more_seldom_and_not_at_all_where_all_is_well(
    lending: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at one that a firewall hides costs a second; other machines than before begin anew."""
    with Kept(Costly(), HERE) as kept:
        them, memory = kept.keeper.lenders, kept.keeper._memory
        [one] = lending(kept, ROOM)
        kept.epochs(0, 3)
        assert not them.due
        assert them._again_at_s == math.inf
        one.stand_still()
        monkeypatch.setattr(lenders, "PROBE_S", 0.1)

        def waits(looks: int) -> list[float]:
            found = []
            for _ in range(looks):
                before_s = time.monotonic()
                them.place(memory)
                found.append((them._again_at_s - before_s) // lenders.AGAIN_S)
            return found

        them.heard([one.lender, one.lender._replace(machine="another")])
        assert them.due
        assert waits(4) == [1, 2, 4, 8]
        them.heard([one.lender._replace(machine="another")])
        assert waits(1) == [1]
        them.heard([])
        assert them.due
        them.place(memory)
        assert not them.due


def test_a_cache_that_is_off_leaves_nothing_on_other_machines(lending: Any) -> None:
    """A cache that is switched off in its second epoch has the other machines forget what they have."""
    with Kept(Costly(), HERE) as kept:
        [one] = lending(kept, ROOM)
        kept.epochs(0, 2)
        assert one.give_back(0) > 0
        kept.keeper._memory.phase = OFF
        kept.epochs(2, 3)
        assert one.give_back(0) == 0
        assert kept.keeper.counts().lent_kept == 0


def test_a_successor_asks_no_machine_of_its_predecessor(lending: Any) -> None:
    """A producer that is started again has another token, and other machines' relays."""
    with Kept(Costly(), HERE) as kept:
        lending(kept, ROOM)
        kept.epochs(0, 2)
        memory = kept.keeper._memory
        assert memory.away().any()
        kept.keeper.lenders.fit(memory)
        assert not memory.away().any()
        assert memory.phase == SERVING
        assert set(np.unique(memory.states)) == {SEEN, WRITTEN}
        kept.epochs(2, 3)
        assert kept.keeper.counts().hits == kept.keeper.counts().kept


def test_what_other_machines_keep_is_told_beside_what_is_kept_here() -> None:
    """And nothing of them where there is no cluster."""
    here = CacheReading("serving", "", 50, 20, 3 << 20, 4 << 20, 0, 300, 100, 1.5)
    assert cached(here).endswith("20 of 50 samples in 3.0 MiB of 4.0 MiB, 75 % of samples served from it")
    both = CacheReading("serving", "", 50, 20, 3 << 20, 4 << 20, 0, 300, 100, 1.5, 2, 25, 5 << 20, 100)
    assert cached(both) == (
        "cache: serving, 20 of 50 samples in 3.0 MiB of 4.0 MiB, 25 in 5.0 MiB of 2 other machines, 75 % of samples "
        "served from it (25 % fetched)"
    )
