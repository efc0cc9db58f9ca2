"""A frozen part on a GPU: computed in the serving process, and features in the host's memory."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch

import tsnb
from tests.frozen.networks import Pictures, loader, trunk
from tsnb.frozen.loaders import FrozenIterable, frozen_loader
from tsnb.frozen.on_device import HOST, device_of, moved, why_without_seed
from tsnb.frozen.part import FrozenPart

Pair = namedtuple("Pair", ["image", "label"])  # noqa: PYI024
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def test_all_tensors_of_a_batch_move_and_the_rest_stays() -> None:
    """Of any nesting; a device without data shows it here."""
    batch = {"pair": Pair(torch.ones(2), [torch.ones(1), "a"]), "n": 3}
    found = moved(batch, torch.device("meta"))
    assert isinstance(found["pair"], Pair)
    assert found["pair"].image.device.type == found["pair"].label[0].device.type == "meta"
    assert found["pair"].label[1] == "a"
    assert found["n"] == 3


def test_a_part_in_the_hosts_memory_stays_with_the_workers() -> None:
    """Also one without weights."""
    assert device_of(trunk().parameters()) == device_of([]) == HOST
    assert not isinstance(frozen_loader(loader(), FrozenPart(trunk())), FrozenIterable)
    assert why_without_seed(HOST) == ""


def test_a_part_elsewhere_is_computed_where_the_stream_is_served() -> None:
    """The loader's workers prepare its inputs; seed= is told to fix nothing."""
    part = FrozenPart(trunk())
    part.device = torch.device("cuda", 0)
    assert isinstance(frozen_loader(loader(), part), FrozenIterable)
    assert "cuda:0" in why_without_seed(part.device)


@pytest.mark.system
@pytest.mark.parametrize(
    "device",
    [
        pytest.param("cpu:0", id="as if"),
        pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU]),
    ],
)
@pytest.mark.parametrize("inputs", [False, True])
def test_features_of_a_network_on_a_device_arrive_as_those_of_the_same_network_here(
    device: str, *, inputs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sample once, in the host's memory; and the weights are known to be the same in the next epoch."""
    here = trunk()
    if device == "cpu:0":  # it is not `HOST`, so all goes its way
        monkeypatch.setattr("tsnb.frozen.part.device_of", lambda _: torch.device(device))
    with tsnb.serve(loader(), "s", then=trunk().to(device), inputs=inputs):
        for _ in range(2):
            seen: list[Any] = []
            for *_, features, labels in tsnb.attach("a", "s", inputs=inputs):
                images = torch.stack([Pictures()[int(label)][0] for label in labels])
                assert features.device == HOST
                assert torch.allclose(features, here(images), atol=1e-3)
                seen += labels.tolist()
            assert sorted(seen) == list(range(52))
