"""How long the frozen part has computed, and with what: numbers in shared memory, a row for each worker.

The memory has no name, and goes with the last process that uses it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np

from tsnb.config import explained
from tsnb.stream.memory.nameless import make_nameless

__all__ = ["MOST_RAN", "Counters"]

WORKERS = 256
"""Rows; further workers share the last one."""
_COLUMNS = 2
MOST_RAN, RAN_WORKERS = 4096, 16
"""Tensors of which a worker can tell, and the workers that can."""
_RAN_AT = 8 * (1 + WORKERS * _COLUMNS)
_BYTES = _RAN_AT + 8 * RAN_WORKERS * MOST_RAN * 2


class Counters:
    """One process's hold on them. Each worker writes its own row.

    Raises:
        TsnbError: This process may not open another descriptor.
    """

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            with explained("make shared memory"):
                fd = make_nameless()
            os.ftruncate(fd, _BYTES)
        self._fd = fd
        self._attach()

    def _attach(self) -> None:
        memory = mmap.mmap(self._fd, _BYTES)
        numbers = np.frombuffer(memory, np.float64, 1 + WORKERS * _COLUMNS)
        self._tried = numbers[:1]
        self._rows = numbers[1:].reshape(WORKERS, _COLUMNS)
        self._ran = np.frombuffer(memory, np.uint64, offset=_RAN_AT).reshape(RAN_WORKERS, 2, MOST_RAN)

    @property
    def tried(self) -> bool:
        """Whether the first batch was computed twice, with the same result."""
        return bool(self._tried[0])

    def note_tried(self) -> None:
        """The first batch was computed twice."""
        self._tried[0] = 1.0

    def forget_tried(self) -> None:
        """The next batch is to be computed twice, as the first one was."""
        self._tried[0] = 0.0

    def tell_ran(self, row: int, told: list[tuple[int, int]]) -> None:
        """Tell of tensors that were used: the address of each, and a word for its numbers. Called by a worker."""
        if row < RAN_WORKERS:
            addresses, words = self._ran[row]
            addresses[:] = 0
            for at, (address, word) in enumerate(told[:MOST_RAN]):
                words[at], addresses[at] = word, address

    def ran(self) -> list[tuple[int, int]]:
        """Return what all workers have told, each tensor once."""
        addresses, words = self._ran[:, 0], self._ran[:, 1]
        told = addresses != 0
        return [*dict(zip(addresses[told].tolist(), words[told].tolist(), strict=True)).items()]

    def count(self, row: int, seconds: float) -> None:
        """Count one batch. Called by a worker."""
        mine = self._rows[min(row, WORKERS - 1)]
        mine[0] += seconds
        mine[1] += 1

    def read(self) -> tuple[float, int]:
        """Return the seconds of all workers together, and their batches. Called from any thread."""
        seconds, batches = self._rows.sum(axis=0)
        return float(seconds), int(batches)

    def __del__(
        self, close: Callable[[int], None] = os.close
    ) -> None:  # at the interpreter's end `os` has gone
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            close(fd)

    def __getstate__(self) -> Any:
        return DupFd(self._fd)  # only while multiprocessing spawns a worker

    def __setstate__(self, state: Any) -> None:
        self.__init__(state.detach())  # type: ignore[misc]  # one constructor for both ways in
