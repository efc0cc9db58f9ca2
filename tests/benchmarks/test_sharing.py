"""The benchmark runs from end to end in its smallest form, and what it writes can be read and drawn."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch.utils.data import TensorDataset, dataloader

from benchmarks.sharing import report as reporting
from benchmarks.sharing.board import stamp_the_loader
from benchmarks.sharing.picture import figure
from benchmarks.sharing.rows import Machine, Report, Row

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> str:
    """Run the command as `make bench` does; return what it printed."""
    command = [sys.executable, "-m", "benchmarks.sharing", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.system
@pytest.mark.slow
def test_every_system_is_measured_from_end_to_end(tmp_path: Path) -> None:
    """Each system serves two consumers, or is the one process that it is, and all its figures are there."""
    file = tmp_path / "rows.json"
    systems = [f"--system={name}" for name in ("plain", "separate", "tsnb", "tensorsocket*", "floor")]
    said = bench(
        "--workload=tiny", *systems, "--consumers", "1", "2", "--seconds=0.2", "--repeats=1", f"--json={file}"
    )
    report = Report.read(file)
    measured = {(row.system, row.consumers) for row in report.rows if row.samples_per_s > 0}
    expected = {("plain", 1), ("floor", 1), ("separate", 2), ("tsnb", 1), ("tsnb", 2)}
    # the peer may stall, which is a result and not a fault of the benchmark
    assert measured - {("tensorsocket*", 1), ("tensorsocket*", 2)} == expected, said
    ours = report.find("tiny", "tsnb", 2)
    assert ours is not None
    assert ours.cpu_s_per_1000 > 0 and ours.shared_bytes > 0 and ours.pss_bytes > ours.shared_bytes
    delivered = {epoch.system: epoch.delivered for epoch in report.epochs}
    assert delivered["tsnb"] == delivered["separate"] == (6407, 6407)
    assert len(figure(report).data) > 0


@pytest.mark.slow
@pytest.mark.system
def test_a_nested_batch_reaches_its_consumers_and_is_timed(tmp_path: Path) -> None:
    """Latencies are of batches that a consumer waited for, from a clock that all processes share."""
    file = tmp_path / "rows.json"
    systems = ("--system=tsnb", "--system=portable")
    short = ("--consumers=1", "--seconds=0.3", "--repeats=1", "--no-epochs")
    said = bench("--workload=nested", *systems, *short, f"--json={file}")
    for row in Report.read(file).rows:
        assert row.latency_p50_us is not None and 0 < row.latency_p50_us <= (row.latency_p99_us or 0), row
        assert 0 < row.waited <= 1
    assert re.search(r"portable / tsnb:\n  nested, N = 1: pace \d+\.\d\d, CPU \d+\.\d\d, p50 ", said), said


class Several(NamedTuple):
    """What one step of a loader may give."""

    batches: list[object]


def test_each_batch_has_a_stamp_however_many_a_step_of_the_loader_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Consumers count batches, so the moments at which a loader gave them are counted alike."""
    steps = dataloader._BaseDataLoaderIter
    monkeypatch.setattr(steps, "__next__", steps.__next__)  # put back afterwards
    stamps: list[float] = []
    stamp_the_loader(stamps)
    samples = TensorDataset(torch.arange(4))
    list(dataloader.DataLoader(samples, batch_size=2))
    assert len(stamps) == 2 and stamps == sorted(stamps)
    list(dataloader.DataLoader(samples, batch_size=2, collate_fn=lambda batch: Several(batch * 3)))
    assert len(stamps) == 2 + 2 * 6


MACHINE = Machine(2, "made up", 2**34, 0.0, "3.11", "2.13", "0.1")


def row(workload: str, system: str, consumers: int, pace: float, cpu_s: float = 1.0) -> Row:
    """Return a row with figures."""
    return Row(
        workload,
        system,
        consumers,
        1,
        3,
        samples_per_s=pace,
        cpu_s_per_1000=cpu_s,
        shared_bytes=1000,
        latency_p50_us=60.0,
    )


def test_targets_are_judged_by_ratios_within_the_run() -> None:
    """Reached, not reached and by how much; a target whose rows were not measured is not judged."""
    rows = [
        row("jpeg", "plain", 1, 10.0),
        row("jpeg", "separate", 4, 5.0, 4.0),
        row("jpeg", "tsnb", 4, 20.0, 1.375),
    ]
    rows += [row("tiny", "plain", 1, 100.0), row("tiny", "tsnb", 4, 100.0)]
    verdicts = {
        what.partition(":")[0] + told: verdict
        for what, told, verdict in reporting.targets(Report(MACHINE, 1.0, 3, rows))
    }
    assert verdicts == {
        "jpeg4.00": "reached",
        "jpeg1.38": "not reached: 0.80 of it",
        "tiny1.00": "not reached: 0.25 of it",
    }


def test_figures_are_put_into_the_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The committed documents have their marks; what stands between them is replaced, however often."""
    for name in ("DOCUMENT", "DOCSTRING"):
        committed: Path = getattr(reporting, name)
        monkeypatch.setattr(reporting, name, Path(shutil.copy(committed, tmp_path)))
    report = Report(MACHINE, 1.0, 3, [row("jpeg", "plain", 1, 10.0), row("jpeg", "tsnb", 1, 20.0)])
    reporting.into_documents(report)
    once = [path.read_text(encoding="utf-8") for path in sorted(tmp_path.iterdir())]
    assert len(once) == 2 and all("made up" in text and "2.00" in text for text in once)
    reporting.into_documents(report)
    assert once == [path.read_text(encoding="utf-8") for path in sorted(tmp_path.iterdir())]
