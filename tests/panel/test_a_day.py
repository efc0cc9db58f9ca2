"""A page that opens late, or is loaded again, has the curves of one that stayed open: over a simulated day."""

from __future__ import annotations

import base64
import io
import itertools
import statistics
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.panel.a_day import EPOCH, PER_S, READINGS, loss, pages_of, readings_of_a_day
from tests.panel.streams import logging_each_batch, three_models
from tsnb.panel.tape import Tape
from tsnb.reports.learned.curves import curves_of
from tsnb.show.view_text import as_text
from tsnb.telemetry.lives.spent import spent
from tsnb.telemetry.shown.curves import POINTS, smoothed
from tsnb.top.view import screen

PIXELS = 236
"""The height of a chart."""


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tape, Any]:
    """Return the kernel's tape, and what each page has at the end of the day: opened at its start, and ever later."""
    tape, opened = Tape(), (0, 3, 900, 7_000, 12_600, 17_000, READINGS - 1)
    return tape, pages_of(tape, readings_of_a_day(), opened, tmp_path_factory.mktemp("day"))


@pytest.mark.slow
def test_a_page_opened_late_has_the_curves_of_one_that_stayed_open(day: tuple[Tape, Any]) -> None:
    """To the last bit: kernel and page keep the same points by the same function."""
    tape, (first, *later) = day
    assert base64.b64decode(first["bytes"]) == tape.curves()
    for page in later:
        assert page["bytes"] == first["bytes"]
        assert page["drawn"] == first["drawn"]


def test_pages_and_report_have_the_values_between_two_readings(tmp_path: Path) -> None:
    """Of trials that log faster than they are told of: mean, lowest and highest of all, the same on every screen."""
    tape, readings = Tape(), list(logging_each_batch(three_models().run(90)))
    first, *later = pages_of(tape, iter(readings), (0, 40, 300, 359), tmp_path)
    assert base64.b64decode(first["bytes"]) == tape.curves()
    assert {page["bytes"] for page in later} == {first["bytes"]}
    curve = tape.view.logged()["loss"]["cnn-small"]
    assert curves_of(readings)["loss"]["cnn-small"] == curve
    begun = next(one.batches for its in readings for one in its.consumers[:1] if one.metrics)
    assert sum(point[7] for point in curve.points) == curve.points[-1][1] - begun + 1
    assert any(point[4] < point[6] < point[5] for point in curve.points)


def test_the_curves_of_a_day_are_true_at_every_hour(day: tuple[Tape, Any]) -> None:
    """Each stretch is as fine as any other, and is drawn within a pixel of the mean of what was logged in it."""
    _, (page, *_) = day
    drawn = {(one["axis"], one["smooth"], one["metric"], one["name"]): one for one in page["drawn"]}
    curve = drawn["batch", 0, "loss", "all-day"]
    assert POINTS // 2 <= len(curve["x"]) <= POINTS
    gaps = [after - before for before, after in itertools.pairwise(curve["x"])]
    assert max(gaps) < 1.1 * statistics.median(gaps), "equal resolution over the whole run"
    logged = [(int(number * 4.0 * PER_S), loss(int(number * 4.0 * PER_S), 0)) for number in range(READINGS)]
    values = iter(logged)
    for x, y, low, high in zip(curve["x"], curve["y"], curve["low"], curve["high"], strict=True):
        those = [value for _, value in itertools.takewhile(lambda one: one[0] < x, values)]  # noqa: B023 (used here)
        those.append(loss(int(x), 0))
        assert y == pytest.approx(statistics.mean(those), abs=2.3 / PIXELS)
        assert (low, high) == pytest.approx((min(those), max(those)), abs=1e-6)
    smooth = drawn["batch", 0.6, "loss", "all-day"]
    assert all(y < 0.12 for x, y in zip(smooth["x"], smooth["y"], strict=True) if x > 6000)
    accuracy = drawn["batch", 0.9, "val_acc", "all-day"], drawn["batch", 0, "val_acc", "all-day"]
    assert all(x % EPOCH == 0 for x in accuracy[0]["x"]), "where it was logged, not where it was heard of"
    assert all(x == int(x) for x in drawn["epoch", 0, "val_acc", "all-day"]["x"])
    assert len(accuracy[0]["x"]) > POINTS // 2, "a value that is the same once more has its point"
    assert accuracy[0]["y"] == accuracy[1]["y"], (
        "one value an epoch is a mean already, however many there are"
    )


def test_the_kernel_smooths_as_pages_do(day: tuple[Tape, Any]) -> None:
    """What a saved picture draws is what a page draws where nobody has chosen another smoothing."""
    tape, (page, *_) = day
    for one in page["drawn"]:
        if (one["axis"], one["smooth"]) == ("batch", 0.6):
            row = tape.view.rows[one["name"]]
            points = tape.view.curves.points(row.number, row.places[one["metric"]])
            assert smoothed(points) == pytest.approx(one["y"], rel=1e-12)


def test_every_screen_says_the_same_at_the_end_of_a_day(day: tuple[Tape, Any]) -> None:
    """Pages opened at any moment, report, `tsnb status` and `tsnb top`: numbers, shares, ends, sentence, time left."""
    tape, (first, *later) = day
    view, readings = tape.view, tape._history.readings()
    for page in later:
        for key in ("say", "all", "perS", "marks"):
            assert page[key] == first[key], key
        for one, other in zip(first["lanes"], page["lanes"], strict=True):
            assert {**one, "life": None} == {**other, "life": None}
            assert other["life"] == pytest.approx(one["life"], rel=0.01, abs=0.01)
    assert first["say"]["text"] == view.say.text
    assert view.say.text in as_text(view, "day")
    trials = {trial.name: trial for trial in spent(readings)}
    drawn = io.StringIO()
    Console(file=drawn, width=160, color_system=None).print(screen(view, 160))
    for lane in first["lanes"]:
        row, trial = view.rows[lane["name"]], trials[lane["name"]]
        assert lane["row"]["epochs"] == pytest.approx(row.epochs, rel=1e-6)
        assert trial.epochs == pytest.approx(row.epochs, rel=1e-6)
        assert lane["state"] == (row.end or row.state) == trial.state
        assert lane["values"] == pytest.approx([row.metrics[name] for name in row.places], rel=1e-6)
        assert trial.metrics == row.metrics
        near = 1e-3 if row.end else 0.01
        for part in ("computing", "waiting", "held"):
            assert lane["life"][part] == pytest.approx(trial.share(part), abs=near)
        assert lane["life"]["samplesPerS"] == pytest.approx(trial.samples_per_s, rel=near)
        assert f"{row.epochs:.2f}" in drawn.getvalue()
