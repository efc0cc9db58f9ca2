"""The result: one row a configuration, medians over its runs; written to and read from JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.sharing.running import Run

__all__ = ["Epoch", "Machine", "Report", "Row", "median_row"]


@dataclass(frozen=True)
class Row:
    """One configuration: medians over its runs."""

    workload: str
    system: str
    consumers: int
    """How many processes take batches at the same time."""
    workers: int
    """Loader workers in each loader."""
    runs: int = 0
    """Behind the medians."""
    stalled: int = 0
    """Runs in which batches stopped coming without an error; not in the medians."""
    unable: str = ""
    """Why there are no figures; empty where there are."""
    samples_per_s: float = 0.0
    """Of the slowest consumer."""
    lowest_samples_per_s: float = 0.0
    """The worst run."""
    highest_samples_per_s: float = 0.0
    """The best run."""
    cpu_s_per_1000: float = 0.0
    """CPU seconds of all processes while each consumer was given 1,000 samples."""
    latency_p50_us: float | None = None
    """From the loader's giving a batch to the sharing process to the waiting consumer's having it."""
    latency_p99_us: float | None = None
    waited: float = 0.0
    """Share of the batches behind the latencies: those that a consumer was waiting for."""
    shared_bytes: int = 0
    """tsnb: bytes of its arena that are in use; others: shared memory that their processes have mapped."""
    pss_bytes: int = 0
    """Memory of all processes, what several share counted once."""


@dataclass(frozen=True)
class Epoch:
    """What a system delivers of one epoch."""

    system: str
    samples: int
    """In the epoch; no multiple of the batch size."""
    delivered: tuple[int, ...] = ()
    """To each consumer."""
    unable: str = ""


@dataclass(frozen=True)
class Machine:
    """Where the rows come from."""

    cores: int
    processor: str
    memory_bytes: int
    load: float
    """Processes that wanted a core in the minute before the first run; 0 on an idle machine."""
    python: str
    torch: str
    tsnb: str

    @classmethod
    def this(cls) -> Machine:
        """Describe this one."""
        import psutil
        import torch

        import tsnb

        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        return cls(
            len(os.sched_getaffinity(0)),
            names[0] if names else platform.machine(),
            psutil.virtual_memory().total,
            os.getloadavg()[0],
            platform.python_version(),
            torch.__version__,
            tsnb.__version__,
        )


@dataclass(frozen=True)
class Report:
    """Everything one call measured."""

    machine: Machine
    seconds: float
    """Of each measurement."""
    repeats: int
    rows: list[Row] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)

    def find(self, workload: str, system: str, consumers: int) -> Row | None:
        """Return the row with figures; `plain` is what `separate` means for one consumer."""
        name = "plain" if system == "separate" and consumers == 1 else system
        key = (workload, name, consumers)
        return next(
            (r for r in self.rows if (r.workload, r.system, r.consumers) == key and not r.unable), None
        )

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Report:
        """Read what `write` wrote."""
        found = json.loads(path.read_text(encoding="utf-8"))
        epochs = [Epoch(**{**e, "delivered": tuple(e["delivered"])}) for e in found["epochs"]]
        rows = [Row(**r) for r in found["rows"]]
        return cls(Machine(**found["machine"]), found["seconds"], found["repeats"], rows, epochs)


def median_row(
    key: tuple[str, str, int], workers: int, runs: Sequence[Run], stalled: int, unable: str
) -> Row:
    """Return one configuration's row.

    Args:
        key: Workload, system, consumers.
        workers: Of each loader.
        runs: Those that gave figures; none where it could not be run.
        stalled: How many stopped on the way.
        unable: Why there are no runs.
    """
    if not runs:
        return Row(*key, workers, stalled=stalled, unable=unable or f"stalled in {stalled} of {stalled} runs")
    paces = [run.samples_per_s for run in runs]
    timed = [run.latencies_us for run in runs if len(run.latencies_us)]
    p50, p99 = ([float(np.percentile(run, share)) for run in timed] for share in (50, 99))
    return Row(
        *key,
        workers,
        runs=len(runs),
        stalled=stalled,
        samples_per_s=statistics.median(paces),
        lowest_samples_per_s=min(paces),
        highest_samples_per_s=max(paces),
        cpu_s_per_1000=statistics.median(run.cpu_s_per_1000 for run in runs),
        latency_p50_us=statistics.median(p50) if p50 else None,
        latency_p99_us=statistics.median(p99) if p99 else None,
        waited=statistics.median(run.waited for run in runs),
        shared_bytes=int(statistics.median(run.shared_bytes for run in runs)),
        pss_bytes=int(statistics.median(run.pss_bytes for run in runs)),
    )
