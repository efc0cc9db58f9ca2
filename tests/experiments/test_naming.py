"""Names made of parameters."""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tsnb.config import check_name
from tsnb.experiments.plan import LONGEST, name_of, trial_name
from tsnb.sweeps.space_grammar import filled


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({}, "train"),
        ({"lr": 0.1}, "train-lr0.1"),
        ({"lr": 1e-4, "wd": 0}, "train-lr0.0001-wd0"),
        ({"lr": 0.00031622776601683794}, "train-lr0.0003162"),
        ({"optimizer": "adam w", "augment": True}, "train-optimizer-adam-w-augment-True"),
        ({"shift": -1}, "train-shift--1"),
        ({"data": object(), "lr": 3}, "train-lr3"),
        ({"seed": None}, "train-seed-None"),
        ({"width": np.int64(32), "lr": np.float32(0.5), "wd": torch.tensor(2)}, "train-width32-lr0.5-wd2"),
        ({"lr": np.float64(0.001), "shape": np.zeros(1)}, "train-lr0.001"),
    ],
)
def test_a_name_tells_the_parameters(params: dict[str, object], name: str) -> None:
    """Numbers stand at their names, words behind a dash; what reads badly is left out."""
    assert trial_name("train", params) == name


class Training:
    def __call__(self) -> None:
        pass

    def fit(self) -> None:
        pass


def test_whatever_can_be_called_has_a_name_that_a_sweep_can_bear() -> None:
    """Python calls every lambda `<lambda>`, which no sweep can be called; long names are cut."""
    fitting = functools.partial(functools.partial(Training().fit))
    functions: dict[str, Callable[..., Any]] = {
        "lambda": lambda: 0,
        "Training": Training(),
        "fit": Training().fit,
    }
    assert [name_of(fn) for fn in functions.values()] == list(functions)
    assert name_of(fitting) == "fit"
    long = types.FunctionType(Training.fit.__code__, {}, "a_b" * 40)
    functions["long"] = long
    for fn in functions.values():
        assert check_name(name_of(fn), "sweep") == name_of(fn)


@pytest.mark.parametrize(
    "params",
    [
        {"text": "x" * 300},
        {"path": "/data/a b/ü"},
        {f"parameter{n}": n / 7 for n in range(20)},
        {"text": "-"},
        {"text": ""},
    ],
)
def test_every_name_can_name_a_trial(params: dict[str, object]) -> None:
    """However long or odd the values are; and the same values give the same name."""
    made = trial_name("<lambda>", params)
    assert check_name(made, "trial") == made
    assert len(made) <= LONGEST
    assert made == trial_name("<lambda>", params)


def test_long_values_that_differ_late_give_different_names() -> None:
    """What is cut off counts in the mark at the end."""
    assert trial_name("train", {"text": "x" * 99 + "a"}) != trial_name("train", {"text": "x" * 99 + "b"})


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"api_key": "abc", "lr": 0.1}, "train-lr0.1"),
        ({"password": "swordfish"}, "train"),
        ({"x": "ghp_" + "a1B2" * 9, "lr": 0.1}, "train-lr0.1"),
        ({"hf_token": b"bytes", "optimizer": "adam"}, "train-optimizer-adam"),
    ],
)
def test_a_secret_is_no_part_of_a_name(params: dict[str, object], name: str) -> None:
    """Nor of its mark: names are file names, and stand in every reading."""
    assert trial_name("train", params) == name
    assert filled("{" + next(iter(params)) + "}-x", params) == "-masked--x"


def test_text_stands_in_a_name_only_as_a_short_plain_word() -> None:
    """A path or a sentence does not; trials that differ in it have different names all the same."""
    names = [
        trial_name("train", {"data": path, "lr": 0.1}) for path in ("/home/me/a", "/home/me/b", "a b c d e f")
    ]
    assert len(set(names)) == 3
    for name in names:
        assert re.fullmatch(r"train-lr0\.1-[0-9a-f]{6}", name)
