"""NVIDIA's Multi-Process Service: is its control daemon there, and what does it give each process.

A daemon keeps its pipes in one directory (CUDA_MPS_PIPE_DIRECTORY, else /tmp/nvidia-mps), with its process number in
`nvidia-cuda-mps-control.pid`. Inside a container that process cannot be seen: there it counts as running where
somebody has set the directory on purpose, and the control pipe lies in it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil

from tsnb.hardware.inventory import Mps

__all__ = ["MPS_DIRECTORY", "look_for_mps"]

MPS_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
_USUAL = "/tmp/nvidia-mps"  # noqa: S108  # NVIDIA's own default
_DAEMON = "nvidia-cuda-mps-control"
_SEEN_AS = _DAEMON[:15]  # a process's name in /proc has no more letters
_ANSWER_S = 2.0


def look_for_mps(environ: Mapping[str, str] | None = None) -> Mps:
    """Look for the daemon that a process with this environment would use.

    Args:
        environ: Left out: this process's own.
    """
    given = os.environ if environ is None else environ
    directory = given.get(MPS_DIRECTORY) or _USUAL
    running = _runs(Path(directory), on_purpose=bool(given.get(MPS_DIRECTORY)))
    return Mps(running, directory, _percent(given) if running else None)


def _runs(directory: Path, *, on_purpose: bool) -> bool:
    if not (directory / "control").exists():
        return False
    try:
        pid = int((directory / f"{_DAEMON}.pid").read_text())
        if _name(pid) == _SEEN_AS:
            return True
    except (OSError, ValueError):
        pass  # an older daemon, or not for us to read
    if any((process.info["name"] or "")[:15] == _SEEN_AS for process in psutil.process_iter(["name"])):
        return True
    return on_purpose


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()[:15]
    except psutil.Error:
        return ""


def _percent(environ: Mapping[str, str]) -> float | None:
    own = environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
    if own:
        return _number(own)
    program = shutil.which(_DAEMON)
    if program is None:
        return None
    try:
        asked = subprocess.run(
            [program],
            input="get_default_active_thread_percentage\n",
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            env=dict(environ),
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return _number(asked.stdout)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
