"""tsnb in the versions of IPython and Jupyter that Google Colab and Kaggle pin: by a kernel alone, and in a browser."""

from __future__ import annotations

import json
import re
import sys
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.browser.chromium import ARTIFACTS, chromium
from tests.browser.lab import Lab
from tests.browser.test_lab import PANEL, notebook_of
from tests.house.elsewhere import ROOT, SERVED, has_panel, install, run, run_notebook, said_in

PINS = {
    "ipykernel": "6.17.1",
    "ipython": "7.34.0",
    "ipywidgets": "7.7.1",
    "jupyter-client": "7.4.9",
    "notebook": "6.5.7",
    "traitlets": "5.7.1",
}
FREE = {*PINS, "jupyterlab-widgets", "nbclassic", "nbclient", "widgetsnbextension"}
"""Packages whose version in constraints.txt does not fit the pinned ones, or need not."""

CELLS = [
    """
import importlib.metadata

def fail(batch):
    raise ValueError("the first batch is wrong")  # the line in another cell

print("versions", {name: importlib.metadata.version(name) for name in PINS})
""".replace("PINS", repr([*PINS])),
    *SERVED,
    """
print("all there:", tsnb.trials["roots"]["seen"] == [float(n) for n in range(40)])
""",
    """
%%sweep rates --grid scale=1.0,2.0 --wait
for batch in tsnb.attach():
    tsnb.log(loss=batch.mean().item() * scale)
""",
    """
print("best:", tsnb.trials["rates-scale1.0"].metrics["loss"] < tsnb.trials["rates-scale2.0"].metrics["loss"])
""",
    """
def train(scale):
    for batch in tsnb.attach():
        tsnb.log(loss=batch.mean().item() * scale)
    return scale

swept = tsnb.sweep(train, grid={"scale": [3.0, 4.0]}).wait(60)
print("returned:", swept.best("loss", mode="min").result())
""",
    """
%%trial wrong
for batch in tsnb.attach():
    fail(batch)
""",
    """
%%trial leaves
import sys
try:
    raise KeyboardInterrupt
except KeyboardInterrupt:
    sys.exit(1)
""",
    """
print("ended:", tsnb.trials["wrong"].state, tsnb.trials["leaves"].state)
line = "%tensorsocket start loader --na"
print("Tab:", get_ipython().complete("--na", line, len(line))[1])
""",
    "%tensorsocket dashboard",
    "%tensorsocket report squares",
    "%tensorsocket stop squares",
]


SHOWN = [
    """%load_ext tsnb
import time, torch, tsnb
rows = torch.utils.data.DataLoader(torch.arange(400.).reshape(200, 2), batch_size=4)
def train(good, epochs):
    for epoch in tsnb.epochs(epochs):
        for k, batch in enumerate(tsnb.attach()):
            tsnb.log(loss=good / (1 + k))
            time.sleep(0.05)""",
    "%tensorsocket start rows --name classic",
    "%tensorsocket dashboard classic",
    """short = tsnb.run(train, name="short", good=0.5, epochs=1)
endless = tsnb.run(train, name="endless", good=0.8, epochs=10_000)""",
]
"""What is shown in a page of Notebook 6."""

RAN = """(k) => {
  const found = Jupyter.notebook.get_cell(k).input_prompt_number;
  return found && found !== '*';
}"""


class Classic(Lab):
    """Notebook 6, with its page from before JupyterLab.

    Args:
        python: The Python of its environment.
        home: An empty directory: the server's HOME.
        notebooks: The directory that it shows.
        **variables: Added to its environment.
    """

    def __init__(self, python: Path, home: Path, notebooks: Path, **variables: str) -> None:
        self.python = python
        super().__init__(home, notebooks, **variables)

    def _command(self, notebooks: Path) -> list[str]:
        options = ("NotebookApp.token=", "NotebookApp.password=", "NotebookApp.disable_check_xsrf=True")
        where = ("--ip=127.0.0.1", f"--port={self.port}", f"--notebook-dir={notebooks}")
        own = (f"--{option}" for option in options)
        return [str(self.python), "-m", "notebook", "--no-browser", "--allow-root", *where, *own]


def link_torch(packages: Path) -> None:
    """Put links to this environment's torch, and to what torch needs, into another environment."""
    linked, names = set(), ["torch"]
    while names:
        name = canonicalize_name(names.pop())
        if name in linked:
            continue
        linked.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:  # a need of another platform
            continue
        needs = map(Requirement, found.requires or ())
        names += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
        tops = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
        for top in map(Path, tops):
            if not (packages / top).exists():
                (packages / top).symlink_to(str(found.locate_file(top)))


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the pinned versions, in which pip has installed tsnb's wheel."""
    folder = tmp_path_factory.mktemp("pinned")
    venv.create(folder / "env", symlinks=True)
    python = folder / "env/bin/python"
    (packages,) = folder.glob("env/lib/python3*/site-packages")
    link_torch(packages)
    constraints = [
        line
        for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
        if canonicalize_name(re.split("[=;@ ]", line)[0]) not in FREE
    ]
    (folder / "constraints.txt").write_text("\n".join(constraints))
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-compile")
    pins = [f"{name}=={version}" for name, version in PINS.items()]
    install(*pip, "--constraint", folder / "constraints.txt", *pins, next(folder.glob("*.whl")))
    return python


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="IPython 7.34 is older than this Python")
def test_a_notebook_runs_with_the_versions_that_colab_pins(
    pinned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pinned versions stay, and a stream, trials, sweeps, the panel and the report work with them."""
    monkeypatch.delenv("TSNB_PROJECT_DIR", raising=False)
    notebook = run_notebook(pinned, CELLS, tmp_path, monkeypatch, allow_errors=True)
    said = said_in(notebook)
    assert f"versions {PINS}" in said
    assert f"trial in {pinned.parents[1] / 'lib'}" in said
    for line in (
        "all there: True",
        "best: True",
        "returned: 3.0",
        "ended: failed stopped",
        "Tab: ['--name']",
    ):
        assert line in said, f"{line}\n\n{said}"
    assert "the line in another cell" in said, "a traceback shows no line of the notebook's other cells"
    failed = [cell for cell in notebook.cells if any(out.output_type == "error" for out in cell.outputs)]
    assert [cell.source.split("\n")[0] for cell in failed] == ["%%trial wrong"]
    assert has_panel(notebook), "no panel was shown"
    report, stop = ["".join(map(str, cell.outputs)) for cell in notebook.cells[-2:]]
    assert "image/svg+xml" in report and "stream squares" in report
    assert "stopped 'squares'" in stop


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.browser
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="IPython 7.34 is older than this Python")
def test_the_panel_is_live_in_a_page_of_those_versions(pinned: Path, tmp_path: Path) -> None:
    """Notebook 6 with ipywidgets 7.7: rows, a curve, a button that stops a trial, and no error in the page."""
    home, run_, notebooks = (tmp_path / name for name in ("home", "run", "notebooks"))
    for folder in (home, run_, notebooks):
        folder.mkdir(mode=0o700)
    (notebooks / "classic.ipynb").write_text(json.dumps(notebook_of(SHOWN)), encoding="utf-8")
    variables = {"TSNB_RUNTIME_DIR": str(run_), "TSNB_PROJECT_DIR": str(home)}
    with chromium() as browser, Classic(pinned, home, notebooks, **variables) as server:
        page = browser.new_page(viewport={"width": 1300, "height": 1000})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{server.url}/notebooks/classic.ipynb", wait_until="domcontentloaded", timeout=120_000)
        page.wait_for_function("() => window.Jupyter?.notebook?.kernel?.is_connected()", timeout=180_000)
        for number in range(len(SHOWN)):
            page.evaluate("(k) => Jupyter.notebook.execute_cells([k])", number)
            page.wait_for_function(RAN, arg=number, timeout=180_000)
        row = page.locator(f"{PANEL} .tsnb-trials tbody")
        row.filter(has_text="short").filter(has_text="done").wait_for(timeout=120_000)
        row.filter(has_text="endless").filter(has_text="streaming").wait_for(timeout=60_000)
        page.get_by_role("img", name="loss by batch").wait_for(timeout=60_000)
        stop = row.filter(has_text="endless").locator(".tsnb-stop")
        stop.click()
        stop.click()  # it asks once more
        row.filter(has_text="endless").filter(has_text="stopped").wait_for(timeout=60_000)
        ARTIFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTIFACTS / "notebook-6.png")
        page.wait_for_timeout(2000)  # the panel leaves the picture of the end in the page
        assert errors == []
