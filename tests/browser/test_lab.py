"""A real JupyterLab: the quickstart's panel shows its trials at work; logs and stop buttons work there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chromium import ARTIFACTS
from tests.browser.lab import Lab, Notebook
from tsnb.text.numbers import metric

QUICKSTART = Path(__file__).resolve().parents[2] / "notebooks" / "01_quickstart.ipynb"
PANEL = ".tsnb-panel"

pytestmark = [pytest.mark.browser, pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900)]


SHORT = [
    """%load_ext tsnb
import torch
rows = torch.utils.data.DataLoader(torch.arange(400.).reshape(200, 2), batch_size=4)""",
    "%tensorsocket start rows --name short",
    "%tensorsocket dashboard short",
    """%%trial brief --wait
import time
for batch in tsnb.attach(stream="short"):
    time.sleep(0.03)""",
]

TALKER = [
    "%load_ext tsnb",
    "%tensorsocket dashboard any",
    """%%trial talker
import sys, time
for k in range(100_000):
    print("line", k, flush=True)
    if k % 10 == 0:
        print(f"\\rbar {k}", end="", file=sys.stderr)
        print(file=sys.stderr, flush=True)  # now: later it would write over half a line, as in a terminal
    time.sleep(0.02)""",
    # as busy as a cell can be, until a file is there
    "import os\nwhile not os.path.exists('go-on'):\n    sum(range(2000))\nprint('was busy to the end')",
    "print(tsnb.trials['talker'].state)",
]


COUNTER = [
    "%load_ext tsnb",
    "%%trial counter\nimport time\nfor k in range(100_000):\n    print('at', k, flush=True)\n    time.sleep(0.05)",
    "%trials follow counter",
    "print('the next cell')",
]


ENDING = [
    """%load_ext tsnb
import json, math, torch
rows = torch.utils.data.DataLoader(torch.arange(400.).reshape(200, 2), batch_size=4)""",
    "%tensorsocket start rows --name ending",
    "%tensorsocket dashboard ending",
    # its end is logged after its last batch, and after the stream was left
    """def train(good, fails=False):
    import time, tsnb
    stream = tsnb.attach()
    for epoch in range(2):
        for k, batch in enumerate(stream):
            tsnb.log(loss=good / (1 + k))
            time.sleep(0.01)
    tsnb.log(loss=good / 7, accuracy=1 - good / 9)
    print("in the end", good / 7, 1 - good / 9)
    if fails:
        raise ValueError("too bad")
ends = [tsnb.run(train, name=n, **p) for n, p in
        {"low": {"good": 0.1}, "high": {"good": 0.7}, "broken": {"good": 0.4, "fails": True}}.items()]
for trial in ends:
    trial.life.ended.wait()""",
    """found = tsnb.results().set_index("name").to_dict("index")
wanted = {name: {key: one[key] for key in ("state", "epochs", "loss", "accuracy")} for name, one in found.items()
          if name in ("low", "high", "broken")}
printed = {trial.name: trial.logs().split("in the end")[1].split()[:2] for trial in ends}
print(json.dumps(wanted, default=float), json.dumps(printed), sep="\\n")""",
    "%tensorsocket stop ending",
]

# all notebooks here are of one project: each has trials of other names
SEVEN = [source.replace("brief", "seventh") for source in SHORT]

NOTEBOOKS = {
    "frozen": COUNTER,
    "reloaded": TALKER,
    "busy": TALKER,
    "reopened": SHORT,
    "seven": SEVEN,
    "ending": ENDING,
}


def notebook_of(sources: list[str]) -> dict[str, Any]:
    """Return a notebook of these cells."""
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "id": f"c{k}",
            "metadata": {},
            "outputs": [],
            "execution_count": None,
            "source": code,
        }
        for k, code in enumerate(sources)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Path]]:
    """One JupyterLab for all tests here, with a runtime directory of its own, on notebooks of its own."""
    notebooks, home, run = (tmp_path_factory.mktemp(name) for name in ("notebooks", "home", "run"))
    source = QUICKSTART.read_text(encoding="utf-8")
    # trials that outlast the test on any machine; closing the server ends them
    endless, found = re.subn(r"EPOCHS = \d+", "EPOCHS = 1000", source)
    assert found == 1
    (notebooks / QUICKSTART.name).write_text(endless, encoding="utf-8")
    # one each: a saved notebook has the outputs of before
    for name, sources in NOTEBOOKS.items():
        (notebooks / f"{name}.ipynb").write_text(json.dumps(notebook_of(sources)), encoding="utf-8")
    with Lab(home, notebooks, TSNB_RUNTIME_DIR=str(run), TSNB_PROJECT_DIR=str(home)) as running:
        yield running, notebooks


@pytest.fixture
def lab(server: tuple[Lab, Path]) -> Iterator[Lab]:
    """The server; kernels end with the test."""
    yield server[0]
    server[0].end_kernels()


def test_a_notebook_without_saved_widgets_shows_a_picture_where_the_panel_was(
    browser: Browser, lab: Lab
) -> None:
    """JupyterLab as it is installed saves no widget state; while the panel is alive, the picture is hidden."""
    lab.save_widgets(False)
    try:
        page = browser.new_page(viewport={"width": 1200, "height": 1000})
        notebook = Notebook(page, lab, "reopened.ipynb")
        notebook.open()
        for index in range(len(SHORT)):
            notebook.run(index)
        picture = page.locator("img[src*='tsnb-still-']")
        page.wait_for_selector(PANEL, timeout=60_000)
        page.wait_for_function(
            "() => document.querySelector(\"img[src*='tsnb-still-']\")?.src.includes('brief')"
        )
        assert not picture.is_visible()
        save(page)
        lab.end_kernels()
        notebook.open()
        picture.wait_for(state="visible", timeout=60_000)
        assert page.locator(PANEL).count() == 0
        ARTIFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTIFACTS / "lab-reopened.png")
    finally:
        lab.save_widgets(True)


def test_notebook_7_shows_the_panel_as_jupyterlab_does(browser: Browser, lab: Lab) -> None:
    """Its page is another program around the same widgets: rows, charts and the drawer are there, and no error."""
    page = browser.new_page(viewport={"width": 1200, "height": 1000})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error.stack)))
    notebook = Notebook(page, lab, "seven.ipynb", "notebooks")
    notebook.open()
    for index in range(len(SEVEN)):
        notebook.run(index)
    panel = page.locator(PANEL)
    panel.wait_for(timeout=60_000)
    row = panel.get_by_role("row").filter(has_text="seventh")
    row.filter(has_text="done").wait_for(timeout=60_000)
    panel.get_by_role("button", name="seventh", exact=True).first.click()
    page.get_by_text("Timeline").wait_for(timeout=60_000)
    box = panel.bounding_box()
    assert box is not None and box["width"] > 600
    ARTIFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTIFACTS / "notebook-7.png")
    # Notebook 7.6 has one of its own as it starts, before anything of ours is there
    assert not [error for error in errors if "/static/notebook/" not in error]


def test_the_quickstart_shows_three_trials_at_work(browser: Browser, lab: Lab) -> None:
    """Three trials get batches; a reload keeps the history; while the kernel is busy a button stops one.

    Narrow and dark too; and the saved notebook, opened when its kernel has gone, shows a recording.
    """
    page = browser.new_page(viewport={"width": 1400, "height": 1100})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error.stack)))
    notebook = Notebook(page, lab, QUICKSTART.name)
    notebook.open()
    # the panel first, so that the trials are seen from their first batch on
    first, panel, last, waiting = steps()
    for index in (*first, panel, *last):
        notebook.run(index)

    page.wait_for_selector(PANEL, timeout=60_000)
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
    page.wait_for_selector(f"{PANEL}[data-theme=dark]", timeout=60_000)
    page.wait_for_timeout(600)
    page.locator(PANEL).screenshot(path=ARTIFACTS / "panel-quickstart-dark.png")
    change_theme(page, "JupyterLab Light")

    page.set_viewport_size({"width": 820, "height": 1100})
    page.wait_for_timeout(600)
    sticks_out = (
        f"() => {{ const e = document.querySelector('{PANEL}'); return e.scrollWidth - e.clientWidth }}"
    )
    assert page.evaluate(sticks_out) == 0
    page.locator(PANEL).screenshot(path=ARTIFACTS / "panel-quickstart-narrow.png")
    page.set_viewport_size({"width": 1400, "height": 1100})

    history = number(page, "history")
    save(page)
    notebook.open()
    page.wait_for_selector(PANEL, timeout=60_000)
    show(page)
    wait_for(page, "history", lambda v: v >= history)
    wait_for(page, "ticks", lambda v: v > ticks + 8)

    # now the notebook's kernel is busy, waiting for the trials: the panel goes on, and its buttons work
    notebook.start(waiting)
    page.wait_for_timeout(1000)
    show(page)
    ticks = number(page, "ticks")
    wait_for(page, "ticks", lambda v: v >= ticks + 8, timeout_s=10)
    stop = page.locator('tbody .tsnb-stop[aria-label^="Stop small-cnn"]')
    stop.click()
    stop.click()  # it asks once more
    wait_for(page, "consumers", lambda v: v == 2, timeout_s=15)
    assert notebook.cells()[waiting]["state"] == "running"

    # keys are the panel's while the focus is there: Enter presses the button and does not edit the cell
    page.get_by_role("button", name="details").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".tsnb-more figcaption", timeout=60_000)
    page.locator(PANEL).screenshot(path=ARTIFACTS / "panel-quickstart-details.png")

    page.wait_for_timeout(10_500)  # what a saved notebook keeps is that old at most
    ticks, history = number(page, "ticks"), number(page, "history")
    save(page)
    lab.end_kernels()
    open_recorded(notebook)
    page.wait_for_selector(f"{PANEL}[data-state=recording]", timeout=60_000)
    show(page)
    assert number(page, "history") > history - 60
    assert number(page, "ticks") <= ticks + 8
    page.locator(f"{PANEL} .tsnb-title").get_by_text("recording of").wait_for(timeout=60_000)
    show(page)
    assert page.locator(f"{PANEL} .tsnb-act:not([aria-disabled=true]):visible").count() == 0
    assert page.locator(f"{PANEL} tbody").count() >= 3
    page.locator(PANEL).screenshot(path=ARTIFACTS / "panel-quickstart-recording.png")
    assert not errors


ROWS = """() => Object.fromEntries([...document.querySelectorAll('.tsnb-trials tbody:has(.tsnb-open)')].map((row) => {
  const cell = (of) => row.querySelector(of);
  return [cell('.tsnb-c-name').title, {
    state: cell('.tsnb-c-state').textContent,
    epochs: cell('.tsnb-c-epoch').firstChild.textContent,
    metrics: cell('.tsnb-c-metric').title.split('\\n'),
  }];
}))"""


def rows_once(page: Page, state: str, wanted: dict[str, Any]) -> None:
    """Wait until the panel is in a state and its rows are these, and say what they were if they never are."""
    for _ in range(600):
        found = page.evaluate(ROWS), page.evaluate(f"() => document.querySelector('{PANEL}').dataset.state")
        if found == (wanted, state):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"the panel shows {found}, not {(wanted, state)}")


AT_THEIR_END = (
    "() => [...document.querySelectorAll('.tsnb-canvas')].every((one) => one.ariaLabel.includes('; end: '))"
)


def axes(page: Page) -> list[str]:
    """Return what stands below each chart over time, and what is said of its beginning and its end."""
    found = page.locator(".tsnb-times").all_text_contents()
    for chart in page.locator(".tsnb-canvas").all():
        for key in ("Home", "End"):
            chart.focus()
            page.keyboard.press(key)
            found.append(str(chart.get_attribute("aria-label")))
    return found


def test_final_numbers_are_those_of_results_and_what_was_printed(browser: Browser, lab: Lab) -> None:
    """While the stream is served on, at its end, on a page that is loaded again, and without a kernel."""
    page = browser.new_page(viewport={"width": 1200, "height": 1400})
    notebook = Notebook(page, lab, "ending.ipynb")
    notebook.open()
    for index in range(3):
        notebook.run(index)
    notebook.start(3)  # one of its trials fails, which stands below it
    said = "".join(notebook.run(4)["outputs"][0]["text"]).splitlines()
    results, printed = (json.loads(line) for line in said)
    assert {name: one["state"] for name, one in results.items()} == {
        "low": "done",
        "high": "done",
        "broken": "failed",
    }
    for name, one in results.items():
        assert [float(number) for number in printed[name]] == [one["loss"], one["accuracy"]]
    best = {
        key: choose(("low", "high"), key=lambda n: results[n][key])
        for key, choose in (("loss", min), ("accuracy", max))
    }
    wanted = {
        name: {
            "state": one["state"],
            "epochs": f"{one['epochs']:.2f}",
            "metrics": [
                f"{key} {metric(key, one[key])}" + (" (best)" if best[key] == name else "")
                for key in ("loss", "accuracy")
            ],
        }
        for name, one in results.items()
    }
    show(page)
    rows_once(page, "idle", wanted)
    page.locator(".tsnb-cell").first.click()  # the large charts
    page.locator(".tsnb-canvas").nth(3).wait_for()
    page.wait_for_function(AT_THEIR_END, timeout=60_000)
    stood, ticks = axes(page), number(page, "ticks")
    wait_for(page, "ticks", lambda v: v > ticks + 16)
    assert all(re.search(r"; end: (low|high|broken) \d", said) for said in stood[-7::2]), stood
    assert axes(page) == stood, "nothing scrolls once all have ended"
    notebook.run(5)
    rows_once(page, "gone", wanted)
    save(page)
    notebook.open()
    page.wait_for_selector(PANEL, timeout=60_000)
    show(page)
    rows_once(page, "gone", wanted)
    save(page)
    lab.end_kernels()
    open_recorded(notebook)
    show(page)
    rows_once(page, "recording", wanted)


def save(page: Page) -> None:
    page.evaluate("async () => { await window.jupyterapp.commands.execute('docmanager:save') }")


def open_recorded(notebook: Notebook) -> None:
    """Open a notebook that was saved with its panel, when the panel's kernel has ended.

    ipywidgets looks for each widget for two seconds, and says for good that there is none if the kernel has told by
    then that it has none, and the file has not been read: on a busy machine that happens. The picture is there then,
    and the next load of the page has the panel.
    """
    page = notebook.page
    path = f"{notebook.lab.url}/api/contents/{notebook.name}"
    saved = page.request.get(path).json()["content"]["metadata"]["widgets"]
    assert "AnyModel" in json.dumps(saved), "it was saved with its panel"
    panel, lost = page.locator(PANEL), page.get_by_text("Error displaying widget: model not found")
    for _ in range(5):
        notebook.open()
        panel.or_(lost).first.wait_for(
            state="attached", timeout=120_000
        )  # those words are hidden above a picture
        if panel.count():
            return
        page.locator("img[src*='tsnb-still-']").wait_for(state="visible", timeout=60_000)
    raise AssertionError("five times the notebook's widgets were not found")


def opened_talker(browser: Browser, lab: Lab, name: str) -> Notebook:
    """Open a notebook with the talker, start its trial, and open the trial's log in the panel."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    notebook = Notebook(page, lab, f"{name}.ipynb")
    notebook.open()
    for index in range(3):
        notebook.run(index)
    page.wait_for_selector(PANEL, timeout=60_000)
    show(page)
    page.get_by_role("button", name="logs", exact=True).click()
    wait_for(page, "logged", lambda v: v > 300)
    return notebook


def pane(page: Page) -> list[str]:
    """Return the lines of the log pane."""
    return str(page.evaluate("() => document.querySelector('.tsnb-lines').textContent")).splitlines()


def test_a_log_goes_on_after_a_reload_with_what_was_printed_before(browser: Browser, lab: Lab) -> None:
    """The pane is open again, on the same trial, from its first line on; new lines follow without a gap."""
    notebook = opened_talker(browser, lab, "reloaded")
    page = notebook.page
    assert page.evaluate(f"() => document.querySelector('{PANEL}').dataset.log") == "talker"
    before = pane(page)
    assert before[0].startswith("trial 'talker' running")
    save(page)
    notebook.open()
    page.wait_for_selector(PANEL, timeout=60_000)
    show(page)
    page.wait_for_selector(".tsnb-lines:visible", timeout=60_000)
    wait_for(page, "logged", lambda v: v > 2000)
    logged = number(page, "logged")
    wait_for(page, "logged", lambda v: v > logged + 300)
    after = pane(page)
    page.locator(PANEL).screenshot(path=ARTIFACTS / "lab-log.png")
    assert after[: len(before) // 2] == before[: len(before) // 2]
    numbers = [line for line in after if line.startswith("line ")]
    assert len(numbers) > 150
    assert numbers == [f"line {k}" for k in range(len(numbers))]


def text_under(notebook: Notebook, index: int) -> str:
    """Return what stands under a cell."""
    return "".join("".join(output.get("text", "")) for output in notebook.cells()[index]["outputs"])


def test_a_trials_cell_that_a_reload_has_frozen_says_where_it_goes_on(browser: Browser, lab: Lab) -> None:
    """The line under it names the command, the next cell says that it stands still, and the command follows it."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    notebook = Notebook(page, lab, "frozen.ipynb")
    notebook.open()
    for index in range(2):
        notebook.run(index)
    notebook._until(lambda: text_under(notebook, 1).count("at") > 5, 60, "what the trial prints")
    save(page)
    notebook.open()
    frozen = text_under(notebook, 1)
    assert "after a page reload, %trials follow counter shows its output" in frozen
    notebook.run(3)
    assert "this page was loaded after counter had started" in text_under(notebook, 3)
    notebook.run(3)
    assert "loaded" not in text_under(notebook, 3), "once a page"
    notebook.run(2)
    notebook._until(lambda: text_under(notebook, 2).count("at") > 20, 30, "what the trial prints")
    followed = text_under(notebook, 2)
    first, *_ = numbers = [int(number) for number in re.findall(r"^at (\d+)$", followed, re.MULTILINE)]
    assert numbers == list(range(first, first + len(numbers))), "from before on, without a gap"
    assert text_under(notebook, 1) == frozen
    notebook.run(3)
    assert "loaded" not in text_under(notebook, 3), "it is followed here now"


def test_stop_in_the_panel_works_while_the_notebook_runs_a_cell(
    browser: Browser, server: tuple[Lab, Path], lab: Lab
) -> None:
    """The notebook's kernel is busy with Python of its own; the trial stops all the same, and the cell goes on."""
    notebook = opened_talker(browser, lab, "busy")
    page, go_on = notebook.page, server[1] / "go-on"
    notebook.start(3)
    page.wait_for_timeout(1000)
    show(page)
    logged = number(page, "logged")
    wait_for(page, "logged", lambda v: v > logged + 100)  # the pane goes on too
    page.get_by_label("Stop trial talker").click()  # asks
    page.get_by_role("button", name="Stop trial talker: click again to confirm").click()
    page.wait_for_function(
        "() => document.querySelector('.tsnb-log-state').textContent === 'stopped'", timeout=60_000
    )
    assert notebook.cells()[3]["state"] == "running"
    assert any("trial 'talker' stopped" in line for line in pane(page)[-3:])
    go_on.touch()
    notebook._until(lambda: "was busy" in str(notebook.cells()[3]["outputs"]), 30, "the busy cell's end")
    assert "stopped" in str(notebook.run(4)["outputs"])


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
