"""The built wheel: what `pip install tsnb` gives a notebook user."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from this tree with the environment's own hatchling and Node."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(ROOT),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next(folder.glob("*.whl")))


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    """The wheel's METADATA."""
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def test_the_panel_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    """The bundle ships, so that users need no Node; its sources and Node's packages do not."""
    names = wheel.namelist()
    assert [name for name in names if name.startswith("tsnb/panel/static/") and name.endswith(".js")]
    assert not [name for name in names if "node_modules" in name or "frontend/" in name]


def test_the_bundle_needs_no_network(wheel: zipfile.ZipFile) -> None:
    """Nothing in the bundle imports from, or points to, another server."""
    scripts = [name for name in wheel.namelist() if name.endswith(".js")]
    for script in scripts:
        text = wheel.read(script).decode()
        assert 'from "http' not in text
        assert 'import("http' not in text
        assert "cdn." not in text


def test_every_module_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    """No sub-package is forgotten, and the package is marked as typed."""
    tree = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tsnb").rglob("*.py")
        if "node_modules" not in path.parts
    }
    assert tree <= set(wheel.namelist())
    assert "tsnb/py.typed" in wheel.namelist()
    assert "tsnb/skill/SKILL.md" in wheel.namelist(), "`tsnb skill` prints its path"


def test_one_install_is_enough(metadata: Message) -> None:
    """What the notebook user needs is required, not optional; what only this repository needs is not."""
    required = {
        line.split(";")[0] for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line
    }
    names = {name.rstrip("0123456789.<>=!~, ") for name in required}
    assert {"anywidget", "ipykernel", "ipywidgets", "jupyter-client", "numpy", "plotly", "torch"} <= {
        name.replace("_", "-") for name in names
    }
    assert not names & {"mlxtend", "pandas", "playwright", "pytest", "jupyterlab"}


def test_the_command_is_installed(wheel: zipfile.ZipFile) -> None:
    """`tsnb` on the command line is tsnb.cli:main."""
    name = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "tsnb = tsnb.cli:main" in wheel.read(name).decode()
