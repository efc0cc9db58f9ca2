"""Giving memory back to the system once a trial's code has ended.

Its process stays for what the notebook may fetch from it, and six trials that keep what training once needed can be
too many for a machine: activations that were freed lie in malloc's heaps, and in torch's cache on a GPU, from which the
system gets little by itself. What an exception has broken off lies in the locals of its frames.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import traceback

__all__ = ["let_go", "trim"]


def let_go(error: BaseException | None) -> None:
    """Let go of the locals of all frames that an exception has ended, once it has been shown."""
    seen: set[int] = set()
    waiting = [error, getattr(sys, "last_exc", None), getattr(sys, "last_value", None)]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            traceback.clear_frames(each.__traceback__)
            each.__traceback__ = None  # a frame that was looked at has its locals a second time, which stay
            waiting += [each.__cause__, each.__context__]
    sys.last_traceback = None


def trim() -> None:
    """Let go of what nobody refers to, and of memory that is free inside this process."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        # a kernel that failed on the GPU has broken the process's context: every later call raises
        with contextlib.suppress(Exception):
            torch.cuda.empty_cache()
    # glibc has it, musl and others do not
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)
