"""What a notebook has done to imported things is done in its trials and streams too, or is said by name."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tsnb
from tsnb.errors import TrialFailed
from tsnb.experiments import run, run_cell
from tsnb.hosting.serving import is_same_loader, serve_loader
from tsnb.kernels.cargo.imported import changes_here, effects_here

pytestmark = pytest.mark.system

LIBRARY = """
SCALE = 1
TABLE = {"a": 1, "b": 2}
ITEMS = [1]
HANDLE = None
class Config:
    width = 3
config = Config()
class Registry:
    def __init__(self): self.known = {}
    def register(self, thing): self.known[thing.__name__] = thing; return thing
registry = Registry()
class Learner:
    kind = "plain"
    def fit(self): return "fit"
def patch(fn): setattr(Learner, fn.__name__, fn); return fn
def scaled(x): return x * SCALE
def called(): return registry.known["mine"]()
def seen():
    return [SCALE, dict(TABLE), list(ITEMS), config.width, Learner.kind, sorted(registry.known), scaled(2)]
"""

CELLS = [
    "import otherlib\nimport otherlib as ol\nfrom otherlib import Learner, config, registry, patch",
    "import otherlib.extras",
    "otherlib.SCALE = 10\nol.TABLE['a'] = 5\nif True:\n    otherlib.ITEMS.append(7)\nconfig.width = 8",
    "setattr(Learner, 'kind', 'changed')\nfactor = 3",
    "@patch\ndef thrice(self): return factor * len(self.fit())\n@registry.register\ndef mine(): return 'mine'",
]
CHANGED = [10, {"a": 5, "b": 2}, [1, 7], 8, "changed", ["mine"], 20]


@pytest.fixture
def library(notebook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package of the user's, imported and changed by the cells of a notebook."""
    package = tmp_path / "otherlib"
    package.mkdir()
    (package / "__init__.py").write_text(LIBRARY)
    (package / "extras.py").write_text("import otherlib\notherlib.Learner.more = lambda self: 'more'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    cells: list[str] = []
    notebook.variables["In"] = cells

    def cell(source: str) -> dict[str, Any]:
        cells.append(source)
        found: dict[str, Any] = notebook.run(source)
        return found

    for source in CELLS:
        cell(source)
    yield cell
    for name in [name for name in sys.modules if name.partition(".")[0] == "otherlib"]:
        del sys.modules[name]
    importlib.invalidate_caches()


def test_changes_of_imported_modules_and_classes_are_made_in_a_trial(library: Any, page: Any) -> None:
    """Values, items, lists, attributes of classes and objects, what decorators put somewhere, effects of imports."""
    box = library("")
    look = (
        "seen, learner = otherlib.seen(), otherlib.Learner()\n"
        "got = (learner.thrice(), learner.more(), otherlib.called())"
    )
    trial = run_cell("a", look, box, outlet=page).wait(120)
    assert trial["seen"] == CHANGED == box["otherlib"].seen()
    assert trial["got"] == (9, "more", "mine")
    library("import wave\nthird = wave.WAVE_FORMAT_PCM\nwave.WAVE_FORMAT_PCM = 9")
    later = "import sys\nbefore = 'wave' in sys.modules\nimport wave\ngot = before, wave.WAVE_FORMAT_PCM"
    assert run_cell("b", later, box, outlet=page).wait(120)["got"] == (False, 9)
    box["wave"].WAVE_FORMAT_PCM = box["third"]
    library("def train():\n    import otherlib\n    return otherlib.seen()")
    assert run(box["train"], name="c").result(120) == CHANGED


def test_changes_are_made_in_a_stream_and_make_another_loader_of_it(library: Any, page: Any) -> None:
    """Its batches are computed with them; and once they have changed, the stream is not the same any more."""
    box = library(
        "import torch\nclass Data(torch.utils.data.Dataset):\n    def __len__(self): return 4\n"
        "    def __getitem__(self, i): return otherlib.scaled(i)\n"
        "loader = torch.utils.data.DataLoader(Data(), 2, num_workers=1)"
    )
    kernel = serve_loader(box["loader"], "scaled")
    assert [batch.tolist() for batch in tsnb.attach("me", stream="scaled")] == [[0, 10], [20, 30]]
    assert is_same_loader(kernel, box["loader"], "loader", kernel.asked)


def test_what_cannot_travel_is_named_and_what_is_lacking_is_explained(library: Any, page: Any) -> None:
    """The trial runs without it; an attribute that it lacks then names the set-up cell."""
    box = library("import threading\notherlib.HANDLE = threading.Lock()")
    with pytest.warns(
        UserWarning, match=r"Trial 'a' starts without your change of otherlib\.HANDLE, which cannot"
    ):
        trial = run_cell("a", "seen = otherlib.seen(), otherlib.HANDLE", box, outlet=page)
    assert trial.wait(120)["seen"] == (CHANGED, None)
    box["otherlib"].HANDLE = None
    failed = run_cell("b", "Learner().fit_one_cycle()", box, outlet=page)
    with pytest.raises(TrialFailed):
        failed.wait(120)
    assert "sets 'fit_one_cycle' in it, put that line into a %%trial --setup cell" in page.text


def test_what_the_notebook_has_not_changed_is_not_carried(library: Any, notebook: Any) -> None:
    """Names that mean something else by now, objects of its own, and what belongs to the process or to torch."""
    before = {change.name for change in changes_here(notebook.variables)}
    assert before >= {"otherlib.SCALE", "otherlib.TABLE['a']", "otherlib.ITEMS", "otherlib.config.width"}
    library(
        "import sys, os, torch, tsnb\nsys.ps9 = 1\nos.environ['X_OF_A_TEST'] = '1'\n"
        "torch.backends.cudnn.benchmark = False\nnet = torch.nn.Linear(1, 1)\nnet.scale = 3\n"
        "class Own: pass\nOwn.x = 1\nown = {}\nown.update(a=1)\nown['b'] = 2\n"
        "def never():\n    import otherlib as later\n    later.gone = 1\n"
        "from otherlib import TABLE as table\ntable = Own()\ntable.y = 2"
    )
    after = {change.name for change in changes_here(notebook.variables)}
    assert after - before == set()
    assert effects_here(notebook.variables)[:2] == [("otherlib", True), ("otherlib.extras", True)]


def test_a_notebook_of_many_cells_is_read_quickly(library: Any, notebook: Any) -> None:
    """A cell is parsed once; a sweep of fifty trials asks fifty times."""
    import torch

    notebook.variables.update({f"torch_{n}": getattr(torch, n) for n in dir(torch) if n[0] != "_"})
    for number in range(300):
        notebook.variables["In"].append(
            f"x{number} = [i * {number} for i in range(3)]\nprint(x{number})\n" * 10
        )
    changes_here(notebook.variables)
    used = time.thread_time()
    for _ in range(5):
        changes_here(notebook.variables)
    assert (time.thread_time() - used) / 5 < 0.2
    assert threading.active_count() < 100
