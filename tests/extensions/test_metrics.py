"""Numbers of a training on their way to readings: each once, the last in time, and nothing that cannot be shown."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile import JUNK, changed_somewhere
from tsnb.errors import RemoteProtocolError
from tsnb.extensions.metrics import Metrics, MetricsKept, MetricsTold
from tsnb.telemetry.metrics import MOST_TOLD, log
from tsnb.text.foreign import pack


def kept() -> tuple[MetricsKept, Any]:
    member = SimpleNamespace(share=SimpleNamespace(batches=0))
    core: Any = SimpleNamespace(
        lock=threading.Condition(), news=0, dispatch=SimpleNamespace(members={3: member})
    )
    return MetricsKept(core), SimpleNamespace(role="consumer", name="cnn", key=3, notes={}, member=member)


class Producer:
    """A stream that remembers what it is told."""

    name, role, key, pid = "numbers", "producer", 0, 7

    def __init__(self) -> None:
        self.notes: dict[str, Any] = {}
        self.told: list[bytes] = []
        self.batches = self.ended = 0
        self.length: int | None = 45

    def tell(self, extension: str, payload: bytes) -> None:
        assert extension == "metrics"
        self.told.append(payload)


def test_numbers_reach_the_readings_once_and_a_new_producer_again() -> None:
    """The last moment's too, and nothing after it."""
    half, cnn = kept()
    told, first, second = MetricsTold(), Producer(), Producer()
    told.met(first)
    log(extension_loss=math.nan)
    for _ in range(3):
        told.tick(0.0)
    assert len(first.told) == 1
    half.hear(cnn, first.told[0])
    assert math.isnan(half.reading_of(cnn)["metrics"]["extension_loss"])
    told.met(second)
    log(extension_loss=0.5)
    told.close()
    assert len(second.told) == 1
    half.hear(cnn, second.told[0])
    assert half.reading_of(cnn)["metrics"]["extension_loss"] == 0.5
    log(extension_loss=0.25)
    told.tick(1e9)
    assert len(second.told) == 1


def test_a_number_has_the_batch_at_which_it_was_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much later its stream is told. What was logged over another connection has none there."""
    half, cnn = kept()
    told, stream = MetricsTold(), Producer()
    told.met(stream)
    stream.batches, stream.ended = 45, 1
    log(place_val=0.5)
    stream.batches = 52
    log(place_loss=1.0)
    told.tick(0.0)
    cnn.member.share.batches = 52
    half.hear(cnn, stream.told.pop())
    shown = half.reading_of(cnn)
    assert shown["logged_at"]["place_val"] == 45 and shown["logged_at"]["place_loss"] == 52
    assert {"place_val", "place_loss"} <= {*shown["sparse"]}, "each once an epoch so far"
    for stream.batches in range(53, 60):
        log(place_loss=1.0)
    told.close()
    cnn.member.share.batches = 59
    half.hear(cnn, stream.told.pop())
    shown = half.reading_of(cnn)
    assert shown["logged_at"]["place_val"] == 45 and shown["logged_at"]["place_loss"] == 59
    assert "place_val" in shown["sparse"] and "place_loss" not in shown["sparse"]
    again, anew, successor = MetricsTold(), Producer(), Producer()
    again.met(anew)
    anew.batches = 8
    log(place_val=0.25)
    again.met(successor)
    log(place_loss=0.5)
    again.close()
    other, same = kept()
    other.hear(same, successor.told[0])
    assert "place_val" not in other.reading_of(same)["logged_at"]
    assert other.reading_of(same)["metrics"]["place_val"] == 0.25


def test_those_logged_first_are_kept_where_there_are_many() -> None:
    """A packet has an end. They change all the same."""
    half, cnn = kept()
    half.hear(cnn, pack(Metrics({f"n{k}": float(k) for k in range(99)})))
    half.hear(cnn, pack(Metrics({"n98": 1.0, "n3": math.inf})))
    shown = half.reading_of(cnn)["metrics"]
    assert [*shown] == [f"n{k}" for k in range(MOST_TOLD)] and shown["n3"] == math.inf
    with pytest.raises(RemoteProtocolError, match="observer"):
        half.hear(SimpleNamespace(role="observer", name="me", notes={}), pack(Metrics({})))


@given(st.data())
def test_anything_else_is_refused_or_printable(data: st.DataObject) -> None:
    """Names of any kind, and values that are none."""
    half, cnn = kept()
    said = msgspec.to_builtins(Metrics({"loss": 0.5, "lr": 3.0}))
    try:
        packed = msgspec.msgpack.encode(changed_somewhere(said, data, JUNK | st.just("\x1b]0;a\x07\u202e")))
    except (OverflowError, UnicodeError, TypeError):
        return
    try:
        half.hear(cnn, packed)
    except RemoteProtocolError:
        return
    for name, value in half.reading_of(cnn)["metrics"].items():
        assert name.isprintable() and type(value) is float
