"""A relay's source: epochs that come from the hub, batch by batch. As `producer.loading.Source`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from tsnb.errors import LoaderFailed
from tsnb.producer.packing import SlotImage
from tsnb.producer.replaying import EpochIs

__all__ = ["RemoteEpochs"]

ANSWER_S = 5.0
"""The hub answers within a second; one that is late is asked again."""
BATCH_S = 60.0
"""How long a batch may take from another machine."""


class RemoteEpochs:
    """Epochs of a stream of the cluster. Used by a relay's loading thread; `rest` and `beat` by another.

    Args:
        hub: The stream's hub.
        facts: The loader's batch_size, batches, samples and order.
        join: Makes this relay known to the hub and returns its key.

    Attributes:
        hub_gone: Whether the hub has ended.
    """

    persistent = False
    workers = 0
    ahead = 0

    def __init__(self, hub: Any, facts: dict[str, Any], join: Callable[[], int]) -> None:
        self.batch_size: int | None = facts["batch_size"]
        self.batches: int | None = facts["batches"]
        self.samples: int | None = facts["samples"]
        self.order: str = facts["order"]
        self.hub_gone = False
        self._hub = hub
        self._join = join
        self._key: int | None = None
        self._ask = 0
        self._poll: Any = None  # the question that waits for the hub's answer
        self._told: deque[Any] = deque()

    def most_ahead(self, _batch_bytes: int) -> int:
        """Return 0: batches are copied when they are asked for."""
        return 0

    def wake_workers(self) -> None:
        """There are none."""

    def drop_workers(self) -> None:
        """There are none."""

    def why_empty(self, number: int) -> str:
        """Say what an epoch without a batch may mean."""
        return f"the producer's loader gave none in epoch {number}."

    # -- called by the relay's watching thread -------------------------------------------------------------

    @property
    def ask(self) -> int:
        """How often an epoch was asked for."""
        return self._ask

    def rest(self, ask: int) -> None:
        """Tell the hub that nobody here takes anything, unless an epoch was asked for since that ask."""
        if self._key is not None:
            self._hub.leave.remote(self._key, ask, True)

    def beat(self) -> None:
        """Tell the hub that this relay lives."""
        if self._key is None:
            return
        try:
            known = ray.get(self._hub.beat.remote(self._key), timeout=ANSWER_S)
        except RayActorError:
            self.hub_gone = True
        except RayError:  # late: the next one may not be
            pass
        else:
            if not known:
                self._key = None

    # -- called by the relay's loading thread --------------------------------------------------------------

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """Give an epoch's batches as `SlotImage`; `EpochIs` while there is none, and where it is another epoch."""
        if self._key is None:
            self._key = self._join()
            self._poll = None
        epoch, seq = number, start
        self._send(epoch, seq, exact=bool(start))
        over = False
        try:
            while not over:
                message = self._next()
                if message is None:
                    yield EpochIs(epoch)
                    continue
                kind, content = message
                if kind == "started":
                    if content[0] != epoch:
                        epoch = content[0]
                        yield EpochIs(epoch)
                elif kind == "batch":
                    lease, _, seq, refs = content
                    image = SlotImage(*ray.get(refs[0], timeout=BATCH_S))
                    del refs, content, message
                    yield image
                    del image  # it lies in the arena now
                    self._hub.took.remote(self._key, self._ask, lease)
                    seq += 1
                elif kind == "parked":
                    self._send(epoch, seq, exact=True)  # what is lacking may still be there
                else:
                    over = True
                    if kind != "ended":
                        raise _failure(kind, content, epoch, seq)
        finally:
            self._told.clear()
            if not over and self._key is not None:
                self._hub.leave.remote(self._key, self._ask, False)

    def _send(self, epoch: int, seq: int, *, exact: bool) -> None:
        self._ask += 1
        self._told.clear()
        self._hub.ask.remote(self._key, self._ask, epoch, seq, exact)

    def _next(self) -> tuple[str, Any] | None:
        """Return the next message of this ask; None when none has come for a moment."""
        while self._told:
            ask, kind, content = self._told.popleft()
            if ask == self._ask:
                return kind, content
        if self.hub_gone:
            time.sleep(0.1)  # the watching thread ends this stream
            return None
        if self._poll is None:
            self._poll = self._hub.poll.remote(self._key)
        try:
            told = ray.get(self._poll, timeout=ANSWER_S)
        except GetTimeoutError:
            return None
        except RayActorError:
            self.hub_gone = True
            return None
        self._poll = None
        if told is None:
            self._key = None
            raise LoaderFailed(
                "this machine was out of reach of the stream's producer for too long, and was given up. Iterate again: "
                "it joins again by itself."
            )
        self._told.extend(told)
        pulled = [content[3][0] for ask, kind, content in told if kind == "batch" and ask == self._ask]
        if pulled:  # all of them set out for this machine now
            ray.wait(pulled, num_returns=len(pulled), timeout=0, fetch_local=True)
        return None if not told else self._next()


def _failure(kind: str, content: Any, epoch: int, seq: int) -> LoaderFailed:
    if kind == "failed":
        return LoaderFailed(*content)
    return LoaderFailed(
        f"this machine cannot go on at batch {seq} of epoch {epoch}: its consumers stood still, or came back too late, "
        f"and other machines have gone on to batch {content[1]} of epoch {content[0]}. Iterate again for the next "
        "epoch. For long pauses on purpose serve with a larger patience_s."
    )
