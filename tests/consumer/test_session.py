"""A consumer's session: what a message means to it.

That it is right in any order of events is proven with the producer's decisions, in `tests/producer`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tsnb.consumer.options import Options
from tsnb.consumer.session import ConsumerSession, Loop, Place, Turn
from tsnb.errors import LoaderFailed, ProducerGone
from tsnb.wire import messages as ms

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
        ms.Failed(1, "", ""),
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
    with pytest.raises(ProducerGone, match="cannot give the rest of epoch 2"):
        made.connected(WELCOME._replace(order="seed=2"))
    made.leave()
    assert made.connected(WELCOME._replace(order=""))[0].number == 3  # type: ignore[union-attr]


def test_the_loaders_error_comes_through() -> None:
    """Of the epoch that is taken."""
    made = session()
    begun(made)
    with pytest.raises(LoaderFailed, match="boom"):
        made.hear(ms.Failed(2, "boom", "Traceback"))
