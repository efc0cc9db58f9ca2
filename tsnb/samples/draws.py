"""The global random generators of a process: whether something drew from them, and other states for a while.

Also the clock that says what a sample cost, whoever else wanted the cores meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

__all__ = ["Draws", "another_seed", "cost_clock"]


class Draws(NamedTuple):
    """The states of torch's, Python's and numpy's global generators at one moment."""

    torch_state: torch.Tensor
    python: Any
    numpy: Any

    @classmethod
    def now(cls) -> Draws:
        """Return what they are now; 20 us."""
        return cls(torch.default_generator.get_state(), random.getstate(), np.random.get_state())  # noqa: NPY002

    def restore(self) -> None:
        """Put them back."""
        torch.default_generator.set_state(self.torch_state)
        random.setstate(self.python)
        np.random.set_state(self.numpy)  # noqa: NPY002

    def same(self, other: Draws) -> bool:
        """Whether nothing was drawn in between."""
        return (
            self.python == other.python
            and torch.equal(self.torch_state, other.torch_state)
            and self.numpy[2:] == other.numpy[2:]
            and bool(np.array_equal(self.numpy[1], other.numpy[1]))
        )


@contextlib.contextmanager
def another_seed(seed: int) -> Iterator[None]:
    """Draw from other states inside the block; afterwards they are as they were."""
    before = Draws.now()
    torch.default_generator.manual_seed(seed)
    random.seed(seed + 1)
    np.random.seed((seed + 2) % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        before.restore()


_here = threading.local()


def cost_clock() -> float:
    """Return seconds that pass while this thread computes or waits for a disk, not while others have its core.

    Where the system does not tell how long the thread has waited for a core, all seconds count.
    """
    waited_s = _kept_waiting_s()
    while True:
        now_s, before_s = time.perf_counter(), waited_s
        waited_s = _kept_waiting_s()
        if waited_s == before_s:  # else it lost its core between the two, and they are of different moments
            return now_s - waited_s


def _kept_waiting_s() -> float:
    pid = os.getpid()
    if getattr(_here, "pid", 0) != pid:
        _here.pid, _here.fd = pid, -1
        with contextlib.suppress(OSError):
            _here.fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    if _here.fd < 0:
        return 0.0
    try:
        return int(os.pread(_here.fd, 64, 0).split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0
