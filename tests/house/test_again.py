"""The second look at tests that failed in a whole run: it forgives only what passes alone, and names it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import again

UNSTABLE = """
from pathlib import Path

def test_second_time_lucky():
    seen = Path(__file__).with_name("seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""


def run(folder: Path, test: str) -> int:
    """Run a test file the first time; return pytest's exit status."""
    (folder / "test_it.py").write_text(test)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q"]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True).returncode


def test_what_passes_alone_is_named_and_forgiven(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It ran again, passed, and its name stands in the last lines."""
    assert again.main(run(tmp_path, UNSTABLE), tmp_path) == 0
    assert capfd.readouterr().out.rstrip().endswith("test_it.py::test_second_time_lucky")


def test_what_fails_again_fails_the_run(tmp_path: Path) -> None:
    """A second failure counts."""
    assert again.main(run(tmp_path, "def test_wrong():\n    assert False\n"), tmp_path) == 1


def test_many_failures_are_no_accident(tmp_path: Path) -> None:
    """More than a few are not run again."""
    tests = UNSTABLE + "".join(f"def test_{n}():\n    assert False\n" for n in range(again.MOST))
    assert again.main(run(tmp_path, tests), tmp_path) == 1
    assert (tmp_path / "seen").exists()


@pytest.mark.parametrize("status", [2, 3, 4, 5])
def test_a_run_that_broke_off_is_not_forgiven(tmp_path: Path, status: int) -> None:
    """Interrupted, an internal error, bad usage, no tests: not what a second look can mend."""
    run(tmp_path, UNSTABLE)
    assert again.main(status, tmp_path) == status
