"""The log pane in a bare page: it fills, follows, stays within its bound, and moves nothing."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import ARTIFACTS
from tests.browser.host import Host
from tests.panel.streams import three_models
from tsnb.panel.tape import Message

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TRIALS = [["cnn-small", "running"], ["resnet10", "running"], ["resnet18-wide", "failed"]]
CLOSED = {"can": True, "shown": False, "name": "", "trials": TRIALS}
TRACEBACK = (
    "\x1b[31m---------------------------------------------------------------------------\x1b[39m\n"
    "\x1b[31mValueError\x1b[39m                                Traceback (most recent call last)\n"
    "\x1b[36mTrial resnet10\x1b[39m\x1b[36m, line 7\x1b[39m\n"
    "\x1b[1;32m----> 7\x1b[39m \x1b[38;5;28;01mraise\x1b[39;00m \x1b[38;5;167;01mValueError\x1b[39;00m"
    "(\x1b[33m'the loss is nan'\x1b[39m)\n"
    "\n\x1b[31mValueError\x1b[39m: the loss is nan\n"
)


def part(name: str, start: int, text: str, still_open: str = "", run: str = "1", **more: Any) -> Message:
    """Return a message as the log feed sends it."""
    return Message(
        {"op": "log", "name": name, "run": run, "start": start, "text": text, "open": still_open, **more}
    )


def sent(host: Host) -> list[dict[str, Any]]:
    """Return what the panel told the kernel of logs."""
    told: list[dict[str, Any]] = host.page.evaluate("() => window.sent")
    return [content for content in told if content["op"].startswith("log")]


def lines(host: Host) -> str:
    """Return the pane's text."""
    host.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return host.page.inner_text(".tsnb-lines")


def opened(browser: Browser, width: int = 1000, theme: str = "light") -> Host:
    """Show three models at work and open the second one's log."""
    host = Host(browser, width, theme)
    host.open(three_models().run(30), CLOSED)
    host.page.get_by_label("Log of resnet10", exact=True).click()
    host.settle()
    return host


def wide(browser: Browser, theme: str, width: int) -> Host:
    host = opened(browser, width, theme)
    text = "".join(
        f"epoch {k // 40 + 1} step {k:4} loss {2.3 / (1 + k / 90):.4f} accuracy {k / 4:.1f} %\n"
        for k in range(320)
    )
    host.hear(
        part("resnet10", 0, text, "epoch 9:  42%|████████▍           | 26/63 [00:04<00:05,  6.4 batches/s]")
    )
    host.settle()
    return host


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [600, 1400])
def test_it_fits_in_any_theme_and_width(browser: Browser, theme: str, width: int) -> None:
    """Lines, a bar and a coloured traceback, and nothing sticks out."""
    host = wide(browser, theme, width)
    at = int(host.facts()["logged"])
    host.shot(ARTIFACTS / f"panel-log-{theme}-{width}.png")
    host.hear(part("resnet10", at, TRACEBACK))
    host.settle()
    host.shot(ARTIFACTS / f"panel-log-traceback-{theme}-{width}.png")
    assert not host.errors
    over = host.page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
    assert over == 0
    assert "the loss is nan" in lines(host)
    assert "\x1b" not in lines(host)


def test_a_row_opens_its_log_and_asks_for_it_from_the_start(browser: Browser) -> None:
    """The button says which, shows that it is on, and a second click closes the pane and says so."""
    host = opened(browser)
    assert sent(host) == [{"op": "log", "name": "resnet10", "run": "", "at": 0}]
    assert lines(host) == "Loading the log.", "of what was not heard nothing is said"
    host.hear(part("resnet10", 0, ""))
    assert "Nothing printed yet" in lines(host)
    host.hear(part("resnet10", 0, "one\n", "two"))
    assert lines(host) == "one\ntwo"
    host.page.get_by_label("Trial whose log is shown").select_option("cnn-small")
    assert sent(host)[-1] == {"op": "log", "name": "cnn-small", "run": "", "at": 0}
    host.hear(part("resnet10", 4, "three\n"))
    assert "three" not in lines(host), "another trial's line"
    host.hear(part("cnn-small", 0, "mine\n"))
    assert lines(host).strip() == "mine"
    button = host.page.get_by_label("Log of cnn-small", exact=True).and_(host.page.get_by_role("button"))
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    host.settle()
    assert sent(host)[-1] == {"op": "log off"}
    assert host.page.locator(".tsnb-log").is_hidden()


def test_the_pane_needs_no_mouse(browser: Browser) -> None:
    """Opened, read, scrolled and closed by keys; the trial that it shows first is there without a choice."""
    host = Host(browser, 1000)
    host.open(three_models().run(30), CLOSED)
    host.page.get_by_role("button", name="logs").focus()
    host.page.keyboard.press("Enter")
    assert sent(host)[-1]["name"] == "cnn-small"
    host.hear(part("cnn-small", 0, "".join(f"line {k}\n" for k in range(200))))
    lines(host)
    pane = host.page.get_by_role("log")
    pane.focus()
    host.page.keyboard.press("Home")
    host.page.wait_for_function("() => document.querySelector('.tsnb-lines').scrollTop === 0")
    suppressed = host.page.locator(".tsnb-panel[data-lm-suppress-shortcuts]")
    assert suppressed.count() == 1
    host.page.keyboard.press("Control+s")
    assert suppressed.count() == 0, "with Ctrl they are JupyterLab's"
    host.page.keyboard.press("Escape")
    host.settle()
    assert host.page.locator(".tsnb-log").is_hidden()


def test_it_follows_the_end_unless_one_reads_above(browser: Browser) -> None:
    """New lines scroll the pane; a pane that was scrolled up stays where it is."""
    host = opened(browser)
    host.hear(part("resnet10", 0, "".join(f"line {k}\n" for k in range(300))))
    lines(host)
    pane = "const e = document.querySelector('.tsnb-lines')"
    gap = f"() => {{ {pane}; return e.scrollHeight - e.scrollTop - e.clientHeight }}"
    assert host.page.evaluate(gap) < 2
    host.page.evaluate("() => { document.querySelector('.tsnb-lines').scrollTop = 500 }")
    host.hear(part("resnet10", int(host.facts()["logged"]), "more\n" * 50))
    lines(host)
    assert host.page.evaluate("() => document.querySelector('.tsnb-lines').scrollTop") == 500


def test_nothing_above_it_moves_and_it_never_grows(browser: Browser) -> None:
    """Empty, one line or three thousand: the pane is as high, and the charts stay."""
    host = Host(browser, 1000)
    host.open(three_models().run(30), CLOSED)
    where = "() => ['.tsnb-charts', '.tsnb-footer'].map(s => document.querySelector(s).offsetTop)"
    before = host.page.evaluate(where)
    host.page.get_by_label("Log of resnet10", exact=True).click()
    heights, at = set(), 0
    for count in (0, 1, 3000):
        text = "a line of a log\n" * count
        host.hear(part("resnet10", at, text))
        at += len(text)
        lines(host)
        heights.add(host.page.evaluate("() => document.querySelector('.tsnb-log').offsetHeight"))
        assert host.page.evaluate(where) == before
    assert len(heights) == 1


def test_the_browser_keeps_the_end_only(browser: Browser) -> None:
    """400,000 characters come; what is laid out is bounded, in order, and says that it is the end."""
    host = opened(browser)
    at, whole = 0, ""
    for k in range(16):
        text = "".join(f"{k:3}-{line:04} {50 * '.'}\n" for line in range(400))
        host.hear(part("resnet10", at, text))
        at, whole = at + len(text), whole + text
    shown = lines(host)
    assert 150_000 < len(shown) < 210_000
    assert whole.rstrip().endswith(shown.strip())
    assert "showing the end" in host.page.inner_text(".tsnb-log-title")


def test_parts_that_come_twice_are_shown_once_and_a_new_run_starts_anew(browser: Browser) -> None:
    """Another page asked for all of it; the trial was run again."""
    host = opened(browser)
    host.hear(part("resnet10", 0, "one\n"))
    host.hear(part("resnet10", 0, "one\ntwo\n"))
    host.hear(part("resnet10", 4, "two\nthree\n"))
    assert lines(host).split() == ["one", "two", "three"]
    host.hear(part("resnet10", 0, "again\n", run="2"))
    assert lines(host).split() == ["again"]
    host.hear(Message({"op": "log", "name": "resnet10", "missing": True}))
    assert "another notebook started it" in lines(host)


def test_a_page_that_loads_again_shows_the_same_log(browser: Browser) -> None:
    """The kernel knows which was open: the page asks for it at once."""
    host = Host(browser, 1000)
    host.open(three_models().run(10), {**CLOSED, "shown": True, "name": "resnet10"})
    assert sent(host) == [{"op": "log", "name": "resnet10", "run": "", "at": 0}]
    assert host.facts()["log"] == "resnet10"


def test_a_saved_notebook_keeps_the_end_of_the_log(browser: Browser) -> None:
    """Without a kernel the text stands there, and no button promises anything."""
    host = Host(browser, 1000)
    saved = {"can": False, "shown": True, "name": "resnet10", "trials": TRIALS, "saved": "the last line\n"}
    host.open(three_models().run(10), saved)
    assert "the last line" in lines(host)
    assert host.page.get_by_label("Stop trial resnet10").is_disabled()


def test_a_log_has_the_mark_of_its_trial_in_the_dark_theme_too(browser: Browser) -> None:
    """The colour beside the log's name is the one of the trial's row."""
    host = opened(browser, theme="dark")
    colours = host.page.evaluate("""() => {
      const rows = [...document.querySelectorAll('.tsnb-panel tbody tr')];
      const row = rows.find(one => one.innerText.includes('resnet10'));
      const mark = getComputedStyle(document.querySelector('.tsnb-log-title .tsnb-swatch')).backgroundColor;
      return [mark, getComputedStyle(row.querySelector('.tsnb-mark svg path, .tsnb-mark svg')).fill];
    }""")
    assert colours[0] == colours[1]


def test_a_trial_that_is_on_no_stream_is_stopped_from_its_log(browser: Browser) -> None:
    """The pane's own button stops the trial that it shows, once; a refusal is told beside it."""
    host = opened(browser)
    stop = host.page.get_by_role("button", name="Stop trial resnet10").or_(
        host.page.get_by_label("Could not stop trial resnet10")
    )
    stop.click()
    asked = {"op": "stop", "name": "resnet10"}
    assert stop.inner_text() == "Stop trial?" and asked not in host.page.evaluate("() => window.sent")
    stop.press("Escape")
    assert stop.inner_text() == "Stop" and stop.is_visible(), (
        "a question is taken back before the pane is closed"
    )
    stop.click()
    stop.click()
    assert {"op": "stop", "name": "resnet10"} in host.page.evaluate("() => window.sent")
    assert stop.is_disabled()
    host.hear(
        Message(
            {"op": "refused", "what": "stop", "name": "resnet10", "why": "it is no trial of this notebook"}
        )
    )
    host.settle()
    assert "could not stop: it is no trial" in host.page.inner_text(".tsnb-log-title")
    host.hear(Message({"op": "log", "trials": [["resnet10", "done"]]}))
    host.settle()
    assert stop.is_disabled()
