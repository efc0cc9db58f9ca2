"""The pictures of the panel in docs/ and the README, made anew from a real run in JupyterLab.

    python -m tests.browser.pictures [FOLDER]

Three models of the quickstart train on one stream for some minutes; then twelve trials of a sweep. Look at each
picture before it is committed. Not a test: pixels are of the machine that draws them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page

from tests.browser.chromium import chromium
from tests.browser.lab import Lab, Notebook
from tests.browser.test_lab import PANEL, QUICKSTART, change_theme, notebook_of, number, show, wait_for

DOCS = Path(__file__).resolve().parents[2] / "docs"

TRAINING = """
def train(net, lr=0.003, epochs=40):
    rate = tsnb.live("lr", lr)
    stream, optimizer = tsnb.attach(), torch.optim.Adam(net.parameters(), lr=lr)
    for epoch in tsnb.epochs(epochs):
        net.train()
        for images, labels in stream:
            rate.apply(optimizer)
            loss = cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tsnb.log(loss=loss)
        net.eval()
        with torch.no_grad():
            guesses = torch.cat([net(part).argmax(1) for part in test_images.split(100)])
        accuracy = (guesses == test_digits).float().mean().item()
        tsnb.log(accuracy=accuracy)
        print(f"epoch {epoch + 1} of {epochs}: {accuracy:.1%} of the test digits right", flush=True)
"""

MODELS = {"mlp": "mlp()", "small-cnn": "cnn(8)", "wide-cnn": "cnn(100)"}

SWEEP = """
for trial in list(tsnb.trials.values()):
    trial.stop()
def learn(width, lr):
    train(cnn(width), lr)

made = tsnb.sweep(
    learn, grid={"width": [1, 2, 4, 8], "lr": [0.0003, 0.003, 0.03]}, at_once=12
)
"""


def cells() -> list[str]:
    """Return the cells: the quickstart's data and stream, then what is trained here."""
    quickstart = json.loads(QUICKSTART.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in quickstart if cell["cell_type"] == "code"]
    served = next(k for k, text in enumerate(code) if "%tensorsocket start" in text)
    before = [text for text in code[:served] if "px.imshow" not in text]
    return [
        *before,
        code[served],
        TRAINING,
        "%tensorsocket dashboard digits",
        *(f"%%trial {name}\ntrain({net})" for name, net in MODELS.items()),
        "tsnb.trials['wide-cnn'].set(lr=0.001)",
        SWEEP,
    ]


def shot(page: Page, path: Path) -> None:
    """Save the panel as it is now, with the pointer beside it."""
    page.mouse.move(2, 2)
    page.evaluate("() => document.activeElement.blur()")
    page.wait_for_timeout(1500)
    page.locator(PANEL).screenshot(path=path)
    print(path)


def draw(folder: Path, seconds: float) -> None:
    """Run it all, and draw each picture where it is worth looking at."""
    with tempfile.TemporaryDirectory() as below, chromium() as browser:
        home, run, notebooks = (Path(below) / name for name in ("home", "run", "notebooks"))
        for one in (home, run, notebooks):
            one.mkdir(mode=0o700)
        sources = cells()
        (notebooks / "pictures.ipynb").write_text(json.dumps(notebook_of(sources)), encoding="utf-8")
        variables = {"TSNB_RUNTIME_DIR": str(run), "TSNB_PROJECT_DIR": str(home)}
        with Lab(home, notebooks, **variables) as lab:
            page = browser.new_page(viewport={"width": 1320, "height": 1500})
            notebook = Notebook(page, lab, "pictures.ipynb")
            notebook.open()
            panel = next(k for k, text in enumerate(sources) if "dashboard" in text)
            last = panel + len(MODELS)
            for index in range(last + 1):
                notebook.run(index)
            page.wait_for_selector(PANEL, timeout=60_000)
            show(page)
            page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
            wait_for(page, "consumers", lambda v: v == 3)
            end_s = time.monotonic() + seconds
            wait_for(page, "batches", lambda v: v > 80, timeout_s=600)
            notebook.run(last + 1)
            # what was set is marked by then
            page.wait_for_timeout(1000 * max(20.0, end_s - time.monotonic()))
            show(page)
            page.get_by_role("button", name="log", exact=True).click()
            shot(page, folder / "panel.png")
            change_theme(page, "JupyterLab Dark")
            page.wait_for_selector(f"{PANEL}[data-theme=dark]")
            shot(page, folder / "panel-dark.png")
            change_theme(page, "JupyterLab Light")
            page.wait_for_selector(f"{PANEL}[data-theme=light]")
            page.set_viewport_size({"width": 1520, "height": 1500})
            page.get_by_role("button", name="wide-cnn", exact=True).click()
            shot(page, folder / "panel-drawer.png")
            page.keyboard.press("Escape")
            page.locator(".tsnb-drawer").get_by_role("button", name="Close").click()
            page.set_viewport_size({"width": 1320, "height": 1500})
            notebook.run(last + 2)
            wait_for(page, "consumers", lambda v: v >= 10, timeout_s=300)
            batches = number(page, "batches")
            wait_for(page, "batches", lambda v: v > batches + 130, timeout_s=600)
            show(page)
            page.get_by_role("button", name="sweep", exact=True).click()
            shot(page, folder / "panel-sweep.png")


def main() -> int:
    """Draw them into docs/, or the folder that is given."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    folder.mkdir(parents=True, exist_ok=True)
    draw(folder, 150.0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
