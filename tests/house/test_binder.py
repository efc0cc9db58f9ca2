"""binder/: what it installs, and the limit of its check, which test_quickstart.py runs the quickstart under."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from binder.check import inside, make_group

ROOT = Path(__file__).parents[2]
HOARD = "hoard = [bytearray([1]) * (1 << 24) for _ in range(40)]"


def test_torch_is_the_one_of_the_constraints() -> None:
    """Another version would be replaced by postBuild, by one with gigabytes of CUDA."""
    named = re.findall(r"torch==\S+", (ROOT / "binder/environment.yml").read_text(encoding="utf-8"))
    assert len(named) == 1
    assert named[0] in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()


def test_who_goes_past_the_limit_is_killed_and_counted() -> None:
    """640 MB in a group of 256 MB."""
    group = make_group(1 << 28)
    if group is None:
        pytest.skip("no control group with a memory limit can be made here")
    try:
        done = subprocess.run(inside(group, sys.executable, "-c", HOARD), check=False)
    finally:
        kills = group.end()
    assert done.returncode != 0 and kills == 1
    assert group.peak_bytes <= 1 << 28
    assert not group.path.exists()
