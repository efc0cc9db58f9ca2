"""Where a network finds its inputs, and what is not frozen."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tsnb.frozen.part
from tests.frozen.networks import trunk
from tsnb.frozen.applying import computed, function_computed
from tsnb.frozen.changes import sums_of
from tsnb.frozen.part import FrozenPart
from tsnb.frozen.refusals import alike, require_frozen, why_gradients
from tsnb.stream.loader.seams import StepFailed

Pair = namedtuple("Pair", ["image", "label"])  # noqa: PYI024


class Doubled(nn.Module):
    def forward(self, image: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
        return 2 * image if mask is None else 2 * image + mask


X, Y = torch.ones(3, 2), torch.arange(3)


@pytest.mark.parametrize(
    ("batch", "wanted", "whole"),
    [
        (X, 2 * X, (X, 2 * X)),
        ((X, Y), (2 * X, Y), (X, 2 * X, Y)),
        ([X, Y], [2 * X, Y], [X, 2 * X, Y]),
        (Pair(X, Y), (2 * X, Y), (X, 2 * X, Y)),
        ({"image": X, "y": Y}, {"features": 2 * X, "y": Y}, {"image": X, "features": 2 * X, "y": Y}),
        (
            {"image": X, "mask": X, "y": Y},
            {"features": 3 * X, "y": Y},
            {"image": X, "mask": X, "features": 3 * X, "y": Y},
        ),
        ({"pixels": X, "y": Y}, {"features": 2 * X, "y": Y}, {"pixels": X, "features": 2 * X, "y": Y}),
    ],
)
def test_a_network_gets_its_inputs_and_its_features_take_their_place(
    batch: Any, wanted: Any, whole: Any
) -> None:
    """Tensors, tuples, lists, and dicts by the names of `forward`, else by their only numbers."""
    made = computed(Doubled(), batch)
    assert alike(made.batch, wanted)
    assert alike(made.whole, whole)


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        ({"a": X, "b": X}, "which of them are its inputs cannot be told"),
        ({"image": X, "features": X}, "has a field 'features' already"),
        (3, "a batch is a int"),
        ((), "a batch is a tuple"),
    ],
)
def test_where_the_inputs_cannot_be_told_it_says_what_to_pass(batch: Any, says: str) -> None:
    """And names the way out: a function."""
    with pytest.raises((ValueError, TypeError), match=says) as caught:
        computed(Doubled(), batch)
    assert "then=lambda batch" in str(caught.value)


def test_a_function_makes_the_batch_and_must_return_one() -> None:
    """The whole is the pair of both."""
    made = function_computed(lambda batch: batch[0] + 1, (X, Y))
    assert torch.equal(made.batch, X + 1)
    assert made.whole[0][0] is X
    with pytest.raises(TypeError, match="returned None"):
        function_computed(lambda _: None, X)


def test_numpy_inputs_are_computed() -> None:
    """A collate function may return arrays."""
    assert torch.equal(computed(Doubled(), (np.ones((3, 2), np.float32), Y)).batch[0], 2 * X)


# -- what is frozen ------------------------------------------------------------------------------------------


def functions_of(network: nn.Module) -> list[Any]:
    """Return ways to compute with a network that do not show it at once."""
    return [
        network,
        network.forward,
        functools.partial(network),
        lambda batch: (network(batch[0]), batch[1]),
    ]


@pytest.mark.parametrize("way", range(4))
def test_dropout_and_batch_norm_in_training_mode_are_refused_and_named(way: int) -> None:
    """However the network is reached; in evaluation mode they are taken."""
    for layer, says in (
        (nn.Dropout(), "Dropout .* draws random"),
        (nn.BatchNorm1d(2), "BatchNorm1d .* statistics"),
    ):
        network = nn.Sequential(nn.Linear(2, 2), layer)
        with pytest.raises(ValueError, match=says) as caught:
            require_frozen(functions_of(network)[way])
        assert ".eval()" in str(caught.value)
        require_frozen(functions_of(network.eval())[way])
    require_frozen(functions_of(nn.Linear(2, 2))[way])  # training mode changes nothing there


def test_what_cannot_be_called_is_refused() -> None:
    """By its type."""
    with pytest.raises(TypeError, match="got int"):
        require_frozen(3)


def test_weights_that_want_gradients_are_told() -> None:
    """And a network without them says nothing."""
    assert "requires_grad=True" in why_gradients(nn.Linear(1, 1))
    assert not why_gradients(nn.Linear(1, 1).requires_grad_(False))
    assert not why_gradients(len)


class Momentum(nn.Module):
    """An encoder that follows another one, a little with each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.ones(1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        self.weight = self.weight * 0.9
        return image * self.weight


@pytest.mark.parametrize("then", [lambda batch: batch + torch.rand(()), Momentum()], ids=["draws", "changes"])
def test_a_first_batch_that_differs_the_second_time_is_refused(then: Any) -> None:
    """Random numbers, and encoders that change with each batch."""
    with pytest.raises(StepFailed, match="another result when it computes the same batch a second time"):
        FrozenPart(then)(X)


def test_the_first_batch_alone_is_computed_twice() -> None:
    """And a function that changes its batch in place is no reason to refuse it."""
    calls = []

    def add(batch: list[torch.Tensor]) -> list[torch.Tensor]:
        calls.append(1)
        batch[0] = batch[0].add_(1)
        return batch

    part = FrozenPart(add)
    assert torch.equal(part([X.clone()])[0], X + 1)
    part([X.clone()])
    assert len(calls) == 3
    assert part.counters.read()[1] == 2


def test_another_part_has_another_key() -> None:
    """By its parameters, its code, and the values that it closes over; equal ones have the same."""
    one, other = trunk(), trunk()
    assert FrozenPart(one).key == FrozenPart(other).key
    next(other.buffers()).add_(1)
    assert FrozenPart(one).key != FrozenPart(other).key
    assert FrozenPart(lambda batch: batch + 1).key != FrozenPart(lambda batch: batch + 2).key


def reload(network: nn.Module) -> None:
    network.load_state_dict({name: value.clone() for name, value in network.state_dict().items()})


CHANGES = {
    "through .data": lambda network: network[0].weight.data[1, 0].mul_(0.99),
    "other storage": lambda network: setattr(network[0].weight, "data", network[0].weight.data * 0.99),
    "through numpy": lambda network: network[0].weight.numpy().__setitem__((3, 0, 2, 2), 7.0),
    "in place": lambda network: network[0].bias.add_(1e-3),
    "a buffer": lambda network: network[1].running_mean.fill_(2.0),
    "the last of three bytes": lambda network: network.few.__setitem__(2, 9),
    "half a number": lambda network: network.short.data.mul_(1.01),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_weights_that_change_in_any_way_are_found_without_a_hash(
    change: Callable[[nn.Module], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each epoch costs one reading of the weights. The same numbers loaded again are no change."""
    network = trunk()
    network.register_buffer("few", torch.arange(3, dtype=torch.uint8))
    network.register_buffer("short", torch.ones(3, dtype=torch.bfloat16))
    hashed: list[Any] = []

    def noted(value: Any) -> str:
        hashed.append(value)
        return ""

    monkeypatch.setattr(tsnb.frozen.part, "identity", noted)
    part = FrozenPart(network)
    part.require_unchanged()
    reload(network)
    part.require_unchanged()
    change(network)
    with pytest.raises(StepFailed, match="parameters of then= have changed"):
        part.require_unchanged()
    assert hashed == [network]


@pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")
def test_sparse_and_quantized_weights_stay_the_same() -> None:
    """They have no plain bytes."""
    network = nn.Module()
    network.register_buffer("sparse", torch.eye(3).to_sparse())
    network.register_buffer("small", torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8))
    before = sums_of(network)
    assert sums_of(network) == before
    network.sparse = 2 * torch.eye(3).to_sparse()
    assert sums_of(network) != before
