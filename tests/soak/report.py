"""What a soak counted, and how that is told."""

from __future__ import annotations

import os
import platform
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import torch

import tsnb

__all__ = ["Sample", "Tally", "report", "slope_per_minute", "verdict"]

FLAT_BYTES_PER_MINUTE = 64 * 1024
"""A leak of one batch of this soak an epoch would be far above; what the allocators do is below."""
FLAT_DESCRIPTORS_PER_MINUTE = 0.5
"""Their number swings by a dozen with every epoch, whose workers come and go; a fit of it is no better than this."""
LONG_ENOUGH_S = 300.0
"""Slopes of a shorter life tell about its beginning, not about leaks."""


ORDERED = (
    "Every consumer checks every sample: bit for bit what the loader makes of it in that epoch, and in the",
    "loader's order, both computed without tsnb. An epoch is complete when each of its samples came once.",
)
GROWING = (
    "Files come into a folder all the while, some a half at a time. Every consumer checks every sample bit for bit",
    "against its file, that none comes twice in an epoch, and that a complete epoch leaves out none that was found",
    "before its others. All consumers have the same order, whichever producer gave it; the last epoch has every file.",
    "A round has exactly the files that the log says: all that are new since the last one, or the last so many.",
)


@dataclass(frozen=True)
class Sample:
    """The producer at one moment."""

    time_s: float
    private_bytes: int
    """Its own memory, without the arena and shared libraries."""
    descriptors: int
    arena_bytes: int


@dataclass
class Tally:
    """Everything counted so far."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """Epochs by how they were left."""
    faults: Counter[str] = field(default_factory=Counter)
    pieces: dict[tuple[int, int], int] = field(default_factory=dict)
    """Of a folder that grows: the order of each piece of each epoch, as a hash."""
    files: int = 0
    """The most files that a whole epoch had."""
    samples: int = 0
    batches: int = 0
    losses: list[str] = field(default_factory=list)
    life: list[Sample] = field(default_factory=list)
    """The last producer's."""
    pinned: int | None = None
    """Leases that the producer still had when all consumers had gone."""
    missing: int | None = None
    """Slots that were neither free nor in use then."""
    hits: int = 0
    """Samples that the last producer's workers have taken from its cache."""


def slope_per_minute(life: list[Sample], what: str) -> float:
    """Return the slope of a linear fit over the second half of a producer's life."""
    half = [s for s in life if s.time_s >= (life[0].time_s + life[-1].time_s) / 2] if life else []
    if len(half) < 3:
        return 0.0
    times = np.array([s.time_s for s in half])
    values = np.array([getattr(s, what) for s in half], dtype=float)
    return float(np.polyfit(times - times[0], values, 1)[0]) * 60.0


def verdict(tally: Tally) -> list[str]:
    """Return everything that must not be; empty if the soak passed."""
    wrong = list(tally.losses)
    if not tally.samples:
        wrong.append("not one sample arrived")
    if tally.pinned != 0 or tally.missing != 0:
        wrong.append(f"at the end {tally.pinned} slots were pinned by nobody and {tally.missing} missing")
    if tally.life and tally.life[-1].time_s - tally.life[0].time_s >= LONG_ENOUGH_S:
        growth = slope_per_minute(tally.life, "private_bytes")
        if growth > FLAT_BYTES_PER_MINUTE:
            wrong.append(f"the producer's memory grew by {growth / 1024:.0f} KiB a minute")
        growth = slope_per_minute(tally.life, "descriptors")
        if growth > FLAT_DESCRIPTORS_PER_MINUTE:
            wrong.append(f"the producer's descriptors grew by {growth:.2f} a minute")
    return wrong


def report(tally: Tally, *, command: str, seconds: float, consumers: int, seed: int) -> str:
    """Return the report as Markdown."""
    wrong = verdict(tally)
    life_s = tally.life[-1].time_s - tally.life[0].time_s if tally.life else 0.0
    memory = psutil.virtual_memory().total / 2**30
    lines = [
        "# Soak",
        "",
        (
            f"`{command}`: {seconds / 60:.1f} minutes, {consumers} consumers at a time, seed {seed}, "
            f"{sum(tally.faults.values())} faults: **{'passed' if not wrong else 'FAILED'}**."
        ),
        "",
        *(GROWING if tally.files else ORDERED),
        "",
        "| | |",
        "|---|---|",
        f"| samples checked | {tally.samples:,} |",
        f"| batches | {tally.batches:,} |",
        f"| losses (lost, doubled, out of order or changed; unexpected errors and standstills) | {len(tally.losses)} |",
        *([f"| files in the last whole epoch | {tally.files:,} |"] if tally.files else []),
        *([f"| samples taken from the cache, last life | {tally.hits:,} |"] if tally.hits else []),
        f"| slots pinned by nobody, and missing, at the end | {tally.pinned}, {tally.missing} |",
        (
            f"| producer's memory, last life ({life_s / 60:.1f} min) "
            f"| {slope_per_minute(tally.life, 'private_bytes') / 1024:+.1f} KiB a minute |"
        ),
        f"| its descriptors | {slope_per_minute(tally.life, 'descriptors'):+.3f} a minute |",
        (
            f"| its arena | {tally.life[-1].arena_bytes / 2**20 if tally.life else 0:.1f} MiB at the end, "
            f"{slope_per_minute(tally.life, 'arena_bytes') / 1024:+.1f} KiB a minute |"
        ),
        "",
        "| fault | times |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in tally.faults.most_common()),
        "",
        "| an epoch's end | times |",
        "|---|---|",
        *(f"| {name} | {count:,} |" for name, count in tally.outcomes.most_common()),
        "",
        *(f"- **{line}**" for line in wrong[:50]),
        *([""] if wrong else []),
        (
            f"Machine: {_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}; "
            f"Python {platform.python_version()}, torch {torch.__version__}, tsnb {tsnb.__version__}."
        ),
        "",
    ]
    return "\n".join(lines)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
