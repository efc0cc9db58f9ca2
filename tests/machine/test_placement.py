"""Where a trial is put: what its process is told, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.machine.fake_nvml import GIB, H200, FakeNvml
from tsnb.machine.gpus import Gpus
from tsnb.machine.placement import MPS_PERCENT, VISIBLE, free_gpu_bytes, inside_name, place
from tsnb.stream.consumer.attaching import device_here
from tsnb.stream.this_process import this_process

FIRST, SECOND = {**H200, "uuid": "GPU-aa"}, {**H200, "uuid": "GPU-bb"}
CUT = {
    **H200,
    "uuid": "GPU-cc",
    "instances": [{**H200, "name": "MIG 1g", "memory": (0, GIB), "uuid": "MIG-dd"}],
}


def nvml(*gpus: dict[str, Any], starts: bool = True) -> Gpus:
    return Gpus(FakeNvml(*gpus, starts=starts), host_pids=True)


@pytest.fixture(autouse=True)
def _nothing_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VISIBLE, raising=False)


@pytest.mark.parametrize(
    ("device", "told", "inside"),
    [
        ("cuda:1", {VISIBLE: "GPU-bb"}, "cuda:0"),
        ("cuda", {VISIBLE: "GPU-aa"}, "cuda:0"),
        ("mig:MIG-dd", {VISIBLE: "MIG-dd"}, "cuda:0"),
        ("cpu", {VISIBLE: ""}, "cpu"),
        ("meta", {}, "meta"),
        (None, {}, None),
    ],
)
def test_a_process_is_told_of_one_device_only(device: str | None, told: dict[str, str], inside: str) -> None:
    """By its UUID, which means the same GPU in whatever order CUDA counts."""
    placed = place(device, gpus=nvml(FIRST, SECOND, CUT))
    assert (placed.environment, placed.inside) == (told, inside)
    assert inside_name(device) == inside


def test_a_gpu_without_a_uuid_is_named_by_its_place_on_the_bus() -> None:
    """And CUDA is told to count so."""
    placed = place("cuda:1", gpus=nvml(FIRST, {**H200}))
    assert placed.environment == {VISIBLE: "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize("visible", ["1,0", "GPU-bb,GPU-aa", "GPU-b, 0, 7, 1"])
def test_numbers_count_what_is_left_to_the_notebook(visible: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of CUDA_VISIBLE_DEVICES, up to the first that there is not."""
    monkeypatch.setenv(VISIBLE, visible)
    gpus = nvml(FIRST, SECOND, CUT)
    assert place("cuda:0", gpus=gpus).environment == {VISIBLE: "GPU-bb"}
    assert place("cuda:1", gpus=gpus).environment == {VISIBLE: "GPU-aa"}
    for none in ("cuda:2", "cuda:x", "cuda:-1"):
        with pytest.raises(
            ValueError,
            match=rf"device='{none}' does not exist here.*cuda:0 \(NVIDIA H200\), cuda:1.*limited by",
        ):
            place(none, gpus=gpus)


@pytest.mark.parametrize("device", ["cuda:2", "cuda:9", "cuda:x", "mig:MIG-ee", "mig:", "cuda:-1", "banana"])
def test_a_device_that_there_is_not_is_answered_with_those_there_are(device: str) -> None:
    """A GPU that is cut into instances is not there as a whole."""
    with pytest.raises(ValueError, match=r"Available: cuda:0 .*, cuda:1 .*, mig:MIG-dd .*, and cpu"):
        place(device, gpus=nvml(FIRST, SECOND, CUT))


def test_without_a_gpu_the_error_says_why() -> None:
    """In the driver's words."""
    with pytest.raises(
        ValueError, match=r"no GPU here \(NVML says: Driver Not Loaded\).*device='cpu'.*attach\(device="
    ):
        place("cuda:0", gpus=nvml(starts=False))


def test_two_ways_to_say_one_thing_are_refused() -> None:
    """Which of them counts would be a guess."""
    with pytest.raises(ValueError, match="both choose the GPU"):
        place("cuda:0", environment={VISIBLE: "1"}, gpus=nvml(FIRST))


def test_a_share_of_a_gpu_needs_mps(tmp_path: Path) -> None:
    """Without its daemon the variable would do nothing, and nobody would know."""
    pipes = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    with pytest.raises(ValueError, match=r"MPS is not running here.*tsnb mps start"):
        place("cuda:0", 25, pipes, nvml(FIRST))
    (tmp_path / "control").touch()
    assert place("cuda:0", 25, pipes, nvml(FIRST)).environment == {VISIBLE: "GPU-aa", MPS_PERCENT: "25"}
    assert place(None, 25, pipes, nvml(FIRST)).environment == {MPS_PERCENT: "25"}
    for percent, device in ((0, None), (101, None), (50, "cpu"), (True, None)):
        with pytest.raises(ValueError, match="mps_percent"):
            place(device, percent, pipes, nvml(FIRST))


@pytest.fixture
def trial_on(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make this process one that was put on a device."""

    def put(outside: str | None) -> None:
        monkeypatch.setattr(this_process, "device", inside_name(outside))
        monkeypatch.setattr(this_process, "outside", outside)

    return put


@pytest.mark.parametrize(
    ("outside", "asked", "here"),
    [
        ("cuda:1", None, "cuda:0"),
        ("cuda:1", "cuda:1", "cuda:0"),
        ("cuda:1", "cuda:0", "cuda:0"),
        ("cuda:1", "cuda", "cuda"),
        ("cuda:1", "cpu", "cpu"),
        ("mig:MIG-dd", "mig:MIG-dd", "cuda:0"),
        ("cpu", None, "cpu"),
        (None, "cuda:3", "cuda:3"),
        (None, None, None),
    ],
)
def test_inside_a_trial_its_device_has_both_names(trial_on: Any, outside: str, asked: str, here: str) -> None:
    """The one that stands behind --device, and the one that torch has for it there."""
    trial_on(outside)
    assert device_here(asked) == here


@pytest.mark.parametrize(
    ("outside", "asked", "why"),
    [
        ("cuda:1", "cuda:2", "It sees only that GPU, under the name cuda:0"),
        ("cpu", "cuda:0", "started with --device cpu and sees no GPU"),
        (None, "mig:MIG-dd", "torch has no device of that name. Start the trial with --device mig:MIG-dd"),
    ],
)
def test_inside_a_trial_another_device_is_explained(
    trial_on: Any, outside: str, asked: str, why: str
) -> None:
    """In place of torch's "invalid device ordinal"."""
    trial_on(outside)
    with pytest.raises(ValueError, match=why):
        device_here(asked)


def test_free_memory_is_that_of_the_gpu_that_trials_train_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one where they name none; of several all; none on the CPU, and where no GPU answers."""
    gpus = nvml({**FIRST, "memory": (2 * GIB, 10 * GIB)}, {**SECOND, "memory": (GIB, 5 * GIB)})
    asked = (None, "gpu", "cuda:0", "cuda:1", ("cuda:0", "cuda:1"), "cpu", "meta")
    eight, four = 8 * GIB, 4 * GIB
    assert [free_gpu_bytes(a, gpus) for a in asked] == [eight, eight, eight, four, eight + four, None, None]
    monkeypatch.setenv(VISIBLE, "1")
    assert [free_gpu_bytes(a, gpus) for a in (None, "cuda:0")] == [four, four]
    monkeypatch.setenv(VISIBLE, "")
    assert free_gpu_bytes(None, gpus) is None
    assert free_gpu_bytes(None, nvml(starts=False)) is None
