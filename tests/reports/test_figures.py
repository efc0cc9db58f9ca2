"""Plotly figures of a stream, from readings alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.panel.streams import three_models
from tests.reports.made import consumer, reading
from tsnb.errors import TsnbError
from tsnb.reports.figures import WORDS, draw_logged, draw_word
from tsnb.reports.look import since_start
from tsnb.show.words import COLOURS
from tsnb.telemetry.readings import GpuReading, HostReading, ProcessReading, StreamReading

GIB = 1 << 30


@pytest.fixture(scope="module")
def readings() -> list[StreamReading]:
    """A minute of four trials; the machine is looked at every two seconds."""
    made = list(three_models().run(60))
    return [replace(r, host=host(r)) if k % 8 == 0 else r for k, r in enumerate(made)]


def host(one: StreamReading) -> HostReading:
    uses = {c.name: ProcessReading(0.5, GIB, 2, gpu_bytes=2 * GIB) for c in one.consumers}
    gpu = GpuReading(0, "a GPU", 0.5, GIB, 2 * GIB)
    return HostReading(2, 1.5, GIB, 4 * GIB, ProcessReading(0.75, 2 * GIB, 2), uses, (gpu,))


@pytest.mark.parametrize("word", WORDS)
def test_each_word_draws_every_trial_in_its_colour(readings: list[StreamReading], word: str) -> None:
    """As in the panel: the order of first appearance gives the colours; every axis has a title."""
    figure = draw_word(word, readings)
    assert figure.layout.xaxis.title.text
    assert word == "spent" or figure.layout.yaxis.title.text
    if word in {"spent", "loader"}:
        return
    colours = {line.name: line.line.color for line in figure.data}
    names = ["cnn-small", "resnet10", "resnet18-wide", "resnet18-wide-sgd"]
    assert [colours[name] for name in names] == list(COLOURS[:4])


def test_time_is_the_stream_s_own(readings: list[StreamReading]) -> None:
    """An axis of minutes and seconds since the start; never milliseconds, which plotly takes for years below 10,000."""
    line = draw_word("lag", readings).data[0]
    assert line.x[0] == "2000-01-01 00:00:00.000"
    assert line.x[8] == "2000-01-01 00:00:02.000"
    assert draw_word("lag", readings).layout.xaxis.type == "date"
    assert since_start([100_000.5], 0) == ["2000-01-02 03:46:40.500"]


def test_the_numbers_are_the_readings(readings: list[StreamReading]) -> None:
    """Lag as it was read; throughput, shares and CPU in their units."""
    lag = {line.name: list(line.y) for line in draw_word("lag", readings).data}
    assert [v for v in lag["resnet10"] if v is not None] == [
        c.lag for r in readings for c in r.consumers if c.name == "resnet10"
    ]
    rates = {
        line.name: [v for v in line.y if v is not None] for line in draw_word("throughput", readings).data
    }
    taken = [c.samples for r in readings for c in r.consumers if c.name == "resnet18-wide"]
    assert sum(rates["resnet18-wide"]) / len(rates["resnet18-wide"]) == pytest.approx(
        (taken[-1] - taken[0]) / 52, rel=0.05
    )
    shares = [line.y for line in draw_word("share", readings).data]
    assert [sum(column) for column in zip(*shares, strict=True)][5:] == pytest.approx(
        [1.0] * (len(shares[0]) - 5)
    )
    held = {line.name: line.y for line in draw_word("held", readings).data}
    assert max(v for v in held["resnet18-wide"] if v is not None) < 0.05
    cpu = {line.name: line.y for line in draw_word("cpu", readings).data}
    assert set(cpu["loader"]) == {0.75}
    assert set(cpu["cores"]) == {2}
    gpu = {line.name: line.y for line in draw_word("gpu", readings).data}
    assert max(gpu["cnn-small"]) == 2.0


def test_what_changed_is_marked(readings: list[StreamReading]) -> None:
    """A dotted line and the words of `tsnb.telemetry.shown.marks`."""
    figure = draw_word("share", readings)
    first, second = figure.layout.annotations
    assert (
        first.hovertext == "resnet10 joined<br>resnet18-wide joined"
        and first.text == "resnet10 joined, 1 more"
    )
    assert second.hovertext == "resnet18-wide-sgd joined" and second.text.endswith(" joined")
    assert [shape.x0 for shape in figure.layout.shapes][::2] == [first.x, second.x], (
        "a line for each of the three"
    )


def test_a_line_breaks_where_a_trial_was_not_there() -> None:
    """Not drawn through: it was not attached in between."""
    made = [reading(k, *([consumer("a", k)] if k < 3 or k > 6 else []), consumer("b", k)) for k in range(10)]
    line = draw_word("lag", made).data[0] if draw_word("lag", made).data[0].name == "a" else None
    assert line is not None
    assert list(line.y) == [0, 0, 0, None, 0, 0, 0]


def test_a_logged_number_over_the_stream_s_time(readings: list[StreamReading]) -> None:
    """As the readings carry it."""
    lines = {line.name: line for line in draw_logged("loss", readings).data}
    known = [v for v in lines["cnn-small"].y if v is not None]
    assert known[-1] == pytest.approx(readings[-1].consumers[0].metrics["loss"], rel=1e-6)


def test_a_long_stream_makes_no_heavy_figure() -> None:
    """At most 2,000 points a line, its peaks among them."""
    made = [reading(k, consumer("a", k, lag=9 if k == 4321 else 0)) for k in range(8000)]
    line = draw_word("lag", made).data[0]
    assert len(line.x) <= 2000
    assert max(line.y) == 9


@pytest.mark.parametrize(
    ("word", "made", "message"),
    [
        ("lag", [reading(0, consumer("a"))], "just started to observe.*in a few seconds"),
        ("cpu", [reading(0, consumer("a")), reading(1, consumer("a", 1.0))], "machine was not measured"),
        ("gpu", [reading(0, consumer("a")), reading(1, consumer("a", 1.0))], "No GPU was seen"),
    ],
)
def test_what_is_not_known_is_said(word: str, made: list[StreamReading], message: str) -> None:
    with pytest.raises(TsnbError, match=message):
        draw_word(word, made)
