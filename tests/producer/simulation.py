"""A stream without processes: the real decisions and the real consumer's session, joined by a fake wire.

On one side `Dispatch`, on the other a `ConsumerSession` for each consumer; a loopback channel and the real codec
between them. Simulated are only the loader, the arena's slots, and the user's loop: when it takes a batch, holds it,
breaks, is interrupted or killed. Every random choice comes from one seed, so a run that breaks can be run again.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from msgspec import structs

from tests.producer.preparing import GrowingSamples, KeptSamples
from tsnb.errors import ConsumerTimedOut, GroupBroken, JoinRefused, LoaderFailed
from tsnb.stream.consumer.batches.parts import Part, own_rows
from tsnb.stream.consumer.options import Options
from tsnb.stream.consumer.place import Loop, Place
from tsnb.stream.consumer.talking.session import ConsumerSession
from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.dispatch import Dispatch
from tsnb.stream.decisions.pacing.contract import LOOKAHEAD
from tsnb.stream.decisions.phases import Phase
from tsnb.stream.producer.session import indices_of
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.codec import decode, encode
from tsnb.stream.transport.channel import ChannelClosed
from tsnb.stream.transport.loopback import LoopbackChannel, pair

WELCOME = ms.Welcome("s", 1, 8, 4, 4, None, None, order="the same every time")
SAMPLES = 80
"""In an epoch of a simulation with parts."""
OLD = -1
"""The lease of a batch that came from a producer which has gone: nobody waits for its release."""


@dataclass(eq=False)
class SimConsumer:
    """A user's loop around a real session: it takes batches at random moments and may hold some, break, or fall silent.

    What the session says and asks for is done as `line`, `attachment` and `loop` of the consumer do it.
    """

    name: str
    channel: LoopbackChannel
    skips: bool = False
    rotates: tuple[int, int] | None = None
    """Batches of a turn, and how many have theirs at once, if it takes turns with the others that do."""
    prefetch: int = 0
    """Batches received before they are given, as when they are copied to a GPU ahead."""
    epochs: dict[int, list[int]] = field(default_factory=dict)
    """Sequence numbers given, by epoch."""
    complete: set[int] = field(default_factory=set)
    """Epochs given to their end."""
    inbox: deque[ms.Message] = field(default_factory=deque)
    ahead: deque[ms.Batch] = field(default_factory=deque)
    """Received, and not given to the loop."""
    held: list[ms.Batch] = field(default_factory=list)
    loop: Loop | None = None
    ended: int | None = None
    """The batches of the epoch, once all have been received."""
    silent: bool = False
    broken: bool = False
    """A rank of its group has gone: it has detached."""
    parked: int = 0
    failures: int = 0
    goes_on: bool = False
    """Whether it goes on where one ended, or was killed: it waits for that place as long as it takes."""
    group: list[SimConsumer] = field(default_factory=list, repr=False)
    """All ranks of its group, itself too; they train in lockstep."""
    gone: tuple[int, int] | None = None
    """A rank of its group has gone: how far the others may go."""
    steps: int = 0
    """Batches it has computed on, in all."""
    part: Part | None = None
    """Which samples it takes; None: all."""
    told_rows: bool = False
    """Whether it is told which samples each batch holds."""
    drawn: ms.Drawn | None = None
    """Which samples the batch holds that comes next."""
    own: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """Its own samples in each batch that was received, by epoch and number."""
    samples: dict[int, list[int]] = field(default_factory=dict)
    """Its own samples that were given, by epoch."""

    def __post_init__(self) -> None:
        name, _, rank = self.name.rstrip("]").partition("[")
        options = Options(
            on_lag="skip" if self.skips else "wait",
            rank=int(rank or 0),
            world_size=2 if rank else 1,
            part=self.part,
        )
        self.session = ConsumerSession(self.name, name, options, self.leases)
        self.session.connected(WELCOME)

    def leases(self) -> tuple[int, ...]:
        """Return what it can read of this producer's."""
        return tuple(b.lease for b in (*self.held, *self.ahead) if b.lease != OLD)

    def slots(self) -> set[int]:
        """Return where that lies."""
        return {b.slot for b in (*self.held, *self.ahead) if b.lease != OLD}

    @property
    def iterating(self) -> bool:
        """Whether its loop has not come to its end."""
        return self.loop is not None

    @property
    def place(self) -> Place:
        """What has to come next."""
        return self.session.place

    @property
    def in_collective(self) -> bool:
        """Whether it waits in its step for a rank that has not come so far."""
        return any(mate.steps < self.steps for mate in self.group)

    # -- what the code around the session does -----------------------------------------------------------

    def say(self, *messages: ms.Message) -> None:
        """Send; to a producer that has gone, nothing."""
        with contextlib.suppress(ChannelClosed):
            for message in messages:
                assert self.channel.send(encode(message)), "the producer's queue overflowed"

    def release(self, batch: ms.Batch) -> None:
        """Let go of a batch."""
        if batch.lease != OLD:
            self.say(ms.Release(batch.lease))

    def ask(self) -> None:
        """Begin a loop."""
        self.ended = None
        self.loop = self.session.begin()
        self.say(self.session.enter(self.loop))

    def receive(self) -> None:
        """Read the line; what must be heard at once, is."""
        while (packet := self.channel.receive()) is not None:
            message = decode(packet)
            if isinstance(message, ms.RankGone):
                self.gone = min(self.gone or (message.epoch, message.seq), (message.epoch, message.seq))
                self.session.hear_early(message)
            self.inbox.append(message)
        if self.loop is None or self.group:  # it looks ahead in its loop; ranks pause after the same batch
            return
        pauses = [m for m in self.inbox if isinstance(m, ms.Steered)]
        self.inbox = deque(m for m in self.inbox if not isinstance(m, ms.Steered))
        for pause in pauses:
            self.say(*self.session.hear_early(pause).say)

    def step(self, breaks: bool = False) -> None:
        """Do what is next in its loop: give a batch, receive one, end, or wait.

        Args:
            breaks: Leave the loop with the next batch that is given.
        """
        if self.session.paused and not self.group:
            self.hear() if self.inbox else None  # it waits before it gives another one
        elif self.ahead and (self.ended is not None or len(self.ahead) > self.prefetch or not self.inbox):
            self._give()
            if breaks:
                self.leave_early()
        elif self.ended is not None:
            self._finish()
        elif self.inbox:
            self.hear()
        else:
            self.say(ms.Waiting())

    def hear(self) -> None:
        """Take the next message."""
        if self.loop is None or self.broken:
            self._discard()
            return
        message = self.inbox.popleft()
        if isinstance(message, ms.Drawn):
            self.drawn = message
            return
        try:
            self.session.require_ranks()
            turn = self.session.hear(message)
        except GroupBroken:
            self.broken = True
            self._end()
            self.say(ms.Bye())
        except (LoaderFailed, ConsumerTimedOut, JoinRefused) as error:
            if self.goes_on and self.session.epoch < 0 and not isinstance(error, LoaderFailed):
                raise AssertionError(f"{self.name} has lost its kept place") from error
            self.failures += isinstance(error, LoaderFailed)
            self.parked += isinstance(error, ConsumerTimedOut)
            self._end()
        else:
            if turn.batch is not None:
                self.ahead.append(turn.batch)
                self._find_own(turn.batch)
            self.say(*turn.say)
            if turn.ended:
                self.ended = self.session.place.batch
                self.say(self.session.leave())
                self.session.over()

    def _find_own(self, batch: ms.Batch) -> None:
        if self.told_rows:
            assert self.drawn is not None and self.drawn.lease == batch.lease, "a batch without its samples"
            drawn = np.frombuffer(self.drawn.indices, "<u4")
            if self.part is not None:
                drawn = drawn[own_rows(self.part.mask(SAMPLES), drawn)]
            self.own[batch.epoch, batch.seq] = drawn.tolist()

    def _give(self) -> None:
        assert self.loop is not None
        batch, place = self.ahead.popleft(), self.loop.place
        gap = batch.seq - place.batch
        assert batch.epoch == place.epoch and (gap == 0 or (self.skips and gap > 0)), (batch, place)
        self.loop.place = Place(batch.epoch, batch.seq + 1, 0, begun=True)
        self.epochs.setdefault(batch.epoch, []).append(batch.seq)
        self.samples.setdefault(batch.epoch, []).extend(self.own.pop((batch.epoch, batch.seq), ()))
        self.steps += 1
        self.held.append(batch)

    def _finish(self) -> None:
        """The loop has come to its end."""
        assert self.loop is not None
        epoch = self.loop.place.epoch
        assert self.ended is not None
        if not self.skips:
            assert self.epochs.get(epoch, []) == list(range(self.ended)), (epoch, self.epochs)
        self.complete.add(epoch)
        self.loop.place = self.loop.place.next_epoch()
        self.loop = self.ended = None

    def _end(self) -> None:
        """The loop ends, wherever it is."""
        if self.session.loop is self.loop:
            self.say(self.session.leave())
            self.session.over()
        while self.ahead:
            self.release(self.ahead.popleft())
        self.loop = self.ended = None

    def _discard(self) -> None:
        while self.inbox:
            message = self.inbox.popleft()
            if isinstance(message, ms.Batch):
                self.say(ms.Release(message.lease))
            elif isinstance(message, (ms.Steered, ms.RankGone)):
                self.session.hear_early(message)

    def leave_early(self) -> None:
        """Break the loop."""
        self._end()
        self._discard()

    def interrupt(self, lost: int) -> None:
        """An interrupt in the middle of a step, and the loop goes on after it.

        Args:
            lost: 0: between two messages; 1: one was received, and not heard; 2: it was heard, and not acted on.
        """
        if self.loop is None or self.broken:
            return
        if lost and self.inbox and self.ended is None:
            message = self.inbox.popleft()
            if lost == 2:
                with contextlib.suppress(LoaderFailed, ConsumerTimedOut, JoinRefused):
                    self.session.hear(message)
        while self.ahead:  # what was received goes with the iterator's own state
            self.release(self.ahead.popleft())
        self.ended = None
        self.say(self.session.go_back(self.loop))

    def reconnect(self, channel: LoopbackChannel) -> None:
        """Go on with a producer that was started again. What it holds of the old one stays its own."""
        self.channel = channel
        self.held.clear()
        self.inbox.clear()
        self.ahead = deque(structs.replace(batch, lease=OLD) for batch in self.ahead)
        said = self.session.connected(WELCOME)
        if self.session.loop is not None:
            self.say(*said)

    def branch(self, name: str, channel: LoopbackChannel) -> SimConsumer:
        """Return what a fork of its process becomes: all it has taken is in the clone's own memory."""
        twin = copy.deepcopy(self, {id(self.channel): channel})
        twin.name = name
        twin.held.clear()
        twin.inbox.clear()
        twin.ahead = deque(structs.replace(batch, lease=OLD) for batch in twin.ahead)
        return twin

    # -- what a training loop may do ---------------------------------------------------------------------

    def act(self, rng: random.Random) -> None:
        """Do one thing at random."""
        if self.silent or self.broken:
            return
        self.receive()
        if self.in_collective:
            return
        if self.held and rng.random() < 0.6:
            self.release(self.held.pop(rng.randrange(len(self.held))))
        if not self.iterating:
            self._discard()
            if rng.random() < 0.5:
                self.ask()
            elif rng.random() < 0.1:
                self.say(ms.Rest())
        elif rng.random() < 0.01:
            self.interrupt(rng.randrange(3))
        else:
            if self.steps % 97 == 41:
                self.say(ms.Rest(stands=True))  # sooner or later it goes on all the same
            self.step(breaks=rng.random() < 0.01)

    def run_steadily(self) -> None:
        """Do what is next at once: take, release, ask again at the epoch's end."""
        self.silent = False
        if self.broken:
            return
        self.receive()
        if self.in_collective:
            return
        if not self.iterating:
            self.ask()
        else:
            before = self.steps
            self.step()
            while (
                self.iterating
                and self.steps == before
                and (self.inbox or (self.ahead and not self.session.paused))
            ):
                self.step()
        while self.held:
            self.release(self.held.pop())


class Simulation:
    """One seeded run of a stream.

    Args:
        seed: Decides everything.
        kills: Whether consumers may be killed; off for runs that count what everybody got.
        failures: Whether the loader raises now and then.
        restarts: Whether the producer is killed and started again now and then.
        skips: Whether some consumers give up batches rather than hold the others up.
        modes: Whether compute is divided in another way now and then.
        parts: Whether consumers take parts of the samples; an epoch is then 20 batches, `SAMPLES` samples in an order
            of its own.
        pauses: Whether somebody is asked to pause, or to go on, now and then.
        clones: Whether one is cloned now and then.
        rounds: Whether epochs are rounds: each begins when it is due.
        rotates: Whether most consumers take turns.
        extends: Whether one whose loop is over ends now and then, and one that has ended or was killed goes on in
            another process, as `Trial.extend` has it.
        seeded: Whether the loader can give an epoch again; without, neither restarts nor extends can be.
        growing: The data set, if it grows; not with parts, which it is refused with.
        kept: The cache, if there is one: memory gets short now and then. An epoch is as with parts.
    """

    def __init__(
        self,
        seed: int,
        *,
        kills: bool = True,
        failures: bool = False,
        restarts: bool = False,
        skips: bool = False,
        modes: bool = False,
        parts: bool = False,
        pauses: bool = False,
        clones: bool = False,
        rounds: bool = False,
        rotates: bool = False,
        extends: bool = False,
        seeded: bool = True,
        growing: GrowingSamples | None = None,
        kept: KeptSamples | None = None,
    ) -> None:
        self.seeded = seeded
        self.growing, self.kept = growing, kept
        self.turn: tuple[int, int] | None
        self.clones = clones
        self.extends = extends
        self.rounds = rounds
        self.due = 0
        self.logged: set[int] = set()  # rounds that were begun, as the log on disk has them
        self.parts = parts
        self.seed = seed
        self.rng = random.Random(seed)
        self.kills = kills
        self.failures = failures
        self.restarts = restarts
        self.skips = skips
        self.modes = modes
        self.pauses = pauses
        self.batches = self.rng.choice([1, 3, 7, 20])
        self.window = self.rng.choice([1, 2, 4, 8])
        self.band = self.rng.choice([1, 2, 5, 20])
        if parts or kept is not None:
            self.batches = SAMPLES // 4
        self.turn = (self.rng.choice([1, 2, 5, 9]), self.rng.choice([1, 2])) if rotates else None
        self.now = 0.0
        self.consumers: dict[int, SimConsumer] = {}
        self.gone: list[SimConsumer] = []
        self.restarted = self.extended = 0
        self.ends: dict[int, LoopbackChannel] = {}
        self.start(0)

    def start(self, first_epoch: int) -> None:
        """Begin with a new producer; who was attached to the one before comes back, one after the other."""
        if self.growing is not None:
            first_epoch = self.growing.start()
        self.dispatch = Dispatch(self.window, self.band, 50.0, first_epoch)
        self.dispatch.widen((0, 12, 60)[self.seed % 3])
        self.dispatch.note_repeatable(self.seeded)
        if self.rounds:
            self.dispatch.step(ev.RoundDue(0), self.now)
            self.dispatch.step(ev.Withdrawn(0), self.now)
        self.slots = set(range(400))
        self.loaded = 0  # batches of the epoch that were loaded, or skipped at its beginning
        self.loading = -1
        self.ends = {}
        if self.kept is not None:
            self.kept.start()
        for key, consumer in self.consumers.items():
            ours, theirs = pair(512)
            self.ends[key] = ours
            self.step(self._joined(key, consumer, back=True, paused=consumer.session.paused))
            self._tell_part(key, consumer)
            consumer.reconnect(theirs)

    def balance(self, mode: str) -> None:
        """Divide in another way: by need in the stream's own window, else in one of 16 batches."""
        weights = {f"c{k}": self.rng.choice([0.2, 1.0, 3.0]) for k in range(4)} if mode == "weights" else {}
        self.step(ev.Balanced(mode, weights, self.window if mode == "together" else 16))

    def divide(self) -> None:
        """Choose another mode, or let cores come free, or not."""
        if self.rng.random() < 0.5:
            self.balance(self.rng.choice(["together", "weights", "weights", "free"]))
        else:
            self.step(ev.Contended(self.rng.random() < 0.7))

    def steer(self, choice: float) -> None:
        """Do what somebody who watches may ask for."""
        if self.extends and choice > 0.985:
            self.end_or_extend()
        elif choice < 0.97 and self.modes:
            self.divide()
        elif choice < 0.98 and self.clones and 0 < len(self.consumers) < 6:
            self.clone(self.rng.choice(list(self.consumers)), self.rng.random() < 0.5)
        elif choice > 0.98 and self.pauses and self.consumers:
            self.pause(self.rng.choice(list(self.consumers)), on=self.rng.random() < 0.5)

    def look(self) -> None:
        """Step when the decisions ask for it, as the serving thread does."""
        if self.dispatch.due_s is not None and self.now >= self.dispatch.due_s:
            self.step(ev.Tick())
        if self.growing is not None and self.rng.random() < 0.05:
            self.growing.arrive()
        if self.kept is not None and self.rng.random() < 0.03:
            self.kept.press()
        if self.rounds and self.rng.random() < 0.02:
            self.due_round()

    def due_round(self) -> None:
        """A round may begin, unless one may already, or there is nothing to choose for it."""
        loading = self.dispatch.epochs.loading
        if self.growing is not None and (
            (loading is not None and loading.number not in self.logged) or not self.growing.round_due
        ):
            return  # as `look_at_rounds` of the producer's core: one is just beginning, or nothing is new enough
        if self.dispatch.admission.rounds == 0:
            self.due += 1
            self.step(ev.RoundDue(1))

    def kill_producer(self) -> None:
        """Whatever it knew is gone; what it had sent can still be read, as from a real socket."""
        for key, consumer in self.consumers.items():
            self.ends[key].close()
            _drain(consumer)
        self.restarted += 1
        self.start(max(self.logged, default=-1) + 1 if self.rounds else self.dispatch.epochs.newest.number)

    def step(self, event: ev.Event) -> None:
        for made in self.dispatch.step(event, self.now):
            self._follow(made)
        self.dispatch.check()

    def _follow(self, made: ev.Instruction) -> None:
        if isinstance(made, ev.FreeSlot):
            assert made.slot not in self.slots, "a slot was freed twice"
            assert not self._read(made.slot), "a slot was freed while somebody reads it"
            self.slots.add(made.slot)
        elif isinstance(made, ev.Granted):
            batch = ms.Batch(0, made.batch.slot, made.epoch, made.seq, 4, made.lease, 0, 0)
            one = self.consumers.get(made.member)  # killed, perhaps, and the producer has yet to hear of it
            if one is not None and one.told_rows:
                self._send(made.member, ms.Drawn(made.lease, indices_of(made.batch.drawn)))
            self._send(made.member, batch)
        elif isinstance(made, ev.Tell):
            self._send(*made)

    def _send(self, key: int, message: ms.Message) -> None:
        try:
            assert self.ends[key].send(encode(message)), "the queue of a consumer overflowed"
        except ChannelClosed:
            pass  # killed; its Left event comes with the next poll

    def _read(self, slot: int) -> bool:
        return any(slot in c.slots() for c in self.consumers.values())

    def join(self, skips: bool | None = None, turns: bool | None = None) -> SimConsumer:
        key = self._next_key()
        ours, theirs = pair(512)
        self.ends[key] = ours
        skips = self.skips and self.rng.random() < 0.5 if skips is None else skips
        prefetch = self.rng.choice([0, 0, 1, 2])
        part = self.choose_part() if self.parts else None
        if turns is None:
            turns = self.turn is not None and self.rng.random() < 0.9
        turn = self.turn if turns and not skips else None
        consumer = self.consumers[key] = SimConsumer(
            f"c{key}", theirs, skips, turn, prefetch, part=part, told_rows=self._tells_rows(part)
        )
        self.step(self._joined(key, consumer))
        self._tell_part(key, consumer)
        return consumer

    def _tells_rows(self, part: Part | None) -> bool:
        return part is not None or self.growing is not None

    def _next_key(self) -> int:
        return len(self.consumers) + len(self.gone) + self.extended

    def _tell_part(self, key: int, consumer: SimConsumer) -> None:
        """Tell which samples it takes, in two pieces."""
        if consumer.part is not None:
            mask = consumer.part.packed(SAMPLES)
            for offset in (0, 3):
                self.step(ev.Heard(key, ms.Wants(offset, mask[offset : offset + 3 if not offset else None])))

    def choose_part(self) -> Part | None:
        """Return a part that a consumer may want, small ones and the whole too."""
        kind = self.rng.randrange(4) or self.rng.randrange(4)
        if kind == 0:
            return None
        if kind == 1:
            return Part(self.rng.sample(range(SAMPLES), self.rng.choice([1, 3, 40, SAMPLES])))
        folds = self.rng.choice([2, 5])
        return Part(fold=(self.rng.randrange(folds), folds, 7), held_out=kind == 2)

    def order(self, epoch: int) -> list[int]:
        """Return the epoch's samples in the order of the loader, the same at every call."""
        return random.Random(f"{self.seed} {epoch}").sample(range(SAMPLES), SAMPLES)

    def _joined(self, key: int, consumer: SimConsumer, back: bool = False, paused: bool = False) -> ev.Heard:
        name, _, rank = consumer.name.rstrip("]").partition("[")
        return joined(
            key,
            name,
            consumer.skips,
            rank=int(rank or 0),
            of=max(1, len(consumer.group)),
            back=back,
            paused=paused,
            turn=consumer.rotates,
        )

    def join_group(self, name: str, size: int) -> list[SimConsumer]:
        """Attach all ranks of a group."""
        ranks: list[SimConsumer] = []
        for rank in range(size):
            key = self._next_key()
            ours, theirs = pair(512)
            self.ends[key] = ours
            ranks.append(SimConsumer(f"{name}[{rank}]", theirs, group=ranks))
            self.consumers[key] = ranks[-1]
        for key, consumer in self.consumers.items():
            if consumer in ranks:
                self.step(self._joined(key, consumer))
        return ranks

    def pause(self, *keys: int, on: bool = True) -> None:
        """Somebody asks consumers to pause, or to go on."""
        self.step(ev.Paused(keys, on))

    def clone(self, key: int, first: bool = True) -> SimConsumer:
        """Fork a consumer's process between two of its steps; it stands still until the clone has been let in.

        Args:
            key: The consumer.
            first: Whether the producer hears the clone before what the parent has said last.
        """
        parent = self.consumers[key]
        if not first:
            self.poll()
        member = self.dispatch.members[key]
        streams, goes = member.phase is Phase.STREAMING, parent.session.loop is not None
        due = {grant.seq for grant in member.granted if grant.seq >= parent.place.batch}
        number = self._next_key()
        self.ends[number], theirs = pair(512)
        twin = self.consumers[number] = parent.branch(f"c{number}", theirs)
        self.step(self._joined(number, twin, paused=twin.session.paused))
        self._tell_part(number, twin)
        twin.say(*twin.session.branched(twin.name, WELCOME))
        while (packet := self.ends[number].receive()) is not None:
            self.step(ev.Heard(number, decode(packet)))
        mine = self.dispatch.members[number]
        if streams and goes and parent.place.begun and not twin.session.paused:
            assert mine.phase in (Phase.STREAMING, Phase.BETWEEN), (member, mine)
            # of the same batches; with a seed it may be another pass over them
            again = self.dispatch.admission.repeatable
            assert mine.epoch == member.epoch and (again or mine.run == member.run), (member, mine)
            has, following = (
                {grant.seq for grant in mine.granted},
                self.dispatch.epochs.get(mine.run).seq(mine.cursor),
            )
            missing = [seq for seq in due if seq not in has and seq < following]
            assert not missing or (mine.skips and len(has) == LOOKAHEAD), (member, mine)
        return twin

    def end_or_extend(self) -> None:
        """Let one whose loop is over end, or one that is no more go on."""
        over = [key for key, c in self.consumers.items() if not (c.iterating or c.broken or c.session.paused)]
        if over and self.rng.random() < 0.5:
            self.end(self.rng.choice(over))
        elif self.gone and len(self.consumers) < 6:
            self.extend(self.rng.choice(self.gone))

    def end(self, key: int) -> None:
        """A trial is done: its consumer detaches, and its process goes."""
        consumer = self.consumers[key]
        while consumer.held:
            consumer.release(consumer.held.pop())
        consumer.say(ms.Bye())
        self.kill(key)
        self.poll()

    def extend(self, gone: SimConsumer) -> SimConsumer:
        """One that ended, or was killed, goes on in a new process, from a place that was kept of it."""
        self.poll()
        key = self._next_key()
        self.extended += 1
        self.gone.remove(gone)
        ours, theirs = pair(512)
        self.ends[key] = ours
        one = self.consumers[key] = SimConsumer(
            gone.name,
            theirs,
            gone.skips,
            gone.rotates,
            gone.prefetch,
            part=gone.part,
            told_rows=gone.told_rows,
        )
        place = gone.session.given
        if (
            place.begun and not self._tells_rows(gone.part) and self.rng.random() < 0.5
        ):  # the last state is of a while ago
            place = place._replace(batch=self.rng.randrange(place.batch + 1))
        one.goes_on = True
        one.complete, one.steps = {*gone.complete}, gone.steps
        one.epochs = {number: [*taken] for number, taken in gone.epochs.items() if number != place.epoch}
        one.samples = {number: [*taken] for number, taken in gone.samples.items()}
        if place.begun:
            had = gone.epochs.get(place.epoch, [])
            one.epochs[place.epoch] = [seq for seq in had if seq < place.batch]
        else:
            one.samples.pop(place.epoch, None)
        one.session.load(place._replace(begun=True), same_order=True, patient=True)
        self.step(self._joined(key, one))
        self._tell_part(key, one)
        return one

    def check_samples(self) -> int:
        """Verify that each has had every sample of its part once, in the common order; return in how many epochs.

        One that skips has had the samples of its part in the batches that it has not missed.
        """
        checked = 0
        for consumer in self.consumers.values():
            if self.growing is not None:
                for epoch in consumer.complete:
                    taken, samples = consumer.epochs.get(epoch, []), consumer.samples.get(epoch, [])
                    self.growing.check(epoch, taken, samples, skips=consumer.skips)
                    checked += 1
            if consumer.part is None:
                continue
            mine = consumer.part.mask(SAMPLES)
            for epoch in consumer.complete:
                order, taken = self.order(epoch), consumer.epochs.get(epoch, [])
                assert consumer.skips or taken == list(range(self.batches))
                wanted = [i for batch in taken for i in order[4 * batch : 4 * batch + 4] if mine[i]]
                assert consumer.samples.get(epoch, []) == wanted, (consumer, epoch)
                checked += 1
        return checked

    def resume_all(self) -> None:
        """Let everybody go on."""
        for key, member in self.dispatch.members.items():
            if member.paused and key in self.consumers:
                self.pause(key, on=False)

    def kill(self, key: int) -> None:
        self.consumers[key].channel.close()
        self.gone.append(self.consumers.pop(key))

    def poll(self) -> None:
        """Take what the consumers have sent."""
        for key, end in list(self.ends.items()):
            try:
                while (packet := end.receive()) is not None:
                    self.step(ev.Heard(key, decode(packet)))
            except ChannelClosed:
                del self.ends[key]
                self.step(ev.Left(key))

    def load(self) -> None:
        """Let the loader go on by one batch, if it should."""
        wanted = self.dispatch.wanted
        if wanted is None:
            return
        if wanted.run != self.loading:
            self.loading, self.loaded = wanted.run, wanted.first
            self.logged.add(wanted.epoch)
            if self.growing is not None:
                self.growing.begin(wanted.epoch, wanted.first)
            if self.kept is not None:
                self.kept.begin(wanted.first)
        if self.failures and self.rng.random() < 0.1 and (self.loaded or wanted.epoch):
            self.step(ev.LoaderRaised(wanted.run, "boom", "Traceback"))
            return
        drawn = self._prepared(wanted)
        if drawn is None:
            if self.kept is not None:
                self.kept.end()
            self.step(ev.LoaderEnded(wanted.run))
            return
        self.loaded += 1
        self.step(ev.BatchLoaded(wanted.run, ev.Placed(self.slots.pop(), b"", 4, 0, 0, drawn or None)))

    def _prepared(self, wanted: ev.Wanted) -> list[int] | None:
        """Prepare the next batch; return its samples, empty where they have no numbers. None: the epoch has ended."""
        if self.growing is not None:
            return self.growing.batch() or None
        if self.loaded == self.batches:
            return None
        drawn: list[int] = []
        if self.parts or self.kept is not None:
            drawn = self.order(wanted.epoch)[4 * self.loaded : 4 * self.loaded + 4]
            drawn = [i for i in drawn if wanted.cover is None or wanted.cover >> i & 1]
        if self.kept is not None:
            self.kept.prepare(drawn)
        return drawn

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now += self.rng.expovariate(2.0)
            choice = self.rng.random()
            if choice < 0.35:
                self.load()
            elif choice < 0.85 and self.consumers:
                self.rng.choice(list(self.consumers.values())).act(self.rng)
            elif choice < 0.88 and len(self.consumers) < 6:
                self.join()
            elif choice < 0.89 and self.consumers and self.kills:
                self.kill(self.rng.choice(list(self.consumers)))
            elif choice < 0.90 and self.consumers:
                one = self.rng.choice(list(self.consumers.values()))
                one.silent = not one.silent
            elif choice < 0.91 and self.restarts:
                self.kill_producer()
            elif choice < 0.95:
                self.step(ev.Tick())
            else:
                self.steer(choice)
            self.look()
            self.poll()

    def go_on_beside(self, idle: list[SimConsumer], epochs: int = 2) -> None:
        """Let the others run on, promptly, while some do nothing at all, until each has completed some more epochs.

        Raises:
            AssertionError: Somebody waited for longer than the stall timeout and one look at the clock (a second),
                while those who stand still alone were what it waited for: nobody else took anything, and nothing was
                loaded.
        """
        for consumer in idle:
            consumer.silent = True
        # whose own group stands still waits for that, whatever the stream does
        active = [c for c in self.consumers.values() if not {*c.group, c} & {*idle}]
        target = {c.name: len(c.complete) + epochs for c in active}
        moved_s, last = self.now, self._signs(active)
        for _ in range(2 * epochs * len(self.consumers) * int(self.dispatch.stall_timeout_s)):
            self.now += 1.0
            self.step(ev.Tick())
            self.look()
            self.load()
            for consumer in active:
                consumer.run_steadily()
            self.poll()
            if all(len(c.complete) >= target[c.name] for c in active):
                return
            signs = self._signs(active)
            moved_s, last = (self.now, signs) if signs != last else (moved_s, last)
            waited_s = self.now - moved_s
            assert waited_s <= self.dispatch.stall_timeout_s + 2.0, (
                f"nothing for {waited_s} s: {self.dispatch.members}"
            )
        stuck = {c.name: (len(c.complete), target[c.name]) for c in active}
        raise AssertionError(f"somebody waits for good: {stuck}, {self.dispatch.members}")

    def _signs(self, active: list[SimConsumer]) -> tuple[Any, ...]:
        """Return what changes whenever the loader or somebody active gets on."""
        return (self.dispatch.epochs.end, *((c.steps, len(c.complete)) for c in active))

    def settle(self) -> None:
        """Let everybody alive run on, promptly, until each has completed two more epochs.

        Raises:
            AssertionError: Somebody waits for something that never comes.
        """
        self.resume_all()
        target = {key: len(c.complete) + 2 for key, c in self.consumers.items()}
        for _ in range(20_000):
            self.now += 0.01
            self.look()
            self.load()
            for consumer in self.consumers.values():
                consumer.run_steadily()
            self.poll()
            if all(len(c.complete) >= target[key] for key, c in self.consumers.items()):
                return
        stuck = {c.name: (len(c.complete), target[k]) for k, c in self.consumers.items()}
        raise AssertionError(f"somebody waits for good: {stuck}, {self.dispatch.members}")


def _drain(consumer: SimConsumer) -> None:
    """Read what a producer had sent before it was killed; answers go nowhere."""
    with contextlib.suppress(ChannelClosed):
        consumer.receive()
    while consumer.inbox and consumer.ended is None:
        consumer.hear()


# -- what consumers say, and what they are told -------------------------------------------------------------


def joined(
    key: int,
    name: str,
    skips: bool = False,
    *,
    rank: int = 0,
    of: int = 1,
    back: bool = False,
    paused: bool = False,
    turn: tuple[int, int] | None = None,
) -> ev.Heard:
    """A consumer attaches; `of` more than 1: as one rank of so many; `turn`: batches of one, and how many at once."""
    on_lag = "skip" if skips else "wait"
    hello = ms.Hello("consumer", name, "", on_lag=on_lag, rank=rank, world_size=of, back=back, paused=paused)
    if turn is not None:
        hello = structs.replace(hello, rotation="sweep", rotate=turn[0], at_once=turn[1])
    return ev.Heard(key, hello)


def asked(
    key: int,
    number: int = 0,
    epoch: int = 0,
    seq: int = 0,
    *,
    exact: bool = False,
    now: bool = False,
    held: tuple[int, ...] = (),
    here: bool = False,
) -> ev.Heard:
    """A consumer says where it stands."""
    return ev.Heard(key, ms.Ask(number, epoch, seq, exact, now, held, here=here))


def took(key: int) -> ev.Heard:
    """A consumer takes its next batch."""
    return ev.Heard(key, ms.Take())


def waits(key: int) -> ev.Heard:
    """A consumer has nothing left to take."""
    return ev.Heard(key, ms.Waiting())


def released(key: int, lease: int) -> ev.Heard:
    """A consumer lets go of a batch."""
    return ev.Heard(key, ms.Release(lease))


def left_epoch(key: int) -> ev.Heard:
    """A consumer breaks its loop."""
    return ev.Heard(key, ms.Leave())


T = TypeVar("T")


def tells(out: list[ev.Instruction], kind: type[T]) -> list[tuple[int, T]]:
    """Return who is told messages of one kind, and which."""
    return [(x.member, x.message) for x in out if isinstance(x, ev.Tell) and isinstance(x.message, kind)]
