"""One loop over one epoch: what is given, and what an interrupt, an error or another batch size does to its place."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.consumer.played import End, Played, played
from tsnb.errors import BatchNotShareable
from tsnb.stream.consumer.attachment import Attachment
from tsnb.stream.consumer.options import Options
from tsnb.stream.protocol import messages as ms
from tsnb.stream.this_process import this_process


@pytest.fixture
def producer() -> Iterator[Played]:
    with played(epoch_batches=None, epoch_samples=None) as made:
        yield made


def looping(producer: Played, *seqs: int, **options: Any) -> tuple[Attachment, Any, End]:
    """Attach, begin a loop over epoch 0, and send it batches."""
    consumer = Attachment(producer.entry, "c", Options(**options))
    end = producer.end()
    loop = iter(consumer)
    end.begin()
    end.give(*seqs)
    return consumer, loop, end


def finish(consumer: Attachment, end: End) -> None:
    consumer.close()
    end.heard()


def asks(end: End) -> list[tuple[int, int, bool]]:
    return [(m.epoch, m.seq, m.exact) for m in end.heard() if isinstance(m, ms.Ask)]


def rows(batch: dict[str, Any]) -> list[int]:
    found: list[int] = batch["row"].tolist()
    return found


def test_a_transform_is_applied_and_a_batch_that_it_fails_on_was_given(producer: Played) -> None:
    """A loop that goes on gets the next one; the state says the same."""

    def transform(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        if 4 in batch["row"]:
            raise ZeroDivisionError
        return batch["row"] * 10

    consumer, loop, end = looping(producer, 0, 1, 2, transform=transform)
    assert next(loop).tolist() == [0, 10, 20, 30]
    with pytest.raises(ZeroDivisionError):
        next(loop)
    assert consumer.state_dict()["batch"] == 2
    assert next(loop).tolist() == [80, 90, 100, 110]
    assert asks(end) == []
    finish(consumer, end)


def test_a_batch_that_an_interrupt_took_away_is_given_again(producer: Played) -> None:
    """It was received, and the loop never saw it: the place is asked for once more, exactly."""
    hits = [KeyboardInterrupt()]

    def transform(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if 4 in batch["row"] and hits:
            raise hits.pop()
        return batch

    consumer, loop, end = looping(producer, 0, 1, 2, transform=transform)
    next(loop)
    with pytest.raises(KeyboardInterrupt):
        next(loop)
    assert consumer.state_dict()["batch"] == 1 and asks(end) == []
    end.tell(ms.EpochStarted(2, 0, 1))
    end.give(1)
    assert rows(next(loop)) == [4, 5, 6, 7]
    said = end.heard()
    assert [(m.epoch, m.seq, m.exact) for m in said if isinstance(m, ms.Ask)] == [(0, 1, True)]
    assert ms.Release(3) in said, "what was on its way comes again, too"
    finish(consumer, end)


@pytest.mark.parametrize(
    ("size", "drop_last", "expected"),
    [
        (None, False, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]),
        (None, True, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (3, False, [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]),
        (3, True, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
        (8, False, [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9]]),
        (8, True, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        (100, True, []),
    ],
)
def test_an_epoch_in_batches_of_any_size(
    producer: Played, size: int | None, drop_last: bool, expected: list[list[int]]
) -> None:
    """The last one may be short; after the end the place is the next epoch's start."""
    consumer, loop, end = looping(producer, 0, 1, batch_size=size, drop_last=drop_last)
    end.give(2, rows=2)
    end.tell(ms.EpochEnded(0, 3))
    assert [rows(batch) for batch in loop] == expected
    assert next(loop, None) is None
    state = consumer.state_dict()
    assert (state["epoch"], state["batch"], state["offset"]) == (1, 0, 0)
    finish(consumer, end)


def test_the_place_counts_rows_that_were_given_and_not_those_received(producer: Played) -> None:
    """Batches of 3 out of batches of 4; a place inside a loader batch is gone on from."""
    consumer, loop, end = looping(producer, 0, 1, 2, batch_size=3)
    places = []
    for _ in range(3):
        next(loop)
        state = consumer.state_dict()
        places.append((state["batch"], state["offset"]))
        if len(places) == 2:
            middle = state
    assert places == [(0, 3), (1, 2), (2, 1)]
    consumer.load_state_dict(middle)
    again = iter(consumer)
    end.begin(seq=1)
    end.give(1, 2)
    assert rows(next(again)) == [6, 7, 8]
    finish(consumer, end)


def test_a_saved_place_inside_a_batch_is_gone_on_from(producer: Played) -> None:
    """In the loader's own batches, too: the first one is the rest of that batch."""
    consumer, _, end = looping(producer)
    consumer.load_state_dict({**consumer.state_dict(), "batch": 1, "offset": 2})
    loop = iter(consumer)
    end.begin(seq=1)
    end.give(1)
    assert rows(next(loop)) == [6, 7]
    finish(consumer, end)


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_gets_its_part_of_a_batch(producer: Played, rank: int) -> None:
    """A part that would be empty repeats a row, so that all make the same number of steps."""
    consumer, loop, end = looping(producer, 0, rank=rank, world_size=2)
    end.give(1, rows=1)
    end.tell(ms.EpochEnded(0, 2))
    assert [rows(batch) for batch in loop] == [[[0, 1], [2, 3]][rank], [4]]
    finish(consumer, end)


def test_the_end_of_an_epoch_is_told_again_and_the_next_loop_is_another(producer: Played) -> None:
    """As of any iterator."""
    consumer, loop, end = looping(producer)
    end.tell(ms.EpochEnded(0, 0))
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(loop)
    assert iter(loop) is loop
    assert [type(m).__name__ for m in end.heard()].count("Leave") == 1
    finish(consumer, end)


def test_a_trial_says_that_it_takes_its_first_batch_once_and_before_it_does(
    producer: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its epoch has been asked for by then: it can still be joined from its start."""
    told: list[str] = []
    consumer, loop, end = looping(producer)
    monkeypatch.setattr(this_process, "first_batch", lambda: told.append(f"{consumer.stats().batches} taken"))
    end.give(0, 1)
    next(loop)
    next(loop)
    assert told == ["0 taken"]
    finish(consumer, end)


def test_a_loop_cannot_travel_and_says_what_can(producer: Played) -> None:
    """Nor can its consumer: both are bound to this process."""
    consumer, loop, end = looping(producer)
    for bound, instead in ((loop, "Send batches"), (consumer.face, "send its state_dict")):
        with pytest.raises(TypeError, match=instead):
            pickle.dumps(bound)
    finish(consumer, end)


def test_parts_without_a_common_first_dimension_cannot_be_joined(producer: Played) -> None:
    """The error names the part, and is told again."""
    from tsnb.stream.loader.packing import SlotWriter

    consumer, loop, end = looping(producer, batch_size=3)
    writer = SlotWriter(producer.arena, 0)
    placed = writer.write({"x": torch.zeros(4, 2), "n": torch.tensor(3)})
    writer.close()
    end.tell(ms.LayoutTold(0, placed.layout))
    end.tell(ms.Batch(0, 0, 0, 0, placed.rows, 1, placed.values_offset, placed.values_bytes))
    for _ in range(2):
        with pytest.raises(BatchNotShareable, match=r"batch\['n'\] does not"):
            next(loop)
    finish(consumer, end)
