"""The panel in a bare page: every state, both themes, narrow and wide. Screenshots go to artifacts/."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.chromium import ARTIFACTS
from tests.browser.host import Host
from tests.panel.streams import START_S, Stream, Trial, rebalance, rebalanced, three_models
from tsnb.panel.tape import Message, Tape
from tsnb.planners.timeline import PlannedTrial, Timeline
from tsnb.show.words import flow
from tsnb.telemetry.readings import CacheReading, EndReading, StreamReading
from tsnb.text.numbers import clock, count, percent

pytestmark = [pytest.mark.browser, pytest.mark.slow]

OVERFLOW = """() => {
  const panel = document.querySelector('.tsnb-panel');
  return [document.documentElement.scrollWidth - innerWidth, panel.scrollWidth - panel.clientWidth];
}"""

CUT = """() => {
  const seen = (node) => node.getClientRects().length && getComputedStyle(node).visibility !== 'hidden'
    && node.clientWidth > 1 && node.innerText.trim();
  const cut = [...document.querySelectorAll('.tsnb-panel :is(button, td, th, .tsnb-below, .tsnb-value)')]
    .filter(node => seen(node) && node.scrollWidth > node.clientWidth + 1)
    .map(node => node.innerText);
  const wide = [...document.querySelectorAll('.tsnb-plot canvas')]
    .filter(one => one.clientWidth > one.parentElement.clientWidth);
  return [...cut, ...wide.map(() => 'a chart over its neighbour')];
}"""

CONTRAST = """() => {
  const numbers = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const c = numbers(getComputedStyle(node).backgroundColor);
      if (c.length === 3 || c[3] > 0.5) return c.slice(0, 3);
    }
  };
  const texts = [...document.querySelectorAll('.tsnb-panel *')].filter(e => e.getClientRects().length
    && !e.closest('[aria-disabled=true]')
    && !e.closest('.tsnb-canvas, .tsnb-unseen') && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
  return texts.map(e => {
    const [a, b] = [light(numbers(getComputedStyle(e).color).slice(0, 3)), light(ground(e))].sort((x, y) => y - x);
    return [e.className + ' ' + e.textContent, (a + 0.05) / (b + 0.05)];
  }).filter(([, ratio]) => !(ratio >= 4.5));
}"""


def running(stream: Stream, host: Host, seconds: float = 60) -> None:
    host.open(stream.run(seconds))
    for reading in stream.run(2):
        host.feed(reading)
    host.settle()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 600, 950, 1400])
def test_it_shows_a_stream_in_any_theme_and_width(browser: Browser, theme: str, width: int) -> None:
    """History and live ticks are drawn without an error; nothing sticks out and no text is cut."""
    host = Host(browser, width, theme)
    stream = three_models()
    for trial, name in zip(stream.trials, ("mlp", "small-cnn", "wide-cnn", "vit"), strict=True):
        trial.name = name
    running(stream, host)
    facts = host.facts()
    host.shot(ARTIFACTS / f"panel-{theme}-{width}.png")
    assert not host.errors
    assert facts["theme"] == theme
    assert (facts["ticks"], facts["history"], facts["consumers"]) == ("248", "248", "4")
    assert host.page.evaluate(OVERFLOW) == [0, 0]
    assert host.page.evaluate(CUT) == []
    assert host.page.locator(".tsnb-chart canvas").count() == 4


def planned(readings: Iterable[StreamReading], epochs: int) -> Iterator[StreamReading]:
    """Yield readings of trials whose loops say how many epochs they take."""
    for reading in readings:
        yield replace(reading, consumers=tuple(replace(one, planned=epochs) for one in reading.consumers))


def told(pair: Locator) -> str:
    """Return what the header says of all trials, as far as it has room for that."""
    parts = [pair.locator(".tsnb-soft"), *pair.locator(".tsnb-value:visible").all()]
    return " ".join(part.inner_text() for part in parts).replace(" , at ", ", at ").strip()


GAP = """() => {
  const bottom = (what) => document.querySelector(what).getBoundingClientRect().bottom;
  return bottom('.tsnb-rows') - bottom('.tsnb-key');
}"""

STICKS_OUT = """() => [...document.querySelectorAll('.tsnb-trials .tsnb-n :is(span, .tsnb-below)')]
  .filter(node => node.getClientRects().length && getComputedStyle(node).visibility !== 'hidden'
    && node.getBoundingClientRect().left < node.closest('td, th').getBoundingClientRect().left)
  .map(node => node.innerText)"""

PLACES = """() => {
  const box = (node) => node.getBoundingClientRect(), middle = (node) => (box(node).left + box(node).right) / 2;
  const all = (selector) => [...document.querySelectorAll('.tsnb-trials tbody ' + selector)];
  return [
    all('.tsnb-metric > span').filter(one => box(one).right > box(one.parentElement).right + 0.5).length,
    all('.tsnb-act .tsnb-icon').filter(one => Math.abs(middle(one) - middle(one.parentElement)) > 0.6).length,
  ];
}"""

AT = re.compile(r", at ([A-Z][a-z]{2} )?\d\d:\d\d")
"""The time of day that the header has beside what is left."""

ALL_LEFT = re.compile(rf"^all done in \d+:\d\d{AT.pattern} \(\d+:\d\d to \d+:\d\d\)$")


@pytest.mark.parametrize(
    ("width", "theme"), [(1200, "light"), (1090, "dark"), (1000, "dark"), (620, "light"), (360, "dark")]
)
def test_the_header_says_when_all_trials_are_done(browser: Browser, width: int, theme: str) -> None:
    """As the line below the rows does, with the time of day; a wide header keeps room until it is known."""
    host = Host(browser, width, theme)
    host.open()
    stream = three_models()
    header, below = host.page.locator(".tsnb-header .tsnb-all"), host.page.locator(".tsnb-all-left")
    host.feed(stream.reading())
    host.settle()
    assert header.is_hidden() and below.is_hidden()
    height = "() => document.querySelector('.tsnb-header').offsetHeight"
    before = host.page.evaluate(height)
    for reading in planned(stream.run(60), 40):
        host.feed(reading)
    host.settle()
    host.shot(ARTIFACTS / f"panel-header-{theme}-{width}.png")
    assert ALL_LEFT.match(below.inner_text()), below.inner_text()
    # the two are drawn one after the other, and the minute may turn between them
    whole, seen = (AT.sub(", at this hour", text) for text in (below.inner_text(), told(header)))
    assert seen == (whole.partition(" (")[0] if width >= 700 else whole)
    number, share = (
        host.page.locator(".tsnb-header .tsnb-epoch .tsnb-value").nth(at).bounding_box() for at in (0, 1)
    )
    assert number and share and share["x"] - number["x"] - number["width"] > 4, "two numbers, not one"
    title = AT.sub(", at this hour", header.get_attribute("title") or "")
    assert header.is_visible() and f"The trials: {whole}" in title
    assert width <= 930 or host.page.evaluate(height) == before
    if width >= 1090:
        host.page.evaluate("() => document.querySelector('.tsnb-actions [hidden]').removeAttribute('hidden')")
        assert host.page.evaluate(height) < 40, "one line, with every button that a notebook's panel has"
    assert host.page.evaluate(OVERFLOW) == [0, 0]
    assert host.page.evaluate(CUT) == []
    assert host.page.evaluate(CONTRAST) == []
    message = host.tape.note("gone", "The stream mnist has ended.", "mnist")
    assert message
    host.hear(message)
    host.settle()
    assert header.is_hidden()
    assert not host.errors


EPOCHS = """() => [...document.querySelectorAll('.tsnb-trials tbody')].map(row => {
  const cell = row.querySelector('td.tsnb-c-epoch');
  const bar = cell.querySelector('.tsnb-progress');
  return [cell.querySelector('span').textContent, cell.querySelector('.tsnb-below').textContent,
    bar.clientWidth ? Math.round(parseFloat(bar.firstChild.style.width)) : null];
})"""


@pytest.mark.parametrize("width", [1200, 1000])
def test_a_row_says_how_many_epochs_of_how_many_and_what_is_left(browser: Browser, width: int) -> None:
    """As a number, a bar and a time, the same as `trial.eta` and the drawer; a clone's with those before it came."""
    host = Host(browser, width)
    host.open(three_models().run(30))
    rows = host.page.evaluate(EPOCHS)
    assert all(
        re.fullmatch(r"\d\.\d\d", epoch) and left.startswith("ends in ") and bar is None
        for epoch, left, bar in rows
    ), rows
    host = Host(browser, width)
    for reading in planned(three_models().run(60), 40):
        first, *others = reading.consumers
        clone = replace(first, epochs_before=2, batches_before=2 * (reading.epoch_batches or 0))
        host.tape.feed(replace(reading, consumers=(clone, *others)))
    host.open()
    view, rows = host.tape.view, host.page.evaluate(EPOCHS)
    for (epoch, left, bar), row in zip(rows, view.rows.values(), strict=True):
        of = 42 if row.name == "cnn-small" else 40
        assert epoch == f"{row.epochs:.2f} of {of}"
        assert bar == round(100 * row.epochs / of)
        assert left == f"{clock(row.eta.left_s)} left"
    host.page.get_by_role("button", name="cnn-small", exact=True).click()
    host.settle()
    assert f"{rows[0][0]}, {rows[0][1]}" in host.page.inner_text(".tsnb-drawer .tsnb-pairs >> nth=1")
    assert not host.errors


def test_trials_of_a_sweep_are_counted_by_what_they_do(browser: Browser) -> None:
    """Where there are too many for all rows to be in sight."""
    host = Host(browser, 1000)
    readings = list(Stream([Trial(f"t-{k}", 0.02) for k in range(12)]).run(6))
    host.open(readings)
    counts = host.page.locator(".tsnb-counts")
    expect(counts).to_have_text("12 running")
    last = readings[-1]
    ends = tuple(EndReading(f"t-{k}", "pruned", last.time_s + 1) for k in range(7))
    host.feed(replace(last, time_s=last.time_s + 1, consumers=last.consumers[7:], ends=ends))
    expect(counts).to_have_text("5 running, 7 pruned")
    few = Host(browser, 1000)
    few.open(three_models().run(6))
    expect(few.page.locator(".tsnb-counts")).to_be_hidden()
    assert not host.errors and not few.errors


def test_a_narrow_row_says_the_numbers_of_now(browser: Browser) -> None:
    """Samples/s and epoch of the line below it are in each moment those of a wide row's columns, as the strip says."""
    host = Host(browser, 620)
    host.open()
    stream = three_models()
    for _ in range(6):
        host.hear_all([host.tape.feed(reading) for reading in stream.run(5)])
        host.settle()
        rows = host.page.evaluate(
            """() => [...document.querySelectorAll('.tsnb-trials tbody')].map(row => [
                 row.querySelector('td.tsnb-c-rate').textContent, row.querySelector('td.tsnb-c-epoch span').textContent,
                 row.querySelector('.tsnb-detail').textContent])"""
        )
        assert rows
        for rate, epoch, line in rows:
            assert f"{rate} samples/s   epoch {epoch} " in f"{line} "
    assert not host.errors


@pytest.mark.parametrize("number", [2, 5])
def test_the_header_of_several_streams_tells_of_the_trials_of_all(browser: Browser, number: int) -> None:
    """Once, in the first line that is shown, in the words of the line below the rows."""
    host = Host(browser, 1000)
    tapes = [Tape(f"s{k}") for k in range(number)]
    for k, tape in enumerate(tapes):
        stream = three_models(k)
        stream.name = tape.name
        for reading in planned(stream.run(30), 20 + 10 * k):
            tape.feed(reading)
    host.open_several(tapes)
    shown = [told(one) for one in host.page.locator(".tsnb-all:visible").all()]
    whole = host.page.locator(".tsnb-all-left").inner_text()
    assert shown == [whole.partition(" (")[0]] and ALL_LEFT.match(whole)
    assert not host.errors


def test_nothing_moves_when_the_first_trial_joins_and_when_numbers_grow(browser: Browser) -> None:
    """Below one trial is no gap; another moves the charts below by its row and by nothing else, wide and narrow."""
    for width in (600, 1000):
        host = Host(browser, width)
        host.open()
        stream, places = three_models(), dict[str, list[float]]()
        stream.trials = stream.trials[:3]
        for trial, joins_s in zip(stream.trials, (1.0, 4.0, 8.0), strict=True):
            trial.joins_s = joins_s
        now = """() => {
          const top = (what) => document.querySelector(what).getBoundingClientRect().top;
          return [document.querySelector('.tsnb-panel').dataset.consumers, top('.tsnb-charts') - top('.tsnb-rows')];
        }"""
        for k, reading in enumerate(stream.run(12)):
            host.feed(reading)
            if k % 4 == 0:
                host.page.evaluate("() => new Promise(requestAnimationFrame)")
                consumers, top = host.page.evaluate(now)
                places.setdefault(consumers, []).append(top)
                if consumers == "1":
                    assert host.page.evaluate(GAP) < 4
        assert list(places) == ["0", "1", "2", "3"]
        assert all(max(tops) - min(tops) < 1 for tops in places.values()), places
        none, one, two, three = (tops[0] for tops in places.values())
        row = host.page.locator("tbody").first.evaluate("one => one.offsetHeight")
        assert (one - none, two - one, three - two) == pytest.approx((0, row, row), abs=1)


def test_charts_stand_still_once_every_trial_has_ended(browser: Browser) -> None:
    """The stream is still served: what was drawn stays, and does not scroll away while nobody is attached."""
    host = Host(browser, 1000)
    stream = three_models()
    running(stream, host)
    last = host.tape.latest
    assert last is not None
    for second in range(1, 41):
        host.feed(replace(last, time_s=last.time_s + second, consumers=()))
    host.settle()
    assert host.facts()["consumers"] == "0"
    charts = host.page.locator(".tsnb-canvas").all()
    assert len(charts) == 4
    for chart in charts:
        chart.focus()
        host.page.keyboard.press("End")
        when, _, values = (chart.get_attribute("aria-label") or "").partition("; ")[2].partition(": ")
        assert when == "end"
        assert all(name in values for name in ("cnn-small", "resnet10", "resnet18-wide")), values
    host.shot(ARTIFACTS / "panel-idle.png")
    assert not host.errors


def test_a_recording_keeps_no_room_for_trials_that_will_never_join(browser: Browser) -> None:
    """Below the rows stands no gap, live and saved."""
    live = Host(browser, 1000)
    running(three_models(), live, 6)
    assert live.page.evaluate(GAP) < 4
    message = live.tape.note("gone", "The stream mnist has ended.", "mnist")
    assert message
    live.hear(message)
    saved = Host(browser, 1000)
    saved.show(*live.saved())
    assert saved.facts()["state"] == "recording"
    assert saved.page.evaluate(GAP) < 4


def test_the_states_between_are_designed(browser: Browser) -> None:
    """Nobody serves it, ended, failed: each says so in words, and buttons that cannot work are off."""
    host = Host(browser, 1000)
    host.open()
    message = host.tape.note("absent", "No stream named mnist is served yet: start one.", "mnist")
    assert message
    host.hear(message)
    host.settle()
    assert host.facts()["state"] == "absent"
    assert "not served" in host.page.inner_text(".tsnb-title")
    assert host.page.locator(".tsnb-stop-stream").is_disabled()

    stream = three_models()
    for last in stream.run(12):
        host.feed(last)
    host.feed(replace(last, time_s=last.time_s + 1, state="failed", failure="ValueError: broken image"))
    host.settle()
    assert "broken image" in host.page.inner_text(".tsnb-say")
    assert "broken image" in host.page.inner_text("[role=status]")
    host.shot(ARTIFACTS / "panel-failed.png")

    message = host.tape.note("gone", "The stream mnist has ended.", "mnist")
    assert message
    host.hear(message)
    host.settle()
    assert host.page.locator(".tsnb-stop:not([aria-disabled=true])").count() == 0
    assert host.page.inner_text("tbody >> nth=0").count("ended") == 1
    host.shot(ARTIFACTS / "panel-ended.png")
    assert not host.errors


def test_updates_that_stop_turn_the_buttons_off(browser: Browser) -> None:
    """Five seconds without a tick: the panel says so instead of showing old numbers as if they were new."""
    host = Host(browser, 1000)
    host.page.clock.install()
    stream = three_models()
    host.open(stream.run(10))
    host.feed(list(stream.run(0.5))[-1])
    host.page.clock.run_for(500)
    assert host.page.locator(".tsnb-stop:not([aria-disabled=true])").count() == 3
    host.page.clock.run_for(8000)
    assert host.facts()["state"] == "stale"
    assert host.page.locator(".tsnb-stop:not([aria-disabled=true])").count() == 0
    assert "No data for" in host.page.inner_text(".tsnb-say")


def test_a_recording_is_all_shown_and_promises_nothing(browser: Browser) -> None:
    """Its day stands beside the name, all of it is drawn, times end at "end", and no button is on."""
    host = Host(browser, 1000)
    host.tape.recorded = True
    host.open(rebalanced().run(30))
    facts = host.facts()
    assert (facts["state"], facts["history"]) == ("recording", "120")
    said = host.page.inner_text(".tsnb-say")
    assert said.count("(in its last seconds)") == 2, "to read and to hear: its rows tell of all its time"
    assert re.search(r"recording of 21 Sep\w* 2026", host.page.inner_text(".tsnb-title"))
    assert host.page.locator(
        "button:not([aria-disabled=true], .tsnb-cell, .tsnb-eye):visible"
    ).all_inner_texts() == [
        "loss, accuracy",
        *("batch", "epoch", "time"),
        *("linear", "log"),
        *(
            "trial",
            "state",
            "place in the stream",
            "samples/s",
            "where its time went",
            "epoch",
            "loss",
            "accuracy",
        ),
        *("cnn-small", "resnet10", "resnet18-wide", "…wide-sgd"),
        *("2 min", "10 min", "all"),
        "details",
    ]
    assert "where its time went" in host.page.inner_text("thead >> nth=0")
    assert host.page.inner_text(".tsnb-times >> nth=0").split("\n")[-1] == "end"
    host.page.evaluate("() => new Promise(done => setTimeout(done, 1200))")
    assert host.facts()["state"] == "recording", "it does not go stale"
    assert not host.errors


def test_what_was_saved_opens_as_a_recording(browser: Browser) -> None:
    """The model of a page that watched a live stream, saved and opened again without a kernel."""
    host = Host(browser, 1000)
    running(rebalanced(), host, 20)
    message = host.tape.note("gone", "The stream mnist has ended.", "mnist")
    assert message
    host.hear(message)
    scene, *numbers = host.saved()
    assert scene["saved"]
    again = Host(browser, 1000)
    again.show(scene, *numbers)
    facts = again.facts()
    assert (facts["state"], facts["stream"], facts["history"]) == ("recording", "mnist", "88")
    assert again.page.locator(".tsnb-act:not([aria-disabled=true]):visible").count() == 0
    assert again.page.locator("tbody >> nth=0").inner_text().startswith("cnn-small")
    assert "The stream mnist has ended." in again.page.inner_text(".tsnb-say")


def test_a_trial_that_has_ended_has_its_mean_speed_and_shares_while_others_train(browser: Browser) -> None:
    """They came only with the end of the stream."""
    host = Host(browser, 1000)
    host.open(Stream([Trial("short", 0.05, leaves_s=12), Trial("long", 0.1)]).run(20))
    whole = host.tape.view.rows["short"].whole.pace
    rates = host.page.locator(".tsnb-trials tbody .tsnb-c-rate").all_inner_texts()
    assert rates[0] == count(whole.samples_per_s) != "\u2013"
    bars = host.page.locator(".tsnb-trials .tsnb-bar").evaluate_all("all => all.map((bar) => bar.title)")
    assert f"computing {percent(whole.computing)}," in bars[0] and "of the time attached" in bars[0]
    assert "of the last seconds" in bars[1]


def test_a_page_that_was_saved_while_trials_ran_has_the_figures_of_the_live_one(browser: Browser) -> None:
    """Shares and samples/s over the last seconds: those over all its time had been estimated from the frames."""
    host, again = Host(browser, 1000), Host(browser, 1000)
    host.open(three_models().run(20))
    again.show(*host.saved())
    assert again.facts()["state"] == "recording"
    for what in (".tsnb-c-rate", ".tsnb-c-time .tsnb-below"):
        live, saved = (
            one.page.locator(f".tsnb-trials tbody {what}").all_inner_texts() for one in (host, again)
        )
        assert live == saved and any(live)
    labels = "all => all.map((bar) => bar.title)"
    live, saved = (one.page.locator(".tsnb-trials .tsnb-bar").evaluate_all(labels) for one in (host, again))
    assert live == saved and "of the last seconds" in live[0]


def test_details_are_there_on_demand_and_move_nothing_above(browser: Browser) -> None:
    """Closed at first; opened: CPU and GPU over time, and who uses the machine, with units."""
    host = Host(browser, 1000)
    host.open(rebalance(rebalanced(gpus=1)))
    where = "() => ['.tsnb-charts', '.tsnb-footer'].map(s => document.querySelector(s).offsetTop)"
    before = host.page.evaluate(where)
    assert host.page.locator(".tsnb-details").is_hidden()
    toggle = host.page.get_by_role("button", name="details")
    toggle.focus()
    host.page.keyboard.press("Enter")
    host.settle()
    assert host.page.evaluate(where) == before
    assert toggle.get_attribute("aria-expanded") == "true"
    titles = host.page.locator(".tsnb-more figcaption").all_inner_texts()
    assert titles == [
        "CPU cores busy, by process",
        "GPU share of time busy",
    ]
    paces = host.page.locator(".tsnb-paces tbody tr").all_inner_texts()
    assert [row.split("\t")[0].strip() for row in paces[:2]] == ["cnn-small", "resnet10"]
    rows = host.page.locator(".tsnb-machine:not(.tsnb-paces) tbody tr").all_inner_texts()
    assert [row.split("\t")[0].strip() for row in rows[:2]] == ["loader and its workers", "cnn-small"]
    assert len(rows) == 7
    assert "GPU 0 NVIDIA A100" in rows[-1]
    assert "of 80 GiB" in rows[-1]
    footer = host.page.inner_text(".tsnb-footer")
    assert re.search(r"CPU\s*[\d.]+ of 4 cores \(loader 0\.\d\d, trials \d\.\d\d\)", footer)
    assert "3.1 of 16 GiB" in footer
    assert host.page.evaluate(OVERFLOW) == [0, 0]
    assert not host.errors


SWATCH_ALONE = """() => [...document.querySelectorAll('.tsnb-machine tbody .tsnb-p-name')]
  .filter(cell => cell.children[0].offsetTop + 20 < cell.children[1].offsetTop + cell.children[1].offsetHeight / 2
    && cell.children[1].offsetTop > cell.children[0].offsetTop + 10)
  .map(cell => cell.innerText)"""


FAMILY = ("mlp", "resnet18-wide-sgd", "resnet18-wide-adam", "vit")
SWEEP = tuple(f"train-width{width}-epochs{epochs}" for width in (32, 512) for epochs in (6, 12))


@pytest.mark.parametrize("width", [360, 420, 620, 1000, 1100])
@pytest.mark.parametrize("names", [FAMILY, SWEEP], ids=["family", "sweep"])
def test_names_and_numbers_are_whole_with_the_details_open(
    browser: Browser, width: int, names: tuple[str, ...]
) -> None:
    """Names of a family, one of them as long as its column's letters; times, memory and swatches in the tables."""
    host = Host(browser, width)
    stream = rebalanced(gpus=1)
    for trial, name in zip(stream.trials, names, strict=True):
        trial.name = name
    host.open(rebalance(stream))
    host.page.get_by_role("button", name="details").click()
    host.settle()
    host.shot(ARTIFACTS / f"panel-whole-{width}-{len(names[0])}.png")
    assert host.page.evaluate(CUT) == []
    assert host.page.evaluate(SWATCH_ALONE) == []
    assert host.page.evaluate(OVERFLOW) == [0, 0]
    assert not host.errors


@pytest.mark.parametrize("width", [360, 420, 1000])
def test_a_plan_is_in_sight_as_planned_as_it_was_and_what_is_still_to_come(
    browser: Browser, width: int
) -> None:
    """Bars and ends, followed while it runs, and away when there is no plan."""
    host = Host(browser, width)
    host.open(rebalance(rebalanced()))
    gantt, toggle = host.page.locator(".tsnb-gantt"), host.page.get_by_role("button", name="plan")
    assert gantt.is_hidden() and toggle.is_hidden(), "nothing was planned"
    trials = (
        PlannedTrial("cnn-small", (0.0, 60.0), (0.0, 72.0)),
        PlannedTrial("resnet10", (0.0, 120.0), (6.0, 90.0), (90.0, 144.0)),
        PlannedTrial("<b>waits</b>", (60.0, 180.0), None, (72.0, 240.0)),
    )
    known = {"op": "params", "trials": {}, "verdicts": {}, "changes": {}, "sweeps": {}}
    host.hear(Message({**known, "plan": Timeline("sweep 's'", trials).to_dict()}))
    gantt.wait_for()
    rows = [row.split("\t") for row in gantt.locator("tbody tr").all_inner_texts()]
    assert [row[0].strip() for row in rows] == ["cnn-small", "resnet10", "<b>waits</b>"]
    assert [row[-1].strip() for row in rows] == ["1:12 actual", "2:24 predicted", "4:00 predicted"]
    assert gantt.locator("caption").inner_text().startswith("sweep 's'")
    titles = "all => all.map(one => [one.title, one.style.left, one.style.width])"
    assert gantt.locator("tbody tr >> nth=1").locator(
        "i:not([hidden]).tsnb-g-planned, i.tsnb-g-ahead"
    ).evaluate_all(titles) == [
        ["resnet10: planned 0:00 to 2:00", "0%", "50%"],
        ["resnet10: predicted 1:30 to 2:24", "37.5%", "22.5%"],
    ]
    assert gantt.locator("tbody tr >> nth=2").locator(".tsnb-g-actual").is_hidden(), "it has not started"
    assert host.page.evaluate(OVERFLOW) == [0, 0]
    within = CUT.replace(".tsnb-panel :is(", ".tsnb-gantt :is(")
    assert host.page.evaluate(within) == [], "the legend and all words of the table are whole"
    host.shot(ARTIFACTS / f"panel-plan-{width}.png")
    toggle.click()
    gantt.wait_for(state="hidden")
    assert host.chosen()["plan"] is False, "a page that is loaded again leaves it closed"
    toggle.press("Enter")
    gantt.wait_for()
    over = (replace(trials[1], actual=(6.0, 150.0), ahead=None),)
    host.hear(Message({**known, "plan": Timeline("sweep 's'", over).to_dict()}))
    gantt.get_by_text("2:30 actual").wait_for()
    assert gantt.locator("tbody tr").count() == 1
    host.hear(Message({**known, "plan": None}))
    gantt.wait_for(state="hidden")
    assert not host.errors


@pytest.mark.parametrize("width", [420, 1000])
def test_samples_that_a_trial_takes_stand_below_its_name_and_the_cache_at_the_bottom(
    browser: Browser, width: int
) -> None:
    """Of one with a part; nothing is said of the others, nor of a cache where there is none."""
    host, readings = Host(browser, width), list(three_models().run(20))
    host.open(readings[:-1])
    assert host.page.locator(".tsnb-c-name .tsnb-below:visible").count() == 0
    assert not host.page.locator(".tsnb-footer").get_by_text("cache").is_visible()
    first, *others = readings[-1].consumers
    cache = CacheReading("serving", "", 50, 40, 3 << 20, 4 << 20, 0, 300, 100, 1.5)
    parts = (replace(first, part="fold 1 of 5"), *others)
    host.feed(replace(readings[-1], consumers=parts, cache=cache))
    expect(host.page.locator(".tsnb-c-name .tsnb-below:visible")).to_have_text(
        ["fold 1 of 5"], timeout=30_000
    )
    assert "40 of 50 samples in 3.0 MiB of 4.0 MiB, 75 %" in host.page.inner_text(".tsnb-footer")
    assert host.page.evaluate(OVERFLOW) == [0, 0]
    assert not host.errors


def test_what_changed_is_told_where_one_points(browser: Browser) -> None:
    """Pointing at a mark shows its words, in full, below the values."""
    host = Host(browser, 1000)
    host.open(rebalance(rebalanced()))
    plot = host.page.locator(".tsnb-chart .tsnb-canvas").nth(3)
    box = plot.bounding_box()
    assert box
    ago_s = host.tape.latest.time_s - START_S - 124.0 if host.tape.latest else 0.0  # the core moved then
    first, last = 40, box["width"] - 14  # of the two minutes
    plot.hover(position={"x": last - (last - first) * ago_s / 120, "y": 40})
    assert "1 core to resnet18-wide" in host.page.inner_text(".tsnb-hover:visible")
    marks = host.page.locator(".tsnb-cell-marks").evaluate_all("all => all.map(one => one.getAttribute('d'))")
    assert len(marks) == 4 and all(d.count("M") >= 2 for d in marks), "in the strip too"


def test_a_row_makes_its_lines_stand_out(browser: Browser) -> None:
    """Pointing at a trial fades the others in the charts; pointing elsewhere brings them back."""
    host = Host(browser, 1000)
    running(three_models(), host, 20)
    inked = """() => document.querySelectorAll('.tsnb-chart canvas')[2].toDataURL().length"""
    canvas = host.page.locator(".tsnb-chart canvas").nth(3)
    before = canvas.screenshot()
    assert host.page.evaluate(inked) > 0

    def drawn(faded: bool) -> bool:
        """Wait until it looks so: a page on a busy machine draws when it comes to it."""
        deadline = time.monotonic() + 30
        while (canvas.screenshot() != before) is not faded and time.monotonic() < deadline:
            time.sleep(0.05)
        return (canvas.screenshot() != before) is faded

    host.page.locator("tbody >> nth=1").hover()
    assert drawn(faded=True)
    host.page.mouse.move(2, 2)
    assert drawn(faded=False)


def test_charts_are_read_with_keys_and_aloud(browser: Browser) -> None:
    """Each has words for a screen reader; arrows walk along it and the words follow."""
    host = Host(browser, 1000)
    running(three_models(), host, 30)
    chart = host.page.get_by_role("img", name="Speed, samples/s;")
    assert "cnn-small" in str(chart.get_attribute("aria-label"))
    chart.focus()
    for _ in range(8):
        host.page.keyboard.press("ArrowLeft")
    assert re.search(r"; 0:0[12] ago: cnn-small \d", str(chart.get_attribute("aria-label")))
    assert "0:0" in host.page.inner_text(".tsnb-hover:visible")
    host.page.keyboard.press("Escape")
    assert host.page.locator(".tsnb-hover:visible").count() == 0
    assert not host.errors


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_have_contrast_and_controls_have_names(browser: Browser, theme: str) -> None:
    """4.5 to 1 for every text (WCAG AA), on the page and on cards; a name for every button, picture and table."""
    host = Host(browser, 1000, theme)
    host.tape.allow(interrupt=True, report=True)
    running(rebalanced(gpus=1), host, 12)
    host.page.get_by_role("button", name="details").click()
    host.settle()
    weak = host.page.evaluate(CONTRAST)
    assert weak == []
    nameless = """() => [...document.querySelectorAll('.tsnb-panel :is(button, [role=img], table)')]
      .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim())).length"""
    assert host.page.evaluate(nameless) == 0


def test_buttons_send_what_they_say_and_ask_before_they_end_something(browser: Browser) -> None:
    """A row's stop and the stream's ask once more; Escape takes the question back; a refusal says why."""
    host = Host(browser, 1000)
    host.tape.allow(interrupt=True, report=True)
    running(three_models(), host, 20)
    sent = "() => window.sent"
    stop = host.page.locator('tbody .tsnb-stop[aria-label^="Stop resnet10"]')
    stop.click()
    assert stop.inner_text() == "Stop?"
    stop.press("Escape")
    assert stop.inner_text() == "" and stop.get_attribute("aria-label") == "Stop resnet10"
    stop.focus()
    host.page.keyboard.press("Enter")
    host.page.keyboard.press("Tab")
    assert stop.inner_text() == "", "who goes elsewhere has not said yes"
    host.page.get_by_role("button", name="Report").click()
    host.page.get_by_role("button", name="Stop stream").click()
    assert not [one for one in host.page.evaluate(sent) if one["op"].startswith("stop")]
    host.page.get_by_role("button", name="Stop for all?").click()
    stop.focus()
    host.page.keyboard.press("Enter")
    host.page.keyboard.press("Enter")
    assert [one for one in host.page.evaluate(sent) if one["op"] in ("stop", "stop stream", "report")] == [
        {"op": "report"},
        {"op": "stop stream"},
        {"op": "stop", "name": "resnet10"},
    ]
    assert stop.is_disabled()
    assert stop.get_attribute("title") == "Stop resnet10: not now, resnet10 was asked to stop"
    host.hear(Message({"op": "refused", "what": "stop", "name": "resnet10", "why": "it is no trial here"}))
    host.settle()
    again = host.page.get_by_label("Could not stop resnet10: it is no trial here")
    assert again.is_enabled()
    ended = host.tape.note("gone", "The stream mnist has ended.", "mnist")
    assert ended
    host.hear(ended)
    host.settle()
    grey = host.page.get_by_label("Stop resnet10: not now, the stream has ended")
    assert grey.is_disabled()
    before = len(host.page.evaluate(sent))
    grey.focus()
    host.page.keyboard.press("Enter")
    assert len(host.page.evaluate(sent)) == before, "it can be reached, and does nothing"
    told = "node => getComputedStyle(node, '::after').content"
    assert grey.evaluate(told) == '"Stop resnet10: not now, the stream has ended"', (
        "its reason stands beside it"
    )
    assert not host.errors


def test_the_pause_button_does_what_its_icon_says(browser: Browser) -> None:
    """Pause, and of one that is paused Resume, in the row and in the drawer; a refusal says why."""
    host = Host(browser, 1000)
    stream = three_models()
    running(stream, host, 12)
    row = host.page.locator('tbody .tsnb-pause[aria-label*="resnet10"]')
    assert row.get_attribute("aria-label") == "Pause resnet10"
    row.click()
    assert row.get_attribute("title") == "Pause resnet10: not now, resnet10 pauses at its next batch"
    why = "it was served without seed=. Serve it with seed="
    other = host.page.locator('tbody .tsnb-pause[aria-label^="Pause cnn-small"]')
    for reading in stream.run(2):
        host.feed(replace(reading, unrepeatable=why))
    host.settle()
    said = f"After a long pause it fails when it resumes. The stream cannot repeat batches: {why}"
    assert other.get_attribute("title") == f"Pause cnn-small. {said}", "before it is too late"
    for reading in stream.run(1):
        host.feed(reading)
    host.settle()
    assert host.page.evaluate("() => window.sent")[-1] == {"op": "pause", "name": "resnet10"}
    latest = host.tape.latest
    assert latest is not None
    stood = [
        replace(consumer, state="paused") if consumer.name == "resnet10" else consumer
        for consumer in latest.consumers
    ]
    host.feed(replace(latest, time_s=latest.time_s + 0.25, consumers=tuple(stood)))
    host.settle()
    assert row.is_enabled() and row.get_attribute("aria-label") == "Resume resnet10"
    host.page.get_by_role("button", name="resnet10", exact=True).click()
    host.settle()
    drawer = host.page.locator(".tsnb-drawer .tsnb-pause")
    assert drawer.get_attribute("aria-label") == "Resume resnet10"
    drawer.click()
    assert host.page.evaluate("() => window.sent")[-1] == {"op": "resume", "name": "resnet10"}
    host.hear(Message({"op": "refused", "what": "resume", "name": "resnet10", "why": "it is a rank"}))
    host.settle()
    assert drawer.get_attribute("title") == "Could not resume resnet10: it is a rank"
    assert not host.errors


def test_buttons_that_nobody_answers_are_not_there(browser: Browser) -> None:
    """Without callbacks there is neither a report nor an interrupt button."""
    host = Host(browser, 1000)
    running(three_models(), host, 5)
    host.page.get_by_role("button", name="cnn-small", exact=True).click()
    host.settle()
    assert host.page.get_by_label("Interrupt cnn-small").is_hidden()
    assert host.page.get_by_role("button", name="Report").count() == 0
    assert host.page.get_by_label("Stop cnn-small").first.is_visible()


PIXEL = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)

FACTS = {
    "op": "trial",
    "name": "resnet10",
    "params": [["width", "64"], ["<b>", "&amp;"]],
    "live": [["lr", "0.1"], ["how", "sum"]],
    "changes": [
        {"name": "lr", "value": "0.1", "before": "0.3", "epoch": 1, "batch": 20, "time_s": START_S + 9}
    ],
    "artifacts": [["net.pt", 123456], ["runs", None]],
    "figures": [["a.png", "a 1", PIXEL], ["b.png", "b 1", PIXEL], ["c.png", "c 1", "javascript:alert(1)"]],
    "where": "/project/.tsnb/artifacts/resnet10-1",
    "lineage": [
        ["cnn-small", 0, "", "running"],
        ["resnet10", 1, "batch 20 of epoch 1", "running"],
        ["gone-long-ago", 2, "batch 40 of epoch 1", "stopped"],
    ],
}


@pytest.mark.parametrize(("width", "theme"), [(1400, "light"), (1000, "dark"), (360, "light")])
def test_a_trials_drawer_shows_all_that_is_known_and_sets_values(
    browser: Browser, width: int, theme: str
) -> None:
    """Opened by a click on a name: parameters, live values, time line, log with search, artifacts; nothing moves."""
    host = Host(browser, width, theme)
    host.tape.allow(interrupt=True)
    stream = three_models()
    host.open(stream.run(30), {"can": True, "name": "", "shown": False, "trials": [["resnet10", "running"]]})
    page, drawer = host.page, host.page.locator(".tsnb-drawer")
    high = page.evaluate("() => document.querySelector('.tsnb-panel').offsetHeight")
    page.get_by_role("button", name="resnet10", exact=True).click()
    wanted = [
        {"op": "trial", "name": "resnet10"},
        {"op": "log", "name": "resnet10", "run": "", "at": 0, "tail": True},
    ]
    assert page.evaluate("() => window.sent.slice(-2)") == wanted
    host.hear(Message(FACTS))
    text = "".join(f"epoch {k}: loss {1 / (k + 1):.3f}\n" for k in range(300))
    log = {"op": "log", "name": "resnet10", "run": "1", "start": 0, "text": text, "open": "epoch 300"}
    host.hear(Message(log))
    host.settle()
    said = drawer.inner_text()
    for words in (
        "lr 0.3 → 0.1 from epoch 1, batch 20 on",
        "width\n64",
        "<b>\n&amp;",
        "net.pt 123.5 kB",
        "computing",
    ):
        assert words in said.replace("\n\n", "\n"), said
    assert drawer.locator(".tsnb-timeline-marks b").count() == 2, "joined, and lr was set"
    assert drawer.locator(".tsnb-lines").inner_text().endswith("epoch 299: loss 0.003\nepoch 300")
    figures = drawer.locator(".tsnb-figure")
    assert figures.all_inner_texts() == ["b.png", "a.png"], "the newest first, and nothing but pictures"
    assert figures.locator("img").evaluate_all("all => all.map(one => one.naturalWidth)") == [1, 1]
    figures.first.focus()
    page.keyboard.press("Enter")
    assert figures.first.get_attribute("aria-expanded") == "true"
    host.hear(Message({**FACTS, "figures": [["b.png", "b 1", ""], ["d.png", "d 1", PIXEL]]}))
    host.settle()
    assert figures.all_inner_texts() == ["d.png", "b.png"], "what the page has is not sent again"
    assert figures.nth(1).get_attribute("aria-expanded") == "true"
    page.get_by_label("search the log").focus()
    page.keyboard.type("0.010")  # as a person does: a key that the drawer swallows is not there
    host.settle()
    assert drawer.locator(".tsnb-found").inner_text() == f"{text.count('0.010')} lines"
    family = drawer.locator(".tsnb-family li").all_inner_texts()
    assert family[0].startswith("cnn-small running, loss ")
    assert family[1].startswith("resnet10 from batch 20 of epoch 1 on, running, loss ")
    assert family[2] == "gone-long-ago from batch 40 of epoch 1 on, stopped"
    made = {"resnet10": [[START_S + 9, "lr 0.3 → 0.1"]]}
    host.hear(Message({"op": "params", "trials": {}, "verdicts": {}, "changes": made}))
    told = "; set: resnet10 lr 0.3 → 0.1 at batch "
    if width > 960:  # else the drawer stands in the charts' place
        has = "told => (document.querySelector('.tsnb-plot').ariaLabel || '').includes(told)"
        page.wait_for_function(has, arg=told)
    for reading in stream.run(0.5):  # without news for five seconds nothing can be set
        host.feed(reading)
    host.settle()
    value = page.get_by_label("live hyperparameter lr")
    expect(value).to_be_editable(timeout=30_000)
    value.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("0.03")
    host.hear(Message({**FACTS, "live": [["lr", "0.1"], ["how", "mean"]]}))
    host.settle()
    assert (value.input_value(), page.get_by_label("live hyperparameter how").input_value()) == (
        "0.03",
        "mean",
    )
    page.get_by_role("button", name="Set 0.1 → 0.03").click()
    set_it = {"op": "set", "name": "resnet10", "value": "lr", "text": "0.03"}
    assert page.evaluate("() => window.sent.at(-1)") == set_it
    host.hear(
        Message(
            {
                "op": "refused",
                "what": "set",
                "name": "resnet10",
                "why": "lr=0.03 is invalid. Pass a whole number",
            }
        )
    )
    host.settle()
    assert drawer.get_by_role("alert").inner_text() == "Not set: lr=0.03 is invalid. Pass a whole number"
    for reading in stream.run(0.5):  # as above
        host.feed(reading)
    host.settle()
    further = drawer.locator(".tsnb-clone"), drawer.locator(".tsnb-extend")
    assert further[0].get_attribute("title") == (
        "Clone resnet10: not now, another notebook started it. Do that there"
    )
    no_gpu = "it uses no GPU, so it has no GPU memory to free. Pause it without release"
    running = "is running and can be extended once it is done"
    able = {**FACTS, "cannot": {"clone": "", "extend": running, "release": no_gpu}}
    host.hear(Message({**able, "live": [["lr", "0.1"], ["how", "mean"]]}))
    for reading in stream.run(0.5):  # as above
        host.feed(reading)
    host.settle()
    assert further[1].get_attribute("title") == (
        "Extend resnet10: not now, resnet10 is running and can be extended once it is done"
    )
    free = drawer.get_by_role("button", name="Pause, memory free")
    assert free.get_attribute("title") == f"Pause resnet10 with its GPU memory free: not now, {no_gpu}"
    assert free.get_attribute("aria-disabled") == "true"
    page.get_by_label("name of the clone").fill("hot")
    page.get_by_role("button", name="Clone with lr 0.03").click()
    assert not drawer.get_by_role("alert").is_visible(), "what was refused before is told no more"
    clone_it = {"op": "clone", "name": "resnet10", "as": "hot", "changes": [["lr", "0.03"]]}
    assert page.evaluate("() => window.sent.at(-1)") == clone_it
    assert (further[0].get_attribute("title") or "").endswith("not now, it is being cloned")
    host.hear(Message({"op": "refused", "what": "clone", "name": "resnet10", "why": "it uses a GPU"}))
    host.hear(
        Message(
            {
                **able,
                "cannot": {
                    "clone": "is done, and only a running trial can be cloned",
                    "extend": "",
                    "release": "",
                },
            }
        )
    )
    for reading in stream.run(0.5):  # as above
        host.feed(reading)
    host.settle()
    assert drawer.get_by_role("alert").inner_text() == "Could not clone: it uses a GPU"
    assert "not now, resnet10 is done" in (further[0].get_attribute("title") or "")
    page.get_by_label("additional epochs").fill("0")
    assert further[1].get_attribute("aria-disabled") == "true"
    page.get_by_label("additional epochs").fill("5")
    page.get_by_role("button", name="Continue for 5").click()
    assert page.evaluate("() => window.sent.at(-1)") == {"op": "extend", "name": "resnet10", "epochs": 5}
    free.click()
    assert page.evaluate("() => window.sent.at(-1)") == {"op": "release", "name": "resnet10"}
    assert (free.get_attribute("title") or "").endswith("not now, it pauses at its next batch")
    host.hear(Message({"op": "refused", "what": "release", "name": "resnet10", "why": no_gpu}))
    host.settle()
    assert drawer.get_by_role("alert").inner_text() == f"Could not free its GPU memory: {no_gpu}"
    assert page.evaluate(OVERFLOW) == [0, 0]
    assert page.evaluate(CONTRAST) == []
    if width > 960:
        assert page.evaluate("() => document.querySelector('.tsnb-panel').offsetHeight") >= high
        assert page.locator(".tsnb-table").first.is_visible()
    else:
        assert page.locator(".tsnb-table").first.is_hidden()
    host.shot(ARTIFACTS / f"panel-drawer-{width}.png")
    assert host.chosen()["drawer"] == "resnet10"
    again = Host(browser, width, theme)
    again.view = host.chosen()
    again.open(stream.run(5))
    assert again.page.get_by_role("heading", name="resnet10").is_visible()
    page.get_by_role("heading", name="resnet10").focus()
    page.keyboard.press("Escape")
    host.settle()
    assert drawer.is_hidden()
    assert page.evaluate("() => document.activeElement.textContent") == "resnet10"
    assert page.evaluate("() => window.sent.slice(-2)") == [{"op": "trial", "name": ""}, {"op": "log off"}]
    assert not host.errors + again.errors


def test_a_missed_tick_is_asked_for(browser: Browser) -> None:
    """A gap in the numbering makes the front end ask for everything."""
    host = Host(browser, 1000)
    stream = three_models()
    host.open(stream.run(5))
    readings = list(stream.run(2))
    host.tape.feed(readings[0])  # lost on the way
    host.feed(readings[1])
    assert host.page.evaluate("() => window.sent.at(-1)") == {"op": "hello", "n": -1}


def test_values_under_the_pointer_are_shown(browser: Browser) -> None:
    """Hovering a chart shows each trial's value there, and when it was."""
    host = Host(browser, 1000)
    running(three_models(), host, 40)
    host.page.locator(".tsnb-chart .tsnb-canvas").nth(2).hover(position={"x": 180, "y": 40})
    shown = host.page.inner_text(".tsnb-hover:visible")
    assert "cnn-small" in shown
    assert "ago" in shown
    assert not host.errors


def learning(browser: Browser, stream: Stream, width: int = 1000, view: dict[str, Any] | None = None) -> Host:
    host = Host(browser, width)
    host.view = view
    running(stream, host, 40)
    return host


def test_curves_of_all_trials_lie_over_each_other(browser: Browser) -> None:
    """A chart of each of the first two metrics; pointing says all values, the best first and marked, in both charts."""
    host = learning(browser, three_models())
    assert host.page.locator(".tsnb-learned figcaption").all_inner_texts() == [
        "loss by batch",
        "accuracy by batch",
    ]
    second = host.page.locator(".tsnb-plot canvas").nth(1)
    before = second.screenshot()
    box = host.page.locator(".tsnb-plot").nth(0).bounding_box()
    assert box
    host.page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 90)
    told = host.page.inner_text(".tsnb-readout:visible").split("\n")
    assert re.fullmatch(r"batch \d+", told[0])
    assert {"cnn-small", "resnet10"} <= set(told)
    values = [float(text.split()[0]) for text in told[2::2]]
    assert values == sorted(values) and told[2].endswith("★") and not told[4].endswith("★")
    assert second.screenshot() != before, "one cursor goes through all charts"
    host.page.mouse.move(2, 2)
    assert host.page.locator(".tsnb-readout:visible").count() == 0
    assert not host.errors


def test_what_a_reader_chose_is_kept_for_the_next_page(browser: Browser) -> None:
    """Metrics, axis, log scale and comparison: the model has them, a page that loads shows them; below 1 kB."""
    host = learning(browser, three_models())
    page = host.page
    page.get_by_role("group", name="horizontal axis").get_by_role("button", name="epoch").click()
    page.get_by_role("button", name="log", exact=True).click()
    page.locator(".tsnb-tools").get_by_role("button", name="loss, accuracy").click()
    page.get_by_role("checkbox", name="accuracy").uncheck()
    page.keyboard.press("Escape")
    assert page.locator(".tsnb-learning .tsnb-menu").is_hidden()
    page.get_by_label("compare with").select_option("cnn-small")
    host.settle()
    captions = page.locator(".tsnb-learned figcaption").all_inner_texts()
    assert captions == ["loss minus that of cnn-small, at the same epoch"]
    told = host.page.evaluate("window.asked.filter(({op}) => op === 'view')")
    assert told[-1]["view"] == host.chosen() and len(json.dumps(told[-1])) < 1000
    assert not host.page.evaluate("window.flushed"), "the kernel knows the history"
    kept = host.chosen()["learning"]
    assert (kept["axis"], kept["show"], kept["log"], kept["against"]) == (
        "epoch",
        ["loss"],
        ["loss", "accuracy"],
        "cnn-small",
    )
    assert len(json.dumps(kept)) < 1000
    again = learning(browser, three_models(), view={"learning": kept})
    assert again.page.locator(".tsnb-learned figcaption").all_inner_texts() == captions
    assert not host.errors + again.errors


def test_every_metric_can_be_chosen_and_read_without_a_pointer(browser: Browser) -> None:
    """Thirty names: a filter finds one; arrows walk along its chart, and the words follow."""
    host, stream = Host(browser, 1000), three_models()
    many = {f"norm/layer{k}": float(k) for k in range(30)}
    host.open(
        replace(r, consumers=tuple(replace(c, metrics={**c.metrics, **many}) for c in r.consumers))
        for r in stream.run(30)
    )
    page = host.page
    page.locator(".tsnb-tools").get_by_role("button", name="loss, accuracy").press("Enter")
    page.keyboard.type("layer29")
    page.get_by_role("checkbox", name="norm/layer29").check()
    page.keyboard.press("Escape")
    host.settle()
    chart = page.get_by_role("img", name="norm/layer29 by batch")
    assert "29" in str(chart.get_attribute("aria-label"))
    loss = page.get_by_role("img", name="loss by batch")
    loss.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert re.search(r"; batch \d+: \S+ \d", str(loss.get_attribute("aria-label")))
    assert page.locator(".tsnb-readout:visible").count() == 1
    page.keyboard.press("Escape")
    assert page.locator(".tsnb-readout:visible").count() == 0
    assert page.evaluate(OVERFLOW) == [0, 0]
    assert not host.errors


def test_fifty_trials_can_be_told_apart(browser: Browser) -> None:
    """No two have the same shape in the same colour; the best five curves have colour, and nothing sticks out."""
    for width in (620, 1200):
        host = Host(browser, width)
        random.seed(3)
        stream = Stream([Trial(f"cnn-width-{k}", 0.02 + 0.002 * (k % 9)) for k in range(50)])
        host.open(stream.run(6))
        marks = host.page.evaluate("""() => [...document.querySelectorAll('tbody .tsnb-c-name .tsnb-mark')].map(
          (mark) => getComputedStyle(mark).color + mark.querySelector('path').getAttribute('d'))""")
        assert len(marks) == len(set(marks)) == 50
        assert host.page.evaluate(OVERFLOW) == [0, 0]
        assert "a chart over its neighbour" not in host.page.evaluate(CUT)
        host.shot(ARTIFACTS / f"panel-fifty-{width}.png")
        assert not host.errors


def test_a_sweep_of_fifty_fits_a_screen_and_shows_what_its_parameters_do(browser: Browser) -> None:
    """At most 800 px high; the best so far, parallel coordinates, the best in colour; its flow, large on request."""
    params = {
        f"cnn-{k}": [["lr", str(0.0001 * 10 ** (k % 4))], ["opt", ["sgd", "adam"][k % 2]], ["seed", "1"]]
        for k in range(50)
    }
    for width in (1200, 1000):
        host = Host(browser, width)
        host.view = {}
        random.seed(3)
        stream = Stream([Trial(f"cnn-{k}", 0.02 + 0.002 * (k % 9)) for k in range(50)])
        host.open(stream.run(20))
        host.page.get_by_role("button", name="sweep", exact=True).click()
        assert {"op": "params"} in host.page.evaluate("() => window.asked")
        said = {"cnn-3": "rank 3 of 4 at step 120"}
        host.hear(Message({"op": "params", "trials": params, "verdicts": said}))
        names = host.page.locator(".tsnb-axis-name")
        names.nth(2).wait_for()
        assert names.all_text_contents() == ["lr", "opt", "accuracy"]
        assert host.page.locator(".tsnb-parallel path").count() == 50
        assert host.page.locator(".tsnb-parallel .tsnb-of-the-best").count() == 5
        row = host.tape.view.best["accuracy"]
        label = host.page.locator(".tsnb-parallel").get_attribute("aria-label")
        assert label == f"Parameters of 50 trials; the best is {row}"
        assert host.page.evaluate("() => document.querySelector('.tsnb-panel').offsetHeight") <= 800
        assert host.page.evaluate(OVERFLOW) == [0, 0]
        assert host.page.locator(".tsnb-canvas:visible").count() == 0
        best = host.page.locator(".tsnb-plot:visible").first
        best.hover()
        best.locator(".tsnb-readout").wait_for()
        host.page.mouse.move(1, 1)
        best.locator(".tsnb-readout").wait_for(state="hidden")
        cells = host.page.locator(".tsnb-cell")
        expect(cells.locator(".tsnb-cell-words")).to_have_text(list(flow(host.tape.view).values()))
        cells.nth(1).focus()
        host.page.keyboard.press("Enter")
        host.page.locator(".tsnb-canvas:visible").nth(3).wait_for()
        assert cells.nth(1).get_attribute("aria-expanded") == "true"
        assert host.chosen()["learning"]["kind"] == "sweep" and host.chosen()["flow"]
        host.shot(ARTIFACTS / f"panel-sweep-{width}.png")
        assert not host.errors


@pytest.mark.parametrize(("width", "theme"), [(1200, "light"), (560, "dark")])
def test_a_sweep_is_seen_as_points_and_as_the_importance_of_its_parameters(
    browser: Browser, width: int, theme: str
) -> None:
    """Any value across, any metric up, colours with shapes; importance only where enough trials have ended."""
    host, trials = Host(browser, width, theme), [Trial(f"cnn-{k}", 0.02 + 0.01 * (k % 4)) for k in range(12)]
    host.view = {}
    stream = Stream(trials)
    *before, last = stream.run(8)
    host.open([*before, last])
    page = host.page
    params = {
        f"cnn-{k}": [["lr", str(0.001 * 10 ** (k % 4))], ["opt", f"'{('sgd', 'adam')[k % 2]}'"]]
        for k in range(12)
    }
    host.hear(Message({"op": "params", "trials": params}))
    page.get_by_role("button", name="sweep", exact=True).click()
    page.get_by_role("button", name="importance").click()
    note = page.locator(".tsnb-learned", has_text="importance").locator(".tsnb-soft").first
    expect(note).to_have_text("needs 8 ended trials that logged accuracy; there are 0")
    assert page.locator(".tsnb-importance dt").count() == 0
    ended = tuple(
        EndReading(one.name, "pruned" if k % 3 else "done", last.time_s, one.pid, metrics=one.metrics)
        for k, one in enumerate(last.consumers[:10])
    )
    host.feed(replace(last, time_s=last.time_s + 1, consumers=last.consumers[10:], ends=ended))
    expect(note).to_have_text("for accuracy, of 10 ended trials")
    expect(page.locator(".tsnb-importance dt")).to_have_text(["lr", "opt"])
    said = page.locator(".tsnb-importance dd .tsnb-n").all_text_contents()
    assert said[0].startswith("rank correlation ") and said[1].endswith(" % of the variance")
    page.mouse.move(0, 0)
    host.settle()
    assert page.evaluate(OVERFLOW) == [0, 0] and page.evaluate(CONTRAST) == []
    host.shot(ARTIFACTS / f"panel-importance-{width}.png")
    page.get_by_role("button", name="scatter").click()
    points = page.locator(".tsnb-scatter > path:not(.tsnb-axis)")
    expect(points).to_have_count(12)
    legend = page.locator(".tsnb-scatter-legend > span")
    assert sorted(legend.all_text_contents()) == ["done", "pruned", "running"]
    page.get_by_label("colour of the scatter").select_option("opt")
    expect(legend).to_have_text(["sgd", "adam"])
    page.get_by_label("metric up the scatter").select_option("accuracy")
    page.get_by_label("value across the scatter").select_option("opt")
    label = page.locator(".tsnb-scatter").get_attribute("aria-label")
    assert label == "accuracy by opt of 12 trials, coloured by opt"
    learning = host.chosen()["learning"]
    assert learning["scatter"] == {"colour": "opt", "y": "accuracy", "x": "opt"}
    page.mouse.move(0, 0)
    host.settle()
    assert page.evaluate(OVERFLOW) == [0, 0] and page.evaluate(CONTRAST) == []
    host.shot(ARTIFACTS / f"panel-scatter-{width}.png")
    again = Host(browser, width, theme)
    again.view = host.chosen()
    again.open([*before, last])
    again.hear(Message({"op": "params", "trials": params}))
    expect(again.page.get_by_label("value across the scatter")).to_have_value("opt")
    assert not host.errors + again.errors


def test_rows_are_sorted_sifted_and_folded_and_errors_stand_in_them(browser: Browser) -> None:
    """A click on a head sorts, and the page that loads next too; ended trials fold; a failure says why, unfolded."""
    host, stream = Host(browser, 1200), three_models()
    *before, last = stream.run(30)
    ends = [EndReading(f"out-{k:02}", "pruned", last.time_s + k / 100) for k in range(12)]
    ends.append(EndReading("bad", "failed", last.time_s, error="RuntimeError: loss is nan"))
    host.open([*before, replace(last, ends=tuple(ends))])
    page = host.page
    names = "() => [...document.querySelectorAll('tbody .tsnb-c-name')].map((cell) => cell.innerText.trim())"
    assert page.evaluate(names)[:4] == ["cnn-small", "resnet10", "resnet18-wide", "resnet18-wide-sgd"]
    assert len(page.evaluate(names)) == 9, "four at work, the one that failed, the last four of the others"
    bad = page.locator("tbody", has_text="bad").first
    assert "RuntimeError: loss is nan" in bad.inner_text()
    assert bad.locator(".tsnb-c-state .tsnb-icon").get_attribute("data-state") == "failed"
    page.get_by_role("button", name="8 pruned").click()
    assert len(page.evaluate(names)) == 17
    page.get_by_role("button", name="8 pruned").click()
    page.get_by_label("filter trials by name").fill("18 sgd")
    assert page.evaluate(names) == ["resnet18-wide-sgd"]
    page.get_by_label("filter trials by name").fill("")
    page.get_by_role("button", name="trial", exact=True).click()
    others = ["bad", "cnn-small", "resnet10", "resnet18-wide", "resnet18-wide-sgd"]
    first = [f"out-{k:02}" for k in range(4)]
    assert page.evaluate(names) == sorted(others + first), "those that come last fold"
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("trial")
    page.get_by_role("button", name="trial", exact=True).click()
    assert page.evaluate(names) == sorted(others + [f"out-{k:02}" for k in range(8, 12)])[::-1]
    assert host.chosen()["rows"] == {"sort": {"by": "name", "down": True}, "open": []}
    again = Host(browser, 1200)
    again.view = host.chosen()
    again.open(stream.run(10))
    assert again.page.evaluate(names)[0] == "resnet18-wide-sgd"
    assert page.evaluate(OVERFLOW) == [0, 0]
    assert not host.errors + again.errors


@pytest.mark.parametrize("width", [1200, 600])
def test_trials_that_wait_in_a_sweep_are_rows_with_their_values(browser: Browser, width: int) -> None:
    """The next ones in their order, dimmed; the first says for what; the others are a line that opens."""
    host, why = Host(browser, width), "queued: it starts when another trial of its sweep ends"
    host.view = {}
    stream = Stream([Trial(f"cnn-{k}", 0.03) for k in range(4)])
    waiting = dict.fromkeys((f"cnn-{k}" for k in range(4, 24)), why)
    host.open(replace(reading, pending=waiting) for reading in stream.run(8))
    params = {f"cnn-{k}": [["lr", str(0.001 * (k + 1))]] for k in range(24)}
    host.hear(Message({"op": "params", "trials": params, "sweeps": dict.fromkeys(params, "cnn")}))
    host.settle()
    names = host.page.locator(".tsnb-trials .tsnb-open")
    expect(names).to_have_text([f"cnn-{k}" for k in range(8)])
    said = [text for text in host.page.locator(".tsnb-pending").all_inner_texts() if why in text]
    assert len(said) == 1, "those below it wait for the same"
    assert "0.006" in host.page.locator("tbody", has_text="cnn-5").inner_text()
    fold = host.page.get_by_role("button", name="16 queued")
    fold.click()
    expect(names).to_have_count(24)
    host.page.mouse.move(0, 0)  # the row below the pointer is light
    host.settle()
    assert host.page.evaluate(OVERFLOW) == [0, 0]
    assert host.page.evaluate(CONTRAST) == []
    host.shot(ARTIFACTS / f"panel-waiting-{width}.png")
    assert not host.errors


def test_the_run_before_of_a_trial_lies_below_its_curve_until_it_is_switched_off(browser: Browser) -> None:
    """Dashed and faint, told beside the chart's title, also in a page that opens later; the choice is kept."""
    host, stream = Host(browser, 1200), three_models()
    host.open(stream.run(20))
    page = host.page
    switch, note = (
        page.get_by_role("button", name="former runs"),
        page.locator(".tsnb-learned .tsnb-soft").first,
    )
    expect(switch).to_be_hidden()
    expect(note).to_have_text("by batch")
    *_, last = stream.run(0.25)
    first = last.consumers[0]
    for k in range(12):
        anew = replace(first, pid=77, batches=k + 1, metrics={"loss": 2.0 - 0.1 * k, "accuracy": 0.5})
        host.feed(replace(last, time_s=last.time_s + k, consumers=(anew, *last.consumers[1:])))
    expect(switch).to_be_visible()
    expect(note).to_have_text("by batch; dashed: the former run")
    host.settle()
    assert page.evaluate(OVERFLOW) == [0, 0]
    host.shot(ARTIFACTS / "panel-former.png")
    late = Host(browser, 1200)
    late.tape = host.tape
    late.open()
    expect(late.page.get_by_role("button", name="former runs")).to_be_visible()
    late.shot(ARTIFACTS / "panel-former-late.png")
    switch.click()
    expect(note).to_have_text("by batch")
    assert host.chosen()["learning"]["former"] is False
    assert not host.errors + late.errors


def test_columns_follow_the_charts_until_others_are_chosen(browser: Browser) -> None:
    """The number that a chart shows has its column; what was chosen for the table stays over a reload."""
    host, stream = Host(browser, 1200), three_models()
    *before, last = stream.run(12)
    more = {"f1": 0.5, "auc": 0.7}
    consumers = tuple(replace(one, metrics={**one.metrics, **more}) for one in last.consumers)
    host.open([*before, replace(last, consumers=consumers)])
    page = host.page
    heads = page.locator(".tsnb-trials thead .tsnb-c-metric .tsnb-sort-word")
    expect(heads).to_have_text(["loss", "accuracy"])
    page.locator(".tsnb-tools .tsnb-menu-button").click()
    for name in ("loss", "accuracy", "auc"):
        page.locator(".tsnb-tools").get_by_label(name, exact=True).click()
    page.keyboard.press("Escape")
    expect(heads).to_have_text(["auc", "loss"])
    columns = page.locator(".tsnb-rows .tsnb-menu-of")
    columns.locator("button").click()
    assert columns.get_by_label("f1", exact=True).get_attribute("aria-disabled") == "true", "there are two"
    columns.get_by_label("loss", exact=True).click()
    columns.get_by_label("f1", exact=True).click()
    page.keyboard.press("Escape")
    expect(heads).to_have_text(["f1", "auc"])
    assert "0.700" in page.locator("tbody", has_text="resnet10").inner_text()
    assert sorted(host.chosen()["rows"]["metrics"]) == ["auc", "f1"]
    again = Host(browser, 1200)
    again.view = host.chosen()
    again.open([*before, replace(last, consumers=consumers)])
    expect(again.page.locator(".tsnb-trials thead .tsnb-c-metric .tsnb-sort-word")).to_have_text(
        ["f1", "auc"]
    )
    page.locator(".tsnb-tools .tsnb-menu-button").click()
    page.locator(".tsnb-tools").get_by_label("accuracy", exact=True).click()
    page.keyboard.press("Escape")
    expect(heads).to_have_text(["accuracy", "auc"])
    assert not host.errors + again.errors


@pytest.mark.parametrize("width", [1200, 500])
def test_trials_without_a_stream_have_rows_of_their_own(browser: Browser, width: int) -> None:
    """State, time and numbers, without the columns of a stream; one that is on the stream has no second row."""
    host = Host(browser, width)
    running(three_models(), host, 20)
    metrics = {"score": 0.5, "accuracy": 0.91, "bad": "nan"}
    done = {"name": "svm", "state": "done", "duration_s": 75.0, "error": "", "metrics": metrics}
    failed = {**done, "name": "tree", "state": "failed", "error": "ValueError: no leaf", "metrics": {}}
    on_it = {**done, "name": "resnet10"}
    host.hear(Message({"op": "params", "trials": {}, "beside": [done, failed, on_it]}))
    host.settle()
    rows = host.page.locator(".tsnb-beside tbody tr")
    expect(rows).to_have_count(2)
    assert [text.split() for text in rows.all_inner_texts()] == [
        ["svm", "done", "1:15", "91.0", "%", "0.500", "nan"],
        ["tree", "failed", "1:15", *"\u2013\u2013\u2013"],
    ]
    failure = rows.nth(1).locator("[data-tone]")
    assert failure.get_attribute("data-tone") == "bad"
    assert failure.get_attribute("title") == "failed: ValueError: no leaf"
    assert host.page.evaluate(OVERFLOW) == [0, 0] and host.page.evaluate(CUT) == []
    assert host.page.evaluate(CONTRAST) == []
    rows.nth(0).get_by_role("button", name="svm").click()
    assert {"op": "trial", "name": "svm"} in host.page.evaluate("() => window.asked.concat(window.sent)")
    host.shot(ARTIFACTS / f"panel-beside-{width}.png")
    assert not host.errors


@pytest.mark.parametrize("width", [1200, 700, 500])
def test_a_trial_that_is_queued_has_a_row_that_says_for_what(browser: Browser, width: int) -> None:
    """In its state, below it, in its tooltip and its drawer; it can be stopped, not paused. Then it is as others."""
    host, stream, why = (
        Host(browser, width),
        three_models(),
        "it needs 2.1 GiB, and 1.2 GiB are free (this machine)",
    )
    *before, last = stream.run(30)
    host.open([*before, replace(last, pending={"big": f"queued: {why}"})])
    page = host.page
    row = page.locator("tbody", has_text="big").first
    assert f"queued: {why}" in row.inner_text(), "in full, at any width"
    state = row.locator(".tsnb-c-state")
    assert state.get_attribute("title") == f"queued: {why}" and state.text_content() == "queued"
    assert state.locator(".tsnb-icon").get_attribute("data-state") == "queued"
    assert "tsnb-off" not in (row.get_attribute("class") or "")
    pause = row.get_by_role("button", name="Pause big")
    assert pause.get_attribute("aria-disabled") == "true"
    assert pause.get_attribute("title") == f"Pause big: not now, it is queued: {why}"
    row.get_by_role("button", name="Stop big").click()
    row.get_by_role("button", name="Stop big").click()
    assert page.evaluate("() => window.sent.at(-1)") == {"op": "stop", "name": "big"}
    row.get_by_role("button", name="big", exact=True).click()
    host.settle()
    assert page.locator(".tsnb-drawer-waits").inner_text() == f"queued: {why}"
    page.keyboard.press("Escape")
    page.mouse.move(0, 0)  # the row below it is light
    host.settle()
    assert page.evaluate(OVERFLOW) == [0, 0]
    assert page.evaluate(CONTRAST) == []
    host.shot(ARTIFACTS / f"panel-queued-{width}.png")
    now = replace(last, time_s=last.time_s + 1)
    host.feed(now)
    host.settle()
    assert page.locator("tbody", has_text="big").count() == 0, "nobody tells of it"
    host.feed(
        replace(now, time_s=now.time_s + 1, consumers=(*now.consumers, replace(now.consumers[0], name="big")))
    )
    host.settle()
    row = page.locator("tbody", has_text="big").first
    assert "queued" not in row.inner_text() and not host.errors


@pytest.mark.parametrize("width", [620, 740, 800, 900, 980, 1020, 1100])
def test_words_of_the_panel_are_whole_beside_parameters(browser: Browser, width: int) -> None:
    """How many batches are ready, the state, the heads: whether parameters are columns or in the line below."""
    host = Host(browser, width)
    names = ["mlp", "small", "wide"]
    host.open(Stream([Trial(name, 0.02 + 0.02 * k) for k, name in enumerate(names)]).run(8))
    params = {name: [["lr", str(0.1 / 10**k)]] for k, name in enumerate(names)}
    host.hear(Message({"op": "params", "trials": params, "verdicts": {}, "changes": {}, "sweeps": {}}))
    host.page.locator(".tsnb-has-params").wait_for()
    host.settle()
    assert host.page.get_by_text("at the front").first.is_visible()
    assert host.page.evaluate(CUT) == []
    assert host.page.evaluate(OVERFLOW) == [0, 0]


@pytest.mark.parametrize("params", [0, 1, 2])
@pytest.mark.parametrize("width", [931, 970, 971, 985, 986, 1030, 1031, 1046, 1080, 1081, 1179, 1180])
def test_a_long_plan_is_whole_at_the_edges_of_every_layout(browser: Browser, width: int, params: int) -> None:
    """Its epochs, what is left and where its time goes, beside metrics and as many parameters as there is room for."""
    host, names = Host(browser, width), ["mlp", "small", "wide"]
    readings = list(
        planned(Stream([Trial(name, 0.02 + 0.02 * k) for k, name in enumerate(names)]).run(60), 100)
    )
    for reading in readings[-20:]:
        rows = [
            replace(one, epochs_before=9, batches_before=9 * (reading.epoch_batches or 0))
            for one in reading.consumers
        ]
        host.tape.feed(replace(reading, consumers=tuple(rows)))
    host.open()
    values = {
        name: [["lr", str(0.1 / 10**k)], ["width", str(16 * k)]][:params] for k, name in enumerate(names)
    }
    host.hear(Message({"op": "params", "trials": values, "verdicts": {}, "changes": {}, "sweeps": {}}))
    if params:
        host.page.locator(".tsnb-has-params").wait_for()
    host.settle()
    epochs = host.page.locator(".tsnb-trials tbody .tsnb-c-epoch").all_inner_texts()
    assert epochs
    assert all(re.match(r"\d\d\.\d\d of 10\d\n", text) for text in epochs), epochs
    assert host.page.evaluate(PLACES) == [0, 0], (
        "a star's number is in line with the others, an icon amid its button"
    )
    assert host.page.evaluate(STICKS_OUT) == [], "to the left, where a cell's scrollWidth does not count it"
    assert host.page.evaluate(CUT) == []
    assert host.page.evaluate(OVERFLOW) == [0, 0]
    assert not host.errors


@pytest.mark.parametrize(
    ("width", "shown"), [(1200, ["lr", "opt", "width"]), (1050, ["lr", "opt"]), (620, [])]
)
def test_parameters_are_columns_and_the_rows_of_a_sweep_stand_together(
    browser: Browser, width: int, shown: list[str]
) -> None:
    """As many as there is room for; they sort and filter; a sweep's line counts its trials, and folds them."""
    host = Host(browser, width)
    names = [f"search-of-a-learning-rate-{k}" for k in range(12)]
    host.open(Stream([Trial(name, 0.02 + 0.002 * (k % 9)) for k, name in enumerate(names)]).run(8))
    page, params = host.page, {}
    for k, name in enumerate(names[:11]):
        params[name] = [
            ["lr", str(10.0 ** -(1 + k % 5))],
            ["opt", repr(["sgd", "adam"][k % 2])],
            ["width", str(16 * k)],
        ]
        params[name] += [["depth", str(k)], ["seed", "1"]]
    sweeps = dict.fromkeys(names[:8], "coarse") | dict.fromkeys(names[8:11], "fine")
    host.hear(
        Message(
            {
                "op": "params",
                "trials": params,
                "verdicts": {},
                "changes": {},
                "sweeps": sweeps,
                "rules": {"fine": "loss"},
            }
        )
    )
    page.locator(".tsnb-group").first.wait_for(state="attached")
    heads = page.locator("th.tsnb-c-param:visible")
    assert [text.strip(" \u25b4\u25be") for text in heads.all_inner_texts()] == shown
    assert page.locator(".tsnb-group button").all_inner_texts() == ["sweep coarse", "sweep fine", "no sweep"]
    assert page.locator(".tsnb-group").first.inner_text().startswith("sweep coarse 8 running; best accuracy ")
    assert "; best loss " in page.locator(".tsnb-group").nth(1).inner_text(), "by which its rule decides"
    assert page.evaluate(OVERFLOW) == [0, 0]
    assert [text for text in page.evaluate(CUT) if not text.startswith("sweep")] == []
    host.shot(ARTIFACTS / f"panel-parameters-{width}.png")
    rows = "() => [...document.querySelectorAll('.tsnb-trials tbody .tsnb-open')].map((one) => one.ariaLabel)"
    if not shown:
        assert "lr 0.1   opt sgd   width 0" in page.locator("tbody", has_text="…0").first.inner_text()
        return
    page.get_by_role("button", name="lr", exact=True).click()
    page.get_by_role("button", name="by sweep").click()
    assert [name.rsplit("-", 1)[1] for name in page.evaluate(rows)] == [
        "4",
        "9",
        "3",
        "8",
        "2",
        "7",
        "1",
        "6",
        "0",
        "5",
        "10",
        "11",
    ]
    page.get_by_role("button", name="by sweep").click()
    assert [name.rsplit("-", 1)[1] for name in page.evaluate(rows)] == [
        "4",
        "3",
        "2",
        "7",
        "1",
        "6",
        "0",
        "5",
        "9",
        "8",
        "10",
        "11",
    ]
    page.get_by_role("button", name="sweep coarse").press("Enter")
    assert len(page.evaluate(rows)) == 4
    page.get_by_label("filter trials by name").fill("opt = adam lr < 0.05")
    assert [name.rsplit("-", 1)[1] for name in page.evaluate(rows)] == ["9"]
    page.get_by_role("button", name="lr, opt, width").click()
    assert page.get_by_label("depth").get_attribute("aria-disabled") == "true"
    page.get_by_label("opt", exact=True).click()
    page.get_by_label("depth").click()
    page.keyboard.press("Escape")
    assert [text.strip(" \u25b4\u25be") for text in heads.all_inner_texts()] == ["lr", "width", "depth"][
        : len(shown)
    ]
    assert host.chosen()["rows"]["columns"] == ["lr", "width", "depth"] and host.chosen()["rows"]["shut"] == [
        "coarse"
    ]
    assert not host.errors


def test_a_place_in_the_stream_says_what_its_words_say(browser: Browser) -> None:
    """Boxes right of the needle are those that are ready; all rows share one scale."""
    host = Host(browser, 1200)
    running(three_models(), host, 40)
    ready = """() => [...document.querySelectorAll('.tsnb-place')].map((place) => [place.innerText.trim(),
      place.querySelectorAll('.tsnb-ready').length,
      place.querySelector('.tsnb-needle').getBoundingClientRect().left])"""
    places = host.page.evaluate(ready)
    latest = host.tape.latest
    assert latest
    lefts = {c.fill: round(left) for c, (_, _, left) in zip(latest.consumers, places, strict=True)}
    for consumer, (words, boxes, _) in zip(latest.consumers, places, strict=True):
        assert boxes == min(consumer.fill, 8)
        where = f"{consumer.lag} behind" if consumer.lag else "at the front"
        assert words == f"{where} · {consumer.fill} ready"
    assert [lefts[fill] for fill in sorted(lefts, reverse=True)] == sorted(lefts.values())


@pytest.mark.parametrize(("width", "theme"), [(1200, "light"), (620, "dark"), (532, "light"), (360, "light")])
def test_several_streams_are_one_panel_with_a_row_for_each_trial(
    browser: Browser, width: int, theme: str
) -> None:
    """The chosen one has its line, sentence and strip; a trial on both has one row, which says where it is."""
    host = Host(browser, width, theme)
    train, val = three_models(), three_models(11)
    for stream in (train, val):
        for trial, name in zip(stream.trials, ("mlp", "small-cnn", "wide-cnn", "vit"), strict=True):
            trial.name = name
    val.name, val.trials, val.batch_s = "val", val.trials[:1], 0.2
    tapes = [Tape("train"), Tape("val")]
    train.name = "train"
    for tape, stream in zip(tapes, (train, val), strict=True):
        for reading in stream.run(30):
            tape.feed(reading)
    host.open_several(tapes)
    for reading in val.run(2):
        message = tapes[1].feed(reading)
        assert len(message.frame) <= 300
        host.hear(Message({**message.content, "at": 1}, message.frame))
    host.settle()
    page = host.page
    assert not host.errors
    expect(page.locator(".tsnb-name:visible")).to_have_text(["train"])
    expect(page.locator(".tsnb-strip-name:visible")).to_have_text(["train"])
    assert page.locator(".tsnb-trials .tsnb-open").all_inner_texts() == [t.name for t in train.trials]
    places = page.locator(".tsnb-place .tsnb-below").all_text_contents()
    assert all(place.split(":")[0] in ("train", "val") for place in places), places
    heights = page.evaluate(
        "() => [...document.querySelectorAll('.tsnb-trials tbody')].map((row) => row.offsetHeight)"
    )
    assert max(heights) <= 90, heights
    assert (
        page.locator(".tsnb-cell:visible").count() == page.locator(".tsnb-canvas canvas:visible").count() == 4
    )
    assert page.evaluate(OVERFLOW) == [0, 0]
    assert page.evaluate(CUT) == []
    assert page.evaluate(CONTRAST) == []
    page.get_by_label("stream", exact=True).select_option("val")
    expect(page.locator(".tsnb-name:visible")).to_have_text(["val"])
    page.get_by_role("button", name="Stop stream").click()
    page.get_by_role("button", name="Stop for all?").click()
    page.get_by_label("balance").locator("visible=true").select_option("free")
    assert page.evaluate("() => window.sent.slice(-2)") == [
        {"op": "stop stream", "at": 1},
        {"op": "balance", "pacing": "free", "at": 1},
    ]
    refused = {"op": "refused", "what": "balance", "name": "", "why": "there is no room", "at": 1}
    host.hear(Message(refused))
    host.settle()
    title = page.get_by_label("balance").locator("visible=true").get_attribute("title")
    assert "there is no room" in (title or "")
    host.hear(Message({"op": "tick", "at": 1, "n": 10_000}))
    assert page.evaluate("() => window.sent.at(-1)") == {"op": "hello", "n": -1}, "one that was missed"
    if width > 1000:
        page.get_by_role("button", name=val.trials[0].name, exact=True).click()
        host.settle()
        assert page.locator(".tsnb-drawer .tsnb-timeline i").count() == 96
        page.get_by_role("button", name="details").click()
        host.settle()
    host.shot(ARTIFACTS / f"panel-several-{width}.png")
    saved = Host(browser, width, theme)
    for at, tape in enumerate(tapes):
        ended = tape.note("gone", "The stream has ended.")
        assert ended
        host.hear(Message({**ended.content, "at": at}))
    saved.show(*host.saved())
    assert saved.facts()["state"] == "recording"
    assert saved.page.locator(".tsnb-trials .tsnb-open").all_inner_texts() == [t.name for t in train.trials]
    assert not host.errors + saved.errors


def test_an_end_is_told_where_the_reader_asked_for_it(browser: Browser) -> None:
    """On the page, with the error, until it is closed; as the browser's own while the page is hidden; it stays on."""
    host = Host(browser, 620, "dark")
    page = host.page
    page.evaluate("""() => {
      window.told = [];
      window.Notification = class {
        constructor(title, { body }) { window.told.push(body); }
        static permission = 'default';
        static async requestPermission() { return (Notification.permission = 'granted'); }
      };
    }""")
    stream = three_models()
    running(stream, host, 10)
    last = host.tape.latest
    assert last
    failed = EndReading("resnet10", "failed", last.time_s + 1, 7, "ValueError: broken image")
    rest = tuple(c for c in last.consumers if c.name != "resnet10")
    page.get_by_role("button", name="notify").click()
    host.feed(replace(last, time_s=last.time_s + 1, consumers=rest, ends=(failed,)))
    page.wait_for_selector(".tsnb-notice")
    assert page.locator(".tsnb-notice p").all_inner_texts() == ["resnet10 failed: ValueError: broken image"]
    assert page.evaluate("() => window.told") == [], "it is seen on the page"
    assert page.evaluate(CONTRAST) == []
    page.get_by_label("Close this notice").click()
    assert page.locator(".tsnb-notice").count() == 0
    page.evaluate("() => Object.defineProperty(document, 'hidden', { value: true })")
    done = EndReading("cnn-small", "done", last.time_s + 2, 8)
    host.feed(replace(last, time_s=last.time_s + 2, consumers=rest[1:], ends=(done,)))
    page.wait_for_function("() => window.told.length")
    assert page.evaluate("() => window.told") == ["cnn-small done"]
    assert host.chosen()["notify"] is True
    page.get_by_role("button", name="notify").click()
    host.feed(replace(last, time_s=last.time_s + 3, consumers=(), ends=(replace(done, name="other"),)))
    host.settle()
    assert page.evaluate("() => window.told") == ["cnn-small done"]
    assert host.chosen()["notify"] is False
    assert not host.errors


def test_compute_is_divided_by_a_choice_in_the_header(browser: Browser) -> None:
    """What was chosen is sent and shown at once; a refusal brings back what is, and says why."""
    host = Host(browser, 1200)
    running(three_models(), host, 10)
    mode = host.page.get_by_label("balance", exact=True)
    assert mode.input_value() == "together"
    mode.select_option("free")
    assert host.page.evaluate("() => window.sent.at(-1)") == {"op": "balance", "pacing": "free"}
    host.settle()
    assert mode.input_value() == "free"
    host.hear(
        Message(
            {"op": "refused", "what": "balance", "name": "", "why": "a stream of a cluster is not balanced"}
        )
    )
    host.settle()
    assert mode.input_value() == "together"
    assert mode.get_attribute("title") == "Not changed: a stream of a cluster is not balanced"
    ended = host.tape.note("gone", "The stream mnist has ended.", "mnist")
    assert ended
    host.hear(ended)
    host.settle()
    assert mode.is_disabled()
    assert not host.errors


@pytest.mark.parametrize("width", [1200, 360])
def test_weights_are_set_where_the_mode_is(browser: Browser, width: int) -> None:
    """By keys alone: a field for each trial; a number that is no weight is not sent, and says so."""
    host = Host(browser, width)
    running(three_models(), host, 10)
    page, keys = host.page, host.page.keyboard
    opens = page.get_by_role("button", name="weights…")
    assert opens.is_hidden()
    page.get_by_label("balance", exact=True).select_option("weights")
    host.settle()
    opens.focus()
    keys.press("Enter")
    field = page.get_by_label("weight of resnet10")
    assert page.evaluate("() => document.activeElement.ariaLabel") == "weight of cnn-small"
    assert page.evaluate(OVERFLOW) == [0, 0]
    box = page.locator(".tsnb-weights").bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= width
    field.fill("0")
    go = page.get_by_role("button", name="Set", exact=True)
    assert go.get_attribute("title") == "Set: not now, enter a number above 0 for resnet10"
    field.fill("2.5")
    host.settle()
    assert field.input_value() == "2.5", "what is being typed stays, whatever a tick says"
    assert page.evaluate(CONTRAST) == []
    field.press("Enter")
    assert page.evaluate("() => window.sent.at(-1)") == {
        "op": "balance",
        "pacing": "weights",
        "weights": {"resnet10": 2.5},
    }
    assert opens.evaluate("node => node === document.activeElement")
    host.hear(Message({"op": "refused", "what": "balance", "name": "", "why": "one has died"}))
    host.settle()
    assert opens.is_hidden(), "the mode is what it was"
    latest = host.tape.latest
    assert latest
    host.feed(replace(latest, time_s=latest.time_s + 1, pacing="weights", weights={"resnet10": 3.0}))
    host.settle()
    opens.click()
    assert field.input_value() == "3"
    keys.press("Escape")
    assert field.is_hidden() and opens.evaluate("node => node === document.activeElement")
    assert not host.errors
