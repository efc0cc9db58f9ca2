"""What `benchmarks.tuning` has measured: each pipeline's numbers, as a table and as a line on what was reached."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from tsnb.planners.tuning import Crew
from tsnb.text.words import text_table

__all__ = ["PREFETCH", "Race", "Row", "table", "verdict"]

PREFETCH = 2
"""Batches that each worker of the grid prepares ahead, as torch has it."""
NEAR = 0.95


@dataclass
class Race:
    """Batches a second of auto's choice and of fixed numbers of workers, measured in turn."""

    auto: Crew
    auto_per_s: list[float] = field(default_factory=list)
    """By round."""
    grid: dict[int, list[float]] = field(default_factory=dict)
    """The same by number of workers."""

    @property
    def best(self) -> int:
        """The number with the largest median."""
        return max(self.grid, key=lambda workers: statistics.median(self.grid[workers]))

    @property
    def best_per_s(self) -> float:
        """Its median."""
        return statistics.median(self.grid[self.best])

    @property
    def of_best(self) -> list[float]:
        """What auto's choice reaches of it: the median, the least and the largest of the rounds."""
        shares = [mine / best for mine, best in zip(self.auto_per_s, self.grid[self.best], strict=True)]
        return [statistics.median(shares), min(shares), max(shares)]

    @property
    def same(self) -> bool:
        """Whether auto's choice is the best of the grid: how far the two measurements differ is then noise."""
        return self.auto == Crew(self.best, PREFETCH)

    @property
    def near(self) -> bool:
        """Whether auto's choice reaches 95 % of the best."""
        return self.same or self.of_best[0] >= NEAR


@dataclass
class Row:
    """One pipeline."""

    pipeline: str
    race: Race
    cores: int = 0
    grain: int = 0
    """Workers that were run for grain's rule: at most those of the grid."""
    grain_rule: int = 0
    """Workers that it gives, whatever can be run."""
    rest_per_s: float = 0.0
    """Of auto itself, from when it rested on."""
    probes: int = 0
    rested_s: float | None = None
    """None: it was still trying at the end."""
    most_bytes: float = 0.0
    """Of all workers, the most of the samples at 20 Hz."""
    budget_bytes: float = 0.0
    looks: int = 0
    compared: int = 0
    """Batches that were compared with those of one worker."""
    same_digest: bool = False
    none_per_s: float = 0.0
    """Of a stream without workers."""
    plain_per_s: float = 0.0
    """Of a plain DataLoader as PyTorch makes it: no worker, no stream."""
    halved: Race | None = None
    """Half of the cores gone; None: not measured."""

    @property
    def over_plain(self) -> float:
        """How many times a plain DataLoader auto's choice gives."""
        return statistics.median(self.race.auto_per_s) / self.plain_per_s if self.plain_per_s else 0.0


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text."""
    head = [
        "pipeline", "best of the grid", "auto", "of the best", "at rest", "probes", "rested", "PyTorch's default",
        "0 workers", "2", "= cores", "grain's rule", "most memory", "digest", "cores halved",
    ]  # fmt: skip
    cells = []
    for row in rows:
        race = row.race

        def at(workers: int, race: Race = race) -> str:
            return f"{statistics.median(race.grid[workers]):.1f}" if workers in race.grid else "-"

        cells.append([
            row.pipeline, f"{race.best_per_s:.1f} ({race.best})",
            f"{statistics.median(race.auto_per_s):.1f} ({_told(race.auto)})", _share(race), f"{row.rest_per_s:.1f}",
            str(row.probes), "no" if row.rested_s is None else f"{row.rested_s:.0f} s", f"{row.plain_per_s:.1f}",
            f"{row.none_per_s:.1f}", at(2), at(row.cores), f"{at(row.grain)} ({_of_rule(row)})",
            f"{row.most_bytes / 2**20:.0f} of {row.budget_bytes / 2**20:.0f} MiB",
            "same" if row.same_digest else "OTHER", "-" if row.halved is None else _after_halving(row.halved),
        ])  # fmt: skip
    return "\n".join(text_table([head, *cells]))


def _told(crew: Crew) -> str:
    return f"{crew.workers}, {crew.prefetch} ahead"


def _share(race: Race) -> str:
    median, least, most = race.of_best
    same = ", the same" if race.same else ""
    return f"{100 * median:.0f}% ({100 * least:.0f}-{100 * most:.0f}{same})"


def _after_halving(race: Race) -> str:
    return f"{_share(race)}: {_told(race.auto)}; best {race.best}"


def _of_rule(row: Row) -> str:
    """Return what grain's rule gives, and what was run of it where that is less."""
    return f"{row.grain_rule:,}" if row.grain == row.grain_rule else f"{row.grain_rule:,}, {row.grain} run"


def verdict(rows: Sequence[Row]) -> str:
    """Say in a line what was reached of what is wanted."""
    near = sum(row.race.near for row in rows)
    few = sum(row.probes <= 8 or (row.rested_s is not None and row.rested_s <= 30) for row in rows)
    kept = sum(row.most_bytes <= row.budget_bytes for row in rows)
    same = sum(row.same_digest for row in rows)
    times = "".join(
        f"; leaking: {row.over_plain:.2f} times a plain DataLoader without workers, PyTorch's default, where "
        f"{row.cores} cores can give {row.cores:.2f} at most (InTune: 2.29, over other optimizers)"
        for row in rows
        if row.pipeline == "leaking"
    )
    halved = [row.halved.near for row in rows if row.halved is not None]
    back = f"; cores halved: {sum(halved)} of {len(halved)} at 95 %" if halved else ""
    return (
        f"of {len(rows)}: {near} at 95 % of the best, {few} in 8 probes or 30 s, {kept} within the budget, "
        f"{same} with the same digest{times}{back}"
    )
