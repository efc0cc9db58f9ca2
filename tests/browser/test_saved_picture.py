"""A real JupyterLab as it is installed: what a notebook shows of its panel after a reload, and without its kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chromium import ARTIFACTS
from tests.browser.lab import Lab, Notebook
from tests.browser.test_lab import PANEL, notebook_of, save, wait_for

pytestmark = [pytest.mark.browser, pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900)]

CELLS = [
    """%load_ext tsnb
import torch
from tsnb.checks.machine import panel
print(panel().says)
rows = torch.utils.data.DataLoader(torch.arange(400.).reshape(200, 2), batch_size=4)""",
    "%tensorsocket start rows --name kept",
    "%tensorsocket dashboard kept",
    """def train(lr, until):
    import os, time, tsnb
    stream = tsnb.attach()
    rate = tsnb.live("lr", lr)
    epoch = 0
    while not os.path.exists(until):
        for k, batch in enumerate(stream):
            tsnb.log(loss=rate.value / (1 + epoch + k / 50))
            time.sleep(0.01)
        epoch += 1
        tsnb.log(accuracy=1 - 0.5 / epoch)
slow = tsnb.run(train, name="slow", lr=0.1, until=UNTIL)
fast = tsnb.run(train, name="fast", lr=0.4, until=UNTIL)""",
    "for trial in (slow, fast):\n    trial.life.ended.wait(60)\nprint(slow.state, fast.state)",
]

PICTURE = "img[src*='tsnb-still-']:not([src*='-style'])"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Path]]:
    """A JupyterLab that saves no widgets, as it is installed."""
    notebooks, home, run = (tmp_path_factory.mktemp(name) for name in ("notebooks", "home", "run"))
    cells = [source.replace("UNTIL)", f"{str(home / 'until')!r})") for source in CELLS]
    (notebooks / "kept.ipynb").write_text(json.dumps(notebook_of(cells)), encoding="utf-8")
    with Lab(home, notebooks, TSNB_RUNTIME_DIR=str(run), TSNB_PROJECT_DIR=str(home)) as running:
        running.save_widgets(False)
        yield running, home / "until"


@pytest.fixture
def kept(server: tuple[Lab, Path]) -> Iterator[tuple[Lab, Path]]:
    """The server, and the file that ends its trials; kernels end with the test."""
    yield server
    server[0].end_kernels()


def pictures(notebook: Notebook, mark: str) -> list[str]:
    """Return the notebook's pictures whose ids begin so."""
    outputs = [output for cell in notebook.cells() for output in cell["outputs"]]
    found = ["".join(output.get("data", {}).get("image/svg+xml", "")) for output in outputs]
    return [one for one in found if f'id="{mark}' in one]


def until(page: Page, done: Any, timeout_s: float = 60.0) -> None:
    """Wait until something is so."""
    for _ in range(round(timeout_s / 0.2)):
        if done():
            return
        page.wait_for_timeout(200)
    raise AssertionError("it did not become so")


def test_after_a_reload_the_picture_goes_on_enter_sets_and_the_report_comes(
    browser: Browser, kept: tuple[Lab, Path]
) -> None:
    """The page knows no display of before; a field is sent by Enter, which JupyterLab takes for itself elsewhere."""
    lab, end = kept
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    notebook = Notebook(page, lab, "kept.ipynb")
    notebook.open()
    said = json.dumps(notebook.run(0)["outputs"])
    assert "JupyterLab started this kernel, and its page shows the live panel." in said
    for index in range(1, 4):
        notebook.run(index)
    page.wait_for_selector(PANEL, timeout=60_000)
    until(page, lambda: pictures(notebook, "tsnb-still-"))
    wait_for(page, "consumers", lambda v: v == 2)
    save(page)
    notebook.open()
    page.wait_for_selector(PANEL, timeout=60_000)
    page.locator(PANEL).scroll_into_view_if_needed()
    assert not page.locator(PICTURE).first.is_visible()

    page.locator(".tsnb-trials .tsnb-open", has_text="slow").click()
    field = page.get_by_label("live hyperparameter lr")
    field.wait_for(timeout=60_000)
    field.fill("0.7")
    field.press("Enter")
    until(page, lambda: "0.7" in page.locator(".tsnb-changes").inner_text())
    called = page.get_by_label("name of the clone")
    called.fill("twin")
    called.press("Enter")
    page.locator(".tsnb-trials .tsnb-open", has_text="twin").wait_for(timeout=60_000)

    page.get_by_role("button", name="Report", exact=True).click()
    until(page, lambda: pictures(notebook, "tsnb-report-"))

    end.touch()
    notebook.run(4)
    until(page, lambda: "3 done" in pictures(notebook, "tsnb-still-")[-1])
    page.locator(PANEL).screenshot(path=ARTIFACTS / "kept-panel.png")
    picture = pictures(notebook, "tsnb-still-")[-1]
    assert "twin" in picture
    assert ">loss<" in picture and ">accuracy<" in picture, "a chart of each"
    save(page)

    lab.end_kernels()
    page.goto(f"{lab.url}/lab/tree/kept.ipynb?reset", wait_until="domcontentloaded", timeout=120_000)
    page.locator(PICTURE).first.wait_for(state="visible", timeout=120_000)  # before a kernel has started
    waits = page.get_by_text("Loading widget...")
    assert waits.count() and not any(one.is_visible() for one in waits.all())
    page.screenshot(path=ARTIFACTS / "kept-without-kernel.png")
    notebook.open()
    page.locator(PICTURE).first.wait_for(state="visible", timeout=60_000)
    page.wait_for_timeout(5000)  # ipywidgets looks for its model for some seconds, and has an error then
    lost = page.get_by_text("Error displaying widget: model not found")
    assert not any(one.is_visible() for one in lost.all())
    assert page.locator(PANEL).count() == 0
    page.screenshot(path=ARTIFACTS / "kept-reopened.png")
