"""Every text of the panel is whole at each width that a notebook has, and no control stands alone in a line."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import ARTIFACTS
from tests.browser.drawn import RECORDS
from tests.browser.host import Host
from tests.browser.test_panel_page import CUT, OVERFLOW
from tests.panel.streams import Stream, Trial
from tsnb.panel.tape import Message, Tape
from tsnb.telemetry.readings import StreamReading
from tsnb.text.numbers import metric

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WIDTHS = (1400, 1190, 933, 921, 900, 840, 793, 700, 620, 532, 413, 360)
"""With those that a zoom of 150 % makes of 1400, 1190 and 620: for a page, a zoom is a narrower window."""

HIDDEN = """() => [...document.querySelectorAll('.tsnb-panel *')].filter((node) => {
  const css = getComputedStyle(node);
  return node.getClientRects().length && css.visibility !== 'hidden' && !node.closest('.tsnb-unseen, svg')
    && css.overflowX === 'hidden' && css.textOverflow === 'ellipsis' && node.clientWidth > 1 && node.innerText
    && node.scrollWidth > node.clientWidth + 1;
}).map((node) => node.className + ': ' + node.innerText)"""

CUT_NUMBERS = """() => [...document.querySelectorAll('.tsnb-trials td.tsnb-c-metric')].flatMap((cell) => {
  const number = cell.querySelector('.tsnb-best'), spark = cell.querySelector('.tsnb-spark');
  if (!number || !number.getClientRects().length || getComputedStyle(cell).visibility === 'hidden') return [];
  const box = number.getBoundingClientRect(), around = cell.getBoundingClientRect();
  const start = spark && spark.getClientRects().length ? spark.getBoundingClientRect().right : around.left;
  const cut = Math.max(number.scrollWidth - number.clientWidth, cell.scrollWidth - cell.clientWidth);
  const over = Math.max(box.right - around.right, start - box.left, cut);
  return over > 0.5 ? [`${number.innerText}: ${over} px of ${around.width}`] : [];
})"""

BROKEN = """() => [...document.querySelectorAll('.tsnb-panel .tsnb-pair')]
  .filter((node) => getComputedStyle(node).whiteSpace === 'nowrap' && getComputedStyle(node).display === 'inline'
    && node.getClientRects().length > 1).map((node) => node.innerText)"""

LINES = """() => {
  const all = [...document.querySelectorAll('.tsnb-tools :is(.tsnb-section, .tsnb-tool)')];
  const middles = all.filter((one) => one.getClientRects().length)
    .map((one) => one.getBoundingClientRect()).map(({ top, bottom }) => (top + bottom) / 2).sort((a, b) => a - b);
  const lines = [];
  middles.forEach((y, k) => k && y - middles[k - 1] < 10 ? lines.push(lines.pop() + 1) : lines.push(1));
  return lines;
}"""

HIGH = """() => document.querySelector('.tsnb-header').offsetHeight"""

MET = """() => {
  const texts = '.tsnb-name, .tsnb-word, .tsnb-value, .tsnb-actions, .tsnb-pair > .tsnb-soft';
  const told = [...document.querySelectorAll(`.tsnb-header :is(${texts})`)]
    .filter((one) => one.innerText && getComputedStyle(one).visibility !== 'hidden');
  const boxes = told.flatMap((one) => [...one.getClientRects()].map((box) => [one, box]));
  const apart = (one, other) => !one.contains(other) && !other.contains(one);
  const wide = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left);
  const high = (a, b) => Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
  const meets = ([one, a], [other, b]) => apart(one, other) && wide(a, b) > 1 && high(a, b) > 4;
  return boxes.flatMap((one, k) => boxes.slice(k + 1).filter((other) => meets(one, other))
    .map((other) => one[0].innerText + ' | ' + other[0].innerText));
}"""

CUT_OFF = """(all) => all.filter((one) => one.innerText && getComputedStyle(one).overflowX !== 'visible'
  && one.scrollWidth > one.clientWidth + 1).map((one) => one.innerText)"""

SCROLLS = """() => {
  const box = document.querySelector('.tsnb-scroll');
  return box.scrollHeight - box.clientHeight;
}"""


def stream_of(count: int, seed: int) -> Stream:
    """Return a stream with so many trials: of some by name, of many as a sweep names them."""
    random.seed(seed)
    if count <= 3:
        names = ("mlp", "small-cnn", "wide-cnn")[:count]
        return Stream([Trial(name, 0.02 + 0.04 * k) for k, name in enumerate(names)])
    grid = itertools.product(
        [8, 64, 256, 1024, 4096], [0.0003, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.1]
    )
    return Stream(
        [
            Trial(f"train-lr{rate}-width{width}", random.uniform(0.02, 0.1))
            for width, rate in list(grid)[:count]
        ]
    )


def planned(readings: Iterator[StreamReading]) -> Iterator[StreamReading]:
    """Yield readings of trials whose loops say that they take 600 epochs."""
    for reading in readings:
        yield replace(reading, consumers=tuple(replace(one, planned=600) for one in reading.consumers))


def shown(browser: Browser, count: int, streams: int, theme: str) -> tuple[Host, list[Tape]]:
    """Return a page with a panel of so many trials on so many streams, with a notebook's buttons, and its tapes."""
    host, params = Host(browser, WIDTHS[0], theme), {}
    tapes: list[Tape] = []
    for k, name in enumerate(("train", "validation")[:streams]):
        stream, tape = stream_of(count, k), Tape(name)
        stream.name = name
        tape.allow(interrupt=True, report=True)
        for reading in planned(stream.run(30)):
            tape.feed(reading)
        tapes.append(tape)
        for trial in stream.trials:
            if "-lr" in trial.name:
                rate, _, width = trial.name.removeprefix("train-lr").partition("-width")
                params[trial.name] = [["lr", rate], ["width", width]]
    if streams > 1:
        host.open_several(tapes)
    else:
        host.tape = tapes[0]
        host.open()
    host.hear(Message({"op": "params", "trials": params, "verdicts": {}, "changes": {}, "sweeps": {}}))
    host.settle()
    return host, tapes


@pytest.mark.parametrize(
    ("count", "streams", "theme"),
    [(1, 1, "light"), (3, 1, "dark"), (9, 1, "light"), (50, 1, "dark"), (3, 2, "light"), (9, 2, "dark")],
)
def test_every_text_is_whole_at_each_width(browser: Browser, count: int, streams: int, theme: str) -> None:
    """No text is cut or broken in its midst, nothing sticks out, and lines of tools are filled."""
    (host, tapes), wrong = shown(browser, count, streams, theme), []
    for width in WIDTHS:
        host.page.set_viewport_size({"width": width, "height": 700})
        for at, tape in enumerate(tapes):
            latest = tape.latest
            assert latest is not None
            message = tape.feed(replace(latest, time_s=latest.time_s + 1))  # else its data is old
            host.hear(replace(message, content={**message.content, "at": at}))
        host.page.wait_for_timeout(
            1200
        )  # names are cut anew when it draws next, with many curves once a second
        host.shot(ARTIFACTS / f"panel-whole-{count}-{streams}-{width}.png")
        lines = host.page.evaluate(LINES)
        faults = {
            "sticks out": host.page.evaluate(OVERFLOW) != [0, 0],
            "is cut": host.page.evaluate(CUT) + host.page.evaluate(HIDDEN),
            "is broken": host.page.evaluate(BROKEN),
            "stands alone": len(lines) > 1 and min(lines) == 1,
            "tools in two lines": width >= 840 and count < 9 and len(lines) > 1,
            "texts meet": host.page.evaluate(MET),
            "header in two lines": width >= 880 and host.page.evaluate(HIGH) >= 40,
            "few rows scroll": count < 13 and host.page.evaluate(SCROLLS) > 0,
        }
        wrong += [(width, fault, what) for fault, what in faults.items() if what]
    assert not wrong, "\n".join(map(str, wrong))
    assert not host.errors


def test_what_a_sweep_has_come_to_is_whole_at_each_width(browser: Browser) -> None:
    """Its best trial was cut off where the panel was narrow, without a tooltip."""
    host, _ = shown(browser, 9, 1, "light")
    trials = [trial.name for trial in stream_of(9, 0).trials]
    sweeps = dict.fromkeys(trials[:5], "a-sweep-of-rates")
    host.hear(Message({"op": "params", "trials": {}, "verdicts": {}, "changes": {}, "sweeps": sweeps}))
    heads = host.page.locator(".tsnb-group .tsnb-fold")
    for width in (1400, 921, 500, 400, 340):
        host.page.set_viewport_size({"width": width, "height": 700})
        host.settle()
        assert heads.count() and heads.evaluate_all(CUT_OFF) == [], width
    assert not host.errors


@pytest.mark.parametrize("name", ["three", "cifar10-augmented"])
def test_the_header_is_whole_at_every_width(browser: Browser, name: str) -> None:
    """Not only where layouts change: no text meets another or is cut, with all that a header can tell."""
    host, wrong, stream = Host(browser, 1400), [], stream_of(3, 0)
    host.tape, stream.name = Tape(name), name
    host.tape.allow(interrupt=True, report=True)
    host.open(planned(stream.run(40)))
    host.page.locator(".tsnb-told").wait_for()
    host.settle()
    for width in range(1400, 359, -9):
        host.page.set_viewport_size({"width": width, "height": 700})
        cut = [text for text in host.page.evaluate(HIDDEN) if text.startswith("tsnb-name:")]
        for _ in range(20):  # charts follow with the next drawing
            if (over := host.page.evaluate(OVERFLOW)) == [0, 0]:
                break
            host.page.wait_for_timeout(100)
        met = host.page.evaluate(MET)
        wrong += [(width, cut, met, over)] if cut or met or over != [0, 0] else []
    assert not wrong, "\n".join(map(str, wrong))
    assert not host.errors


@pytest.mark.parametrize("params", [{}, {"lr": "0.001", "width": "64"}], ids=["plain", "parameters"])
def test_the_longest_state_and_a_place_far_behind_are_whole_at_each_width(
    browser: Browser, params: dict[str, str]
) -> None:
    """Also beside the drawer. The bar of a place is as wide as its track: else the needle points beside it."""
    host, wrong = Host(browser, WIDTHS[0]), []
    host.open(stream_of(3, 0).run(30))
    latest = host.tape.latest
    assert latest is not None
    trials = {one.name: [[*pair] for pair in params.items()] for one in latest.consumers}
    host.hear(Message({"op": "params", "trials": trials, "verdicts": {}, "changes": {}, "sweeps": {}}))
    states = ("between epochs", "sets the pace", "held back")
    consumers = tuple(
        replace(one, state=state, lag=141 * (k == 0), fill=7 + 141 * (k == 0))
        for k, (one, state) in enumerate(zip(latest.consumers, states, strict=True))
    )
    for drawer in (False, True):
        if drawer:
            host.page.locator(".tsnb-trials .tsnb-open").first.click()
        for width in WIDTHS:
            host.page.set_viewport_size({"width": width, "height": 700})
            for _ in range(8):  # a state that lasts is named
                latest = replace(latest, time_s=latest.time_s + 1, consumers=consumers)
                host.feed(latest)
            host.page.wait_for_timeout(500)
            cut = host.page.evaluate(CUT) + host.page.evaluate(HIDDEN)
            wrong += [(width, drawer, cut)] if cut else []
    assert not wrong, "\n".join(map(str, wrong))
    assert not host.errors


def test_a_number_is_written_alike_wherever_it_stands(browser: Browser) -> None:
    """In its row as in reports and tables, whatever stands above and below it; parameters of a column alike."""
    host, _ = shown(browser, 9, 1, "light")
    latest = host.tape.latest
    assert latest is not None
    values = [0.00078, 0.039, 0.5, 1.25, 0.0, 2.0, 0.0044, 0.00003, 3.7e-9]
    consumers = tuple(
        replace(one, metrics={**one.metrics, "loss": value})
        for one, value in zip(latest.consumers, values, strict=True)
    )
    host.feed(replace(latest, time_s=latest.time_s + 2, consumers=consumers))
    host.page.wait_for_timeout(1200)
    told = host.page.locator(".tsnb-trials tbody td.tsnb-c-metric").all_inner_texts()[::2]
    assert [text.removeprefix("★").strip() for text in told] == [metric("loss", value) for value in values]
    rates = host.page.locator(".tsnb-trials tbody td.tsnb-c-param-1").all_inner_texts()
    assert rates[0] == "0.0003" and not any("e" in rate for rate in rates), rates


@pytest.mark.parametrize("count", [3, 9])
@pytest.mark.parametrize("values", [(0.00014, 0.00051, 0.00044), (0.9999, 0.9998, 0.9997)])
def test_a_number_of_many_digits_is_whole_with_its_star(
    browser: Browser, count: int, values: tuple[float, ...]
) -> None:
    """Beside its small curve, with parameters in the row and without; "100.0 %" was cut between the usual widths."""
    host, _ = shown(browser, count, 1, "light")
    latest = host.tape.latest
    assert latest is not None
    small = dict(zip((one.name for one in latest.consumers), values, strict=False))
    consumers = tuple(
        replace(one, metrics=dict.fromkeys(one.metrics, small.get(one.name, 0.5))) for one in latest.consumers
    )
    host.feed(replace(latest, time_s=latest.time_s + 2, consumers=consumers))
    host.page.wait_for_timeout(1200)
    wrong = []
    for width in (1330, 1260, 1220, 1160, 1120, 1090, 1060, *WIDTHS):
        host.page.set_viewport_size({"width": width, "height": 700})
        host.page.wait_for_timeout(300)
        wrong += [(width, cut) for cut in host.page.evaluate(CUT_NUMBERS)]
    assert not wrong, "\n".join(map(str, wrong))


ON_CHARTS = """() => [...document.querySelectorAll('.tsnb-plot canvas')].map((canvas) => {
  const texts = (canvas.drawn || []).filter((one) => one.text), pen = canvas.getContext('2d');
  const wide = canvas.clientWidth, bold = `600 ${pen.font.replace(/^600 /, '')}`;
  const ends = texts.filter(({ x }) => x > wide * 0.5).map(({ text, x }) => {
    pen.save(); pen.font = bold;
    const end = x + pen.measureText(text).width;
    pen.restore();
    return [text, end];
  });
  return [wide, ends];
})"""


@pytest.mark.parametrize("width", [1400, 1190, 933, 921, 620, 532, 360])
def test_a_long_name_is_cut_in_one_way_and_at_no_edge(browser: Browser, width: int) -> None:
    """Row, charts, strip and sentence call a trial the same, as long as its row has room for."""
    name = "three-with-a-rather-long-name"
    host = Host(browser, width)
    host.view = None
    host.page.evaluate(RECORDS)
    stream = Stream([Trial("one", 0.02), Trial("two", 0.03), Trial(name, 0.2)], batch_s=0.01)
    host.open(stream.run(40))
    for reading in stream.run(2):
        host.feed(reading)
    host.settle()
    host.shot(ARTIFACTS / f"panel-long-name-{width}.png")
    short = host.page.locator(".tsnb-trials .tsnb-open").last.inner_text()
    assert (short == name) == (width >= 1300), short
    charts = host.page.evaluate(ON_CHARTS)
    assert len(charts) == 2
    for wide, texts in charts:
        called = [text for text, _ in texts if text.startswith("three")]
        assert called == [short] or (len(short) > 16 and len(called[0]) < len(short)), (called, short)
        assert all(end <= wide for _, end in texts), texts
    assert host.page.locator(".tsnb-say b").inner_text() == f"{short} sets the pace."
    lag = host.page.locator(".tsnb-cell", has_text="Lag").locator(".tsnb-cell-words").inner_text()
    assert lag.endswith(f"behind: {short}"), lag
    assert host.page.evaluate(HIDDEN) == []
    assert host.page.evaluate(OVERFLOW) == [0, 0]
