"""A frozen part is checked wherever its networks and tensors lie, and nothing else is."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import time
import types
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.frozen.networks import trunk
from tsnb.frozen.changes import AtStart
from tsnb.frozen.part import FrozenPart
from tsnb.frozen.reaching import reached
from tsnb.frozen.refusals import require_frozen, why_gradients
from tsnb.stream.loader.seams import StepFailed

Then = Callable[[Any], Any]
Pair = namedtuple("Pair", ["first", "second"])  # noqa: PYI024
LOOSE = torch.ones(3)


@dataclasses.dataclass
class Fields:
    net: nn.Module


@dataclasses.dataclass
class Slots:
    __slots__ = ("net",)
    net: nn.Module


class Holder:
    """Has a network, and ways to use it."""

    def __init__(self, net: nn.Module) -> None:
        self._net = net
        self.held = [net]

    @property
    def net(self) -> nn.Module:
        return self._net

    def enc(self, batch: Any) -> Any:
        return self._inner(batch)

    def _inner(self, batch: Any) -> Any:
        return self._net(batch[0]), batch[1]

    def __call__(self, batch: Any) -> Any:
        return self.held[0](batch[0]), batch[1]


class Outer(nn.Module):
    """Has a network in a list, which torch does not see."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.nets = [net]

    def forward(self, image: torch.Tensor) -> Any:
        return self.nets[0](image)


def first(net: Any) -> torch.Tensor:
    """Return the weights of its first layer."""
    weights: torch.Tensor = net[0].weight
    return weights


def closure(take: Callable[[], nn.Module]) -> Then:
    return lambda batch: (take()(batch[0]), batch[1])


def within(box: Any, take: Callable[[Any], nn.Module]) -> Then:
    return lambda batch: (take(box)(batch[0]), batch[1])


def helper(net: nn.Module) -> Then:
    def inner(image: torch.Tensor) -> Any:
        return net(image)

    @functools.wraps(inner)
    def middle(*args: Any) -> Any:
        return inner(*args)

    return lambda batch: (middle(batch[0]), batch[1])


def default(net: nn.Module) -> Then:
    def function(batch: Any, net: nn.Module = net, *, _unused: int = 0) -> Any:
        return net(batch[0]), batch[1]

    return function


def through_globals(net: nn.Module) -> Then:
    code = "def inner(x): return box['t'](x)\ndef function(batch): return inner(batch[0]), batch[1]"
    names: dict[str, Any] = {"box": {"t": net}, "__name__": "my_script"}
    exec(code, names)
    return names["function"]  # type: ignore[no-any-return]


def through_a_module(net: nn.Module) -> Then:
    mine = types.ModuleType("my_module")
    mine.net = net  # type: ignore[attr-defined]
    return lambda batch: (mine.net(batch[0]), batch[1])


def remembered(net: nn.Module) -> Then:
    @functools.lru_cache
    def get() -> nn.Module:
        return net

    return closure(get)


def of_a_class(net: nn.Module) -> Then:
    class Mine:
        shared = net

        @classmethod
        def get(cls) -> nn.Module:
            return cls.shared

    return closure(Mine.get)


WAYS: dict[str, Callable[[nn.Module], Then]] = {
    "itself": lambda net: net,
    "dict": lambda net: within({"t": net}, lambda box: box["t"]),
    "list": lambda net: within([net], lambda box: box[0]),
    "tuple": lambda net: within((1, (net,)), lambda box: box[1][0]),
    "set": lambda net: within({net}, lambda box: next(iter(box))),
    "named tuple": lambda net: within(Pair(0, net), lambda box: box.second),
    "dataclass": lambda net: within(Fields(net), lambda box: box.net),
    "slots": lambda net: within(Slots(net), lambda box: box.net),
    "property": lambda net: within(Holder(net), lambda box: box.net),
    "parsed arguments": lambda net: within(argparse.Namespace(net=net), lambda args: args.net),
    "getattr": lambda net: within((Fields(net), "net"), lambda box: getattr(*box)),
    "bound method": lambda net: Holder(net).enc,
    "partial of a bound method": lambda net: functools.partial(Holder(net).enc),
    "callable object": Holder,
    "argument of a partial": lambda net: functools.partial(lambda n, b: (n(b[0]), b[1]), net),
    "helper": helper,
    "default": default,
    "globals": through_globals,
    "a module": through_a_module,
    "remembered": remembered,
    "a class": of_a_class,
    "list of a network": Outer,
}
BATCH = torch.ones(2, 1, 8, 8), torch.arange(2)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_change_of_a_network_is_found_wherever_it_is(way: Callable[[nn.Module], Then]) -> None:
    """At once where it shows, and before the next epoch if it was made through `.data`."""
    for change in (torch.Tensor.add_, lambda weights, by: weights.data.mul_(1 + by)):
        net = trunk()
        part = FrozenPart(way(net))
        part(BATCH)
        part.require_unchanged()
        change(first(net), 1)
        with pytest.raises(StepFailed, match=r"parameters of then= have changed .*0\.weight"):
            part.require_unchanged()
    first(net).add_(1)
    with pytest.raises(StepFailed, match="parameters of then= have changed"):
        part(BATCH)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_training_mode_and_gradients_are_found_wherever_the_network_is(
    way: Callable[[nn.Module], Then],
) -> None:
    """At the start, and in an epoch after a call of `.train()`, of which the message tells."""
    net = trunk()
    part = FrozenPart(way(net))
    part(BATCH)
    net.train()
    for check in (part.require_unchanged, lambda: part(BATCH)):
        with pytest.raises(
            StepFailed, match=r"in training mode now, because \.train\(\).*BatchNorm2d"
        ) as caught:
            check()
        assert ".eval()" in str(caught.value)
        assert "momentum" not in str(caught.value)
    assert not net.state_dict()["1.num_batches_tracked"]
    with pytest.raises(ValueError, match="then= is in training mode"):
        require_frozen(way(net))
    net.eval()
    part.require_unchanged()
    part(BATCH)
    assert not why_gradients(way(net))
    assert why_gradients(way(net.requires_grad_()))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_features_of_other_weights_have_another_key(way: Callable[[nn.Module], Then]) -> None:
    """So a cache never gives those of former weights."""
    net = trunk()
    before = FrozenPart(way(net)).key
    assert FrozenPart(way(net)).key == before
    first(net).data[0].mul_(2)
    assert FrozenPart(way(net)).key != before


@pytest.mark.parametrize("loose", [torch.ones(3), np.ones(3)], ids=["tensor", "array"])
def test_numbers_of_no_network_are_compared_too(loose: Any) -> None:
    """A matrix that a function multiplies with."""
    part = FrozenPart(lambda batch: batch * torch.as_tensor(loose))
    part(torch.ones(3))
    loose[1] = 2
    with pytest.raises(StepFailed, match=r"have changed since tsnb.serve \(loose\)"):
        part.require_unchanged()


def test_a_network_that_takes_the_place_of_another_one_is_found() -> None:
    """The names stay, the numbers do not; equal ones are no change."""
    box = {"t": trunk()}
    part = FrozenPart(lambda batch: box["t"](batch[0]))
    box["t"] = trunk()
    part.require_unchanged()
    box["t"] = nn.Flatten()
    with pytest.raises(StepFailed, match="box\\['t'\\]"):
        part.require_unchanged()


class Asks(nn.Module):
    """Computes something else in training mode, with no layer that torch knows for that."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image * 2 if self.training else image


def test_the_mode_counts_where_code_asks_for_it_and_nowhere_else() -> None:
    """Of a linear layer it changes nothing."""
    plain, asks = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0), nn.LSTM(3, 3)), Asks().eval()
    part, other = FrozenPart(plain[:2].eval()), FrozenPart(asks)
    lstm = FrozenPart(plain[2].eval())
    plain.train()
    part.require_unchanged()
    lstm.require_unchanged()
    asks.train()
    with pytest.raises(StepFailed, match=r"Asks .*something else"):
        other.require_unchanged()
    with pytest.raises(ValueError, match=r"LSTM .* draws random"):
        require_frozen(nn.LSTM(3, 3, num_layers=2, dropout=0.5))


# -- what is none of its business ------------------------------------------------------------------------------


class Experiment:
    """Has a frozen network, and one that is trained."""

    def __init__(self) -> None:
        self.trunk = trunk()
        self.head = nn.Sequential(nn.Linear(144, 2), nn.Dropout())
        self.seen = torch.zeros(1, dtype=torch.int64)

    def features(self, batch: Any) -> Any:
        self.seen += len(batch[0])
        return self.trunk(batch[0]), batch[1]

    def train(self, features: torch.Tensor) -> None:
        self.head.train()(features)


def test_a_network_that_is_trained_beside_is_not_compared() -> None:
    """Of the same object, when the function does not name it; and what it counts is no weight."""
    mine = Experiment()
    part = FrozenPart(mine.features)
    part(BATCH)
    first(mine.head).data.add_(1)
    part.require_unchanged()
    part(BATCH)
    assert [*reached(mine.features).networks] == ["self.trunk"]


def test_a_network_that_is_loaded_when_it_is_needed_is_compared_from_then_on() -> None:
    """What a function keeps for later is no change either."""
    nets: dict[str, nn.Module] = {}
    memo: dict[int, torch.Tensor] = {}

    def function(batch: Any) -> Any:
        if not nets:
            nets["t"] = trunk()
        memo[len(memo)] = torch.ones(2)
        return nets["t"](batch[0])

    part = FrozenPart(function)
    for _ in range(2):
        part(BATCH)
        part.require_unchanged()
    first(nets["t"]).data.add_(1)
    with pytest.raises(StepFailed, match="nets"):
        part.require_unchanged()


def test_rings_and_very_many_values_come_to_an_end() -> None:
    """A list that holds itself, and a table of a million numbers."""
    ring: list[Any] = [list(range(1_000_000)), {n: str(n) for n in range(100_000)}]
    ring.append(ring)
    began = time.monotonic()
    assert not reached(lambda batch: (ring, batch)).networks
    assert time.monotonic() - began < 5


def test_a_look_at_a_batch_costs_a_small_part_of_a_look_at_an_epoch() -> None:
    """The numbers are read once an epoch; before a batch only what torch counts by itself is."""
    net = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.BatchNorm1d(256)) for _ in range(20))).eval()
    start = AtStart(net)
    times = []
    for look in (start.why_changed_since_batch, start.why_changed):
        began = time.perf_counter()
        for _ in range(5):
            assert look() == ""
        times.append(time.perf_counter() - began)
    assert times[0] < times[1] / 5
