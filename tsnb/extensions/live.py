"""Live values (`tsnb.live`) that are changed and shown from outside: an observer asks, and a consumer answers.

    observer --SetLive--> producer's half --LiveAsked--> consumer's half
    observer <--LiveTold-- producer's half <--LiveTold-- consumer's half

The consumer's half also says which values there are (`LiveNow`), for the readings of its stream.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from tsnb.config import LIVE_LETTERS, MOST_LIVE
from tsnb.errors import RemoteProtocolError, TsnbError
from tsnb.stream.protocol.extension import Extension, Remote, Undoable
from tsnb.text.foreign import Text, Whole, pack, unpack
from tsnb.text.printable import one_line

if TYPE_CHECKING:
    from tsnb.stream.producer.core import Core
    from tsnb.telemetry.observer import Observer

__all__ = [
    "LiveAnswers",
    "LiveAsked",
    "LiveExchange",
    "LiveHere",
    "LiveNow",
    "LiveTold",
    "SetLive",
    "live_here",
    "set_live",
    "shown_live",
]

LIVE_S = 30.0
"""How long a consumer may take to come to its next batch: a validation between two epochs takes its time."""

_NO_LIVE = (
    'its code reads no live hyperparameters yet. Create one with tsnb.live("lr", 0.1) in the training code'
)


@dataclass
class LiveHere:
    """The live values of this process."""

    now: str = ""
    """As JSON, each as text by its name; empty: it has none."""
    change: Callable[[str], tuple[str, str, str]] | None = None
    """Changes them as JSON says, and returns values, kind and error, as `LiveTold` tells them. None: it has none."""


live_here = LiveHere()
"""Filled in by `experiments.live_values` once there are any."""


class SetLive(msgspec.Struct, frozen=True):
    """An observer asks that live values in a consumer's process be changed, all of them or none."""

    consumer: Text
    values: Text
    """By name, as JSON; an empty object changes nothing, and is answered as well."""


class LiveAsked(msgspec.Struct, frozen=True):
    """What an observer asked for, on its way to the consumer, which answers at its next batch."""

    asker: Whole
    """Which observer: the answer has it again."""
    values: Text
    """As `SetLive` has them."""


class LiveNow(msgspec.Struct, frozen=True, tag=True):
    """The live values of a consumer's process: said when there are any, and when one has changed."""

    values: Text
    """Each as text by its name, as JSON."""


class LiveTold(msgspec.Struct, frozen=True, tag=True):
    """A consumer's answer to `LiveAsked`, and the producer's to the observer."""

    asker: Whole
    values: Text
    """Its live values as they are from its next batch on, by name: `{"lr": {"value": 0.1, "wanted": "a number"}}`."""
    kind: Text = ""
    """The class of the error that it would raise; empty: it has changed them."""
    error: Text = ""
    """What is wrong with the values; nothing has been changed then."""


class LiveExchange(Extension):
    """The producer's half: hands questions and answers on, and keeps what consumers say for readings.

    Args:
        core: The producer's.
    """

    name = "live"

    def __init__(self, core: Core) -> None:
        self._core = core

    def hear(self, peer: Remote, payload: bytes) -> None:
        """Take an observer's question, or what a consumer says.

        Raises:
            RemoteProtocolError: It is neither.
            Undoable: No such consumer can be asked.
        """
        try:
            if peer.role == "observer":
                self._ask(peer, unpack(SetLive, payload))
                return
            told: LiveNow | LiveTold = unpack(LiveNow | LiveTold, payload)  # type: ignore[arg-type]  # a union
        except ValueError as error:
            raise RemoteProtocolError(str(error)) from None
        with self._core.lock:
            if isinstance(told, LiveNow):
                peer.notes[self.name] = live_in(told.values)
                return
            asker = self._core.sessions.get(told.asker)
            if asker is not None and asker.role == "observer":
                asker.tell(self.name, pack(told))

    def _ask(self, asker: Remote, asked: SetLive) -> None:
        core, name = self._core, asked.consumer
        with core.lock:
            members = {
                m.name: m for k, m in core.dispatch.members.items() if core.sessions[k].role == "consumer"
            }
            found = members.get(name)
            if found is None:
                there = ", ".join(members) or "none"
                raise Undoable(
                    f"No trial named {name!r} is attached to {core.settings.name!r}. Attached: {there}"
                )
            if found.group is not None:
                raise Undoable(
                    f"{name!r} is one rank of a group. The ranks would change the value after different "
                    "batches. Change the value in the training code of all ranks"
                )
            core.sessions[found.key].tell(self.name, pack(LiveAsked(asker.key, asked.values)))

    def reading_of(self, peer: Remote, since: int = 0) -> dict[str, Any]:
        """Return the live values of a consumer's process."""
        return {"live": dict(peer.notes.get(self.name, {}))}


class LiveAnswers(Extension):
    """A consumer's half: has its process's live values changed as somebody asks, and says which there are."""

    name = "live"

    def __init__(self) -> None:
        self._peer: Remote | None = None
        self._told = ""

    def met(self, peer: Remote) -> None:
        """Tell a new producer all of them at the next step."""
        self._peer, self._told = peer, ""

    def hear(self, peer: Remote, payload: bytes) -> None:
        """Answer a question: the values are changed from the next batch on.

        Raises:
            RemoteProtocolError: It is not one.
        """
        try:
            asked = unpack(LiveAsked, payload)
        except ValueError as error:
            raise RemoteProtocolError(str(error)) from None
        change = live_here.change
        told = ("{}", "NoSuchLiveValue", _NO_LIVE) if change is None else change(asked.values)
        peer.tell(self.name, pack(LiveTold(asked.asker, *told)))

    def tick(self, now_s: float) -> None:
        """Tell the values where one has changed."""
        if (live := live_here.now) != self._told and self._peer is not None:
            self._told = live
            self._peer.tell(self.name, pack(LiveNow(live)))

    def close(self) -> None:
        """Tell them for the last time."""
        self.tick(0.0)


def live_in(values: str) -> dict[str, str]:
    """Return live values as `LiveNow` has them, fit to be shown; none of what is not that."""
    try:
        found = json.loads(values).items()
    except (ValueError, RecursionError, AttributeError):
        return {}
    return {
        one_line(name, LIVE_LETTERS): one_line(str(value), LIVE_LETTERS)
        for name, value in list(found)[:MOST_LIVE]
    }


def set_live(
    observer: Observer, consumer: str, values: Mapping[str, Any], timeout_s: float = LIVE_S
) -> LiveTold:
    """Have live values in a consumer's process changed, all of them or none; return its answer.

    Args:
        observer: Follows the stream that the consumer reads.
        consumer: The consumer's name.
        values: By name, of types that JSON has; with none it only says which there are.
        timeout_s: Seconds to wait for it: it answers at its next batch.

    Raises:
        ProducerGone: The producer has gone.
        RemoteProtocolError: The answer is not one.
        TsnbError: No such consumer is attached, or not any more, or it has not come to a batch in that time.
    """
    observer.tell(LiveExchange.name, pack(SetLive(consumer, json.dumps(dict(values)))))
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        reading = observer.read(left)
        if (told := observer.told.pop(LiveExchange.name, None)) is not None:
            try:
                return unpack(LiveTold, told)
            except ValueError as error:
                raise RemoteProtocolError(str(error)) from None
        if reading is not None and consumer not in reading.attached:
            raise TsnbError(f"{consumer!r} left {observer.name!r} before its next batch")
    late = f"{consumer!r} has not requested its next batch of {observer.name!r} within {timeout_s:.0f} s"
    raise TsnbError(f"{late}. The change takes effect at that batch")


def shown_live(values: str) -> dict[str, dict[str, Any]]:
    """Return what a consumer has told of its live values.

    Raises:
        RemoteProtocolError: It is not that.
    """
    try:
        return {
            str(name): {"value": value["value"], "wanted": one_line(value["wanted"])}
            for name, value in json.loads(values).items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RemoteProtocolError(f"live hyperparameters that cannot be read: {values!r:.80}") from error
