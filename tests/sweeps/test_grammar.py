"""A sweep on a magic's line: values, distributions and names as they are written there."""

from __future__ import annotations

from typing import Any

import pytest

from tsnb.config import check_name
from tsnb.sweeps.space_grammar import filled, read_grid, read_space, unlike
from tsnb.sweeps.spaces import choice, loguniform, randint, uniform


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("lr=0.1,1e-4", "lr", [0.1, 1e-4]),
        ("n=1, 2", "n", [1, 2]),
        ("optimizer=sgd,adam", "optimizer", ["sgd", "adam"]),
        ("flip=True,False,None", "flip", [True, False, None]),
        ("betas=(0.9,0.99),(0.5,0.9)", "betas", [(0.9, 0.99), (0.5, 0.9)]),
        ("path='a,b',\"c=d\"", "path", ["a,b", "c=d"]),
        ("one=3", "one", [3]),
    ],
)
def test_values_are_pythons_where_they_are_and_else_text(text: str, name: str, values: list[Any]) -> None:
    """Commas within brackets and quotes divide nothing."""
    assert read_grid(text) == (name, values)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("lr=loguniform(1e-4,1e-1)", loguniform(1e-4, 1e-1)),
        ("lr=uniform(0, 1)", uniform(0, 1)),
        ("n=randint(1,9)", randint(1, 9)),
        ("net=choice(mlp,'c,nn',3)", choice(["mlp", "c,nn", 3])),
    ],
)
def test_distributions_are_written_as_they_are_called(text: str, what: Any) -> None:
    """The same words as in `tsnb.sweeps`."""
    assert read_space(text) == (text.partition("=")[0], what)


@pytest.mark.parametrize("text", ["lr", "lr=", "=1", "l r=1", "1=2"])
def test_what_is_no_setting_is_answered_with_an_example(text: str) -> None:
    """Both for values and for distributions."""
    with pytest.raises(ValueError, match="Write the parameter's name"):
        read_grid(text)
    with pytest.raises(ValueError, match="Write the parameter's name"):
        read_space(text)


@pytest.mark.parametrize(
    "text", ["lr=normal(0,1)", "lr=0.1,0.2", "lr=uniform(1)", "lr=uniform(a,b)", "lr=uniform(0,1"]
)
def test_what_is_no_distribution_is_answered_with_those_there_are(text: str) -> None:
    """In the parameter's own name."""
    with pytest.raises(ValueError, match="Write lr=uniform"):
        read_space(text)


def test_parameters_stand_in_names() -> None:
    """Short, and with nothing in them that a name may not have; a format may say more."""
    params = {"lr": 0.00012345678, "wd": 0, "betas": (0.9, 0.99), "net": "conv net"}
    assert filled("cnn-lr{lr}-wd{wd}", params) == "cnn-lr0.0001235-wd0"
    assert filled("lr{lr:.0e}", params) == "lr1e-04"
    assert check_name(filled("x-{betas}-{net}-x", params), "trial") == "x--0.9-0.99--conv-net-x"
    with pytest.raises(ValueError, match=r"\{wdd\} is not a parameter of this sweep \(lr, wd, betas, net\)"):
        filled("cnn-{wdd}", params)
    with pytest.raises(ValueError, match="'}'"):
        filled("cnn-{lr", params)


def test_equal_names_are_numbered() -> None:
    """So that no trial replaces another one of its own sweep."""
    assert unlike(["a", "b", "a", "a", "a-2"]) == ["a", "b", "a-2", "a-3", "a-2-2"]
    assert all(len(name) <= 64 for name in unlike(["x" * 64] * 3))
