"""Streams of data that grows, or that a cache keeps, simulated: whatever happens, each sample once and none another."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from tests.producer.preparing import GrowingSamples, KeptSamples
from tests.producer.simulation import SAMPLES, Simulation


@pytest.mark.parametrize("seed", range(16))
def test_each_sample_of_data_that_grows_comes_once_in_the_order_of_all_whatever_happens(
    seed: int, tmp_path: Path
) -> None:
    """Kills of either side, pauses, clones, trials that are extended; a round has what is new, and each of it once."""
    rounds = seed % 2 == 1
    with contextlib.closing(GrowingSamples(tmp_path, random.Random(seed), rounds=rounds)) as growing:
        simulation = Simulation(
            14_000 + seed,
            growing=growing,
            rounds=rounds,
            restarts=seed % 3 != 0,
            pauses=seed % 4 >= 2,
            clones=seed % 5 >= 3,
            extends=seed % 4 == 1,
            skips=seed % 8 == 4,
            rotates=seed % 8 == 7,
        )
        simulation.run(500)
        simulation.settle()
        assert simulation.check_samples()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_with_a_cache_each_sample_is_what_it_is_without_whatever_happens(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed producers whose memory is taken over, memory that gets short, parts: the same, and prepared less."""
    with contextlib.closing(KeptSamples(SAMPLES, random.Random(seed), monkeypatch)) as kept:
        simulation = Simulation(
            15_000 + seed,
            kept=kept,
            parts=seed % 2 == 1,
            restarts=seed % 3 != 0,
            failures=seed % 4 == 2,
            clones=seed % 5 == 3,
            pauses=seed % 5 == 4,
            rounds=seed % 7 == 3,
            extends=seed % 8 == 5,
        )
        simulation.run(500)
        simulation.failures = False
        simulation.settle()
        assert simulation.check_samples() or not simulation.parts
        if kept.serving:
            kept.check_misses()
