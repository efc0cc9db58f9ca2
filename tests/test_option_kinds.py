"""What a size may be, and what is said of others, wherever one is asked for."""

from __future__ import annotations

import dataclasses
from argparse import ArgumentTypeError
from collections.abc import Iterator
from typing import Any

import pytest

import tsnb
from tsnb.experiments.plan import TrialOptions
from tsnb.option_kinds import LEAST_BYTES, Kind, is_size
from tsnb.options import StreamOptions, TuneOptions
from tsnb.stalling import asked


def sizes() -> Iterator[tuple[str, Kind]]:
    """Return every option and question that takes a size: what can be typed as 2GiB."""
    for of in (StreamOptions, TuneOptions, TrialOptions):
        for each in dataclasses.fields(of):
            kind = getattr(each.metadata.get("option"), "kind", None)
            if kind is not None and "GiB" in kind.metavar:
                yield f"{of.__name__}.{each.name}", kind
    for name in asked.__all__:
        if "B" in getattr(getattr(asked, name), "metavar", ""):
            yield f"asked.{name}", getattr(asked, name)


def test_every_size_needs_its_unit() -> None:
    """Three bytes are 3 GiB whose unit was left out: refused everywhere, with what to write."""
    found = dict(sizes())
    assert found.keys() == {
        "StreamOptions.memory",
        "StreamOptions.cache",
        "TuneOptions.memory",
        "TrialOptions.needs",
        "asked.MEMORY",
        "asked.CACHED",
        "asked.ALSO_CACHED",
        "asked.RATE",
    }
    for name, kind in found.items():
        for given in (3, "3", "1023", "3B", 1023.0):
            with pytest.raises(ValueError, match=f"{name}=.* is invalid. Pass .* with its unit"):
                kind.checked(name, given)
        if not name.startswith("asked"):
            with pytest.raises(ArgumentTypeError, match=r"'3' is invalid. Pass a size with its unit"):
                kind.typed("3")
        for given in ("1KiB", LEAST_BYTES, "3GiB"):
            assert kind.checked(name, kind.typed(given) if isinstance(given, str) else given)


@pytest.mark.parametrize("given", [True, None, "", "-3GiB", "nan", float("nan"), float("inf"), "3PiBs", [3]])
def test_what_is_no_size(given: Any) -> None:
    """Whatever its type."""
    assert not is_size(given)


def test_what_cannot_be_planned_with_names_a_way_out_that_is_there() -> None:
    """`with_cached` is a method of what `tsnb.stalls` returns, and of nothing else."""

    def train() -> None: ...

    with pytest.raises(
        ValueError, match=r"memory=3 is invalid. Pass a size with its unit.* omit it"
    ) as refused:
        tsnb.plan(train, loader=[1], samples=1, memory=3)
    assert "with_cached" not in str(refused.value)
    assert "with_cached(0)" in asked.CACHED.wanted and "--cached 0" in asked.ALSO_CACHED.wanted
