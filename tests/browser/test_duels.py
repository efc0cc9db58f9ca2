"""Duels in the panel: a mark for each seed, the evidence, what is still needed, and the verdict when it stands."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import ARTIFACTS
from tests.browser.host import Host
from tests.browser.lab import Lab, Notebook
from tests.browser.test_every_moment import saved_picture
from tests.browser.test_lab import PANEL, notebook_of, open_recorded, save, show
from tests.browser.test_panel_page import CONTRAST, CUT, OVERFLOW
from tests.panel.streams import Stream, Trial
from tsnb.duels.seeds import Block, Rules
from tsnb.duels.verdict import judge
from tsnb.panel.tape import Message, Tape

pytestmark = [pytest.mark.browser, pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900)]

NAMES = ("new-1-incumbent", "new-1-candidate")

CELLS = [
    """%load_ext tsnb
import torch, time
rows = torch.utils.data.DataLoader(torch.arange(400.).reshape(200, 2), batch_size=4, shuffle=True)""",
    "%tensorsocket start rows --name rows",
    "%tensorsocket dashboard rows",
    """def old(gain=0.0):
    import time, torch, tsnb
    start = float(torch.rand(()))
    for batch in tsnb.attach():
        time.sleep(0.05)
    tsnb.log(acc=start + gain + 0.01 * float(torch.randn(())))
def new():
    old(0.1)
duel = tsnb.duel(old, new, metric="acc", at_once=2, name="change")""",
    "import json\nprint(json.dumps(duel.wait().told()))",
    "%tensorsocket stop rows",
]


def told(blocks: list[Block], *, over: bool = False, mode: str = "max", **rules: Any) -> dict[str, Any]:
    """Return what the kernel tells of a duel with these blocks."""
    return judge(blocks, Rules("val_loss", mode, **rules)).told("new", over=over)


def some(number: int, gain: float = 0.02) -> list[Block]:
    """Return blocks that differ by about so much."""
    return [
        Block(k, 1000 + k, 0.5, 0.5 + gain * (1 + 0.3 * math.sin(k)), (100, 100), (10, 10), paired="weights")
        for k in range(1, number + 1)
    ]


def page_of(browser: Browser, width: int, theme: str = "light") -> Host:
    """Return a page whose stream has the two arms of the first seed."""
    host = Host(browser, width, theme)
    host.open(list(Stream([Trial(name, 0.1) for name in NAMES]).run(10)))
    return host


def hear(host: Host, *duels: dict[str, Any]) -> None:
    """Have the notebook tell of its trials and duels."""
    sweeps = dict.fromkeys(NAMES, "new")
    host.hear(Message({"op": "params", "trials": {}, "sweeps": sweeps, "duels": list(duels)}))
    host.settle()


def said(page: Page) -> dict[str, Any]:
    """Return all that stands in the panel about its one duel."""
    words = {
        what: page.locator(f".tsnb-duel-{what}").text_content()
        for what in ("state", "said", "needs", "about")
    }
    charts = [chart.get_attribute("aria-label") for chart in page.locator(".tsnb-duel .tsnb-canvas").all()]
    return {**words, "charts": charts}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 500])
def test_a_duel_is_shown_from_its_first_seed_to_its_verdict(browser: Browser, theme: str, width: int) -> None:
    """What is needed while it is open; then what the verdict is about. All of it can be read at any width."""
    host = page_of(browser, width, theme)
    assert not host.page.locator(".tsnb-duel").count()
    for number in (0, 1, 4, 12):
        here = told(some(number))
        hear(host, here)
        words = said(host.page)
        assert (words["state"], words["said"], words["needs"]) == (here["state"], here["said"], here["needs"])
        assert host.page.evaluate(OVERFLOW) == [0, 0] and host.page.evaluate(CUT) == []
        assert host.page.evaluate(CONTRAST) == []
        host.shot(ARTIFACTS / f"duel-{number}-{width}-{theme}.png")
    assert words["state"] == "better" and "same first weights" in words["about"]
    first, second = words["charts"]
    assert first.startswith(
        "Difference by seed, val_loss, candidate minus incumbent; up is better; last seed"
    )
    assert re.search(r"difference \+0\.0\d+$", first), first
    assert re.search(r"after each seed; 40\.0 decides; last seed: evidence \d[\d.]* for better$", second)
    assert not host.errors


def test_what_the_notebook_says_of_a_duel_s_trials_is_its_group_at_once(browser: Browser) -> None:
    """Trials of the next seed stood below "no sweep", as queued, for the seconds in which their order is kept."""
    host = page_of(browser, 1000)
    heads = host.page.locator(".tsnb-group button")
    for sweeps in (
        {NAMES[0]: "new"},
        dict.fromkeys(NAMES, "new"),
        dict(zip(NAMES, ("new", "old"), strict=True)),
    ):
        host.hear(Message({"op": "params", "trials": {}, "sweeps": sweeps, "duels": [told(some(1))]}))
        host.page.mouse.move(1, 1)
        groups = list(dict.fromkeys(sweeps.get(name, "") for name in NAMES))
        words = {"new": "duel new", "old": "sweep old", "": "no sweep"}
        expect(heads).to_have_text([words[name] for name in groups] if len(groups) > 1 else [], timeout=3000)


def test_each_seed_is_read_under_the_cursor(browser: Browser) -> None:
    """Down is worse where low is good; an arm without a number is said to have none; both charts have one cursor."""
    host = page_of(browser, 1000)
    pairs = [*some(2), Block(3, 3, 0.5, math.nan, raised=("", "ValueError: x")), Block(5, 5, 0.5, 0.4)]
    hear(host, told(pairs, mode="min"))
    chart = host.page.locator(".tsnb-duel .tsnb-canvas").first
    chart.focus()
    for key, words in (
        ("Home", "seed 1: difference +0.02"),
        ("ArrowRight", "seed 2: difference"),  # a key is a seed: it took 26 to 31
        ("End", "seed 5: difference -0.100"),
    ):
        host.page.keyboard.press(key)
        assert words in str(chart.get_attribute("aria-label"))
    host.page.keyboard.press("Escape")
    box = chart.bounding_box()
    assert box is not None
    left, room = 40, box["width"] - 54
    host.page.mouse.move(box["x"] + left + room * (3 - 0.7) / 7.6, box["y"] + 50)
    expect(chart.locator(".tsnb-hover")).to_contain_text("candidate has no number")
    host.shot(ARTIFACTS / "duel-cursor.png")
    assert not host.errors


def test_a_duel_of_another_stream_is_not_shown_and_a_new_one_takes_its_place(browser: Browser) -> None:
    """By its trials; a page that is saved and opened again has it, and one that opens late."""
    host = page_of(browser, 1000)
    hear(host, told(some(3)) | {"duel": "elsewhere"})
    assert not host.page.locator(".tsnb-duel").count()
    hear(host, told(some(8), over=True))
    before = said(host.page)
    scene, history, curves = host.saved()
    again = Host(browser, 1000)
    again.show(scene, history, curves)
    assert said(again.page) == before
    hear(host)
    assert not host.page.locator(".tsnb-duel").count()
    assert not host.errors + again.errors


def test_a_panel_of_several_streams_has_the_duels_of_all(browser: Browser) -> None:
    """Once, whichever stream its trials are on."""
    tapes = [Tape("train"), Tape("val")]
    for at, tape in enumerate(tapes):
        for reading in Stream([Trial(NAMES[at], 0.1)], name=tape.name).run(5):
            tape.feed(reading)
    host = Host(browser, 1000)
    host.open_several(tapes)
    hear(host, told(some(4)))
    assert said(host.page)["state"] == "running"
    again = Host(browser, 1000)
    again.show(*host.saved())
    assert said(again.page) == said(host.page)
    assert not host.errors + again.errors


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[tuple[Lab, Path]]:
    """A JupyterLab with a notebook that runs a duel."""
    notebooks, home, run = (tmp_path / name for name in ("notebooks", "home", "run"))
    for one in (notebooks, home, run):
        one.mkdir(mode=0o700)
    (notebooks / "duel.ipynb").write_text(json.dumps(notebook_of(CELLS)), encoding="utf-8")
    with Lab(home, notebooks, TSNB_RUNTIME_DIR=str(run), TSNB_PROJECT_DIR=str(home)) as running:
        yield running, notebooks


def test_a_duel_is_live_in_jupyterlab(browser: Browser, lab: tuple[Lab, Path]) -> None:
    """While it runs, on a page that is loaded again, when it is over, and saved: as panel and as picture."""
    server, notebooks = lab
    page = browser.new_page(viewport={"width": 1300, "height": 1200})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error.stack)))
    notebook = Notebook(page, server, "duel.ipynb")
    notebook.open()
    for index in range(4):
        notebook.run(index)
    show(page)
    state = page.locator(".tsnb-duel-state")
    expect(state).to_have_text("running", timeout=60_000)
    expect(page.locator(".tsnb-duel-needs")).to_contain_text(re.compile("more seed"), timeout=60_000)
    expect(page.locator(".tsnb-duel-said")).to_contain_text(
        re.compile("undecided after [2-9]"), timeout=90_000
    )
    seeds = re.findall(r"after (\d+)", str(said(page)["said"]))
    page.locator(PANEL).screenshot(path=ARTIFACTS / "duel-live.png")

    save(page)
    notebook.open()  # the page is loaded again while the duel runs
    page.wait_for_selector(PANEL, timeout=60_000)
    show(page)
    expect(page.locator(".tsnb-duel-said")).to_contain_text("after", timeout=60_000)
    assert int(re.findall(r"after (\d+)", str(said(page)["said"]))[0]) >= int(seeds[0])

    whole = json.loads("".join(notebook.run(4, 300)["outputs"][0]["text"]).splitlines()[-1])
    assert whole["verdict"] == "better", whole
    show(page)
    expect(page.locator(".tsnb-duel-said")).to_have_text(whole["said"], timeout=15_000)
    expect(state).to_have_text("better")
    assert whole["about"] == said(page)["about"] and not said(page)["needs"]
    live = said(page)
    page.locator(PANEL).screenshot(path=ARTIFACTS / "duel-verdict.png")

    notebook.run(5)
    expect(page.locator(f"{PANEL}[data-state=gone]")).to_be_visible(timeout=60_000)
    assert said(page) == live
    page.wait_for_timeout(2000)
    save(page)
    picture = saved_picture(notebooks / "duel.ipynb")
    assert "Duel change" in picture and whole["said"] in re.sub("<[^>]+>", " ", picture)
    assert picture.count("<title>seed ") >= 2 * whole["seeds"]
    server.end_kernels()
    open_recorded(notebook)
    page.wait_for_selector(f"{PANEL}[data-state=recording]", timeout=60_000)
    show(page)
    assert said(page) == live
    assert not errors
