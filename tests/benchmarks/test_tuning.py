"""The benchmark of `workers="auto"` runs from end to end in its smallest form, and its table can be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.tuning_results import Race, Row, table, verdict
from tsnb.planners.tuning import Crew

ROOT = Path(__file__).parents[2]


@pytest.mark.system
@pytest.mark.slow
def test_a_pipeline_is_measured_from_end_to_end() -> None:
    """Fixed numbers, without workers, auto: with the digest of one worker's stream, within the budget."""
    words = ["--pipelines", "tiny", "--seconds", "0.3", "--rounds", "2", "--rest", "0.3", "--most", "2"]
    command = [sys.executable, "-m", "benchmarks.tuning", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 within the budget, 1 with the same digest" in done.stdout
    assert "PyTorch's default" in done.stdout and ", 2 run)" in done.stdout


def test_the_best_is_that_of_the_medians_and_the_share_that_within_rounds() -> None:
    """A number that was lucky once is not the best; what slows a whole round down is in both sides of its ratio."""
    race = Race(Crew(2, 4), [98.0, 49.0, 97.0], {1: [50.0, 120.0, 50.0], 2: [100.0, 50.0, 100.0]})
    assert (race.best, race.best_per_s) == (2, 100.0)
    assert race.of_best == pytest.approx([0.98, 0.97, 0.98])
    assert race.near and not race.same
    noisy = [0.8 * pace for pace in race.auto_per_s]
    assert not Race(Crew(2, 4), noisy, race.grid).near
    assert Race(Crew(2, 2), noisy, race.grid).near  # the best itself, whatever was measured of it


def test_the_table_says_what_was_reached() -> None:
    """Of the best of the grid, of the budget, and against PyTorch's default, with what the cores can give."""
    grid = {1: [50.0, 51.0], 2: [100.0, 100.0]}
    good = Row("leaking", Race(Crew(2, 2), [98.0, 96.0], grid), cores=2, grain=2, grain_rule=15_320)
    good.probes, good.rested_s, good.same_digest = 5, 21.0, True
    good.most_bytes, good.budget_bytes, good.plain_per_s = 2.0**20, 2.0**21, 48.5
    good.halved = Race(Crew(1, 4), [49.0, 50.0], {1: [50.0, 50.0], 2: [45.0, 44.0]})
    bad = Row("read", Race(Crew(1, 2), [50.0, 51.0], grid), cores=2, grain=1, grain_rule=1, probes=12)
    bad.most_bytes, bad.budget_bytes = 2.0**22, 2.0**21
    text = table([good, bad])
    assert "100.0 (2)" in text and "97.0 (2, 2 ahead)" in text and "97% (96-98, the same)" in text
    assert "1 of 2 MiB" in text and "OTHER" in text
    assert "99% (98-100): 1, 4 ahead; best 1" in text
    # what grain's rule gives, and what of it was run
    assert "100.0 (15,320, 2 run)" in text and "50.5 (1)" in text and "PyTorch's default" in text
    said = verdict([good, bad])
    assert said.startswith(
        "of 2: 1 at 95 % of the best, 1 in 8 probes or 30 s, 1 within the budget, 1 with the same"
    )
    # against the plain DataLoader, and not the stream without workers
    assert "leaking: 2.00 times a plain DataLoader without workers, PyTorch's default" in said
    assert "2 cores can give 2.00 at most" in said
    assert "1 of 1 at 95 %" in said
