"""A consumer as a torch DataLoader."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, IterableDataset

import tsnb

BATCHES: list[dict[str, Any]] = [
    {"images": np.full((4, 3), i, np.float32), "words": ["a", "b", "c", str(i)]} for i in range(6)
]


def test_it_is_a_dataloader_whose_batches_are_the_consumers_own() -> None:
    """Of an iterable dataset, without batching or workers; arrays and strings stay what they are."""
    with tsnb.serve(BATCHES, name="dicts"), tsnb.attach("one", "dicts") as consumer:
        loader = consumer.as_dataloader()
        assert isinstance(loader, DataLoader) and isinstance(loader.dataset, IterableDataset)
        assert (loader.batch_size, loader.num_workers, len(loader)) == (None, 0, len(BATCHES))
        for _ in range(2):
            for ours, theirs in zip(loader, BATCHES, strict=True):
                assert type(ours["images"]) is np.ndarray
                assert np.array_equal(ours["images"], theirs["images"]) and ours["words"] == theirs["words"]


def test_it_goes_on_where_its_consumer_is() -> None:
    """Its state is the consumer's, and a loop that is left early leaves the epoch."""
    with tsnb.serve(BATCHES, name="dicts"), tsnb.attach("one", "dicts") as consumer:
        loader: Any = consumer.as_dataloader()
        loader.set_epoch(5)
        for number, _ in enumerate(loader):
            if number == 1:
                break
        state = loader.state_dict()
        assert state == consumer.state_dict() and (state["epoch"], state["batch"]) == (0, 2)
        loader.load_state_dict(state)
        assert [int(batch["words"][3]) for batch in loader] == [2, 3, 4, 5]
        assert consumer.epoch == 0


def test_it_has_no_length_where_the_stream_has_none() -> None:
    """As torch's own of an iterable dataset that has none."""
    with tsnb.serve(lambda epoch: iter(BATCHES), name="dicts"), tsnb.attach("one", "dicts") as consumer:
        with pytest.raises(TypeError):
            len(consumer.as_dataloader())
        assert sum(1 for _ in consumer.as_dataloader()) == len(BATCHES)
