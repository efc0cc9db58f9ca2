"""Energy is what counters count, or it is not told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.machine.fake_nvml import H200, FakeNvml
from tests.reports.made import consumer, reading
from tsnb.machine.energy import EnergyMeter, words_on_energy
from tsnb.machine.gpus import Gpus
from tsnb.telemetry.energy import energy_use, per_1000
from tsnb.telemetry.readings import HostReading, ProcessReading


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


def test_what_is_not_counted_is_not_told(tmp_path: Path) -> None:
    """No number is made up: not of an old GPU, of a MIG instance, or where only root may read."""
    slices = [{"name": "MIG", "memory": (0, 1), "processes": [], "millijoules": 5}]
    nvml = FakeNvml(H200, {**H200, "instances": slices})
    meter = EnergyMeter(Gpus(nvml, host_pids=True), tmp_path)
    assert meter.spent() == {}
    assert words_on_energy(meter.sources) == "not measurable here"
    assert per_1000(None, 100) is None and per_1000(5.0, 0) is None
    assert per_1000(5.0, 500) == 10.0


def test_a_gpu_that_is_lost_meanwhile_keeps_what_it_had_spent(tmp_path: Path) -> None:
    """And goes on from there when it is back."""
    gpu = {**H200, "millijoules": 1_000}
    meter = EnergyMeter(Gpus(FakeNvml(gpu), host_pids=True), tmp_path)
    gpu["millijoules"] = 3_000
    assert meter.spent() == {"cuda:0": 2.0}
    del gpu["millijoules"]
    assert meter.spent() == {"cuda:0": 2.0}


def looked(energy_j: dict[str, float], **gpus: tuple[int, ...]) -> Any:
    uses = {name: ProcessReading(1.0, 0, 1, gpus=on) for name, on in gpus.items()}
    return HostReading(2, 1.0, 0, 1, consumers=uses, energy_j=energy_j)


def test_joules_of_a_stream_and_of_a_trial_that_has_a_gpu_for_itself() -> None:
    """Of two on one GPU neither has a number; the stream has that of all."""
    on = {"a": (0,), "b": (1,), "c": (1,)}
    trials = [consumer(name, batches=0) for name in on]
    later = [consumer(name, batches=125) for name in on]
    use = energy_use(
        [
            reading(0, *trials, host=looked({"cuda:0": 10.0, "cuda:1": 0.0, "package-0": 1.0}, **on)),
            reading(1, *trials),
            reading(2, *later, host=looked({"cuda:0": 15.0, "cuda:1": 6.0, "package-0": 5.0}, **on)),
        ]
    )
    assert (use.joules, use.samples) == ({"cuda:0": 5.0, "cuda:1": 6.0, "package-0": 4.0}, 3000)
    assert (use.trial_joules, use.trial_samples) == ({"a": 5.0}, {"a": 1000})
    assert use.text == "5 J for 1,000 samples (cuda:0, cuda:1, package-0); a 5 J"


def test_counters_that_begin_anew_are_gone_on_from() -> None:
    """A second follower's, and those of a producer that was started again: nothing is negative or counted twice."""
    batches = [consumer("a", batches=n) for n in (0, 125, 0, 125)]
    use = energy_use(
        [
            reading(0, batches[0], host=looked({"cuda:0": 50.0}, a=(0,))),
            reading(1, batches[1], host=looked({"cuda:0": 60.0}, a=(0,))),
            reading(2, batches[2], pid=77, host=looked({"cuda:0": 0.0}, a=(0,))),
            reading(3, batches[3], pid=77, host=looked({"cuda:0": 10.0}, a=(0,))),
        ]
    )
    assert (use.joules, use.samples, use.text) == (
        {"cuda:0": 20.0},
        2000,
        "10 J for 1,000 samples (cuda:0); a 10 J",
    )


def test_where_nothing_is_counted_the_words_say_so() -> None:
    """As on a virtual machine without a GPU."""
    assert (
        energy_use([reading(0, host=looked({})), reading(1, host=looked({}))]).text == "not measurable here"
    )
    assert energy_use([]).text == "not measurable here"
