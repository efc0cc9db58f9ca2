"""`tsnb.log`: what counts as a number, what names become, and how much of it a stream is told."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import enum
import fractions
import math
import os
import re
import threading
import time
import warnings
from collections import UserDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb.extensions.metrics import taken_in
from tsnb.telemetry import metrics
from tsnb.telemetry.observer import Observer
from tsnb.telemetry.shown.curves import POINT
from tsnb.telemetry.shown.view import StreamView


class Level(enum.IntEnum):
    LOW = 3


class Heard:
    """What one listener was told."""

    def __init__(self) -> None:
        self.rows: list[tuple[int | None, dict[str, float]]] = []

    def __call__(self, step: int | None, numbers: dict[str, float]) -> None:
        self.rows.append((step, numbers))

    @property
    def last(self) -> dict[str, float]:
        return self.rows[-1][1]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    """A process in which nothing was logged yet."""
    monkeypatch.setattr(metrics, "_warned", set())
    monkeypatch.setattr(metrics, "_latest", {})
    listener = Heard()
    end = metrics.subscribe(listener)
    yield listener
    end()


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (np.float16(0.5), 0.5),
        (np.iinfo("int64").max, float(2**63)),
        (np.bool_(True), 1.0),
        (torch.tensor(0.25, requires_grad=True), 0.25),
        (torch.tensor([[0.5]], dtype=torch.bfloat16), 0.5),
        (decimal.Decimal("0.5"), 0.5),
        (fractions.Fraction(1, 4), 0.25),
        (Level.LOW, 3.0),
        (2**70, float(2**70)),
        (-0.0, -0.0),
        (np.ma.masked, math.nan),
        (np.ma.array([1.0], mask=[True]), math.nan),
        (np.ma.array([1.0], mask=[False]), 1.0),
    ],
)
def test_numbers_of_every_kind(value: Any, number: float, heard: Heard) -> None:
    """What numpy has masked is missing, so nan: it was 0.0."""
    metrics.log(it=value)
    assert repr(heard.last) == repr({"it": number})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            "0.5",
            r"tsnb.log\(it='0.5'\) is a string, so it is not stored as a number. To log a number, use float\(...\).",
        ),
        ("nan", "is a string"),
        (b"1.5", "is a string"),
        ("warm", ""),
        (np.array("3"), "it is a ndarray"),
        (np.datetime64(5, "ns"), "it is a datetime64"),
        (np.timedelta64(5, "ns"), "it is a timedelta64"),
        (np.array([5], "m8[ns]"), "it is a ndarray"),
        (dt.timedelta(seconds=5), "it is a timedelta"),
        (1 + 2j, "it is a complex"),
        (torch.tensor(1.0, device="meta"), "on the meta device, which holds no values"),
    ],
)
def test_text_and_times_are_not_numbers(value: Any, words: str, heard: Heard) -> None:
    """float() reads "nan" and b"1.5", and item() of a time in nanoseconds is an integer."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        metrics.log(it=value, loss=1)
    assert heard.last == {"loss": 1.0}
    assert re.search(words, "".join(str(one.message) for one in told))
    assert bool(told) == bool(words)


class Broken:
    """Cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("not me")

    __repr__ = __str__


class BrokenDict(UserDict[str, float]):
    """Cannot be read."""

    def items(self) -> Any:
        raise RuntimeError("not me")


@pytest.mark.parametrize(
    ("given", "named", "words"),
    [
        ({"a\nb": 1}, {"a b": 1.0}, "renamed a number to 'a b'"),
        ({"\ud800": 1}, {"?": 1.0}, "renamed a number to '\\?'"),
        ({"a\x1b[2J": 1}, {"a?[2J": 1.0}, "printable"),
        ({"x" * 121: 1}, {"x" * 117 + "...": 1.0}, "120"),
        ({"x" * 120: 1}, {"x" * 120: 1.0}, ""),
        ({"é\N{PARTY POPPER}'\" /_": 1, "": 2}, {"é\N{PARTY POPPER}'\" /_": 1.0, "": 2.0}, ""),
        ({"Loss": 1, "loss": 2, None: 3, ("a", 1): 4}, {"Loss": 1, "loss": 2, "None": 3, "('a', 1)": 4}, ""),
        ({1: 1, "1": 2}, {"1": 2.0}, "two values named '1' and kept the last one"),
        ({"a/b": 1, "a": {"b": 2}}, {"a/b": 2.0}, "two values named 'a/b'"),
        ({"a\nb": 1, "a b": 2}, {"a b": 2.0}, "two values named 'a b'"),
        ({"a": 1, "more": {Broken(): 1}}, {"a": 1.0}, "ignored a dict"),
        ({"a": 1, "more": BrokenDict()}, {"a": 1.0}, "ignored a BrokenDict"),
        ({"a/b/c/d/e/f/g/h/i": {"j": 1}}, {"a/b/c/d/e/f/g/h/i/j": 1.0}, ""),
    ],
)
def test_a_name_is_one_printable_line_and_stands_for_one_number(
    given: dict[Any, Any], named: dict[str, float], words: str, heard: Heard
) -> None:
    """Surfaces had cleaned or cut it each in its own way, a surrogate lost every row, and nothing was said."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        metrics.log(given)
        metrics.log(given)
    assert heard.last == named
    assert re.search(words, "".join(str(one.message) for one in told))
    assert bool(told) == bool(words)


def test_two_ways_of_giving_one_name_are_told(heard: Heard) -> None:
    with pytest.warns(UserWarning, match="two values named 'loss'"):
        metrics.log({"loss": 1}, loss=2)
    assert heard.last == {"loss": 2.0}


def test_steps_are_exact(heard: Heard) -> None:
    """Of numpy and torch too: through a float 2**53 + 1 was one less."""
    for step in (5, 3, -1, True, 4.0, 2**53 + 1, np.int64(2**53 + 1), torch.tensor(2**53 + 1)):
        metrics.log(it=1, step=step)
    assert [step for step, _ in heard.rows] == [5, 3, -1, 1, 4, *[2**53 + 1] * 3]
    with pytest.warns(UserWarning, match="a step is a whole number"):
        metrics.log(it=1, step=10**400)
    assert heard.rows[-1][0] is None


def test_whoever_listens_anew_is_told_again(heard: Heard) -> None:
    """A producer that has taken another's place knows nothing of what that one was told."""
    metrics.log(before=1)
    news = metrics.News(0.0, lambda: (0, 0.0))
    trial = metrics.News(0.0, lambda: (0, 0.0), before=True)
    assert news.take() is None and trial.take() == ({"before": 1.0}, {}, (), {})
    news.again()
    trial.again()
    assert news.take() is None, "it has told nothing yet"
    assert trial.take() == ({"before": 1.0}, {}, (), {})
    news.end()
    trial.end()


LONG = "layers/of/one/network/that/is/deep/gradients/norm/of/number/{}"


def test_long_names_that_begin_alike_stay_apart_and_current() -> None:
    """They were cut to 40 characters: two were one, and where the room was taken the first value stayed for good."""
    kept: dict[str, float] = {}
    for value in range(3):
        taken_in(kept, {LONG.format(k): float(value + k) for k in range(20)})
    assert kept == {LONG.format(k): 2.0 + k for k in range(16)}


@pytest.mark.slow
@pytest.mark.system
def test_a_loop_that_logs_very_many_names_goes_on(heard: Heard) -> None:
    """They did not fit into a packet, which raised in the loop; the stream is told of those logged first."""
    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4)
    with tsnb.serve(loader, name="numbers"), tsnb.attach(stream="numbers", name="it") as stream:
        for epoch in range(2):
            for _ in stream:
                metrics.log({LONG.format(k): epoch + k for k in range(5000)})
        stream.close()
        (end,) = [one for one in tsnb.streams.status("numbers").ends if one.name == "it"]
    assert end.metrics == {LONG.format(k): 1.0 + k for k in range(16)}


@pytest.mark.system
def test_a_value_stands_at_the_batch_at_which_it_was_logged(heard: Heard) -> None:
    """However many batches are taken before the stream hears of it: 25 a quarter of a second, for one."""
    loader = DataLoader(TensorDataset(torch.arange(160.0)), batch_size=4)
    view = StreamView()
    with tsnb.serve(loader, name="numbers"), tsnb.attach(stream="numbers", name="it") as stream:
        for epoch in range(3):
            for number, _ in enumerate(stream):
                metrics.log(loss=1.0)
                if number == 10 and epoch == 0:
                    view.feed(tsnb.streams.status("numbers"))
            metrics.log(val=0.5)
            for _ in zip(range(12), stream, strict=False):
                time.sleep(0.03)
            view.feed(tsnb.streams.status("numbers"))
    curves = view.logged()
    assert [point[1] for point in curves["val"]["it"].points] == [40, 92, 144], "the same value has its point"
    assert curves["val"]["it"].sparse and not curves["loss"]["it"].sparse
    assert curves["loss"]["it"].points[-1][1] == 144, "not at the last batch that was taken"


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize("beside", [0, 3])
def test_a_curve_of_a_fast_trial_has_all_that_was_logged(beside: int, heard: Heard) -> None:
    """However many values lie between two readings: each of an accuracy has a point, each loss is in one."""
    loader = DataLoader(TensorDataset(torch.arange(176.0)), batch_size=4)
    view, over = StreamView(), threading.Event()
    losses: list[float] = []

    def follow() -> None:
        observer = Observer("numbers")
        while not (over.is_set() and view.rows["it"].end):
            if (reading := observer.read(1.0)) is not None:
                view.feed(reading)

    with tsnb.serve(loader, name="numbers"), contextlib.ExitStack() as there:
        for k in range(beside):
            there.enter_context(tsnb.attach(stream="numbers", name=f"beside-{k}"))
        following = threading.Thread(target=follow)
        following.start()
        with tsnb.attach(stream="numbers", name="it") as stream:
            for epoch in range(10):
                for _ in stream:
                    losses.append(1.0 + len(losses) % 7)
                    metrics.log(loss=losses[-1])
                    time.sleep(0.002)
                metrics.log(accuracy=0.9 if epoch in (4, 5) else epoch / 10)
        over.set()
        following.join(20)
    curves = view.logged()
    assert [point[1] for point in curves["accuracy"]["it"].points] == [44 * (1 + k) for k in range(10)]
    points = [dict(zip(POINT, point, strict=True)) for point in curves["loss"]["it"].points]
    assert sum(point["values"] for point in points) == len(losses) == 440
    assert sum(point["values"] * point["mean"] for point in points) == pytest.approx(sum(losses))
    assert (min(point["low"] for point in points), max(point["high"] for point in points)) == (1.0, 7.0)
    assert points[-1]["batches"] == 440 and points[-1]["last"] == losses[-1]


@pytest.mark.system
def test_live_values_fit_into_a_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of 200,000 letters ended the loop that read it."""
    from tsnb.experiments.live_values import LiveValues
    from tsnb.extensions.live import live_here

    monkeypatch.setattr(live_here, "now", "")
    values = LiveValues()
    values.shown = lambda text: setattr(live_here, "now", text)
    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4)
    with tsnb.serve(loader, name="numbers"), tsnb.attach(stream="numbers", name="it") as stream:
        values.declare("prompt", "x" * 200_000, None, ("x" * 200_000, "y"))
        assert len(list(stream)) == 2
        (it,) = tsnb.streams.status("numbers").consumers
    assert it.live == {"prompt": "x" * 37 + "..."}


def test_a_clone_has_logged_nothing_until_it_logs_itself() -> None:
    """It is a fork: the panel had shown the last numbers of its parent as its own, which no result has."""
    tsnb.log(loss=0.5)
    child = os.fork()
    if child == 0:
        os._exit(len(metrics.latest()))
    assert os.waitpid(child, 0)[1] == 0
    assert metrics.latest()["loss"] == 0.5
