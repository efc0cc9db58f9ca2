"""A network that no code shows is checked, too, once the first batch has gone through it."""

from __future__ import annotations

import functools
import operator
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import tsnb
from tests.frozen.networks import loader, trunk
from tests.frozen.test_reaching import BATCH, first
from tsnb.caching.memory import SampleMemory
from tsnb.errors import LoaderFailed
from tsnb.frozen.part import FrozenPart
from tsnb.stream.loader.seams import StepFailed

Then = Callable[[Any], Any]
HELD: dict[str, Any] = {}
"""Through `globals()` only."""
HOW = "apply"


@pytest.fixture(autouse=True)
def my_module() -> Iterator[None]:
    """Let there be a module of the user's that nothing has imported but a function."""
    sys.modules["my_hidden"] = types.ModuleType("my_hidden")
    yield
    del sys.modules["my_hidden"]
    HELD.clear()


def hidden(net: Any) -> None:
    sys.modules["my_hidden"].net = net  # type: ignore[attr-defined]


def imported(net: Any) -> Then:
    hidden(net)

    def function(batch: Any) -> Any:
        from my_hidden import net as mine  # type: ignore[import-not-found]

        return mine(batch[0]), batch[1]

    return function


def cached(net: Any) -> Then:
    hidden(net)

    @functools.lru_cache
    def get() -> Any:
        return sys.modules["my_" + "hidden"].net

    get()
    return lambda batch: (get()(batch[0]), batch[1])


def by_attrgetter(net: Any) -> Then:
    box, get = types.SimpleNamespace(net=net), operator.attrgetter("net")
    return lambda batch: (get(box)(batch[0]), batch[1])


def by_methodcaller(net: Any) -> Then:
    class Mine:
        def __init__(self) -> None:
            self.net = net

        def apply(self, batch: Any) -> Any:
            return self.net(batch[0]), batch[1]

    return functools.partial(lambda call, mine, batch: call(mine, batch)(mine), *(_calling, Mine()))


def _calling(_: Any, batch: Any) -> Any:
    return operator.methodcaller(HOW, batch)


def by_globals(net: Any) -> Then:
    HELD["net"] = net
    return lambda batch: (globals()["HE" + "LD"]["net"](batch[0]), batch[1])


def functional(net: Any) -> Then:
    hidden(net)

    def function(batch: Any) -> Any:
        from my_hidden import net as mine

        bare = mine[0].weight.data, mine[0].bias
        return nn.functional.conv2d(batch[0], *bare), batch[1]

    return function


WAYS: dict[str, Callable[[nn.Module], Then]] = {
    "an import in the function": imported,
    "a cache of results": cached,
    "attrgetter": by_attrgetter,
    "methodcaller": by_methodcaller,
    "globals()": by_globals,
    "its weights alone": functional,
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.system
def test_a_change_between_epochs_is_found_wherever_the_network_is(
    way: Callable[[nn.Module], Then], workers: int
) -> None:
    """No epoch is served with other weights; the message names them."""
    net = trunk()
    with tsnb.serve(loader(num_workers=workers), "s", then=way(net), seed=1):
        consumer = tsnb.attach("a", "s")
        assert [sum(1 for _ in consumer) for _ in range(2)] == [7, 7]
        first(net).add_(1)
        with pytest.raises(LoaderFailed, match=r"parameters of then= have changed .*weight of a Conv2d"):
            list(consumer)


@pytest.mark.parametrize("way", [*WAYS.values()][:-1], ids=[*WAYS][:-1])
def test_training_mode_is_found_wherever_the_network_is(way: Callable[[nn.Module], Then]) -> None:
    """At the first batch, and before an epoch after a call of `.train()`."""
    net = trunk()
    part = FrozenPart(way(net))
    part(BATCH)
    part.require_unchanged()
    net.train()
    with pytest.raises(StepFailed, match=r"in training mode, .*BatchNorm2d"):
        part.require_unchanged()
    with pytest.raises(StepFailed, match=r"in training mode, .*BatchNorm2d"):
        FrozenPart(way(net))(BATCH)


@pytest.mark.system
def test_features_of_such_a_network_are_not_handed_to_a_later_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key stands for its weights, so the later stream computes them."""
    memory = SampleMemory.create()
    net, found = trunk(), []
    for change in (0.0, 1.0):
        first(net).add_(change)
        # as the process that serves a restarted stream does
        monkeypatch.setattr("tsnb.caching.keeper.adopted", lambda: os.dup(memory.fd))
        with tsnb.serve(loader(shuffle=False), "s", then=imported(net), seed=1, cache="8MiB"):
            found += [torch.cat([taken[0].clone() for taken in tsnb.attach("a", "s")]) for _ in range(2)]
    memory.close()
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[2], found[3])
    assert not torch.equal(found[0], found[2])


def test_a_dropout_that_is_switched_on_later_is_found_at_the_next_batch() -> None:
    """It has no tensors of its own, so the batch is computed twice again."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Dropout(0.5)).eval().requires_grad_(False)
    part = FrozenPart(imported(net))
    part(BATCH)
    part.require_unchanged()
    net.train()
    part.require_unchanged()
    with pytest.raises(StepFailed, match="another result when it computes the same batch"):
        part(BATCH)


def test_a_network_that_takes_the_place_of_the_one_that_ran_is_found() -> None:
    """The former one has gone."""
    part = FrozenPart(imported(trunk()))
    part(BATCH)
    part.require_unchanged()
    hidden(trunk())
    with pytest.raises(StepFailed, match="have changed"):
        part.require_unchanged()


def test_what_a_function_only_asks_or_makes_or_writes_is_no_part_of_it() -> None:
    """Among them the weights of a head that is trained, whose device it asks for."""
    head, scratch = nn.Linear(64, 2), torch.zeros(2, 64)
    hidden((head, scratch))

    def function(batch: Any) -> Any:
        from my_hidden import net as mine

        head, scratch = mine
        flat = batch[0].flatten(1).to(head.weight.device).to(head.weight)
        torch.add(flat, torch.ones(()), out=scratch)
        made = nn.Parameter(torch.eye(64))
        return flat @ made + torch.zeros_like(head.weight[0]) + torch.from_numpy(flat.numpy() * 2), batch[1]

    part = FrozenPart(function)
    part(BATCH)
    for _ in range(2):
        with torch.no_grad():
            head.weight.add_(1)
        scratch.add_(1)
        part.require_unchanged()
        part((torch.rand(2, 1, 8, 8), BATCH[1]))


def test_a_network_with_a_faster_way_is_not_taken_for_a_random_one() -> None:
    """While it is noted what runs, an encoder takes its ordinary way, which has other last bits."""
    layer = nn.TransformerEncoderLayer(8, 2, dropout=0.1, batch_first=True)
    net = nn.TransformerEncoder(layer, 2).eval().requires_grad_(False)
    hidden(net)

    def function(batch: torch.Tensor) -> Any:
        from my_hidden import net as mine

        return mine(batch)

    part = FrozenPart(function)
    part(torch.rand(4, 5, 8))
    part.require_unchanged()
    net.layers[1].linear2.weight.data.add_(1)
    with pytest.raises(StepFailed, match="weight of a Linear that your function uses"):
        part.require_unchanged()
