"""tsnb in the versions of IPython and Jupyter that Google Colab and Kaggle pin."""

from __future__ import annotations

import re
import sys
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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
