"""A consumer as a torch DataLoader."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, IterableDataset

import tsnb
from tsnb.experiments.trial import Trial
from tsnb.sweeps.sweep import Sweep

BATCHES: list[dict[str, Any]] = [
    {"images": np.full((4, 3), i, np.float32), "words": ["a", "b", "c", str(i)]} for i in range(6)
]


def test_it_is_a_dataloader_whose_batches_are_the_consumers_own() -> None:
    """Without workers; arrays and strings stay what they are, and an epoch has its length in batches."""
    with tsnb.serve(BATCHES, name="dicts"), tsnb.attach("one", "dicts") as consumer:
        loader = consumer.as_dataloader()
        assert isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)
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


def test_a_loop_has_its_length_and_a_consumer_names_the_way_to_the_rest_of_a_dataloader() -> None:
    """As torch's own iterator, whose length is the whole epoch's wherever it stands."""
    with tsnb.serve(BATCHES, name="dicts"), tsnb.attach("one", "dicts") as consumer:
        loop, loader = iter(consumer), consumer.as_dataloader()
        next(loop)
        assert len(loop) == len(consumer) == len(BATCHES)
        for name in ("num_workers", "drop_last", "collate_fn", "pin_memory", "generator", "timeout"):
            assert hasattr(loader, name) and not hasattr(consumer, name)
            with pytest.raises(AttributeError, match=rf"no '{name}'.*consumer\.as_dataloader\(\)"):
                getattr(consumer, name)
        with pytest.raises(AttributeError, match="'Consumer' object has no attribute 'nothing'"):
            consumer.nothing  # noqa: B018
    with tsnb.serve(lambda epoch: iter(BATCHES), name="dicts"), tsnb.attach("one", "dicts") as consumer:
        loop = iter(consumer)
        with pytest.raises(TypeError):
            len(loop)
        assert sum(1 for _ in loop) == len(BATCHES)


def test_it_has_no_length_where_the_stream_has_none() -> None:
    """As torch's own of an iterable dataset that has none."""
    with tsnb.serve(lambda epoch: iter(BATCHES), name="dicts"), tsnb.attach("one", "dicts") as consumer:
        with pytest.raises(TypeError):
            len(consumer.as_dataloader())
        assert sum(1 for _ in consumer.as_dataloader()) == len(BATCHES)


def test_it_is_made_again_as_trainers_do_but_not_with_other_options() -> None:
    """From what it says of itself; what only the served loader could do is refused with where to set it."""
    with tsnb.serve(BATCHES, name="dicts"), tsnb.attach("one", "dicts") as consumer:
        loader: Any = consumer.as_dataloader()
        again = type(loader)(loader.dataset, batch_size=None, num_workers=0, sampler=None, batch_sampler=None)
        assert [int(batch["words"][3]) for batch in again] == list(range(6))
        for option in ({"num_workers": 4}, {"batch_size": 8}, {"drop_last": True}):
            with pytest.raises(ValueError, match="Set it on the served loader"):
                type(loader)(loader.dataset, **option)


def test_what_is_bound_to_its_process_says_so_when_it_is_pickled_or_copied() -> None:
    """With the way out: each of them holds connections or threads, which go nowhere."""
    with tsnb.serve(BATCHES, name="dicts") as producer, tsnb.attach("one", "dicts") as consumer:
        ways_out: dict[str, list[Any]] = {
            "attach": [consumer, iter(consumer), consumer.as_dataloader()],
            "name of the stream": [producer],
            "result": [object.__new__(Trial), object.__new__(Sweep)],
        }
        for way_out, bound in ways_out.items():
            for one in bound:
                for send in (pickle.dumps, copy.deepcopy):
                    with pytest.raises(TypeError, match=f"(?s)cannot be pickled or copied.*{way_out}"):
                        send(one)
