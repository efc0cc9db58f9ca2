"""What another user of the machine may try on background kernels: files in a shared directory, sockets, leftovers."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from tests import forking
from tests.strangers import as_another_user, needs_another_user
from tests.system.scripts import ROOT

pytestmark = pytest.mark.system

ALL_MODULES = {
    name
    for name in set(sys.stdlib_module_names) | set(metadata.packages_distributions())
    if name in sys.modules or PathFinder.find_spec(name) is not None
}
"""Whatever a Python of ours could import here."""

OURS = {"tsnb", "tests"}
"""Found through PYTHONPATH here, before any directory of the user's."""


@pytest.fixture
def shared_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory as /tmp is one, in which another user has put a module of every name there is."""
    where = tmp_path_factory.mktemp("shared")
    for above in (where, where.parent, where.parent.parent):
        above.chmod(0o755)
    where.chmod(0o1777)
    witness = where / "witness"
    planted = (
        f"with open({str(witness)!r}, 'a') as f: f.write(__name__ + ' ')\nraise ImportError('planted')\n"
    )

    def plant() -> None:
        for name in ALL_MODULES - OURS:
            (where / f"{name}.py").write_text(planted)

    as_another_user(plant)
    return where


def planted_code_that_ran(where: Path) -> list[str]:
    witness = where / "witness"
    return witness.read_text().split() if witness.exists() else []


IN_A_SHARED_DIRECTORY = """
import sys
import tsnb

def train():
    from multiprocessing import get_context
    found = []
    for method in ("spawn", "forkserver"):
        with get_context(method).Pool(1) as pool:
            found += pool.map(len, ["ab"])
    return found, [path for path in sys.path if path in ("", os.getcwd())]

import os
other = {"LC_TSNB_TEST": "1"}  # read once, when Python starts: a start of its own
trials = [tsnb.run(train, name=name, env=env) for name, env in (("forked", {}), ("spawned", other))]
for trial in trials:
    print(trial.name, *trial.result(120), flush=True)
tsnb.trials.clear()
"""


@needs_another_user
def test_kernels_and_their_workers_import_nothing_from_the_working_directory(
    shared_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By any way to start one; an innocent `random.py` beside the notebook breaks nothing either."""
    monkeypatch.chdir(shared_directory)
    script = forking.start(IN_A_SHARED_DIRECTORY, stdin=False)
    assert script.stdout is not None
    said = script.stdout.read()
    assert script.wait(20) == 0, said
    script.stdout.close()
    assert not planted_code_that_ran(shared_directory)
    assert said.splitlines()[-2:] == ["forked [2, 2] []", "spawned [2, 2] []"]


LOADER = """
import torch
from torch.utils.data import DataLoader
def make(): return DataLoader([torch.zeros(1)] * 2, num_workers=1, multiprocessing_context="spawn")
"""


@needs_another_user
def test_tsnb_serve_shadows_nothing_by_the_directory_it_is_called_in(shared_directory: Path) -> None:
    """`MODULE:NAME` is found there last; workers start without it."""
    (shared_directory / "mydata.py").write_text(LOADER)
    serving = subprocess.Popen(
        [Path(sys.executable).parent / "tsnb", "serve", "mydata:make", "--name", "door"],
        cwd=shared_directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert serving.stdout is not None
    line = serving.stdout.readline()
    serving.terminate()
    said = line + serving.communicate(timeout=60)[0]
    assert "serving 'door'" in said
    assert not planted_code_that_ran(shared_directory)


@needs_another_user
def test_python_m_tsnb_imports_little_from_the_directory_it_is_called_in(shared_directory: Path) -> None:
    """What Python itself takes from there to find the module is beyond us; all that comes later is not."""
    for name in ALL_MODULES - {
        "argparse",
        "difflib",
        "secrets",
        "selectors",
        "socket",
        "json",
        "torch",
        "psutil",
    }:
        (shared_directory / f"{name}.py").unlink(missing_ok=True)
    called = [sys.executable, "-m", "tsnb", "list"]
    subprocess.run(called, cwd=shared_directory, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    assert not planted_code_that_ran(shared_directory)
