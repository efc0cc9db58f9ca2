"""What a forked kernel puts right before it begins: everything that it must not share with its twins.

Called in the new process, on its only thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tsnb.kernels.in_kernel.arrival import use_threads
from tsnb.machine.cores import usable_cores
from tsnb.native.ties import tie_to_parent
from tsnb.private.files import open_private

__all__ = ["blas_threads", "settle"]

_SETTERS = (
    "scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_", "openblas_set_num_threads",
)  # fmt: skip
"""The names that numpy's builds give to the function that sets OpenBLAS's number of threads."""


def settle(request: Mapping[str, Any], server: int) -> None:
    """Take on the environment, directory, log and process group of a kernel, and random numbers of its own.

    Args:
        request: `environment`, `directory`, `log`, `umask` and `limits`, as `forkserver` describes them.
        server: The pid of the server that forked this process.

    Raises:
        OSError: The log or the directory cannot be opened.
    """
    os.setsid()
    tie_to_parent(server)
    _default_signals()
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    _log_to(request["log"])
    if request["umask"] is not None:
        os.umask(request["umask"])
    _limit(request["limits"])
    os.chdir(request["directory"])
    _draw_anew()
    _use_threads()


def _default_signals() -> None:
    """As a new Python has them, whatever the thread that started the server had blocked or ignored."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _limit(limits: Sequence[tuple[int, int, int]]) -> None:
    """Set the limits on open files, memory and the like: each its number, soft and hard."""
    for number, soft, hard in limits:
        if resource.getrlimit(number) != (soft, hard):
            with contextlib.suppress(ValueError, OSError):  # only root may raise a hard one
                resource.setrlimit(number, (soft, hard))


def _log_to(path: str) -> None:
    """Have the standard streams, and all that compiled code writes to them, end up in a file."""
    log = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)


def _draw_anew() -> None:
    """Give this process random numbers that none of its twins draws. Python's own do so by themselves."""
    random.seed()
    multiprocessing.current_process().authkey = os.urandom(32)
    if "numpy" in sys.modules:
        import numpy as np

        np.random.seed()  # noqa: NPY002 (the user's code may draw from the old generator)
    if "torch" in sys.modules:
        import torch

        torch.default_generator.seed()


def _use_threads() -> None:
    """Compute on as many threads as the environment says. The server read it when it had to have one only."""
    use_threads(_threads("OMP_NUM_THREADS"))
    setter = _blas("set")
    wanted = _threads("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    if setter is not None and wanted > 1:
        setter(wanted)


def _threads(*names: str) -> int:
    """Return the first of these variables that is set, else the cores that this process may run on."""
    given = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in given if value), usable_cores())


def blas_threads() -> int | None:
    """Return on how many threads numpy's matrix products are computed; None where it is not known."""
    getter = _blas("get")
    return None if getter is None else int(getter())


def _blas(verb: str) -> Any:
    """Return OpenBLAS's function that sets or gets its number of threads, if numpy brought one along."""
    maps = Path("/proc/self/maps").read_text()
    for library in dict.fromkeys(re.findall(r"(/\S*openblas\S*)$", maps, re.MULTILINE)):
        with contextlib.suppress(OSError):
            loaded = ctypes.CDLL(library)
            for name in _SETTERS:
                function = getattr(loaded, name.replace("set", verb, 1), None)
                if function is not None:
                    return function
    return None
