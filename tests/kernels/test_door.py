"""Requests of other processes to one that has trials: answered, refused, turned away; nothing stays behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.scripts import ROOT
from tsnb.errors import TsnbError
from tsnb.experiments import run_cell
from tsnb.kernels import door as module
from tsnb.kernels.door import Door, call, doors
from tsnb.kernels.hub import the_hub
from tsnb.stream.transport.channel import ChannelClosed
from tsnb.stream.transport.local import connect

pytestmark = pytest.mark.system


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A door beside this process's own, which answers with what it was asked; `raise` raises, `hang` waits."""
    monkeypatch.setattr(module, "_NAME", "other")
    going_on = threading.Event()

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request.get("verb") == "raise":
            raise TsnbError("it cannot be done: do this")
        if request.get("verb") == "break":
            raise ZeroDivisionError("a fault of ours")
        if request.get("verb") == "hang":
            going_on.wait(60)
        return {"asked": request}

    hub = the_hub()
    opened = Door(hub, answer)
    yield hub.directory / "other"
    going_on.set()
    hub.loop.call_soon_threadsafe(hub.loop.remove_reader, opened._listener.fileno())
    opened._listener.close()


def test_a_request_is_answered_and_what_is_refused_is_told(door: Path) -> None:
    assert door in doors()
    reply = call(door, {"verb": "x", "changes": {"lr": 0.1}}, 30)
    assert reply == (door, {"asked": {"verb": "x", "changes": {"lr": 0.1}}})
    assert call(door, {"verb": "raise"}, 30) == (door, {"error": "it cannot be done: do this"})
    broken = call(door, {"verb": "break"}, 30)
    assert broken is not None and broken.facts == {"error": "ZeroDivisionError: a fault of ours"}
    with pytest.raises(TimeoutError, match="No answer came"):
        call(door, {"verb": "hang"}, 0.05)


@pytest.mark.parametrize("packet", [b"[1]", b"nonsense", b"\x80\x04\x95pickle", b"[" * 100_000, b'"x"'])
def test_what_is_no_request_ends_its_connection_and_nothing_else(door: Path, packet: bytes) -> None:
    channel = connect(str(door))
    channel.send(packet)
    assert channel.wait(30)
    with pytest.raises(ChannelClosed):
        channel.receive()
    channel.close()
    assert call(door, {"verb": "x"}, 30) is not None


def test_no_more_are_answered_beside_each_other_than_there_are_threads_for(door: Path) -> None:
    channels = [connect(str(door)) for _ in range(module.AT_ONCE)]
    for channel in channels:
        channel.send(json.dumps({"verb": "hang"}).encode())
    refused = call(door, {"verb": "x"}, 30)
    assert refused is not None and "Ask again" in refused.facts["error"]
    for channel in channels:
        channel.close()


def test_a_door_at_which_nobody_answers_is_passed_by(tmp_path: Path) -> None:
    assert call(tmp_path / "door", {"verb": "x"}, 1) is None


KILLED = """
import os, signal, sys
from tsnb.kernels.door import Door
from tsnb.kernels.hub import the_hub

hub = the_hub()
Door(hub, lambda request: os.kill(os.getpid(), signal.SIGKILL))
print(hub.directory, flush=True)
sys.stdin.read()
"""


def test_a_process_that_is_killed_over_a_request_is_told_of() -> None:
    """Whoever asked is told at once; the door goes with the process."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as other:
        assert other.stdout is not None
        door = Path(other.stdout.readline().strip()) / "door"
        assert door in doors()
        with pytest.raises(TsnbError, match="ended before it answered"):
            call(door, {"verb": "x"}, 60)
        assert other.wait(60) == -signal.SIGKILL
    assert call(door, {"verb": "x"}, 60) is None
    deadline = time.monotonic() + 60
    while door.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_request_with_a_value_that_makes_no_sense_is_one_sentence(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of it is printed where the trials run."""
    trial = run_cell("cnn", "x = 1", {})
    trial.wait(60)
    (own,) = [each for each in doors() if each.parent == the_hub().directory]
    for pid in (2**31, 2**63, 2**70):
        reply = call(own, {"verb": "find", "trial": "cnn", "pid": pid}, 30)
        assert reply is not None and reply.facts["trials"] == []
    for wrong in (
        {"verb": "clone", "changes": 5},
        {"verb": "clone", "changes": [["lr", 1]]},
        {"verb": "clone", "at": [1]},
        {"verb": "clone", "name": 5},
        {"verb": "extend"},
        {"verb": "extend", "epochs": "many"},
        {"verb": "extend", "epochs": [2**70]},
    ):
        reply = call(own, {"trial": "cnn", "pid": trial.pid, **wrong}, 30)
        assert reply is not None and reply.facts["error"], wrong
    assert not caplog.records
