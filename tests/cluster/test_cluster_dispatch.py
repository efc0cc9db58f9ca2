"""The hub's decisions, simulated: no Ray, no process, many seeded runs."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tsnb.cluster.hub_dispatch import (
    IDLE_S,
    LEASE_S,
    ClusterDispatch,
    Covers,
    Offered,
    SampleParts,
    Told,
)
from tsnb.stream.protocol import messages as ms

BATCHES = 12


class SimRelay:
    """A relay that takes batches at random moments, asks for one epoch after the other, and may fall silent.

    Args:
        dispatch: The hub's.
        name: Its own.
        now: Seconds.
        deaf: How often its word that it has copied a batch gets lost.
    """

    def __init__(self, dispatch: ClusterDispatch, name: str, now: float, deaf: float = 0.0) -> None:
        self.dispatch, self.deaf = dispatch, deaf
        self.lost = random.Random(name)
        self.key = dispatch.join(name, now)
        self.asks = 0
        self.inbox: list[Told] = []
        self.epoch: int | None = None
        self.seq = 0
        self.asking = False
        self.epochs: dict[int, list[Any]] = {}
        self.complete: list[int] = []
        self.holds: list[Any] = []
        self.expects: int | None = None
        self.said = SampleParts(0, None, None)
        self.covers: int | None = None

    def act(self, now: float) -> None:
        """Do the next thing."""
        self.dispatch.alive(self.key, now)
        if not self.asking:
            self.asking, self.epoch = True, None
            self.take(self.expects)
            self.want((self.complete or [-1])[-1] + 1, 0, False)
        if not self.inbox:
            self.dispatch.announce(self.key, self.said, now)
            self.dispatch.ask(self.key, self.asks, *self.wanted, now)
            self.inbox += [
                told for told in self.dispatch.more(self.key, self.asks, now) if told.ask == self.asks
            ]
        if not self.inbox:
            return
        told = self.inbox.pop(0).message
        if isinstance(told, ms.EpochStarted):
            self.epoch, self.seq = told.epoch, told.seq
        elif isinstance(told, Covers):
            self.take(told.cover)
        elif isinstance(told, Offered):
            lease, epoch, seq, ref = told
            assert (epoch, seq) == (self.epoch, self.seq), "out of order, twice, or with a hole"
            self.epochs.setdefault(epoch, []).append(ref)
            self.seq += 1
            if self.lost.random() >= self.deaf:
                self.dispatch.took(self.key, self.asks, lease, now)
        elif isinstance(told, ms.EpochEnded):
            assert (told.epoch, told.batches) == (self.epoch, self.seq)
            self.complete.append(told.epoch)
            self.asking = False
        elif isinstance(told, ms.Parked):
            self.want(told.epoch, self.seq, True)
        else:
            self.asking = False

    def take(self, cover: int | None) -> None:
        """Have it said what this epoch is to hold for the consumers of this machine."""
        self.said = SampleParts(self.said.number + 1, cover, self.expects)

    def attach(self, expects: int | None, now: float) -> None:
        """Consumers come and go there: with the next epoch others are taken."""
        self.expects = expects
        self.said = SampleParts(self.said.number + 1, self.said.cover, expects)
        self.dispatch.announce(self.key, self.said, now)

    def want(self, epoch: int, seq: int, exact: bool) -> None:
        """Ask anew, at the next poll."""
        self.asks += 1
        self.inbox.clear()
        self.wanted = (epoch, seq, exact)


class SimFeed:
    """Gives what is wanted: the batch number of the epoch is its reference."""

    def __init__(self, dispatch: ClusterDispatch, size: Any, later: int = 0) -> None:
        self.dispatch, self.size, self.later = dispatch, size, later
        self.run, self.epoch, self.seq = -1, 0, 0

    def act(self, now: float) -> None:
        wanted = self.dispatch.wanted
        if wanted is None:
            return
        if wanted.run != self.run:
            self.run, self.epoch, self.seq = wanted.run, wanted.epoch, wanted.first
            if self.later and not wanted.first:
                self.epoch += self.later
                self.dispatch.renumbered(self.run, self.epoch, now)
                return
        if self.seq == BATCHES:
            self.dispatch.ended(self.run, now)
            return
        self.dispatch.loaded(self.run, (self.epoch, self.seq), self.size(), 4, now)
        self.seq += 1


def test_a_word_that_is_lost_late_or_said_twice_changes_nothing() -> None:
    """Of a lonely machine that waits for nobody's stall timeout: half of what it says it has copied, and an old ask."""
    dispatch = new_dispatch()
    feed, one = SimFeed(dispatch, lambda: 10), SimRelay(dispatch, "one", 0.0, deaf=0.5)
    for step in range(400):
        now = step * 0.001
        one.act(now)
        feed.act(now)
        if step % 5 == 0:
            dispatch.ask(one.key, one.asks - 1, 0, 0, True, now)  # overtaken by the one after it
            dispatch.took(one.key, one.asks - 1, 1, now)
            assert dispatch.more(one.key, one.asks - 1, now) == []
            dispatch.leave(one.key, one.asks - 1, True, now)
        dispatch.decisions.check()
    assert len(one.complete) > 5


def test_a_machine_with_a_smaller_store_that_comes_later_makes_the_window_smaller() -> None:
    """And none with a larger one makes it larger again."""
    dispatch = new_dispatch(budget_bytes=1000)
    feed, one = SimFeed(dispatch, lambda: 100), SimRelay(dispatch, "one", 0.0)
    for step in range(60):
        (feed if step % 2 else one).act(0.0)
    assert dispatch.decisions.window == 4
    dispatch.shrink(250)
    dispatch.shrink(900)
    for step in range(60):
        (feed if step % 2 else one).act(0.1)
        dispatch.decisions.check()
        assert step < 20 or dispatch.kept_bytes <= 300
    assert dispatch.decisions.window == 2
    assert len(one.complete) > 2


def new_dispatch(
    budget_bytes: int = 1000, window: int = 4, band: int = 6, now: float = 0.0
) -> ClusterDispatch:
    return ClusterDispatch(window, band, 5.0, budget_bytes, now, repeatable=True)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("later", [0, 2])
def test_every_machine_gets_every_batch_of_each_epoch_it_takes_once_in_order(seed: int, later: int) -> None:
    """At whatever speeds, with machines that die and come, and a loader that is ahead with its epochs."""
    rng = random.Random(seed)
    dispatch = new_dispatch()
    feed = SimFeed(dispatch, lambda: 10, later)
    relays = [SimRelay(dispatch, f"m{n}", 0.0) for n in range(3)]
    now, complete = 0.0, 0
    for step in range(2000):
        now += rng.random() * 0.02
        parts: list[Any] = [feed, *relays]
        rng.choice(parts).act(now)
        if step % 100 == 0:
            dispatch.tick(now)
        if rng.random() < 0.001:
            gone = relays.pop(rng.randrange(len(relays)))
            dispatch.left(gone.key, now)
            relays.append(SimRelay(dispatch, f"m{step}", now))
        if step % 7 == 0:
            dispatch.decisions.check()
        for relay in relays:
            for epoch, taken in relay.epochs.items():
                assert taken == [(epoch, n) for n in range(len(taken))]
        complete = max(complete, *(len(r.complete) for r in relays))
    assert complete > 3


@pytest.mark.parametrize("seed", range(10))
def test_what_is_kept_stays_within_the_budget_whatever_the_sizes(seed: int) -> None:
    """The window shrinks with the largest batch: one batch more than the budget holds, and never none."""
    rng = random.Random(seed)
    dispatch = new_dispatch(budget_bytes=300, window=8, band=10)
    feed = SimFeed(dispatch, lambda: rng.choice([20, 60, 100]))
    fast, slow = SimRelay(dispatch, "fast", 0.0), SimRelay(dispatch, "slow", 0.0)
    for step in range(3000):
        parts: list[Any] = [feed, fast, slow]
        rng.choices(parts, [5, 5, 1])[0].act(step * 0.001)
        allowed = 300 + dispatch.largest  # and what came when batches were smaller: ten of the least
        assert dispatch.kept_bytes <= max(allowed, 11 * 60)
        if step % 7 == 0:
            dispatch.decisions.check()
    assert dispatch.decisions.window == 3
    assert len(slow.complete) > 3
    tiny = new_dispatch(budget_bytes=1)
    SimFeed(tiny, lambda: 50).act(0.0)
    relay, feed = SimRelay(tiny, "one", 0.0), SimFeed(tiny, lambda: 50)
    for step in range(200):
        (feed if step % 2 else relay).act(step * 0.001)
    assert relay.complete, "a batch larger than the budget still goes through"


def test_a_machine_that_says_nothing_is_given_up_and_the_others_go_on() -> None:
    """Its lease ends; what was kept for it is let go of."""
    dispatch = new_dispatch()
    feed, one, two = (
        SimFeed(dispatch, lambda: 10),
        SimRelay(dispatch, "one", 0.0),
        SimRelay(dispatch, "two", 0.0),
    )
    now = 0.0
    for _ in range(40):
        now += 0.01
        one.act(now)
        two.act(now)
        feed.act(now)
    before = len(one.complete)
    for tick in range(int(LEASE_S) + 2):
        for _ in range(20):
            one.act(now)
            feed.act(now)
        now += 1.0
        given_up = dispatch.tick(now)
        assert not given_up or tick >= LEASE_S - 1
    assert list(dispatch.relays) == [one.key]
    for _ in range(100):
        one.act(now)
        feed.act(now)
    assert len(one.complete) > before + 1
    dispatch.left(one.key, now)
    assert dispatch.kept_bytes <= 10 * dispatch.decisions.epochs.band


def test_a_hub_that_stood_still_itself_gives_nobody_up() -> None:
    """Where nobody listened, silence says nothing (a suspended laptop, a debugger)."""
    dispatch = new_dispatch()
    dispatch.join("one", 0.0)
    dispatch.tick(0.0)
    assert dispatch.tick(100.0) == []
    assert dispatch.tick(101.0) == []


def test_who_comes_back_to_the_middle_of_an_epoch_gets_just_that_place() -> None:
    """However near to its start: of a run from there, the feed would only know that any later epoch will do."""
    dispatch = new_dispatch()
    feed, one = SimFeed(dispatch, lambda: 10), SimRelay(dispatch, "one", 0.0)
    while not one.complete:
        one.act(0.0)
        feed.act(0.0)
    dispatch.left(one.key, 0.1)
    two = dispatch.join("two", 0.2)
    dispatch.ask(two, 1, 0, 2, True, 0.2)
    assert dispatch.wanted is not None
    assert (dispatch.wanted.epoch, dispatch.wanted.first) == (0, 2)


def test_machines_that_come_back_one_by_one_to_a_producer_that_was_started_again_all_go_on() -> None:
    """The first has gone on beyond the window when the next comes back to a place before it: all meet there.

    Once the producer has been there for as long as its stall timeout, the next is told that it comes too late.
    """
    start = 1000.0  # the clock of a machine that has run for a while
    dispatch = new_dispatch(now=start)
    feed, one = SimFeed(dispatch, lambda: 10), SimRelay(dispatch, "one", start)
    one.asking = True
    one.want(2, 5, True)

    def go_on(until: Any, now: float) -> None:
        for _ in range(400):
            if until():
                return
            for relay in (one, *others):
                relay.act(now)
            feed.act(now)
            dispatch.decisions.check()
        pytest.fail("they do not go on")

    others: list[SimRelay] = []
    go_on(lambda: one.seq == 11, start + 1)
    two = SimRelay(dispatch, "two", start + 4)
    two.asking = True
    two.want(2, 3, True)
    others.append(two)
    go_on(lambda: one.complete and two.complete, start + 4)
    assert one.epochs[2] == [(2, seq) for seq in range(5, BATCHES)]
    assert two.epochs[2] == [(2, seq) for seq in range(3, BATCHES)]
    go_on(lambda: one.epoch == 3 and one.seq == 11, start + 6)
    three = dispatch.join("three", start + 6)
    dispatch.ask(three, 1, 3, 2, True, start + 6)
    assert [type(told.message) for told in dispatch.more(three, 1, start + 6)] == [ms.NotJoined]


def test_a_run_is_over_when_nobody_takes_it_and_nobody_can_join_it() -> None:
    """Then the feed leaves it, though a machine is expected back for the next one; while it can be joined, it stays."""
    dispatch = new_dispatch()
    feed, one = SimFeed(dispatch, lambda: 10), SimRelay(dispatch, "one", 0.0)
    for taken in (3, 8):
        while one.seq < taken or one.epoch is None:
            one.act(0.0)
            feed.act(0.0)
        dispatch.leave(one.key, one.asks, False, 0.1)
        assert not dispatch.idle
        assert (dispatch.loading is not None) == (taken == 3)
        one.want(0, 0, False)


def test_an_epoch_that_nobody_takes_is_let_go_of_and_begins_again_for_the_next_who_asks() -> None:
    """The producer's own consumers do not wait for machines without consumers; no epoch's number is lost."""
    dispatch = new_dispatch()
    feed, one = SimFeed(dispatch, lambda: 10), SimRelay(dispatch, "one", 0.0)
    for _ in range(6):
        one.act(0.0)
        feed.act(0.0)
    assert dispatch.kept_bytes
    dispatch.leave(one.key, one.asks, True, 0.1)
    assert dispatch.idle
    dispatch.tick(1.0)
    dispatch.tick(1.0 + IDLE_S)
    assert dispatch.wanted is None
    assert not dispatch.kept_bytes
    two = SimRelay(dispatch, "two", 3.0)
    for _ in range(60):
        two.act(3.0)
        feed.act(3.0)
    assert two.complete[0] == 1, "the first one was begun, and cannot be had from its start any more"


class PartFeed(SimFeed):
    """Tells in each batch which samples it holds: what is wanted, or all where the producer's own machine takes all.

    Args:
        dispatch: The hub's.
        rng: Chooses in which epochs that is.
    """

    def __init__(self, dispatch: ClusterDispatch, rng: random.Random) -> None:
        super().__init__(dispatch, lambda: 10)
        self.rng = rng
        self.parts = SampleParts(0, None, None)
        self.prepared: list[tuple[int | None, int | None]] = []

    def act(self, now: float) -> None:
        self.parts = self.dispatch.parts(self.parts.number) or self.parts
        wanted, begun = self.dispatch.wanted, self.run
        if wanted is None:
            return
        if wanted.run != begun:
            self.run, self.epoch, self.seq = wanted.run, wanted.epoch, wanted.first
            self.holds = None if self.rng.random() < 0.3 else self.parts.cover
            self.prepared.append((self.parts.cover, self.holds))
            if self.holds != self.parts.cover:
                self.dispatch.covered(self.run, self.holds, now)
        if self.seq == BATCHES:
            self.dispatch.ended(self.run, now)
            return
        self.dispatch.loaded(self.run, (self.epoch, self.seq, self.holds), 10, 4, now)
        self.seq += 1


def covers(held: int | None, part: int | None) -> bool:
    return held is None or (part is not None and not part & ~held)


@pytest.mark.parametrize("seed", range(12))
def test_every_machine_gets_the_samples_of_all_its_consumers_whatever_happens(seed: int) -> None:
    """Parts that change while epochs are taken, machines that die and come, epochs that hold more than is wanted."""
    rng = random.Random(seed)
    dispatch = ClusterDispatch(4, 6, 5.0, 1000, 0.0, repeatable=True, indexed=True)
    feed = PartFeed(dispatch, rng)
    relays = [SimRelay(dispatch, f"m{n}", 0.0) for n in range(3)]
    for relay in relays:
        relay.attach(1 << rng.randrange(8), 0.0)
    now, complete = 0.0, 0
    for step in range(3000):
        now += rng.random() * 0.02
        acting: list[Any] = [feed, *relays]
        rng.choice(acting).act(now)
        if step % 100 == 0:
            dispatch.tick(now)
        if rng.random() < 0.01:
            rng.choice(relays).attach(rng.choice([1 << rng.randrange(8)] * 5 + [None]), now)
        if rng.random() < 0.002:
            gone = relays.pop(rng.randrange(len(relays)))
            dispatch.left(gone.key, now)
            relays.append(SimRelay(dispatch, f"m{step}", now))
            relays[-1].attach(1 << rng.randrange(8), now)
        if step % 7 == 0:
            dispatch.decisions.check()
        for relay in relays:
            for epoch, taken in relay.epochs.items():
                assert [batch[:2] for batch in taken] == [(epoch, n) for n in range(len(taken))]
            if relay.epoch in relay.epochs:
                held = relay.epochs[relay.epoch][-1][2]
                assert not relay.asking or relay.seq == 0 or covers(held, relay.said.cover)
        complete = max(complete, *(len(r.complete) for r in relays))
    assert complete > 3
    assert len({cover for cover, _ in feed.prepared}) > 3


def test_an_epoch_is_prepared_for_what_the_machines_take_and_for_nothing_else() -> None:
    """The union, exactly; a machine without consumers takes nothing; one that takes all has all prepared."""
    dispatch = ClusterDispatch(4, 6, 5.0, 1000, 0.0, repeatable=True, indexed=True)
    feed = PartFeed(dispatch, random.Random(0))
    feed.rng.random = lambda: 1.0  # type: ignore[method-assign]
    one, two, idle = (SimRelay(dispatch, name, 0.0) for name in ("one", "two", "idle"))
    one.attach(0b0011, 0.0)
    two.attach(0b0110, 0.0)
    idle.attach(0, 0.0)
    assert dispatch.parts(0) is not None
    assert feed.parts.number == 0

    def epochs(more: int) -> None:
        before = len(one.complete)
        while len(one.complete) < before + more:
            for each in (one, two, feed):
                each.act(0.0)

    epochs(2)
    while dispatch.loading is None or feed.seq < 3:
        for acting in (one, two, feed):
            acting.act(0.0)
    assert set(feed.prepared) == {(0b0111, 0b0111)}
    number = feed.parts.number
    assert dispatch.parts(number) is None, "the feed is told what is new, and that once"
    idle.attach(0b1000, 0.0)
    told = dispatch.parts(number)
    assert told is not None
    assert (told.cover, told.expects) == (0b0111, 0b1111), (
        "with the next epoch, not with the one that goes on"
    )
    epochs(2)
    assert feed.prepared[-1] == (0b1111, 0b1111)
    idle.attach(None, 0.0)
    epochs(2)
    assert feed.prepared[-1][0] is None
    idle.attach(0, 0.0)
    two.attach(0b0100, 0.0)
    epochs(3)
    assert feed.prepared[-1] == (0b0111, 0b0111), "0b0110 was never asked for again"


def test_a_loader_whose_samples_have_no_index_is_asked_for_no_parts() -> None:
    """All is taken of it, as ever."""
    dispatch = new_dispatch()
    feed, one = PartFeed(dispatch, random.Random(1)), SimRelay(dispatch, "one", 0.0)
    for step in range(60):
        (feed if step % 2 else one).act(0.0)
    assert dispatch.parts(0) is None
    assert {cover for cover, _ in feed.prepared} == {None}
    assert one.complete
