"""GPUs through NVML, with an NVML that answers what the real one does: calls, units and errors are its own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.machine.fake_nvml import GIB, H200, FakeNvml, OldDriver, OlderDriver
from tsnb.machine.gpus import Gpus, list_gpus
from tsnb.telemetry.readings import GpuReading


def test_a_gpu_is_read() -> None:
    """Percent become a share; memory is in bytes; NVML is started once."""
    nvml = FakeNvml(H200)
    gpus = Gpus(nvml, host_pids=True)
    assert gpus.look() == (GpuReading(0, "NVIDIA H200", 0.87, 20 * GIB, 140 * GIB),)
    assert gpus.look()
    assert gpus.by_process_and_gpu() == {10: {0: 3 * GIB}, 11: {0: 2 * GIB}}
    assert nvml.started == 1


def test_a_process_on_two_gpus_has_the_memory_of_both() -> None:
    """And one of which the driver tells nothing has 0."""
    second = {**H200, "processes": [(10, GIB), (12, None)]}
    held = Gpus(FakeNvml(H200, second), host_pids=True).by_process_and_gpu()
    assert held == {10: {0: 3 * GIB, 1: GIB}, 11: {0: 2 * GIB}, 12: {1: 0}}


def test_mig_instances_stand_in_place_of_their_gpu() -> None:
    """Each with its own memory and processes; how busy one is, NVML does not tell."""
    slices = [
        {"name": "NVIDIA H200 MIG 1g.18gb", "memory": (GIB, 16 * GIB), "processes": [(10, GIB)]},
        None,
        {"name": "NVIDIA H200 MIG 2g.35gb", "memory": (2 * GIB, 32 * GIB), "processes": [(11, 2 * GIB)]},
    ]
    gpus = Gpus(FakeNvml(H200, {**H200, "instances": slices}), host_pids=True)
    found = gpus.look()
    assert [(gpu.index, gpu.busy) for gpu in found] == [(0, 0.87), (1, None), (1, None)]
    assert found[2].total_bytes == 32 * GIB
    assert gpus.by_process_and_gpu() == {10: {0: 3 * GIB, 1: GIB}, 11: {0: 2 * GIB, 1: 2 * GIB}}


@pytest.mark.parametrize(
    ("device", "found"),
    [
        ({**H200, "memory": None}, "left out"),
        ({key: H200[key] for key in ("name", "memory")}, "not told"),
        (None, "left out"),
        ({**H200, "name": b"Tesla K80"}, "Tesla K80"),
    ],
    ids=["broken", "virtual", "lost", "old bindings"],
)
def test_a_gpu_that_does_not_answer_takes_nothing_down(device: dict[str, Any] | None, found: str) -> None:
    """The other one is read all the same."""
    if device and device.get("memory", 0) is None:
        device = {key: value for key, value in device.items() if key != "memory"}
    gpus = Gpus(FakeNvml(device, H200), host_pids=True)  # type: ignore[arg-type]
    seen = gpus.look()
    assert seen[-1] == GpuReading(1, "NVIDIA H200", 0.87, 20 * GIB, 140 * GIB)
    if found == "left out":
        assert len(seen) == 1
    elif found == "not told":
        assert seen[0].busy is None
    else:
        assert seen[0].name == found
    assert 3 * GIB in gpus.by_process_and_gpu()[10].values()


def test_without_a_driver_there_is_nothing_and_it_is_not_tried_again() -> None:
    """A machine without a GPU is no error."""
    nvml = FakeNvml(H200, starts=False)
    gpus = Gpus(nvml, host_pids=True)
    assert gpus.look() == ()
    assert gpus.look() == ()
    assert gpus.by_process_and_gpu() == {}
    assert nvml.started == 1


def test_inside_a_container_no_process_is_given_anothers_memory() -> None:
    """NVML counts processes as the host does: the same number is somebody else's there."""
    gpus = Gpus(FakeNvml(H200), host_pids=False)
    assert gpus.by_process_and_gpu() == {}
    assert gpus.look()


def test_the_nvml_of_this_machine_answers_or_there_is_nothing() -> None:
    """Whatever is installed here: no error, and sensible numbers."""
    for gpu in Gpus().look():
        assert 0 <= gpu.used_bytes <= gpu.total_bytes
        assert gpu.busy is None or 0 <= gpu.busy <= 1


def test_a_driver_that_is_older_than_the_bindings_leaves_out_what_it_does_not_tell() -> None:
    """It had ended `tsnb top`, `status`, `devices` and cells with a panel."""
    older = Gpus(OlderDriver(H200, H200), host_pids=True)
    assert [reading.used_bytes for reading in older.look()] == [20 * GIB, 20 * GIB]
    assert older.by_process_and_gpu() == {}
    (first, _) = list_gpus(older, str)
    assert (first.uuid, first.users, first.peers) == ("", (), ())
    assert Gpus(OldDriver(H200), host_pids=True).by_process_and_gpu() == {10: {0: 3 * GIB}, 11: {0: 2 * GIB}}


def test_each_thing_that_an_older_driver_does_not_know_is_left_out_alone() -> None:
    """Whichever of NVML's functions it is."""
    names = [name for name in dir(FakeNvml) if name.startswith("nvml")]
    assert len(names) > 10
    for name in names:
        older = Gpus(type("Older", (OlderDriver,), {name: OlderDriver._missing})(H200), host_pids=True)
        older.look()
        older.by_process_and_gpu()
        list_gpus(older, str)
