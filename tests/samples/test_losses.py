"""Losses that trials report: each is of the sample that its row is, averaged over a trial's epochs and over trials."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb.consumer.losses import MOST, checked, in_messages
from tsnb.errors import TsnbError
from tsnb.samples.losses import SampleLosses

HANG_S = 60.0


def wait_until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG_S
    while not fact():
        assert time.monotonic() < deadline, "hung"
        time.sleep(0.01)


def numbers(tmp_path: Path, samples: int) -> Any:
    """A data set that grows, whose samples are their own numbers."""
    return tsnb.grow(lambda: [str(i) for i in range(samples)], int, index=tmp_path / "index")


def losses_of(producer: tsnb.Producer, trial: str = "") -> Any:
    growth = producer.core.growth
    assert growth is not None
    return growth.losses.mean(growth.found, trial)


# -- the average ------------------------------------------------------------------------------------------------------


def test_a_sample_s_loss_is_a_moving_average_and_the_mean_over_trials() -> None:
    """The first report counts whole; who has not reported a sample does not count for it; others are not there."""
    samples = 4
    losses = SampleLosses(lambda: samples)
    losses.note("a", np.array([0, 2]), np.array([1.0, 2.0], np.float32))
    losses.note("a", np.array([2, 9]), np.array([4.0, 9.0], np.float32))
    losses.note("b", np.array([2, 3]), np.array([7.0, 8.0], np.float32))
    np.testing.assert_allclose(losses.mean(4), [1, np.nan, 5, 8])
    np.testing.assert_allclose(losses.mean(4, "b"), [np.nan, np.nan, 7, 8])
    samples = 40
    losses.note("a", np.array([39]), np.array([3.0], np.float32))
    assert losses.mean(40)[[0, 2, 39]].tolist() == [1, 5, 3] and np.isnan(losses.mean(41)[40])
    losses.keep(["c"])
    assert list(losses.trials) == ["a", "b"], "there is nothing better yet"
    losses.keep(["b", "c"])
    assert list(losses.trials) == ["b"]


@pytest.mark.parametrize(
    ("losses", "says"),
    [
        ([1.0, 2.0], "one loss for each sample"),
        (torch.tensor(1.0), "one loss for each sample"),
        (torch.ones(3, 1), "one loss for each sample"),
        ([1.0, float("nan"), 2.0], "row 1 is nan"),
        (np.array([1.0, 2.0, -np.inf]), "row 2 is -inf"),
        ([1.0, 2.0, 1e31], "row 2 is 1e"),
        (None, "a tensor, an array or a list"),
        (["a", "b", "c"], "a tensor, an array or a list"),
        ({"loss": 1}, "a tensor, an array or a list"),
    ],
)
def test_losses_that_cannot_be_meant_are_refused(losses: Any, says: str) -> None:
    """With what to report instead."""
    with pytest.raises((ValueError, TypeError), match=says):
        checked(losses, 3)


def test_losses_are_taken_from_what_has_them() -> None:
    """Tensors with a graph, of any type; arrays; lists; many go in several messages."""
    for given in (
        torch.tensor([1.0, 2.0], requires_grad=True) * 1,
        torch.tensor([1, 2], dtype=torch.bfloat16),
        np.array([1, 2]),
        [1.0, torch.tensor(2.0)],
    ):
        assert checked(given, 2).tolist() == [1, 2]
    many = np.arange(2 * MOST + 1)
    told = list(in_messages(many.astype("<u4").tobytes(), many.astype(np.float32)))
    assert np.concatenate([np.frombuffer(m.samples, "<u4") for m in told]).tolist() == many.tolist()
    assert np.concatenate([np.frombuffer(m.losses, "<f4") for m in told]).tolist() == many.tolist()
    assert len(told) == 3


# -- over a stream ----------------------------------------------------------------------------------------------------


@pytest.mark.system
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("own", [{}, {"batch_size": 7}, {"batch_size": 3, "drop_last": True}])
def test_each_reported_loss_is_kept_of_the_sample_that_the_row_is(
    tmp_path: Path, workers: int, own: dict[str, Any]
) -> None:
    """The loader's batches or others, shuffled, in this process or in workers, from the middle of an epoch, too."""
    loader = DataLoader(numbers(tmp_path, 50), 8, shuffle=True, num_workers=workers)
    with tsnb.serve(loader, name="g", seed=1) as producer, tsnb.attach("a", "g", **own) as consumer:
        seen: list[int] = []
        for step, batch in enumerate(consumer):
            tsnb.log_losses(batch * 2.0)
            seen += batch.tolist()
            if step == 2:
                break
        state = consumer.state_dict()
        consumer.load_state_dict(state)
        for batch in consumer:
            consumer.report(batch * 2.0)
            seen += batch.tolist()
        assert len(seen) == len(set(seen)) == (48 if own.get("drop_last") else 50)
        wait_until(lambda: np.isfinite(losses_of(producer)).sum() == len(seen))
        assert (losses_of(producer)[seen] == 2.0 * np.array(seen)).all()


@pytest.mark.system
def test_trials_and_ranks_are_averaged_and_a_trial_s_epochs_move_its_average(tmp_path: Path) -> None:
    """Each trial counts the same; the ranks of a group are one trial, each reporting its own rows."""
    loader = DataLoader(numbers(tmp_path, 24), 8, shuffle=True)

    def train(consumer: tsnb.Consumer, *factors: float) -> None:
        for factor in factors:
            for batch in consumer:
                tsnb.log_losses(batch * factor)

    with tsnb.serve(loader, name="g", seed=1, rubber_band=1.0) as producer:
        trials = [
            (tsnb.attach("a", "g"), (2.0, 4.0)),
            (tsnb.attach("r", "g", rank=0, world_size=2), (5.0, 5.0)),
            (tsnb.attach("r", "g", rank=1, world_size=2), (5.0, 5.0)),
        ]
        threads = [threading.Thread(target=train, args=(c, *factors)) for c, factors in trials]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
        for consumer, _ in trials:
            consumer.close()
        wait_until(lambda: not producer.status().consumers)
        assert producer.core.growth is not None
        assert sorted(producer.core.growth.losses.trials) == ["a", "r"]
        assert losses_of(producer, "a").tolist() == [3.0 * i for i in range(24)]
        assert losses_of(producer, "r").tolist() == [5.0 * i for i in range(24)]
        assert losses_of(producer).tolist() == [4.0 * i for i in range(24)]


@pytest.mark.system
def test_losses_are_refused_where_they_are_of_no_batch(tmp_path: Path) -> None:
    """Before a loop, after it, twice, too few, of two loops at once; nothing wrong is kept, and the loop goes on."""
    loader = DataLoader(numbers(tmp_path, 16), 8, shuffle=True)
    with pytest.raises(TsnbError, match="no loop over a stream"):
        tsnb.log_losses([1.0])
    with (
        tsnb.serve(loader, name="g", rubber_band=1.0, window=4) as producer,
        tsnb.attach("a", "g") as consumer,
        tsnb.attach("b", "g") as other,
    ):
        with pytest.raises(TsnbError, match="is not in a loop"):
            consumer.report([1.0])
        batches = 0
        for batch in consumer:
            for wrong in (batch[:3] * 1.0, batch * float("nan")):
                with pytest.raises(ValueError, match="loss"):
                    tsnb.log_losses(wrong)
            tsnb.log_losses(batch * 1.0)
            with pytest.raises(TsnbError, match="reported before"):
                consumer.report(batch * 1.0)
            for _ in other:
                with pytest.raises(TsnbError, match=r"consumer\.report"):
                    tsnb.log_losses(batch * 1.0)
                break
            batches += 1
        assert batches == 2
        with pytest.raises(TsnbError, match="is not in a loop"):
            consumer.report([1.0])
        wait_until(lambda: losses_of(producer).tolist() == list(range(16)))


@pytest.mark.system
def test_losses_of_a_stream_that_does_not_grow_are_refused() -> None:
    """It has no rounds: with the way out, also where batches tell which samples they hold."""
    with (
        tsnb.serve(DataLoader(TensorDataset(torch.arange(8)), 4), name="g"),
        tsnb.attach("a", "g", subset=[1, 2]) as consumer,
    ):
        for _ in consumer:
            with pytest.raises(TsnbError, match=r"does not grow.*tsnb\.grow"):
                consumer.report([1.0, 1.0])


@pytest.mark.system
def test_batches_whose_rows_are_not_samples_say_so(tmp_path: Path) -> None:
    """Two rows of each sample, say: which is whose is not known."""
    loader = DataLoader(numbers(tmp_path, 16), 8, collate_fn=lambda found: torch.tensor([*found, *found]))
    with tsnb.serve(loader, name="g"), tsnb.attach("a", "g", batch_size=4) as consumer:
        for batch in consumer:
            with pytest.raises(TsnbError, match="one row of each sample"):
                consumer.report(batch * 1.0)
