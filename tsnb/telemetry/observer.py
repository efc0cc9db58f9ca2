"""Follow a stream from outside: its readings, and the few things one may ask of it.

An observer has a connection of its own and gets no batches; any number may follow one stream.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

import msgspec

from tsnb.config import check_balance
from tsnb.discovery import registry
from tsnb.errors import JoinRefused, ProducerGone, RemoteProtocolError, TsnbError
from tsnb.machine.processes import is_stopped
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.codec import decode, encode
from tsnb.stream.protocol.extension import READINGS
from tsnb.stream.transport.channel import ChannelClosed
from tsnb.stream.transport.local import connect
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.trial_readings import (
    BesideReading,
    EndReading,
    OutcomeReading,
    OutcomeTold,
    PlanReading,
    StreamsBeside,
    TrialEnded,
    TrialsPending,
    TrialsPlanned,
    TrialsTold,
)
from tsnb.text.foreign import Text, pack

__all__ = ["Divided", "Observer", "Rebalance", "all_streams", "balance", "pause", "rebalance", "status"]

TOLD_S = 1.5
"""How long a producer may take to say how a trial ended: it does at once, unless it stands still."""

_UNDOABLE = ("in-step", "unknown", "workers")
"""Codes of a refusal that is of what was asked for, not of the observer."""


class Rebalance(msgspec.Struct, frozen=True):
    """An observer asks that cores be moved between trials and loader from now on, or put back."""

    on: bool


class Divided(msgspec.Struct, frozen=True):
    """An observer asks that compute be divided in another way."""

    pacing: Text
    """`together`, `weights` or `free`."""
    weights: dict[Text, float]
    """By consumer name."""


class Observer:
    """Follows one producer.

    Args:
        name: The producer's; may be left out while one is running.

    Raises:
        ProducerNotFound: No producer has that name.
        ProducerGone: It has just died.
    """

    def __init__(self, name: str | None = None) -> None:
        self.entry = registry.find(name)
        self.name = self.entry.name
        self.successor_s: float | None = None
        """Once the stream has ended: how long to wait for a producer that takes over, 0 if none will come;
        None if the producer ended without a goodbye."""
        self.welcome: ms.Welcome | None = None
        """What the producer tells a newcomer about its stream; known once the first reading has come."""
        self.told: dict[str, bytes] = {}
        """What extensions of the stream told it last, by their names."""
        try:
            self._channel = registry.reached(self.entry, connect)
            self._pid = self.peer_pid  # in another container the entry's number is another process here
            self._channel.send(encode(self._hello()))
        except ProducerGone:  # it says why
            raise
        except ConnectionError:
            raise self._gone() from None

    def _hello(self) -> ms.Hello:
        return ms.Hello("observer", "observer", registry.describe_origin(), token=self.entry.token)

    @property
    def peer_pid(self) -> int:
        """The producer's process as this machine's kernel says; 0 where it cannot be seen from this container."""
        return self._channel.peer.pid

    def silence(self) -> TsnbError:
        """Return the error that says that the producer does not answer, and what to do. The observer may be closed."""
        return TsnbError(f"The stream {self.entry} does not answer: {registry.why_silent(self._pid)}")

    def lingering(self, waited_s: float) -> TsnbError:
        """Return the error that says that the producer did not stop, and what to do. The observer may be closed.

        Args:
            waited_s: Seconds that it was given.
        """
        asked = f"The stream {self.entry} has not stopped {waited_s:.0f} s after the request"
        if self._pid and is_stopped(self._pid):  # a plain kill would wait for it to go on
            silent = registry.why_silent(self._pid)
            return TsnbError(f"{asked}: {silent} Then it ends. To end it now: `kill -9 {self._pid}`.")
        busy = f"{asked}. Its loader may be in the middle of a long step"
        if not self._pid:
            return TsnbError(f"{busy}, or hang. End its process in {self.entry.elsewhere}.")
        return TsnbError(f"{busy}. To end it without leftovers: `kill {self._pid}`.")

    def read(self, timeout_s: float | None = None) -> StreamReading | None:
        """Wait for the next reading (four come in a second).

        Args:
            timeout_s: Seconds to wait; None waits for good.

        Returns:
            The reading; None when none came in time.

        Raises:
            ProducerGone: The producer died or was stopped.
            JoinRefused: It speaks another version of the protocol.
            RemoteProtocolError: It sends something that is not a message or a reading.
            TsnbError: It cannot do what was asked of it.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                packet = self._channel.receive()
            except ChannelClosed:
                raise self._gone() from None
            if packet is not None:
                message = decode(packet)
                if isinstance(message, ms.Extended) and message.name == READINGS:
                    return _read(message.payload)
                if isinstance(message, ms.Welcome):
                    self.welcome = message
                if isinstance(message, ms.Stopping):
                    self.successor_s = message.reconnect_s
                    raise self._gone()
                if isinstance(message, ms.Extended):
                    self.told[message.name] = message.payload
                    return None
                if isinstance(message, ms.Refused):
                    refused = TsnbError if message.code in _UNDOABLE else JoinRefused
                    raise refused(f"{message.reason}.")
            elif not self._channel.wait(None if deadline is None else deadline - time.monotonic()):
                return None

    def now(self) -> StreamReading:
        """Return the next reading.

        Raises:
            ProducerGone: The producer died or was stopped.
            TsnbError: It does not answer.
        """
        reading = self.read(5.0)
        if reading is None:
            raise self.silence()
        return reading

    def request_stop(self, reconnect_s: float = 0.0) -> None:
        """Ask the producer to stop in good order; `read` raises `ProducerGone` when it has.

        Args:
            reconnect_s: Seconds that its consumers shall wait for a producer of this name to be started again.
        """
        self._send(ms.StopProducer(reconnect_s))

    def request_consumer_stop(self, consumer: str) -> None:
        """Ask that a consumer's loop end: it raises `StopRequested` at its next step."""
        self._send(ms.Steer({consumer: "stop"}))

    def request_pause(self, consumers: Mapping[str, bool]) -> None:
        """Ask that consumers pause at their next batch (True), or go on; the readings say when they are paused."""
        self._send(ms.Steer({name: "pause" if on else "go on" for name, on in consumers.items()}))

    def pause(self, *consumers: str, on: bool = True) -> None:
        """Have consumers pause at their next batch, or go on, all at once, and wait until they are asked to.

        Args:
            *consumers: The consumers' names.
            on: Pause; else go on.

        Raises:
            ProducerGone: The producer died before it answered.
            TsnbError: One of them is not attached: then nothing is done. Or the producer does not answer.
        """
        deadline = time.monotonic() + 5.0
        states: dict[str, str] = {}
        self.request_pause(dict.fromkeys(consumers, on))
        while (left := deadline - time.monotonic()) > 0:
            reading = self.read(left)
            if reading is None:
                continue
            states = {c.name: c.state for c in reading.consumers}
            # a reading may be older than the request: a name that it lacks may still be refused
            if all(name in states and _is_done(states[name], on) for name in consumers):
                return
        if not states or not all(_is_done(states.get(name, "gone"), on) for name in consumers):
            raise self.silence()

    def tell_end(self, end: EndReading, timeout_s: float = TOLD_S) -> bool:
        """Tell how a trial ended, and wait until the stream's readings say so; return whether they do.

        Args:
            end: How it ended.
            timeout_s: Seconds to wait.

        Raises:
            ProducerGone: The producer has gone.
        """
        self._tell(TrialEnded(end))
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            reading = self.read(left)
            if reading is not None and (end.name, end.time_s) in ((e.name, e.time_s) for e in reading.ends):
                return True
        return False

    def tell_pending(self, states: Mapping[str, str], to_come: int = 0) -> bool:
        """Tell which trials of this process are not attached yet; it takes the place of what was told before.

        Args:
            states: State and reason of each, as `tsnb.trials` shows them, by name.
            to_come: How many trials of sweeps are still to attach.

        Returns:
            Whether there was room for it.
        """
        return self._tell(TrialsPending(dict(states), to_come))

    def tell_planned(self, plan: PlanReading | None) -> bool:
        """Tell what a plan of this process says of the stream's trials; it takes the place of what was told before.

        Args:
            plan: It; None: there is none any more.

        Returns:
            Whether there was room for it.
        """
        return self._tell(TrialsPlanned(plan))

    def tell_beside(self, cores: Mapping[str, float], left_s: Mapping[str, float]) -> bool:
        """Tell which other streams have trials on this machine; it takes the place of what was told before.

        Args:
            cores: Cores that the trials and the loader of each keep busy, by the stream's name.
            left_s: Seconds until the last trial of each ends, where that is known.

        Returns:
            Whether there was room for it.
        """
        now_s, left = time.time(), dict(left_s)
        ends_s = {name: now_s + left[name] for name in cores if name in left}
        told = (BesideReading(name, busy, ends_s.get(name)) for name, busy in cores.items())
        return self._tell(StreamsBeside(tuple(told)))

    def tell_outcome(self, outcome: OutcomeReading) -> bool:
        """Tell how this process compares the stream's trials; it takes the place of what was told before.

        Args:
            outcome: Metrics that decide, declared directions, and what limited the stream.

        Returns:
            Whether there was room for it.
        """
        return self._tell(OutcomeTold(outcome))

    def request_balance(self, pacing: str, weights: Mapping[str, float]) -> None:
        """Ask that compute be divided in another way; the readings say when it is."""
        self.tell("pacing", pack(Divided(pacing, dict(weights))))

    def _tell(self, told: TrialsTold) -> bool:
        return self.tell("ends", pack(told))

    def tell(self, extension: str, payload: bytes) -> bool:
        """Send an extension of the stream a payload; return whether there was room for it.

        Raises:
            ProducerGone: The producer has gone.
        """
        return self._send(ms.Extended(extension, payload))

    def _send(self, message: ms.Message) -> bool:
        try:
            return self._channel.send(encode(message))
        except ChannelClosed:
            raise self._gone() from None

    def fileno(self) -> int:
        """Return a descriptor that is readable when a reading waits."""
        return self._channel.fileno()

    def close(self) -> None:
        """Stop following."""
        self._channel.close()

    def _gone(self) -> ProducerGone:
        return ProducerGone(f"The stream {self.entry.name!r} ({self.entry.whose_pid}) has ended.")


def _read(payload: bytes) -> StreamReading:
    try:
        return StreamReading.from_json(payload.decode())
    except ValueError as error:
        raise RemoteProtocolError(str(error)) from None


def status(stream: str | None = None) -> StreamReading:
    """Return one reading of a stream: its trials, epoch, lag and rates.

    Example:
        >>> tsnb.streams.status("digits").batches

    Args:
        stream: Name of the stream. Defaults to the only one running.

    Raises:
        ProducerNotFound: If no stream has that name.
        ProducerGone: If the stream's process died before it answered.
        TsnbError: If the stream does not answer.
    """
    with contextlib.closing(Observer(stream)) as observer:
        return observer.now()


def balance(
    stream: str | None, pacing: str, weights: Mapping[str, float] | None = None, *, timeout_s: float = 5.0
) -> StreamReading:
    """Change how a running stream divides compute between its trials.

    Example:
        >>> tsnb.streams.balance("digits", "weights", {"my-model": 2})

    Args:
        stream: Name of the stream, or None while only one is running.
        pacing: "together", "weights" or "free" (docs/balance.md).
        weights: Weight of each trial by name, only with "weights". Defaults to None.
        timeout_s: Seconds to wait for the change. Defaults to 5.

    Returns:
        A reading of the stream after the change.

    Raises:
        ValueError: If the pacing is unknown, or the weights are invalid for it.
        ProducerNotFound: If no stream has that name.
        ProducerGone: If the stream's process died before it answered.
        TsnbError: If the stream does not answer, or belongs to a cluster.
    """
    asked = check_balance(pacing, weights)
    with contextlib.closing(Observer(stream)) as observer:
        observer.request_balance(*asked)
        return _read_until(lambda reading: (reading.pacing, reading.weights) == asked, observer, timeout_s)


def rebalance(stream: str | None = None, *, on: bool) -> None:
    """Have a stream's producer move cores between trials and loader from now on, or put them back.

    Args:
        stream: The stream's name; may be left out while one producer is running.
        on: Whether they are to be moved.

    Raises:
        ProducerNotFound: No producer has that name.
        ProducerGone: It died before it answered.
        TsnbError: It does not answer, or is a stream of a cluster.
    """
    with contextlib.closing(Observer(stream)) as observer:
        observer.tell("cores", pack(Rebalance(on)))
        _read_until(lambda reading: (reading.rebalancing != "off") == on, observer, 5.0)


def _read_until(done: Callable[[StreamReading], bool], observer: Observer, timeout_s: float) -> StreamReading:
    """Return the first reading that is as asked."""
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        reading = observer.read(left)
        if reading is not None and done(reading):
            return reading
    raise observer.silence()


@contextlib.contextmanager
def all_streams() -> Iterator[list[tuple[Observer, StreamReading]]]:
    """Follow all streams of this machine that answer, each by one connection, with a reading of now."""
    with contextlib.ExitStack() as followed:
        found = []
        for entry in registry.entries():
            with contextlib.suppress(TsnbError):  # it has just ended, or does not answer
                observer = followed.enter_context(contextlib.closing(Observer(entry.name)))
                found.append((observer, observer.now()))
        yield found


def pause(name: str | None, *consumers: str, on: bool = True) -> None:
    """Have consumers pause at their next batch, or go on, all at once. Nobody waits for one that is paused.

    Args:
        name: The stream's name; may be None while one producer is running.
        *consumers: The consumers' names.
        on: Pause; else go on.

    Raises:
        ProducerNotFound: There is no such producer.
        ProducerGone, TsnbError: As `Observer.pause`.
    """
    with contextlib.closing(Observer(name)) as observer:
        observer.pause(*consumers, on=on)


def _is_done(state: str, on: bool) -> bool:
    """Return whether a consumer is paused or continues as asked. One that has left is not waited for."""
    return state == "gone" or (state == "paused") == on
