"""The panel where it is used hard: numbers that are none, long names, the keyboard alone, twenty streams."""

from __future__ import annotations

import io
import math
import random
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from rich.console import Console

from benchmarks.panel import page_day
from tests.browser.chromium import ARTIFACTS
from tests.browser.host import Host
from tests.browser.test_panel_page import CONTRAST, CUT, OVERFLOW
from tests.panel.streams import Stream, Trial, three_models
from tsnb.panel.tape import Message, Tape
from tsnb.show.view_text import as_text
from tsnb.show.words import flow
from tsnb.telemetry.readings import EndReading, StreamReading
from tsnb.top.view import screen

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def logs(reading: StreamReading, **metrics: dict[str, float]) -> StreamReading:
    """Return a reading whose trials have logged these numbers, as it comes over the wire."""
    consumers = tuple(
        replace(c, metrics={**c.metrics, **metrics.get(c.name.replace("-", "_"), {})})
        for c in reading.consumers
    )
    return StreamReading.from_json(replace(reading, consumers=consumers).to_json(brief=True))


@pytest.mark.parametrize("seconds", [12, 60, 90])
def test_the_strip_says_the_words_of_status_and_of_top(browser: Browser, seconds: int) -> None:
    """Every fact of the flow, and every trial's state: while some join, in full run, and with one parked."""
    host = Host(browser, 1200)
    host.open(three_models().run(seconds))
    view = host.tape.view
    status = as_text(view, "stream mnist")
    console = Console(width=200, file=io.StringIO(), color_system=None)
    console.print(screen(view, 200))
    assert isinstance(console.file, io.StringIO)
    top = console.file.getvalue()
    titles = host.page.locator(".tsnb-cell-head > span:first-child").all_text_contents()
    said = host.page.locator(".tsnb-cell-words").all_text_contents()
    assert titles == ["Buffer", "Lag", "Speed", "Share of compute"] and all(map(str.strip, said))
    for title, words in zip(titles, said, strict=True):
        assert f"{title.lower()} {words}" in status
        assert f"{title.lower()} {words}" in " ".join(top.split())
    names = host.page.locator(".tsnb-trials .tsnb-open").all_text_contents()
    states = host.page.locator(
        ".tsnb-trials tbody > tr:first-child .tsnb-c-state > span:last-child"
    ).all_text_contents()
    assert len(names) == len(states) >= 3
    for name, state in zip(names, states, strict=True):
        assert any(line.startswith(f"{name} ") and f" {state} " in line for line in status.splitlines())
        assert any(line.startswith(f"■ {name} ") and f" {state} " in line for line in top.splitlines())


INKED = """() => [...document.querySelectorAll('.tsnb-plot canvas')].map((canvas) => {
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let inked = 0;
  for (let k = 0; k < data.length; k += 4) {
    const [r, g, b, a] = data.subarray(k, k + 4);
    inked += a > 0 && Math.max(r, g, b) - Math.min(r, g, b) > 40;
  }
  return inked;
})"""


def test_numbers_that_are_none_are_shown_as_such_and_are_never_the_best(browser: Browser) -> None:
    """Logged live, in a page that opens later, and as the last of one that has ended; the other curves go on."""
    host, stream = Host(browser, 1200), three_models()
    host.open(stream.run(30))
    ink = host.page.evaluate(INKED)
    for reading in stream.run(2):
        last = logs(reading, cnn_small={"loss": math.nan}, resnet10={"loss": math.inf, "accuracy": -math.inf})
        host.feed(last)
    again = host.tape.feed(replace(last, time_s=last.time_s + 0.1)).frame
    assert len(host.tape.feed(replace(last, time_s=last.time_s + 0.2)).frame) <= len(again), (
        "nan is told once"
    )
    late = Host(browser, 1200)
    late.tape = host.tape
    late.open()
    for one in (host, late):
        one.settle()
        rows = {
            name: one.page.locator(".tsnb-trials tbody", has_text=name).first.locator(".tsnb-c-metric")
            for name in ("cnn-small", "resnet10")
        }
        assert [cells.first.inner_text() for cells in rows.values()] == ["nan", "inf"]
        assert rows["resnet10"].last.inner_text() == "-inf"
        assert not one.page.locator(".tsnb-best", has_text="nan").count()
        assert not one.page.locator(".tsnb-best", has_text="inf").count()
        assert all(now > 0.5 * before for now, before in zip(one.page.evaluate(INKED), ink, strict=True))
        assert not one.errors
    assert (
        host.tape.view.best["loss"].startswith("resnet18") and host.tape.view.best["accuracy"] != "resnet10"
    )
    host.shot(ARTIFACTS / "panel-not-finite.png")
    end = EndReading(
        "cnn-small", "failed", last.time_s + 9, 1000, "ValueError: loss is nan", {"loss": math.nan}
    )
    host.feed(replace(last, time_s=last.time_s + 1, consumers=last.consumers[1:], ends=(end,)))
    host.settle()
    row = host.page.locator(".tsnb-trials tbody", has_text="cnn-small").first
    expect(row.locator(".tsnb-c-metric").first).to_have_text("nan")
    assert "loss nan" in as_text(host.tape.view, "stream")
    assert not host.errors


@pytest.mark.parametrize("width", [1200, 620])
def test_names_of_64_letters_can_be_told_apart(browser: Browser, width: int) -> None:
    """They differ at their end, in the middle, or at their beginning; nothing is cut or pushed, all is said in full."""
    alike = "a-very-long-name-of-a-trial-that-says-all-of-its-parameters-lr"
    names = [alike + "01", alike + "02", alike[:30] + "X" + alike[31:] + "01", "b" + alike[1:] + "01"]
    assert {len(name) for name in names} == {64}
    host = Host(browser, width)
    random.seed(5)
    host.open(Stream([Trial(name, 0.02 + 0.01 * k) for k, name in enumerate(names)]).run(20))
    shown = host.page.locator(".tsnb-trials .tsnb-open")
    texts = shown.all_inner_texts()
    assert len(set(texts)) == 4 and max(map(len, texts)) < 40
    assert (
        shown.evaluate_all("all => all.map(one => one.getAttribute('aria-label') || one.textContent)")
        == names
    )
    assert host.page.evaluate(OVERFLOW) == [0, 0]
    cut = host.page.evaluate(CUT)
    assert [text for text in cut if text not in texts] == [], cut
    assert cut == []
    plain = Host(browser, width)
    random.seed(5)
    plain.open(Stream([Trial(name, 0.02 + 0.01 * k) for k, name in enumerate("abcd")]).run(20))
    tall = "() => [...document.querySelectorAll('.tsnb-trials tbody')].map(one => one.offsetHeight)"
    assert host.page.evaluate(tall) == plain.page.evaluate(tall), "rows are as high as those of short names"
    host.shot(ARTIFACTS / f"panel-long-names-{width}.png")
    assert not host.errors


WALK = """() => {
  const at = document.activeElement, box = at.getBoundingClientRect(), css = getComputedStyle(at);
  if (at === document.body) return null;
  const ring = (css.outlineStyle !== 'none' && parseFloat(css.outlineWidth) > 0) || css.boxShadow !== 'none';
  const all = [...document.querySelectorAll('.tsnb-panel *')];
  return {at: all.indexOf(at), name: at.getAttribute('aria-label') || at.innerText || at.title || at.tagName, ring,
    seen: box.width > 0 && box.height > 0 && css.visibility !== 'hidden', y: box.top + scrollY};
}"""


def walked(host: Host, back: bool = False) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for _ in range(200):
        host.page.keyboard.press("Shift+Tab" if back else "Tab")
        at = host.page.evaluate(WALK)
        if at is None or any(at["at"] == one["at"] for one in found):
            break  # round once
        found.append(at)
    return found


def test_all_of_it_is_reached_and_worked_by_keyboard(browser: Browser) -> None:
    """Tab goes through all controls in the order in which they stand, each with a ring; Escape closes what is open."""
    host = Host(browser, 1200)
    host.tape.allow(interrupt=True, report=True)
    host.open(three_models().run(40))
    page = host.page
    steps = walked(host)
    assert len(steps) > 15 and len({step["at"] for step in steps}) == len(steps), "no trap"
    assert [step["name"] for step in steps if not (step["ring"] and step["seen"])] == []
    assert [step["at"] for step in steps] == sorted(step["at"] for step in steps), "as they stand in the page"
    controls = page.evaluate("""() => {
      const all = [...document.querySelectorAll('.tsnb-panel *')];
      const control = 'button, select, input, [role=slider], [role=tab]';
      return all.map((one, at) => [one, at]).filter(([one]) => one.matches(control)
        && one.getClientRects().length && getComputedStyle(one).visibility !== 'hidden' && !one.disabled)
        .map(([one, at]) => [at, one.getAttribute('aria-label') || one.innerText || one.title]);
    }""")
    reached = {step["at"] for step in steps}
    table = page.evaluate("""() => {
      const all = [...document.querySelectorAll('.tsnb-panel *')];
      return [...document.querySelectorAll('.tsnb-trials button')].map((one) => all.indexOf(one));
    }""")
    assert len(reached & set(table)) == 1, "one stop: arrows move in the table"
    reached |= set(table)
    assert [name for at, name in controls if at not in reached] == []
    assert [step["at"] for step in walked(host, back=True)] == [step["at"] for step in reversed(steps)]
    opener = page.locator(".tsnb-trials .tsnb-open").first
    opener.focus()
    page.keyboard.press("Enter")
    page.locator(".tsnb-drawer").wait_for()
    page.keyboard.press("Escape")
    expect(page.locator(".tsnb-drawer")).to_be_hidden()
    expect(opener).to_be_focused()
    menu = page.get_by_role("button", name="loss, accuracy")
    menu.focus()
    page.keyboard.press("Enter")
    page.locator(".tsnb-learning .tsnb-menu").wait_for()
    page.keyboard.press("Escape")
    expect(page.locator(".tsnb-learning .tsnb-menu")).to_be_hidden()
    expect(menu).to_be_focused()
    stop = page.get_by_role("button", name="Stop cnn-small")
    stop.focus()
    page.keyboard.press("Enter")
    assert not page.evaluate("() => window.sent.some(({op}) => op === 'stop')"), "it asks"
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert not page.evaluate("() => window.sent.some(({op}) => op === 'stop')")
    assert not host.errors


def test_a_panel_without_trials_is_compared_with_none(browser: Browser) -> None:
    """Its box was empty."""
    host = Host(browser)
    first = next(iter(Stream([Trial("fast", 0.02)]).run(1)))
    host.tape.feed(replace(first, consumers=()))
    host.open()
    assert host.page.get_by_label("compare with").locator("option:checked").inner_text() == "none"


def test_the_difference_to_a_chosen_trial_is_that_after_the_same_batches(browser: Browser) -> None:
    """Numbers that are known: one is always 0.25 below the other after as many batches, at another pace."""
    host = Host(browser, 1200)
    random.seed(1)
    stream = Stream([Trial("fast", 0.02), Trial("slow", 0.05)])
    for reading in stream.run(40):
        host.tape.feed(
            replace(
                reading,
                consumers=tuple(
                    replace(c, metrics={"loss": 9 - c.batches / 1000 - 0.25 * (c.name == "fast")})
                    for c in reading.consumers
                ),
            )
        )
    host.open()
    page = host.page
    page.get_by_label("compare with").select_option("slow")
    host.settle()
    assert page.locator(".tsnb-learned figcaption").all_inner_texts() == [
        "loss minus that of slow, at the same batch"
    ]
    chart = page.get_by_role("img", name="loss minus that of")
    chart.focus()
    page.keyboard.press("Home")
    for key in ("Shift+ArrowRight", "Shift+ArrowRight", "End"):
        page.keyboard.press(key)
        told = page.locator(".tsnb-readout:visible").inner_text().split("\n")
        assert "slow" not in told and told[-2] == "fast"
        assert float(told[-1].split()[0]) == pytest.approx(-0.25, abs=1e-6), told
    page.get_by_label("compare with").select_option("fast")
    host.settle()
    page.keyboard.press("Escape")
    page.get_by_role("img", name="loss minus that of").focus()
    page.keyboard.press("End")
    assert "+0.250" in page.locator(".tsnb-readout:visible").inner_text()
    assert not host.errors


def test_memory_of_page_and_kernel_is_flat_over_a_day(browser: Browser) -> None:
    """A page that is open all the time, a reading a second: no more after a day than after a quarter of it."""
    day = page_day(browser, 3, 86_400)
    assert len(day["heap"]) == len(day["objects"]) == 4
    first, *_, last = day["heap"]
    # 64,800 readings lie between them: what stays of one has fewer than 40 bytes, and a number alone would have 8
    assert last < first + 2.5, day
    _, second, *_, last = day["objects"]
    assert last < second + 43_200, day  # not one object of a reading stays


def several(host: Host, count: int, trials: int = 3) -> tuple[list[Tape], list[Stream]]:
    """Show a panel of so many streams, each with the same trials."""
    tapes, streams = [], []
    for k in range(count):
        stream = three_models(k)
        stream.name, stream.trials = f"part-{k}", stream.trials[:trials]
        tape = Tape(stream.name)
        for reading in stream.run(12):
            tape.feed(reading)
        tapes.append(tape)
        streams.append(stream)
    host.open_several(tapes)
    return tapes, streams


def tell(host: Host, tape: Tape, at: int, reading: StreamReading) -> None:
    """One reading of one of several streams, as the kernel sends it."""
    message = tape.feed(reading)
    host.hear(replace(message, content={**message.content, "at": at}))


OVERLAP = """() => {
  const all = [...document.querySelectorAll('.tsnb-heads :is(select, button, .tsnb-say, .tsnb-looks > span)')]
    .filter(one => one.getClientRects().length && one.textContent.trim())
    .map(one => [one, one.getBoundingClientRect()]);
  return all.flatMap(([a, x], k) => all.slice(k + 1).filter(([b, y]) => !a.contains(b) && !b.contains(a)
    && Math.min(x.right, y.right) - Math.max(x.left, y.left) > 1
    && Math.min(x.bottom, y.bottom) - Math.max(x.top, y.top) > 1)
    .map(([b]) => [a.textContent, b.textContent]));
}"""


@pytest.mark.parametrize(("width", "theme", "high"), [(1200, "light", 1500), (600, "dark", 2200)])
def test_twenty_streams_are_one_panel(browser: Browser, width: int, theme: str, high: int) -> None:
    """One flow is shown, with its large charts; the list has all; the same trial on all of them is one row."""
    host = Host(browser, width, theme)
    tapes, streams = several(host, 20)
    page = host.page
    heads, strips = page.locator(".tsnb-name:visible"), page.locator(".tsnb-strip-name:visible")
    expect(heads).to_have_text(["part-0"])
    chosen = page.get_by_label("stream", exact=True)
    options = chosen.locator("option").all_text_contents()
    assert [option.replace("▲ ", "").split(" · ")[0] for option in options] == [
        f"part-{k}" for k in range(20)
    ]
    assert all(len(option.split(" · ")[1]) > 5 for option in options), "each says its sentence's lead"
    names = page.locator(".tsnb-trials .tsnb-open")
    assert names.evaluate_all("all => all.map(one => one.getAttribute('aria-label') || one.textContent)") == [
        trial.name for trial in streams[0].trials
    ]
    assert page.locator(".tsnb-canvas canvas:visible").count() == 4
    assert page.evaluate("() => document.querySelector('.tsnb-panel').offsetHeight") <= high
    chosen.select_option("part-19")
    expect(heads).to_have_text(["part-19"])
    expect(strips).to_have_text(["part-19"])
    assert host.chosen()["stream"] == "part-19"
    for reading in streams[19].run(1):
        tell(host, tapes[19], 19, reading)
    host.settle()
    words = page.locator(".tsnb-cell-words:visible").all_text_contents()
    assert words == list(flow(tapes[19].view).values())
    drawn = page.locator(".tsnb-canvas canvas:visible")
    assert drawn.count() == 4
    assert all(box > 100 for box in drawn.evaluate_all("all => all.map(one => one.clientWidth)"))
    page.get_by_role("button", name="details").click()
    host.settle()
    assert page.locator(".tsnb-paces:visible").count() == 1
    page.get_by_role("button", name="details").click()
    host.settle()
    assert page.evaluate(OVERFLOW) == [0, 0]
    assert page.evaluate(OVERLAP) == []
    assert page.evaluate(CONTRAST) == []
    assert len(page.evaluate("() => window.sent")) <= 1, "nothing was missed: a page says hello once"
    host.shot(ARTIFACTS / f"panel-twenty-{width}.png")
    again = Host(browser, width, theme)
    again.view = host.chosen()
    again.open_several(tapes)
    expect(again.page.locator(".tsnb-name:visible")).to_have_text(["part-19"])
    expect(again.page.locator(".tsnb-strip-name:visible")).to_have_text(["part-19"])
    assert not host.errors and not again.errors


@pytest.mark.parametrize(("width", "theme"), [(1200, "dark"), (600, "light")])
def test_trouble_in_a_stream_that_is_not_shown_is_told_and_leads_there(
    browser: Browser, width: int, theme: str
) -> None:
    """By the keyboard alone: the list changes the stream, the line names those that need a look, Enter goes there."""
    host = Host(browser, width, theme)
    page = host.page
    page.evaluate(
        "() => { performance.now = () => 1000; }"
    )  # however slow this test is, no stream is silent for long
    tapes, streams = several(host, 6)
    line, chosen = page.locator(".tsnb-looks"), page.get_by_label("stream", exact=True)
    expect(line).to_have_text("6 streams, none needs attention")
    top = page.evaluate("() => document.querySelector('.tsnb-flow-head:not([hidden])').offsetTop")
    for at in (2, 4):
        (last,) = list(streams[at].run(0.25))
        tell(host, tapes[at], at, replace(last, state="failed", failure=f"ValueError: broken image {at}"))
    expect(line).to_contain_text("2 of 6 streams need attention:")
    expect(page.locator(".tsnb-look:visible")).to_have_text(["part-2", "part-4"])
    expect(page.locator(".tsnb-chooser [role=status]")).to_have_text(
        "2 of 6 streams need attention: part-2, part-4"
    )
    marked = [text for text in chosen.locator("option").all_text_contents() if text.startswith("▲ ")]
    assert [text.split(" · ")[0] for text in marked] == ["▲ part-2", "▲ part-4"]
    assert [text.split(" · ")[1] for text in marked] == ["The loader failed"] * 2
    if width == 1200:
        at = page.evaluate("() => document.querySelector('.tsnb-flow-head:not([hidden])').offsetTop")
        assert at == top, "nothing below moves when trouble comes"
    assert (
        page.evaluate(OVERFLOW) == [0, 0] and page.evaluate(OVERLAP) == [] and page.evaluate(CONTRAST) == []
    )
    chosen.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".tsnb-name:visible")).to_have_text(["part-1"])
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".tsnb-name:visible")).to_have_text(["part-4"])
    expect(page.locator(".tsnb-say:visible")).to_contain_text("broken image 4")
    expect(chosen).to_have_value("part-4")
    expect(page.locator(".tsnb-look:visible").nth(1)).to_be_focused()
    host.shot(ARTIFACTS / f"panel-trouble-{width}.png")
    for at in (0, 1, 3, 5):
        (last,) = list(streams[at].run(0.25))
        tell(host, tapes[at], at, replace(last, state="failed", failure="ValueError: broken image"))
    expect(line).to_have_text("6 of 6 streams need attention:part-0part-1part-2and 3 more")
    assert page.evaluate(OVERFLOW) == [0, 0] and page.evaluate(OVERLAP) == []
    expect(page.locator(".tsnb-name:visible")).to_have_text(["part-4"])
    assert not host.errors


@pytest.mark.parametrize("count", [2, 20])
def test_of_several_streams_the_one_that_is_chosen_is_shown(browser: Browser, count: int) -> None:
    """Training and validation, or twenty: one screen of a laptop with its large charts closed."""
    host = Host(browser, 1200)
    host.view = {}
    several(host, count)
    page = host.page
    expect(page.locator(".tsnb-name:visible")).to_have_text(["part-0"])
    high = "() => document.querySelector('.tsnb-panel').offsetHeight"
    closed = page.evaluate(high)
    assert closed <= 800
    page.get_by_label("stream", exact=True).select_option("part-1")
    expect(page.locator(".tsnb-name:visible")).to_have_text(["part-1"])
    assert abs(page.evaluate(high) - closed) <= 20, "the sentence may have a line more"
    page.locator(".tsnb-cell:visible").first.click()
    host.settle()
    assert page.locator(".tsnb-cell-curve:visible").count() == 0, "the large chart has it"
    assert page.evaluate(high) - closed <= 140, "a row of charts, and no more"
    host.shot(ARTIFACTS / f"panel-chosen-{count}.png")
    assert not host.errors


def test_the_best_is_in_sight_and_what_folds_stands_below_its_own_sweep(browser: Browser) -> None:
    """Two sweeps have ended: the best have their rows, though they ended first, and so has one whose drawer is open."""
    host, names = Host(browser, 1200), [f"s-{k:02}" for k in range(11)] + ["w-16", "w-64"]
    *before, last = Stream([Trial(name, 0.02) for name in names]).run(5)
    ends = tuple(
        EndReading(
            name,
            "done" if k in (0, 11, 12) else "pruned",
            last.time_s + k / 10,
            1000 + k,
            metrics={"loss": 0.1 + k / 10, "accuracy": 0.9 - k / 20},
        )
        for k, name in enumerate(names)
    )
    left = [
        replace(last, time_s=last.time_s + 2 + k, consumers=last.consumers[k:], ends=ends[:k])
        for k in range(14)
    ]
    host.open([*before, *left])
    sweeps = {name: name[0] for name in names}
    host.hear(Message({"op": "params", "trials": {}, "verdicts": {}, "changes": {}, "sweeps": sweeps}))
    page, lines = host.page, host.page.locator(".tsnb-trials tbody")
    expect(page.locator(".tsnb-say")).to_contain_text("s-00 is best")
    shown = [line.split()[0] for line in lines.all_inner_texts()]
    assert shown == ["sweep", "s-00", *names[1:8], "3", "sweep", *names[11:]], lines.all_inner_texts()
    assert lines.nth(1).locator(".tsnb-best").count() == 2
    page.get_by_role("button", name="3 pruned").click()
    lines.filter(has_text="s-09").locator(".tsnb-open").click()
    page.get_by_role("button", name="2 pruned").click()
    expect(lines.filter(has_text="s-09")).to_have_count(1)
    expect(page.get_by_role("button", name="2 pruned")).to_have_count(1)
    assert not host.errors


@pytest.mark.parametrize("width", [360, 620, 900])
def test_a_narrow_row_tells_of_a_failed_trial_too_and_stars_the_best(browser: Browser, width: int) -> None:
    """Its epochs and numbers stand below its error; the best has its star; buttons stay inside, and nothing is cut."""
    host = Host(browser, width)
    *before, last = three_models().run(30)
    bad = last.consumers[0]
    error = EndReading(
        bad.name, "failed", last.time_s + 1, bad.pid, metrics=bad.metrics, error="ValueError: no"
    )
    host.open([*before, replace(last, time_s=last.time_s + 1, consumers=last.consumers[1:], ends=(error,))])
    row = host.page.locator(".tsnb-trials tbody", has_text=bad.name).first
    expect(row.locator(".tsnb-detail")).to_contain_text("ValueError: no")
    expect(row.locator(".tsnb-pair", has_text="epoch")).to_be_visible()
    for name in ("loss", "accuracy"):
        expect(row.locator(".tsnb-pair", has_text=name)).to_be_visible()
        starred = host.page.locator(".tsnb-detail .tsnb-pair", has_text=f"★ {name}")
        expect(starred).to_have_count(1)
        expect(starred).to_be_visible()
    assert host.page.evaluate(CUT) == [] and host.page.evaluate(OVERFLOW) == [0, 0]
    edge = host.page.locator(".tsnb-trials").bounding_box()
    last_button = row.locator(".tsnb-c-action button:visible").last.bounding_box()
    assert edge and last_button
    assert last_button["x"] + last_button["width"] <= edge["x"] + edge["width"] + 0.5
    assert not host.errors


@pytest.mark.parametrize("width", [360, 900])
def test_a_narrow_row_of_a_trial_that_was_queued_keeps_its_parts_apart(browser: Browser, width: int) -> None:
    """Its parameters stand there while it waits; with epochs and numbers later, each is a part of its own."""
    host, stream = Host(browser, width), three_models()
    stream.trials[0].joins_s = 20.0
    name = stream.trials[0].name
    *before, last = stream.run(30)
    waits = [
        replace(one, pending={name: "queued: it starts soon"} if k < 78 else {})
        for k, one in enumerate(before)
    ]
    host.open(waits[:70])
    params = {one.name: [["net", f"cnn-{k}"], ["lr", f"0.{k}"]] for k, one in enumerate(stream.trials)}
    host.hear(
        Message({"op": "params", "trials": params | {name: [["net", "small-cnn-wide"], ["lr", "0.1"]]}})
    )
    host.settle()
    detail = host.page.locator(".tsnb-trials tbody", has_text=name).first.locator(".tsnb-detail")
    expect(detail.locator(".tsnb-pair")).to_have_text(["net small-cnn-wide", "lr 0.1"])
    for one in [*waits[71:], last]:
        host.feed(one)
    host.settle()
    parts = detail.locator(".tsnb-pair").all_text_contents()
    assert parts[:2] == ["net small-cnn-wide", "lr 0.1"] and parts[3].startswith("epoch ")
    assert "   ".join(parts) in detail.text_content() and host.page.evaluate(CUT) == []  # type: ignore[operator]
    assert not host.errors


@pytest.mark.parametrize("width", [931, 1190, 1500])
def test_the_error_of_a_failed_trial_has_all_of_its_line(browser: Browser, width: int) -> None:
    """It was cut where the next column began, beside an empty line; a long one ends at the panel's edge."""
    host = Host(browser, width)
    *before, last = three_models().run(30)
    names = [one.name for one in last.consumers]
    short, long = "ValueError: " + "a word " * 13, "RuntimeError: " + "too long " * 60
    ends = tuple(
        EndReading(name, "failed", last.time_s + 1, one.pid, error=error.strip())
        for name, one, error in zip(names, last.consumers, (short, long), strict=False)
    )
    host.open([*before, replace(last, time_s=last.time_s + 1, consumers=last.consumers[2:], ends=ends)])
    host.hear(Message({"op": "params", "trials": {name: [["lr", "0.1"], ["width", "8"]] for name in names}}))
    host.settle()
    lines = [
        host.page.locator(".tsnb-trials tbody", has_text=name).first.locator(".tsnb-detail-state")
        for name in names[:2]
    ]
    over, long_over = (line.evaluate("(one) => one.scrollWidth - one.clientWidth") for line in lines)
    assert over <= 0 and long_over > 0
    assert host.page.evaluate(OVERFLOW) == [0, 0]
    assert not host.errors


def test_one_trial_that_diverged_flattens_no_other(browser: Browser) -> None:
    """The chart of the others is as high as without it, and its title says who is out of range."""
    host, stream = Host(browser, 1000), three_models()
    stream.trials[1].name = "wild"
    host.open(logs(one, wild={"loss": 2.0 + k * 100}) for k, one in enumerate(stream.run(30)))
    title = host.page.locator(".tsnb-learned figcaption").first
    expect(title).to_contain_text("out of range: wild")
    expect(host.page.locator(".tsnb-learned figcaption").nth(1)).not_to_contain_text("out of range")
    assert not host.errors


def test_a_failed_trial_whose_curve_ends_in_sight_is_not_said_to_be_out_of_range(browser: Browser) -> None:
    """Its first values lie far above the others and leave the chart; its last ones do not."""
    host, stream = Host(browser, 1000), three_models()
    stream.trials[1].name = "wild"
    found = [
        logs(one, wild={"loss": 300.0 if k < 40 else 0.5 + 0.01 * (k % 7)})
        for k, one in enumerate(stream.run(30))
    ]
    last = found[-1]
    (wild,) = (one for one in last.consumers if one.name == "wild")
    end = EndReading(
        "wild", "failed", last.time_s + 1, wild.pid, metrics=wild.metrics, error="ValueError: no"
    )
    here = tuple(one for one in last.consumers if one.name != "wild")
    host.open([*found, replace(last, time_s=last.time_s + 1, consumers=here, ends=(end,))])
    title = host.page.locator(".tsnb-learned figcaption").first
    host.shot(ARTIFACTS / "panel-ends-in-sight.png")
    expect(title).to_contain_text("loss by batch")
    expect(title).not_to_contain_text("out of range")
    assert not host.errors


def test_row_and_drawer_say_the_same_number_and_a_sorted_column_is_sorted(browser: Browser) -> None:
    """At each moment while numbers change: also after a click on the head, which keeps the focus."""
    host, stream = Host(browser, 1500), three_models()
    host.open(stream.run(30))
    page, name = host.page, stream.trials[0].name
    page.locator(".tsnb-trials .tsnb-open", has_text=name).first.click()
    page.locator("th button", has_text="loss").click()
    page.mouse.move(5, 5)
    told = """() => {
      const cells = [...document.querySelectorAll('.tsnb-trials tbody > tr:first-child')];
      const losses = cells.map((row) => row.querySelector('.tsnb-c-metric').innerText.replace('★', '').trim());
      const own = cells.find((row) => row.innerText.includes(NAME)).querySelector('.tsnb-c-metric').innerText;
      const drawer = [...document.querySelectorAll('.tsnb-drawer dt')].find((one) => one.innerText === 'loss');
      const both = [own, drawer.nextElementSibling.innerText];
      return [losses.map(Number), both.map((one) => parseFloat(one.replace('★', '')))];
    }""".replace("NAME", repr(name))
    for reading in stream.run(6):
        host.feed(reading)
        page.wait_for_timeout(120)
        losses, (own, drawer) = page.evaluate(told)
        assert own == pytest.approx(drawer, abs=6e-4), (own, drawer)
        assert losses == sorted(losses)
    assert not host.errors


def test_nothing_lies_below_the_panel(browser: Browser) -> None:
    """A notebook's output scrolls where anything does, also what only a screen reader is told."""
    host = Host(browser, 1000)
    host.open(three_models().run(30))
    below = """(panel) => [...panel.querySelectorAll('*')].filter((one) => one.getClientRects().length
      && one.getBoundingClientRect().bottom > panel.getBoundingClientRect().bottom + 0.5).map((one) => one.className)"""
    assert host.page.locator(".tsnb-panel").evaluate(below) == []


@pytest.mark.parametrize("width", [1500, 785, 440])
def test_no_chart_goes_away_where_the_page_is_narrow_or_a_drawer_is_open(
    browser: Browser, width: int
) -> None:
    """Both charts are there, and what a slider does is said beside it."""
    host = Host(browser, width)
    host.open(three_models().run(30))
    for drawer in (False, True):
        if drawer and width > 960:
            host.page.locator(".tsnb-trials .tsnb-open").first.click()
            host.settle()
        titles = host.page.locator(".tsnb-learned figcaption b").all_inner_texts()
        assert titles == ["loss", "accuracy"]
        expect(host.page.locator("label.tsnb-plain .tsnb-soft", has_text="smooth")).to_be_visible()
        assert host.page.evaluate(CUT) == [] and host.page.evaluate(OVERFLOW) == [0, 0]
    assert not host.errors
