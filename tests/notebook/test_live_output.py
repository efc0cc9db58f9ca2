"""Output under the launching cell, in a real notebook kernel driven as a front end drives it."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.manager import KernelManager

pytestmark = pytest.mark.system


class FrontEnd:
    """Runs cells in a kernel, and notes under which cell each output belongs, and when it came."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.outputs: list[tuple[str, float, str, dict[str, Any]]] = []
        self.idle: dict[str, float] = {}

    def run(self, code: str) -> str:
        return str(self.client.execute(code))

    def listen(self, done: Any, timeout_s: float = 30.0) -> None:
        """Take messages until `done()`."""
        deadline = time.monotonic() + timeout_s
        while not done():
            assert time.monotonic() < deadline, self.outputs
            try:
                message = self.client.get_iopub_msg(timeout=0.2)
            except queue.Empty:
                continue
            cell, kind, content = (
                message["parent_header"].get("msg_id", ""),
                message["msg_type"],
                message["content"],
            )
            if kind == "status" and content["execution_state"] == "idle":
                self.idle[cell] = time.monotonic()
            elif kind != "status":
                self.outputs.append((cell, time.monotonic(), kind, content))

    def text_of(self, cell: str) -> str:
        return "".join(c["text"] for where, _, kind, c in self.outputs if where == cell and kind == "stream")

    def moment(self, cell: str, text: str) -> float:
        return next(t for w, t, k, c in self.outputs if w == cell and k == "stream" and text in c["text"])


@pytest.fixture
def page(tmp_path: Path) -> Iterator[FrontEnd]:
    """Start a notebook kernel with the extension loaded; end it as a server does."""
    env = {**os.environ, "JPY_SESSION_NAME": "work/train.ipynb", "PYTHONPATH": os.getcwd()}
    manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(tmp_path / "k"))
    manager.start_kernel(env=env, extra_arguments=["--HistoryManager.enabled=False"])
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=30)
    front_end = FrontEnd(client)
    loaded = front_end.run("%load_ext tsnb")
    front_end.listen(lambda: loaded in front_end.idle)
    yield front_end
    kernel: Any = manager.provisioner
    below = psutil.Process(kernel.pid).children(recursive=True)
    manager.shutdown_kernel()
    client.stop_channels()
    assert not psutil.wait_procs(below, 5)[1], "the kernel's end leaves no trial behind"


def test_output_arrives_live_under_the_launching_cell_while_another_cell_runs(page: FrontEnd) -> None:
    """Two trials print into their own cells at once, with the shell thread busy all the time."""
    page.run("%%trial first\npass")  # waits for the fork server, which would take the time of the busy cell
    ready = page.run("tsnb.trials['first'].wait()")
    page.listen(lambda: ready in page.idle)
    loop = (
        "import time\nfor step in range(4):\n    print('{0} step', step, flush=True)\n    time.sleep(0.3)\n"
    )
    one = page.run(
        "%%trial one\n" + loop.format("one") + "from IPython.display import HTML\nHTML('<b>shown</b>')"
    )
    two = page.run("%%trial two\n" + loop.format("two") + "raise ValueError('under two')")
    busy = page.run(
        "import time\nend = time.time() + 4\nwhile time.time() < end: sum(range(1000))\nprint('was busy')"
    )
    page.listen(lambda: busy in page.idle)
    assert page.idle[one] < page.moment(one, "one step 0"), "the cell returned before its trial printed"
    for cell, word in ((one, "one"), (two, "two")):
        assert page.text_of(cell).count(f"{word} step") == 4
        assert page.moment(cell, "step 3") < page.idle[busy], "it came while the shell was busy"
        assert page.moment(cell, "step 3") - page.moment(cell, "step 0") > 0.5, "it came live"
    shown = [(w, c["data"]["text/html"]) for w, _, k, c in page.outputs if k == "display_data"]
    assert shown == [(one, "<b>shown</b>")]
    errors = [(where, content["evalue"]) for where, _, kind, content in page.outputs if kind == "error"]
    assert errors == [(two, "under two")]
    assert page.text_of(busy) == "was busy\n"


def test_a_kill_is_told_under_the_cell_and_the_notebook_goes_on(page: FrontEnd) -> None:
    """Within a second, with the signal's name."""
    cell = page.run("%%trial doomed\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    page.listen(lambda: "begun" in page.text_of(cell))
    pid = int(page.text_of(cell).split("(pid ")[1].partition(")")[0])
    os.kill(pid, 9)
    killed = time.monotonic()
    page.listen(lambda: "SIGKILL" in page.text_of(cell))
    assert page.moment(cell, "SIGKILL") - killed < 1.0
    state = page.run("print(tsnb.trials['doomed'].state)")
    page.listen(lambda: state in page.idle)
    assert page.text_of(state) == "lost\n"


def test_a_stream_is_named_after_its_notebook_and_ends_with_it(page: FrontEnd) -> None:
    """`list` says which notebook serves; a trial that still runs and the producer end with the kernel."""
    page.run("class Ten:\n    def __iter__(self): return iter([[1.0]] * 10)\nten = Ten()")
    page.run("%tensorsocket start ten --name ten")
    page.run("%%trial goes-on\nimport time\ntime.sleep(60)")
    listed = page.run("%tensorsocket list")
    page.listen(lambda: listed in page.idle)
    assert "ten (served by notebook train.ipynb, pid" in page.text_of(listed)
