"""Cores: written as the kernel does, and what affinity and quotas leave of them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsnb.machine.cores import Machine, cores_in, text_of, usable_cores


@given(st.sets(st.integers(0, 300)))
def test_cores_are_written_as_the_kernel_does(cores: set[int]) -> None:
    """There and back."""
    assert cores_in(text_of(cores)) == tuple(sorted(cores))


def test_the_text_is_the_kernels() -> None:
    """Runs and single ones; absurd ones from a broken peer are refused, not computed."""
    assert text_of((0, 1, 2, 3, 8)) == "0-3,8"
    for odd in ("0-99999999999", "x", "1-y"):
        with pytest.raises(ValueError, match=r"cores|invalid literal"):
            cores_in(odd)


def test_cores_are_those_of_the_affinity_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no system call tells, nobody is held to fewer."""
    assert usable_cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == os.cpu_count()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_containers_cores_are_its_quota(tmp_path: Path) -> None:
    """Control groups of version 2: the quota's cores, and the seconds of who is under it."""
    write(tmp_path / "proc/self/cgroup", "0::/box\n")
    write(tmp_path / "sys/fs/cgroup/box/cpu.max", "100000 100000\n")
    write(tmp_path / "sys/fs/cgroup/box/cpu.stat", "usage_usec 2500000\nuser_usec 2000000\n")
    machine = Machine(tmp_path)
    assert machine.cores() == 1
    assert machine.cpu_s() == 2.5


def test_a_quota_of_version_1_is_one_too(tmp_path: Path) -> None:
    """Nanoseconds, in a controller of its own."""
    write(tmp_path / "proc/self/cgroup", "3:cpu,cpuacct:/box\n")
    write(tmp_path / "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "50000\n")
    write(tmp_path / "sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n")
    write(tmp_path / "sys/fs/cgroup/cpuacct/box/cpuacct.usage", "3000000000\n")
    machine = Machine(tmp_path)
    assert machine.cores() == 1, "half a core is one"
    assert machine.cpu_s() == 3.0


@pytest.mark.parametrize("quota", ["max 100000\n", ""])
def test_without_a_quota_the_machine_counts(tmp_path: Path, quota: str) -> None:
    """All cores that this process may use, and what anybody does on them."""
    write(tmp_path / "proc/self/cgroup", "0::/box\n")
    write(tmp_path / "sys/fs/cgroup/box/cpu.max", quota)
    machine = Machine(tmp_path)
    assert machine.cores() == len(os.sched_getaffinity(0))
    before_s, began_s = machine.cpu_s(), time.process_time()
    while time.process_time() - began_s < 0.3:
        pass
    assert machine.cpu_s() - before_s >= 0.25
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, sorted(allowed)[:1])
        assert machine.cores() == 1
        assert 0 < machine.cpu_s() < before_s * 0.99 or len(allowed) == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_memory_is_the_containers_where_it_has_less_left(tmp_path: Path) -> None:
    """Files that were read lately are not in use; without a limit the machine's numbers stand."""
    write(tmp_path / "proc/meminfo", "MemTotal: 8000 kB\nMemAvailable: 6000 kB\n")
    write(tmp_path / "proc/self/cgroup", "0::/box\n")
    assert Machine(tmp_path).memory() == (2000 * 1024, 8000 * 1024)
    write(tmp_path / "sys/fs/cgroup/box/memory.max", f"{4000 * 1024}\n")
    write(tmp_path / "sys/fs/cgroup/box/memory.current", f"{3000 * 1024}\n")
    write(
        tmp_path / "sys/fs/cgroup/box/memory.stat",
        f"anon 5\ninactive_file {300 * 1024}\nactive_file {200 * 1024}\n",
    )
    assert Machine(tmp_path).memory() == (2500 * 1024, 4000 * 1024)
    assert Machine(tmp_path / "nothing").memory().total_bytes == psutil.virtual_memory().total
