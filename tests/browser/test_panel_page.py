"""The panel in a bare page: every state, both themes, narrow and wide. Screenshots go to artifacts/."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import ARTIFACTS
from tests.browser.host import Host
from tests.panel.streams import Stream, rebalance, rebalanced, three_models

pytestmark = [pytest.mark.browser]

OVERFLOW = """() => {
  const panel = document.querySelector('.tsnb-panel');
  return [document.documentElement.scrollWidth - innerWidth, panel.scrollWidth - panel.clientWidth];
}"""


def running(stream: Stream, host: Host, seconds: float = 60) -> None:
    host.open(stream.run(seconds))
    for reading in stream.run(2):
        host.feed(reading)
    host.settle()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [600, 1400])
def test_it_shows_a_stream_in_any_theme_and_width(browser: Browser, theme: str, width: int) -> None:
    """History and live ticks are drawn without an error, and nothing sticks out."""
    host = Host(browser, width, theme)
    running(three_models(), host)
    facts = host.facts()
    host.shot(ARTIFACTS / f"panel-{theme}-{width}.png")
    assert not host.errors
    assert facts["theme"] == theme
    assert (facts["ticks"], facts["history"], facts["consumers"]) == ("248", "248", "4")
    assert float(facts["drawMs"]) < 100
    assert host.page.evaluate(OVERFLOW) == [0, 0]
    assert host.page.locator(".tsnb-chart canvas").count() == 3


def test_nothing_moves_when_trials_join_and_numbers_grow(browser: Browser) -> None:
    """From the empty panel to three trials at work the charts stay where they are."""
    host = Host(browser, 1000)
    host.open()
    stream, places = three_models(), set()
    for k, reading in enumerate(stream.run(16)):
        host.feed(reading)
        if k % 8 == 0:
            host.page.evaluate("() => new Promise(requestAnimationFrame)")
            places.add(host.page.evaluate("() => document.querySelector('.tsnb-charts').offsetTop"))
    assert host.facts()["consumers"] == "3"
    assert len(places) == 1


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
    assert host.page.is_disabled(".tsnb-stop-stream")

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
    assert host.page.locator(".tsnb-stop:enabled").count() == 0
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
    assert host.page.locator(".tsnb-stop:enabled").count() == 3
    host.page.clock.run_for(8000)
    assert host.facts()["state"] == "stale"
    assert host.page.locator(".tsnb-stop:enabled").count() == 0
    assert "No news for" in host.page.inner_text(".tsnb-say")


def test_buttons_send_what_they_say(browser: Browser) -> None:
    """A row's button stops that trial; the stream's asks once more first."""
    host = Host(browser, 1000)
    running(three_models(), host, 20)
    host.page.get_by_label("Stop resnet10").click()
    host.page.get_by_role("button", name="Stop stream").click()
    sent = host.page.evaluate("() => window.sent")
    assert {"op": "stop", "name": "resnet10"} in sent
    assert {"op": "stop stream"} not in sent
    host.page.get_by_role("button", name="Stop for all?").click()
    assert {"op": "stop stream"} in host.page.evaluate("() => window.sent")
    assert host.page.get_by_label("Stop resnet10").is_disabled()


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
    host.page.locator(".tsnb-chart .u-over").nth(1).hover(position={"x": 180, "y": 40})
    shown = host.page.inner_text(".tsnb-hover:visible")
    assert "cnn-small" in shown
    assert "ago" in shown
    assert not host.errors
