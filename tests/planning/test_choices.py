"""What is left to a plan of unequal trials: each has the first value, or another where that fails or does not fit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.by_value import by_value
from tests.terminal import in_terminal
from tsnb.errors import TsnbError
from tsnb.experiments.cells import run_cell
from tsnb.planners.fluid import Job, LoaderCost, Resources
from tsnb.planners.strategies import Strategy, fitting
from tsnb.planning.ways import LISTED, chosen, foretold, why
from tsnb.planning.wishes import choices_for, strategies, too_large, wanted

SOURCE = """
def train(width, limit=None, epochs=1):
    import os
    import time
    import tsnb
    taken = 0
    if width > 4 and limit is None:
        os.kill(os.getpid(), 9) if width > 8 else [][0]
    for _ in range(epochs):
        for (labels,) in tsnb.attach():
            taken += len(labels)
            time.sleep(0.001 if limit is None else 0.003)  # clearly slower: of equals a busy machine chooses
    return taken, limit


def plain(width):
    import tsnb
    for _ in tsnb.attach():
        pass


def numbers():
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    return DataLoader(TensorDataset(torch.arange(400.0)), batch_size=4, shuffle=True)
"""
CHOOSE = {"limit": [None, "2GiB"]}


def made(name: str) -> Any:
    return by_value(SOURCE, name)


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    yield
    tsnb.trials.clear()


def ways_of(each: dict[str, dict[Strategy, Job]], memory_bytes: float) -> Any:
    feed = LoaderCost(0.0001, 0.0001, 0.0)
    return foretold(fitting(each, memory_bytes), feed, Resources(feed, 4, memory_bytes), 0.1)


def job(name: str, ms: float, memory: float) -> Job:
    return Job(name, 10_000, ms / 1000, ms / 1000, memory)


FAST, SMALL = strategies((("limit", (None, "2GiB")),), (), 1)


def test_a_trial_that_does_not_fit_with_the_first_value_has_the_next() -> None:
    """In all ways; those that fit keep the first, and where all are done sooner with another they have that."""
    each = {
        "small": {FAST: job("small", 1, 2.0), SMALL: job("small", 1.5, 1.0)},
        "large": {FAST: job("large", 1, 9.0), SMALL: job("large", 1.5, 3.0)},
    }
    assert too_large(each, 6.0) == ["large is not run with limit=None: it does not fit the memory (9 bytes)"]
    ways = ways_of(each, 6.0)
    assert {way.strategies["large"] for way in ways} == {SMALL}
    choice = chosen(ways)
    assert choice.strategies["small"] == FAST and choice.gives == ["limit=None, large 2GiB"]
    assert "(limit=None, large 2GiB)" in why(ways, choice, "cores")
    twins = {name: {FAST: job(name, 1, 4.0), SMALL: job(name, 1.05, 1.0)} for name in ("a", "b", "c")}
    lists = next(way for way in ways_of(twins, 6.0) if way.way == LISTED)
    assert SMALL in lists.strategies.values() and lists.at_once > 1, (
        "more fit at once, and all are done sooner"
    )
    roomy = chosen(ways_of(twins, 100.0))
    assert set(roomy.strategies.values()) == {FAST} and roomy.gives == ["limit=None each"]


def test_what_cannot_be_chosen_is_refused_before_anything_is_measured() -> None:
    """In the words of a planned sweep."""
    train, plain = made("train"), made("plain")
    some = {"a": (train, {"width": 1}), "b": (train, {"width": 2, "limit": "1GiB"})}
    for choose, trials, error, said in (
        (CHOOSE, some, ValueError, "limit is set for b and also in choose="),
        (
            {"threads": [1, 2]},
            (train, {"width": 1}),
            ValueError,
            r"Pass it as its own argument: threads=\(1, 2\)",
        ),
        ({"device": ["cpu"]}, (train, {"width": 1}), ValueError, "Pass it as its own argument: devices="),
        (
            {"epochs": [1, 2]},
            (train, {"width": 1}),
            ValueError,
            "not what it trains.*Pass it to each",
        ),
        ({"limit": "2GiB"}, [(train, {"width": 1})], ValueError, "Pass a list of numbers, strings or None"),
        ({"limits": [1, 2]}, [(train, {"width": 1})], TypeError, "limits"),
        (
            CHOOSE,
            {"a": (train, {"width": 1}), "b": (plain, {"width": 1})},
            TypeError,
            r"plain\(width\).*limit",
        ),
    ):
        given = trials if isinstance(trials, dict) else [trials] if isinstance(trials, tuple) else trials
        with pytest.raises(error, match=said):
            tsnb.plan(given, loader=[], choose=choose)
    assert choices_for(wanted({"a": (train, {"width": 1})}, None), CHOOSE) == (("limit", (None, "2GiB")),)


@pytest.mark.slow
@pytest.mark.system
def test_trials_run_with_what_the_plan_chose_for_them() -> None:
    """One fails with the first value, one dies; text, tables, JSON, parameters and processes say what each got."""
    train = made("train")
    loader = DataLoader(TensorDataset(torch.arange(400.0)), batch_size=4, shuffle=True)
    trials = {f"w{width}": (train, {"width": width}) for width in (4, 8, 16)}
    found = tsnb.plan(trials, loader=loader, choose=CHOOSE, seconds=0.2)
    assert "w8 is not run with limit=None: it failed while it was profiled." in found.text
    assert "w16 is not run with limit=None: its process died while it was measured" in found.text
    assert "limit=2GiB, w4 None" in found.text and "limit=2GiB, w4 None" in repr(found)
    told = json.loads(json.dumps(found.to_dict()))
    assert {each["name"]: each["gives"]["limit"] for each in told["trials"]} == {
        "w4": None,
        "w8": "2GiB",
        "w16": "2GiB",
    }
    assert all(way["gives"]["w16"] == {"limit": "2GiB"} for way in told["ways"])
    done = found.run(name="numbers")
    assert {name: trial.result() for name, trial in done.items()} == {
        "w4": (400, None),
        "w8": (400, "2GiB"),
        "w16": (400, "2GiB"),
    }
    assert done["w16"].params == {"width": 16, "limit": "2GiB"}


@pytest.mark.slow
@pytest.mark.system
def test_what_fails_with_every_value_says_so() -> None:
    """And nothing of it is left."""
    loader = DataLoader(TensorDataset(torch.arange(400.0)), batch_size=4)
    with pytest.raises(
        TsnbError, match=r"cannot be profiled with any value. with limit=None: its process died"
    ):
        tsnb.plan([(made("train"), {"width": 16})], loader=loader, choose={"limit": [None]}, seconds=0.2)
    assert not tsnb.streams.list() and not list(tsnb.trials)


@pytest.mark.slow
@pytest.mark.system
def test_the_command_line_leaves_values_to_the_plan(tmp_path: Path) -> None:
    """`tsnb plan --choose limit=None,2GiB --execute --json`."""
    (tmp_path / "chosen.py").write_text(SOURCE)
    words = "plan chosen:numbers --trial chosen:train width=4 --trial chosen:train width=8 --seconds 0.2"
    done = in_terminal(tmp_path, f"{words} --choose limit=None,2GiB --execute --json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [
        (each["gives"]["limit"], each["state"])
        for each in sorted(told["trials"], key=lambda one: one["name"])
    ] == [
        (None, "done"),
        ("2GiB", "done"),
    ]


@pytest.mark.slow
@pytest.mark.system
def test_a_cell_takes_what_is_chosen_for_a_variable_that_it_reads() -> None:
    """Another variable is refused before the loader is measured."""
    loader = DataLoader(TensorDataset(torch.arange(400.0)), batch_size=4)
    with tsnb.serve(loader, name="first"):
        cell = (  # a step that takes a moment: 100 batches of none pass between two looks
            "import tsnb, time\nassert limit\n"
            "taken = [len(rows) for (rows,) in tsnb.attach() if not time.sleep(0.005)], limit\n"
        )
        first = run_cell("first", cell, {"limit": "1GiB"}, stream="first").wait()
    with pytest.raises(TypeError, match="reads no variable 'limits'"):
        tsnb.plan({"one": first}, loader=[], choose={"limits": [None]})
    found = tsnb.plan({"one": first}, loader=loader, choose=CHOOSE, seconds=0.2)
    assert "one is not run with limit=None: it failed while it was profiled" in found.text
    assert found.run(name="numbers")["one"]["taken"] == ([4] * 100, "2GiB")
