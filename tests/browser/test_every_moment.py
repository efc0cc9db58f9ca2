"""One law over a notebook's life: a page that is opened at any moment shows what a page that stayed open shows.

Trials wait at a gate, a file that says how many batches they may take, so that nothing moves while views are compared:
another page, `tsnb status`, `tsnb top`, `tsnb results`, the report, the saved picture, nbconvert's page, and the
notebook that is opened again without its kernel. Curves are compared by what is drawn on their canvases and in their
pictures, in the numbers of their axes.
"""

from __future__ import annotations

import base64
import difflib
import html
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbconvert.exporters import HTMLExporter
from playwright.sync_api import Browser, BrowserContext, Page

from tests.browser.chromium import ARTIFACTS
from tests.browser.drawn import RECORDS, Curves, alike, in_picture, on_canvas
from tests.browser.lab import Lab, Notebook
from tests.browser.test_lab import PANEL, ROWS, notebook_of, open_recorded, save
from tsnb.text.numbers import metric

pytestmark = [pytest.mark.browser, pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900)]

NAME = "moments"
DASH = "\N{EN DASH}"
ENDED = ("done", "failed", "stopped")

CELLS = {
    "begin": """%load_ext tsnb
import pathlib, time, torch, tsnb
rows = torch.utils.data.DataLoader(torch.arange(240.).reshape(120, 2), batch_size=4)
def train(good, epochs=3, fails=False):
    stream, at = tsnb.attach(), 0
    for epoch in tsnb.epochs(epochs):
        for batch in stream:
            while int(pathlib.Path(GATE).read_text()) <= at:
                time.sleep(0.02)
            at += 1
            time.sleep(0.05)
            tsnb.log(loss=good * (0.1 + 10 / (10 + at) + 0.02 * (at % 3)))
        tsnb.log(accuracy=1 - good / (1 + at))
    if fails:
        raise ValueError("too bad")""",
    "serve": f"%tensorsocket start rows --name {NAME} --stall-timeout 900",
    "panel": f"%tensorsocket dashboard {NAME}",
    "train": """low = tsnb.run(train, name="low", good=0.1)
high = tsnb.run(train, name="high", good=0.7)
broken = tsnb.run(train, name="broken", good=0.4, epochs=1, fails=True)
gone = tsnb.run(train, name="gone", good=0.5)""",
    "pause": "high.pause()",
    "stop": "gone.stop()",
    "clone": "twin = low.clone('twin')",
    "sweep": "tsnb.sweep(train, grid={'good': [0.2, 0.3]}, epochs=1, name='swept', at_once=1, "
    "prune=tsnb.search.halving('loss', every=1000))",
    "resume": "high.resume()",
    "wait": "for trial in tsnb.trials.values():\n    trial.life.ended.wait(60)",
    "over": f"%tensorsocket stop {NAME}",
    "report": f"_ = pathlib.Path(REPORT).write_text(tsnb.report('{NAME}').svg)",
}

SEEN = """() => {
  const panel = document.querySelector('.tsnb-panel'), said = [];
  if (!panel) return null;
  for (const one of panel.querySelectorAll('*')) {
    if (!one.checkVisibility({ visibilityProperty: true }) || one.closest('.tsnb-hover')) continue;
    const own = [...one.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join('').trim();
    const told = ['aria-label', 'title', 'aria-disabled', 'aria-pressed', 'aria-expanded', 'data-tone', 'points', 'd']
      .map((name) => one.getAttribute(name));
    const words = [own, ...told, one.style.width].filter(Boolean);
    if (words.length) said.push([one.tagName, one.getAttribute('class') || '', ...words].join(' | '));
  }
  const { drawMs, log, logged, ...facts } = panel.dataset;
  const plots = [...panel.querySelectorAll('.tsnb-learned')].filter((one) => one.checkVisibility());
  const drawn = plots.map((one) => [one.querySelector('b').textContent, one.querySelector('canvas').drawn || []]);
  const words = panel.querySelector('.tsnb-say > span').textContent;
  return { facts, said, drawn: Object.fromEntries(drawn), words };
}"""
"""All that a panel shows, and says to a screen reader, in the order of the page."""

SPENT = """() => Object.fromEntries([...document.querySelectorAll('.tsnb-trials tbody:has(.tsnb-bar)')].map((it) => {
  const cell = (of) => it.querySelector(of);
  return [cell('.tsnb-c-name').title, [cell('.tsnb-c-rate').textContent, cell('.tsnb-bar').getAttribute('aria-label')]];
}))"""
"""Samples a second and shares of time, as each row says them."""


@dataclass
class Life:
    """The notebook in two pages, and the other views of its stream."""

    lab: Lab
    stays: Notebook
    other: Notebook
    path: Path
    gate: Path
    env: dict[str, str]
    cells: list[str] = field(default_factory=lambda: list(CELLS))

    def run(self, *cells: str) -> None:
        for cell in cells:
            self.stays.run(self.cells.index(cell))

    def go(self, batches: int) -> None:
        """Let each trial take so many batches."""
        new = self.gate.with_suffix(".new")
        new.write_text(str(batches))
        new.replace(self.gate)

    def until(self, **wanted: str) -> None:
        """Wait until these trials are in these states, or so far, or both, as "paused 0.28"; an empty text: there."""
        for _ in range(600):
            found = {name: f"{one['state']} {one['epochs']}" for name, one in rows(self.stays.page).items()}
            if all(name in found and so in found[name] for name, so in wanted.items()):
                return
            self.stays.page.wait_for_timeout(100)
        raise AssertionError(f"trials are {found}, not {wanted}")

    def command(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tsnb", *words], stdout=subprocess.PIPE, text=True, env=self.env
        )


@pytest.fixture
def life(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    """A JupyterLab that saves its widgets, with the notebook in one page."""
    notebooks, home, run = (tmp_path_factory.mktemp(name) for name in ("notebooks", "home", "run"))
    gate = home / "gate"
    gate.write_text("0")
    own = {"GATE": repr(str(gate)), "REPORT": repr(str(home / "report.svg"))}
    cells = [re.sub("GATE|REPORT", lambda found: own[found[0]], source) for source in CELLS.values()]
    (notebooks / "moments.ipynb").write_text(json.dumps(notebook_of(cells)), encoding="utf-8")
    variables = {"TSNB_RUNTIME_DIR": str(run), "TSNB_PROJECT_DIR": str(home)}
    context = browser.new_context(viewport={"width": 1400, "height": 1300})
    context.add_init_script(RECORDS)
    with Lab(home, notebooks, **variables) as lab:
        stays = Notebook(context.new_page(), lab, "moments.ipynb")
        other = Notebook(context.new_page(), lab, "moments.ipynb", "lab/workspaces/other/tree")
        yield Life(
            lab,
            stays,
            other,
            notebooks / "moments.ipynb",
            gate,
            {**os.environ, **variables, "COLUMNS": "160"},
        )


def shown(notebook: Notebook) -> None:
    """Bring the notebook's panel into sight, as wide as in every other page."""
    page = notebook.page
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    page.wait_for_selector(PANEL, timeout=60_000)
    page.locator(PANEL).scroll_into_view_if_needed()


def rows(page: Page) -> dict[str, dict[str, Any]]:
    """Return state, epochs and numbers of each trial, as its row says them."""
    found: dict[str, dict[str, Any]] = page.evaluate(ROWS)
    for one in found.values():
        one["state"] = re.sub(r" [\d:]+$", "", one["state"])  # for how long
        one["epochs"] = one["epochs"].partition(" of ")[0]
        one["best"] = [text.split(" ", 1)[0] for text in one["metrics"] if text.endswith(" (best)")]
        numbers = (text.replace(" (best)", "").split(" ", 1) for text in one["metrics"] if text)
        one["metrics"] = dict(numbers)
    return found


def same(life: Life) -> Any:
    """Load the other page, and wait until it shows what the page that stayed open shows; return that."""
    shown(life.stays)
    save(life.stays.page)
    life.other.open()
    shown(life.other)
    found: list[list[str]] = []
    for _ in range(120):
        one, other = (notebook.page.evaluate(SEEN) for notebook in (life.stays, life.other))
        if one == other:
            return one
        texts = [json.dumps(page, indent=0, ensure_ascii=False).splitlines() for page in (one, other)]
        changes = difflib.unified_diff(texts[0], texts[1], n=0)
        found.append([line for line in changes if not line.startswith("@@")])
        life.stays.page.wait_for_timeout(130)
    pytest.fail("\n".join(["the page that stayed open (-), and another (+):", *min(found, key=len)[:40]]))


def told(life: Life, state: str) -> None:
    """`tsnb status`, `tsnb top` and `tsnb results` say of each trial what its row says, and the panel's sentence."""
    for tries in range(3):
        asked = [life.command("status"), life.command("top", "--once"), life.command("results", "--json")]
        status, top, results = [command.communicate(timeout=60)[0] for command in asked]
        found = rows(life.stays.page), " ".join(life.stays.page.evaluate(SEEN)["words"].split())
        wrong = [*said_otherwise(status, top, *found), *recorded_otherwise(json.loads(results), found[0])]
        if not wrong:
            return
        life.stays.page.wait_for_timeout(1000 * tries)
    pytest.fail("\n".join([state, *wrong, status, top, results, json.dumps(found, indent=1)]))


def said_otherwise(status: str, top: str, trials: dict[str, dict[str, Any]], words: str) -> Iterator[str]:
    """Give what the two screens say in another way than the page."""
    words = re.sub(r" Trained for \S+, ended at [^.]*\.", "", words)  # the page also says how long all took
    flat = " ".join(re.sub(r"^▌ ", "", line, flags=re.MULTILINE) for line in top.splitlines())
    for name, text in (
        ("status", " ".join(status.split())),
        ("top", " ".join(flat.replace("▌ ", "").split())),
    ):
        if words not in text:
            yield f"{name} lacks the sentence {words!r}"
    for trial, row in trials.items():
        row_of = rf"^(?:■ )?{re.escape(trial)} (?!is best:|failed:|crashed:).*"
        lines = [re.search(row_of, text, re.MULTILINE) for text in (status, top)]
        for name, line in zip(("status", "top"), lines, strict=True):
            if line is None or row["state"] not in line[0]:
                yield f"{name} does not say that {trial} is {row['state']}"
        if lines[0] is None or lines[1] is None:
            continue
        yield from logged_otherwise(trial, row, lines[0][0], lines[1][0])
        if row["state"] not in (*ENDED, "queued") and row["epochs"] not in lines[1][0]:
            yield f"top has other epochs of {trial} than {row['epochs']}"


def logged_otherwise(trial: str, row: dict[str, Any], status: str, top: str) -> Iterator[str]:
    """Give which numbers and stars a trial's line has on the two screens in another way than its row on the page."""
    numbers = dict(re.findall(r"(loss|accuracy) (\S+)", status))
    if {key: metric(key, float(value)) for key, value in numbers.items()} != row["metrics"]:
        yield f"status has {numbers} of {trial}"
    starred = re.findall(r"★ (loss|accuracy)", status), top.count("★")
    if starred != (row["best"], len(row["best"])):
        yield f"status and top have {starred} stars of {trial}"
    if not all(value in top for value in row["metrics"].values()):
        yield f"top lacks a number of {trial}"


def recorded_otherwise(results: list[dict[str, Any]], trials: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Give what the records say in another way than the page; they count whole epochs, and know no trial that waits."""
    runs = {one["name"]: one for one in results}
    if runs.keys() != {name for name, row in trials.items() if row["state"] != "queued"}:
        yield f"results are of {sorted(runs)}"
    for name, one in runs.items():
        row = trials.get(name, {"state": "", "epochs": "", "metrics": {}})
        lasting = row["state"] if row["state"] in (*ENDED, "paused") else "running"
        if one["state"] != lasting:
            yield f"results say that {name} is {one['state']}"
        if one["epochs"] != (0 if row["epochs"] == DASH else int(float(row["epochs"]))):
            yield f"results have {one['epochs']} epochs of {name}"
        for key in ("loss", "accuracy"):
            value = one.get(key)
            if value is not None and metric(key, value) != row["metrics"].get(key):
                yield f"results have {key} {value} of {name}"


def pictured(svg: str, trials: dict[str, dict[str, Any]], curves: Curves) -> None:
    """The report's picture has the curves of the page, and the epochs, numbers and ends of its rows."""
    alike(curves, in_picture(svg))
    text = html.unescape(svg.partition('aria-label="')[2].partition('"')[0])
    for name, row in trials.items():
        if row["state"] == "queued":
            continue
        line = re.search(rf"^{re.escape(name)} .*", text, re.MULTILINE)
        assert line is not None, name
        assert row["epochs"].replace(DASH, "0.00") in line[0].split(), (row, line[0])
        assert all(f"{key} {value}" in line[0] for key, value in row["metrics"].items()), (row, line[0])
        if row["state"] in (*ENDED, "paused"):
            assert row["state"] in line[0], (row, line[0])


def spent_alike(svg: str, page: Page) -> None:
    """Once all is over, picture and page say the same of each trial's whole time, and of what came out."""
    said = " ".join(page.evaluate(SEEN)["words"].split())
    assert said.partition(" stopped.")[0] in " ".join("".join(ET.fromstring(svg).itertext()).split())
    text = html.unescape(svg.partition('aria-label="')[2].partition('"')[0])
    for name, (rate, shares) in page.evaluate(SPENT).items():
        parts = [f"{share} %" for share in re.findall(r"([\d.]+)\s%", shares)[:3]]
        wanted = rf"^{re.escape(name)} .* {' +'.join(parts)}(?: +[\d:]+)+ +{re.escape(rate)} "
        row = next(line for line in text.replace("\xa0", " ").splitlines() if line.startswith(f"{name} "))
        assert re.search(wanted, row), (row, rate, shares)


def saved_picture(path: Path) -> str:
    """Return the picture beside the panel that a saved notebook has."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    outputs = [output for cell in notebook["cells"] for output in cell["outputs"]]
    pictures = ["".join(output.get("data", {}).get("image/svg+xml", "")) for output in outputs]
    (found,) = [one for one in pictures if "tsnb-still-" in one]
    return found


def in_page_of_nbconvert(context: BrowserContext, path: Path, folder: Path) -> str:
    """Return the panel's picture as a browser shows it in the page that nbconvert makes of a notebook."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.pop(
        "widgets"
    )  # as a new JupyterLab saves it; else the page asks the network for widgets
    made, _ = HTMLExporter(template_name="lab").from_notebook_node(notebook)  # type: ignore[no-untyped-call]
    (folder / "page.html").write_text(made, encoding="utf-8")
    context.set_offline(True)
    page = context.new_page()
    page.goto((folder / "page.html").as_uri(), wait_until="domcontentloaded")
    page.locator("svg[id^=tsnb-still-], img[src^='data:image/svg']").first.wait_for()
    page.screenshot(path=ARTIFACTS / "moments-nbconvert.png")
    found: list[str] = page.evaluate(
        "() => [...document.querySelectorAll('svg[id^=tsnb-still-], img')]"
        ".filter((one) => one.getBoundingClientRect().height > 100)"
        ".map((one) => one.src || new XMLSerializer().serializeToString(one))"
    )
    page.close()
    context.set_offline(False)
    texts = [base64.b64decode(one.partition(",")[2]).decode() if one[:5] == "data:" else one for one in found]
    (picture,) = [
        text for text in texts if "tsnb-still-" in text
    ]  # beside that of the command that stopped it
    return picture


def test_each_view_at_each_moment_shows_what_a_page_that_stayed_open_shows(
    life: Life, tmp_path: Path
) -> None:
    """From before the first batch to a saved notebook without its kernel."""
    began = time.monotonic()
    ARTIFACTS.mkdir(exist_ok=True)
    page, folder = life.stays.page, life.gate.parent

    def compare(moment: str, *, served: bool = True) -> Any:
        seen, trials = same(life), rows(page)
        print(f"{time.monotonic() - began:6.1f} s {moment}: {len(trials)} trials")
        if served:
            told(life, moment)
        if seen["drawn"]:
            life.run("report")
            pictured(
                (folder / "report.svg").read_text(encoding="utf-8"), trials, on_canvas(seen["drawn"], trials)
            )
        return seen

    life.stays.open()
    life.run("begin", "serve", "panel")
    compare("before the first trial")
    life.run("train")
    life.until(low="", high="", broken="", gone="")
    compare("before the first logged number")
    life.go(20)
    life.until(low="0.70", gone="0.70", high="", broken="")
    compare("while they run")
    life.run("pause")
    life.go(40)
    life.until(low="1.37", gone="1.37", high="paused 0.70", broken="failed 1.00")
    life.run("stop")
    life.until(gone="stopped 1.37")
    compare("one is paused, one has failed, and one is stopped")
    life.stays.start(life.cells.index("clone"))
    page.wait_for_timeout(300)
    life.go(46)
    life.until(low="1.57", twin="1.57")
    life.run("sweep")
    life.until(**{"swept-good0.2": "waiting", "swept-good0.3": "queued"})
    compare("one is a clone, one waits, and one is queued")
    life.run("resume")
    life.go(1000)
    life.run("wait")
    life.until(low="done 3.00", high="done 3.00", twin="done", **{"swept-good0.3": "done 1.00"})
    compare("all have ended")
    life.run("over")
    seen = compare("the stream is over", served=False)
    trials = rows(page)
    curves = on_canvas(seen["drawn"], trials)
    spent_alike((folder / "report.svg").read_text(encoding="utf-8"), page)
    save(page)
    path = life.path
    pictured(saved_picture(path), trials, curves)
    pictured(in_page_of_nbconvert(page.context, path, tmp_path), trials, curves)
    life.lab.end_kernels()
    open_recorded(life.stays)
    shown(life.stays)
    page.wait_for_selector(f"{PANEL}[data-state=recording]", timeout=60_000)
    page.wait_for_timeout(1500)
    again = page.evaluate(SEEN)
    assert rows(page) == trials
    assert on_canvas(again["drawn"], trials) == curves
    assert again["words"] == seen["words"]
    spent_alike((folder / "report.svg").read_text(encoding="utf-8"), page)
    page.screenshot(path=ARTIFACTS / "moments-reopened.png")
