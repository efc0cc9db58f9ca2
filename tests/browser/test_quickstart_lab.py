"""The quickstart in a real JupyterLab: its first cells run, and the panel shows the trials at work."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chromium import ARTIFACTS
from tests.browser.lab import Lab, Notebook

QUICKSTART = Path(__file__).resolve().parents[2] / "notebooks" / "01_quickstart.ipynb"
PANEL = ".tsnb-panel"

pytestmark = [pytest.mark.browser, pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """JupyterLab on a copy of the quickstart, with a runtime directory of its own."""
    monkeypatch.setenv("TSNB_RUNTIME_DIR", str(tmp_path / "run"))
    notebooks, home = tmp_path / "notebooks", tmp_path / "home"
    notebooks.mkdir()
    home.mkdir()
    source = QUICKSTART.read_text(encoding="utf-8")
    # trials that outlast the test on any machine; closing the server ends them
    endless, found = re.subn(r"EPOCHS = \d+", "EPOCHS = 1000", source)
    assert found == 1
    (notebooks / QUICKSTART.name).write_text(endless, encoding="utf-8")
    with Lab(home, notebooks) as running:
        yield running


def test_the_quickstart_shows_three_trials_at_work(browser: Browser, lab: Lab) -> None:
    """Three trials get batches; a reload keeps the history; while the kernel is busy a button stops one."""
    page = browser.new_page(viewport={"width": 1400, "height": 1100})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    notebook = Notebook(page, lab, QUICKSTART.name)
    notebook.open()
    # the panel first, so that the trials are seen from their first batch on
    first, panel, last, waiting = steps()
    for index in (*first, panel, *last):
        notebook.run(index)

    page.wait_for_selector(PANEL, timeout=20_000)
    show(page)
    try:
        wait_for(page, "consumers", lambda v: v == 3)
    except AssertionError as error:
        raise AssertionError(f"{error}; {[notebook.cells()[k]['outputs'] for k in last]}") from None
    wait_for(page, "batches", lambda v: v > 20)
    wait_for(page, "samplesPerS", lambda v: v > 0)
    ticks = number(page, "ticks")
    wait_for(page, "ticks", lambda v: v >= ticks + 8)
    wait_for(page, "batches", lambda v: v > 60)
    ARTIFACTS.mkdir(exist_ok=True)
    page.locator(PANEL).screenshot(path=ARTIFACTS / "panel-quickstart.png")
    page.screenshot(path=ARTIFACTS / "lab-quickstart.png")

    change_theme(page, "JupyterLab Dark")
    page.wait_for_selector(f"{PANEL}[data-theme=dark]", timeout=10_000)
    page.wait_for_timeout(600)
    page.locator(PANEL).screenshot(path=ARTIFACTS / "panel-quickstart-dark.png")
    change_theme(page, "JupyterLab Light")

    history = number(page, "history")
    page.evaluate("async () => { await window.jupyterapp.commands.execute('docmanager:save') }")
    notebook.open()
    page.wait_for_selector(PANEL, timeout=20_000)
    show(page)
    wait_for(page, "history", lambda v: v >= history)
    wait_for(page, "ticks", lambda v: v > ticks + 8)

    # now the notebook's kernel is busy, waiting for the trials: the panel goes on, and its buttons work
    notebook.start(waiting)
    page.wait_for_timeout(1000)
    show(page)
    ticks = number(page, "ticks")
    wait_for(page, "ticks", lambda v: v >= ticks + 8, timeout_s=10)
    page.click('button[aria-label="Stop small-cnn"]')
    wait_for(page, "consumers", lambda v: v == 2, timeout_s=15)
    assert notebook.cells()[waiting]["state"] == "running"
    assert not errors


def steps() -> tuple[list[int], int, list[int], int]:
    """Return the cells to run before the panel, the panel's, the trials', and the one that waits for them."""
    cells = json.loads(QUICKSTART.read_text(encoding="utf-8"))["cells"]
    source = ["".join(cell["source"]) if cell["cell_type"] == "code" else "" for cell in cells]
    panel = next(k for k, text in enumerate(source) if "%tensorsocket dashboard" in text)
    trials = [k for k, text in enumerate(source[:panel]) if text.startswith("%%trial")]
    before = [k for k, text in enumerate(source[: trials[0]]) if text and "px.imshow" not in text]
    return before, panel, trials, next(k for k in range(panel + 1, len(source)) if ".wait()" in source[k])


def show(page: Page) -> None:
    page.locator(PANEL).scroll_into_view_if_needed()


def change_theme(page: Page, theme: str) -> None:
    page.evaluate("t => window.jupyterapp.commands.execute('apputils:change-theme', {theme: t})", theme)


def number(page: Page, fact: str) -> float:
    value = page.evaluate(f"() => document.querySelector('{PANEL}')?.dataset.{fact}")
    return float(value or 0)


def wait_for(page: Page, fact: str, enough: Callable[[float], bool], timeout_s: float = 60.0) -> None:
    for _ in range(round(timeout_s / 0.1)):
        if enough(number(page, fact)):
            return
        page.wait_for_timeout(100)
    facts = page.evaluate(f"() => ({{...document.querySelector('{PANEL}')?.dataset}})")
    raise AssertionError(f"the panel's {fact} did not change as expected: {facts}")
