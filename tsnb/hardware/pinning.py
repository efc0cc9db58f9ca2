"""Page-locks slots of the host's arena, so that they can be copied to a GPU while the processor does other things.

Slot by slot, as they are used: the arena is sparse, and locking it as a whole would take all the memory that it might
ever need. The same few slots go round, so each is locked once in a process (some milliseconds).
"""

from __future__ import annotations

import logging
import mmap
from typing import Any

import torch

from tsnb.arena.memory import Arena

__all__ = ["PinnedSlots"]

_log = logging.getLogger(__name__)


class PinnedSlots:
    """The slots that this process has locked.

    Args:
        arena: The host's arena.
        runtime: What has `cudaHostRegister` and `cudaHostUnregister`; left out: torch's CUDA.
    """

    def __init__(self, arena: Arena, runtime: Any = None) -> None:
        self._arena = arena
        self._runtime = runtime
        self._bytes: dict[int, int] = {}
        self._refused = False

    def pin(self, slot: int, size: int) -> bool:
        """Lock a slot's first bytes, if they are not; return whether they are.

        Where the system does not allow it (`ulimit -l`), copies still work, and the processor waits for them.
        """
        if self._refused or size <= 0:
            return False
        if self._bytes.get(slot, 0) >= size:
            return True
        if slot in self._bytes:  # one range has to be locked in one piece
            self._unpin(slot)
        whole = min(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE, self._arena.slot_bytes)
        code = self._cuda().cudaHostRegister(self._arena.address_of(slot), whole, 0)
        if int(code) != 0:
            self._refused = True
            _log.warning(
                "memory cannot be locked for copies to the GPU (CUDA error %d): they are slower", code
            )
            return False
        self._bytes[slot] = whole
        return True

    def close(self) -> None:
        """Unlock all. The copies from them must be over, and the arena still mapped."""
        for slot in list(self._bytes):
            self._unpin(slot)

    def _unpin(self, slot: int) -> None:
        del self._bytes[slot]
        self._cuda().cudaHostUnregister(self._arena.address_of(slot))

    def _cuda(self) -> Any:
        if self._runtime is None:
            cuda: Any = torch.cuda  # annotated in part only
            self._runtime = cuda.cudart()
        return self._runtime
