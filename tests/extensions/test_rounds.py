"""What observers and consumers say of rounds: only what fits reaches the growing data set, and a reason goes back."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile import JUNK, changed_somewhere
from tsnb.errors import RemoteProtocolError
from tsnb.extensions.rounds import Rounds
from tsnb.growing.selection import RoundsAsked, Trigger, every
from tsnb.stream.consumer.losses import Losses
from tsnb.stream.decisions import events as ev
from tsnb.stream.protocol.extension import Undoable
from tsnb.text.foreign import pack


class Growth:
    """What a growing data set is told."""

    in_words = ""
    first_epoch = 3

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.losses = SimpleNamespace(note=lambda *told: self.told.append(told))

    def why_not(self, select: str) -> str:
        return "there are no classes" if select == "balanced" else ""

    def set_rounds(self, trigger: Trigger, select: str) -> None:
        self.told.append((trigger, select))
        self.in_words = trigger.words


def stream(growth: Any) -> tuple[Rounds, list[ev.Event]]:
    happened: list[ev.Event] = []
    settings = SimpleNamespace(name="photos")
    core: Any = SimpleNamespace(lock=threading.Condition(), settings=settings, step=happened.append)
    return Rounds(core, growth), happened


OBSERVER: Any = SimpleNamespace(role="observer", name="me", notes={})
RANK: Any = SimpleNamespace(role="consumer", name="bert[1]", notes={})


def test_rounds_that_are_asked_for_begin_and_end() -> None:
    """The next epoch waits for its trigger; without one epochs follow each other again."""
    growth = Growth()
    rounds, happened = stream(growth)
    rounds.hear(OBSERVER, pack(RoundsAsked(every(2000).to_text(), "new")))
    rounds.hear(OBSERVER, pack(RoundsAsked(Trigger().to_text(), "all")))
    assert growth.told == [(every(2000), "new"), (Trigger(), "all")]
    assert happened == [ev.RoundDue(0), ev.RoundDue(None)]


def test_why_there_are_no_rounds_goes_back_to_who_asked() -> None:
    """Of a data set that does not grow, and of samples without classes."""
    asked = pack(RoundsAsked(every(9).to_text(), "balanced"))
    with pytest.raises(Undoable, match="'photos' does not grow"):
        stream(None)[0].hear(OBSERVER, asked)
    with pytest.raises(Undoable, match="no classes"):
        stream(Growth())[0].hear(OBSERVER, asked)


def test_losses_are_those_of_the_group() -> None:
    """The ranks of a group train one model; one that served another data set before hears them in vain."""
    growth = Growth()
    told = pack(Losses(np.array([7, 1], "<u4").tobytes(), np.array([0.5, 2.0], "<f4").tobytes()))
    stream(growth)[0].hear(RANK, told)
    ((name, samples, losses),) = growth.told
    assert (name, samples.tolist(), losses.tolist()) == ("bert", [7, 1], [0.5, 2.0])
    stream(None)[0].hear(RANK, told)


@pytest.mark.parametrize(
    "losses",
    [
        Losses(b"\1\0\0\0", b""),
        Losses(b"\1\0\0\0", b"\0\0\x80?\0\0\x80?"),
        Losses(b"\1\0\0", b"\0\0\x80"),
        Losses(b"\1\0\0\0", np.array([np.nan], "<f4").tobytes()),
        Losses(b"\1\0\0\0", np.array([np.inf], "<f4").tobytes()),
    ],
)
def test_losses_that_ours_would_not_report_are_refused(losses: Losses) -> None:
    """Other numbers of them than of samples, parts of one, and numbers that are none."""
    growth = Growth()
    with pytest.raises(RemoteProtocolError):
        stream(growth)[0].hear(RANK, pack(losses))
    assert not growth.told


SAID: list[tuple[Any, msgspec.Struct]] = [
    (OBSERVER, RoundsAsked("[2000, 0.0, []]", "recent:5000")),
    (RANK, Losses(b"\1\0\0\0", b"\0\0\x80?")),
]


@given(st.sampled_from(SAID), st.data())
def test_any_part_replaced_by_anything_is_refused_or_meant(
    said: tuple[Any, msgspec.Struct], data: st.DataObject
) -> None:
    """Nothing else reaches the data set."""
    peer, payload = said
    growth = Growth()
    try:
        packed = msgspec.msgpack.encode(
            changed_somewhere(msgspec.to_builtins(payload, builtin_types=(bytes,)), data, JUNK)
        )
    except (OverflowError, UnicodeError, TypeError):
        return
    try:
        stream(growth)[0].hear(peer, packed)
    except (RemoteProtocolError, Undoable):
        assert not growth.told
        return
    assert len(growth.told) == 1
