"""A panel whose kernel has gone says so, and promises nothing any more; in a bare page, JupyterLab and Notebook 7."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.chromium import ARTIFACTS
from tests.browser.host import Host
from tests.browser.lab import Lab, Notebook
from tests.browser.test_lab import PANEL, notebook_of, show
from tests.panel.streams import three_models
from tsnb.telemetry.readings import EndReading, StreamReading

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]

GONE = re.compile(
    r"This kernel is gone\. The panel shows its last state, of \d\d:\d\d\. Run the cell again for a new panel\."
)
SILENT = re.compile(
    r"The notebook's kernel does not answer: it is busy, restarted or gone\. "
    r"The panel shows its last state, of \d\d:\d\d\."
)

SHORT = [
    """%load_ext tsnb
import time, torch
rows = torch.utils.data.DataLoader(torch.arange(400.).reshape(200, 2), batch_size=4)""",
    "%tensorsocket start rows --name lost",
    "%tensorsocket dashboard lost",
    """def train():
    for epoch in tsnb.epochs(3):
        for batch in tsnb.attach(stream="lost"):
            time.sleep(0.01)
    tsnb.log(accuracy=0.5)
import tsnb
trials = [tsnb.run(train, name=name) for name in ("one", "two")]
for trial in trials:
    trial.life.ended.wait()""",
    "%tensorsocket stop lost",
]


def over(readings: list[StreamReading]) -> Iterator[StreamReading]:
    """Yield them, and then that all trials are done and the stream has ended."""
    yield from readings
    last = readings[-1]
    ends = tuple(EndReading(one.name, "done", last.time_s + 1) for one in last.consumers)
    yield replace(last, time_s=last.time_s + 1, consumers=(), state="gone", ends=ends)


def lost(page: Page) -> Locator:
    return page.locator(f"{PANEL} .tsnb-lost")


def grey(page: Page) -> dict[str, str]:
    """Return by its first word why each control that is grey is so."""
    found: dict[str, str] = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('.tsnb-panel [aria-disabled=true]')]
        .filter(one => one.getClientRects().length)
        .map(one => one.title.match(/^(?:(.*): )?not now[,:] (.*)$/i) || ['', one.title, ''])
        .map(([, what, why]) => [what || '', why]))"""
    )
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_click_that_cannot_reach_the_kernel_says_that_it_is_gone(browser: Browser, theme: str) -> None:
    """The host refuses what is sent to a kernel that was shut down; all that needs one is grey at once."""
    host = Host(browser, 950, theme)
    host.tape.allow(report=True, interrupt=True)
    host.open(over(list(three_models().run(20))), log={"can": True, "trials": []})
    expect(lost(host.page)).to_be_hidden()
    assert host.page.get_by_role("button", name="Report").get_attribute("aria-disabled") == "false"
    host.page.evaluate("() => { window.kernel = 'gone' }")
    host.page.get_by_role("button", name="Report").click()
    expect(lost(host.page)).to_have_text(GONE)
    host.settle()
    host.shot(ARTIFACTS / f"lost-{theme}.png")
    why = grey(host.page)
    assert set(why.values()) == {"this kernel is gone"}, why
    assert {
        "Report",
        "Run again resnet18-wide",
        "More epochs for resnet18-wide",
        "Stop stream",
        "Pause all",
    } <= why.keys()
    assert not host.errors


def test_a_kernel_that_was_restarted_is_gone_at_once_while_its_stream_ran(browser: Browser) -> None:
    """The host cuts the model off; a message that comes all the same takes it back."""
    host = Host(browser, 950)
    stream = three_models()
    host.open(stream.run(20))
    said = host.page.inner_text(".tsnb-say")
    host.page.evaluate("() => { window.kernel = 'restarted'; window.host.cut() }")
    expect(lost(host.page)).to_have_text(GONE)
    assert host.page.inner_text(".tsnb-say") == said
    assert set(grey(host.page).values()) == {"this kernel is gone"}
    for reading in stream.run(1):
        host.feed(reading)
    expect(lost(host.page)).to_be_hidden()


def test_a_host_that_tells_nothing_is_asked(browser: Browser) -> None:
    """As VS Code: messages vanish. After a click the panel waits some seconds for an answer."""
    host = Host(browser, 950)
    host.tape.allow(report=True)
    host.open(over(list(three_models().run(20))))
    host.page.wait_for_timeout(8000)
    assert {"op": "ping"} in host.page.evaluate("() => window.asked")
    expect(lost(host.page)).to_be_hidden()
    host.page.evaluate("() => { window.kernel = 'silent' }")
    host.page.wait_for_timeout(1500)
    host.page.get_by_role("button", name="Report").click()
    expect(lost(host.page)).to_have_text(SILENT, timeout=15_000)
    assert set(grey(host.page).values()) == {"the notebook's kernel does not answer"}
    host.page.evaluate("() => { window.kernel = '' }")
    expect(lost(host.page)).to_be_hidden(timeout=20_000)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab with a notebook for each way of losing a kernel."""
    notebooks, home, run = (tmp_path_factory.mktemp(name) for name in ("notebooks", "home", "run"))
    for name in ("restart", "shutdown"):
        (notebooks / f"{name}.ipynb").write_text(json.dumps(notebook_of(SHORT)), encoding="utf-8")
    with Lab(home, notebooks, TSNB_RUNTIME_DIR=str(run), TSNB_PROJECT_DIR=str(home)) as running:
        yield running


@pytest.fixture
def lab(server: Lab) -> Iterator[Lab]:
    """The server; kernels end with the test."""
    yield server
    server.end_kernels()


RESTARTS = """() => { for (const panel of window.jupyterapp.shell.widgets('main'))
  if (panel.sessionContext) panel.sessionContext.session.kernel.restart(); }"""


@pytest.mark.system
@pytest.mark.parametrize(("way", "app"), [("restart", "lab/tree"), ("shutdown", "notebooks")])
def test_jupyter_tells_that_a_kernel_is_gone(browser: Browser, lab: Lab, way: str, app: str) -> None:
    """After the stream has ended its kernel is asked and answers; once it has gone the panel says so."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    notebook = Notebook(page, lab, f"{way}.ipynb", app)
    notebook.open()
    for index in range(len(SHORT)):
        notebook.run(index)
    page.wait_for_selector(f"{PANEL}[data-state=gone]", timeout=60_000)
    show(page)
    page.wait_for_timeout(12_000)
    expect(lost(page)).to_be_hidden()
    assert not any("kernel" in why for why in grey(page).values())
    if way == "restart":
        page.evaluate(RESTARTS)
    else:
        lab.end_kernels()
    expect(lost(page)).to_have_text(
        GONE if way == "restart" else re.compile("This kernel is gone|does not answer"), timeout=60_000
    )
    page.wait_for_timeout(1500)
    page.locator(PANEL).screenshot(path=ARTIFACTS / f"lost-{way}.png")
    assert any("kernel" in why for why in grey(page).values())
