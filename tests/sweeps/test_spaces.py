"""Parameters of a sweep: every combination once, draws within their range and repeatable, mistakes named."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsnb.sweeps.spaces import choice, combinations, draw, loguniform, randint, settings, uniform


def test_a_grid_gives_every_combination_once_the_last_parameter_changing_fastest() -> None:
    """The order is that of nested loops, as the parameters were written."""
    rows = combinations({"lr": [0.1, 0.01], "wd": (0, 1e-4), "net": ["mlp"]})
    assert [(row["lr"], row["wd"]) for row in rows] == [(0.1, 0), (0.1, 1e-4), (0.01, 0), (0.01, 1e-4)]
    assert all(list(row) == ["lr", "wd", "net"] for row in rows)


@given(st.integers(), st.floats(1e-6, 1.0), st.floats(1.01, 1e3), st.integers(-50, 50), st.integers(1, 9))
def test_draws_lie_in_their_range(seed: int, low: float, factor: float, first: int, more: int) -> None:
    """Both ends are included at most; whole numbers are whole; a plain list is a choice."""
    space = {
        "a": uniform(low, low * factor),
        "b": loguniform(low, low * factor),
        "c": randint(first, first + more),
        "d": ["x", "y"],
    }
    for row in draw(space, 3, seed):
        assert low <= row["a"] <= low * factor and low <= row["b"] <= low * factor
        assert isinstance(row["c"], int) and first <= row["c"] <= first + more
        assert row["d"] in {"x", "y"}


def test_every_factor_is_drawn_equally_often() -> None:
    """Of a range over four powers of ten each gets its quarter, where a uniform draw gives nearly all to one."""
    drawn = [row["lr"] for row in draw({"lr": loguniform(1e-5, 1e-1)}, 2000, 3)]
    per_power = [sum(math.floor(math.log10(lr)) == power for lr in drawn) for power in range(-5, -1)]
    assert all(400 < count < 600 for count in per_power), per_power


def test_the_same_seed_gives_the_same_draw() -> None:
    """Another seed another one; without a seed every draw is new."""
    space = {"lr": loguniform(1e-4, 1e-1), "wd": uniform(0, 1)}
    assert draw(space, 5, 7) == draw(space, 5, 7) != draw(space, 5, 8)
    assert draw(space, 5, None) != draw(space, 5, None)


def test_no_combination_is_drawn_twice() -> None:
    """A small space is given in full, and one that is too small says how many it holds."""
    rows = draw({"a": [1, 2, 3], "b": randint(0, 1)}, 6, 0)
    assert len({(row["a"], row["b"]) for row in rows}) == 6
    with pytest.raises(ValueError, match="has fewer than 7 different combinations: 6 were found"):
        draw({"a": [1, 2, 3], "b": randint(0, 1)}, 7, 0)


def test_a_grid_and_a_space_together_give_the_grid_for_every_draw() -> None:
    """So that what is in the grid is compared at equal values of what is drawn."""
    rows = settings({"net": ["mlp", "cnn"]}, {"lr": uniform(0, 1)}, 3, 1)
    assert [row["net"] for row in rows] == ["mlp", "cnn"] * 3
    assert [rows[i]["lr"] == rows[i + 1]["lr"] for i in range(5)] == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"grid": {}}, "A sweep needs parameters"),
        ({"grid": {"lr": 0.1}}, r"lr=0.1 is not a list of values. Write lr=\[0.1\]"),
        ({"grid": {"net": "mlp"}}, r"Write net=\['mlp'\]"),
        ({"grid": {"lr": []}}, "lr has no values"),
        ({"space": {"lr": uniform(0, 1)}}, "Pass the number of trials"),
        ({"space": {"lr": uniform(0, 1)}, "n": 0}, "Pass the number of trials"),
        ({"grid": {"lr": [1]}, "n": 3}, "n=3 needs space"),
        ({"grid": {"lr": [1]}, "space": {"lr": [1, 2]}, "n": 1}, "lr is in the grid and in the space"),
        ({"space": {"lr": 0.1}, "n": 1}, "cannot be drawn from"),
        ({"grid": {"name": ["resnet18", "resnet50"]}}, "'name' cannot be a sweep parameter"),
    ],
)
def test_what_makes_no_sweep_is_said_in_the_users_words(given: dict[str, Any], said: str) -> None:
    """Before anything is started."""
    with pytest.raises(ValueError, match=said):
        settings(given.get("grid"), given.get("space"), given.get("n"), 0)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: uniform(1, 1),
        lambda: loguniform(0, 1),
        lambda: loguniform(-1, 1),
        lambda: uniform(0, math.inf),
        lambda: randint(0, 2.5),  # type: ignore[arg-type]
        lambda: randint(3, 1),
        lambda: choice([]),
        lambda: choice("adam"),
    ],
)
def test_a_range_that_is_none_is_refused(wrong: Any) -> None:
    """When it is made, not when it is drawn from."""
    with pytest.raises(ValueError, match=r"Pass |must be above 0"):
        wrong()
