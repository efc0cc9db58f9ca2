"""The oldest and the newest versions that docs/install.md names as tested: the core suites run with them."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from release.pythons import pythons
from tests.house.elsewhere import ROOT, install, run
from tests.house.test_docs import table_after

ENVIRONMENTS = {
    "oldest": ("3.10", "2.4.0", "1.26.0"),
    "newest": ("3.13", "2.14.1", "2.5.5"),
}
"""Python, torch and numpy. The newest are those that pip gave when this was written."""
SUITES = (
    "tests/wire/test_codec.py",
    "tests/arena",
    "tests/consumer/test_consumer.py",
    "tests/consumer/test_rebatching.py",
    "tests/consumer/test_unpacking.py",
    "tests/system/test_stream.py",
    "tests/house/test_versions.py",
)
TOOLS = (
    "hypothesis",
    "joblib",
    "nbclient",
    "nbformat",
    "packaging",
    "pytest>=8.2",
    "pytest-timeout",
)
"""What the suites use beside tsnb."""

SERVED = {
    "batch_sampler", "batch_size", "collate_fn", "dataset", "drop_last", "generator", "in_order",
    "multiprocessing_context", "num_workers", "persistent_workers", "pin_memory", "pin_memory_device",
    "prefetch_factor", "sampler", "shuffle", "timeout", "worker_init_fn",
}  # fmt: skip
"""The arguments of a DataLoader that tsnb has been written for."""


def test_the_page_names_the_versions_that_are_tested() -> None:
    """Those of this repository's environment, and those below."""
    page = (ROOT / "docs/install.md").read_text("utf-8")
    pins = (ROOT / "constraints.txt").read_text("utf-8")
    own = [re.findall(rf"^{name}==([\d.]+)", pins, re.MULTILINE)[0] for name in ("torch", "numpy")]
    (python,) = re.findall(r"`pip freeze` on Python ([\d.]+\d)", pins)
    expected = {(python, *own), *ENVIRONMENTS.values()}
    rows = [tuple(row[:3]) for row in table_after(page, "## Tested versions")]
    assert sorted(rows) == sorted(expected)


def test_the_oldest_versions_are_the_lowest_that_are_allowed() -> None:
    """What pyproject.toml promises from below is what is tried."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    for line, version in zip(
        ('requires-python = ">=', '"torch>=', '"numpy>='), ENVIRONMENTS["oldest"], strict=True
    ):
        (lowest,) = re.findall(rf'{re.escape(line)}([\d.]+)"', text)
        assert version.removesuffix(".0") == lowest


def test_a_dataloader_has_no_argument_that_is_not_known() -> None:
    """A newer torch may add one, such as a choice of threads for its workers: then tsnb must serve or refuse it."""
    assert {*inspect.signature(DataLoader).parameters} <= SERVED


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where an environment may be: it has gigabytes, which pytest would keep for three runs."""
    yield tmp_path / "env"
    shutil.rmtree(tmp_path / "env", ignore_errors=True)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_core_suites_pass_with(name: str, place: Path) -> None:
    """An environment made by pip: codec, memory, consumers, and streams of real processes."""
    if name == "newest" and os.environ.get("TSNB_VERSIONS") != "all":
        pytest.skip("it downloads gigabytes: set TSNB_VERSIONS=all")
    version, torch, numpy = ENVIRONMENTS[name]
    found = pythons([version])
    if not found:
        pytest.skip(f"there is no Python {version} on this machine: install it with pyenv or uv")
    run(found[version], "-m", "venv", place)
    python = place / "bin/python"
    pip = (python, "-m", "pip", "install", "--quiet", "--no-compile")  # what is used compiles itself
    install(*pip, f"torch=={torch}", f"numpy=={numpy}", *TOOLS, "--editable", ROOT)
    says = "import sys, torch, numpy; print('%d.%d' % sys.version_info[:2], torch.__version__, numpy.__version__)"
    asked = subprocess.run([python, "-c", says], capture_output=True, text=True, check=True).stdout.split()
    assert [asked[0], asked[1].partition("+")[0], asked[2]] == [version, torch, numpy]
    env = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    }
    suites = [*SUITES, "-m", "not slow", "-q", "-p", "no:cacheprovider", "--timeout=300"]
    done = subprocess.run(
        [python, "-m", "pytest", *suites], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
