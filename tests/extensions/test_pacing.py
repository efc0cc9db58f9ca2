"""Dividing compute anew while trials train: what an observer asks is done, and nonsense ends its connection alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tsnb.errors import RemoteProtocolError
from tsnb.extensions.pacing import Pacing
from tsnb.stream.producer.core import Core, Settings
from tsnb.stream.protocol.extension import Undoable
from tsnb.telemetry.observer import Divided
from tsnb.text.foreign import pack

OBSERVER: Any = SimpleNamespace(role="observer", name="me", notes={})
CONSUMER: Any = SimpleNamespace(role="consumer", name="bert", notes={})


@pytest.fixture(params=[False, True], ids=["alone", "in step"])
def core(request: pytest.FixtureRequest) -> Iterator[Core]:
    made = Core(Settings(name="s", in_step=request.param))
    yield made
    made.slots.close()
    made.arena.close()


def test_compute_is_divided_as_an_observer_asks_unless_machines_keep_in_step(core: Core) -> None:
    """A stream of a cluster says why it cannot, and goes on as before."""
    asked = pack(Divided("weights", {"bert": 2.0}))
    if core.settings.in_step:
        with pytest.raises(Undoable) as why:
            Pacing(core).hear(OBSERVER, asked)
        assert why.value.code == "in-step" and core.dispatch.balance.pacing == "together"
        return
    Pacing(core).hear(OBSERVER, asked)
    assert (core.dispatch.balance.pacing, core.dispatch.balance.weights) == ("weights", {"bert": 2.0})


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        pack(Divided("backwards", {})),
        pack(Divided("weights", {"bert": -1.0})),
        pack(Divided("weights", {"bert": math.nan})),
        msgspec.msgpack.encode({"pacing": "weights", "weights": {"bert": "2"}}),
        msgspec.msgpack.encode({"pacing": "weights"}),
    ],
)
def test_what_no_observer_of_ours_asks_is_refused(core: Core, payload: bytes) -> None:
    """Ours checks before it asks."""
    with pytest.raises(RemoteProtocolError):
        Pacing(core).hear(OBSERVER, payload)
    assert core.dispatch.balance.pacing == "together"


def test_a_consumer_does_not_divide_compute(core: Core) -> None:
    """Only who watches the stream may."""
    with pytest.raises(RemoteProtocolError, match="consumer"):
        Pacing(core).hear(CONSUMER, pack(Divided("free", {})))
