"""The environment of a kernel, and which of its variables a fork would come too late for. Pure but for reading ours."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from tsnb.registry import OWNER, this_owner

__all__ = ["THREADS", "environment", "read_once"]

NOT_INHERITED = ("JPY_PARENT_PID", "PYTEST_CURRENT_TEST")
"""Left out of a child's environment: the notebook server's pid would make it watch the wrong process, and
under pytest ipykernel would not capture what C code prints."""

ADDED = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}
"""Added to it: keeps a debugger's warning about frozen modules out of the output."""

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Each is 1 in the fork server, so that nothing there starts a thread; a kernel sets its own (`inside.forked`)."""

_READ_ONCE = re.compile(
    r"PYTHON(?!BREAKPOINT$).*|TORCH.*|(PYTORCH|ATEN|C10|OMP|GOMP|KMP|MKL|OPENBLAS|GOTO|BLIS|DNNL|ONEDNN|NPY|NUMPY|NUMEXPR|TQDM|PYDEVD"
    r"|LD|LC|MALLOC)_.*|LANG|LANGUAGE|GLIBC_TUNABLES|HOME"
)
"""Names of variables that count when Python starts or a library is imported, not later.
PYTHONBREAKPOINT is read at each breakpoint; `ray.init` sets it in a notebook, whose trials were all spawned else."""


def environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: this process's own, and what is added."""
    kept = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    return {**kept, **ADDED, OWNER: this_owner(), **added}


def read_once(wanted: Mapping[str, str], own: Mapping[str, str]) -> list[str]:
    """Return the variables that would have no effect, or the wrong one, in a fork.

    Args:
        wanted: The environment that a kernel is to have.
        own: That of the server.
    """
    names = [name for name in {**wanted, **own} if _READ_ONCE.fullmatch(name)]
    differ = sorted(name for name in names if wanted.get(name) != own.get(name))
    return [name for name in differ if name not in THREADS or not _is_a_number(wanted.get(name, "1"))]


def _is_a_number(value: str) -> bool:
    return value.isdigit() and int(value) > 0
