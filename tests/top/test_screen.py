"""One screen: what it says, at every width, in every state."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from rich.console import Console

from tests.panel.streams import Stream, Trial, three_models
from tests.telemetry.test_diagnosis import consumer, stream
from tsnb.show.view_text import as_text
from tsnb.telemetry.readings import (
    CacheReading,
    EndReading,
    GpuReading,
    HostReading,
    ProcessReading,
    StreamReading,
)
from tsnb.telemetry.shown.view import StreamView
from tsnb.text.numbers import count
from tsnb.top.view import ALL, screen

GIB = 1 << 30
HOST = HostReading(
    cores=8,
    cpu=5.5,
    memory_used_bytes=30 * GIB,
    memory_total_bytes=64 * GIB,
    producer=ProcessReading(0.61, GIB, 8),
    consumers={
        "cnn-small": ProcessReading(0.2, 3 * GIB, 8),
        "resnet10": ProcessReading(0.4, GIB, 8, 5 * GIB),
    },
    gpus=(
        GpuReading(0, "H200", 0.87, 20 * GIB, 140 * GIB),
        GpuReading(1, "H200 MIG", None, 2 * GIB, 16 * GIB),
    ),
)


def told(imagined: Stream, seconds: float, host: HostReading | None = None) -> StreamView:
    view = StreamView()
    for k, reading in enumerate(imagined.run(seconds)):
        view.feed(replace(reading, host=host if k % 8 == 0 else None))
    return view


def drawn(view: StreamView, width: int = 150, hint: str = "", most: int = 12) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(screen(view, width, hint, most))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"■ {name} "))


def test_sentence_and_header_have_the_same_batches_per_second() -> None:
    """While a stream gets faster too, as in its first seconds, and of fast ones in as many digits."""
    view, seen = StreamView(), set()
    for k, reading in enumerate(three_models().run(12)):
        here = tuple(
            replace(each, computing_s=0.0, waiting_s=0.25 * k, held_s=0.0, batches=3 * k * k)
            for each in reading.consumers
        )
        view.feed(replace(reading, batches=3 * k * k, state="serving", consumers=here))
        if said := re.search(r"limit at (\S+) batches/s", view.say.text):
            seen.add(said[1])
            assert f"loader {said[1]} batches/s" in drawn(view).splitlines()[0]
    assert len(seen) > 3 and any("." not in said for said in seen)


def test_it_says_what_the_panel_says() -> None:
    """Header, sentence, rows with shares, what changed, the machine."""
    text = drawn(told(three_models(), 100, HOST))
    assert text.startswith("● mnist   pass 1")
    assert "2 workers   window 8 of 8" in text
    assert "s left" not in text.splitlines()[0], "the time left is a clock"
    assert " left" in text.splitlines()[0]
    assert "sets the pace   ■■■■■■■■     8" in row(text, "resnet18-wide")
    assert "█" in row(text, "cnn-small") and "░" in row(text, "cnn-small")
    assert "timed out   " in row(text, "resnet18-wide-sgd")
    assert "0.40   1.0 GiB   5.0 GiB" in row(text, "resnet10")
    assert "0:30 ago resnet18-wide-sgd timed out" in text
    assert "CPU 5.50 of 8 cores (loader 0.61, trials 0.60)" in text
    assert "memory 30 of 64 GiB   shared memory 212 MiB, 12 buffers" in text
    assert "GPU 0 87 %, 20 of 140 GiB" in text
    assert "GPU 1 2.0 of 16 GiB" in text, "how busy a MIG instance is, nobody knows"


def test_the_sentence_begins_with_who_logs_nan() -> None:
    """A lost trial matters more than the pace; an infinite norm of a gradient, now and then, is no loss."""
    latest = list(three_models().run(30))[-1]

    def said(*metrics: dict[str, float]) -> tuple[str, str]:
        view = told(three_models(), 20)
        those = [replace(one, metrics=has) for one, has in zip(latest.consumers, metrics, strict=False)]
        view.feed(replace(latest, consumers=(*those, *latest.consumers[len(those) :])))
        view.settle()
        assert " ".join(drawn(view).split()).count(view.say.lead) == 1
        return view.say.lead, view.say.text

    names, nan = [one.name for one in latest.consumers], math.nan
    quiet, _ = said({"loss": 0.1, "norm": math.inf})
    assert "nan" not in quiet
    lead, text = said({"loss": nan, "accuracy": 0.1})
    assert lead == f"{names[0]}: loss is nan." and text.startswith(f"{lead} {quiet.partition(' ')[0]}")
    assert said({"loss": nan, "val_loss": nan})[0] == f"{names[0]}: loss and val_loss are nan."
    assert said({"loss": nan}, {"loss": nan})[0] == f"2 trials log nan: {names[0]}, {names[1]}."


def test_the_sentence_begins_with_who_failed_while_others_train() -> None:
    """By name, with where to look; not of what failed before those that train now came."""
    latest = list(three_models().run(30))[-1]
    names, failed_s = [one.name for one in latest.consumers], latest.time_s

    def said(*ended: tuple[str, str], attached_s: float = 0.0) -> tuple[str, str]:
        view = told(three_models(), 20)
        ends = tuple(EndReading(name, how, failed_s, 0, error="ValueError: no") for name, how in ended)
        gone = {name for name, _ in ended}
        here = [replace(one, attached_s=attached_s) for one in latest.consumers if one.name not in gone]
        view.feed(replace(latest, consumers=tuple(here), ends=ends, time_s=latest.time_s + 5))
        view.settle()
        assert " ".join(drawn(view).split()).count(view.say.lead) == 1
        return view.say.lead, view.say.text

    lead, text = said((names[0], "failed"))
    assert (
        lead == f"{names[0]} failed: see its log."
        and text.startswith(f"{lead} ")
        and "." in text[len(lead) :]
    )
    assert said((names[0], "crashed"))[0] == f"{names[0]} crashed: see its log."
    both = said((names[0], "crashed"), (names[1], "failed"))[0]
    assert both == f"{names[0]} and {names[1]} failed: see their logs."
    assert "failed" not in said((names[0], "done"))[1]
    assert said((names[0], "failed"), attached_s=6.0)[0] == lead
    assert "failed" not in said((names[0], "failed"), attached_s=4.0)[1], (
        "it is no news of those that train now"
    )


def test_what_a_trial_waits_for_stands_below() -> None:
    """Of one that is not attached yet, with its state in its row; of a rank, which others."""
    view, imagined = told(three_models(), 30), three_models()
    latest = list(imagined.run(31))[-1]
    first, *rest = latest.consumers
    rank = replace(first, state="awaits ranks", awaits="ranks 2 and 3 of 4")
    view.feed(replace(latest, consumers=(rank, *rest), pending={"big": "queued: it starts when 'a' is done"}))
    text = drawn(view)
    assert "queued" in row(text, "big") and "\nbig queued: it starts when 'a' is done" in text
    assert f"\n{first.name} waits for ranks 2 and 3 of 4" in text


def test_a_trial_that_was_paused_before_this_screen_was_opened_says_for_how_long() -> None:
    """`tsnb top --once` has one reading: it said that each had just been paused."""
    view = StreamView()
    view.feed(stream(consumer("cnn", state="paused", pause_s=185.0), consumer("mlp")))
    assert "paused 3:05" in row(drawn(view), "cnn")


def test_samples_that_a_trial_takes_have_a_column_where_one_does_not_take_all() -> None:
    """And the cache stands at the bottom."""
    view, cache = StreamView(), CacheReading("serving", "", 50, 40, 3 << 20, 4 << 20, 0, 300, 100, 1.5)
    for reading in three_models().run(40):
        first, *others = reading.consumers or (None,)
        one = () if first is None else (replace(first, part="held out of fold 1 of 5"),)
        view.feed(replace(reading, consumers=(*one, *others), cache=cache))
    text = drawn(view, 200)
    assert "held out of fold 1 of 5" in row(text, "cnn-small")
    assert " all " in row(text, "resnet10")
    assert "cache serving, 40 of 50 samples in 3.0 MiB of 4.0 MiB, 75 % of samples served from it" in text
    assert "samples   " not in drawn(told(three_models(), 40)).replace("samples/s", "")


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """And the name and state of each trial are always there; no number is parted from its unit."""
    text = drawn(told(three_models(), 40, HOST), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert not [line for line in text.splitlines() if width >= 40 and line.startswith("▌ %")]
    if width >= 60:
        assert "held back" in row(text, "cnn-small") or "waiting" in row(text, "cnn-small")
        assert "█" in row(text, "cnn-small"), "where its time goes outlives the other columns"


@pytest.mark.parametrize("window", [8, 64, 20_000])
def test_no_cell_is_cut_and_the_least_telling_columns_give_way(window: int) -> None:
    """First goes what the machine is used for, then the buffer, which repeats the lag; a logged number stays."""
    view = StreamView()
    for reading in three_models().run(40):
        ahead = tuple(replace(each, fill=window, lag=window) for each in reading.consumers)
        view.feed(replace(reading, host=HOST, window=window, window_fill=window, consumers=ahead))
    order = ("alone", "per batch", "memory", "CPU", "buffer", "accuracy", "epoch", "lag", "loss")
    shown = len(order)
    for width in range(220, 59, -5):
        head, *rows = [line for line in drawn(view, width).splitlines() if line.startswith(("trial", "■"))]
        assert len(rows) == 4
        assert not [line for line in (head, *rows) if "…" in line], width
        there = [title in [part.strip() for part in head.split("  ")] for title in order]
        assert there == sorted(there), "what is left is the rest of that order"
        assert sum(there) <= shown, "no column comes back on a narrower terminal"
        shown = sum(there)
    assert shown < 5


@pytest.mark.slow
def test_columns_do_not_move_while_numbers_change() -> None:
    """The table's head is the same from tick to tick, once every trial and number is known."""
    view, heads = StreamView(), set()
    for k, reading in enumerate(three_models().run(60)):
        view.feed(replace(reading, host=HOST))
        if k > 100:
            heads.add(next(line for line in drawn(view).splitlines() if line.startswith("trial")))
    assert len(heads) == 1


def test_a_stream_without_trials_says_what_to_do() -> None:
    """No empty table."""
    view = StreamView()
    view.feed(stream(state="idle"))
    text = drawn(view)
    assert "● mnist  idle" in text
    assert "No trial is attached" in text
    assert "tsnb.attach(" in text


def test_a_loader_without_length_shows_batches() -> None:
    """No share of an unknown whole."""
    view = StreamView()
    view.feed(stream(consumer("a"), epoch_batches=None, published=1234))
    text = drawn(view)
    assert "pass 1  1,234 batches" in text
    assert "%" not in text.splitlines()[0]


def test_a_stream_that_ended_keeps_its_rows_without_numbers() -> None:
    """What was last known stays; what is no longer true goes."""
    view = told(three_models(), 40, HOST)
    view.note("gone", "The stream mnist has ended. Its history stays here.")
    text = drawn(view)
    assert "● mnist  ended" in text
    assert "has ended" in text
    assert "ended" in row(text, "cnn-small") and "\u2013" in row(text, "cnn-small")
    assert "CPU" not in text


def test_a_failed_loader_is_shown_with_its_error() -> None:
    """Not as a wait."""
    view = StreamView()
    view.feed(stream(consumer("a"), state="failed", failure="ValueError: boom [red]x[/red]"))
    text = drawn(view)
    assert "● mnist  failed" in text
    assert "The loader failed: ValueError: boom [red]x[/red]" in text, "nothing in it is markup"


def test_trials_that_left_stay_below_the_rest_up_to_a_bound() -> None:
    """A sweep of fifty trials does not fill the terminal; those who are here are all there."""
    many = Stream([Trial(f"t{k}", 0.05, joins_s=k * 1.0, leaves_s=k * 1.0 + 1.5) for k in range(30)])
    many.trials.append(Trial("stays", 0.05))
    view = told(many, 32)
    text = drawn(view)
    assert len([line for line in text.splitlines() if line.startswith("■")]) == 12
    assert "left" not in row(text, "stays")
    assert "left" in row(text, "t28")
    assert "and 19 more that left before; tsnb top --once lists all" in text
    whole = drawn(view, most=ALL)
    assert len([line for line in whole.splitlines() if line.startswith("■")]) == 31 and "more" not in whole


def test_a_trial_that_has_left_has_its_mean_speed_and_shares_while_others_train() -> None:
    """And once the stream has ended those that were there to its end have theirs."""
    view = told(Stream([Trial("left", 0.05, leaves_s=20), Trial("stays", 0.1)]), 30)
    line = row(drawn(view), "left")
    assert f" {count(view.rows['left'].whole.pace.samples_per_s)} " in line and "█" in line
    view.note("gone", "The stream mnist has ended.")
    line = row(drawn(view), "stays")
    assert f" {count(view.rows['stays'].whole.pace.samples_per_s)} " in line and "█" in line


def test_the_sentence_can_be_read_before_it_changes() -> None:
    """New numbers wait; an end does not; `settle` says the last word."""
    view, said = StreamView(), []
    for reading in three_models().run(60):
        view.feed(reading)
        said.append(view.say.text)
    changes = [k for k in range(1, len(said)) if said[k] != said[k - 1] and k > 20]
    assert min(b - a for a, b in pairwise(changes)) >= 6, "1.5 s are six ticks"
    view.feed(replace(_last(view), state="failed", failure="boom", time_s=_last(view).time_s + 0.25))
    assert view.say.text == "The loader failed: boom"


def _last(view: StreamView) -> StreamReading:
    assert view.latest is not None
    return view.latest


def test_a_name_that_is_long_or_looks_like_markup_does_no_harm() -> None:
    """Names are the user's."""
    view = StreamView()
    view.feed(stream(consumer("resnet18-wide-with-a-very-long-name-indeed"), consumer("[bold]x")))
    text = drawn(view, 100)
    assert "…" in text
    assert "[bold]x" in text


@pytest.mark.parametrize("width", [80, 100, 150])
def test_names_that_begin_alike_can_be_told_apart(width: int) -> None:
    """Twelve rows said "momentum-against-clas…"."""
    arms = [f"momentum-against-classify-{k}-{arm}" for k in range(1, 7) for arm in ("incumbent", "candidate")]
    view = StreamView()
    view.feed(stream(*map(consumer, arms)))
    names = [line.split()[1] for line in drawn(view, width).splitlines() if line.startswith("■")]
    assert len(set(names)) == 12 and "…1-incumbent" in names, names


def test_the_number_that_decides_has_a_column_beside_a_second_loss() -> None:
    """The headline named an accuracy that the table did not have."""
    view = StreamView()
    logged = {"train_loss": 0.5, "val_loss": 0.6, "val_accuracy": 0.9}
    view.feed(stream(consumer("cnn", metrics=logged), consumer("mlp", metrics=logged)))
    head = next(line for line in drawn(view).splitlines() if line.startswith("trial"))
    assert "train_loss" in head and "val_accuracy" in head and "val_loss" not in head


def test_a_lag_beyond_the_window_is_explained_in_top_and_in_status() -> None:
    """It said 4,093 beside "window 8 of 8": what a trial misses while it stops is kept for it."""
    near, far = StreamView(), StreamView()
    near.feed(stream(consumer("cnn", lag=8), consumer("mlp")))
    far.feed(stream(consumer("cnn", lag=4093), consumer("mlp")))
    said = "cnn is 4,093 batches behind the front, more than the window of 8."
    assert said in drawn(far, 200) and said in as_text(far, "s")
    assert "behind the front" not in drawn(near, 200) + as_text(near, "s")


def test_heads_of_status_stand_apart_and_shares_sum_up() -> None:
    """It had "held per batch" in one, 8468 beside 2,123, and shares whose rest, between epochs, had no column."""
    view = StreamView()
    for k in range(40):
        own = {"computing_s": 0.41 * k, "waiting_s": 0.06 * k, "held_s": 0.28 * k, "joining_s": 0.04 * k}
        view.feed(
            stream(
                consumer("cnn", batches=k, attached_s=float(k), samples=8468 * k, **own), time_s=1000.0 + k
            )
        )
    lines = as_text(view, "s").splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("trial "))
    heads, cells = (re.split(r"\s{2,}", line.strip()) for line in lines[at : at + 2])
    assert {"held", "joining", "between", "per batch"} < set(heads) and len(heads) == len(cells), lines[
        at : at + 2
    ]
    row = dict(zip(heads, cells, strict=True))
    assert row["samples/s"] == "8,468"
    parts = ("computing", "waiting", "held", "joining", "between")
    assert [row[part] for part in parts] == ["41 %", "6 %", "28 %", "4 %", "21 %"]
