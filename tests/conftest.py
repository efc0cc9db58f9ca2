"""What all tests share: private runtime and project directories, and a look at what is left behind.

`no_leftovers` runs around every test: whatever a test starts, ends or kills, afterwards there is no child
process, no socket of ours, no registry entry and no name in /dev/shm that was not there before.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import forking, quarantine
from tsnb.registry import address_prefix

SETTLE_S = 20.0
"""How long what was stopped or killed may take to be gone; a leftover stays. A spawned worker of a DataLoader looks for
its parent every five seconds only."""


signal.signal(signal.SIGINT, signal.default_int_handler)
"""Started in a shell's background, this process ignores interrupts, and all that tests start would inherit it."""


@pytest.fixture(scope="session", autouse=True)
def project_directory() -> Iterator[Path]:
    """Keep the records of this session's trials out of the repository."""
    with tempfile.TemporaryDirectory(prefix="tsnb-test-project-", ignore_cleanup_errors=True) as path:
        os.environ["TSNB_PROJECT_DIR"] = path
        yield Path(path)


@pytest.fixture(scope="session", autouse=True)
def runtime_directory() -> Iterator[Path]:
    """Keep this session's producers apart from the user's own."""
    with tempfile.TemporaryDirectory(prefix="tsnb-test-") as path:
        os.environ["TSNB_RUNTIME_DIR"] = str(Path(path) / "run")
        yield Path(path) / "run"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests in quarantine fail without failing the run; all others fail it."""
    for item in items:
        if reason := quarantine.reason(item.nodeid):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """In halves (`pytest -n 2`) all tests of a Ray cluster stay in one: they share it, and Ray finds no other here.

    `--dist loadgroup` does not do that: with pytest 9.2, xdist 3.8 reads no marks.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Halves(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return "cluster" if "engines/test_cluster" in nodeid else nodeid

    return Halves(config, log)


def children() -> set[str]:
    """Return the descendants of this process that still run."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                found.add(f"process {process.pid}: {' '.join(process.cmdline())[:160]}")
        except psutil.Error:
            continue
    return found


def leftovers() -> set[str]:
    """Return everything of ours that outlives its process if it is not cleaned up."""
    found = children()
    found |= {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}
    unix = Path("/proc/net/unix").read_text()
    found |= {f"socket {line.split()[-1]}" for line in unix.splitlines() if f"@{address_prefix()}-" in line}
    for kind in ("producers", "sockets"):
        entries = Path(os.environ["TSNB_RUNTIME_DIR"], kind)
        found |= {f"{kind} {path.name}" for path in entries.glob("*")} if entries.is_dir() else set()
    return found


@pytest.fixture(autouse=True)
def no_leftovers(runtime_directory: Path) -> Iterator[None]:
    """Fail a test that leaves a process, a socket, a registry entry or a shared-memory name behind."""
    before = leftovers()
    yield
    deadline = time.monotonic() + SETTLE_S
    while new := leftovers() - before - _infrastructure():
        if all(name.startswith("/dev/shm") for name in new) and not (new := new - _beside_us()):
            break
        if time.monotonic() > deadline:
            pytest.fail("left behind: " + "; ".join(sorted(new)))
        _sweep()
        time.sleep(0.05)


def _infrastructure() -> set[str]:
    """Return what Python itself, and our own fork servers, keep for the process's life, once somebody used it."""
    words = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
    kept = {line for line in children() if any(word in line for word in words)}
    # its kernels have its command line too: the idle server is this process's own child
    own = {f"process {process.pid}:" for process in psutil.Process().children()}
    return kept | {
        line
        for line in children()
        if ("tsnb.kernels.forkserver" in line or forking.ENTRY in line) and line.startswith(tuple(own))
    }


def _beside_us() -> set[str]:
    """Return the names in /dev/shm that others hold: the other half of this run (`pytest -n 2`), a run beside it."""
    held: set[str] = set()
    ours = {os.getpid(), *(process.pid for process in psutil.Process().children(recursive=True))}
    for process in _other_tests():
        if process.pid not in ours:
            with contextlib.suppress(psutil.Error, OSError):
                held |= {mapped.path.split()[0] for mapped in process.memory_maps()}
    return held


def _other_tests() -> set[psutil.Process]:
    found: set[psutil.Process] = set()
    for process in psutil.process_iter(["cmdline"]):
        if any(word.rpartition("/")[2] == "pytest" for word in process.info["cmdline"] or ()):
            with contextlib.suppress(psutil.Error):
                found |= {process, *process.children(recursive=True)}
    return found


def _sweep() -> None:
    """Look as the next user would: stale entries of killed producers go."""
    from tsnb import registry

    registry.entries()
