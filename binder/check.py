"""Run the quickstart as Binder would: through binder/start, next to an idle JupyterLab, in 2 GB of memory.

    python binder/check.py                  in the environment of this Python (`make lab` makes one: .venv)
    python binder/check.py --build FOLDER   makes an environment first, from environment.yml and postBuild

The memory limit needs root, or another right to make control groups. Without that right, the quickstart runs without a
limit and the program prints a note. Conda, repo2docker and Binder itself are not tried: a plain venv with this Python
takes the packages that pip installs.

The program prints the peak memory of all processes together. Shared memory counts once. The file cache is listed
separately, because the system can drop it. The exit status is that of the notebook, or 1 if the system killed a process
for lack of memory.

Measured on two busy cores (load 13) with Python 3.11 and torch 2.13: 1,505 MiB in an environment made by `--build`, and
1,562 MiB in .venv.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BINDER = ROOT / "binder"
GIB = 1 << 30
TICK_S = 0.1
FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"),
    2: ("memory.max", "memory.current", "memory.events"),
}
"""Names of a control group's limit, its use and its kills, by the version of control groups."""
STAT = {1: ("total_cache", "total_shmem"), 2: ("file", "shmem")}
"""Likewise: files in memory, and what of them is shared memory, which cannot be dropped."""


class Group:
    """A control group with a memory limit, and the peak of what it used."""

    def __init__(self, path: Path, version: int) -> None:
        self.path, self.version = path, version
        self.peak_bytes = self.files_bytes = 0
        self._done = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._watching.start()

    def _watch(self) -> None:
        while not self._done.wait(TICK_S):
            stat = self._table("memory.stat")
            files = stat[STAT[self.version][0]] - stat[STAT[self.version][1]]
            used = int((self.path / FILES[self.version][1]).read_text())
            self.peak_bytes = max(self.peak_bytes, used - files)
            self.files_bytes = max(self.files_bytes, files)

    def _table(self, name: str) -> dict[str, int]:
        rows = (line.split() for line in (self.path / name).read_text().splitlines())
        return {row[0]: int(row[1]) for row in rows}

    def end(self) -> int:
        """End everything in it and the group; return how many processes the system killed for memory."""
        self._done.set()
        self._watching.join()
        kills = self._table(FILES[self.version][2])["oom_kill"]
        while pids := (self.path / "cgroup.procs").read_text().split():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(TICK_S)
        self.path.rmdir()
        return kills


def make_group(limit_bytes: int) -> Group | None:
    """Return a control group with that limit; None where none can be made."""
    for base, version in ((Path("/sys/fs/cgroup/memory"), 1), (Path("/sys/fs/cgroup"), 2)):
        path, limit = base / f"tsnb-binder-{os.getpid()}", FILES[version][0]
        if not (base / "cgroup.procs").exists():
            continue
        try:
            path.mkdir()
        except OSError:
            continue
        try:
            os.truncate(path / limit, 0)  # raises where it is not there: nothing is made
            (path / limit).write_text(str(limit_bytes))
            return Group(path, version)
        except OSError:
            path.rmdir()
    return None


def build(folder: Path, *, own_index: bool) -> str:
    """Make a venv from environment.yml and postBuild; return its Python.

    Args:
        folder: Where.
        own_index: Whether torch's own index is asked, as environment.yml says; else pip's settings lead to a CPU wheel.
    """
    _, _, wanted = (BINDER / "environment.yml").read_text(encoding="utf-8").partition("- pip:\n")
    lines = [line.strip().removeprefix("- ") for line in wanted.splitlines()]
    words = [word for line in lines for word in line.split() if own_index or not line.startswith("--")]
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    path = f"{folder.resolve() / 'bin'}{os.pathsep}{os.environ['PATH']}"
    python = str(folder.resolve() / "bin/python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *words], check=True)
    subprocess.run([BINDER / "postBuild"], cwd=ROOT, env={**os.environ, "PATH": path}, check=True)
    return python


def inside(group: Group | None, *command: object) -> list[str]:
    """Return a command that joins the group first and then becomes `command`, by way of binder/start."""
    join = f"echo $$ > {group.path}/cgroup.procs && " if group else ""
    return ["sh", "-c", f'{join}exec "$@"', "sh", str(BINDER / "start"), *map(str, command)]


@contextlib.contextmanager
def a_lab(python: str, group: Group | None) -> Iterator[None]:
    """Run JupyterLab's server with no page open, as it runs beside every notebook on Binder."""
    with tempfile.TemporaryDirectory() as home:
        private = {f"JUPYTER_{part}_DIR": home for part in ("CONFIG", "DATA", "RUNTIME")}
        options = ("--no-browser", "--allow-root", "--port=0", f"--notebook-dir={ROOT}")
        server = subprocess.Popen(
            inside(group, python, "-m", "jupyterlab", *options),
            env={**os.environ, **private},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.stderr is not None
        said = []
        for line in server.stderr:
            said.append(line)
            if "is running at" in line:
                break
        else:
            sys.exit("JupyterLab did not start:\n" + "".join(said))
        drain = threading.Thread(target=server.stderr.read, daemon=True)
        drain.start()
        try:
            yield
        finally:
            server.kill()
            server.wait()
            drain.join()


def main() -> int:
    """Build if asked, run the quickstart, and print its peak memory."""
    parser = argparse.ArgumentParser(description="Run the quickstart as Binder would, in 2 GB of memory.")
    parser.add_argument(
        "--build", type=Path, metavar="FOLDER", help="make an environment in this folder first"
    )
    parser.add_argument("--no-index", action="store_true", help="build without the package index of torch")
    parser.add_argument("--gib", type=float, default=2.0, help="memory limit (default: 2)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="where to save the executed notebook")
    options = parser.parse_args()
    python = build(options.build, own_index=not options.no_index) if options.build else sys.executable
    group = make_group(int(options.gib * GIB))
    command = inside(
        group, python, ROOT / "notebooks/demo.py", *(("--save", options.save) if options.save else ())
    )
    try:
        with a_lab(python, group):
            status = subprocess.run(command, check=False).returncode
    finally:
        kills = group.end() if group else 0
    if group is None:
        print("The quickstart ran without a memory limit, because no control group can be made here.")
        return status
    mib = 1 << 20
    print(f"Peak memory: {group.peak_bytes / mib:.0f} MiB of {options.gib * 1024:.0f} MiB.")
    print(f"File cache: up to {group.files_bytes / mib:.0f} MiB more, which the system can drop.")
    print(f"Processes killed for lack of memory: {kills}.")
    return status or bool(kills)


if __name__ == "__main__":
    sys.exit(main())
