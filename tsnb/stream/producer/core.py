"""What the producer's threads share, under one lock: decisions, arena, free slots, connections.

The loading thread (`producer.feeder`) and the serving thread (`producer.server`) both call `step`, and
follow the instructions at once, so a batch goes out from the thread that loaded it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tsnb.config import MAX_CONSUMERS
from tsnb.machine.memory import free_memory
from tsnb.options import StreamOptions, check_in_step
from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.dispatch import Dispatch
from tsnb.stream.decisions.pacing.contract import LOOKAHEAD
from tsnb.stream.decisions.phases import Phase
from tsnb.stream.loader.generators import Seeds
from tsnb.stream.loader.seams import OwnOrder, SampleStore
from tsnb.stream.loader.sources import Source
from tsnb.stream.memory.arena import Arena
from tsnb.stream.memory.slots import FreeSlots
from tsnb.stream.producer.devices import StreamDevices
from tsnb.stream.producer.limits import (
    MOST_LAG,
    addresses,
    least_room,
    most_lag,
    no_room_for_turns,
    reach_of,
    require_memory,
    whole_pages,
    wide_window,
)
from tsnb.stream.producer.session import Session
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.extension import Extension
from tsnb.text.masks import masked_text

__all__ = ["HOLD", "MAX_CONSUMERS", "Core", "Settings"]

HOLD = 4
"""Batches a consumer may hold before it gets copies: the one in use, the next, and two of slack."""
BAND_BYTES = 1 << 30
"""The late-join window keeps no more than this, whatever share of the epoch was asked for."""
COOL_BYTES = 1 << 26
"""Memory of cold slots is given back so much at a time, and so much of it stays with free slots, in four at most."""


UNKNOWN_BAND = 4096
"""Batches that it keeps of an epoch whose length is not known, where all of one is asked for."""
DEFAULT_BAND = 0.02
NO_SHARE = (
    "The loader of %r has no length, so late_join=%s, which is a share of the epoch, has no effect: "
    "the first %d batches are kept. Pass late_join=1 to keep all that fits, or serve a loader that "
    "defines __len__."
)


@dataclass(frozen=True)
class Settings(StreamOptions):
    """The user's options for a stream, and whether it is part of a larger one."""

    name: str = ""
    least_band: int = 0
    """Batches that the late-join window keeps at least; no fewer than the window."""
    in_step: bool = False
    """Whether it is one machine's part of a cluster's stream: its pacing is `together`, and no cores are moved."""


class Core:
    """The shared state of one producer.

    Attributes:
        lock: Guards everything here.
        changed: Its condition: notified when the loader may go on, or should stop.
        unordered: Why an epoch cannot be given again; empty where it can.
        dataset: What consumers are told of the loader's dataset (`loader.facts`).
        seeds: What loops over the plain loader draw.
        draws: Whether the loader's own code draws from this process's global generators.
        stopping: Set once, by `stop`.
        stop_asked: Set when the producer should stop: an observer asks, or a thread cannot go on.
        farewell: The last message to consumers.
        successor_s: How long they are told to wait for a successor; 0: there will be none.
        keeper: Keeps prepared samples; None: nothing is kept.
        growth: The order of a data set that grows; None: it does not.
        length_told: Batches and samples of an epoch that consumers know of.
        alarm: Wakes the serving thread: `dispatch.due_s` is before `looks_s`.
        looks_s: Until when the serving thread sleeps, at the most (monotonic seconds); -inf while it is awake.
        devices: Where batches lie on devices as well.
        extensions: What is built on the stream, by name (`protocol.extension`).
        read: Returns the text of a reading, for an observer that knows so many news. Called under the lock.
        news: Counts what observers are told at once, before the next reading would be due.
        refused: How many connections were dropped (`count_refused`).
        loading_s: Seconds that the loading thread has waited for the loader; written by that thread alone.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.lock = threading.RLock()  # itself, not the condition: entering that is a call of Python's
        self.changed = threading.Condition(self.lock)
        self.slots = FreeSlots()
        try:
            self.arena = Arena.create()
        except BaseException:
            self.slots.close()
            raise
        self.dispatch = Dispatch(
            settings.window_batches, settings.window_batches, settings.stall_timeout_s, settings.first_epoch
        )
        self.sessions: dict[int, Session] = {}
        self.devices = StreamDevices()
        self.source: Source | None = None
        self.keeper: SampleStore | None = None
        self.growth: OwnOrder | None = None
        self.length_told: tuple[int | None, int | None] = (None, None)
        self.unordered = ""
        self.dataset = ""
        self.seeds = Seeds()
        self.draws = False
        self.stopping = False
        self.stop_asked = threading.Event()
        self.farewell = "was stopped"
        self.successor_s = 0.0
        self.refused = 0
        self.extensions: dict[str, Extension] = {}
        self.read: Callable[[int], str] = lambda _news: ""
        self.news = 0
        self.alarm: Callable[[], None] = lambda: None
        self.looks_s = -math.inf
        self._batch_bytes = 0  # what the largest batch took, in whole pages
        self._reach = 0  # batches that the arena has slots for, beside those that consumers hold
        self._held: set[int] = set()  # slots that consumers hold when it stops
        self._abandoned = False
        self._loader_waits = False
        self.failure: tuple[str, str] | None = None
        self.loading_s = 0.0
        self.in_place = 0
        self.copied = 0
        self.balance(settings.pacing, settings.weights)

    def step(self, event: ev.Event) -> None:
        """Let one event happen. Called from any thread.

        Where that fails, half of it may have happened, so that the stream ends: no batch may be given by a plan that
        does not hold.
        """
        with self.lock:
            try:
                if self.devices.busy:
                    self.devices.note(event)
                    self.settle()
                for instruction in self.dispatch.step(event, time.monotonic()):
                    self._follow(instruction)
                if self._loader_waits and (self._abandoned or self.dispatch.wanted is not None):
                    self.changed.notify_all()
                due_s = self.dispatch.due_s
                if due_s is not None and due_s < self.looks_s:
                    self.alarm()
            except Exception:
                self.crashed(traceback.format_exc())
                raise

    # -- what the loading thread says ----------------------------------------------------------------------

    def open(self, source: Source, in_pipe: int, unordered: str) -> None:
        """Take what gives the batches, before either thread runs.

        Args:
            source: Gives them.
            in_pipe: Slots that its workers may have in hand.
            unordered: Why an epoch cannot be given again; empty where it can.
        """
        self.source, self.unordered = source, unordered
        self.length_told = source.batches, source.samples
        self.slots.in_pipe = in_pipe
        self.dispatch.note_repeatable(bool(source.order))
        self.dispatch.note_dataset(source.indices.samples if source.batches is None else None)

    def begin_unprimed(self) -> None:
        """Load nothing before a consumer asks."""
        self.step(ev.Withdrawn(0))
        self._abandoned = False

    def wait_until_wanted(self) -> tuple[ev.Wanted | None, bool]:
        """Wait until the loader has something to do, or the producer stops.

        Returns:
            The next task, if any; and whether the run that was being loaded was given up since the last call.
        """
        with self.lock:
            while (wanted := self.dispatch.wanted) is None and not (self.stopping or self._abandoned):
                self._loader_waits = True
                self.changed.wait()
            self._loader_waits = False
            abandoned, self._abandoned = self._abandoned, False
            return wanted, abandoned

    def publish(self, run: int, placed: ev.Placed, in_pipe: int | None) -> None:
        """A batch lies in its slot.

        Args:
            run: As wanted.
            placed: Where.
            in_pipe: Slots that the loader's workers may have in hand, if one of them wrote it; else None.
        """
        with self.lock:  # once a batch: the serving thread wants it too
            if in_pipe is None:
                self.copied += 1
            else:
                self.in_place += 1
                # never less: what was ordered before may need all of them
                self.slots.in_pipe = max(self.slots.in_pipe, in_pipe)
                self.slots.delivered(placed.slot)
            self.failure = None
            if (needs_bytes := placed.values_offset + placed.values_bytes) > self._batch_bytes:
                self._note_size(whole_pages(needs_bytes))
            self.step(ev.BatchLoaded(run, placed))
            self.slots.refill()  # a system call for which no consumer has to wait

    def _note_size(self, batch_bytes: int) -> None:
        """Have late-join window and window keep fewer batches: they have become larger."""
        self._batch_bytes = batch_bytes
        self._let_lag()
        self.dispatch.keep_band(min(self.dispatch.epochs.band, max(1, BAND_BYTES // batch_bytes)))
        self.balance(self.dispatch.balance.pacing, self.dispatch.balance.weights)

    def _let_lag(self) -> None:
        """Let a trial that stops lag as far as memory goes now. Called under the lock."""
        settings = self.settings
        if settings.window_bytes is None or settings.in_step or not self._batch_bytes:
            return
        kept, asked = self.dispatch.lagging, settings.window is not None
        free, left = free_memory(), self.arena.left()
        room = [each for each in (left, None if free is None else free.size) if each is not None]
        most = most_lag(settings.window_bytes, self._batch_bytes, min(room, default=None), kept, asked=asked)
        self.dispatch.widen(min(most, self._reach))

    def look_at_lag(self) -> None:
        """While a trial lags by more than the window, look at the memory again. Called by the serving thread."""
        with self.lock:
            if self.dispatch.lagging > self.dispatch.drift.window:
                self._let_lag()

    def note_failure(self, message: str, where: str) -> None:
        """Show that the loader raised, until it gives a batch again."""
        with self.lock:
            self.failure = (message, where)

    # -- a stream of a cluster -----------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no consumer takes an epoch, waits for one or is expected back, and none is being loaded."""
        return self.dispatch.idle and self.dispatch.epochs.loading is None

    def announce(self, consumer: str, part: int | None, expects: int | None) -> None:
        """Say which samples a consumer of this process takes for others, who are to know which a batch holds.

        Args:
            consumer: Its name.
            part: With the epoch that it takes or asks for next, a bit each; None: all.
            expects: With the epochs after that.
        """
        with self.lock:
            for session in self._named(consumer):
                session.tells_rows = True
                self.step(ev.Announced(session.key, part, expects))

    def cover_of(self, consumer: str, asked: int | None) -> int | None:
        """Return the samples that the batches of a consumer's epoch hold, a bit each; None: all.

        More than were asked for where others take more, or where the epoch began before anybody said what is wanted.

        Args:
            consumer: Its name.
            asked: What it asked for.
        """
        with self.lock:
            for session in self._named(consumer):
                member = self.dispatch.members[session.key]
                if member.phase is Phase.STREAMING:
                    return self.dispatch.epochs.get(member.run).cover
            return asked

    def _named(self, consumer: str) -> list[Session]:
        return [s for s in self.sessions.values() if s.role == "consumer" and s.name == consumer]

    @property
    def batch_bytes(self) -> int:
        """What the largest batch took in its slot so far; 0 before the first came."""
        return self._batch_bytes

    def withdraw_if_idle(self) -> None:
        """Let go of the epoch being loaded, if no consumer takes it. Called under the lock."""
        loading = self.dispatch.epochs.loading
        if self.dispatch.idle and loading is not None:
            self.step(ev.Withdrawn(loading.run))

    # -- dividing and sharing ------------------------------------------------------------------------------

    def balance(self, pacing: str, weights: Mapping[str, float]) -> None:
        """Divide compute in another way from now on. Called from any thread.

        Args:
            pacing: One of `config.PACINGS`.
            weights: By consumer name.

        Raises:
            ValueError: It is a stream of a cluster.
        """
        if self.settings.in_step:
            check_in_step(pacing)
        with self.lock:
            window = self.settings.window_batches
            if pacing != "together" and self._batch_bytes:
                window = wide_window(window, self._batch_bytes, free_memory())
            self.step(ev.Balanced(pacing, dict(weights), window))

    def leave_device(self, member: int) -> None:
        """Let a consumer copy its batches to its device itself from now on."""
        with self.lock:
            self.devices.leave(member)

    def settle(self) -> None:
        """Free the slots from which copies to a device have ended meanwhile. Called under the lock."""
        for slot in self.devices.settled():
            self.slots.free(slot)

    def cool(self) -> None:
        """Give the memory of cold slots back. Called by the serving thread once a second."""
        several = COOL_BYTES // max(1, self._batch_bytes)
        with self.lock:
            keep = min(4, several)
            found = self.slots.cold(max(1, several), keep) if self.slots.resting > keep else []
        if found:
            try:
                self.arena.punch(found)
            finally:
                with self.lock:
                    self.slots.cooled(found)

    @property
    def cooling(self) -> bool:
        """Whether there may be memory to be given back, so that the clock has to be looked at."""
        return self.slots.resting > min(4, COOL_BYTES // max(1, self._batch_bytes))

    def empty(self) -> None:
        """Give memory back at the end, but that of batches which consumers hold: they stay valid.

        A process that one of them has forked keeps the arena, and need not keep its memory. A slot that the user's
        collate function keeps a tensor of, in this very process, is neither free nor a batch's.
        """
        if self.arena.slots:
            self.arena.punch((self.slots.free_ones() | self.dispatch.epochs.slots()) - self._held)

    def tell(self, member: int, message: ms.Message) -> None:
        """Send a consumer a message, if it is still there. Called under the lock."""
        if member in self.sessions:
            self.sessions[member].send(message)

    def _follow(self, made: ev.Instruction) -> None:
        if isinstance(made, ev.FreeSlot):
            if not self.devices.keeps(made.slot):
                self.slots.free(made.slot)
        elif isinstance(made, ev.Granted):
            if self.stopping:
                self._held.add(made.batch.slot)
            self.sessions[made.member].grant(made, self.devices.place(made))
        elif isinstance(made, ev.Abandon):
            self._abandoned = True
        elif not (self.stopping and isinstance(made.message, ms.RankGone)):
            # once it stops, all connections end, one by one: it is not the ranks that have gone
            self.sessions[made.member].send(made.message)

    def fit_arena(self, first_batch_bytes: int, batches: int | None, ahead: int) -> None:
        """Give the arena its geometry, from the stream's first batch.

        Args:
            first_batch_bytes: What the first batch needs in a slot.
            batches: Loader batches in an epoch, where known.
            ahead: Batches that the loader's workers prepare ahead.

        Raises:
            ArenaFull: The system does not give so much, or has not the memory for what will be used of it.
        """
        size = whole_pages(first_batch_bytes)
        band = max(self.settings.window_batches, self.settings.least_band)
        if batches is not None:
            band = max(band, math.ceil(self.settings.late_join * batches))
        elif self.settings.late_join >= 1:
            band = max(band, UNKNOWN_BAND)  # all of an epoch, whatever that is
        elif self.settings.late_join != DEFAULT_BAND:
            logging.getLogger("tsnb").warning(NO_SHARE, self.settings.name, self.settings.late_join, band)
        band = max(1, min(band, BAND_BYTES // size))
        # what `Dispatch.check` proves can be kept, what the workers have in hand, one being copied
        lag = reach_of(size, self.settings.window_bytes or 0, MOST_LAG)
        reach = max(self.settings.window_batches, band, reach_of(size), lag)
        slots = reach + 1 + MAX_CONSUMERS * (HOLD + LOOKAHEAD) + 2 * (ahead + 2)
        require_memory(self.settings.window_batches, band, batches, ahead, size, free_memory())
        with self.lock:
            self.dispatch.keep_band(band)
            self._fit_slots(slots, size)
            self.slots.open(self.arena.slots)
            self._batch_bytes, self._reach = size, reach
            self._let_lag()
            self.balance(self.dispatch.balance.pacing, self.dispatch.balance.weights)

    def _fit_slots(self, slots: int, batch_bytes: int) -> None:
        """Give each slot as much room as there are addresses; where the system refuses so many, what a batch needs."""
        if self.settings.max_batch_bytes:
            self.arena.fit(slots, int(self.settings.max_batch_bytes))
        else:
            least = least_room(batch_bytes)
            self.arena.fit(slots, max(least, addresses() // slots), least)

    def steer(self, consumers: Mapping[str, ms.Steering]) -> str:
        """Have consumers pause at their next batch, go on or stop: all of them, or none. A rank does so with its group.

        One that is to stop may have gone. Called from any thread.

        Args:
            consumers: By name.

        Returns:
            Why it cannot be done; empty where it is.
        """
        with self.lock:
            keys = {
                m.name: k for k, m in self.dispatch.members.items() if self.sessions[k].role == "consumer"
            }
            for name, wanted in consumers.items():
                if name not in keys and wanted != "stop":
                    there = ", ".join(keys) or "none"
                    return f"No trial named {name!r} is attached to {self.settings.name!r}. Attached: {there}"
            for to in ("pause", "go on"):
                if those := tuple(keys[name] for name, wanted in consumers.items() if wanted == to):
                    self.step(ev.Paused(those, to == "pause"))
            for name in [name for name, wanted in consumers.items() if wanted == "stop" and name in keys]:
                member = self.dispatch.members[keys[name]]
                for one in (member, *member.mates):
                    self.sessions[one.key].send(ms.Steered("stop"))
        return ""

    def why_no_turns(self, batches: int) -> str:
        """Return why turns of so many batches cannot be taken; empty where they can. Called under the lock."""
        if self.settings.in_step:
            return (
                "this machine serves one part of a cluster stream, whose machines keep in step. Leave "
                "rotate= out"
            )
        if not self._reach:
            return ""  # no batch has come yet, so their size is not known
        return no_room_for_turns(
            batches, self.settings.window_batches, self._reach, self._batch_bytes, free_memory()
        )

    def count_refused(self) -> None:
        """Count a connection that was dropped because it did not keep to the protocol, or flooded."""
        self.refused += 1

    def crashed(self, text: str) -> None:
        """Stop, in as good an order as possible, because one of the producer's own threads cannot go on; and say so."""
        text = masked_text(text)
        with self.lock:
            self._held |= self.dispatch.epochs.slots(pinned=True)  # its serving thread drops all consumers
            self.farewell = f"failed inside tsnb (please report this): {text.strip().splitlines()[-1][:500]}"
            self.failure = (self.farewell, text)
        self.stop_asked.set()

    def expect_successor(self, within_s: float) -> None:
        """Let consumers wait so long for a successor once this producer has stopped; 0: there will be none."""
        self.successor_s = within_s

    def ask_to_stop(self, reconnect_s: float) -> None:
        """Let the producer stop in good order. Called from any thread.

        Args:
            reconnect_s: How long consumers wait for a successor; not at all where anybody has asked for its end.
        """
        asked = self.stop_asked.is_set()
        self.expect_successor(min(reconnect_s, self.successor_s) if asked else reconnect_s)
        self.stop_asked.set()

    def note_left(self, session: Session) -> None:
        """Tell extensions that a consumer detaches. Called by the serving thread, without the lock."""
        for extension in self.extensions.values():
            extension.left(session)

    def end_extensions(self) -> None:
        """Put back what they changed, and end their threads. Called without the lock."""
        for extension in self.extensions.values():
            extension.close()

    def stop(self) -> None:
        """Let both threads end."""
        with self.lock:
            self.stopping = True
            self._held |= self.dispatch.epochs.slots(pinned=True)
            self.changed.notify_all()
