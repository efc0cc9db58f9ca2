"""The CUDA side: what of it can be looked at without a GPU, and, marked, what needs one."""

from __future__ import annotations

import ctypes
import gc
import json
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.device_sharing.fake_device import FakeCopies
from tsnb.device_sharing.copies import DeviceCopies, SharingRefused
from tsnb.device_sharing.cuda import AHEAD, CudaViews, _Held, _refusals, _tensor
from tsnb.device_sharing.driver import HANDLE_BYTES, Driver
from tsnb.device_sharing.kinds import kind_of
from tsnb.stream.memory.arena import Arena

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


class FakeLibrary:
    """libcuda as far as it is called: each function fills in what it is to return, or fails.

    As in the real one a thread has no context before it is given one, and few calls work without.
    """

    def __init__(self, fails: str = "") -> None:
        self.fails, self.opened = fails, b""
        self.thread = threading.local()
        self.retained: list[int] = []
        self.allocated: dict[int, int] = {}
        self.locked: dict[int, int] = {}

    def _done(self, name: str) -> int:
        if not hasattr(self.thread, "context"):
            return 201
        return 205 if name == self.fails else 0

    def cuCtxGetCurrent(self, context: Any) -> int:  # noqa: N802
        context._obj.value = getattr(self.thread, "context", None)
        return 0

    def cuDeviceGet(self, device: Any, number: Any) -> int:  # noqa: N802
        device._obj.value = number.value
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:  # noqa: N802
        self.retained.append(device.value)
        context._obj.value = 0xC0 + device.value
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:  # noqa: N802
        self.thread.context = context.value
        return 0

    def cuMemAlloc_v2(self, address: Any, size: Any) -> int:  # noqa: N802
        address._obj.value = 0x7F0000000000
        self.allocated[address._obj.value] = size.value
        return self._done("cuMemAlloc_v2")

    def cuMemFree_v2(self, address: Any) -> int:  # noqa: N802
        del self.allocated[address.value]
        return self._done("cuMemFree_v2")

    def cuMemHostRegister_v2(self, address: Any, size: Any, flags: Any) -> int:  # noqa: N802
        self.locked[address.value] = size.value
        return self._done("cuMemHostRegister_v2")

    def cuIpcGetMemHandle(self, handle: Any, address: Any) -> int:  # noqa: N802
        ctypes.memmove(handle, bytes(range(HANDLE_BYTES)), HANDLE_BYTES)
        return self._done("cuIpcGetMemHandle")

    def cuIpcOpenMemHandle_v2(self, address: Any, handle: Any, flags: Any) -> int:  # noqa: N802
        self.opened = bytes(handle)
        address._obj.value = 0x7F1100000000
        return self._done("cuIpcOpenMemHandle_v2")

    def cuGetErrorString(self, code: Any, text: Any) -> int:  # noqa: N802
        text._obj.value = b"mapping failed"
        return 0


def test_a_handle_goes_through_whole_and_addresses_have_64_bits() -> None:
    """Zero bytes inside it too."""
    library = FakeLibrary()
    driver = Driver(library)
    address, handle = driver.allocate(1 << 20)
    assert address == 0x7F0000000000
    assert handle == bytes(range(HANDLE_BYTES))
    assert driver.open(handle) == 0x7F1100000000
    assert library.opened == handle


@pytest.mark.parametrize(("asked", "taken"), [(1, 2 << 20), (2 << 20, 2 << 20), ((6 << 20) + 1, 8 << 20)])
def test_memory_that_others_open_is_alone_in_its_blocks(asked: int, taken: int) -> None:
    """The driver cuts small pieces from blocks, and a handle opens all of the block."""
    library = FakeLibrary()
    Driver(library).allocate(asked)
    assert list(library.allocated.values()) == [taken]


def test_memory_that_cannot_be_shared_is_given_back() -> None:
    """Where there is memory but no handles for it, each new consumer would take another quarter of what is free."""
    library = FakeLibrary(fails="cuIpcGetMemHandle")
    with pytest.raises(SharingRefused, match="cuIpcGetMemHandle: error 205"):
        Driver(library).allocate(1 << 20)
    assert not library.allocated


def test_a_thread_without_a_context_gets_the_device_s() -> None:
    """Choosing the first device binds none, and the thread that serves copies from slots that it has to lock first."""
    library = FakeLibrary()
    driver = Driver(library, number=1)
    driver.allocate(100)
    driver.allocate(100)
    assert library.retained == [1], "once a thread"
    errors: list[Exception] = []

    def lock() -> None:
        try:
            driver.lock(4096, 4096)
        except SharingRefused as error:
            errors.append(error)

    other = threading.Thread(target=lock)
    other.start()
    other.join()
    assert not errors and library.locked == {4096: 4096} and library.retained == [1, 1]


class FakeEvent:
    """Kernels that are over when somebody says so, or waits for them."""

    def __init__(self, *, over: bool = False) -> None:
        self.recorded: list[str] = []
        self.over, self.waited = over, False

    def record(self, stream: str) -> None:
        self.recorded.append(stream)

    def query(self) -> bool:
        return self.over

    def synchronize(self) -> None:
        self.waited |= not self.over
        self.over = True


class Owner:
    """What stands for a lease."""


def _views() -> CudaViews:
    made = CudaViews.__new__(CudaViews)
    made._ending = deque()
    return made


def test_a_lease_ends_with_the_kernels_that_read_the_batch() -> None:
    """And no earlier: what is written next into its place comes without a wait on the GPU."""
    views, over, owner = _views(), FakeEvent(), Owner()
    gone = weakref.ref(owner)
    span = _Held(4096, 10, owner, over, "stream", views._ending)
    del owner
    assert not over.recorded
    del span
    gc.collect()
    assert over.recorded == ["stream"]
    views._end(4)
    assert gone() is not None, "a kernel may still read"
    over.over = True
    views._end(4)
    gc.collect()
    assert gone() is None and not over.waited


def test_a_loop_that_runs_far_ahead_of_its_gpu_waits_for_it() -> None:
    """It would hold all slots of the stream, and none would come free while it waits for a batch."""
    views, events = _views(), [FakeEvent() for _ in range(AHEAD + 2)]
    for event in events:
        views._ending.append((event, Owner()))
    views._end(AHEAD)
    assert [event.waited for event in events] == [True, True, *([False] * AHEAD)]


def test_a_copy_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader was killed in the middle of it: on the GPU it would be waited for without end."""
    views = _views()
    views._wait_for_copy(FakeEvent(over=True))
    monkeypatch.setattr("tsnb.device_sharing.cuda.COPY_S", 0.01)
    with pytest.raises(SharingRefused, match="a copy by the loader's process did not finish within"):
        views._wait_for_copy(FakeEvent())


def test_what_cuda_raises_is_a_refusal_even_without_words() -> None:
    """As an assertion has none."""
    for error, said in ((AssertionError(), "AssertionError"), (RuntimeError("a\nb"), "a")):
        with pytest.raises(SharingRefused, match=rf"CUDA refused it \({said}\)"), _refusals():
            raise error


def test_what_the_driver_refuses_is_said_in_its_words() -> None:
    """So that the warning names the cause."""
    with pytest.raises(
        SharingRefused, match=r"refused it \(cuIpcOpenMemHandle_v2: error 205, mapping failed\)"
    ):
        Driver(FakeLibrary(fails="cuIpcOpenMemHandle_v2")).open(bytes(HANDLE_BYTES))
    with pytest.raises(SharingRefused, match="a handle has 3 bytes"):
        Driver(FakeLibrary()).open(b"abc")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_refuses_in_words() -> None:
    """Never by an error that a training loop does not expect."""
    for ask in (
        lambda: kind_of("cuda").identity(torch.device("cuda:0")),
        lambda: kind_of("cuda").free_bytes("GPU-aa"),
        lambda: kind_of("tpu"),
    ):
        with pytest.raises(SharingRefused):
            ask()


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena.create()
    made.fit(4, 1 << 16)
    yield made
    made.close()


def _fake(arena: Arena) -> DeviceCopies:
    return FakeCopies(arena, 3, 1 << 16, late_s=0.005)


def _cuda(arena: Arena) -> DeviceCopies:
    kind = kind_of("cuda")
    return kind.copies(kind.identity(torch.device("cuda:0")), arena, 3, 1 << 16)


COPIES = [pytest.param(_fake, id="fake"), pytest.param(_cuda, id="cuda", marks=[pytest.mark.gpu, NO_GPU])]


def content(copies: Any, place: int, size: int) -> bytes:
    """Return what lies in a place, once all is copied."""
    if isinstance(copies, FakeCopies):
        start = 4096 + place * copies.place_bytes
        return bytes(copies.memory[start : start + size])
    start = place * copies._place_bytes
    return bytes(copies._memory[start : start + size].cpu().numpy())


@pytest.mark.parametrize("make", COPIES)
def test_copies_arrive_and_a_source_is_told_from_one_that_is_free(make: Any, arena: Arena) -> None:
    """What lies where it was asked for; a slot of the host is kept until the copy from it is over."""
    copies = make(arena)
    told = copies.enter()
    assert json.loads(json.dumps(dict(told))) == dict(told), "it travels as JSON"
    for slot in range(3):
        start = arena.offset_of(slot)
        arena.buffer[start : start + 5000] = bytes([slot + 1]) * 5000
        copies.copy(slot, 5000, 2 - slot)
    assert not copies.copying(3)
    deadline = time.monotonic() + 30
    while any(copies.copying(slot) for slot in range(3)):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert [content(copies, place, 5000) for place in range(3)] == [bytes([n]) * 5000 for n in (3, 2, 1)]
    copies.copy(0, 100, 0)
    copies.close()


@pytest.mark.gpu
@NO_GPU
def test_a_view_of_the_gpu_keeps_its_lease_until_the_last_reference() -> None:
    """Promise 3: tensors, cuts and graphs hold the object behind `__cuda_array_interface__`, and nothing else does."""
    memory = torch.arange(1024, dtype=torch.uint8, device="cuda:0")
    owner = Owner()
    gone = weakref.ref(owner)
    over, views = torch.cuda.Event(), _views()  # type: ignore[no-untyped-call]
    stream = torch.cuda.current_stream(0)
    view = _tensor(_Held(memory.data_ptr(), 1024, owner, over, stream, views._ending), 0)
    del owner
    assert torch.equal(view, memory)
    weight = torch.ones(4, device="cuda:0", requires_grad=True)
    product = (view[:4].float() * weight).sum()
    cut = view.view(4, 256)[1:, :3]
    del view
    gc.collect()
    assert gone() is not None
    del cut
    product.backward()  # type: ignore[no-untyped-call]
    del product
    views._end(0)
    gc.collect()
    assert gone() is None
