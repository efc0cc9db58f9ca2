"""A producer's devices: when memory is taken and given back, and which slots of the host wait for a copy."""

from __future__ import annotations

import gc
import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tsnb.device_sharing.copies import SharingRefused
from tsnb.device_sharing.kinds import kinds, write_wish
from tsnb.device_sharing.on_devices import OnDevices
from tsnb.stream.decisions import events as ev
from tsnb.stream.memory.arena import Arena
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.codec import MAX_MESSAGE_BYTES, encode


class Copies:
    """Copies that are over when the test says so."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int, int]] = []
        self.under_way: set[int] = set()
        self.stopped = self.closed = False

    def copy(self, source: int, size: int, place: int) -> None:
        self.made.append((source, size, place))
        self.under_way.add(source)

    def copying(self, source: int) -> bool:
        return source in self.under_way

    def enter(self) -> Mapping[str, Any]:
        return {"memory": "here"}

    def stop(self) -> None:
        self.stopped = True

    def close(self) -> None:
        self.closed = True


class Kind:
    def __init__(self) -> None:
        self.made: list[Copies] = []
        self.free = 1 << 30

    def free_bytes(self, identity: str) -> int:
        if identity == "hidden":
            raise SharingRefused("it is hidden")
        return self.free

    def copies(self, identity: str, arena: Arena, places: int, place_bytes: int) -> Copies:
        self.made.append(Copies())
        return self.made[-1]


class Scene:
    """Devices, and what members were told."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.arena = Arena.create()
        self.arena.fit(8, 1 << 16)
        self.lock = threading.Condition()
        self.told: list[tuple[int, ms.Message]] = []
        self.devices = OnDevices(
            self.arena, self.lock, 2, lambda member, message: self.told.append((member, message))
        )

    def grant(self, slot: int, member: int, lease: int, size: int = 1000) -> int | None:
        with self.lock:
            return self.devices.place(ev.Granted(member, lease, 0, slot, ev.Placed(slot, b"", 4, size, 0)))

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.002)

    def ready(self, *members: int) -> Copies:
        """Let members wish for the device, and wait until it is there."""
        for member in members:
            self.devices.wish(member, write_wish("manual", "d0"))
        assert self.grant(0, members[0], 0) is None, "the first batch comes through the host"
        self.until(lambda: len(self.told) == len(members))
        assert all(isinstance(message, ms.Device) and message.handles for _, message in self.told)
        return self.kind.made[-1]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    kind = Kind()
    monkeypatch.setitem(kinds, "manual", lambda: kind)
    made = Scene(kind)
    yield made
    made.arena.close()


def test_nothing_is_taken_before_somebody_asks(scene: Scene) -> None:
    """Nor for a consumer that wants nothing."""
    scene.devices.wish(1, "")
    assert scene.grant(0, 1, 1) is None
    assert not scene.devices.busy and not scene.kind.made and not scene.told


def test_a_slot_of_the_host_stays_until_the_copy_from_it_is_over(scene: Scene) -> None:
    """Though everybody has let go of it: a loader's worker would write into what is being copied."""
    copies = scene.ready(1)
    assert scene.grant(3, 1, 1) == 0
    scene.devices.note(ev.Heard(1, ms.Release(1)))
    assert scene.devices.keeps(3)
    assert not scene.devices.keeps(5), "from which nothing was copied"
    assert scene.devices.settled() == []
    copies.under_way.clear()
    assert scene.devices.settled() == [3]
    assert scene.devices.settled() == []


def test_two_on_one_device_have_one_copy(scene: Scene) -> None:
    """And its bytes are counted once."""
    copies = scene.ready(1, 2)
    assert (scene.grant(3, 1, 1), scene.grant(3, 2, 1)) == (0, 0)
    assert copies.made == [(3, 1000, 0)]
    assert scene.devices.copied_bytes == 1000


def test_a_slot_that_was_written_anew_is_copied_anew(scene: Scene) -> None:
    """Its place is taken again and again."""
    copies = scene.ready(1)
    for number in range(13):  # once round all places
        slot = number % 4
        assert scene.grant(slot, 1, number + 1) is not None
        scene.devices.note(ev.Heard(1, ms.Release(number + 1)))
        copies.under_way.clear()
        assert not scene.devices.keeps(slot)
    assert len(copies.made) == 13


def test_a_batch_larger_than_a_place_comes_through_the_host(scene: Scene) -> None:
    """As does one without arrays."""
    copies = scene.ready(1)
    assert scene.grant(3, 1, 1, size=2000) is None
    assert scene.grant(3, 1, 2, size=0) is None
    assert copies.made == []


def test_a_device_that_fails_under_way_is_given_up_and_the_stream_goes_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who shared it copies by himself from then on; what he holds there is left alone."""
    copies = scene.ready(1, 2)
    assert scene.grant(3, 1, 1) == 0
    scene.told.clear()

    def fails(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access")

    monkeypatch.setattr(copies, "copy", fails)
    assert scene.grant(4, 2, 1) is None
    assert [member for member, _ in scene.told] == [1, 2]
    assert all(isinstance(m, ms.Device) and "illegal memory" in m.refusal for _, m in scene.told)
    assert not scene.devices.busy and not copies.closed


def test_a_device_that_cannot_say_what_it_copies_is_given_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of another process under MPS, say, is met by whatever asks first: freeing a slot, as a rule."""
    copies = scene.ready(1)
    assert scene.grant(3, 1, 1) == 0
    assert scene.devices.keeps(3)
    scene.told.clear()

    def fails(_: object) -> bool:
        raise RuntimeError("CUDA error: an illegal memory access")

    monkeypatch.setattr(copies, "copying", fails)
    assert scene.devices.settled() == [3]
    assert [type(message) for _, message in scene.told] == [ms.Device]
    assert not scene.devices.keeps(4)


@pytest.mark.parametrize("end", ["given up", "closed"])
def test_what_consumers_may_still_read_outlives_its_producer(
    end: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They record events that are the producer's; and slots from which it still copies are not written anew."""
    copies = scene.ready(1)
    assert scene.grant(3, 1, 1) == 0
    if end == "closed":
        scene.devices.close()
    else:
        monkeypatch.setattr(copies, "copy", lambda *_: 1 / 0)
        assert scene.grant(4, 1, 2) is None
        assert scene.devices.keeps(3)
        copies.under_way.clear()
        assert scene.devices.settled() == [3]
    gone = weakref.ref(copies)
    scene.kind.made.clear()
    scene.devices = None  # type: ignore[assignment]
    monkeypatch.undo()
    del copies
    gc.collect()
    left = gone()
    assert left is not None and not left.closed


def test_a_wide_window_does_not_make_a_message_too_large(scene: Scene) -> None:
    """Handles of all places go into one packet."""
    devices = OnDevices(scene.arena, scene.lock, 5000, lambda *_: None)
    handles = {"ready": ["A" * 88] * devices._places}
    assert len(encode(ms.Device(json.dumps(handles)))) < MAX_MESSAGE_BYTES // 2


def test_memory_goes_with_the_last_who_wanted_it(scene: Scene) -> None:
    """Killed or detached; who comes later has it taken again."""
    copies = scene.ready(1, 2)
    scene.grant(3, 1, 1)
    scene.devices.note(ev.Left(1))
    assert not copies.closed
    scene.devices.leave(2)
    assert copies.closed and not scene.devices.busy
    scene.told.clear()
    assert scene.ready(3) is not copies


def test_at_the_end_what_is_still_read_is_left_to_the_process(scene: Scene) -> None:
    """A batch that somebody holds does not go under his hands; the host's arena goes, and nothing copies from it."""
    copies = scene.ready(1)
    scene.grant(3, 1, 1)
    scene.devices.close()
    assert copies.stopped and not copies.closed


def test_what_was_given_up_lets_go_of_the_arena_at_the_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that stay locked would be copied from in place of those that are mapped there next."""
    copies = scene.ready(1)
    monkeypatch.setattr(copies, "copy", lambda *_: 1 / 0)
    scene.grant(3, 1, 1)
    assert not copies.stopped
    scene.devices.close()
    assert copies.stopped and not copies.closed


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ("nonsense", "the device name is not valid"),
        ("manual|MIG-aa|", "MIG instance"),
        ("manual|d0|ipc:[1] pid:[2]", "another container"),
    ],
)
def test_what_cannot_be_is_refused_at_once(wish: str, why: str, scene: Scene) -> None:
    """Before anything is taken."""
    scene.devices.wish(1, wish)
    ((member, message),) = scene.told
    assert member == 1 and isinstance(message, ms.Device) and why in message.refusal
    assert not scene.devices.busy


def test_what_cannot_be_had_is_refused_to_all_who_wait(scene: Scene) -> None:
    """Hidden from the producer, or too small; the batches go on through the host."""
    for member in (1, 2):
        scene.devices.wish(member, write_wish("manual", "hidden"))
    assert scene.grant(0, 1, 0) is None
    scene.until(lambda: len(scene.told) == 2)
    scene.kind.free = 5000
    scene.devices.wish(3, write_wish("manual", "d0"))
    assert scene.grant(0, 3, 0) is None
    scene.until(lambda: len(scene.told) == 3)
    reasons = [m.refusal for _, m in scene.told if isinstance(m, ms.Device) and m.refusal]
    assert reasons[:2] == ["it is hidden"] * 2 and "no room" in reasons[2]
    assert not scene.devices.busy
