"""Where jobs run: a container's small /dev/shm and memory, a batch job without terminal or home, a lost terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.system.scripts import PRELUDE, ROOT
from tests.system.test_limits import in_a_namespace
from tsnb.native.memfd import portable

pytestmark = [pytest.mark.system, pytest.mark.slow]
MIB = 1 << 20
LIMIT = 700 * MIB


def in_time(what: Callable[[], bool], timeout_s: float = 120.0) -> bool:
    """Wait until something is so; return whether it is."""
    ends_s = time.monotonic() + timeout_s
    while not what():
        if time.monotonic() > ends_s:
            return False
        time.sleep(0.1)
    return True


def said_in(log: Path) -> str:
    """Return what a file has, empty where there is none."""
    return log.read_text() if log.exists() else ""


def of_this_folder(folder: Path) -> list[psutil.Process]:
    """Return the processes whose working directory it is."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == folder:
                found.append(process)
    return found


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Path]:
    """The directory of a job; at the end of the test, what still runs in it is killed."""
    yield tmp_path
    for process in of_this_folder(tmp_path):
        process.kill()


# -- what a container allows --------------------------------------------------------------------------------


@pytest.mark.skipif(portable(), reason="batches are in /dev/shm then: see test_portable.py")
@pytest.mark.parametrize("size", ["64m", "1m"])
def test_a_small_dev_shm_ends_a_plain_loader_and_not_a_served_one(size: str) -> None:
    """Docker's 64 MiB, and 1 MiB: batches of 32 MiB from two workers."""
    said = in_a_namespace(
        f"mount -t tmpfs -o size={size} none /dev/shm",
        """
        def loader(): return DataLoader(Numbers(48, width=1 << 20), batch_size=8, num_workers=2)
        tried("plain", lambda: sum(len(labels) for images, labels in loader()))
        with tsnb.serve(loader(), name="s"):
            labels = torch.cat([labels.clone() for images, labels in tsnb.attach("c")])
            say("served", labels.tolist() == list(range(48)))
        """,
    )
    assert "plain RuntimeError" in said and "unable to allocate shared memory" in said, said
    assert "served True" in said, said


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of this machine that limits memory; a process enters it by itself."""
    for above, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        found = above / f"tsnb-{os.getpid()}"
        try:
            found.mkdir()
        except OSError:
            continue
        try:
            (found / limit).write_text(str(LIMIT))
        except OSError:
            found.rmdir()
            continue
        yield found
        assert in_time(lambda: not (found / "cgroup.procs").read_text())  # noqa: B023
        found.rmdir()
        return
    pytest.skip("no control group can be made here")


def test_a_loader_and_two_trials_fit_into_700_mib(group: Path, job: Path) -> None:
    """With the system's own limit: all arrives, and a stream that would not fit is refused with the numbers."""
    code = """
    def work():
        return [label for images, labels in tsnb.attach() for label in labels.tolist()]

    def large(epoch):
        while True: yield torch.zeros(1 << 24)

    if __name__ == "__main__":
        with tsnb.serve(DataLoader(Numbers(64, width=1 << 16), batch_size=8, num_workers=1), name="s"):
            trials = [tsnb.run(work, name=f"t{number}") for number in range(2)]
            for trial in trials: say("took", trial.wait(240).result() == list(range(64)))
        try: tsnb.serve(large, name="large", window=16)
        except tsnb.errors.LoaderFailed as error: say("refused", error)
    """
    (job / "script.py").write_text(PRELUDE + textwrap.dedent(code))
    enter = f'echo $$ > {group}/cgroup.procs && exec "$0" script.py'
    done = subprocess.run(
        ["sh", "-c", enter, sys.executable],
        cwd=job,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("took True") == 2, done.stdout
    assert "19 batches of 64.0 MiB" in done.stdout and f"group, {group}" in done.stdout, done.stdout


# -- batch systems and terminals ----------------------------------------------------------------------------

JOB = """
import time, torch, tsnb
from torch.utils.data import DataLoader, TensorDataset


def work(scale):
    for epoch in range(1000):
        for (batch,) in tsnb.attach():
            tsnb.log(loss=batch.mean().item() * scale)
            print("batch", flush=True)
            time.sleep(0.05)


if __name__ == "__main__":
    loader = DataLoader(TensorDataset(torch.arange(64.0)[:, None]), 8, num_workers=1)
    with tsnb.serve(loader, name="s"):
        for trial in [tsnb.run(work, name=f"t{scale}", scale=scale) for scale in (1, 2)]:
            trial.wait()
"""
LOOK = "import tsnb\nfor row in tsnb.results().to_dict('records'): print(row['name'], row['state'])"


def in_a_read_only_home(home: Path) -> list[str]:
    """Return the words that a command stands behind so that its home cannot be written; skip without namespaces."""
    home.mkdir()
    words = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
    words += ["sh", "-ec", f'mount -t tmpfs -o ro none {home}; exec "$@"', "sh"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespaces here")
    return words


def test_a_batch_job_without_terminal_and_home_leaves_nothing_when_its_time_is_over(job: Path) -> None:
    """As sbatch starts it, and as Slurm ends it: SIGTERM to each of its processes. The next job runs likewise."""
    (job / "job.py").write_text(JOB)
    for name in ("run", "tmp"):
        (job / name).mkdir(mode=0o700)
    behind = in_a_read_only_home(job / "home")
    environment = {
        **os.environ,
        "HOME": str(job / "home"),
        "PYTHONPATH": str(ROOT),
        "IPYTHONDIR": str(job / "ipython"),
        "TMPDIR": str(job / "tmp"),
        "TSNB_RUNTIME_DIR": str(job / "run"),
        "TSNB_PROJECT_DIR": str(job / "records"),
    }
    for number in range(2):
        log = job / f"slurm-{number}.out"
        with log.open("w") as out:
            script = subprocess.Popen(
                [*behind, sys.executable, "job.py"],
                cwd=job,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        assert in_time(lambda: said_in(log).count("] batch") > 20), said_in(log)  # noqa: B023
        assert "[t1] batch" in said_in(log) and "[t2] batch" in said_in(log)
        for process in of_this_folder(job):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)
        assert script.wait(60) in {-signal.SIGTERM, 128 + signal.SIGTERM}
        assert in_time(lambda: not of_this_folder(job), 60), of_this_folder(job)
        look = [sys.executable, "-c", LOOK]
        rows = subprocess.run(
            look, cwd=job, env=environment, capture_output=True, text=True, check=True
        ).stdout
        assert not list((job / "tmp").iterdir()), "IPython makes directories there if IPYTHONDIR is not set"
        assert sorted(rows.splitlines()) == ["t1 crashed", "t2 crashed"], rows


SWEEP = """
import time, tsnb
from pathlib import Path


def train(rate):
    for step in range(40):
        tsnb.log(loss=rate / (step + 1))
        print("step", step, flush=True)
        while step == 3 and not Path("lost").exists():  # the terminal
            time.sleep(0.1)
"""


@pytest.mark.parametrize("way", ["nohup {} < /dev/null", "setsid {} < /dev/null & sleep 600"])
def test_a_sweep_goes_on_when_its_terminal_is_lost(way: str, job: Path) -> None:
    """An ssh connection that breaks: the terminal is gone, and its processes get SIGHUP."""
    (job / "work.py").write_text(SWEEP)
    log = job / "log"
    command = f"{sys.executable} -m tsnb sweep work:train --grid rate=1.0,2.0 > log 2>&1"
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(job)
        os.environ.update(PYTHONPATH=str(ROOT), TSNB_PROJECT_DIR=str(job / "records"))
        os.execv("/bin/sh", ["sh", "-c", way.format(command)])
    assert in_time(lambda: "[train-rate2.0] step 3\n" in said_in(log)), said_in(log)
    os.close(terminal)
    assert "step 4" not in said_in(log)
    (job / "lost").touch()
    assert in_time(lambda: not of_this_folder(job)), said_in(log)
    os.waitpid(pid, 0)
    assert "sweep 'train': 2 done" in said_in(log), said_in(log)


def test_a_sweep_whose_terminal_is_lost_leaves_nothing_where_nothing_was_said(job: Path) -> None:
    """Without nohup or setsid the sweep ends with its terminal, its trials too."""
    (job / "work.py").write_text(SWEEP)
    log = job / "log"
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(job)
        os.environ.update(PYTHONPATH=str(ROOT), TSNB_PROJECT_DIR=str(job / "records"))
        command = f"exec {sys.executable} -m tsnb sweep work:train --grid rate=1.0,2.0 > log 2>&1"
        os.execv("/bin/sh", ["sh", "-c", command])
    assert in_time(lambda: "[train-rate2.0] step 3\n" in said_in(log)), said_in(log)
    os.close(terminal)
    assert in_time(lambda: not of_this_folder(job), 60), of_this_folder(job)
    os.waitpid(pid, 0)
    assert "done" not in said_in(log)
