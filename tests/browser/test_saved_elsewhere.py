"""A saved notebook without its kernel: each program that shows it shows one picture of the panel, the right one."""

from __future__ import annotations

import base64
import html
import json
import os
import queue
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bleach
import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbconvert.exporters import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook, new_output
from playwright.sync_api import Browser, Page

import tsnb
from tests.browser.chromium import ARTIFACTS
from tests.browser.host import Host
from tests.panel.streams import three_models

pytestmark = [pytest.mark.browser, pytest.mark.system, pytest.mark.slow]

CELLS = [
    "%load_ext tsnb\nimport time\nimport torch\nrows = torch.utils.data.DataLoader(torch.arange(400.), batch_size=4)",
    "%tensorsocket start rows --name kept",
    "%tensorsocket dashboard kept",
    """def train(lr):
    for k, batch in enumerate(tsnb.attach()):
        tsnb.log(loss=lr / (1 + k))
        time.sleep(0.01)
    tsnb.log(loss=0.125)
low = tsnb.run(train, name="low", lr=0.5)""",
    "low.life.ended.wait(60)\ntime.sleep(3)",
]

WIDGET = "application/vnd.jupyter.widget-view+json"
SVG = "image/svg+xml"

SEEN = """() => [...document.querySelectorAll('img, svg')].filter((one) => {
  const { width, height } = one.getBoundingClientRect();
  return width > 300 && height > 100 && (one.tagName !== 'IMG' || one.naturalWidth > 0);
}).map((one) => one.tagName)"""

ORDERS = {
    # the form of an output that each program prefers, where it has no widgets
    "VS Code": ("text/html", "text/markdown", SVG, "image/png", "text/plain"),
    "a code host": (SVG, "image/png", "text/html", "text/markdown", "text/plain"),
}


def saved_outputs(shown: dict[str, list[dict[str, Any]]], message: dict[str, Any], cell: str) -> None:
    """Take in what a kernel publishes as JupyterLab does."""
    content, kind = message["content"], message["msg_type"]
    mark = content.get("transient", {}).get("display_id")
    if kind == "update_display_data":
        for output in (one for outputs in shown.values() for one in outputs):
            if output.get("mark") == mark:
                output["data"] = content["data"]
    elif kind in ("display_data", "execute_result"):
        shown[cell].append({"data": content["data"], "mark": mark})
    elif kind == "error":
        pytest.fail("\n".join(content["traceback"]))


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> nbformat.NotebookNode:
    """A notebook as JupyterLab saves it, which has a page and saves no widgets: its trial has ended."""
    return ran(CELLS, tmp_path_factory.mktemp("kernel"))


def ran(cells: list[str], folder: Path) -> nbformat.NotebookNode:
    """Return the notebook of these cells as JupyterLab saves it once they have run."""
    manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(folder / "k"))
    env = {**os.environ, "PYTHONPATH": os.getcwd(), "TSNB_PROJECT_DIR": str(folder)}
    manager.start_kernel(env=env, extra_arguments=["--HistoryManager.enabled=False"])
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=120)
    shown: dict[str, list[dict[str, Any]]] = {}
    try:
        for code in cells:
            cell, idle, deadline = client.execute(code), False, time.monotonic() + 120
            shown[cell] = []
            while not idle and time.monotonic() < deadline:
                try:
                    message = client.get_iopub_msg(timeout=1)
                except queue.Empty:
                    continue
                parent = message["parent_header"].get("msg_id", "")
                if parent in shown:
                    saved_outputs(shown, message, parent)
                idle = parent == cell and message["content"].get("execution_state") == "idle"
    finally:
        manager.shutdown_kernel()
        client.stop_channels()
    made = new_notebook()
    for code, outputs in zip(cells, shown.values(), strict=True):
        kept = [new_output("display_data", data=one["data"]) for one in outputs]
        made.cells.append(new_code_cell(code, outputs=kept))
    assert isinstance(made, nbformat.NotebookNode)
    return made


def opened(browser: Browser, folder: Path, page: str) -> Page:
    """Open a page of its own file, with the network off."""
    (folder / "page.html").write_text(page, encoding="utf-8")
    context = browser.new_context(viewport={"width": 1000, "height": 900}, offline=True)
    found = context.new_page()
    found.goto((folder / "page.html").as_uri(), wait_until="domcontentloaded")
    found.wait_for_timeout(500)
    return found


def outputs_of(
    notebook: nbformat.NotebookNode, order: tuple[str, ...], forms: dict[str, Callable[[str], str]]
) -> str:
    """Return all outputs, each in the form that comes first in an order; other forms are not known there."""
    parts = []
    for output in (one for cell in notebook.cells for one in cell.outputs):
        kind = next((kind for kind in order if kind in output.data), None)
        if kind is not None:
            parts.append(f"<div class='output'>{forms[kind](''.join(output.data[kind]))}</div>")
    return "\n".join(parts)


def image(text: str) -> str:
    return f'<img src="data:{SVG};base64,{base64.b64encode(text.encode()).decode()}">'


def plain(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def test_the_page_that_nbconvert_makes_has_one_picture(
    browser: Browser, notebook: nbformat.NotebookNode, tmp_path: Path
) -> None:
    """No error of a widget stands above it, and no text of a style sheet."""
    for template in ("lab", "classic"):
        made, _ = HTMLExporter(template_name=template).from_notebook_node(notebook)  # type: ignore[no-untyped-call]
        page = opened(browser, tmp_path, made)
        assert len(page.evaluate(SEEN)) == 1, template
        text = page.locator("body").inner_text()
        assert "model not found" not in text and "display:none" not in text
        page.screenshot(path=ARTIFACTS / f"saved-nbconvert-{template}.png")


@pytest.mark.parametrize("host", ["a code host", "VS Code"])
def test_a_program_without_the_widget_shows_one_picture(
    browser: Browser, notebook: nbformat.NotebookNode, tmp_path: Path, host: str
) -> None:
    """A code host takes scripts and styles away, and its page allows neither; VS Code puts markup in as it is."""
    forms: dict[str, Callable[[str], str]]
    if host == "VS Code":
        forms = {"text/html": str, SVG: str, "text/plain": plain}
        policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    else:
        clean = bleach.sanitizer.Cleaner(
            tags={"b", "code", "div", "p", "pre", "span", "table"}, strip=True
        ).clean
        forms = {"text/html": clean, SVG: image, "text/plain": plain}
        policy = "default-src 'none'; img-src data:"
    head = (
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
    )
    page = opened(browser, tmp_path, head + outputs_of(notebook, ORDERS[host], forms))
    page.screenshot(path=ARTIFACTS / f"saved-{host.replace(' ', '-')}.png")
    assert len(page.evaluate(SEEN)) == 1
    text = page.locator("body").inner_text()
    assert "tsnb panel of the stream kept" in text, "in the widget's place"
    assert "jp-Output" not in text and "display:none" not in text and "None" not in text


def test_the_one_picture_is_that_of_the_end(notebook: nbformat.NotebookNode) -> None:
    """With what came out; the widget's own text has no numbers that would be old ones."""
    outputs = [one for cell in notebook.cells for one in cell.outputs]
    (picture,) = [one.data[SVG] for one in outputs if SVG in one.data]
    assert "low" in picture and "done" in picture and "0.125" in picture and ">loss<" in picture
    (widget,) = [one.data for one in outputs if WIDGET in one.data]
    assert widget["text/plain"] == "tsnb panel of the stream kept"


def test_where_the_widget_is_alive_the_picture_is_hidden_whatever_shows_it(
    browser: Browser, notebook: nbformat.NotebookNode
) -> None:
    """As an image or as markup, in a page that is no JupyterLab; it comes back when the panel is closed."""
    outputs = [one for cell in notebook.cells for one in cell.outputs]
    (picture,) = [one.data[SVG] for one in outputs if SVG in one.data]
    (mark,) = re.findall(r'<svg id="(tsnb-still-[0-9a-f]+)"', picture)
    host = Host(browser)
    host.still = mark
    host.open(three_models().run(10))
    for form in (str, image):
        host.page.evaluate(
            "(text) => { document.body.insertAdjacentHTML('beforeend', text); }", form(picture)
        )
    assert host.page.evaluate(SEEN) == []
    host.page.evaluate("() => window.close_view()")
    assert sorted(host.page.evaluate(SEEN)) == ["IMG", "svg"]


def test_a_panel_that_is_saved_as_a_page_works_without_a_network(browser: Browser, tmp_path: Path) -> None:
    """Charts, rows, a drawer and the keyboard work in a file; what steers trials is off."""
    panel = tsnb.panel.Panel.of_recording(three_models().run(40))
    try:
        path = panel.save(tmp_path / "view.html")
        with pytest.raises(ValueError, match=r"'view\.svg' cannot be written: a panel is saved as \.html"):
            panel.save(tmp_path / "view.svg")
    finally:
        panel.close()
    assert path.stat().st_mode & 0o777 == 0o600
    context = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True)
    page, errors, asked = context.new_page(), [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.locator(".tsnb-panel[data-state=recording]").wait_for()
    assert page.locator(".tsnb-trials .tsnb-open").count() == 4
    page.get_by_role("group", name="horizontal axis").get_by_role("button", name="epoch").click()
    page.get_by_role("img", name="loss by epoch").focus()
    page.keyboard.press("End")
    assert "cnn-small" in page.locator(".tsnb-readout:visible").inner_text()
    page.get_by_role("button", name="resnet10", exact=True).click()
    page.locator(".tsnb-drawer").get_by_text("Last numbers").wait_for()
    assert page.locator(".tsnb-stop:not([aria-disabled=true]):visible").count() == 0
    page.screenshot(path=ARTIFACTS / "saved-page.png")
    assert errors == []
    assert [url for url in asked if not url.startswith(("file:", "blob:", "data:"))] == []
    assert json.loads(page.locator("#kept").text_content() or "")["binary"] == ["history", "curves"]


SIDE = """from IPython.core.error import UsageError
try:
    get_ipython().run_line_magic("tensorsocket", "dashboard kept --side")
except UsageError as error:
    print("refused:", error)"""


def test_each_cell_that_shows_the_panel_has_its_one_picture_and_the_newest(tmp_path: Path) -> None:
    """A second cell takes no picture from the first; one that is refused a side panel shows nothing but why."""
    notebook = ran([*CELLS[:4], "%tensorsocket dashboard kept", SIDE, CELLS[4]], tmp_path)
    marks, pictures = [], []
    for cell in notebook.cells:
        own = [one.data for one in cell.outputs if SVG in one.get("data", {})]
        assert len(own) == (cell.source == "%tensorsocket dashboard kept"), cell.source
        pictures += [data[SVG] for data in own]
        marks += [re.findall(r'<svg id="(tsnb-still-[0-9a-f]+)"', data[SVG])[0] for data in own]
    assert len(marks) == 2 and len(set(marks)) == 1, marks
    assert pictures[0] == pictures[1] and "0.125" in pictures[0] and "done" in pictures[0]
