"""One consumer's side of the protocol, without any I/O: where it stands, what it asks for, what a message means to it.

A message goes in, a `Turn` comes out: what to say, which batch to give the loop, whether the epoch has ended. No
socket, clock, thread or tensor: the simulated streams of `tests/producer` join this code with the producer's decisions.

    begin ------> Ask ------> EpochStarted ------> Batch, Batch ... ------> EpochEnded ------> leave
                   ^                                   |
                   +-- something lost on its way, parked, interrupted, another producer: it says where it stands

A *place* is where the next sample is. There are three of them, and all are here:

- `place`: what has been received; the next loader batch that has to come. Nothing is missing before it;
- `loop.place`: what the user has been given. It is behind the other one while batches are cut or copied ahead;
- `resume`: what `load_state_dict` named, until a loop begins there.

A pause (`Steered`) is a park on purpose: answers and batches that were under way are out of date, `place` stays, and
when it is over the session asks for the rest from there.

A clone is a fork of the process between two batches. Its copy of the session asks for the same place over a connection
of its own, while the one that was forked stands still (`branched`).

An interrupt may come between any two steps of the code that runs this. So every verb may be done again: asking again,
leaving again. What was received and not given is asked for again from the loop's place (`go_back`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tsnb.errors import ConsumerTimedOut, GroupBroken, JoinRefused, LoaderFailed, ProducerGone
from tsnb.stream.consumer.place import Loop, Place
from tsnb.stream.protocol import messages as ms

if TYPE_CHECKING:
    from tsnb.stream.consumer.options import Options

__all__ = ["Begins", "ConsumerSession", "Turn", "broken", "stricter"]


class Begins(NamedTuple):
    """An epoch begins, for the user to be told of if it is not the one that was expected."""

    epoch: int
    anywhere: bool
    """Whether any epoch was wanted, not one that this consumer has left before."""
    batch: int
    """The first batch of it that this consumer gets where it gets no whole one; else 0."""
    here: bool
    """Whether it has said that it would begin anywhere in an epoch."""
    saved: int | None
    """The epoch at whose start a loaded state stands."""


class Turn(NamedTuple):
    """What follows from a message. A batch is read before anything is said."""

    say: tuple[ms.Message, ...] = ()
    batch: ms.Batch | None = None
    """The epoch's next loader batch, for the loop."""
    ended: bool = False
    """Whether the epoch has ended."""
    news: Begins | ms.HeldUp | None = None
    """What the user should hear of."""


_NOTHING = Turn()
_TAKE = (ms.Take(),)
_ENDED = Turn(ended=True)


class ConsumerSession:
    """Where one consumer stands in its stream, over one producer after the other.

    Args:
        name: The consumer's name; that of a rank is like `bert[0]`.
        group: The name of its group, or its own.
        options: How it wants its batches; may be set anew between two epochs.
        held: Returns the leases that it has now.

    Attributes:
        place: The next loader batch.
        epoch: The epoch that is taken, or was taken last; -1 before the first.
        loop: The loop that is going on; None between two.
        resume: Where the next loop begins; None: at the next epoch.
        skipped: Loader batches given up so far.
        paused: Whether it gets nothing, since somebody asked it to pause.
        in_order: Whether each epoch is to be the one after the last, which is given again where others are past it.
        stands: Whether its thread has waited for another consumer since its epoch began.
        rank_paused: Whether it is a rank whose group was asked to pause: it goes on as far as all others go, and is
            given nothing more until the group goes on.
    """

    def __init__(
        self, name: str, group: str, options: Options, held: Callable[[], tuple[int, ...]] = tuple
    ) -> None:
        self.options = options
        self.place = Place()
        self.epoch = -1
        self.loop: Loop | None = None
        self.resume: Place | None = None
        self.skipped = 0
        self.paused = self.rank_paused = self.in_order = self.stands = False
        self._name = name
        self._group = group
        self._held = held
        self._stream: ms.Welcome | None = None
        self._last: Loop | None = None  # over or not: where it is is where this consumer is
        self._saved_epoch: int | None = (
            None  # at whose start a loaded state stands, until it is known which is given
        )
        self._asks = 0
        self._taking: int | None = None  # the epoch whose batches are wanted; others are out of date
        self._parked_as: ms.Parked | None = None  # told so, and asked for the place again
        self._was_paused = False  # and has asked for the place again
        self._patient = False  # it waits for its place as long as it takes
        self._rank_was_paused = False  # since its epoch began
        self._left: Place | None = None  # where it was in the epoch that it has ended or left last
        self._rank_gone: ms.RankGone | None = None
        self._acts: dict[type[Any], Callable[[Any], Turn]] = {
            ms.Batch: self._offered,
            ms.EpochStarted: self._begun,
            ms.EpochEnded: self._ended,
            ms.NotJoined: self._not_joined,
            ms.HeldUp: self._held_up,
            ms.Parked: self._parked,
            ms.Steered: self._steered,
            ms.Refused: self._refused,
            ms.RankGone: self._heard_of_rank,
        }

    # -- producers ---------------------------------------------------------------------------------------

    def connected(self, stream: ms.Welcome) -> tuple[ms.Message, ...]:
        """A producer has welcomed it, the first or one that was started again; return what to say.

        Raises:
            ProducerGone: It is in the middle of an epoch, which this producer cannot give again.
        """
        before, self._stream = self._stream, stream
        if before is None:
            return ()
        if self.place.begun and (not before.order or before.order != stream.order):
            raise ProducerGone(
                f"Stream {stream.name!r} was started again, and cannot repeat the rest of pass "
                f"{self.place.epoch + 1}: the loader has no seed, or another order than before. Iterate "
                "again for a whole epoch. To continue within an epoch next time, serve with seed=."
            )
        return () if self.paused else (self.ask(),)

    # -- loops -------------------------------------------------------------------------------------------

    @property
    def waits_for_epoch(self) -> bool:
        """Whether it has asked, and no epoch has begun for it yet."""
        return self._taking is None

    def begin(self, place: Place | None = None) -> Loop:
        """Return a new loop: from where `load_state_dict` named, else over the next epoch.

        It begins with `ask`. Never where `place` is: an interrupt may have cut short the end of the epoch before.

        Args:
            place: Where it begins instead.
        """
        following = self.place.next_epoch()
        if self.in_order and not (place or self.resume):
            following, self._patient = following._replace(begun=True), True
        self.loop = Loop(place or self.resume or following)
        return self.loop

    def ask(self, place: Place | None = None) -> ms.Ask:
        """Return what says where this consumer stands, and that it wants to go on from there.

        Args:
            place: Where; left out: at what has to come next.
        """
        self._asks += 1
        self._taking = self._parked_as = self._left = None
        self._was_paused = False
        self.place = place = self.place if place is None else place
        now, here = (self.options.join == word and not place.begun for word in ("now", "here"))
        patient = self._patient and place.begun
        return ms.Ask(self._asks, place.epoch, place.batch, place.begun, now, self._held(), patient, here)

    def enter(self, loop: Loop) -> ms.Ask:
        """Return what a loop asks for that has just begun."""
        self._last = loop
        return self.ask(loop.place)

    def go_back(self, loop: Loop) -> ms.Ask:
        """Return what asks for the rest of the epoch from where the loop is: what was received may have got lost."""
        self.loop = loop
        return self.ask(loop.place)

    def leave(self) -> ms.Leave:
        """The epoch has ended, or is left: the place is that of the next one. Then `over`, when that was said."""
        self._taking = self._parked_as = self.resume = None
        self._left = self.place if self.place.begun else self._left
        self.place = self.place.next_epoch()
        return ms.Leave()  # after the end, too: it says when the last step's computing ended

    def is_at(self, place: Place) -> bool:
        """Whether all that was received has been given."""
        return self.place == place

    def over(self) -> None:
        """No loop is going on; where an interrupt comes before, `leave` is done again."""
        self.loop = None

    # -- clones ------------------------------------------------------------------------------------------

    def branched(self, name: str, stream: ms.Welcome) -> tuple[ms.Message, ...]:
        """It goes on as a clone's, under a name of its own, where the one that it is a copy of is; return what to say.

        That one stands still meanwhile, so all that it has not taken is kept: no seed is needed. What it has taken, and
        the loop was not given yet, lies in the clone's memory, too. Between two epochs the clone says which one it has
        had, so that it is waited for before the next one, as that one is.

        Args:
            name: The clone's name.
            stream: What its own connection was welcomed by.
        """
        self._name = self._group = name
        self._stream = stream
        left, self._rank_gone = self._left, None
        if self.loop is not None:
            return (self.ask(),)
        if left is None or self.paused:
            return ()
        self._asks += 2  # the answer to this one is out of date
        return ms.Ask(self._asks - 1, left.epoch, left.batch, True, False, ()), ms.Leave()

    # -- saved states ------------------------------------------------------------------------------------

    @property
    def given(self) -> Place:
        """The first sample that the user has not been given."""
        return self.resume or (self.place if self._last is None else self._last.place)

    def load(self, place: Place, *, same_order: bool, patient: bool = False) -> None:
        """Go on there with the next loop.

        Args:
            place: Where.
            same_order: Whether the state was saved of a stream whose epochs come in the same order.
            patient: Whether it waits until the others have ended their epoch, should they be past that place.
        """
        self._last = None
        self._patient = patient
        self.resume = place
        # an epoch's start: any later epoch is whole, too, but it is another one
        self._saved_epoch = place.epoch if same_order and not place.begun else None

    # -- messages ----------------------------------------------------------------------------------------

    def hear(self, message: ms.Message) -> Turn:
        """Take one message.

        Returns:
            What follows from it: nothing, if it is out of date or not for the session.

        Raises:
            ConsumerTimedOut: It stood still for longer than the stream's stall timeout, and its place has gone.
            JoinRefused: It does not wait for an epoch, and cannot get the whole of the current one; or the ranks of
                its group would begin at different places.
            LoaderFailed: The loader raised.
        """
        act = self._acts.get(type(message))
        return _NOTHING if act is None else act(message)

    def hear_early(self, message: ms.Message) -> Turn:
        """Hear of a pause, or of a rank that has gone, before the batches that were sent earlier are taken.

        A rank that has gone may be heard of again.
        """
        return self.hear(message) if isinstance(message, (ms.RankGone, ms.Steered)) else _NOTHING

    def require_ranks(self) -> None:
        """Before a batch is taken: go no further than a rank of the group that has gone.

        Raises:
            GroupBroken: It has come as far as that one.
        """
        error = broken(self._group, self._rank_gone, self.place)
        if error is not None:
            raise error

    def _offered(self, batch: ms.Batch) -> Turn:
        missing = batch.seq - self.place.batch
        if batch.epoch != self._taking or missing < 0:
            return Turn((ms.Release(batch.lease),))  # of an epoch that was left: it was on its way
        if missing and self.options.on_lag != "skip":
            # one was received and lost, by an interrupt at the wrong moment
            return Turn((ms.Release(batch.lease), self.ask()))
        self.place = Place(batch.epoch, batch.seq + 1, 0, True)
        self.skipped += missing
        return Turn(_TAKE, batch)

    def _begun(self, started: ms.EpochStarted) -> Turn:
        if started.ask != self._asks:
            return _NOTHING
        anywhere = self.place == Place() and self._saved_epoch is None
        batch = 0 if self.place.begun else started.seq
        news = Begins(started.epoch, anywhere, batch, self.options.join == "here", self._saved_epoch)
        self._taking = self.epoch = started.epoch
        self.place = Place(started.epoch, started.seq, 0, begun=True)
        if self.loop is not None:
            self.loop.began(started.epoch, started.seq)
        self.resume = self._saved_epoch = self._parked_as = None
        self._patient = self.stands = False
        self._rank_was_paused = self.rank_paused
        return Turn(news=news)

    def _ended(self, ended: ms.EpochEnded) -> Turn:
        """Whether nothing of the epoch is missing; what was received and lost is asked for again."""
        if ended.epoch != self._taking:
            return _NOTHING
        if ended.failed:
            raise LoaderFailed(ended.message, ended.traceback)
        missing = ended.batches - self.place.batch
        if missing and self.options.on_lag != "skip":
            return Turn((self.ask(),))
        self.skipped += missing
        self.place = Place(ended.epoch, ended.batches, 0, begun=True)
        return _ENDED

    def _held_up(self, told: ms.HeldUp) -> Turn:
        return Turn(news=told) if told.ask == self._asks else _NOTHING

    def _parked(self, parked: ms.Parked) -> Turn:
        if self._taking is None:  # of an epoch whose beginning was never heard of
            return Turn((self.ask(),))
        if parked.epoch != self._taking:
            return _NOTHING
        ask = self.ask()  # what it lacks may still be there
        self._parked_as = parked
        return Turn((ask,))

    def _refused(self, refused: ms.Refused) -> Turn:
        raise JoinRefused(f"{refused.reason}.")

    def _heard_of_rank(self, gone: ms.RankGone) -> Turn:
        self._rank_gone = stricter(self._rank_gone, gone)
        return _NOTHING

    def _steered(self, asked: ms.Steered) -> Turn:
        if self.options.world_size > 1:
            # no ask is taken back: another rank may be in the step of a batch that this one has yet to get
            self.rank_paused, self._rank_was_paused = asked.on, True
            return _NOTHING
        if asked.on == self.paused:
            return _NOTHING
        self.paused = asked.on
        self._asks += 1  # what was asked before is answered no more
        self._taking = self._parked_as = None
        if asked.on or self.loop is None:
            return _NOTHING
        ask = self.ask()
        self._was_paused = True
        return Turn((ask,))

    def _not_joined(self, answer: ms.NotJoined) -> Turn:
        if answer.ask == self._asks:
            raise self._why_not_joined(answer)
        return _NOTHING

    def _why_not_joined(self, answer: ms.NotJoined) -> ConsumerTimedOut | JoinRefused:
        place, parked = self.place, self._parked_as
        batches = None if self._stream is None else self._stream.epoch_batches
        of = f" of {batches}" if batches is not None else ""
        where = f"the stream is at batch {answer.published}{of} of pass {answer.epoch + 1}"
        if (self._was_paused or self._rank_was_paused) and place.begun:
            why = ""
            if self._stream is not None and not self._stream.order:
                why = f": {self._stream.unordered or 'its loader has no reproducible order'}"
            return ConsumerTimedOut(
                f"{self._name!r} was paused at batch {place.batch} of pass {place.epoch + 1}. Meanwhile "
                f"{where}, and the stream cannot repeat the batches in between{why}. Iterate again for the "
                "next epoch."
            )
        if parked is not None:
            advice = (
                "If you pause on purpose, serve with a larger stall_timeout_s."
                if not self.stands
                else (
                    "A loop also stalls while its thread waits for another trial of the stream. End that "
                    "trial's epoch first, or serve a second stream for it."
                )
            )
            return ConsumerTimedOut(
                f"{self._name!r} timed out: it stalled for {parked.stood_still_s:.0f} s in pass "
                f"{parked.epoch + 1} while other trials waited, so they continued without it. It received "
                f"{place.batch} batches of that pass, and {where}. Iterate again for the next epoch. "
                f"{advice}"
            )
        if place.begun:
            return ConsumerTimedOut(
                f"{self._name!r} cannot continue at batch {place.batch} of pass {place.epoch + 1}. Other "
                f"trials use the stream, {where}, and the batches in between are gone. Iterate again "
                "for the next epoch."
            )
        return JoinRefused(
            f"{self._name!r} is too late to get the whole epoch: {where}, and only its first "
            f'{answer.band} batches are kept for late trials. Attach with join="epoch" to start with '
            "the next epoch, or serve with a larger late_join=."
        )


def stricter(one: ms.RankGone | None, other: ms.RankGone) -> ms.RankGone:
    """Return which of two ranks that have gone lets the others go less far."""
    return other if one is None or _reach(other) < _reach(one) else one


def _reach(gone: ms.RankGone) -> tuple[int, int]:
    return (gone.epoch, gone.seq) if gone.seq else (0, 0)


def broken(group: str, gone: ms.RankGone | None, place: Place) -> GroupBroken | None:
    """Return what to raise instead of a rank's next loader batch; None while it may go on.

    Args:
        group: The group's name.
        gone: The rank that has gone, if one has.
        place: Where this rank stands.
    """
    if gone is None:
        return None
    behind = place.epoch < gone.epoch or (place.epoch == gone.epoch and place.batch < gone.seq)
    if gone.seq and behind:
        return None
    where = (
        f"left after it had taken part in pass {gone.epoch + 1}"
        if gone.seq
        else f"died or left in the middle of pass {gone.epoch + 1}"
    )
    error = GroupBroken(
        f"Rank {gone.rank} of group {group!r} {where}, so this rank gets no more batches: in a "
        "collective operation it would wait forever. The output of that rank says why it ended. Start "
        "all ranks again from a checkpoint (torchrun does this with --max-restarts). They attach as a "
        "new group."
    )
    error.at_once = not gone.seq
    return error
