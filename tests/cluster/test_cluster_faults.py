"""What a real feed and a real relay's source do with a hub that says odd things, or nothing: it follows a script."""

from __future__ import annotations

from typing import Any

import numpy as np
import psutil
import pytest
import ray
import torch
from ray.exceptions import ActorUnavailableError

import tsnb
from tests.cluster.conftest import Machines, status, until
from tests.cluster.script import Script
from tsnb import registry
from tsnb.cluster import offer, remote_epochs
from tsnb.cluster.feed import Feed
from tsnb.cluster.hub_dispatch import Offered
from tsnb.cluster.remote_epochs import RemoteEpochs
from tsnb.cluster.stream_hub import FeedOrder
from tsnb.errors import LoaderFailed
from tsnb.serving import serve_here
from tsnb.stream.decisions.phases import Phase
from tsnb.stream.loader.packing import SlotImage
from tsnb.stream.protocol import messages as ms

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900, func_only=True)]

FACTS: dict[str, Any] = {
    "batch_size": 1,
    "batches": 9,
    "samples": 9,
    "order": "counted",
    "batch_bytes": 1,
    "indices": (None, False, ""),
}


def scripted(*arguments: Any) -> Any:
    actor: Any = ray.remote(Script)
    return actor.options(num_cpus=0, max_concurrency=8).remote(*arguments)


def relayed(hub: Any) -> RemoteEpochs:
    return RemoteEpochs(hub, FACTS, hub.join.remote)


def batch(seq: int, ref: Any) -> Offered:
    """Return how the hub tells of a batch."""
    return Offered(seq + 1, 0, seq, [ref])


def started(epoch: int, seq: int) -> ms.EpochStarted:
    return ms.EpochStarted(0, epoch, seq)


def stored(number: int) -> Any:
    """Put a batch into the object store."""
    return ray.put((b"", 1, 0, 0, np.full(1, number, np.uint8)))


def test_the_feed_goes_on_where_it_is_when_nobody_took_anything_for_a_moment(machines: Machines) -> None:
    """The run is not over while it can still be joined: its next batch is the next one.

    When it is over, nobody on the producer's machine waits for the feed, though one of the others may come back.
    """
    more, idle, over = FeedOrder((0, 0, 0), 0, False), FeedOrder(None, 0, True), FeedOrder(None, None, False)
    hub = scripted([more, more, more, idle, idle, more, more, over])
    with serve_here([torch.tensor([n]) for n in range(9)], name="fed") as producer:
        feed = Feed(hub, producer)
        feed.start()
        members = producer.core.dispatch.members
        try:
            until(lambda: len(ray.get(hub.seen.remote())[0]) == 5)
            until(lambda: [m.phase for m in members.values()] == [Phase.BETWEEN])
        finally:
            feed.retire()
            feed.join(120)
        assert ray.get(hub.seen.remote())[0] == [(0, n) for n in range(5)]


def test_an_answer_that_gets_lost_is_asked_for_again_at_the_same_place(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relay cannot know whether the hub was heard: what it was told then is told again, nothing twice."""
    zero, one, two = (batch(n, stored(n + 10)) for n in range(3))
    first, again = [started(4, 0), zero], [started(4, 1), one, two, ms.EpochEnded(4, 3)]
    hub = scripted([], [first, first, [one], again])
    answers = 0

    def get(ref: Any, *, timeout: float) -> Any:
        nonlocal answers
        answer = real(ref, timeout=timeout)
        answers += isinstance(answer, list)
        if isinstance(answer, list) and answers in (1, 3):
            raise ActorUnavailableError("its network has gone for a moment", None)
        return answer

    real = ray.get
    with monkeypatch.context() as patch:
        patch.setattr(ray, "get", get)
        patch.setattr(remote_epochs, "AGAIN_S", 0.0)
        images = [got for got in relayed(hub).epoch(4) if isinstance(got, SlotImage)]
    assert [int(image.memory[0]) for image in images] == [10, 11, 12]
    polls = ray.get(hub.seen.remote())[1]
    assert polls == [(1, 4, 0, False), (2, 4, 0, False), (2, 4, 0, False), (3, 4, 1, True)]


def test_a_hub_that_has_gone_is_an_error_where_nobody_ends_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine that is overloaded counts as dead for Ray, and its hub as gone: no wait for it is without an end."""
    monkeypatch.setattr(remote_epochs, "GONE_S", 0.3)
    gone = RemoteEpochs(None, FACTS, lambda: None)
    gone.hub_gone = True
    with pytest.raises(LoaderFailed, match=r"hub.*has ended. Serve the stream again"):
        list(gone.epoch(0))


def test_a_batch_that_never_arrives_and_a_hub_that_says_nothing_are_errors(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for them is told what to look at, once it has been long."""
    monkeypatch.setattr(remote_epochs, "BATCH_S", 0.5)
    silent = scripted()
    never = silent.poll.remote(0, 0, 0, 0, False, None)
    lost = scripted([], [[started(0, 0), batch(0, stored(1)), batch(1, never)]])
    with pytest.raises(LoaderFailed, match=r"Batch 1 of pass 1 has not reached this machine.*`ray memory`"):
        list(relayed(lost).epoch(0))
    monkeypatch.setattr(remote_epochs, "ANSWER_S", 0.2)
    monkeypatch.setattr(remote_epochs, "SILENT_S", 0.5)
    with pytest.raises(LoaderFailed, match=r"has not answered for .*Iterate again"):
        list(relayed(silent).epoch(0))
    unknown = RemoteEpochs(lost, FACTS, lambda: silent.poll.remote(0, 0, 0, 0, False, None))
    with pytest.raises(LoaderFailed, match="has not answered"):
        list(unknown.epoch(0))


def test_stopping_a_stream_does_not_wait_for_a_hub_that_stands_still(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is stopped, as in a debugger: the stream's name is free here afterwards."""
    producer = tsnb.serve([torch.ones(2)], name="stuck", engine="ray")
    monkeypatch.setattr(offer, "STOP_S", 0.5)
    hub = psutil.Process(status("stuck")["pid"])
    hub.suspend()
    try:
        producer.stop()
        assert not [entry for entry in registry.entries() if entry.name == "stuck"]
    finally:
        hub.kill()
