"""Every start method of a loader's workers at every kind of end: no process, no name in /dev/shm is left."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.system

SERVED = """
import sys, time
import torch, tsnb
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, number):
        time.sleep(0.001)
        return torch.tensor(float(number))


def loader(method):
    return DataLoader(Numbers(), 8, num_workers=2, multiprocessing_context=method, persistent_workers=True)


def take():
    with tsnb.attach("s") as consumer:
        for number, _ in enumerate(consumer):
            if number == 3:
                print("serving", flush=True)
            time.sleep(0.01)


if __name__ == "__main__":
    method, how = sys.argv[1:]
    if how == "notebook":  # a kernel of this process serves it, as in a notebook
        from tsnb.hosting import serve_loader
        serve_loader(loader(method), "s")
        take()
    else:
        with tsnb.serve(loader(method), name="s"):
            take()
"""


def runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def below(process: psutil.Process) -> list[psutil.Process]:
    return [one for one in process.children(recursive=True) if runs(one)]


def named(processes: list[psutil.Process]) -> set[Path]:
    """Return what these have mapped of /dev/shm under a name: semaphores, of other programs none."""
    words = [word for one in processes for word in Path(f"/proc/{one.pid}/maps").read_text().split()]
    return {Path(word) for word in words if word.startswith("/dev/shm/sem.")}


def wait_for(done: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not done() and time.monotonic() < deadline:
        time.sleep(0.05)
    return done()


WAYS = [
    *((method, signal.SIGKILL, how) for method in ("forkserver", "spawn") for how in ("script", "notebook")),
    *(
        pytest.param(method, number, how, marks=pytest.mark.slow)
        for method, number, how in (
            ("fork", signal.SIGKILL, "script"),
            ("fork", signal.SIGKILL, "notebook"),
            ("forkserver", signal.SIGTERM, "script"),
            ("forkserver", signal.SIGTERM, "notebook"),
            ("forkserver", signal.SIGINT, "script"),
            ("spawn", signal.SIGTERM, "notebook"),
        )
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "number", "how"), WAYS)
def test_nothing_is_left(method: str, number: signal.Signals, how: str, tmp_path: Path) -> None:
    """The fork server and the resource tracker included: they had stayed for good, with 150 MB each."""
    script = tmp_path / "served.py"
    script.write_text(SERVED)
    errors = (tmp_path / "errors").open("wb")
    with subprocess.Popen(
        [sys.executable, str(script), method, how], stdout=subprocess.PIPE, stderr=errors, text=True
    ) as ran:
        assert ran.stdout is not None
        said = next((line for line in ran.stdout if line.startswith("serving")), "")
        there = below(psutil.Process(ran.pid))
        names = named(there)
        ran.send_signal(number)
        assert said, (tmp_path / "errors").read_text()
        ran.wait(60)
    assert len(there) >= 2
    assert wait_for(lambda: not any(map(runs, there))), [one.cmdline() for one in there if runs(one)]
    assert wait_for(lambda: not any(name.exists() for name in names)), names
