"""A process that is tied to its parent ends with it, by the kernel's hand or by its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
BLIND = ROOT / "tests" / "system" / "without_linux"

CHILD = """
import os, sys, time
from tsnb.native import ties
ties.tie_to_parent(int(sys.argv[1]))
if sys.argv[2] == "untied":
    ties.untie()
print(os.getpid(), flush=True)
time.sleep(600)
"""
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid()), sys.argv[2]])
time.sleep(600)
"""


def child_of_a_killed_parent(tied: str, path: str) -> psutil.Process:
    """Start a parent and its child; kill the parent once the child has said that it runs."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD, tied],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    found = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    return found


def ends(process: psutil.Process, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [str(ROOT), f"{BLIND}{os.pathsep}{ROOT}"], ids=["by the kernel", "by a thread"]
)
def test_it_ends_with_its_parent_unless_it_was_untied(path: str) -> None:
    """SIGKILL of the parent: nobody is left to tell it."""
    assert ends(child_of_a_killed_parent("tied", path), 20.0)
    untied = child_of_a_killed_parent("untied", path)
    try:
        assert not ends(untied, 1.0)
    finally:
        untied.kill()
        ends(untied, 20.0)


@pytest.mark.parametrize(
    "path", [str(ROOT), f"{BLIND}{os.pathsep}{ROOT}"], ids=["by the kernel", "by a thread"]
)
def test_one_whose_parent_has_gone_before_does_not_begin(path: str) -> None:
    """The pid above it is another one: nobody waits for what it would do."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, "1" if os.getpid() != 1 else "2", "tied"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == b""
