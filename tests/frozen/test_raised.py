"""What a frozen part raises is told as its own error: with its batch, its frames and what to do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tsnb
from tests.frozen.networks import computed_anew, loader, trunk
from tsnb.errors import LoaderFailed
from tsnb.frozen.raised import described, raised_in
from tsnb.stream.loader.seams import StepFailed

pytestmark = pytest.mark.system


def explodes(batch: Any) -> Any:
    """Raise at the third batch that is not shuffled."""
    if int(batch[1][0]) == 16:
        raise ValueError("boom")
    return batch


WAYS = [{"num_workers": 0}, {"num_workers": 1}, {"num_workers": 1, "multiprocessing_context": "spawn"}]


@pytest.mark.slow
@pytest.mark.parametrize("options", WAYS, ids=["here", "fork", "spawn"])
def test_an_error_of_a_function_is_told_as_its_own(options: dict[str, Any]) -> None:
    """Once, with the batch that it was given, and with no frame of tsnb."""
    served = loader(shuffle=False, **options)
    with tsnb.serve(served, "s", then=explodes), pytest.raises(LoaderFailed) as caught:
        list(tsnb.attach("a", "s"))
    first, empty, *frames = str(caught.value).splitlines()
    assert first == (
        "Your then= function raised ValueError at batch 2 of pass 1: boom. It was given the batch "
        "[float32 [8, 1, 8, 8], int64 [8]]. To see the error alone, call the function with each batch: "
        "for batch in loader: explodes(batch)"
    )
    with pytest.raises(ValueError, match="boom"):
        list(map(explodes, served))
    assert not empty
    assert 'raise ValueError("boom")' in frames[-1] or "^" in frames[-1]
    assert sum("File " in line for line in frames) == 1
    assert str(caught.value).count("boom") == 2  # the second one is the line of code
    assert len(caught.traceback) == 2  # this test, and the loop over the batches


@pytest.mark.parametrize("options", WAYS[:2], ids=["here", "fork"])
def test_a_network_that_does_not_fit_says_what_it_was_given(options: dict[str, Any]) -> None:
    """And how to give it something else."""
    with pytest.raises(LoaderFailed) as caught:
        tsnb.serve(loader(**options), "s", then=nn.Linear(5, 5).requires_grad_(False))
    said = caught.value.summary
    assert said.startswith(
        "The network of then= (Linear) raised RuntimeError at batch 0 of pass 1: mat1 and mat2 shapes"
    )
    assert "the first element of the batch [float32 [8, 1, 8, 8], int64 [8]]" in said
    assert "then=lambda batch" in said
    assert "linear.py" in caught.value.loader_traceback
    assert "/tsnb/" not in caught.value.loader_traceback


@pytest.mark.parametrize("options", WAYS[:2], ids=["here", "fork"])
def test_what_is_refused_at_a_batch_does_not_blame_the_loader(options: dict[str, Any]) -> None:
    """Nor does it have a traceback: it says what to do."""
    for then, says in (
        (lambda _: None, "then= returned None."),
        (lambda batch: batch[0] + torch.rand(()), "then= gives another result when"),
    ):
        with pytest.raises(LoaderFailed) as caught:
            tsnb.serve(loader(**options), "s", then=then)
        assert str(caught.value).startswith(says)
        assert "\n" not in str(caught.value)


def test_a_class_is_refused_with_the_way_out() -> None:
    """It would be given the batch in place of the sizes of its layers."""
    with pytest.raises(
        TypeError, match=r"got the class Linear. Pass an instance of it, for example then=Linear\(...\)"
    ):
        tsnb.serve(loader(), "s", then=nn.Linear)  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_call_of_train_between_epochs_serves_no_batch_in_training_mode(workers: int) -> None:
    """The message names it; after a call of `.eval()` the stream goes on, with the statistics that it had."""
    network = trunk()
    with tsnb.serve(
        loader(num_workers=workers), "s", then=lambda batch: (network(batch[0]), batch[1]), seed=1
    ):
        consumer = tsnb.attach("a", "s")
        list(consumer)
        network.train()
        with pytest.raises(
            LoaderFailed, match=r"in training mode now, because \.train\(\) was called"
        ) as caught:
            list(consumer)
        assert "momentum" not in str(caught.value)
        assert not network.state_dict()["1.num_batches_tracked"]
        network.eval()
        assert sum(1 for _ in consumer) == 7


def test_a_change_in_the_middle_of_an_epoch_is_found_at_the_next_batch() -> None:
    """Where the serving process itself computes: trials are ahead of no epoch's end."""
    network = trunk()
    with tsnb.serve(loader(num_workers=0, batch_size=2), "s", then=network, window=2):
        batches = iter(tsnb.attach("a", "s"))
        next(batches)
        network.state_dict()["0.bias"].add_(1)
        with pytest.raises(LoaderFailed, match=r"have changed since tsnb.serve \(0.bias\)"):
            list(batches)


@pytest.mark.slow
def test_a_spawned_worker_with_other_weights_is_refused() -> None:
    """It imports the function's module again, which may make them anew."""
    spawned = loader(multiprocessing_context="spawn")
    with pytest.raises(
        LoaderFailed, match=r"worker process computes then= with other parameters .*ANEW\['weights'\]"
    ):
        tsnb.serve(spawned, "s", then=computed_anew)
    tsnb.serve(loader(), "s", then=computed_anew).stop()


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not for you")


def test_an_error_that_cannot_be_printed_is_told_by_its_kind() -> None:
    """And keeps its text on its way from a worker."""
    error = raised_in(len, (torch.ones(2),), Mute())
    assert "raised Mute" in error.said("here")
    again = StepFailed(
        f"Caught StepFailed in worker.\nOriginal Traceback:\ntsnb.stream.loader.seams.StepFailed: {error}"
    )
    assert (again.said("at 1"), again.loader_traceback) == (error.said("at 1"), error.loader_traceback)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"x": torch.ones(2, 3), "t": ["a", "b"]}, "{'x': float32 [2, 3], 't': list of 2 str}"),
        ((torch.arange(3), [torch.ones(1)]), "(int64 [3], [float32 [1]])"),
        (tuple(torch.ones(1) for _ in range(9)), f"({'float32 [1], ' * 8}...)"),
        (3, "int"),
        ((), "tuple"),
    ],
)
def test_a_batch_is_described_in_a_line(batch: Any, words: str) -> None:
    """By its dtypes and shapes."""
    assert described(batch) == words
