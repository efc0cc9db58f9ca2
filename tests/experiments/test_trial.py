"""Trials in real kernels: states, output, variables, numbers, ends."""

from __future__ import annotations

import errno
import math
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.leftovers import descendants
from tests.promises import HANG_S, promptly, took
from tsnb.errors import NotShippable, TrialFailed, TsnbError
from tsnb.experiments import Trial, run_cell, trials
from tsnb.experiments.overview import board
from tsnb.experiments.overview.board import NoSuchTrial
from tsnb.experiments.running.attempt import Attempt
from tsnb.experiments.trial import ENDED, TRIAL_STATES, NoSuchVariable
from tsnb.kernels.cargo.capture import UndefinedNames
from tsnb.kernels.output.screen import plain
from tsnb.records.run import Run
from tsnb.records.tables import results_table
from tsnb.telemetry.watching import watch

pytestmark = pytest.mark.system

Until = Callable[..., None]


def start(name: str, cell: str, page: Any, variables: dict[str, Any] | None = None, **options: Any) -> Trial:
    return run_cell(name, cell, variables or {}, outlet=page, **options)


def test_a_cell_runs_beside_the_notebook_and_gives_back_its_variables(notebook: Any, page: Any) -> None:
    """It takes what it reads, prints live, ends as done, and its variables come when asked for."""
    box = notebook.run("class Net:\n    def __init__(self, w): self.w = w\nwidth = 7\nunused = 1")
    began = time.monotonic()
    trial = start("cnn", "net = Net(width)\nprint('made', net.w)", page, box)
    took(time.monotonic() - began, 0.5)  # the notebook is free at once
    assert trial.wait(120) is trial
    assert trial.state == "done"
    assert re.match(r"trial 'cnn' running \(pid \d+\)\nmade 7\n", page.text)
    assert "trial 'cnn' done after" in page.text
    assert "made 7" in trial.logs()
    net = trial["net"]
    assert type(net) is box["Net"]
    assert net.w == 7
    with pytest.raises(NoSuchVariable, match=r"no variable 'nett'\. Did you mean 'net'\?"):
        trial["nett"]
    with pytest.raises(NoSuchVariable):
        trial["unused"]


def test_fetching_leaves_the_notebooks_classes_and_names_as_they_are(notebook: Any, page: Any) -> None:
    """What was edited since the start stays edited; a pulled function keeps the trial's variables."""
    box = notebook.run("class CFG:\n    lr = 0.1\n    def rate(self): return self.lr\nscale = 1")
    cell = "cfg = CFG()\nhelper = 2\ndef grow(x): return x * scale * helper\ngrow(1)\nCFG.lr = 9"
    trial = start("cfg", cell, page, box)
    trial.wait(120)
    notebook.run("CFG.lr = 0.5\nCFG.rate = lambda self: 'patched'\nscale = 100")
    names = set(box)
    assert trial["cfg"].rate() == "patched"
    assert trial["CFG"] is box["CFG"]
    assert trial["grow"](1) == 2
    assert box["CFG"].lr == 0.5
    assert set(box) == names


def test_workers_of_a_trials_own_loader_give_it_its_own_classes(page: Any) -> None:
    """`isinstance` holds for what a worker process sends, and a class that was edited since it started stays so."""
    cell = (
        "import dataclasses\nfrom torch.utils.data import DataLoader\n"
        "@dataclasses.dataclass\nclass Batch:\n    x: object\n    scale = 1\n"
        "loader = DataLoader(range(4), batch_size=2, num_workers=1, collate_fn=Batch)\n"
        "found = iter(loader)\nBatch.scale = 2\n"
        "kinds = [(isinstance(b, Batch), b.scale, list(b.x)) for b in found]"
    )
    trial = start("workers", cell, page)
    trial.wait(120)
    assert trial["kinds"] == [(True, 2, [0, 1]), (True, 2, [2, 3])]


CHANGED = """
import logging, sys, warnings
import numpy as np, torch
torch.set_default_dtype(torch.float64)
torch.set_float32_matmul_precision("high")
torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = True
torch.set_grad_enabled(False)
torch.autograd.set_detect_anomaly(True, check_nan=False)
torch.set_default_device("meta")
torch.set_printoptions(precision=2)
np.seterr(divide="raise")
np.set_printoptions(precision=3)
warnings.filterwarnings("error", "never so", UserWarning)
logging.getLogger("n6").setLevel(logging.DEBUG)
"""

SEEN = """
import logging, warnings
import numpy as np, torch
seen = [
    torch.get_default_dtype() == torch.float64, torch.get_float32_matmul_precision(),
    torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.is_grad_enabled(),
    torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled(), str(torch.get_default_device()),
    str(torch.tensor([1 / 3], device="cpu")), np.geterr()["divide"], np.get_printoptions()["precision"],
    logging.getLogger("n6").level,
]
try:
    warnings.warn("never so")
except UserWarning:
    seen.append("raised")
"""


@pytest.mark.slow
def test_a_trial_computes_as_the_notebook_does(page: Any, tmp_path: Path) -> None:
    """What torch, numpy, warnings and loggers were set to; where nothing was, they are as they begin."""
    there = (
        f"import sys\nexec({CHANGED!r})\nexec({SEEN!r}, globals())\nhere = seen\n"
        "from tsnb.experiments import run_cell\n"
        "class Page:\n    def publish(self, *_): pass\n"
        f"for options in ({{}}, {{'device': 'cpu'}}):\n"
        f"    found = run_cell('like', {SEEN!r}, {{}}, outlet=Page(), **options).wait(120)['seen']\n"
        "    print([a if a == b else (a, b) for a, b in zip(here, found, strict=True)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", there], capture_output=True, text=True, check=False, timeout=240,
        env={**os.environ, "TSNB_PROJECT_DIR": str(tmp_path), "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    same = "[True, 'high', True, True, True, True, False, True, False, {}, 'tensor([0.33])', 'raise', 3, 10, 'raised']"
    shown = done.stdout.splitlines()
    assert shown == [same.format("'meta'"), same.format("('meta', 'cpu')")], done.stderr
    plain = start("plain", SEEN.replace("seen = [", "seen = [torch.__version__ != '',"), page).wait(120)[
        "seen"
    ]
    assert plain[1:4] == [False, "highest", False]


NESTED = """
ip = get_ipython()
inner = ip.run_cell("x = 1\\n1 / 0")
ip.run_cell("")
ip.run_cell("import sys\\nsys.exit(3)")
ip.run_cell("y = 2", silent=True)
deeper = ip.run_cell("z = get_ipython().run_cell('w = 4').success")
then = await ip.run_cell_async("v = 5", transformed_cell="v = 5")
import threading
def leave(): raise SystemExit(3)
thread = threading.Thread(target=leave)
thread.start()
thread.join()
tsnb.log(loss=3)
"""


@pytest.mark.parametrize(
    ("last", "state"),
    [("net = 6", "done"), ("raise ValueError('late')", "failed"), ("sys.exit(3)", "failed")],
)
def test_cells_that_a_cell_runs_are_not_its_end(page: Any, until: Until, last: str, state: str) -> None:
    """However they end, the trial ends with its own code, and as that does."""
    trial = start("nested", f"{NESTED}\n{last}", page)
    until(lambda: trial.state in ENDED, 120)
    assert trial.state == state
    assert trial.metrics == {"loss": 3.0}
    assert [trial[name] for name in "xyzwv"] == [1, 2, True, 4, 5]
    assert page.text.count("trial 'nested' running") == 1
    if state == "done":
        assert trial["net"] == 6
    if "late" in last:
        with pytest.raises(TrialFailed, match="ValueError: late"):
            trial.wait()


EXITS = """
import sys, time
try:
    print("waiting", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    {then}
"""


@pytest.mark.parametrize(
    ("then", "state"),
    [("sys.exit(1)", "stopped"), ("sys.exit()", "stopped"), ("raise ValueError('on the way out')", "failed")],
)
def test_a_framework_that_exits_when_it_is_interrupted_is_stopped(
    page: Any, until: Until, then: str, state: str
) -> None:
    """Lightning leaves an interrupted fit by `sys.exit(1)`. An error on the way out is still an error."""
    trial = start("exits", EXITS.format(then=then), page)
    until(lambda: "waiting" in page.text, 120)
    trial.stop()
    until(lambda: trial.state in ENDED, 120)
    assert trial.state == state


def test_a_script_that_fails_in_run_fails_the_trial(page: Any, until: Until, tmp_path: Path) -> None:
    """`%run` shows its traceback and goes on, as in a notebook; the last line is the error."""
    (tmp_path / "bad.py").write_text("raise KeyError('gone')")
    source = f"get_ipython().run_line_magic('run', '{tmp_path}/bad.py')\nx = 1"
    trial = start("script", source, page)
    with pytest.raises(TrialFailed, match="KeyError: 'gone'"):
        trial.wait(120)
    assert trial["x"] == 1


@pytest.mark.slow
def test_a_variable_of_a_trial_that_runs_is_waited_for(page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """As `Run all` needs it. What there will never be is said at once, or with the reason for it."""
    trial = start("slow", "import time\ntime.sleep(2.5)\nnet = 3", page)
    assert trial["net"] == 3
    assert "[slow] slow['net']: trial 'slow' " in capsys.readouterr().out
    failing = start("fails", "import time\ntime.sleep(0.5)\nx = 1\n1 / 0\nnet = 3", page)
    with pytest.raises(NoSuchVariable, match=r"no variable 'net'\. It failed: ZeroDivisionError: division"):
        failing["net"]
    assert failing["x"] == 1
    far = start("far", "import time\ntime.sleep(60)", page, detach=True)
    began = time.monotonic()
    with pytest.raises(TsnbError, match="'far' is detached, so its variables end with it"):
        far["net"]
    assert time.monotonic() - began < 50, "it did not wait for the trial, which takes a minute"
    far.stop()


def test_a_cell_runs_again_with_other_variables(notebook: Any, page: Any) -> None:
    """Any variable that it took along may be another; what it makes itself may not, nor what it does not read."""
    box = notebook.run("lr, width, seed = 0.1, 7, 3\ndef train(lr): return lr * width")
    trial = start("cell", "made = 1\nnet = (train(lr), seed)", page, box)
    again = trial.rerun(lr=0.5, seed=4)
    assert again["net"] == (3.5, 4)
    assert again.params == {"lr": 0.5}
    assert again.options == {"seed": 4}
    once_more = again.rerun(train=lambda lr: -lr)
    assert once_more["net"] == (-0.5, 4), "changes of changes add up"
    for name, why in (
        ("made", "sets 'made' itself"),
        ("lrr", r"reads no variable 'lrr'\. Did you mean 'lr'\?"),
        ("width", "reads no variable 'width'"),
    ):
        with pytest.raises(TypeError, match=why):
            trial.rerun(**dict[str, Any]({name: 1}))


def test_what_is_logged_that_is_no_number(page: Any) -> None:
    """Text is printed when it changes, pictures and tables are artifacts, and the training goes on."""
    cell = (
        "import matplotlib\nmatplotlib.use('agg')\nfrom matplotlib.figure import Figure\n"
        "from PIL import Image\nimport pandas as pd, numpy as np\n"
        "for step in range(3):\n"
        "    tsnb.log(lr=None, phase='warm' if step < 2 else 'cold', loss=step, step=step, w=np.zeros(5))\n"
        "tsnb.log({'val': {'loss': 0.5, 'at': Figure()}, 'seen/../../it': Image.new('RGB', (2, 2))})\n"
        "tsnb.log(table=pd.DataFrame({'a': [1]}), step=7)\ntsnb.log(3, 'x', [])"
    )
    trial = start("says", cell, page)
    trial.wait(120)
    assert trial.metrics == {"loss": 2.0, "val/loss": 0.5}
    assert page.text.count("phase: warm\n") == page.text.count("phase: cold\n") == 1
    assert page.text.count("tsnb.log(w=...) was ignored because it is a ndarray of shape (5,)") == 1
    assert page.text.count("the numbers have no name") == 1
    run = Run.find("says")
    assert run is not None
    kept = {str(path.relative_to(run.artifacts_path)) for path in run.artifacts_path.rglob("*.*")}
    assert kept == {"val/at-0.png", "seen/_/_/it-0.png", "table-7.csv"}


def test_a_failed_cell_shows_its_own_lines_and_fails_its_wait(page: Any) -> None:
    """The traceback has the line numbers that the notebook shows; variables stay for a look."""
    trial = start("bad", "x = 1\n\nraise ValueError('no such image')", page)
    with pytest.raises(TrialFailed, match="trial 'bad' failed: ValueError: no such image") as caught:
        trial.wait(120)
    (error,) = page.of("error")
    assert error["ename"] == "ValueError"
    assert "Trial bad, line 4" in str(caught.value), "the magic's own line is line 1"
    assert trial["x"] == 1
    with pytest.raises(TrialFailed):
        trials.wait(120)


@pytest.mark.parametrize(("number", "advice"), [(errno.EMFILE, "ulimit -n"), (errno.EAGAIN, "ulimit -u")])
def test_a_limit_that_a_cell_meets_comes_with_what_to_do(page: Any, number: int, advice: str) -> None:
    """The system's own words name the limit only to those who know them."""
    trial = start("met", f"import os; raise OSError({number}, os.strerror({number}))", page)
    with pytest.raises(TsnbError, match=f"(?s){re.escape(os.strerror(number))}.*{advice}"):
        trial.wait()


@pytest.mark.parametrize(
    ("call", "state"),
    [("exit()", "done"), ("exit(0)", "done"), ("exit(3)", "failed"), ("exit('no')", "failed")],
)
def test_leaving_by_exit_is_an_end_like_any_other(page: Any, call: str, state: str, until: Until) -> None:
    """As a shell takes it: nothing or 0 is success, anything else is a failure. The variables stay."""
    trial = start("leaves", f"import sys\nx = 1\nsys.{call}", page)
    until(lambda: trial.state in ENDED, 120)
    assert trial.state == state
    assert trial["x"] == 1


def test_output_of_all_kinds_arrives_while_the_cell_runs(page: Any, until: Until) -> None:
    """Text, errors, and rich displays come live and in order, with this process's main thread busy."""
    cell = (
        "import sys, time\nfrom IPython.display import HTML\n"
        "print('one', flush=True)\ndisplay(HTML('<b>two</b>'))\nprint('three', file=sys.stderr, flush=True)\n"
        "time.sleep(1)\nprint('four')\n5"
    )
    trial = start("kinds", cell, page)
    busy = time.monotonic() + HANG_S
    while trial.state not in ENDED and time.monotonic() < busy:
        sum(range(10_000))  # no waiting: the hub's thread does it all
    in_order = "|".join(c.get("text", k) for _, k, c in page.shown)
    assert in_order.index("one\n") < in_order.index("display_data") < in_order.index("three\n")
    assert page.of("display_data")[0]["data"]["text/html"] == "<b>two</b>"
    assert page.of("display_data")[1]["data"]["text/plain"] == "5"
    times = [next(t for t, k, c in page.shown if word in c.get("text", "")) for word in ("one", "four")]
    assert times[1] - times[0] > 0.5, "it came live, not at the end"


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV"])
def test_a_killed_trial_is_lost_within_a_second(name: str, page: Any, until: Until) -> None:
    """A crash is seen at once, said under the cell with the signal's name, and fails the wait."""
    trial = start("lost", "print('begun', flush=True)\nimport time\ntime.sleep(60)", page)
    until(lambda: "begun" in page.text)
    assert trial.pid is not None
    os.kill(trial.pid, getattr(signal, name))
    killed = time.monotonic()
    promptly(lambda: trial.state == "crashed", killed)
    assert name in page.text
    with pytest.raises(TrialFailed, match=name):
        trial.wait()
    with pytest.raises(TsnbError, match="no longer exist"):
        trial["x"]
    assert trial.pid is None


def test_stop_lets_the_cell_put_things_in_order_and_ends_the_kernel(page: Any, until: Until) -> None:
    """`finally` runs; then the process is gone; stopping is no failure."""
    cell = (
        "import time\ntry:\n    print('begun', flush=True)\n    time.sleep(60)\nfinally:\n    print('saved')"
    )
    trial = start("long", cell, page)
    until(lambda: "begun" in page.text)
    pid = trial.pid
    trial.stop()
    assert trial.state == "stopped"
    assert "saved" in page.text
    assert pid is not None
    assert not psutil.pid_exists(pid)
    assert trial.wait(1) is trial


def test_a_second_stop_leaves_what_the_first_made_it_do(page: Any, until: Until) -> None:
    """A sweep that is interrupted stops each trial, then waits for each: a checkpoint is written whole meanwhile."""
    cell = "import time\ntry:\n    print('begun', flush=True)\n    time.sleep(60)\n"
    cell += "except KeyboardInterrupt:\n    print('told', flush=True)\n    time.sleep(1)\n    print('saved')\n    raise"
    trial = start("long", cell, page)
    until(lambda: "begun" in page.text)
    first = threading.Thread(target=trial.stop)
    first.start()
    until(lambda: "told" in page.text)
    trial.stop()
    first.join(60)
    assert trial.state == "stopped" and "saved" in page.text


def test_a_stop_that_was_asked_for_is_one_plain_line(page: Any, until: Until) -> None:
    """Nothing went wrong, so nothing is red: not by `stop`, nor where the stream was asked (a panel, `tsnb stop`)."""
    waits = start("waits", "import time\nprint('begun', flush=True)\ntime.sleep(60)", page)
    until(lambda: "begun" in page.text)
    waits.stop()
    asked = start(
        "asked", "import tsnb\nraise tsnb.errors.StopRequested('asked to stop, from its panel')", page
    )
    asked.wait(120)
    who = {"waits": "by trial.stop()", "asked": "by another notebook or a command"}
    for trial in (waits, asked):
        assert trial.state == "stopped"
        assert f"trial {trial.name!r} stopped after" in page.text
        assert f" s: {who[trial.name]}\n" in page.text and trial.life.failure == who[trial.name]
        shown = plain(trial.logs())
        assert "Traceback" not in shown and "KeyboardInterrupt" not in shown and "StopRequested" not in shown
    assert not page.of("error")
    untidy = start("untidy", UNTIDY, page)
    until(lambda: page.text.count("begun") == 2)
    untidy.stop()
    assert "ValueError: on the way out" in plain(untidy.logs()), "what went wrong then is told as ever"


READS = """
import time, tsnb
for batch in tsnb.attach("reads", "numbers"):
    print("begun", flush=True)
    time.sleep(0.05)
"""
VALIDATES = """
import time, tsnb
while True:
    for number, batch in enumerate(tsnb.attach("reads", "numbers")):
        if number == 3:
            break
    print("begun", flush=True)
    time.sleep(1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("cell", [READS, VALIDATES])
def test_a_trial_whose_stream_was_stopped_is_stopped_with_it(page: Any, until: Until, cell: str) -> None:
    """Somebody did so on purpose: it has not failed, and nothing is red. A loop outside a trial gets its error."""
    endless = DataLoader(TensorDataset(torch.arange(100_000)), 1)
    producer = tsnb.serve(endless, name="numbers")
    trial = start("reads", cell, page)
    until(lambda: "begun" in page.text)
    view = watch("numbers").view
    with tsnb.attach("mine", "numbers") as mine:
        batches = iter(mine)
        next(batches)
        producer.stop()
        trial.wait(120)
        assert (trial.state, trial.life.failure) == ("stopped", "with its stream")
        with pytest.raises(tsnb.errors.StreamStopped, match=r"was stopped\. Batches you hold"):
            list(batches)
    assert " s: with its stream\n" in page.text and not page.of("error")
    columns, rows = results_table("reads", False)
    assert dict(zip(columns, rows[0], strict=True))["state"] == "stopped"
    until(lambda: view.rows["reads"].end == "stopped")
    assert view.rows["reads"].error == "with its stream"


def test_an_error_that_quotes_the_end_of_a_stream_is_a_failure_in_full(page: Any) -> None:
    """The class of the error says that a stream was stopped on purpose. Its words do not."""
    said = "Stream 'numbers' was stopped. Batches you hold stay valid."
    trial = start("quotes", f"import tsnb\nraise tsnb.errors.ProducerGone({said!r})", page)
    with pytest.raises(tsnb.errors.TrialFailed):
        trial.wait(120)
    assert [error["evalue"] for error in page.of("error")] == [said]


UNTIDY = """
import time
try:
    print("begun", flush=True)
    time.sleep(60)
finally:
    raise ValueError("on the way out")
"""


def test_an_interrupt_inside_tsnb_shows_the_users_lines_only(page: Any, until: Until) -> None:
    """A trial mostly waits inside tsnb: frames of its insides under the cell would look like a fault of it."""
    cell = """
def mine():
    from tsnb.kernels.cargo.lane import take

    print("begun", flush=True)
    take(10**6)  # nothing is sent under this number: it waits, as for a batch

mine()
"""
    trial = start("waits", cell, page)
    until(lambda: "begun" in page.text)
    trial.interrupt()
    assert trial.wait(60).state == "interrupted"
    shown = plain(trial.logs())
    assert "in mine()" in shown and "take(10**6)" in shown and "KeyboardInterrupt" in shown
    assert "lane.py" not in shown and "recv" not in shown


def test_stop_ends_one_that_ignores_interrupts(page: Any, until: Until) -> None:
    """Two seconds of grace, then it is killed, and counts as stopped, not lost."""
    cell = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    cell += "print('begun', flush=True)\ntime.sleep(60)"
    trial = start("deaf", cell, page)
    until(lambda: "begun" in page.text)
    trial.stop()
    assert trial.state == "stopped"
    assert trial.pid is None


def test_all_are_stopped_at_once(page: Any, until: Until) -> None:
    """Three that need their two seconds of grace take two seconds together, not six."""
    cell = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    deaf = [start(name, cell + "print('begun', flush=True)\ntime.sleep(60)", page) for name in "abc"]
    until(lambda: page.text.count("begun") == 3, 120)
    began = time.monotonic()
    trials.stop()
    took(time.monotonic() - began, 4.0)
    assert [trial.state for trial in deaf] == ["stopped"] * 3


def test_an_interrupt_before_the_code_begins_ends_the_trial(page: Any) -> None:
    """Whoever interrupts it means that it is not to run; it would else run to its end, whatever it takes."""
    trial = start("early", "import time\ntime.sleep(60)", page)
    assert trial.state in {"queued", "starting"}
    trial.interrupt()
    assert trial.wait(120).state == "stopped"


def test_interrupt_keeps_the_variables(page: Any, until: Until) -> None:
    """As the stop button of an ordinary cell does."""
    trial = start("paused", "import time\nsteps = 3\nprint('begun', flush=True)\ntime.sleep(60)", page)
    until(lambda: "begun" in page.text)
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(1.5, signal.pthread_kill, (main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        trial["steps"]  # waits for the end; the user does not
    assert trial.state == "running"
    trial.interrupt()
    assert trial.wait(60).state == "interrupted"
    assert trial["steps"] == 3


PROBE = """
import gc, weakref
class Activations: pass
class Probe:  # what stands in its place once it is fetched
    def __init__(self, look): self.look = look
    def __reduce__(self): return str, (str(self.look()),)
def step():
    activations = Activations()
    global gone
    gone = Probe(lambda ref=weakref.ref(activations): ref() is None)
    try:
        {}['key']
    except KeyError:
        raise ValueError("in the middle of a step")
"""


def test_a_failed_trial_keeps_nothing_of_the_step_that_failed(page: Any) -> None:
    """Its traceback would hold every local of every frame: the activations of a batch, on a GPU perhaps."""
    trial = run_cell("broken", PROBE + "step()", {}, outlet=page)
    with pytest.raises(TrialFailed, match="in the middle of a step"):
        trial.wait(120)
    assert trial["gone"] == "True"


def test_one_that_has_ended_gives_free_memory_of_the_gpu_back(page: Any) -> None:
    """Where torch has used CUDA, once what nobody refers to has gone; if that fails, the trial is done all the same."""
    seam = """
import torch
asked = []
torch.cuda.is_initialized = lambda: True
def empty_cache():
    asked.append(gone.look())
    raise RuntimeError('CUDA error: an illegal memory access was encountered')
torch.cuda.empty_cache = empty_cache
activations = Activations()
gone = Probe(lambda ref=weakref.ref(activations): ref() is None)
activations.itself = activations
del activations
"""
    trial = run_cell("used", PROBE + seam, {}, outlet=page).wait(120)
    assert trial["asked"] == [True]
    unused = "import torch\nasked = []\ntorch.cuda.empty_cache = lambda: asked.append(1)"
    assert run_cell("unused", unused, {}, outlet=page).wait(120)["asked"] == []


def test_processes_of_trials_that_ended_long_ago_go_and_their_variables_stay(
    page: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the variables: what it took along and changed, and the reason why one cannot be had."""
    monkeypatch.setattr(board, "KEPT_PROCESSES", 1)
    variables = {"history": [], "rate": 0.1}
    cell = "history.append(rate)\nnet = {{'w': {0}}}\nstream = (k for k in ())\nimport math"
    former = [run_cell(f"t{k}", cell.format(k), variables, outlet=page).wait(120) for k in range(2)]
    until(lambda: former[0].pid is None)
    assert former[1].pid is not None
    last = run_cell("t2", cell.format(2), variables, outlet=page).wait(120)
    until(lambda: former[1].pid is None)
    assert last.pid is not None
    for k, trial in enumerate(former):
        assert (trial["history"], trial["net"], trial["rate"]) == ([0.1], {"w": k}, 0.1)
        with pytest.raises(NotShippable, match="generator"):
            trial["stream"]
        with pytest.raises(TsnbError, match=r"no variable 'nets'.*Did you mean 'net'"):
            trial["nets"]
    last.stop()
    former[1].stop()
    with pytest.raises(TsnbError, match="has ended"):
        former[1]["net"]


def test_one_whose_variables_are_too_large_keeps_its_process(
    page: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is asked once only; they can be fetched as before."""
    monkeypatch.setattr(board, "KEPT_PROCESSES", 1)
    limit = "import tsnb.experiments.in_kernel.keeping as k\nk.KEPT_BYTES = 1000\n"
    large = run_cell("large", limit + "data = bytes(range(256)) * 100", {}, outlet=page).wait(120)
    released: list[str] = []
    real = Attempt.release

    async def counted(self: Attempt, *, everything: bool = False) -> None:
        await real(self, everything=everything)
        released.append(self._plan.name)

    monkeypatch.setattr(Attempt, "release", counted)
    for k in range(2):
        run_cell(f"after{k}", "x = 1", {}, outlet=page).wait(120)
    until(lambda: len(released) >= 2)
    assert large.pid is not None and len(large["data"]) == 25600


def test_one_that_has_ended_keeps_no_more_memory_than_its_variables_need(page: Any, until: Until) -> None:
    """What training freed lies scattered in malloc's heaps: it goes back to the system at the end."""
    cell = "hoard = [bytearray(5000) for _ in range(60_000)]\nkept = hoard[::500]\ndel hoard\nprint('freed')"
    trial = start("large", cell, page).wait(120)
    until(lambda: psutil.Process(trial.pid).memory_full_info().uss < 150 << 20, 120)
    assert len(trial["kept"]) == 120


def test_a_name_started_again_replaces_the_old_one(page: Any, until: Until) -> None:
    """The older kernel is gone before the newer one starts; the mapping has the newer."""
    old = start("same", "print('begun', flush=True)\nimport time\ntime.sleep(60)", page)
    until(lambda: "begun" in page.text)
    pid = old.pid
    new = start("same", "x = 2", page)
    assert trials["same"] is new
    assert new.wait(120)["x"] == 2
    assert old.state == "stopped"
    assert pid is not None
    assert not psutil.pid_exists(pid)


def test_stopping_before_it_has_started_ends_it(page: Any) -> None:
    """A stop at once after the start leaves no kernel behind."""
    trial = start("early", "import time\ntime.sleep(60)", page)
    trial.stop()
    assert trial.wait(120).state == "stopped"
    assert trial.pid is None


def test_every_number_arrives_and_the_last_one_is_right(page: Any) -> None:
    """A burst faster than reports go out loses neither a row nor the last value; numbers come without a stream."""
    cell = "for step in range(1000):\n    tsnb.log(step=step, loss=1 / (step + 1))\ntsnb.log(accuracy=0.5)"
    trial = start("numbers", cell, page).wait(120)
    assert [row.step for row in trial.metrics.rows] == [*range(1000), 1000]
    assert trial.metrics == {"loss": pytest.approx(0.001), "accuracy": 0.5}


def test_a_diverged_loss_is_still_a_number(page: Any) -> None:
    """JSON has no nan and no inf; the history has, and nothing is said about it under the cell."""
    trial = start("diverged", "tsnb.log(loss=float('nan'), norm=float('inf'))", page).wait(120)
    assert math.isnan(trial.metrics["loss"])
    assert trial.metrics.rows[0].numbers["norm"] == math.inf
    assert re.fullmatch(r"trial 'diverged' running .*\ntrial 'diverged' done .*\n", page.text)


def test_numbers_arrive_while_the_cell_runs(page: Any, until: Until) -> None:
    """Not only at its end."""
    trial = start("live", "import time\ntsnb.log(loss=3.0)\ntime.sleep(60)", page)
    until(lambda: trial.metrics == {"loss": 3.0})
    assert trial.state == "running"


def test_options_reach_the_trial(page: Any) -> None:
    """Name, producer, batch size and device for attach; seed, threads and environment for the process."""
    cell = (
        "import os, random, sys, numpy, torch\nfrom tsnb.stream.this_process import this_process as d\n"
        "given = (d.name, d.stream, d.batch_size, d.device, torch.get_num_threads(), os.environ['MODE'])\n"
        "drawn = (random.random(), float(numpy.random.rand()), float(torch.rand(1)))\n"
        "from tqdm.auto import tqdm\n"
        "bars = {kind.__module__ for kind in tqdm.__mro__}"
    )
    options: dict[str, Any] = {"stream": "p", "batch_size": 4, "device": "cpu", "seed": 5, "threads": 2}
    trial = start("options", cell, page, **options, env={"MODE": "fast"}).wait(120)
    assert trial["given"] == ("options", "p", 4, "cpu", 2, "fast")
    random.seed(5)
    assert trial["drawn"][0] == random.random()
    assert "tqdm.std" in trial["bars"]
    assert "tqdm.notebook" not in trial["bars"], "its widgets would open where nobody sees them"
    assert trial.options == options
    assert trial.params == {}
    again = start("again", cell, page, **options, env={"MODE": "fast"}).wait(120)
    assert again["drawn"] == trial["drawn"]


def test_bad_input_starts_nothing(page: Any, notebook: Any) -> None:
    """A bad name, number, cell or variable is told before a kernel exists."""
    before = descendants()
    box = notebook.run("import threading\nlock = threading.Lock()")
    with pytest.raises(ValueError, match=r"'a/b' cannot name a trial.*Try 'a-b'"):
        start("a/b", "1", page)
    with pytest.raises(
        ValueError, match=r"trial 'x': batch_size=0 is invalid. Pass a whole number, 1 or more"
    ):
        start("x", "1", page, batch_size=0)
    with pytest.raises(ValueError, match="threads=0 is invalid"):
        start("x", "1", page, threads=0)
    with pytest.raises(UndefinedNames):
        start("x", "lokc", page, box)
    with pytest.raises(NotShippable, match="Trial 'x' cannot copy 'lock'"):
        start("x", "lock", page, box)
    with pytest.raises(SyntaxError):
        start("x", "1 +", page)
    assert "x" not in trials
    assert descendants() <= before


def test_a_module_that_the_notebook_put_before_an_installed_one_is_the_one(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sys.path.insert(0, "../src")` means the same in a trial, where Python has a path of its own already."""
    (tmp_path / "wave.py").write_text("OURS = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    trial = start("shadow", "import wave, sys\nfound, path = wave.__file__, sys.path", page).wait(120)
    assert trial["found"] == str(tmp_path / "wave.py")
    assert [p for p in trial["path"] if p in sys.path] == list(dict.fromkeys(sys.path))


def test_the_notebook_s_own_modules_are_found(
    page: Any, notebook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module beside the notebook, on a path that the notebook added, travels by name and is imported there."""
    (tmp_path / "beside.py").write_text("def answer(): return 42")
    monkeypatch.syspath_prepend(tmp_path)
    box = notebook.run("import beside\nfrom beside import answer")
    trial = start("imports", "got = beside.answer() + answer()", page, box).wait(120)
    assert trial["got"] == 84


def test_what_cannot_be_pulled_says_why(page: Any) -> None:
    """A variable that cannot travel back is explained like one that cannot travel there."""
    trial = start("locked", "import threading\nlock = threading.Lock()", page).wait(120)
    with pytest.raises(NotShippable, match=r"This trial cannot copy 'lock': it is a lock"):
        trial["lock"]
    assert not page.of("error")


def test_a_variable_that_does_not_arrive_fails_the_trial(page: Any, notebook: Any) -> None:
    """What its class raises on arrival is the trial's failure, not a hang."""
    box = notebook.run(
        "def arrive(): raise ImportError('not there')\n"
        "class Odd:\n    def __reduce__(self): return arrive, ()\nodd = Odd()"
    )
    with pytest.raises(TrialFailed, match="not there"):
        start("odd", "odd", page, box).wait(120)


def test_the_board_is_a_mapping_that_shows_as_a_table(page: Any) -> None:
    """By name, with a suggestion for a typo, and what a person wants to see at one look."""
    start("board-a", "tsnb.log(loss=0.25)", page)
    start("board-b", "1 / 0", page)
    with pytest.raises(TrialFailed, match="board-b"):
        trials.wait(120)
    shown = repr(trials)
    assert "board-a" in shown
    assert "loss 0.25" in shown
    assert "<td" in trials._repr_html_()
    assert tsnb.trials is trials
    assert "board-a" in list(trials)
    assert trials.live == []
    with pytest.raises(NoSuchTrial, match="Did you mean 'board-a'"):
        trials["board-aa"]
    assert {trial.state for trial in trials.values()} <= set(TRIAL_STATES)


def test_results_are_a_row_a_trial(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A DataFrame with pandas, else rows with the same keys."""
    trial = start("row", "tsnb.log(loss=0.25)", page).wait(120)
    table = tsnb.results().set_index("name")
    assert table.loc["row", "duration_s"] == round(trial.duration_s, 3), "as under its cell and in %trials"
    assert table.loc["row", "state"] == "done"
    assert table.loc["row", "loss"] == 0.25
    monkeypatch.setitem(sys.modules, "pandas", None)
    rows = {row["name"]: row for row in tsnb.results()}
    assert rows["row"]["loss"] == 0.25
    assert list(rows["row"])[:4] == ["name", "run", "state", "started"]


def test_waiting_has_an_end(page: Any) -> None:
    """A timeout says that the trial goes on."""
    trial = start("slow", "import time\ntime.sleep(60)", page)
    with pytest.raises(TimeoutError, match="and continues"):
        trial.wait(0.2)
    with pytest.raises(TimeoutError):
        trials.wait(0.2)
