"""Says of a loader that gives no batch for long that it does not, and what it is doing: nothing else would.

The thread that measures notes when it asks for a batch and when it has it; a thread of the watch looks at that now and
then. What the loader is doing is seen where it runs in this process: in the measuring thread, or in the one that serves
it. Code in worker processes is not seen, so these are named as a whole.
"""

from __future__ import annotations

import contextlib
import math
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TypeVar

from tsnb.kernels.output.outlets import outlet_here
from tsnb.native.frames import frames_by_thread

__all__ = ["awaited", "came", "told_when_silent", "waits"]

SILENT_S = 10.0
"""After so long without a batch it is said..."""
AGAIN_S = 120.0
"""... and so long after that again."""
LOOK_S = 0.5

_OURS = str(Path(__file__).parents[1])
_PYTHONS = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})
_TORCHS = str(Path("torch", "utils", "data"))

Each = TypeVar("Each")


class _Watch(threading.Thread):
    """Looks at how long one thread has waited.

    Attributes:
        asked_s: Since when it waits for a batch, by the monotonic clock; infinite: it does not.

    Args:
        workers: Of the loader.
    """

    def __init__(self, workers: int) -> None:
        super().__init__(name="tsnb-silence", daemon=True)
        self.asked_s = math.inf
        self._workers = workers
        self._outlet = outlet_here("stalls")  # of the cell that runs now
        self._over = threading.Event()

    def run(self) -> None:
        """Look until it is over."""
        told_s = -math.inf
        while not self._over.wait(LOOK_S):
            now_s = time.monotonic()
            waited_s = now_s - self.asked_s
            if waited_s >= SILENT_S and now_s - told_s >= AGAIN_S:
                told_s = now_s
                line = (
                    f"The loader has returned no batch for {waited_s:.0f} s: {self._where()}. Ctrl-C ends "
                    "this."
                )
                self._outlet.publish("stream", {"name": "stdout", "text": f"{line}\n"})

    def _where(self) -> str:
        found = next(filter(None, map(_in_user_code, frames_by_thread().values())), None)
        if found is not None:
            return f"it is in {found}"
        if self._workers:
            number = "its worker has" if self._workers == 1 else f"its {self._workers} workers have"
            return f"{number} not finished a batch"
        return "the process that runs it has not finished a batch"

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()


_here = threading.local()


@contextlib.contextmanager
def told_when_silent(workers: int) -> Iterator[None]:
    """Say under the running cell, or in the terminal, when this thread waits for a batch for long inside the block.

    Args:
        workers: Of the loader.
    """
    before, watch = getattr(_here, "watch", None), _Watch(workers)
    watch.start()
    _here.watch = watch
    try:
        yield
    finally:
        _here.watch = before
        watch.end()


def waits() -> None:
    """Note that this thread asks for a batch."""
    if (watch := getattr(_here, "watch", None)) is not None:
        watch.asked_s = time.monotonic()


def came() -> None:
    """Note that it has one, or that there are no more."""
    if (watch := getattr(_here, "watch", None)) is not None:
        watch.asked_s = math.inf


def awaited(given: Iterator[Each]) -> Iterator[Each]:
    """Go through batches, each of which is waited for.

    Args:
        given: They.
    """
    while True:
        waits()
        try:
            each = next(given)
        except StopIteration:
            return
        finally:
            came()
        yield each


def _in_user_code(frame: FrameType | None) -> str | None:
    """Return the innermost line of the user's code that this package has called; None where there is none."""
    found = None
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_OURS):
            return found
        if found is None and not _is_library(file):
            found = f"{frame.f_code.co_name} ({Path(file).name}, line {frame.f_lineno})"
        frame = frame.f_back
    return None


def _is_library(file: str) -> bool:
    """Whether code is Python's, or torch's that loads data."""
    if file.startswith("<frozen") or _TORCHS in file:
        return True
    return file.startswith(_PYTHONS) and "-packages" not in file
