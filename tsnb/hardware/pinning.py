"""Page-locks slots of the host's arena, so that they can be copied to a GPU while the processor does other things.

Slot by slot, as they are used: the arena is sparse, and locking it as a whole would take all the memory that it might
ever need. The same few slots go round, so each is locked once in a process (some milliseconds).
"""

from __future__ import annotations

import logging
import mmap

from tsnb.arena.memory import Arena
from tsnb.hardware.copies import SharingRefused
from tsnb.hardware.driver import Driver

__all__ = ["PinnedSlots"]

_log = logging.getLogger("tsnb")


class PinnedSlots:
    """The slots that this process has locked. Called with a current CUDA context: inside `torch.cuda.device(...)`.

    Args:
        arena: The host's arena.
        driver: Locks memory; left out: NVIDIA's, loaded at the first slot.
    """

    def __init__(self, arena: Arena, driver: Driver | None = None) -> None:
        self._arena = arena
        self._driver = driver
        self._bytes: dict[int, int] = {}
        self._locked: dict[int, bytes] = {}  # `Arena.punches` when a slot was locked
        self._refused = False

    def pin(self, slot: int, size: int) -> bool:
        """Lock a slot's first bytes, if they are not; return whether they are.

        Where the system does not allow it (`ulimit -l`), copies still work, and the processor waits for them.
        """
        if self._refused or size <= 0:
            return False
        punches = self._arena.punches
        # what was locked before the slot's memory was given back is not the slot's memory any more
        if self._bytes.get(slot, 0) >= size and self._locked[slot] == punches:
            return True
        whole = min(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE, self._arena.slot_bytes)
        try:
            self._driver = self._driver or Driver()
            if slot in self._bytes:  # one range has to be locked in one piece
                self._unlock(slot)
            self._driver.lock(self._arena.address_of(slot), whole)
        except SharingRefused as error:
            self._refused = True
            _log.warning("memory cannot be locked for copies to the GPU, so they are slower: %s", error)
            return False
        self._bytes[slot], self._locked[slot] = whole, punches
        return True

    def __contains__(self, slot: object) -> bool:
        return slot in self._bytes

    def close(self) -> None:
        """Unlock all. The copies from them must be over, and the arena still mapped."""
        for slot in list(self._bytes):
            try:
                self._unlock(slot)
            except SharingRefused:  # the context has gone, and the locks with it
                return

    def _unlock(self, slot: int) -> None:
        assert self._driver is not None
        del self._bytes[slot]
        self._driver.unlock(self._arena.address_of(slot))
