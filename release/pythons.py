"""The Pythons of this machine, and an environment of one of them that has a wheel and nothing else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["Failed", "bare", "command", "pythons"]

_ASK = "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2])"
_MANAGED = (".pyenv/versions/*/bin", ".local/share/uv/python/*/bin")
"""Where pyenv and uv keep the Pythons that they install, below the home directory."""


_LEFT_OUT = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "VIRTUAL_ENV")
"""With the first of these set, each process would compile all of torch anew."""


class Failed(RuntimeError):
    """A command failed; the message has its end."""


def pythons(versions: Iterable[str]) -> dict[str, Path]:
    """Return a Python that can make environments for each version, such as "3.12", that is on this machine."""
    found = {}
    for version in versions:
        for path in _places(f"python{version}"):
            if path.is_file() and _answers(path) == version:
                found[version] = path
                break
    return found


def _places(name: str) -> Iterator[Path]:
    """Give the paths where a Python of that name may be."""
    yield from (Path(folder) / name for folder in os.get_exec_path())
    for pattern in _MANAGED:
        yield from sorted(Path.home().glob(f"{pattern}/{name}"))


def _answers(python: Path) -> str:
    """Return the version of a Python; empty if it does not run, or cannot make environments."""
    done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def command(*words: str | Path, cwd: Path | None = None, path: str | None = None) -> str:
    """Run a command and return what it printed.

    Args:
        *words: The program and its arguments.
        cwd: The directory in which it runs.
        path: What stands in PATH; None: what stands there now.

    Raises:
        Failed: It did not exit with 0.
    """
    env = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    if path is not None:
        env["PATH"] = path
    done = subprocess.run(
        [*map(str, words)],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failed(
            f"`{' '.join(map(str, words))}` failed ({done.returncode}):\n{done.stdout[-3000:].strip()}"
        )
    return done.stdout


def bare(python: Path, folder: Path, wheel: Path, constraints: Path) -> Path:
    """Make an environment with a wheel and what it needs, and return its Python.

    Raises:
        Failed: The environment cannot be made, or pip cannot install the wheel.
    """
    command(python, "-m", "venv", folder)
    inside = folder / "bin" / "python"
    pip = (inside, "-m", "pip", "install", "--quiet", "--no-compile", "--constraint", constraints)
    command(*pip, wheel)
    return inside
