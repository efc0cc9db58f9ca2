"""Output under the launching cell, in a real notebook kernel driven as a front end drives it."""

from __future__ import annotations

import os
import queue
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
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

    def listen(self, done: Any, timeout_s: float = 60.0) -> None:
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

    def of(self, cell: str, kind: str) -> list[dict[str, Any]]:
        return [content for where, _, what, content in self.outputs if (where, what) == (cell, kind)]

    def ended(self, cell: str) -> bool:
        """Whether the cell's trial has ended."""
        return re.search(r"trial '\S+' (done|failed|stopped|crashed) after", self.text_of(cell)) is not None

    def moment(self, cell: str, text: str) -> float:
        return next(t for w, t, k, c in self.outputs if w == cell and k == "stream" and text in c["text"])


@contextmanager
def notebook(home: Path) -> Iterator[FrontEnd]:
    """Start a notebook kernel with the extension loaded; end it as a server does."""
    env = {**os.environ, "JPY_SESSION_NAME": "work/train.ipynb", "PYTHONPATH": os.getcwd()}
    env["TSNB_PROJECT_DIR"] = str(home)
    manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(home / "k"))
    manager.start_kernel(env=env, extra_arguments=["--HistoryManager.enabled=False"])
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=30)
    front_end = FrontEnd(client)
    front_end.run("%load_ext tsnb")
    # until the fork server is there: it belongs to the notebook, not to a test
    front_end.run("%%trial first\npass")
    ready = front_end.run("tsnb.trials['first'].wait()")
    front_end.listen(lambda: ready in front_end.idle)
    yield front_end
    kernel: Any = manager.provisioner
    below = psutil.Process(kernel.pid).children(recursive=True)
    manager.shutdown_kernel()
    client.stop_channels()
    assert not psutil.wait_procs(below, 60)[1], "the kernel's end leaves no trial behind"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontEnd]:
    """One notebook for most tests here: its start is what takes time."""
    with notebook(tmp_path_factory.mktemp("k")) as front_end:
        yield front_end


@pytest.fixture
def page(shared: FrontEnd) -> Iterator[FrontEnd]:
    """The notebook; the test's trials end with the test."""
    shared.outputs.clear()
    yield shared
    stopped = shared.run("tsnb.trials.stop()")
    shared.listen(lambda: stopped in shared.idle)


@pytest.mark.slow
def test_a_panel_leaves_a_picture_that_is_made_anew_when_a_trial_has_ended(page: FrontEnd) -> None:
    """Saved notebooks and pages made from them have it where the panel itself cannot be shown."""
    page.run(
        "import torch\nrows = torch.utils.data.DataLoader(torch.arange(40.).reshape(20, 2), batch_size=4)"
    )
    page.run("%tensorsocket start rows --name pictured")
    cell = page.run("%tensorsocket dashboard pictured")
    page.run(
        "%%trial short-lived\nimport time\nfor batch in tsnb.attach(stream='pictured'):\n    time.sleep(0.3)"
    )

    def pictures() -> list[str]:
        shown = [*page.of(cell, "display_data"), *page.of(cell, "update_display_data")]
        return [c["data"]["image/svg+xml"] for c in shown if "image/svg+xml" in c["data"]]

    page.listen(lambda: any("short-lived" in picture for picture in pictures()))
    (mark,) = {re.findall(r'<svg id="(tsnb-still-[0-9a-f]+)"', picture)[0] for picture in pictures()}
    page.listen(lambda: "left" in pictures()[-1])
    stop = page.run("%tensorsocket stop pictured")
    page.listen(lambda: stop in page.idle and "ended" in pictures()[-1])
    assert mark in pictures()[-1] and len(pictures()[-1]) < 60_000


@pytest.mark.slow
def test_a_cell_that_fetches_from_a_running_trial_waits_and_shows_how_far_it_is(
    page: FrontEnd, tmp_path: Path
) -> None:
    """One line below that cell, kept up to date; then the value."""
    page.run(
        "%%trial slow\nimport os, time\nstep = 0\n"
        f"while step < 4 or not os.path.exists('{tmp_path}/seen'):\n"
        "    tsnb.log(loss=min(step, 3))\n    step += 1\n    time.sleep(0.5)\nnet = 7"
    )
    cell = page.run("tsnb.trials['slow']['net']")

    def told() -> list[str]:
        return [update["data"]["text/plain"] for update in page.of(cell, "update_display_data")]

    page.listen(lambda: any(re.search(r"running, \d+ s, loss [0-3]$", text) for text in told()))
    assert cell not in page.idle, "it waits"
    (tmp_path / "seen").touch()
    page.listen(lambda: cell in page.idle)
    (line,) = page.of(cell, "display_data")
    assert line["data"]["text/plain"].startswith("slow['net']: trial 'slow' ")
    updates = page.of(cell, "update_display_data")
    assert all(update["transient"] == line["transient"] for update in updates)
    assert re.search(r"done, \d+ s, loss 3$", told()[-1])
    assert page.of(cell, "execute_result")[0]["data"]["text/plain"] == "7"


def test_output_arrives_live_under_the_launching_cell_while_another_cell_runs(
    page: FrontEnd, tmp_path: Path
) -> None:
    """Two trials print into their own cells at once, with the shell thread busy all the time."""
    loop = (
        "import os, time\nfor step in range(4):\n"
        f"    while not os.path.exists(f'{tmp_path}/{{step}}'): time.sleep(0.02)\n"
        "    print('WORD step', step, flush=True)\n"
    )
    one = page.run(
        "%%trial one\n"
        + loop.replace("WORD", "one")
        + "from IPython.display import HTML\nHTML('<b>shown</b>')"
    )
    two = page.run("%%trial two\n" + loop.replace("WORD", "two") + "raise ValueError('under two')")
    busy = page.run(
        f"import os\nprint('is busy', flush=True)\nwhile not os.path.exists('{tmp_path}/end'): sum(range(1000))"
    )
    # the launching cells return before their trials print, and the third has begun
    page.listen(lambda: {one, two} <= page.idle.keys() and "is busy" in page.text_of(busy))
    for step in range(4):  # each line comes before the next one is printed
        (tmp_path / str(step)).touch()
        page.listen(lambda: all(f"step {step}" in page.text_of(cell) for cell in (one, two)))  # noqa: B023  # called at once
    for cell, word in ((one, "one"), (two, "two")):
        assert page.text_of(cell).count(f"{word} step") == 4
    page.listen(lambda: all(map(page.ended, (one, two))))
    assert busy not in page.idle, "it came while the shell was busy"
    (tmp_path / "end").touch()
    page.listen(lambda: busy in page.idle)
    shown = [(w, c["data"]["text/html"]) for w, _, k, c in page.outputs if k == "display_data"]
    assert shown == [(one, "<b>shown</b>")]
    errors = [(where, content["evalue"]) for where, _, kind, content in page.outputs if kind == "error"]
    assert errors == [(two, "under two")]
    assert page.text_of(busy) == "is busy\n"


@pytest.mark.slow
def test_no_line_lands_in_the_wrong_cell(page: FrontEnd) -> None:
    """Three trials print hundreds of lines while the notebook runs cells that print too: each in its own cell."""
    code = (
        "import sys, time\nfrom IPython.display import HTML, display\n"
        "for k in range({lines}):\n"
        "    print('{tag}', k, flush=k % 3 == 0)\n"
        "    if k % 40 == 0: print('{tag} err', k, file=sys.stderr); display(HTML(f'{tag} shown {{k}}'))\n"
        "    time.sleep({pause})\n"
    )
    trials = {
        page.run(f"%%trial {tag}\n" + code.format(tag=tag, lines=300, pause=0.01)): tag
        for tag in ("red", "green", "blue")
    }
    page.listen(lambda: all("running" in page.text_of(cell) for cell in trials))
    cells = {page.run(code.format(tag=f"own{k}", lines=50, pause=0.005)): f"own{k}" for k in range(12)}
    page.listen(lambda: all(map(page.ended, trials)) and set(cells) <= page.idle.keys())
    for cell, tag in {**trials, **cells}.items():
        lines = 300 if cell in trials else 50
        text = {
            name: "".join(c["text"] for c in page.of(cell, "stream") if c["name"] == name)
            for name in ("stdout", "stderr")
        }
        printed = [line for line in text["stdout"].splitlines() if not line.startswith("trial ")]
        assert printed == [f"{tag} {k}" for k in range(lines)]
        assert text["stderr"] == "".join(f"{tag} err {k}\n" for k in range(0, lines, 40))
        shown = [content["data"]["text/html"] for content in page.of(cell, "display_data")]
        assert shown == [f"{tag} shown {k}" for k in range(0, lines, 40)]


def test_a_traceback_shows_lines_of_other_cells(page: FrontEnd) -> None:
    """What was defined in another cell is shown as that cell's, with its lines; the trial's own as the trial's."""
    defines = page.run(
        "class Net:\n"
        "    def forward(self, batch):\n"
        "        return batch / 0  # here it breaks\n"
        "def train(net, batch):\n"
        "    return net.forward(batch)  # called from here"
    )
    page.listen(lambda: defines in page.idle)
    (count,) = {c["execution_count"] for c in page.of(defines, "execute_input")}
    failing = page.run("%%trial failing\nnet = Net()\ntrain(net, 1)")
    page.listen(lambda: page.ended(failing))
    (error,) = page.of(failing, "error")
    traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error["traceback"]))
    where = [part.split("\n")[0] for part in re.split(r"\n(?=Cell|Trial|File)", traceback)[1:]]
    assert [line.partition(",")[0] for line in where] == [
        "Trial failing",
        f"Cell In[{count}]",
        f"Cell In[{count}]",
    ]
    assert "line 3" in where[0], "counted from the magic's line on, as the notebook shows it"
    for line in ("train(net, 1)", "return net.forward(batch)  # called from here", "/ 0  # here it breaks"):
        assert line in traceback


def test_bars_figures_and_cleared_output(page: FrontEnd) -> None:
    """A text bar instead of an invisible widget; pictures, HTML and plotly as ever; `clear_output` clears."""
    cell = page.run(
        "%%trial rich\n"
        "import plotly.graph_objects as go\n"
        "from IPython.display import Image, clear_output, display\n"
        "from tqdm.auto import tqdm\n"
        "for k in tqdm(range(30), desc='steps'): pass\n"
        "for epoch in range(3):\n"
        "    clear_output(wait=True)\n"
        "    print('epoch', epoch)\n"
        "handle = display('a', display_id=True)\n"
        "handle.update('b')\n"
        "display(Image(data=b'\\x89PNG\\r\\n\\x1a\\n' + bytes(20), format='png'))\n"
        "go.Figure(go.Scatter(y=[1, 2]))"
    )
    page.listen(lambda: page.ended(cell))
    assert "done" in page.text_of(cell)
    assert re.search(r"steps: 100%\|█+\| 30/30", page.text_of(cell))
    assert page.of(cell, "clear_output") == [{"wait": True}] * 3
    kinds = [kind for where, _, kind, _ in page.outputs if where == cell]
    assert kinds.index("clear_output") > kinds.index("stream"), "the bar came before it"
    assert [c["data"]["text/plain"] for c in page.of(cell, "update_display_data")] == ["'b'"]
    shown = [set(content["data"]) for content in page.of(cell, "display_data")]
    assert {"text/plain"} in shown
    assert any("image/png" in mimes for mimes in shown)
    assert any("application/vnd.plotly.v1+json" in mimes for mimes in shown)
    assert not any("widget" in mime for mimes in shown for mime in mimes)


def test_too_much_output_is_in_the_log_on_disk(page: FrontEnd) -> None:
    """The cell shows a part, where the rest is, the traceback and the end; the file has every line, bars as one."""
    cell = page.run(
        "%%trial chatty\n"
        "from tqdm.auto import tqdm\n"
        "for k in range(20_000): print(f'line {k:05}')\n"
        "for k in tqdm(range(500), desc='bar', mininterval=0): pass\n"
        "1 / 0"
    )
    page.listen(lambda: page.ended(cell))
    assert len(page.text_of(cell)) < 110_000
    (notice,) = page.of(cell, "display_data")
    path = Path(re.search(r"The full log: (\S+)", notice["data"]["text/plain"])[1])  # type: ignore[index]
    assert "%trials logs chatty" in notice["data"]["text/plain"]
    assert [error["ename"] for error in page.of(cell, "error")] == ["ZeroDivisionError"]
    log = path.read_text()
    numbers = [line for line in log.splitlines() if line.startswith("line ")]
    assert numbers == [f"line {k:05}" for k in range(20_000)]
    assert log.count("bar: ") == 1
    assert "bar: 100%" in log
    assert "----> 5 1 / 0" in log, "the traceback, without colours"
    assert "trial 'chatty' failed after" in log.splitlines()[-1]
    logs = page.run("%trials logs chatty")
    page.listen(lambda: logs in page.idle)
    assert "line 19999" in page.text_of(logs)


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
    assert page.text_of(state) == "crashed\n"


@pytest.mark.slow
def test_a_stream_is_named_after_its_notebook_and_ends_with_it(tmp_path: Path) -> None:
    """`list` says which notebook serves; a trial that still runs and the producer end with the kernel."""
    with notebook(tmp_path) as page:
        names_its_stream(page)


def names_its_stream(page: FrontEnd) -> None:
    page.run("class Ten:\n    def __iter__(self): return iter([[1.0]] * 10)\nten = Ten()")
    page.run("%tensorsocket start ten --name ten")
    page.run("%%trial goes-on\nimport time\ntime.sleep(60)")
    listed = page.run("%tensorsocket list")
    page.listen(lambda: listed in page.idle)
    assert "ten (served by notebook train.ipynb, pid" in page.text_of(listed)
