"""The two scripts of docs/from-a-dataloader.md, run as printed: a producer and a consumer in two processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "from-a-dataloader.md"
SERVE_SET_UP = """
import torch
from torch.utils.data import DataLoader, TensorDataset
train_loader = DataLoader(TensorDataset(torch.randn(200, 4), torch.arange(200)), batch_size=64)
"""
COUNT = "\n        seen.append(labels)\n"  # in place of the script's dots


def script_blocks() -> tuple[str, str]:
    """Return the serving and the attaching script."""
    _, marker, text = PAGE.read_text(encoding="utf-8").partition("<!-- run by tests/house/test_scripts.py")
    assert marker, "the page no longer marks its scripts"
    serving, attaching = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[:2]
    return serving, attaching


@pytest.mark.slow
@pytest.mark.system
def test_the_two_scripts_work_as_printed(tmp_path: Path) -> None:
    """Every sample arrives once in each of three epochs, at the batch size that the script asks for."""
    serving, attaching = script_blocks()
    assert attaching.rstrip().endswith("...")
    environment = {**os.environ, "TSNB_RUNTIME_DIR": str(tmp_path / "runtime")}
    counted = f"seen = []\n{attaching.rstrip().removesuffix('...').rstrip()}{COUNT}"
    counted += "\nassert [len(s) for s in seen] == 3 * ([32] * 6 + [8])\n"
    counted += "assert sorted(int(i) for s in seen for i in s) == sorted(3 * list(range(200)))\n"
    producer = subprocess.Popen([sys.executable, "-c", SERVE_SET_UP + serving], env=environment)
    try:
        wait = (
            "import time, tsnb\n"
            "until = time.monotonic() + 30\n"
            "while not tsnb.streams.list() and time.monotonic() < until: time.sleep(0.05)\n"
        )
        command = [sys.executable, "-c", wait + counted]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert producer.poll() is None
        command = [sys.executable, "-m", "tsnb", "stop", "digits"]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        assert producer.wait(120) == 0
    finally:
        producer.kill()
        producer.wait()
