"""The one thread that owns all kernels, and its private directory."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from tsnb.kernels import hub as hub_module
from tsnb.kernels.hub import LONGEST_DIRECTORY, Hub, short_parent, the_hub


def test_there_is_one_hub_a_process_on_one_daemon_thread() -> None:
    """A thread that never ends holds the parent-death signal of every child."""
    hub = the_hub()
    assert the_hub() is hub

    async def where() -> threading.Thread:
        return threading.current_thread()

    thread = hub.call(where())
    assert thread.daemon
    assert thread is not threading.main_thread()
    assert hub.call(where()) is thread


def test_waiting_on_its_own_thread_is_refused() -> None:
    """It would wait for itself for ever."""
    hub = the_hub()

    async def wrong() -> None:
        hub.call(asyncio.sleep(0))

    with pytest.raises(RuntimeError, match="cannot wait for itself"):
        hub.call(wrong())


def test_what_takes_too_long_is_cancelled() -> None:
    """A caller that gave up leaves nothing running on the hub."""
    cancelled = threading.Event()

    async def long() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(TimeoutError):
        the_hub().call(long(), 0.05)
    assert cancelled.wait(60)


def test_its_directory_is_private_and_its_paths_fit_a_socket() -> None:
    """Only this user can enter, and a kernel's socket stays within the 107 bytes that a unix socket may have."""
    hub = the_hub()
    assert not stat.S_IMODE(hub.directory.stat().st_mode) & 0o077
    assert len(os.fsencode(hub.directory)) <= LONGEST_DIRECTORY
    assert len(os.fsencode(hub.new_path("k"))) + len("-99999") < 107
    assert len({hub.new_path("k") for _ in range(100)}) == 100


def test_a_long_runtime_directory_gives_way_to_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deep home directory does not keep kernels from starting."""
    monkeypatch.setenv("TSNB_RUNTIME_DIR", str(tmp_path / ("deep" * 20)))
    assert len(os.fsencode(short_parent())) <= 40


def test_a_killed_process_leaves_a_directory_that_the_next_one_sweeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where its sweeper was killed, too: a directory whose lock is free is stale, one in use stays."""
    above = tempfile.TemporaryDirectory(prefix="tsnb-")
    runtime = Path(above.name)
    monkeypatch.setenv("TSNB_RUNTIME_DIR", str(runtime))
    code = "import os, tsnb.kernels.hub as hub; hub.Sweeper = lambda _: None; hub.the_hub(); os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    (stale,) = runtime.glob("hub-*")
    first = Hub()
    second = Hub()
    try:
        assert not stale.exists()
        assert first.directory.exists()
        assert second.directory.exists()
    finally:
        first.close()
        second.close()
    assert not list(runtime.glob("hub-*"))
    above.cleanup()


def test_a_forked_child_has_a_hub_of_its_own_and_leaves_its_parent_s_alone() -> None:
    """A DataLoader worker's end must not end the notebook's kernels."""
    hub = the_hub()
    pid = os.fork()
    if pid == 0:
        hub.close()
        os._exit(0 if hub.directory.exists() else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert hub_module.the_hub() is hub
