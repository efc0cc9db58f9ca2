"""A relay's source: epochs that come from the hub, batch by batch. As `stream.loader.sources.Source`."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    GetTimeoutError,
    ObjectLostError,
    RayError,
)

from tsnb.cluster.hub_dispatch import Covers, Offered, SampleParts
from tsnb.errors import LoaderFailed
from tsnb.stream.loader.facts import Indices
from tsnb.stream.loader.packing import SlotImage
from tsnb.stream.loader.repeating import Covering, EpochIs
from tsnb.stream.protocol import messages as ms

__all__ = ["RemoteEpochs"]

ANSWER_S = 5.0
"""The hub answers within a second; one that is late is waited for again."""
SILENT_S = 60.0
"""How long the hub may give no answer at all."""
AGAIN_S = 0.5
"""A hub that cannot be reached, and is not known to have died, is asked again."""
BATCH_S = 60.0
"""How long a batch may take from another machine."""
GONE_LOOK_S = 0.1
"""How often it is looked whether a stream whose hub has gone has ended here."""
GONE_S = 10.0
"""How long the end of the producer's process may take to be heard of."""


class _NoAnswer(Exception):
    """The hub has not answered yet, or has gone."""


class _Lost(NamedTuple):
    """An answer of the hub may have got lost, and its messages do not come again."""


class RemoteEpochs:
    """Epochs of a stream of the cluster. Used by a relay's loading thread; `rest` and `beat` by another.

    Args:
        hub: The stream's hub.
        facts: The loader's batch_size, batches, samples, order, indices (as a tuple) and batch_bytes.
        join: Asks the hub to know this relay; returns the reference of its key.

    Attributes:
        hub_gone: Whether the hub has ended.
    """

    persistent = False
    workers = 0
    ahead = 0
    ordinary = ""
    cover: int | None = None
    drawn: Sequence[Any] | None = None

    def __init__(self, hub: Any, facts: dict[str, Any], join: Callable[[], Any]) -> None:
        self.batch_size: int | None = facts["batch_size"]
        self.batches: int | None = facts["batches"]
        self.samples: int | None = facts["samples"]
        self.order: str = facts["order"]
        self.indices = Indices(*facts["indices"])
        self.hub_gone = False
        self._batch_bytes: int = facts["batch_bytes"]
        self._hub = hub
        self._join = join
        self._key: int | None = None
        self._ask = 0
        self._wanted: tuple[int, int, bool] = (0, 0, False)  # by that ask
        self._lock = threading.Lock()
        self._parts = SampleParts(1, None, 0)  # which samples are taken here
        self._parts_heard: tuple[int | None, int] = (
            None,
            0,
        )  # that the hub knows: with which key, and their number
        self._parts_polled = 0  # the number of those that went along with `_poll`
        self._poll: Any = None  # the question that waits for the hub's answer
        self._told: deque[Any] = deque()
        self._heard_s = 0.0  # when the hub last answered
        self._looks_gone = 0  # how often it was found to have ended, and the stream here had not

    def most_ahead(self, _batch_bytes: int) -> int:
        """Return 0: batches are copied when they are asked for."""
        return 0

    def worker_pids(self) -> tuple[int, ...]:
        """Return nothing: it has no workers."""
        return ()

    def wake_workers(self) -> None:
        """Do nothing: it has no workers."""

    def drop_workers(self) -> None:
        """Do nothing: it has no workers."""

    def why_empty(self, number: int) -> str:
        """Say what an epoch without a batch may mean."""
        return f"The loader of the stream returned no batch in pass {number + 1}."

    # -- called by the relay's watching thread -------------------------------------------------------------

    @property
    def ask(self) -> int:
        """How often an epoch was asked for."""
        return self._ask

    def rest(self, ask: int) -> None:
        """Tell the hub that no consumer here takes an epoch, unless one was asked for since that ask."""
        if self._key is not None:
            self._hub.leave.remote(self._key, ask, True)

    def expect(self, expects: int | None) -> bool:
        """Note which samples consumers here take, a bit each; None: all. Return whether the hub has yet to hear it."""
        with self._lock:
            self._note(self._parts._replace(expects=expects))
        return self._key is not None and self._untold(self._key) is not None

    def _note(self, parts: SampleParts) -> None:
        if parts != self._parts:
            self._parts = parts._replace(number=self._parts.number + 1)

    def _take(self, cover: int | None) -> None:
        """Note which samples this epoch has, or is to have."""
        with self._lock:
            self._note(self._parts._replace(cover=cover))

    def _untold(self, key: int | None) -> SampleParts | None:
        """Return which samples are taken here, until the hub knows it."""
        parts = self._parts
        return None if self.indices.samples is None or self._parts_heard == (key, parts.number) else parts

    def beat(self) -> None:
        """Tell the hub that this relay lives, and what its consumers take."""
        key = self._key
        parts = self._untold(key)
        try:
            known = ray.get(self._hub.beat.remote(key, parts), timeout=ANSWER_S)
        except ActorDiedError:
            self.hub_gone = True
        except RayError:  # late, or out of reach: the next one may not be
            pass
        else:
            self._heard_s = time.monotonic()
            if known and parts is not None:
                self._parts_heard = (key, parts.number)
            if not known and self._key == key:  # not joined again meanwhile
                self._key = None

    # -- called by the relay's loading thread --------------------------------------------------------------

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """Give an epoch's batches as `SlotImage`; `EpochIs` while there is no batch, and where it is another epoch.

        `Covering` where it holds more samples than were asked for.
        """
        self._take(self.cover)
        self._heard_s = time.monotonic()
        self._begin()
        epoch, seq = number, start
        self._want(epoch, seq, exact=bool(start))
        over = begun = False
        try:
            while not over:
                message = self._next()
                if message is None:
                    yield EpochIs(epoch)
                    continue
                if isinstance(message, ms.EpochStarted):
                    begun = True
                    if message.epoch != epoch:
                        epoch = message.epoch
                        yield EpochIs(epoch)
                elif isinstance(message, Covers):
                    self._take(message.cover)  # and no less, should it be asked for again
                    yield Covering(message.cover)
                elif isinstance(message, Offered):
                    seq = message.seq
                    yield from self._bring(message.lease, message.refs, epoch, seq)
                    seq += 1
                elif isinstance(message, (ms.Parked, _Lost)):  # what is lacking may still be there
                    self._want(epoch, seq, exact=begun or bool(start))
                else:
                    over = True
                    if not isinstance(message, ms.EpochEnded) or message.failed:
                        raise _failure(message, epoch, seq)
        finally:
            self._told.clear()
            if not over and self._key is not None:
                self._hub.leave.remote(self._key, self._ask, False)

    def _begin(self) -> None:
        """Be known to the hub, from the first time on, and again after this relay was given up."""
        asked = None
        while self._key is None and not self.hub_gone:
            asked = asked or self._join()
            try:
                self._key = self._answer(asked)
            except ActorUnavailableError:
                asked = None
            except _NoAnswer:
                pass

    def _answer(self, asked: Any) -> Any:
        """Return the hub's answer.

        Raises:
            _NoAnswer: It stays out so far; or the hub has gone.
            ActorUnavailableError: It will not come, though the question may have been heard.
            LoaderFailed: None has come for long.
        """
        try:
            answer = ray.get(asked, timeout=ANSWER_S)
        except ActorDiedError:
            self.hub_gone = True
            raise _NoAnswer from None
        except (ActorUnavailableError, GetTimeoutError) as error:
            if time.monotonic() - self._heard_s > SILENT_S:
                raise LoaderFailed(
                    f"The stream's hub has not answered for {SILENT_S:.0f} s. Its process runs on the "
                    "machine of the stream, which is stopped, overloaded or unreachable. Iterate again "
                    "when that machine is back."
                ) from None
            if isinstance(error, GetTimeoutError):
                raise _NoAnswer from None
            time.sleep(AGAIN_S)
            raise
        self._heard_s = time.monotonic()
        return answer

    def _want(self, epoch: int, seq: int, *, exact: bool) -> None:
        self._ask += 1
        self._wanted = (epoch, seq, exact)
        self._poll = None
        self._told.clear()

    def _bring(self, lease: int, refs: list[Any], epoch: int, seq: int) -> Iterator[SlotImage]:
        """Give a batch, once it has come to this machine, and let go of it when it lies in the arena.

        Raises:
            LoaderFailed: It does not come.
        """
        what = f"Batch {seq} of pass {epoch + 1}"
        try:
            image = SlotImage(*ray.get(refs.pop(), timeout=BATCH_S))._replace(first_bytes=self._batch_bytes)
        except GetTimeoutError:
            raise LoaderFailed(
                f"{what} has not reached this machine within {BATCH_S:.0f} s: the network is "
                "overloaded, or its object store is full (`ray memory` lists its contents). Iterate "
                "again for the next epoch."
            ) from None
        except ObjectLostError:
            # with the producer's process: then hub and relay end too, and consumers hear of that
            deadline = time.monotonic() + GONE_S
            while not self.hub_gone:
                if time.monotonic() > deadline:
                    raise LoaderFailed(
                        f"{what} was lost during the transfer. Iterate again for the next epoch."
                    ) from None
                time.sleep(0.1)
            return
        self.drawn = cast("Any", np.frombuffer(image.drawn, "<u4")) if image.drawn else None
        yield image
        del image
        self._hub.took.remote(self._key, self._ask, lease)

    def _await_end(self) -> None:
        """The hub has gone, and the watching thread ends this stream: wait a moment.

        Raises:
            LoaderFailed: It has not been ended for long.
        """
        self._looks_gone += 1
        if self._looks_gone * GONE_LOOK_S > GONE_S:
            raise LoaderFailed(
                "The stream's hub, a process on the machine of the stream, has ended. Serve the stream again."
            )
        time.sleep(GONE_LOOK_S)

    def _next(self) -> Any:
        """Return the next message of this ask; None when none has come for a moment."""
        while self._told:
            ask, message = self._told.popleft()
            if ask == self._ask:
                return message
        if self.hub_gone:
            self._await_end()
            return None
        if self._poll is None:
            parts = self._untold(self._key)
            self._parts_polled = 0 if parts is None else parts.number
            self._poll = self._hub.poll.remote(self._key, self._ask, *self._wanted, parts)
        try:
            told = self._answer(self._poll)
        except _NoAnswer:
            return None
        except ActorUnavailableError:
            return _Lost()  # the answer may have been, and its messages do not come again
        self._poll = None
        if told is not None and self._parts_polled:
            self._parts_heard = (self._key, self._parts_polled)
        if told is None:
            self._key = None
            raise LoaderFailed(
                "This machine was out of reach of the stream for too long and was dropped. Iterate "
                "again: it rejoins automatically."
            )
        self._told.extend(told)
        pulled = [one.refs[0] for ask, one in told if isinstance(one, Offered) and ask == self._ask]
        if pulled:  # all of them set out for this machine now
            ray.wait(pulled, num_returns=len(pulled), timeout=0, fetch_local=True)
        return None if not told else self._next()


def _failure(told: ms.EpochEnded | ms.NotJoined, epoch: int, seq: int) -> LoaderFailed:
    if isinstance(told, ms.EpochEnded):
        return LoaderFailed(told.message, told.traceback)
    return LoaderFailed(
        f"This machine cannot continue at batch {seq} of pass {epoch + 1}: its trials stalled or came "
        f"back too late, and other machines have continued to batch {told.published} of pass "
        f"{told.epoch + 1}. Iterate again for the next epoch. If you pause on purpose, serve with a larger "
        "stall_timeout_s."
    )
