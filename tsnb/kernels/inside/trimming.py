"""Giving memory back to the system once a trial's code has ended.

Its process stays for what the notebook may fetch from it, and six trials that keep what training once needed can be
too many for a machine: activations that were freed lie in malloc's heaps, from which the system gets little by itself.
"""

from __future__ import annotations

import ctypes
import gc

__all__ = ["trim"]


def trim() -> None:
    """Let go of what nobody refers to, and of memory that is free inside this process."""
    gc.collect()
    # glibc has it, musl and others do not
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)
