"""The command line, as a person runs it in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["in_terminal"]


def in_terminal(folder: Path, line: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run `tsnb` with the words of a line, and more, in a folder that has its modules and is its project."""
    return subprocess.run(
        [sys.executable, "-m", "tsnb", *line.split(), *more],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}:{os.getcwd()}", "TSNB_PROJECT_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
