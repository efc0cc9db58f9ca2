"""A stream with a frozen part: each batch is computed once, and every trial gets the result."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import tsnb
from tests.frozen.networks import SAMPLES, Counting, Named, Pictures, loader, trunk
from tests.system.conftest import Run
from tsnb.errors import JoinRefused, LoaderFailed

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As a worker has: sums may differ in their last bit otherwise."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def taken(name: str, **options: Any) -> list[Any]:
    return [[part.clone() for part in batch] for batch in tsnb.attach(name, "s", **options)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"num_workers": 0}, {"num_workers": 2}, {"multiprocessing_context": "spawn", "num_workers": 1}],
)
def test_features_are_those_of_the_network_bit_for_bit(options: dict[str, Any]) -> None:
    """In workers, however they start, and without; they are ordinary tensors."""
    network = trunk()
    with tsnb.serve(loader(**options), "s", then=network, seed=1) as stream:
        for features, labels in tsnb.attach("a", "s"):
            images = torch.stack([Pictures()[int(label)][0] for label in labels])
            assert torch.equal(features, network(images))
            assert not features.is_inference()
            nn.Linear(144, 2)(features).sum().backward()
        told = stream.status()
        assert told.frozen is not None
        assert told.frozen.name == "Sequential"
        assert told.frozen.computing_s > 0
        assert told.frozen.batches >= 7


def test_each_batch_is_computed_once_however_many_trials_attach() -> None:
    """And one batch more: the first one is tried twice, by each worker that has one before the first is done."""
    network = Counting()
    with tsnb.serve(loader(), "s", then=network, seed=1, late_join=1.0):
        runs = [taken(name) for name in "abc"]
    assert len(runs[0]) == 7
    for one, other in zip(runs[0], runs[1], strict=True):
        assert all(torch.equal(x, y) for x, y in zip(one, other, strict=True))
    assert SAMPLES <= int(network.seen) <= SAMPLES + 2 * 8 + SAMPLES  # three trials took at most two passes


HEADS = """
    import threading
    from torch import nn
    from tests.frozen.networks import Pictures, loader, trunk
"""


def losses(batches: Any, network: nn.Module | None) -> list[float]:
    """Train a head, and return its losses."""
    torch.manual_seed(4)
    head, found = nn.Linear(144, SAMPLES), []
    optimizer = torch.optim.SGD(head.parameters(), lr=0.001)
    for x, labels in batches:
        with torch.no_grad():
            features = x if network is None else network(x)
        loss = nn.functional.cross_entropy(head(features), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        found.append(loss.item())
    return found


def test_a_head_has_the_same_losses_as_with_the_network_inside_it() -> None:
    """Bit for bit, with as many threads."""
    with tsnb.serve(loader(), "s", seed=1):
        wanted = losses(tsnb.attach("own", "s"), trunk())
    with tsnb.serve(loader(), "s", then=trunk(), seed=1):
        assert losses(tsnb.attach("served", "s"), None) == wanted


# -- inputs beside -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_inputs_come_beside_the_features_to_those_that_ask(workers: int) -> None:
    """Of the same batches, at any batch size; the others get features alone."""
    network = trunk()
    with tsnb.serve(loader(num_workers=workers), "s", then=network, inputs=True, seed=1, late_join=1.0):
        plain, whole = taken("a"), taken("b", inputs=True)
        small = taken("c", inputs=True, batch_size=3)
    for (features, labels), (inputs, same, too) in zip(plain, whole, strict=True):
        assert torch.equal(features, same)
        assert torch.equal(labels, too)
        assert torch.equal(network(inputs), features)
    assert [len(batch[0]) for batch in small] == [3] * 17 + [1]
    for inputs, features, labels in small:
        assert torch.equal(inputs[:, 0, 0, 0].long(), labels)
        assert torch.allclose(network(inputs), features)


def test_inputs_of_dicts_of_texts_and_of_functions() -> None:
    """Values that are no tensors stay with the form that they belong to."""
    with tsnb.serve(loader(Named()), "s", then=trunk(), inputs=True, seed=1, late_join=1.0):
        plain, whole = (next(iter(tsnb.attach(n, "s", inputs=i))) for n, i in (("a", False), ("b", True)))
    assert list(plain) == ["features", "label", "name"]
    assert list(whole) == ["image", "features", "label", "name"]
    assert plain["name"] == [f"picture {int(label)}" for label in plain["label"]]
    with tsnb.serve(
        loader(Named()), "s", then=lambda batch: batch["image"].mean((1, 2, 3)), inputs=True, seed=1
    ) as s:
        for mean in tsnb.attach("a", "s"):
            assert mean.shape[1:] == ()
        for batch, mean in tsnb.attach("b", "s", inputs=True):
            assert torch.equal(batch["image"].mean((1, 2, 3)), mean)
            assert len(batch["name"]) == len(mean)
        assert s.status().frozen is not None


def test_inputs_of_a_stream_that_does_not_have_them_are_refused() -> None:
    """With the way out; and inputs= without then= as well."""
    with tsnb.serve(loader(), "s", then=trunk()), pytest.raises(JoinRefused, match="then= and inputs=True"):
        tsnb.attach("a", "s", inputs=True)
    with pytest.raises(ValueError, match="Pass then= as well"):
        tsnb.serve(loader(), "s", inputs=True)


# -- what can be served, and what not ------------------------------------------------------------------------


class Counted(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from (torch.full((2,), float(i)) for i in range(6))


@pytest.mark.parametrize(
    "batches",
    [
        [torch.ones(2), torch.full((2,), 2.0)],
        lambda epoch: [torch.ones(2), torch.full((2,), 2.0)],
        lambda epoch: DataLoader(Counted(), 1, num_workers=1),
        DataLoader(Counted(), 1, num_workers=1),
        DataLoader([torch.full((2,), float(i)) for i in range(4)], batch_size=None, num_workers=1),  # type: ignore[arg-type]
    ],
)
def test_whatever_can_be_served_can_go_through_a_function(batches: Any) -> None:
    """Lists, functions of the epoch, iterable datasets, single samples."""
    plain = [batch.clone() for batch in (batches(0) if callable(batches) else batches)]
    with tsnb.serve(batches, "s", then=lambda batch: batch * 2):
        for _ in range(2):
            found = [batch.clone() for batch in tsnb.attach("a", "s")]
            assert all(torch.equal(x, 2 * y) for x, y in zip(found, plain, strict=True))


@pytest.mark.slow
def test_an_order_that_can_be_given_again_stays_one_and_another_network_is_another_order() -> None:
    """So a stream that comes back with other weights gives no trial the rest of an epoch."""
    found = []
    for change in (0.0, 0.0, 1.0):
        network = trunk()
        next(network.buffers()).add_(change)
        with tsnb.serve(loader(), "s", then=network, seed=1) as stream:
            found.append(stream.order)
    assert found[0] == found[1] != found[2]
    assert found[0]


def test_a_random_part_fails_at_its_start_and_one_that_changes_at_its_next_epoch() -> None:
    """Before anybody trains on it."""
    with pytest.raises(LoaderFailed, match="another result when it computes the same batch"):
        tsnb.serve(loader(), "s", then=lambda batch: batch[0] + torch.rand(()))
    network = trunk()
    with tsnb.serve(loader(), "s", then=network, seed=1):
        taken("a")
        next(network.parameters()).data.mul_(0.99)
        with pytest.raises(LoaderFailed, match=r"parameters of then= have changed"):
            taken("a")


def test_weights_that_want_gradients_are_told_unless_inputs_are_served() -> None:
    """Where the stream is started."""
    network = trunk().requires_grad_()
    with pytest.warns(RuntimeWarning, match="requires_grad=True"):
        tsnb.serve(loader(), "s", then=network).stop()


SERVE = (
    HEADS
    + """
    stream = tsnb.serve(loader(Pictures(400), batch_size=4), "s", then=trunk(), inputs=True, seed=7, reconnect_s=60,
                        first_epoch=int(sys.argv[1]), window=4)
    say("serving")
    stream.wait()
"""
)


@pytest.mark.slow
def test_a_producer_killed_in_mid_epoch_costs_nobody_a_sample(run: Run) -> None:
    """Those with inputs and those without go on where they were, with the same features."""
    producer = run(SERVE, "0")
    producer.expect("serving")
    plain, whole = tsnb.attach("a", "s"), tsnb.attach("b", "s", inputs=True)
    loops, found = (iter(plain), iter(whole)), ([], [])  # type: ignore[var-annotated]
    for step in range(100):
        for loop, batches in zip(loops, found, strict=True):
            batches.append([part.clone() for part in next(loop)])
        if step == 40:
            producer.send(signal.SIGKILL)
            producer.end()
            producer = run(SERVE, "0")
            producer.expect("serving")
    assert all(next(loop, None) is None for loop in loops)
    assert sorted(torch.cat([labels for _, labels in found[0]]).tolist()) == list(range(400))
    for (features, labels), (inputs, same, too) in zip(*found, strict=True):
        assert torch.equal(features, same)
        assert torch.equal(labels, too)
        assert torch.equal(inputs[:, 0, 0, 0].long(), labels)
    assert plain.stats().reconnects == 1
    plain.close()
    whole.close()
