"""Trials in a real notebook kernel: below which cell they print, and what a restart of the kernel leaves."""

from __future__ import annotations

import os
import queue
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from jupyter_client.manager import KernelManager

pytestmark = pytest.mark.system


class Kernel:
    """A notebook's kernel with the extension loaded, and all that it has shown, by cell."""

    def __init__(self, place: Path) -> None:
        self.manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(place / "k"))
        env = {**os.environ, "PYTHONPATH": os.getcwd(), "TSNB_PROJECT_DIR": str(place)}
        self.manager.start_kernel(env=env, extra_arguments=["--HistoryManager.enabled=False"])
        self._connect()

    def _connect(self) -> None:
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.text: dict[str, str] = {}
        self.idle: set[str] = set()
        self.run("%load_ext tsnb")

    def restart(self) -> None:
        """Restart it, as the button of JupyterLab does."""
        self.client.stop_channels()
        self.manager.restart_kernel(now=True)
        self._connect()

    def run(self, code: str) -> str:
        """Run a cell; return its identity once it has ended."""
        cell = str(self.client.execute(code))
        self.until(lambda: cell in self.idle)
        return cell

    def shown(self, code: str) -> str:
        """Run a cell and return what it printed."""
        return self.text.get(self.run(code), "")

    def until(self, condition: Callable[[], object], timeout_s: float = 60.0) -> None:
        """Take messages until a condition holds."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, self.text
            try:
                message = self.client.get_iopub_msg(timeout=0.1)
            except queue.Empty:
                continue
            cell, content = message["parent_header"].get("msg_id", ""), message["content"]
            if message["msg_type"] == "stream":
                self.text[cell] = self.text.get(cell, "") + content["text"]
            elif message["msg_type"] == "error":
                self.text[cell] = self.text.get(cell, "") + "\n".join(content["traceback"])
            elif content.get("execution_state") == "idle":
                self.idle.add(cell)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    """Start a kernel; end it, and what it has started."""
    started = Kernel(tmp_path)
    yield started
    below = psutil.Process(started.manager.provisioner.pid).children(recursive=True)  # type: ignore[union-attr]
    started.manager.shutdown_kernel()
    started.client.stop_channels()
    assert not psutil.wait_procs(below, 10)[1], "the kernel's end leaves no trial behind"


@pytest.mark.slow
def test_a_function_of_the_notebook_prints_below_the_cell_that_runs_it(kernel: Kernel) -> None:
    """By `tsnb.run`, by a decorated function, and once more by `rerun`: each below the cell that asked."""
    kernel.run("scale = 3\n@tsnb.trial\ndef train(lr):\n    print('got', scale * lr)\n    return scale * lr")
    first = kernel.run("one = train(2)")
    kernel.until(lambda: "trial 'train-lr2' done" in kernel.text.get(first, ""))
    assert "got 6" in kernel.text[first]
    second = kernel.run("two = tsnb.run(train, lr=3, name='named')")
    kernel.until(lambda: "trial 'named' done" in kernel.text.get(second, ""))
    third = kernel.run("three = one.rerun(lr=4)")
    kernel.until(lambda: "trial 'train-lr4' done" in kernel.text.get(third, ""))
    assert "got 12" in kernel.text[third]
    assert kernel.shown("print(one.result(), two.result(), three.result())") == "6 9 12\n"
    assert "missing a required argument: 'lr'" in kernel.shown("train()")
    records = "print(tsnb.results().set_index('name').loc['train-lr2', 'lr'])"
    assert kernel.shown(records).strip() in {"2", "2.0"}


@pytest.mark.slow
def test_cells_that_run_in_a_row_begin_with_the_same_batch(kernel: Kernel) -> None:
    """As by "Run all": each `%%trial` returns at once, and an epoch is over before the next trial is there."""
    kernel.run(
        "import torch\nloader = torch.utils.data.DataLoader(torch.arange(400.0), batch_size=4, shuffle=True)\n"
        "served = tsnb.serve(loader, name='numbers')"
    )
    code = "for x in (batches := tsnb.attach()):\n    pass\nprint('took', batches.epoch, x.tolist())"
    cells = [str(kernel.client.execute(f"%%trial t{number}\n{code}")) for number in range(3)]
    kernel.until(lambda: all("done after" in kernel.text.get(cell, "") for cell in cells))
    took = {
        line for cell in cells for line in kernel.text[cell].splitlines() if line.startswith(("took", "note"))
    }
    assert len(took) == 1 and min(took).startswith("took 0 "), took
    kernel.run("served.stop()")


@pytest.mark.slow
def test_a_restarted_kernel_finds_its_detached_trial_and_no_other(kernel: Kernel) -> None:
    """Ordinary trials end with it; the detached one goes on, is in the table, and can be stopped."""
    sleep = "import time\nprint('begun', flush=True)\ntsnb.log(loss=0.5)\ntime.sleep(100)"
    near, far = kernel.run(f"%%trial near\n{sleep}"), kernel.run(f"%%trial far --detach\n{sleep}")
    kernel.until(lambda: "begun" in kernel.text.get(near, "") and "begun" in kernel.text.get(far, ""))
    pids = kernel.shown("print(tsnb.trials['near'].pid, tsnb.trials['far'].pid)").split()
    ordinary, detached = (psutil.Process(int(pid)) for pid in pids)
    kernel.restart()
    psutil.wait_procs([ordinary], 10)
    assert not ordinary.is_running()
    assert detached.is_running()
    assert kernel.shown("print(list(tsnb.trials), tsnb.trials['far'].state)") == "['far'] running\n"
    kernel.run("import time\nend = time.monotonic() + 30")
    look = "while not tsnb.trials['far'].metrics and time.monotonic() < end: time.sleep(0.1)\n"
    assert kernel.shown(look + "print(tsnb.trials['far'].metrics)") == "{'loss': 0.5}\n"
    assert "begun" in kernel.shown("%trials logs far")
    again = kernel.shown("%%trial far\nprint('new')")
    assert "A detached trial named 'far' is already running" in again
    assert "Stop it with %trials stop far" in again
    kernel.run("%trials stop far")
    assert kernel.shown("print(tsnb.trials['far'].state)") == "stopped\n"
    assert psutil.wait_procs([detached], 10)[1] == [] or detached.status() == psutil.STATUS_ZOMBIE
    fresh = kernel.run("%%trial far\nprint('new')")
    kernel.until(lambda: "trial 'far' done" in kernel.text.get(fresh, ""))
    lost = kernel.shown("print(tsnb.results(all_runs=True).set_index(['name', 'run'])['state'].to_dict())")
    assert lost == "{('near', 1): 'crashed', ('far', 1): 'stopped', ('far', 2): 'done'}\n"


HELD = """
import os, time
worker = os.fork()
if worker == 0: time.sleep(300)  # nobody tells it of the end, and it holds what it has inherited
print(worker)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_a_killed_notebook_leaves_no_file_and_no_process(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL runs no clean-up: sockets, keys and what was shipped go at once all the same, before any next start."""
    with tempfile.TemporaryDirectory(prefix="tsnb-") as runtime:
        monkeypatch.setenv("TSNB_RUNTIME_DIR", runtime)
        monkeypatch.setenv("TSNB_START", way)
        kernel = Kernel(tmp_path)
        kernel.run("import torch, time\nloader = [torch.zeros(4)] * 8\nlarge = bytes(20_000_000)")
        assert "serving" in kernel.shown("%tensorsocket start loader --name held")
        cell = kernel.run("%%trial killed\nprint('begun', len(large), flush=True)\ntime.sleep(300)")
        kernel.until(lambda: "begun 20000000" in kernel.text.get(cell, ""))
        worker = int(kernel.shown(HELD))
        pid = kernel.manager.provisioner.pid  # type: ignore[union-attr]
        below = psutil.Process(pid).children(recursive=True)
        assert list(Path(runtime).glob("hub-*"))
        os.kill(pid, signal.SIGKILL)
        kernel.client.stop_channels()
        deadline = time.monotonic() + 60
        while left := [path for path in Path(runtime).rglob("*") if not path.is_dir()]:
            if not [path for path in left if path.parent.name != "producers"]:
                break  # the stream's entry: the next look at streams removes it
            assert time.monotonic() < deadline, left
            time.sleep(0.02)
        assert not list(Path(runtime).glob("hub-*"))
        os.kill(worker, signal.SIGKILL)
        while alive := [p for p in below if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]:
            assert time.monotonic() < deadline, alive
            time.sleep(0.02)
        kernel.manager.cleanup_resources()
