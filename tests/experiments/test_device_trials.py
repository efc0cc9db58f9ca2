"""Trials that are put on a device: real kernels, forked and spawned; the GPUs are NVML's word only."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tsnb
from tests.machine.fake_nvml import H200, FakeNvml
from tsnb.experiments.cells import run_cell
from tsnb.experiments.overview.board import trials
from tsnb.machine import placement
from tsnb.machine.gpus import Gpus

LOOK = (
    "import os, torch\nfrom tsnb.stream.this_process import this_process as d\n"
    "seen = (os.environ.get('CUDA_VISIBLE_DEVICES'), d.device, d.outside, torch.cuda.is_available())"
)
ASK = """
def asked(device):
    import os
    import tsnb
    try:
        tsnb.attach(device="cuda:3")
    except ValueError as error:
        return device, os.environ["CUDA_VISIBLE_DEVICES"], str(error)
"""


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process believe that there are two; torch in the kernels knows better."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvml = FakeNvml({**H200, "uuid": "GPU-aa"}, {**H200, "uuid": "GPU-bb"})
    monkeypatch.setattr(placement, "_this_machine", lambda: Gpus(nvml, host_pids=True))


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_trial_sees_only_its_device(
    start: str, two_gpus: None, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told before its first line; inside the device is cuda:0, and `cpu` hides all of them."""
    if start == "spawn":
        monkeypatch.setenv("TSNB_START", "spawn")
    on_gpu = run_cell(f"gpu-{start}", LOOK, {}, outlet=page, device="cuda:1")
    on_cpu = run_cell(f"cpu-{start}", LOOK, {}, outlet=page, device="cpu")
    assert on_gpu.wait(120)["seen"] == ("GPU-bb", "cuda:0", "cuda:1", False)
    assert on_cpu.wait(120)["seen"] == ("", "cpu", "cpu", False)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_what_an_ended_trial_has_freed_on_a_gpu_is_free_for_others(page: Any) -> None:
    """Torch would keep it in its cache for the process's life; what a variable holds stays."""
    cell = (
        "import torch\nkept = torch.ones(2**20, device='cuda')\nfreed = torch.ones(2**28, device='cuda')\ndel freed\n"
        "class Reserved:\n    def __reduce__(self): return int, (torch.cuda.memory_reserved(),)\nreserved = Reserved()"
    )
    assert 4 * 2**20 <= run_cell("freed", cell, {}, outlet=page).wait(120)["reserved"] < 64 * 2**20


def test_a_function_gets_the_name_that_counts_inside(two_gpus: None, page: Any, notebook: Any) -> None:
    """And is told what its own `attach(device=...)` means there; a rerun elsewhere gets it too."""
    asked = notebook.run(ASK)["asked"]
    first = tsnb.run(asked, name="asked", device="cuda:1")
    device, visible, error = first.result(60)
    assert (device, visible) == ("cuda:0", "GPU-bb")
    assert "started with --device cuda:1. It sees only that GPU" in error
    again = first.rerun(device="cuda:0")
    assert again.result(60)[:2] == ("cuda:0", "GPU-aa")
    assert again.options["device"] == "cuda:0"


def test_a_device_that_there_is_not_starts_nothing(page: Any, notebook: Any) -> None:
    """Neither a cell, nor a function, nor any trial of a sweep over devices."""
    asked = notebook.run(ASK)["asked"]
    with pytest.raises(ValueError, match=r"device='cuda:7'|no device 'cuda:7'"):
        run_cell("nowhere", LOOK, {}, outlet=page, device="cuda:7")
    with pytest.raises(ValueError, match=r"'mig:MIG-none'"):
        tsnb.run(asked, name="nowhere", device="mig:MIG-none")
    with pytest.raises(ValueError, match=r"'cuda:7'"):
        tsnb.sweep(asked, grid={"device": ["cpu", "cuda:7"]}, name="nowhere-{device}")
    with pytest.raises(ValueError, match="MPS is not running here"):
        run_cell("nowhere", LOOK, {}, outlet=page, mps_percent=25)
    assert not [name for name in trials if name.startswith("nowhere")]
