"""The few functions of NVIDIA's driver that are called past torch.

- Memory that another process may open, by handle. torch's own way (`_share_cuda_`) keeps a count of users in a file in
  /dev/shm, which outlives a process that is killed.
- Page-locking. Where the runtime's `cudaHostRegister` is refused, the next kernel of torch's would raise that error.
"""

from __future__ import annotations

import ctypes
import uuid
from typing import Any

from tsnb.hardware.copies import SharingRefused

__all__ = ["HANDLE_BYTES", "Driver"]

HANDLE_BYTES = 64
"""A CUipcMemHandle."""
_LAZY_PEER_ACCESS = 1
_PORTABLE = 1
"""Locked for all of this process's GPUs."""


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


class _Uuid(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_ubyte * 16),)


class Driver:
    """libcuda. Its calls need a current context on the calling thread: inside `torch.cuda.device(...)`.

    Args:
        library: The library; left out: the installed one.

    Raises:
        SharingRefused: There is none.
    """

    def __init__(self, library: Any = None) -> None:
        try:
            self._cuda = library or ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise SharingRefused(f"NVIDIA's driver cannot be loaded ({error})") from None

    def uuid_of(self, number: int) -> uuid.UUID:
        """Return the UUID of a device, by its number in this process."""
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(number))
        found = _Uuid()
        newer = hasattr(self._cuda, "cuDeviceGetUuid_v2")  # tells that of a MIG instance, where it is one
        self._call("cuDeviceGetUuid_v2" if newer else "cuDeviceGetUuid", ctypes.byref(found), device)
        return uuid.UUID(bytes=bytes(found.bytes))

    def allocate(self, size: int) -> int:
        """Return the address of new memory on the current device."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        """Give it back."""
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def export(self, address: int) -> bytes:
        """Return the handle by which another process opens it."""
        handle = _Handle()
        self._call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(address))
        return ctypes.string_at(ctypes.addressof(handle), HANDLE_BYTES)

    def open(self, handle: bytes) -> int:
        """Return the address of another process's memory in this one."""
        if len(handle) != HANDLE_BYTES:
            raise SharingRefused(f"a handle of {len(handle)} bytes")
        address = ctypes.c_uint64()
        given = _Handle.from_buffer_copy(handle)
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(address), given, ctypes.c_uint(_LAZY_PEER_ACCESS))
        return address.value

    def close(self, address: int) -> None:
        """Let go of another process's memory."""
        self._call("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def lock(self, address: int, size: int) -> None:
        """Page-lock memory of this process: whole pages."""
        self._call(
            "cuMemHostRegister_v2", ctypes.c_uint64(address), ctypes.c_size_t(size), ctypes.c_uint(_PORTABLE)
        )

    def unlock(self, address: int) -> None:
        """Undo that."""
        self._call("cuMemHostUnregister", ctypes.c_uint64(address))

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
            said = text.value.decode() if text.value else "no words for it"
            raise SharingRefused(f"the driver refuses it ({name}: error {code}, {said})")
