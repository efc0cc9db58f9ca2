"""The common start of trials that begin together: each waits at a gate before its first batch.

It waits behind its *ask*: the epoch has been asked for, and nobody who did has taken a batch of it. So while the gate
is shut the epoch can still be joined from its start, and all who wait there get the same first batch. At `attach`
would be too early: who asks a moment after the others may find the epoch under way.
"""

from __future__ import annotations

import contextlib
import fcntl
import os

from tsnb.config import attach_defaults

__all__ = ["pass_gate"]


def pass_gate() -> None:
    """Tell that this process is about to take its first batch, and wait until whoever holds the gate opens it.

    Called before a batch is taken, in the thread that takes it; does nothing after the first time. The gate is a
    lock on a file, which goes with its holder: a gate whose notebook was killed is open. An interrupt ends the waiting.
    """
    if attach_defaults.attached is None and attach_defaults.gate is None:
        return
    told, attach_defaults.attached = attach_defaults.attached, None
    gate, attach_defaults.gate = attach_defaults.gate, None
    if told is not None:
        told()
    if gate is None:
        return
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(gate, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)
