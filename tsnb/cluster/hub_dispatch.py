"""A hub's knowledge and decisions, without Ray: which machine may have which batch, and which batches are kept.

Pure: time comes in, messages for the machines come out. It runs `stream.decisions` with relays for members and
references to objects for slots; a reference that is no longer needed is dropped, which frees its object everywhere.

Window and late-join window are bounded in bytes: to as many of the largest batch so far as `budget_bytes` holds, and at
least one. A store holds at most the larger of the two at once, one more, and two of each machine that was parked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.dispatch import Dispatch
from tsnb.stream.decisions.phases import Phase
from tsnb.stream.protocol import messages as ms

__all__ = ["LEASE_S", "ClusterDispatch", "Covers", "Offered", "SampleParts", "Told"]

LEASE_S = 10.0
"""A relay that says nothing for so long is given up; one whose process has died is noticed sooner, by Ray."""
IDLE_S = 1.0
"""After so long without a taker the loader leaves an epoch."""


class Offered(NamedTuple):
    """A batch that a relay may copy into its arena."""

    lease: int
    epoch: int
    seq: int
    refs: list[Any]
    """References to the object that it is, in the object store."""


class Covers(NamedTuple):
    """The epoch that a relay takes holds more samples than it asked for."""

    cover: int | None
    """What it holds, a bit each; None: all."""


class SampleParts(NamedTuple):
    """Which samples are taken: on one machine, as its relay says; on all of them, as the hub says to the feed."""

    number: int
    """Counts what the relay, or the hub, says: a larger one is later."""
    cover: int | None
    """What is taken of the epoch that is asked for, a bit each; None: all."""
    expects: int | None
    """What will be taken of those that begin later: of what is attached now."""


class Told(NamedTuple):
    """One message for a relay. `ask` is the number of its ask that it belongs to: older ones are out of date."""

    ask: int
    message: ms.EpochStarted | Covers | Offered | ms.EpochEnded | ms.Parked | ms.NotJoined


@dataclass
class _RelayState:
    name: str
    seen_s: float
    ask: int = 0
    messages: list[Told] = field(default_factory=list)
    given: list[int] = field(default_factory=list)
    """The leases that it was told of, and has not said that it has copied."""
    parts: int = 0
    """The number of what it has said last of the samples that it takes."""
    batches: int = 0
    size: int = 0


class ClusterDispatch:
    """One stream's, over all machines.

    Args:
        window: Batches that the fastest machine may be ahead of the slowest.
        band: Batches from an epoch's start that are kept for machines that come late.
        stall_timeout_s: Seconds that the others wait for a machine that stands still.
        budget_bytes: What may lie in an object store.
        now: Monotonic seconds. For `stall_timeout_s` from then on machines may come back one by one.
        repeatable: Whether the loader can give an epoch again in the same order.
        indexed: Whether batches tell which samples they hold, so that a machine may take a part of them.

    Attributes:
        largest: Bytes of the largest batch so far.
        kept_bytes: Bytes of what is kept now.
        most_bytes: The most that was.
    """

    def __init__(
        self,
        window: int,
        band: int,
        stall_timeout_s: float,
        budget_bytes: int,
        now: float,
        *,
        repeatable: bool,
        indexed: bool = False,
    ) -> None:
        self.decisions = Dispatch(window, band, stall_timeout_s)
        self.decisions.note_repeatable(repeatable)
        self.decisions.never_load_in_vain()
        self.relays: dict[int, _RelayState] = {}
        self.largest = self.kept_bytes = self.most_bytes = 0
        self._budget_bytes = budget_bytes
        self._indexed = indexed
        self._parts = SampleParts(0, 0, 0)  # that the feed was told last
        self._refs: dict[int, tuple[Any, int]] = {}
        self._slots = self._keys = 0
        self._idle_since: float | None = None
        self._ticked_s: float | None = None
        self._step(ev.Withdrawn(0), now)  # the local stream has proven the loader: nothing is loaded ahead

    # -- the loader ----------------------------------------------------------------------------------------

    @property
    def wanted(self) -> ev.Wanted | None:
        """What the feed should give next."""
        return self.decisions.wanted

    @property
    def loading(self) -> int | None:
        """The run that may want more, now or later; None: whatever was begun is over."""
        loading = self.decisions.epochs.loading
        return None if loading is None else loading.run

    @property
    def idle(self) -> bool:
        """Whether no machine takes an epoch, waits for one, or is expected back."""
        return self.decisions.idle

    def loaded(self, run: int, ref: Any, size: int, rows: int, now: float) -> None:
        """The run's next batch lies in the object store.

        Args:
            run: As wanted.
            ref: Keeps it there.
            size: Its bytes.
            rows: Its samples.
            now: Monotonic seconds.
        """
        self.largest = max(self.largest, size)
        self.shrink(self._budget_bytes)
        self._slots += 1
        self._refs[self._slots] = (ref, size)
        self.kept_bytes += size
        self.most_bytes = max(self.most_bytes, self.kept_bytes)
        self._step(ev.BatchLoaded(run, ev.Placed(self._slots, b"", rows, 0, 0)), now)

    def shrink(self, budget_bytes: int) -> None:
        """Keep no more than this from now on, nor than was said before."""
        self._budget_bytes = min(self._budget_bytes, budget_bytes)
        if self.largest:
            self.decisions.narrow(max(1, self._budget_bytes // self.largest))

    def parts(self, known: int) -> SampleParts | None:
        """Return which samples the feed is to take; None: those that it knows.

        Args:
            known: The number of what it was told last.
        """
        loading, expects = self.decisions.epochs.loading, self.decisions.admission.wanted()
        now = SampleParts(self._parts.number, expects if loading is None else loading.cover, expects)
        if now != self._parts or not now.number:
            self._parts = now._replace(number=now.number + 1)
        return self._parts if self._indexed and known != self._parts.number else None

    def covered(self, run: int, cover: int | None, now: float) -> None:
        """The run's batches hold more samples than were wanted; said before the first of them.

        Args:
            run: As wanted.
            cover: What they hold, a bit each; None: all.
            now: Monotonic seconds.
        """
        self._step(ev.Covered(run, cover), now)
        for key, relay in self.relays.items():
            member = self.decisions.members[key]
            if member.phase is Phase.STREAMING and member.run == run:
                self._tell(relay, Covers(cover))

    def renumbered(self, run: int, epoch: int, now: float) -> None:
        """The run is of another epoch than was wanted."""
        self._step(ev.Renumbered(run, epoch), now)

    def ended(self, run: int, now: float) -> None:
        """The loader has no more batches in this run."""
        self._step(ev.LoaderEnded(run), now)

    def raised(self, run: int, message: str, traceback: str, now: float) -> None:
        """The loader raised."""
        self._step(ev.LoaderRaised(run, message, traceback), now)

    # -- relays --------------------------------------------------------------------------------------------

    def join(self, name: str, now: float) -> int:
        """A machine's relay is there; return its key."""
        self._keys += 1
        self.relays[self._keys] = _RelayState(name, now)
        self._step(ev.Heard(self._keys, ms.Hello("consumer", name, "")), now)
        if self._indexed:
            self._step(ev.Announced(self._keys, 0, 0), now)
        return self._keys

    def left(self, key: int, now: float) -> None:
        """A relay has gone: what was kept for it is kept no more."""
        if self.relays.pop(key, None) is not None:
            self._step(ev.Left(key), now)

    def alive(self, key: int | None, now: float) -> bool:
        """A relay has said something; return whether it is known."""
        relay = None if key is None else self.relays.get(key)
        if relay is not None:
            relay.seen_s = now
        return relay is not None

    def announce(self, key: int | None, parts: SampleParts | None, now: float) -> None:
        """A relay says which samples its consumers take; None: nothing new. What comes too late is not heard."""
        relay = None if key is None else self.relays.get(key)
        if key is not None and relay is not None and parts is not None and parts.number > relay.parts:
            relay.parts = parts.number
            self._step(ev.Announced(key, parts.cover, parts.expects), now)

    def ask(self, key: int, ask: int, epoch: int, seq: int, exact: bool, now: float) -> None:
        """A relay wants an epoch, and holds nothing any more (`protocol.messages.Ask`). Heard once, however often said.

        Args:
            key: The relay's.
            ask: Its number for this ask, each larger than the one before.
            epoch: As `protocol.messages.Ask`.
            seq: As `protocol.messages.Ask`.
            exact: As `protocol.messages.Ask`.
            now: Monotonic seconds.
        """
        relay = self.relays.get(key)
        if relay is not None and ask > relay.ask:
            relay.ask = ask
            relay.messages.clear()
            relay.given.clear()
            self._step(ev.Heard(key, ms.Ask(ask, epoch, seq, exact)), now)

    def took(self, key: int, ask: int, lease: int, now: float) -> None:
        """A relay has copied a batch into its arena."""
        relay = self.relays.get(key)
        if relay is not None and relay.ask == ask and lease in relay.given:
            relay.given.remove(lease)
            self._step(ev.Heard(key, ms.Take()), now)
            self._step(ev.Heard(key, ms.Release(lease)), now)

    def more(self, key: int, ask: int, now: float) -> list[Told]:
        """Return, and forget, the messages for a relay that has nothing left to copy.

        So it has copied all batches offered before; its own word of that may have got lost.
        """
        relay = self.relays.get(key)
        if relay is None or relay.ask != ask:
            return []  # it has asked again since
        for lease in list(relay.given):
            self.took(key, ask, lease, now)
        told, relay.messages = relay.messages, []
        relay.given += [one.message.lease for one in told if isinstance(one.message, Offered)]
        if not told:
            self._step(ev.Heard(key, ms.Waiting()), now)
        return told

    def leave(self, key: int, ask: int, rest: bool, now: float) -> None:
        """Note that a relay left the epoch of that ask; if it rests, the others do not wait for its next one."""
        relay = self.relays.get(key)
        if relay is None or relay.ask != ask:
            return  # it has asked again since
        relay.messages.clear()
        relay.given.clear()
        self._step(ev.Heard(key, ms.Leave()), now)
        if rest:
            self._step(ev.Heard(key, ms.Rest()), now)
        for lease in list(self.decisions.members[key].leases):  # what it reads just now, Ray keeps for it
            self._step(ev.Heard(key, ms.Release(lease)), now)

    # -- the clock -----------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[int]:
        """Time has passed: call it every second or so.

        Returns:
            The relays that were given up.
        """
        late_s = 0.0 if self._ticked_s is None else max(0.0, now - self._ticked_s - 2.0)
        self._ticked_s = now
        if late_s:  # nothing was heard because nobody listened
            for relay in self.relays.values():
                relay.seen_s += late_s
        silent = [key for key, relay in self.relays.items() if now - relay.seen_s > LEASE_S]
        for key in silent:
            self.left(key, now)
        self._step(ev.Tick(late_s), now)
        loading = self.loading
        if not self.idle or loading is None:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= IDLE_S:
            self._step(ev.Withdrawn(loading), now)
        return silent

    # -- instructions --------------------------------------------------------------------------------------

    def _step(self, event: ev.Event, now: float) -> None:
        for made in self.decisions.step(event, now):
            if isinstance(made, ev.FreeSlot):
                self.kept_bytes -= self._refs.pop(made.slot)[1]
            elif isinstance(made, ev.Granted):
                relay = self.relays[made.member]
                ref, size = self._refs[made.batch.slot]
                relay.batches += 1
                relay.size += size
                self._tell(relay, Offered(made.lease, made.epoch, made.seq, ref))
            elif isinstance(made, ev.Tell) and not isinstance(
                made.message, ms.HeldUp
            ):  # a relay has nobody to tell
                self._tell(self.relays[made.member], made.message)
                if isinstance(made.message, ms.EpochStarted) and self._indexed:
                    self._tell_of_more(made.member)

    def _tell_of_more(self, key: int) -> None:
        """Tell a relay that begins an epoch what that holds, if it is more than it asked for."""
        member = self.decisions.members[key]
        cover = self.decisions.epochs.get(member.run).cover
        if cover != member.part:
            self._tell(self.relays[key], Covers(cover))

    def _tell(self, relay: _RelayState, message: Any) -> None:
        relay.messages.append(Told(relay.ask, message))
