"""A real marimo notebook in a browser: the panel is live, and what trials print stands below their cells."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.chromium import ARTIFACTS
from tests.house.elsewhere import ROOT, install

pytestmark = [pytest.mark.browser, pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900)]

VERSION = "0.25.2"

# a PNG of one red pixel
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)

NOTEBOOK = """
import marimo

app = marimo.App()


@app.cell
def _():
    import sys
    import time
    import marimo as mo
    import torch
    from IPython.display import HTML, Image, display
    from torch.utils.data import DataLoader, TensorDataset
    import tsnb
    from tsnb.checks.machine import panel as checked
    print(checked().state, checked().says)
    return DataLoader, HTML, Image, TensorDataset, display, mo, sys, time, torch, tsnb


@app.cell
def _(DataLoader, TensorDataset, torch, tsnb):
    loader = DataLoader(TensorDataset(torch.arange(40_000.0)[:, None]), 8, num_workers=1)
    stream = tsnb.serve(loader, name="numbers")
    return (stream,)


@app.cell
def _(HTML, Image, display, stream, sys, time, tsnb):
    def train(scale):
        display(HTML("<b>markup of a trial</b>"))
        display(Image(PICTURE))
        for step in range(5):
            print("\\rbar", step, end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        for number, (batch,) in enumerate(tsnb.attach()):
            print("batch", number, flush=True)
            tsnb.log(loss=batch.mean().item() * scale)
            time.sleep(0.05)

    stream
    trial = tsnb.run(train, scale=2.0, name="doubled")
    return (trial,)


@app.cell
def _(trial, tsnb):
    def end(rate):
        print("rate", rate)
        raise ValueError("ends here")

    trial
    ends = tsnb.sweep(end, grid={"rate": [1, 2]}, name="ends")
    return


@app.cell
def _(mo, trial, tsnb):
    trial
    panel = mo.ui.anywidget(tsnb.dashboard("numbers"))
    panel
    return


if __name__ == "__main__":
    app.run()
""".replace("PICTURE", repr(PICTURE))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has marimo in addition to this one's packages."""
    folder = tmp_path_factory.mktemp("marimo")
    venv.create(folder / "env", symlinks=True)
    (packages,) = folder.glob("env/lib/python3*/site-packages")
    (packages / "here.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    found = folder / "env/bin/python"
    pip = (sys.executable, "-m", "pip", "--python", found, "install", "--no-compile", "--ignore-installed")
    install(*pip, f"marimo=={VERSION}")
    return found


@contextmanager
def served(python: Path, folder: Path, how: str) -> Iterator[str]:
    """Run `marimo edit` or `marimo run`; give its address. Afterwards no process of it is left."""
    (folder / "notebook.py").write_text(NOTEBOOK)
    (folder / "pyproject.toml").write_text("[tool.marimo.runtime]\nauto_instantiate = true\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["--headless", "--no-token", "--host", "127.0.0.1", "--port", str(port)]
    command = [str(python), "-m", "marimo", how, "notebook.py", *words]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            command, cwd=folder, env={**os.environ, "HOME": str(folder)}, stdout=log, stderr=log
        )
    family: list[psutil.Process] = []
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server)
        yield f"http://127.0.0.1:{port}"
        family = psutil.Process(server.pid).children(recursive=True)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    _, left = psutil.wait_procs(family, timeout=30)
    assert not left, left


def _wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert server.poll() is None, "marimo has ended"
        try:
            urllib.request.urlopen(address, timeout=10).close()
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"nothing answers at {address}")


def says(where: Locator, words: str) -> None:
    """Wait for words."""
    expect(where).to_contain_text(words, timeout=120_000)


def test_a_marimo_notebook_shows_what_trials_print_and_its_panel_pauses_them(
    python: Path, tmp_path: Path, browser: Browser
) -> None:
    """Text, a bar, markup, a traceback below the launching cell; Pause; a cell that runs again."""
    with served(python, tmp_path, "edit") as address:
        page = browser.new_page(viewport={"width": 1400, "height": 2600})
        page.goto(address)
        cell = page.locator(".marimo-cell")
        expect(cell).to_have_count(5, timeout=60_000)
        panel = page.locator(".tsnb-panel")
        expect(panel).to_be_visible(timeout=180_000)
        says(cell.nth(0), f"works marimo {VERSION} shows the panel")
        says(panel, "doubled")
        says(cell.nth(2), "trial 'doubled' running")
        says(cell.nth(2), "batch 20\n")  # long after its cell has ended
        says(cell.nth(2), "markup of a trial")
        says(cell.nth(2), "bar 4")
        assert "bar 3" not in cell.nth(2).inner_text(), "a bar is written over"
        assert cell.nth(2).locator("b", has_text="markup of a trial").count() == 1
        assert cell.nth(2).locator("img[src^='data:image/png']").count() == 1
        for rate in (1, 2):
            says(cell.nth(3), f"[ends-rate{rate}] rate {rate}")
            says(cell.nth(3), f"trial 'ends-rate{rate}' failed")
        says(cell.nth(3), "ValueError: ends here")
        pause = panel.locator('tbody .tsnb-pause[aria-label="Pause doubled"]')
        pause.click()
        expect(panel.locator('tbody .tsnb-pause[aria-label="Resume doubled"]')).to_be_enabled(timeout=60_000)
        says(panel, "paused")
        page.screenshot(path=str(ARTIFACTS / "marimo.png"))
        cell.nth(1).hover()
        cell.nth(1).locator("[data-testid=run-button]").first.click()
        says(cell.nth(1), "tsnb stop numbers")  # it is served already: what to do about that
        page.close()
    printed = (tmp_path / "log").read_text()
    assert "batch" not in printed, f"it was printed on the server's terminal:\n{printed}"


def test_a_marimo_app_has_a_live_panel(python: Path, tmp_path: Path, browser: Browser) -> None:
    """`marimo run` hides what cells print, and shows the panel."""
    with served(python, tmp_path, "run") as address:
        page = browser.new_page(viewport={"width": 1400, "height": 2600})
        page.goto(address)
        panel = page.locator(".tsnb-panel")
        expect(panel).to_be_visible(timeout=180_000)
        says(panel, "doubled")
        panel.locator('tbody .tsnb-pause[aria-label="Pause doubled"]').click()
        expect(panel.locator('tbody .tsnb-pause[aria-label="Resume doubled"]')).to_be_enabled(timeout=60_000)
        page.close()
