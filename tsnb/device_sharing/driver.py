"""The few functions of NVIDIA's driver that are called past torch, and the slots of the arena that they page-lock.

- Memory that another process may open, by handle. torch's own way (`_share_cuda_`) keeps a count of users in a file in
  /dev/shm, which outlives a process that is killed.
- Page-locking. Where the runtime's `cudaHostRegister` is refused, the next kernel of torch's would raise that error.

Slots of the host's arena are page-locked so that they can be copied to a GPU while the processor does other things:
slot by slot, as they are used. The arena is sparse, and locking it as a whole would take all the memory that it might
ever need. The same few slots go round, so each is locked once in a process (some milliseconds).
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import uuid
from typing import Any

from tsnb.device_sharing.copies import SharingRefused
from tsnb.stream.consumer.batches.device import Locked
from tsnb.stream.memory.arena import Arena

__all__ = ["HANDLE_BYTES", "Driver", "PinnedSlots"]

HANDLE_BYTES = 64
"""A CUipcMemHandle."""
BLOCK_BYTES = 2 << 20
"""A handle opens the whole block that memory was cut from: only multiples of this are alone in theirs (CUDA C++
programming guide, interprocess communication)."""
_LAZY_PEER_ACCESS = 1
_PORTABLE = 1
"""Locked for all of this process's GPUs."""


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


class _Uuid(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_ubyte * 16),)


class Driver:
    """libcuda, used inside `torch.cuda.device(...)`.

    Its calls need a current context on their thread. torch's own calls see to that, but choosing a device does not
    where it is the first: a thread that only does that gets the device's context here.

    Args:
        library: The library; left out: the installed one.
        number: The device; a thread without a context gets that device's.

    Raises:
        SharingRefused: There is none.
    """

    def __init__(self, library: Any = None, number: int = 0) -> None:
        self._number = number
        try:
            self._cuda = library or ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise SharingRefused(f"NVIDIA's driver cannot be loaded ({error})") from None

    def uuid_of(self, number: int) -> uuid.UUID:
        """Return the UUID of a device, by its number in this process."""
        device = self._device(number)
        found = _Uuid()
        newer = hasattr(self._cuda, "cuDeviceGetUuid_v2")  # tells that of a MIG instance, where it is one
        self._call("cuDeviceGetUuid_v2" if newer else "cuDeviceGetUuid", ctypes.byref(found), device)
        return uuid.UUID(bytes=bytes(found.bytes))

    def allocate(self, size: int) -> tuple[int, bytes]:
        """Take memory on the current device; return its address, and the handle by which another process opens it.

        Raises:
            SharingRefused: There is not so much, or it cannot be shared; then none is kept.
        """
        address, handle = ctypes.c_uint64(), _Handle()
        whole = -(-size // BLOCK_BYTES) * BLOCK_BYTES
        self._in_context("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(whole))
        try:
            self._in_context("cuIpcGetMemHandle", ctypes.byref(handle), address)
        except SharingRefused:
            self.free(address.value)
            raise
        return address.value, ctypes.string_at(ctypes.addressof(handle), HANDLE_BYTES)

    def free(self, address: int) -> None:
        """Give it back."""
        self._in_context("cuMemFree_v2", ctypes.c_uint64(address))

    def open(self, handle: bytes) -> int:
        """Return the address of another process's memory in this one."""
        if len(handle) != HANDLE_BYTES:
            raise SharingRefused(f"a handle has {len(handle)} bytes")
        address = ctypes.c_uint64()
        given = _Handle.from_buffer_copy(handle)
        flags = ctypes.c_uint(_LAZY_PEER_ACCESS)
        self._in_context("cuIpcOpenMemHandle_v2", ctypes.byref(address), given, flags)
        return address.value

    def close(self, address: int) -> None:
        """Let go of another process's memory."""
        self._in_context("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def lock(self, address: int, size: int) -> None:
        """Page-lock memory of this process: whole pages."""
        flags = ctypes.c_uint(_PORTABLE)
        self._in_context("cuMemHostRegister_v2", ctypes.c_uint64(address), ctypes.c_size_t(size), flags)

    def unlock(self, address: int) -> None:
        """Undo that."""
        self._in_context("cuMemHostUnregister", ctypes.c_uint64(address))

    def _device(self, number: int) -> ctypes.c_int:
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(number))
        return device

    def _in_context(self, name: str, *arguments: Any) -> None:
        context = ctypes.c_void_p()
        self._call("cuCtxGetCurrent", ctypes.byref(context))
        if not context.value:
            # torch keeps that context as long as the process lives, so that it need not be let go of
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device(self._number))
            self._call("cuCtxSetCurrent", context)
        self._call(name, *arguments)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
            said = text.value.decode() if text.value else "no description"
            raise SharingRefused(f"the driver refused it ({name}: error {code}, {said})")


_log = logging.getLogger("tsnb")


class PinnedSlots(Locked):
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
