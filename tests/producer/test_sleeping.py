"""Until when the serving thread sleeps, and when it has to be woken: not for each batch that fills the window."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator

import pytest

from tsnb.stream.decisions import events as ev
from tsnb.stream.producer.core import Core, Settings
from tsnb.stream.producer.server import Server


@pytest.fixture
def core() -> Iterator[Core]:
    """The shared state of a stream without threads."""
    core = Core(Settings(name="sleeping"))
    yield core
    core.slots.close()
    core.arena.close()


@pytest.fixture
def server(core: Core) -> Iterator[Server]:
    """What would serve it."""
    server = Server(core, f"tsnb-sleeping-{os.getpid()}", "token")
    yield server
    server.close()


def test_it_sleeps_no_longer_than_until_something_is_due_or_was(core: Core, server: Server) -> None:
    """So that what becomes due a little later, batch for batch, need not wake it."""
    soon = time.monotonic() + 0.2
    core.dispatch.due_s = soon
    assert server._stall_timeout_s() <= 0.2 and core.looks_s == soon
    core.dispatch.due_s = None  # the consumer took a batch
    assert server._stall_timeout_s() <= 0.2 and core.looks_s == soon
    core.dispatch.due_s = soon + 100
    assert server._stall_timeout_s() > 0.2, "what is due later counts from then on"


def test_it_is_woken_for_what_is_due_before_it_looks_and_for_nothing_else(core: Core) -> None:
    """While it is awake it looks by itself; in the moment before it sleeps, it is woken for anything."""
    woken: list[float] = []
    core.alarm = lambda: woken.append(core.looks_s)
    dispatch, step = core.dispatch, core.dispatch.step

    def due(event: ev.Event, now: float) -> list[ev.Instruction]:
        step(event, now)
        dispatch.due_s = 50.0
        return []

    dispatch.step = due  # type: ignore[method-assign]
    for core.looks_s in (-math.inf, 40.0, 50.0, 60.0, math.inf):
        core.step(ev.Tick())
    assert woken == [60.0, math.inf]
