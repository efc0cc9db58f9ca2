"""`tsnb.devices()`: what it tells of GPUs, of who uses them, and of what cannot be done."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.machine.fake_nvml import GIB, H200, FakeNvml
from tsnb.checks.devices import Devices, devices, look
from tsnb.machine.cores import Machine
from tsnb.machine.gpus import Gpus, look_for_mps
from tsnb.serving import serve

FIRST = {**H200, "uuid": "GPU-aa", "peers": ["GPU-bb"], "millijoules": 5_000}
SECOND = {**H200, "uuid": "GPU-bb", "peers": ["GPU-aa"], "processes": []}
SLICE = {"name": "NVIDIA H200 MIG 1g.18gb", "memory": (GIB, 16 * GIB), "processes": [], "uuid": "MIG-cc"}


def seen(*gpus: dict[str, Any], host_pids: bool = True) -> Devices:
    return look(Gpus(FakeNvml(*gpus), host_pids=host_pids), Machine())


def test_gpus_are_listed_by_the_name_that_the_device_option_takes() -> None:
    """With memory in bytes, energy in joules, and the GPUs that they can read from."""
    found = seen(FIRST, SECOND)
    first = found["cuda:0"]
    assert (first.uuid, first.used_bytes, first.total_bytes, first.busy) == (
        "GPU-aa",
        20 * GIB,
        140 * GIB,
        0.87,
    )
    assert (first.peers, first.energy_j, found["cuda:1"].energy_j) == ((1,), 5.0, None)
    assert found.energy == "measured for cuda:0"
    assert found.notes == ()
    with pytest.raises(KeyError, match=r"'cuda:2' does not exist. Available here: cuda:0, cuda:1"):
        found["cuda:2"]


def test_what_cannot_be_shared_is_said_with_what_happens_instead() -> None:
    """MIG instances, and GPUs that cannot read each other's memory."""
    lonely = {**SECOND, "peers": []}
    found = seen(lonely, {**lonely, "uuid": "GPU-dd"}, {**FIRST, "instances": [SLICE]})
    assert found["mig:MIG-cc"].mig
    mig, peers = found.notes
    assert "cannot be shared on MIG instances (1 here)" in mig and "copies its batches" in mig
    assert "No direct access between GPU 0 and 1" in peers and "copied from the CPU to each" in peers


def test_how_trials_share_a_gpu_is_said_with_the_other_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns without MPS, at once with it, apart on MIG instances; each with what it costs. Nothing without a GPU."""
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    (turns,) = seen(FIRST).advice
    assert "take turns" in turns and "tsnb mps start" in turns and "MIG" in turns
    (tmp_path / "control").touch()
    (together,) = seen(FIRST, SECOND).advice
    assert (
        "at the same time, through MPS" in together
        and "--mps-percent" in together
        and "tsnb mps" not in together
    )
    (apart,) = seen({**FIRST, "instances": [SLICE]}).advice
    assert "instances are isolated" in apart
    both = seen(FIRST, {**FIRST, "instances": [SLICE]})
    assert both.advice == (apart, together) and all(line in repr(both) for line in both.advice)
    assert look(Gpus(FakeNvml(starts=False), host_pids=True), Machine()).advice == ()


def test_our_loaders_and_trials_are_called_by_their_names() -> None:
    """Whoever else is there by its program's name; nobody by another's inside a container."""
    parent = os.getppid()
    gpu = {**FIRST, "processes": [(os.getpid(), 3 * GIB), (parent, None)]}
    with serve([[1.0]], name="digits"):
        users = seen(gpu)["cuda:0"].users
        text = repr(seen(gpu))
    assert [(user.pid, user.used_bytes) for user in users] == [(os.getpid(), 3 * GIB), (parent, None)]
    assert users[0].name == "loader of digits"
    assert users[1].name not in ("", "loader of digits")
    assert f"loader of digits (pid {os.getpid()}, 3.0 GiB)" in text
    assert [user.name for user in seen(gpu, host_pids=False)["cuda:0"].users] == ["", ""]


def test_a_gpu_that_tells_little_is_listed_with_what_it_tells() -> None:
    """Neither its users nor its UUID nor energy: no error, and said in words."""
    bare = {key: H200[key] for key in ("name", "memory")}
    found = seen(bare, None, FIRST)  # type: ignore[arg-type]
    assert [gpu.device for gpu in found.gpus] == ["cuda:0", "cuda:2"]
    assert not found["cuda:0"].users_told
    assert "not available here" in repr(found)


def test_a_notebook_shows_a_table_with_attributes_for_programs() -> None:
    """Numbers as they are, names escaped."""
    html = seen({**FIRST, "name": "<GPU>"})._repr_html_()
    assert "data-tsnb='devices'" in html and "data-gpus='1'" in html
    row = re.search(r"<tr( data-[^>]*)>", html)
    assert row is not None
    assert f"data-total-bytes='{140 * GIB}'" in row[1] and "data-uuid='GPU-aa'" in row[1]
    assert "&lt;GPU&gt;" in html and "<GPU>" not in html


def test_without_a_driver_one_line_says_so() -> None:
    """Cores are listed all the same."""
    found = look(Gpus(FakeNvml(starts=False), host_pids=True), Machine())
    assert found.gpus == () and found.mps is None
    first = repr(found).splitlines()[0]
    assert first.startswith(f"{found.cores.usable} of {os.cpu_count()} cores")
    assert "no GPU: NVML says: Driver Not Loaded" in first


def test_the_command_line_shows_this_machine() -> None:
    """`tsnb devices` prints the table that `tsnb.devices()` is."""
    printed = subprocess.run(
        [sys.executable, "-m", "tsnb", "devices"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    here = devices()
    assert printed.splitlines()[0] == repr(here).splitlines()[0]
    assert f"torch {here.torch}" in printed


def test_mps_is_there_when_its_daemon_is(tmp_path: Path) -> None:
    """A pipe that a dead daemon has left is none; in a container the directory that was set counts."""
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path), "PATH": ""}
    assert not look_for_mps(environment).running
    (tmp_path / "control").touch()
    found = look_for_mps({**environment, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"})
    assert (found.running, found.directory, found.percent) == (True, str(tmp_path), 25.0)
    assert not look_for_mps({"CUDA_MPS_PIPE_DIRECTORY": "", "PATH": ""}).running


def test_mps_is_known_by_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the usual place nobody has set anything: there a dead daemon's pipe proves nothing."""
    from tsnb.machine import gpus

    monkeypatch.setattr(gpus, "_USUAL", str(tmp_path))
    (tmp_path / "control").touch()
    assert not look_for_mps({}).running
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        (tmp_path / "socket").replace(tmp_path / "control")
        assert not look_for_mps({"PATH": ""}).running
        listening.listen()
        assert look_for_mps({"PATH": ""}).running
    assert not look_for_mps({}).running
    program = tmp_path / "nvidia-cuda-mps-control"
    program.symlink_to("/bin/sleep")
    daemon = subprocess.Popen([str(program), "60"])
    try:
        (tmp_path / "nvidia-cuda-mps-control.pid").write_text(str(daemon.pid))
        assert look_for_mps({"PATH": ""}).running
    finally:
        daemon.kill()
        daemon.wait()
