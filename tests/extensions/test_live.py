"""Live values from outside: a question reaches its consumer, an answer its asker, and readings say what is there."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile import JUNK, changed_somewhere
from tsnb.errors import RemoteProtocolError
from tsnb.extensions.live import LiveAnswers, LiveAsked, LiveExchange, LiveNow, LiveTold, SetLive, live_here
from tsnb.stream.protocol.extension import Undoable
from tsnb.text.foreign import pack, unpack


class Peer:
    """The other end of a connection."""

    def __init__(self, key: int, role: str, name: str) -> None:
        self.key, self.role, self.name, self.pid = key, role, name, 7
        self.notes: dict[str, Any] = {}
        self.told: list[bytes] = []

    def tell(self, extension: str, payload: bytes) -> None:
        assert extension == "live"
        self.told.append(payload)


def stream(*peers: Peer, group: Any = None) -> LiveExchange:
    members = {p.key: SimpleNamespace(name=p.name, key=p.key, group=group) for p in peers}
    core: Any = SimpleNamespace(
        lock=threading.Condition(),
        sessions={p.key: p for p in peers},
        dispatch=SimpleNamespace(
            members={k: m for k, m in members.items() if peers[0].role == "observer" and k != peers[0].key}
        ),
        settings=SimpleNamespace(name="numbers"),
    )
    return LiveExchange(core)


def test_a_question_reaches_the_consumer_and_its_answer_the_asker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both halves, with nothing between them but payloads."""
    asker, cnn, other = Peer(1, "observer", "me"), Peer(2, "consumer", "cnn"), Peer(3, "observer", "you")
    exchange, answers, producer = stream(asker, cnn, other), LiveAnswers(), Peer(0, "producer", "numbers")
    monkeypatch.setattr(live_here, "change", lambda asked: (asked, "ValueError", "too high"))
    exchange.hear(asker, pack(SetLive("cnn", '{"lr": 3.0}')))
    answers.hear(producer, cnn.told.pop())
    exchange.hear(cnn, producer.told.pop())
    assert unpack(LiveTold, asker.told.pop()) == LiveTold(1, '{"lr": 3.0}', "ValueError", "too high")
    assert not other.told
    exchange.hear(cnn, pack(LiveTold(9, "{}")))  # its asker has gone
    exchange.hear(cnn, pack(LiveTold(2, "{}")))  # no consumer is one
    assert not (asker.told or other.told or cnn.told)


def test_without_live_values_the_answer_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has never called tsnb.live answers as well."""
    monkeypatch.setattr(live_here, "change", None)
    producer = Peer(0, "producer", "numbers")
    LiveAnswers().hear(producer, pack(LiveAsked(4, "{}")))
    told = unpack(LiveTold, producer.told.pop())
    assert (told.asker, told.kind) == (4, "NoSuchLiveValue") and 'tsnb.live("lr", 0.1)' in told.error


def test_readings_say_what_a_consumer_said_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each change, and again to a producer that was started anew."""
    cnn, producer = Peer(2, "consumer", "cnn"), Peer(0, "producer", "numbers")
    exchange, answers = stream(cnn), LiveAnswers()
    answers.met(producer)
    for values, times in (("", 0), ('{"lr": "0.1"}', 1), ('{"lr": "0.1"}', 0), ('{"lr": "0.3"}', 1)):
        monkeypatch.setattr(live_here, "now", values)
        answers.tick(0.0)
        assert len(producer.told) == times
        for told in producer.told:
            exchange.hear(cnn, told)
            assert exchange.reading_of(cnn) == {"live": json.loads(values)}
        producer.told.clear()
    answers.met(producer)
    answers.close()
    assert len(producer.told) == 1
    exchange.hear(cnn, pack(LiveNow("no JSON")))
    assert exchange.reading_of(cnn) == {"live": {}}


def test_whoever_cannot_be_asked_is_named() -> None:
    """A consumer that is not there, and a rank of several processes."""
    asker, cnn = Peer(1, "observer", "me"), Peer(2, "consumer", "cnn")
    with pytest.raises(Undoable, match=r"No trial named 'gru' is attached to 'numbers'\. Attached: cnn"):
        stream(asker, cnn).hear(asker, pack(SetLive("gru", "{}")))
    with pytest.raises(Undoable, match="rank"):
        stream(asker, cnn, group=object()).hear(asker, pack(SetLive("cnn", "{}")))
    assert not cnn.told


SAID: list[tuple[str, msgspec.Struct]] = [
    ("observer", SetLive("cnn", '{"lr": 0.1}')),
    ("consumer", LiveNow('{"lr": "0.1"}')),
    ("consumer", LiveTold(1, "{}", "ValueError", "lr=3 is invalid.")),
    ("producer", LiveAsked(1, "{}")),
]


@given(st.sampled_from(SAID), st.data())
def test_any_part_replaced_by_anything_is_one_error_or_printable(
    said: tuple[str, msgspec.Struct], data: st.DataObject
) -> None:
    """On either side; what is handed on is no worse than what came."""
    role, payload = said
    changed = changed_somewhere(
        msgspec.to_builtins(payload), data, JUNK | st.just("\x1b]0;a\x07b\r\nc\u202e")
    )
    try:
        packed = msgspec.msgpack.encode(changed)
    except (OverflowError, UnicodeError, TypeError):
        return
    asker, cnn, producer = (
        Peer(1, "observer", "me"),
        Peer(2, "consumer", "cnn"),
        Peer(0, "producer", "numbers"),
    )
    exchange = stream(asker, cnn)
    try:
        if role == "producer":
            LiveAnswers().hear(producer, packed)
        else:
            exchange.hear(asker if role == "observer" else cnn, packed)
    except (RemoteProtocolError, Undoable):
        pass
    for told in asker.told:
        assert repr(unpack(LiveTold, told)).isprintable()
    for told in cnn.told:
        assert repr(unpack(LiveAsked, told)).isprintable()
    assert all(text.isprintable() for item in exchange.reading_of(cnn)["live"].items() for text in item)
