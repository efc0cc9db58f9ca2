"""Energy is what counters count, or it is not told."""

from __future__ import annotations

from pathlib import Path

from tests.machine.fake_nvml import H200, FakeNvml
from tsnb.machine.energy import EnergyMeter, words_on_energy
from tsnb.machine.gpus import Gpus


def package(root: Path, number: int, microjoules: int, name: str = "") -> Path:
    zone = root / f"sys/class/powercap/intel-rapl:{number}"
    zone.mkdir(parents=True, exist_ok=True)
    (zone / "energy_uj").write_text(str(microjoules))
    (zone / "max_energy_range_uj").write_text("1000000000")
    (zone / "name").write_text(name or f"package-{number}")
    return zone / "energy_uj"


def test_gpus_and_packages_are_added_up_apart(tmp_path: Path) -> None:
    """Millijoules of the one and microjoules of the other become joules since the meter was made."""
    counter = package(tmp_path, 0, 7_000_000)
    gpu = {**H200, "millijoules": 10_000}
    meter = EnergyMeter(Gpus(FakeNvml(gpu), host_pids=True), tmp_path)
    assert meter.sources == ("cuda:0", "package-0")
    gpu["millijoules"] = 12_500
    counter.write_text("9000000")
    assert meter.spent() == {"cuda:0": 2.5, "package-0": 2.0}
    assert meter.spent() == {"cuda:0": 2.5, "package-0": 2.0}


def test_a_counter_that_starts_anew_loses_nothing(tmp_path: Path) -> None:
    """RAPL's do after some minutes."""
    counter = package(tmp_path, 0, 999_000_000)
    meter = EnergyMeter(Gpus(FakeNvml(), host_pids=True), tmp_path)
    counter.write_text("1000000")
    assert meter.spent() == {"package-0": 2.0}


def test_parts_of_a_package_are_not_counted_twice(tmp_path: Path) -> None:
    """intel-rapl:0:0 is its cores alone."""
    package(tmp_path, 0, 1)
    inner = tmp_path / "sys/class/powercap/intel-rapl:0:0"
    inner.mkdir()
    (inner / "energy_uj").write_text("1")
    assert EnergyMeter(Gpus(FakeNvml(), host_pids=True), tmp_path).sources == ("package-0",)


def test_the_whole_board_is_not_added_to_its_packages(tmp_path: Path) -> None:
    """The zone psys contains them: it stands alone, or not at all."""
    package(tmp_path, 0, 1)
    package(tmp_path, 1, 5, "psys")
    package(tmp_path, 2, 1, "package-1")
    sources = EnergyMeter(Gpus(FakeNvml(), host_pids=True), tmp_path).sources
    assert sources == ("package-0", "package-1")
    other = tmp_path / "board"
    package(other, 0, 5, "psys")
    assert EnergyMeter(Gpus(FakeNvml(), host_pids=True), other).sources == ("psys",)


def test_what_is_not_counted_is_not_told(tmp_path: Path) -> None:
    """No number is made up: not of an old GPU, of a MIG instance, or where only root may read."""
    slices = [{"name": "MIG", "memory": (0, 1), "processes": [], "millijoules": 5}]
    nvml = FakeNvml(H200, {**H200, "instances": slices})
    meter = EnergyMeter(Gpus(nvml, host_pids=True), tmp_path)
    assert meter.spent() == {}
    assert words_on_energy(meter.sources) == "not measurable here"


def test_a_gpu_that_is_lost_meanwhile_keeps_what_it_had_spent(tmp_path: Path) -> None:
    """And goes on from there when it is back."""
    gpu = {**H200, "millijoules": 1_000}
    meter = EnergyMeter(Gpus(FakeNvml(gpu), host_pids=True), tmp_path)
    gpu["millijoules"] = 3_000
    assert meter.spent() == {"cuda:0": 2.0}
    del gpu["millijoules"]
    assert meter.spent() == {"cuda:0": 2.0}
