"""The process of a background kernel: how it is started, and how its end is noticed.

There are three ways to one. It is *forked* from a server that has imported torch and ipykernel once (`forking`),
*spawned* as a Python of its own, or *adopted*: another process started it, and it goes on without us. To
its user they differ only in `ProcessEnd.code`, which is unknown of an adopted process.

Its environment is this process's own, the added variables, and the MPS daemon's while one of this user's runs
(`device_sharing.mps`); for some of those a fork comes too late (`read_once`).

All of it runs on the hub's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal as signals
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from tsnb.device_sharing.mps import with_mps
from tsnb.discovery.entries import OWNER, this_owner
from tsnb.kernels.processes.death import KernelDied, when_gone
from tsnb.kernels.processes.launch import DETACHED
from tsnb.machine.owners import Owner, alive
from tsnb.native.start_line import CLOSED
from tsnb.private.files import open_private

__all__ = [
    "ENTRY",
    "THREADS",
    "KernelProcess",
    "Launch",
    "ProcessEnd",
    "adopt",
    "clear_files",
    "entry",
    "environment",
    "read_once",
    "require_directory",
    "spawn",
]


def require_directory() -> None:
    """Check that there is a working directory and a home: Python's own messages without one vary, and never help.

    Raises:
        KernelDied: The working directory has been removed, or this user has no home.
    """
    try:
        Path.home()
    except RuntimeError:
        raise KernelDied(
            "This user has no home directory, which Jupyter's kernels need. Set HOME to one of your "
            "directories, and start again."
        ) from None
    try:
        os.getcwd()  # noqa: PTH109 (the path itself is not needed)
    except FileNotFoundError:
        raise KernelDied(
            "The working directory of this process has been removed, so no kernel can start in it. "
            "Change to an existing one (`%cd ~`), and start again."
        ) from None


def entry(module: str) -> str:
    """Return the code of a child that runs `main` of one of this package's modules.

    It finds the package where this process has it, installed or not, without a PYTHONPATH that other Pythons
    started from a cell would inherit. Nothing is imported from its working directory: this process's own path
    arrives with the first order.
    """
    package = str(Path(__file__).resolve().parents[3])
    return f"{CLOSED}sys.path.append({package!r}); from tsnb.kernels.processes.{module} import main; main()"


ENTRY = entry("launch")
"""A spawned kernel's code."""


@dataclass(frozen=True)
class Launch:
    """How to start a kernel."""

    arguments: Sequence[str]
    """ipykernel's command line: `-f`, the connection file, options."""
    environment: Mapping[str, str]
    """All of its environment."""
    log: Path
    """Takes its standard streams; emptied first."""
    lane: int
    """Its end of the line on which files come and go (`lane`); it inherits it."""
    passed: tuple[int, ...] = ()
    """Other descriptors that it inherits."""
    detached: bool = False
    """Whether it is to outlive this process once it has called `native.ties.untie`."""


class ProcessEnd(NamedTuple):
    """How a process ended."""

    code: int | None
    """Its exit status; negative: the signal that killed it; None: unknown."""
    reason: str = ""
    """Why, where more is known than the status says."""


class KernelServer(Protocol):
    """What kernels are forked from (`forking.ForkServer`)."""

    pid: int

    async def take_in(self, pid: int) -> KernelProcess:
        """Look after a clone of one of its kernels."""


class KernelProcess:
    """A kernel's process.

    Attributes:
        pid: Its process, which leads a process group of its own.
        ended: Done when it has gone.
        server: What it was forked from; None where it is no fork. That looks after its clones, too.
    """

    def __init__(self, pid: int, loop: asyncio.AbstractEventLoop) -> None:
        self.pid = pid
        self.server: KernelServer | None = None
        self.ended: asyncio.Future[ProcessEnd] = loop.create_future()

    def end_with(self, ending: ProcessEnd) -> None:
        """Note that it has gone; the first word counts."""
        if not self.ended.done():
            self.ended.set_result(ending)

    def signal(self, number: signals.Signals) -> None:
        """Send it a signal, if it is there."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def signal_group(self, number: signals.Signals) -> None:
        """Send a signal to it and to all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def spawn(launch: Launch, loop: asyncio.AbstractEventLoop) -> KernelProcess:
    """Start a Python of its own.

    Raises:
        OSError: The system refuses.
    """
    word = f"{DETACHED if launch.detached else ''}{os.getpid()}:{launch.lane}"
    # appended lines stay at the end when a long log is shortened
    with os.fdopen(open_private(launch.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as log:
        popen = subprocess.Popen(
            [sys.executable, "-c", ENTRY, word, *launch.arguments],
            env=launch.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(launch.lane, *launch.passed),
            start_new_session=True,
        )
    process = KernelProcess(popen.pid, loop)
    when_gone(loop, popen, lambda: process.end_with(ProcessEnd(popen.wait())))
    return process


def adopt(found: Owner, loop: asyncio.AbstractEventLoop) -> KernelProcess:
    """Watch a process that another one started. Its end is seen at once, its exit status never.

    Raises:
        KernelDied: It has gone, or cannot be seen from here.
    """
    lives = alive(found)
    if not lives:
        why = (
            "has ended"
            if lives is False
            else f"runs in another container or on another machine ({found.host})"
        )
        raise KernelDied(f"its kernel {why} (pid {found.pid})")
    process = KernelProcess(found.pid, loop)
    when_gone(loop, found.pid, lambda: process.end_with(ProcessEnd(None)))
    return process


def clear_files(connection_file: Path, log: Path) -> None:
    """Remove a kernel's connection file, its sockets and its log. A process that still starts would make them anew.

    Args:
        connection_file: Its sockets lie beside it.
        log: Its log.
    """
    for path in (*connection_file.parent.glob(f"{connection_file.stem}[.-]*"), log):
        path.unlink(missing_ok=True)


NOT_INHERITED = ("JPY_PARENT_PID", "PYTEST_CURRENT_TEST")
"""Left out of a child's environment: the notebook server's pid would make it watch the wrong process, and
under pytest ipykernel would not capture what C code prints."""

ADDED = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}
"""Added to it: keeps a debugger's warning about frozen modules out of the output."""

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Each is 1 in the fork server, so that nothing there starts a thread; a kernel sets its own (`in_kernel.forked`)."""

_READ_ONCE = re.compile(
    r"PYTHON.*|TORCH.*|(PYTORCH|ATEN|C10|OMP|GOMP|KMP|MKL|OPENBLAS|GOTO|BLIS|DNNL|ONEDNN|NPY|NUMPY|NUMEXPR|TQDM|PYDEVD"
    r"|LD|LC|MALLOC)_.*|LANG|LANGUAGE|GLIBC_TUNABLES|HOME"
)
"""Names of variables that count when Python starts or a library is imported, not later."""

_READ_AT_USE = frozenset(
    {
        "PYTHONBREAKPOINT",  # by each breakpoint; `ray.init` sets it
        "TORCHINDUCTOR_CACHE_DIR",  # by each compilation; torch sets it with the first optimizer that is made
        "PYTORCH_NVML_BASED_CUDA_CHECK",  # by each torch.cuda.is_available(); lightning sets it
        "KMP_DUPLICATE_LIB_OK",  # by the second OpenMP library of a process, as that is loaded; scikit-learn sets it
        "KMP_INIT_AT_FORK",  # by OpenMP's first use, which no server has seen; scikit-learn sets it
    }
)
"""Names like those that are read later. Libraries set them in a notebook that imports them, or makes an optimizer:
all its trials would be spawned, four times as slow to start and each with a torch of its own in memory."""


def environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: this process's own, what attaches it to MPS, and the added variables."""
    kept = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    return {**kept, **ADDED, OWNER: this_owner(), **with_mps(added)}


def read_once(wanted: Mapping[str, str], own: Mapping[str, str]) -> list[str]:
    """Return the variables that would have no effect, or the wrong one, in a fork.

    Args:
        wanted: The environment that a kernel is to have.
        own: That of the server.
    """
    names = [name for name in {**wanted, **own} if _READ_ONCE.fullmatch(name) and name not in _READ_AT_USE]
    differ = sorted(name for name in names if wanted.get(name) != own.get(name))
    return [name for name in differ if name not in THREADS or not _is_a_number(wanted.get(name, "1"))]


def _is_a_number(value: str) -> bool:
    return value.isdigit() and int(value) > 0
