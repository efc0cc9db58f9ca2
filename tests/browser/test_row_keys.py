"""The table of trials by the keyboard, what a screen reader hears of it, and what stands there when all is over."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chromium import ARTIFACTS
from tests.browser.host import Host
from tests.panel.streams import Stream, Trial, three_models
from tests.reports.made import ended_badly
from tsnb.panel.tape import Message
from tsnb.reports import Report
from tsnb.telemetry.readings import EndReading

pytestmark = [pytest.mark.browser, pytest.mark.slow]

STOPS = (
    "() => [...document.querySelectorAll('.tsnb-trials button')].filter((one) => one.tabIndex === 0).length"
)
AT = "() => document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"
SENT = "() => window.sent.map(({op, name}) => [op, name].join(' ').trim())"
LOG = {"name": "", "shown": False, "trials": [["cnn-small", "running"]], "can": True}
FACTS = {
    "op": "trial",
    "name": "resnet10",
    "params": [],
    "live": [["lr", "0.1"]],
    "changes": [],
    "artifacts": [],
    "figures": [],
    "cannot": {"clone": "", "extend": "is not done", "release": "", "rerun": "is running"},
    "lineage": [],
}


def opened(browser: Browser, width: int = 1200) -> Host:
    """Return a page with three trials at work, whose notebook knows them."""
    host = Host(browser, width)
    host.tape.allow(report=True)
    host.open(three_models().run(40), log=LOG)
    return host


def test_the_table_is_one_stop_and_arrows_reach_all_of_it(browser: Browser) -> None:
    """Down and up go by rows, left and right by controls; Tab comes back to where one was."""
    host = opened(browser)
    page = host.page
    assert page.evaluate(STOPS) == 1
    page.locator(".tsnb-trials .tsnb-open").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate(AT) == "resnet10"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(AT) == "Pause resnet10"
    page.keyboard.press("ArrowDown")
    assert page.evaluate(AT) == "Pause resnet18-wide"
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(AT) == "Pause resnet18-wide"
    for _ in range(6):
        page.keyboard.press("ArrowUp")
    assert page.evaluate("() => document.activeElement.closest('thead') !== null"), "heads sort"
    assert page.evaluate(STOPS) == 1
    assert not host.errors


def test_letters_do_in_a_row_what_its_buttons_do(browser: Browser) -> None:
    """Stop asks first; a letter with Ctrl is the page's, and one in a field is text."""
    host = opened(browser)
    page = host.page
    name = page.get_by_role("button", name="resnet10", exact=True)
    name.focus()
    page.keyboard.press("Control+p")
    assert "pause resnet10" not in page.evaluate(SENT)
    page.keyboard.press("p")
    assert page.evaluate(SENT)[-1] == "pause resnet10"
    page.keyboard.press("r")
    assert page.evaluate(SENT)[-1] == "report"
    page.keyboard.press("l")
    assert page.evaluate(SENT)[-1] == "log resnet10"
    page.keyboard.press("l")
    page.keyboard.press("s")
    assert "stop resnet10" not in page.evaluate(SENT), "it asks"
    page.keyboard.press("Enter")
    assert "stop resnet10" in page.evaluate(SENT)
    name.focus()
    for letter, field in {
        "v": "live hyperparameter lr",
        "c": "name of the clone",
        "e": "additional epochs",
    }.items():
        page.keyboard.press(letter)
        host.hear(Message(FACTS))
        expect(page.get_by_label(field)).to_be_focused(timeout=10_000)
        page.keyboard.press("p")
        assert page.evaluate(SENT).count("pause resnet10") == 1, "text"
        page.keyboard.press("Escape")
        expect(name).to_be_focused()
    assert not host.errors


def test_a_screen_reader_hears_of_ends_and_pauses(browser: Browser) -> None:
    """In a live region; not of numbers, and not of what was so when the page opened."""
    host = Host(browser, 1200)
    stream = Stream([Trial("fast", 0.02), Trial("slow", 0.05)])
    host.open(stream.run(20))
    said = host.page.locator(".tsnb-main [role=status]").last
    assert said.inner_text() == ""
    (last,) = list(stream.run(0.25))
    paused = tuple(replace(c, state="paused" if c.name == "slow" else c.state) for c in last.consumers)
    host.feed(replace(last, consumers=paused))
    expect(said).to_have_text("slow is paused.")


def test_who_stops_a_trial_by_the_keyboard_hears_one_end_and_stays_in_its_row(browser: Browser) -> None:
    """It was told to have "ended: left" before it had told its end, and the focus was gone with the button."""
    host = Host(browser, 1200)
    stream = Stream([Trial("fast", 0.02), Trial("slow", 0.05)])
    host.open(stream.run(20), log=LOG)
    page, said = host.page, host.page.locator(".tsnb-main [role=status]").last
    said.evaluate(
        "(it) => { window.heard = []; new MutationObserver(() => it.textContent && window.heard.push(it.textContent))"
        ".observe(it, { childList: true, characterData: true, subtree: true }); }"
    )
    page.get_by_role("button", name="fast", exact=True).focus()
    page.keyboard.press("s")
    (last,) = list(stream.run(0.25))
    (fast,), stays = (
        [c for c in last.consumers if c.name == "fast"],
        [c for c in last.consumers if c.name != "fast"],
    )
    left = EndReading("fast", "left", last.time_s, fast.pid)
    host.feed(replace(last, consumers=tuple(stays), ends=(left,)))
    expect(page.locator(".tsnb-c-state", has_text="left")).to_be_visible()
    told = replace(left, state="stopped", time_s=last.time_s + 0.2)
    host.feed(replace(last, time_s=last.time_s + 0.25, consumers=tuple(stays), ends=(told,)))
    expect(said).to_have_text("fast has ended: stopped.")
    assert page.evaluate("() => window.heard") == ["fast has ended: stopped."]
    assert page.evaluate(AT) == "fast"


def test_the_end_says_what_came_out_in_the_words_of_the_saved_picture(browser: Browser) -> None:
    """The best with its number, how all ended, how long it took and when it was over."""
    host = Host(browser, 1200)
    readings = ended_badly()
    host.open(readings)
    note = host.tape.note("gone", "The stream has ended.")
    assert note
    host.hear(note)
    host.settle()
    said = host.page.locator(".tsnb-say > span").first.inner_text()
    lead, rest = "resnet18-wide is best: accuracy 97.6 %.", "1 done, 1 failed, 1 stopped, 1 ended."
    assert said.replace("\xa0", " ").startswith(f"{lead} {rest} Trained for 0:4")
    assert "ended at" in said
    picture = Report(readings, ended=True).svg
    assert all(word in picture for word in (*lead.split(), *rest.split()))
    assert "1 ended" in " ".join("".join(ET.fromstring(picture).itertext()).split())
    host.shot(ARTIFACTS / "panel-over.png")


def test_who_has_ended_can_go_on_from_its_row(browser: Browser) -> None:
    """Pause and stop make room for more epochs, which open the drawer at their field, and for another run."""
    host = Host(browser, 1200)
    host.open(ended_badly(), log=LOG)
    page = host.page
    expect(page.get_by_label("Pause resnet18-wide", exact=True)).to_be_hidden()
    page.get_by_label("More epochs for resnet18-wide…").click()
    facts = {
        **FACTS,
        "name": "resnet18-wide",
        "cannot": {"clone": "", "extend": "", "release": "", "rerun": ""},
    }
    host.hear(Message(facts))
    expect(page.get_by_label("additional epochs")).to_be_focused(timeout=10_000)
    page.keyboard.press("Enter")
    assert page.evaluate("() => window.sent.at(-1)") == {
        "op": "extend",
        "name": "resnet18-wide",
        "epochs": 1,
    }
    assert not host.errors


@pytest.mark.parametrize("width", [1200, 500])
def test_who_has_ended_runs_again_by_two_clicks(browser: Browser, width: int) -> None:
    """From its row or its drawer; where its code is not here, both say so."""
    host = Host(browser, width)
    host.open(ended_badly(), log=LOG)
    page = host.page
    again = page.locator("tbody", has_text="resnet18-wide").get_by_label(
        re.compile("Run again resnet18-wide(:|$)")  # not its sibling's
    )
    page.evaluate("() => { performance.now = () => 1000; }")  # else nothing has come for long
    again.click()
    assert "rerun resnet18-wide" not in page.evaluate(SENT), "it asks"
    page.wait_for_timeout(4500)
    assert again.inner_text() == "Run again?", "until it is answered"
    page.keyboard.press("Tab")
    assert again.inner_text() == "", "or its reader goes elsewhere"
    again.click()
    again.click()
    assert page.evaluate(SENT)[-1] == "rerun resnet18-wide"
    why = "was started by another notebook, which holds its code. Run its cell there"
    host.hear(Message({"op": "refused", "what": "rerun", "name": "resnet18-wide", "why": why}))
    row = page.locator("tbody", has_text="resnet18-wide")
    expect(row.locator(".tsnb-rerun:visible")).to_have_attribute(
        "title", re.compile("Could not run again.*" + why)
    )
    page.get_by_role("button", name="resnet18-wide", exact=True).click()
    cannot = {"clone": "", "extend": "", "release": "", "rerun": why}
    host.hear(Message({**FACTS, "name": "resnet18-wide", "cannot": cannot}))
    form = page.locator(".tsnb-drawer .tsnb-rerun")
    expect(form).to_have_attribute("title", f"Run resnet18-wide again: resnet18-wide {why}")
    said = page.get_by_role("status").filter(has_text=f"again: resnet18-wide {why}")
    expect(said).to_be_visible()
    host.shot(ARTIFACTS / f"panel-not-now-{width}.png")
    host.hear(Message({**FACTS, "name": "resnet18-wide", "cannot": {**cannot, "rerun": ""}}))
    expect(form).to_have_attribute("aria-disabled", "false")
    expect(said).to_have_count(0)
    form.click()
    assert page.evaluate(SENT)[-1] == "rerun resnet18-wide"
    host.shot(ARTIFACTS / f"panel-again-{width}.png")
    assert not host.errors


def test_a_value_that_is_no_number_is_neither_set_nor_cloned_with(browser: Browser) -> None:
    """The reason stands below the field and beside the clone; a text or a word is checked by the trial alone."""
    host = opened(browser)
    page = host.page
    page.evaluate("() => { performance.now = () => 1000; }")
    page.get_by_role("button", name="resnet10", exact=True).click()
    host.hear(Message({**FACTS, "live": [["lr", "0.1"], ["nesterov", "True"], ["how", "mean"]]}))
    for name, text, why in (
        ("lr", "abc", "lr takes a number"),
        ("nesterov", "yes", "nesterov takes True or False"),
    ):
        field = page.get_by_label(f"live hyperparameter {name}")
        was = field.input_value()
        field.fill(text)
        clone = page.get_by_role("button", name=f"Clone with {name} {text}")
        expect(clone).to_have_attribute("aria-disabled", "true")
        expect(page.get_by_role("button", name=f"Set {was} → {text}")).to_have_attribute(
            "aria-disabled", "true"
        )
        expect(page.get_by_role("status").filter(has_text=re.compile(f"^{why}$"))).to_be_visible()
        expect(page.get_by_role("status").filter(has_text=f"Clone resnet10: not now, {why}")).to_be_visible()
        host.shot(ARTIFACTS / f"panel-wrong-{name}.png")
        field.fill(was)
    for name, text in (("lr", "1e-3"), ("how", "max")):
        page.get_by_label(f"live hyperparameter {name}").fill(text)
    clone = page.get_by_role("button", name="Clone with lr 1e-3, how max")
    clone.click()
    assert page.evaluate("() => window.sent.at(-1)")["changes"] == [["lr", "1e-3"], ["how", "max"]]
    assert not host.errors


def test_keys_bring_into_sight_what_they_open(browser: Browser) -> None:
    """The log stands below all else; more epochs of a trial that cannot have them say why beside the field."""
    host = opened(browser)
    page = host.page
    page.locator(".tsnb-trials .tsnb-open").first.focus()
    page.keyboard.press("l")
    expect(page.locator(".tsnb-log")).to_be_visible()
    expect(page.locator(".tsnb-log .tsnb-lines")).to_be_in_viewport(ratio=0.9)
    page.keyboard.press("l")
    page.get_by_role("button", name="resnet10", exact=True).focus()
    page.keyboard.press("e")
    host.hear(Message(FACTS))
    expect(page.get_by_label("additional epochs")).to_be_focused(timeout=10_000)
    expect(page.get_by_role("status").filter(has_text="not now, resnet10 is not done")).to_be_visible()


def test_a_trial_that_can_have_no_more_epochs_says_what_would_work(browser: Browser) -> None:
    """It never can, so that it is not said to be so now only; its time line ends where it did."""
    host = Host(browser, 1200)
    host.open(ended_badly(), log=LOG)
    page = host.page
    page.get_by_role("button", name="resnet18-wide", exact=True).click()
    why = "has no checkpoint to resume from. Put tsnb.checkpoint(net=net) before its loop, and run it again"
    cannot = {"clone": "is done", "extend": why, "release": "is done", "rerun": ""}
    host.hear(Message({**FACTS, "name": "resnet18-wide", "cannot": cannot}))
    said = page.get_by_role("status").filter(has_text=f"Extend resnet18-wide: resnet18-wide {why}")
    expect(said).to_be_visible()
    assert re.fullmatch(r"end \d:\d\d", page.locator(".tsnb-drawer .tsnb-times-of span").last.inner_text())
    host.shot(ARTIFACTS / "panel-never.png")


def test_a_slider_moves_a_live_value_and_the_field_sends_it(browser: Browser) -> None:
    """A step is a fortieth of a power of ten; a text has none; what was moved is sent by Set or Enter alone."""
    host = opened(browser)
    page = host.page
    page.evaluate("() => { performance.now = () => 1000; }")  # however slow this is, the kernel answers
    page.get_by_role("button", name="resnet10", exact=True).click()
    host.hear(Message({**FACTS, "live": [["lr", "0.1"], ["steps", "12"], ["how", "mean"]]}))
    sliders = page.locator(".tsnb-live-slider:visible")
    expect(sliders).to_have_count(2)
    slider, value = sliders.first, page.get_by_label("live hyperparameter lr")
    assert slider.get_attribute("aria-label") == "lr, from a tenth to ten times its value"
    slider.focus()
    page.keyboard.press("End")
    expect(value).to_have_value("1")
    for _ in range(40):
        page.keyboard.press("ArrowLeft")
    expect(value).to_have_value("0.1")
    page.keyboard.press("Home")
    expect(value).to_have_value("0.01")
    sliders.nth(1).focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_label("live hyperparameter steps")).to_have_value("13")
    assert "set resnet10" not in page.evaluate(SENT)
    page.get_by_role("button", name="Set 0.1 → 0.01").click()
    wanted = {"op": "set", "name": "resnet10", "value": "lr", "text": "0.01"}
    assert page.evaluate("() => window.sent.at(-1)") == wanted
    host.hear(Message({**FACTS, "live": [["lr", "0.01"], ["steps", "12"], ["how", "mean"]]}))
    expect(slider).to_have_value("0")
    assert not host.errors


def test_a_slider_keeps_to_the_bounds_that_are_known(browser: Browser) -> None:
    """Its ends are those bounds, whether the value's own or its sweep's; wide ones are crossed by factors."""
    host = opened(browser)
    page = host.page
    page.evaluate("() => { performance.now = () => 1000; }")
    page.get_by_role("button", name="resnet10", exact=True).click()
    live = [["lr", "0.01"], ["dropout", "0.0"]]
    host.hear(Message({**FACTS, "live": live, "bounds": {"lr": [0.0001, 1], "dropout": [0, 0.5]}}))
    sliders = page.locator(".tsnb-live-slider:visible")
    expect(sliders).to_have_count(2)
    assert sliders.first.get_attribute("aria-label") == "lr, from 0.0001 to 1"
    expect(sliders.first).to_have_value("0")
    value = page.get_by_label("live hyperparameter lr")
    sliders.first.focus()
    for key, shown in (("End", "1"), ("Home", "0.0001")):
        page.keyboard.press(key)
        expect(value).to_have_value(shown)
    expect(sliders.nth(1)).to_have_value("-40")
    sliders.nth(1).focus()
    page.keyboard.press("End")
    expect(page.get_by_label("live hyperparameter dropout")).to_have_value("0.5")
    assert not host.errors


ZOOMED = "() => [...document.querySelectorAll('.tsnb-reset')].filter((one) => one.offsetParent).length"
LABEL = "() => document.querySelector('.tsnb-plot').getAttribute('aria-label')"


def test_a_drag_over_a_chart_zooms_all_of_them_and_a_double_click_shows_all_again(browser: Browser) -> None:
    """The stretch that was dragged over lies between both ends of each chart; a click alone does nothing."""
    host = opened(browser)
    page = host.page
    plots = page.locator(".tsnb-plot")
    before = [plot.screenshot() for plot in plots.all()]
    box = plots.first.bounding_box()
    assert box and page.evaluate(ZOOMED) == 0
    page.mouse.move(box["x"] + 150, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 260, box["y"] + 104, steps=4)
    page.mouse.up()
    page.mouse.move(2, 2)
    host.settle()
    assert page.evaluate(ZOOMED) == 1
    assert all(plot.screenshot() != old for plot, old in zip(plots.all(), before, strict=True)), "all charts"
    plots.first.dblclick(position={"x": 200, "y": 100})
    page.mouse.move(2, 2)
    host.settle()
    assert page.evaluate(ZOOMED) == 0
    page.mouse.move(box["x"] + 200, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 204, box["y"] + 150, steps=4)
    page.mouse.up()
    host.settle()
    assert page.evaluate(ZOOMED) == 1, "a range of values"
    plots.first.focus()
    page.keyboard.press("Escape")
    host.settle()
    assert page.evaluate(ZOOMED) == 0
    assert not host.errors


def test_a_click_on_a_mark_and_the_filter_leave_a_curve_out(browser: Browser) -> None:
    """What is hidden is kept with the panel, and its row stays."""
    host = opened(browser)
    page = host.page
    page.get_by_label("Hide resnet10 in the charts").click()
    page.wait_for_function(
        "() => !document.querySelector('.tsnb-plot').getAttribute('aria-label').includes('resnet10 ')",
        timeout=10_000,
    )
    assert "cnn-small" in page.evaluate(LABEL)
    assert host.chosen()["rows"]["hidden"] == ["resnet10"]
    expect(page.get_by_role("button", name="resnet10", exact=True)).to_be_visible()
    page.get_by_label("Show resnet10 in the charts").click()
    page.wait_for_function(
        "() => document.querySelector('.tsnb-plot').getAttribute('aria-label').includes('resnet10 ')",
        timeout=10_000,
    )
    assert not host.errors


def test_pause_all_pauses_who_runs_and_lets_all_go_on(browser: Browser) -> None:
    """One click; a trial that is paused already is not asked again."""
    host = Host(browser, 1200)
    stream = Stream([Trial("fast", 0.02), Trial("slow", 0.05)])
    host.open(stream.run(20))
    (last,) = list(stream.run(0.25))
    states = {"slow": "paused"}
    host.feed(
        replace(last, consumers=tuple(replace(c, state=states.get(c.name, c.state)) for c in last.consumers))
    )
    host.settle()
    page = host.page
    page.get_by_label("Pause all trials of this stream").click()
    assert page.evaluate(SENT)[-1:] == ["pause fast"]
    (last,) = list(stream.run(0.25))
    host.feed(replace(last, consumers=tuple(replace(c, state="paused") for c in last.consumers)))
    host.settle()
    page.get_by_label("Resume all trials of this stream").click()
    assert page.evaluate(SENT)[-2:] == ["resume fast", "resume slow"]
    assert not host.errors
