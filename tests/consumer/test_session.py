"""A consumer's session: what a message means to it; and a pause, from the command to the loop.

That it is right in any order of events is proven with the producer's decisions, in `tests/producer`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from msgspec import structs
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb.errors import ConsumerTimedOut, LoaderFailed, ProducerGone, TsnbError
from tsnb.stream.consumer.options import Options
from tsnb.stream.consumer.place import Loop, Place
from tsnb.stream.consumer.talking.session import ConsumerSession, Turn
from tsnb.stream.protocol import messages as ms
from tsnb.telemetry.observer import Observer, pause, status

WELCOME = ms.Welcome("s", 1, 8, 4, 4, 10, 40, order="seed=1")
RELEASED = (ms.Release(7),)


def session(**options: Any) -> ConsumerSession:
    made = ConsumerSession("c", "c", Options(**options), lambda: (3,))
    made.connected(WELCOME)
    return made


def begun(made: ConsumerSession, seq: int = 0) -> Loop:
    """Let a loop begin, and its epoch."""
    loop = made.begin(Place(2, seq, 0, begun=bool(seq)))
    ask = made.enter(loop)
    assert made.hear(ms.EpochStarted(ask.number, 2, seq)).news is not None
    return loop


def batch(seq: int, epoch: int = 2) -> ms.Batch:
    return ms.Batch(0, 0, epoch, seq, 4, 7, 0, 0)


def test_an_epoch_from_its_ask_to_its_end() -> None:
    """The place is that of the batch to come; after the end it is the next epoch's."""
    made = session()
    loop = made.begin()
    assert made.enter(loop) == ms.Ask(1, 0, 0, exact=False, held=(3,))
    made.hear(ms.EpochStarted(1, 4, 0))
    assert (made.epoch, loop.place) == (4, Place(4, 0, 0, begun=True))
    assert made.hear(batch(0, 4)) == Turn((ms.Take(),), batch(0, 4))
    assert made.place == Place(4, 1, 0, begun=True)
    assert loop.place.batch == 0, "received is not given"
    assert made.hear(ms.EpochEnded(4, 1)).ended
    for _ in range(2):  # interrupted, and done again
        assert made.leave() == ms.Leave()
        assert made.place == Place(5)
    made.over()
    assert made.begin().place == Place(5)


def test_what_is_out_of_date_changes_nothing() -> None:
    """Answers to an earlier ask, and whatever belongs to an epoch that was left."""
    made = session()
    begun(made)
    made.hear(batch(0))
    where = made.place
    for late in (
        ms.EpochStarted(0, 9, 0),
        ms.NotJoined(0, 9, 1, 1),
        ms.EpochEnded(1, 10),
        ms.EpochEnded(1, 0, True),
    ):
        assert made.hear(late) == Turn()
    assert made.hear(batch(1, epoch=1)).say == RELEASED
    assert made.hear(batch(0)).say == RELEASED, "it has that one"
    assert made.place == where


def test_what_was_received_and_lost_is_asked_for_again() -> None:
    """A batch too few, at the next one and at the end; what was given ahead of the loop, from the loop's place."""
    made = session()
    loop = begun(made)
    assert made.hear(batch(1)).say == (*RELEASED, ms.Ask(2, 2, 0, True, False, (3,)))
    made.hear(ms.EpochStarted(2, 2, 0))
    for seq in range(3):
        made.hear(batch(seq))
    loop.place = Place(2, 1, 0, begun=True)
    assert made.go_back(loop) == ms.Ask(3, 2, 1, True, False, (3,))
    made.hear(ms.EpochStarted(3, 2, 1))
    assert made.hear(ms.EpochEnded(2, 2)).say == (ms.Ask(4, 2, 1, True, False, (3,)),)


def test_one_that_skips_counts_what_it_misses() -> None:
    """In the middle and at the end."""
    made = session(on_lag="skip")
    begun(made)
    assert made.hear(batch(2)).batch is not None
    assert made.hear(ms.EpochEnded(2, 10)).ended
    assert made.skipped == 2 + 7


def test_another_producer_is_told_the_place_if_it_can_give_it() -> None:
    """One whose epochs come in another order cannot; between two epochs any can."""
    made = session()
    begun(made)
    made.hear(batch(0))
    assert made.connected(WELCOME) == (ms.Ask(2, 2, 1, True, False, (3,)),)
    with pytest.raises(ProducerGone, match="cannot repeat the rest of pass 3"):
        made.connected(structs.replace(WELCOME, order="seed=2"))
    made.leave()
    assert made.connected(structs.replace(WELCOME, order=""))[0].number == 3  # type: ignore[union-attr]


def test_a_pause_makes_what_is_under_way_out_of_date_and_keeps_the_place() -> None:
    """Batches, the end and a failure of the epoch: all comes again, when it goes on."""
    made = session()
    begun(made)
    made.hear(batch(0))
    assert made.hear_early(ms.Steered("pause")) == Turn()
    for late in (batch(1), batch(2)):
        assert made.hear(late).say == RELEASED
    assert made.hear(ms.EpochEnded(2, 3)) == made.hear(ms.EpochEnded(2, 0, True, "boom", "")) == Turn()
    assert made.hear(ms.Steered("pause")) == Turn()
    assert made.connected(WELCOME) == (), "nothing is wanted of a new producer"
    (ask,) = made.hear(ms.Steered("go on")).say
    assert isinstance(ask, ms.Ask)
    assert (ask.epoch, ask.seq, ask.exact) == (2, 1, True)
    assert made.hear(ms.Steered("go on")) == Turn()
    with pytest.raises(ConsumerTimedOut, match="was paused at batch 1 of pass 3"):
        made.hear(ms.NotJoined(ask.number, 3, 5, 1))


def test_a_paused_trial_is_told_why_the_stream_cannot_repeat_what_it_missed() -> None:
    """It may have been served with a seed, and draw in an order that no seed decides."""
    why = "its Own cannot be seeded. Give that class an attribute `generator`"
    for stream, said in (
        (structs.replace(WELCOME, order="", unordered=why), why),
        (structs.replace(WELCOME, order=""), "its loader has no reproducible order"),
    ):
        made = session()
        made.connected(stream)
        begun(made)
        made.hear(batch(0))
        made.hear_early(ms.Steered("pause"))
        (ask,) = made.hear(ms.Steered("go on")).say
        assert isinstance(ask, ms.Ask)
        with pytest.raises(ConsumerTimedOut, match=r"was paused at batch") as raised:
            made.hear(ms.NotJoined(ask.number, 3, 5, 1))
        assert f"cannot repeat the batches in between: {said}." in str(raised.value)
        assert "With seed=" not in str(raised.value)


def test_the_loaders_error_comes_through() -> None:
    """Of the epoch that is taken."""
    made = session()
    begun(made)
    with pytest.raises(LoaderFailed, match="boom"):
        made.hear(ms.EpochEnded(2, 0, True, "boom", "Traceback"))


# -- a pause, from the command to the loop -------------------------------------------------------------------

ROWS = 240


class Taking(threading.Thread):
    """A training loop, a few milliseconds a step."""

    def __init__(self, name: str, epochs: int, stream: str = "s", **options: Any) -> None:
        super().__init__(name=name, daemon=True)
        self.stream, self.options, self.epochs = stream, options, epochs
        self.taken: list[list[int]] = []
        self.numbers: list[int] = []
        self.steps = 0
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            with tsnb.attach(self.name, self.stream, **self.options) as consumer:
                for _ in range(self.epochs):
                    self.taken.append([])
                    for (rows,) in consumer:
                        self.taken[-1] += rows.tolist()
                        self.steps += 1
                        time.sleep(0.002)
                    self.numbers.append(consumer.epoch)
        except TsnbError as error:
            self.error = error

    def ended(self) -> list[list[int]]:
        """Wait for its end; return its epochs."""
        self.join(60)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.taken


def loader() -> Any:
    return DataLoader(TensorDataset(torch.arange(ROWS)), batch_size=4, shuffle=True)


def until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.system
def test_paused_it_takes_nothing_the_others_go_on_and_later_it_gets_each_sample_once() -> None:
    """With batches of another size than the loader's, in the middle of one; past its place, on a seeded stream."""
    with tsnb.serve(loader(), name="s", seed=1, window=4) as producer:
        one, other = Taking("one", 3, batch_size=6), Taking("other", 5)
        until(lambda: one.steps > 10 and other.steps > 10)
        pause("s", "one")
        until(lambda: {c.name: c.state for c in producer.status().consumers}["one"] == "paused")
        steps = one.steps + 1  # the one that it was in
        until(lambda: len(other.taken) == 3)
        assert one.steps <= steps
        pause("s", "one", on=False)
        assert [sorted(rows) for rows in one.ended()] == [list(range(ROWS))] * 3
        assert [sorted(rows) for rows in other.ended()] == [list(range(ROWS))] * 5
    with tsnb.serve(loader(), name="again", seed=1):
        orders = Taking("reference", max(one.numbers + other.numbers) + 1, "again").ended()
    for each in (one, other):
        assert each.taken == [orders[number] for number in each.numbers], "each epoch in its own order"


@pytest.mark.system
def test_it_pauses_at_the_very_next_batch_though_it_has_looked_just_before() -> None:
    """Whoever is told that a trial is paused may rely on it."""
    with tsnb.serve(loader(), name="s", seed=1), tsnb.attach("one", "s") as consumer:
        steps = iter(consumer)
        next(steps)
        for _ in range(5):
            resumed = threading.Event()

            def resume(resumed: threading.Event = resumed) -> None:
                resumed.set()
                pause("s", "one", on=False)

            pause("s", "one")
            threading.Timer(0.1, resume).start()
            next(steps)
            assert resumed.is_set()
            time.sleep(0.002)


@pytest.mark.system
def test_paused_past_its_place_on_a_stream_without_a_seed_it_is_told_so() -> None:
    """With the way out."""
    with tsnb.serve(loader(), name="s", window=4, late_join=0.0):
        one, other = Taking("one", 1), Taking("other", 60)
        until(lambda: one.steps > 10)
        pause("s", "one")
        until(lambda: {c.name: c.state for c in status("s").consumers}["one"] == "paused")
        begun = len(other.taken)  # it may be an epoch ahead already
        until(lambda: len(other.taken) > begun + 1)
        pause("s", "one", on=False)
        with pytest.raises(
            ConsumerTimedOut, match=r"was paused at batch .* served without seed=. Serve it with seed=\."
        ):
            one.ended()


@pytest.mark.system
def test_the_ranks_of_a_job_are_paused_and_go_on_together() -> None:
    """Whichever of them is named; another consumer of the stream is left alone."""

    def paused() -> list[str]:
        return sorted(c.name for c in status("s").consumers if c.state == "paused")

    with (
        tsnb.serve(loader(), name="s"),
        tsnb.attach("bert", "s", rank=0, world_size=2),
        tsnb.attach("bert", "s", rank=1, world_size=2),
        tsnb.attach("other", "s"),
    ):
        pause("s", "bert[1]")
        assert paused() == ["bert[0]", "bert[1]"]
        pause("s", "bert[0]", on=False)
        assert paused() == []


@pytest.mark.system
def test_a_loader_in_place_of_a_name_says_what_to_write() -> None:
    """The most natural guess of somebody who has not read that the loader is served first."""
    with pytest.raises(
        TypeError, match=r"takes the name of a trial, got DataLoader\. .*then .* tsnb\.attach\(\)"
    ):
        tsnb.attach(loader())


def test_a_name_that_the_stream_does_not_know_is_refused_though_a_reading_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reading that was sent before the request says nothing about it."""
    request = Observer.request_pause

    def later(self: Observer, consumers: Mapping[str, bool]) -> None:
        assert self._channel.wait(10), "no reading waits"
        request(self, consumers)

    monkeypatch.setattr(Observer, "request_pause", later)
    with tsnb.serve(loader(), name="s"), pytest.raises(TsnbError, match="No trial named 'nobody'"):
        pause("s", "nobody")


def test_what_is_paused_stays_so_when_the_producer_is_started_again() -> None:
    """It takes nothing of the new one either; then it goes on where it was."""
    producer = tsnb.serve(loader(), name="s", seed=1, reconnect_s=30.0)
    one = Taking("one", 1)
    until(lambda: one.steps > 10)
    pause("s", "one")
    producer.stop(reconnect_s=30.0)
    with tsnb.serve(loader(), name="s", seed=1) as producer:
        until(lambda: [c.state for c in producer.status().consumers] == ["paused"])
        with pytest.raises(TsnbError, match="No trial named 'nobody' is attached to 's'"):
            pause("s", "nobody")
        pause("s", "one", on=False)
        assert sorted(one.ended()[0]) == list(range(ROWS))
