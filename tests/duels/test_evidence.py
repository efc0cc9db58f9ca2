"""The test of a duel: its errors and power, on real and made differences, looked at after every block."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsnb.duels.evidence import Evidence, _walk, excluded, interval, level_in_series, log_ratio

ERROR = 0.05
BLOCKS = 40


def made(kind: str, number: int, generator: np.random.Generator) -> Any:
    """Return differences [number, BLOCKS] of arms that are exchangeable."""
    size = (number, BLOCKS)
    if kind == "normal":
        return generator.normal(size=size)
    if kind == "heavy tails":
        return generator.standard_t(2, size=size)
    if kind == "one image":
        return generator.choice([-1.0, 1.0], size=size) / 360
    if kind == "few steps and ties":
        return generator.integers(-2, 3, size=size) / 360
    if kind == "other sizes":
        return generator.normal(size=size) * np.geomspace(1, 1000, BLOCKS)
    if kind == "the first to fail loses":  # equal arms that fail at some place or another, or not at all
        places = np.minimum(generator.geometric(0.1, (2, *size)), 20)
        apart = np.sign(places[1] - places[0])
        return np.where(apart == 0, generator.normal(size=size), 50.0 * apart)
    assert kind == "failures"
    found = generator.normal(size=size)
    lost = generator.random(size=size) < 0.2
    return np.where(lost, np.copysign(50.0, found), found)


KINDS = (
    "normal",
    "heavy tails",
    "one image",
    "few steps and ties",
    "other sizes",
    "failures",
    "the first to fail loses",
)


def decided(rows: Any, level: float = ERROR) -> tuple[Any, Any]:
    """Return the side of each row, and after how many blocks."""
    above, below = _walk(rows)
    most = np.maximum(above, below)
    over = most >= math.log(2 / level)
    there = over.any(axis=1)
    at = over.argmax(axis=1)
    row = np.arange(len(rows))
    return np.where(there, np.where(above[row, at] > below[row, at], 1, -1), 0), np.where(
        there, at + 1, BLOCKS
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_equal_arms_are_told_apart_no_more_often_than_was_said(kind: str) -> None:
    """Of 2,000 duels that are looked at after each of 40 blocks; the margin is three standard errors."""
    sides, _ = decided(made(kind, 2000, np.random.default_rng(5)))
    assert (sides != 0).mean() <= ERROR + 3 * math.sqrt(ERROR / 2000)


def test_the_ratio_of_t_alone_would_tell_equal_arms_apart() -> None:
    """Where blocks differ by one image each, four alike in a row would decide: the reason for the signs."""
    alike = 4
    q = np.array([alike / math.sqrt(alike)])
    assert log_ratio(alike, q)[0] > math.log(2 / ERROR)
    assert 2 * 0.5**alike > ERROR
    assert max(Evidence([1 / 360] * alike).above) < math.log(2 / ERROR)


@pytest.mark.parametrize(
    ("effect", "median", "power"), [(1.0, 16, 0.9), (1.5, 10, 0.99), (2.0, 8, 0.99), (3.0, 7, 0.99)]
)
def test_an_effect_is_found_after_few_blocks(effect: float, median: float, power: float) -> None:
    """In standard deviations of a block's difference."""
    sides, blocks = decided(made("normal", 400, np.random.default_rng(6)) + effect)
    assert np.median(blocks) <= median
    assert (sides == 1).mean() >= power and not (sides == -1).any()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "few steps and ties"])
def test_the_interval_holds_the_centre_however_often_one_looks(kind: str) -> None:
    """Of 60 duels, looked at after 8, 16 and 40 blocks; and it gets narrower."""
    missed, widths = 0, []
    for row in made(kind, 60, np.random.default_rng(7)) + 0.3:
        ranges = [interval(row[:number].tolist(), ERROR) for number in (8, 16, BLOCKS)]
        missed += any(not low <= 0.3 <= high for low, high in ranges)
        widths.append([high - low for low, high in ranges])
    assert missed <= 60 * ERROR + 3 * math.sqrt(60 * ERROR)
    first, _, last = np.median(widths, axis=0)
    assert last < first / 2


@pytest.mark.parametrize("value", [0.0, 0.3, -2.0])
def test_the_interval_of_blocks_that_are_all_alike_is_their_value(value: float) -> None:
    """Any other shift is as far from them as the next, so no width can be told from them."""
    assert interval([value] * 5, ERROR) == (-math.inf, math.inf)
    assert interval([value] * 6, ERROR) == (value, value)


def test_nothing_is_excluded_of_few_blocks() -> None:
    """Each block doubles the evidence at most."""
    assert interval([1.0] * 5, ERROR) == (-math.inf, math.inf)
    low, high = interval([1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 1.0], ERROR)
    assert 0 < low < 1 < high < 2


def test_an_effect_of_one_deviation_is_hardly_ever_excluded() -> None:
    """And none at all soon is."""
    generator = np.random.default_rng(8)
    wrong = right = 0
    for _ in range(150):
        here, none = generator.normal(1.0, 1.0, BLOCKS), generator.normal(0.0, 1.0, BLOCKS)
        wrong += any(excluded(here[:n].tolist()) >= -math.log(ERROR) for n in range(1, BLOCKS))
        right += any(excluded(none[:n].tolist()) >= -math.log(ERROR) for n in range(1, 25))
    assert wrong <= 150 * ERROR + 3 * math.sqrt(150 * ERROR)
    assert right >= 120


def test_the_ratio_is_that_of_the_densities() -> None:
    """Of the noncentral over the central t distribution, as scipy has them."""
    stats = pytest.importorskip("scipy.stats")
    for number in (2, 5, 20, 40):
        for t in (-6.0, -1.0, 0.0, 0.5, 3.0, 9.0):
            for effect in (0.25, 1.0, 3.0):
                expected = stats.nct.logpdf(t, number - 1, effect * math.sqrt(number)) - stats.t.logpdf(
                    t, number - 1
                )
                if not math.isfinite(expected) or expected < -25:
                    continue  # scipy's own is noise there
                q = t * math.sqrt(number) / math.sqrt(number - 1 + t * t)
                assert log_ratio(number, np.array([q]), [effect])[0] == pytest.approx(expected, abs=1e-4)


NUMBERS = st.lists(st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 2.0]), min_size=1, max_size=12)


@given(NUMBERS, st.sampled_from([1e-6, 0.5, 1e6]))
def test_arms_may_be_exchanged_and_units_changed(differences: list[float], scale: float) -> None:
    """The sides are exchanged with them, and nothing depends on the unit."""
    found = Evidence(differences)
    swapped = Evidence([-x for x in differences])
    scaled = Evidence([scale * x for x in differences])
    assert swapped.above == pytest.approx(found.below) and swapped.below == pytest.approx(found.above)
    assert scaled.above == pytest.approx(found.above, abs=1e-6)


@given(NUMBERS)
def test_the_evidence_of_both_signs_averages_to_what_there_was(differences: list[float]) -> None:
    """So no one gains by looking, whatever came before: the mean over the next sign is the present evidence."""
    *before, last = differences
    now = math.exp(Evidence(before).above[-1]) if before else 1.0
    after = [math.exp(Evidence([*before, sign * last]).above[-1]) for sign in (1, -1)]
    assert sum(after) / 2 == pytest.approx(now)


def test_an_arm_that_failed_counts_as_the_largest_difference() -> None:
    """Of those before it, so that what comes later changes nothing of it."""
    assert Evidence([0.1, 0.2, math.inf]).above == Evidence([0.1, 0.2, 0.2]).above
    assert Evidence([math.inf]).above == Evidence([7.0]).above
    assert Evidence([0.0, 0.0]).above == [0.0, 0.0]


@pytest.mark.slow
def test_a_series_keeps_one_error() -> None:
    """Of a hundred changes without effect one is kept with a chance of at most the error, and each keep earns more."""
    levels = [level_in_series(0.05, number, 0) for number in range(1, 2001)]
    assert sum(levels) <= 0.05
    assert level_in_series(0.05, 50, 9) == pytest.approx(10 * level_in_series(0.05, 50, 0))
    generator, wrong = np.random.default_rng(9), 0
    for _ in range(100):
        rows = made("normal", 60, generator)
        kept = 0
        for number, row in enumerate(rows, 1):
            kept += decided(row[None, :], level_in_series(0.05, number, kept))[0][0] == 1
        wrong += kept > 0
    assert wrong <= 100 * 0.05 + 3 * math.sqrt(5)


@pytest.mark.slow
def test_most_of_what_a_series_keeps_is_true() -> None:
    """With three true changes in ten, at most a twentieth of what is kept is none, in the mean over nights."""
    generator, shares, found = np.random.default_rng(10), [], 0
    for _ in range(60):
        kept = wrong = 0
        for number in range(1, 41):
            true = generator.random() < 0.3
            row = generator.normal(1.5 if true else 0.0, 1.0, BLOCKS)
            if decided(row[None, :], level_in_series(0.05, number, kept))[0][0] == 1:
                kept += 1
                wrong += not true
                found += true
        shares.append(wrong / max(kept, 1))
    assert float(np.mean(shares)) <= 0.05 and found > 60 * 6
