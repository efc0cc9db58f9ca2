"""The magics in a real IPython, over real kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.error import UsageError
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.waiting import wait_until as until
from tsnb.cli.commands import main
from tsnb.experiments import trials
from tsnb.hosting import producer_kernels
from tsnb.machine.processes import started
from tsnb.notebook import extension
from tsnb.records.run import Run, RunStart

LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __init__(self, size=32): self.size = size
    def __len__(self): return self.size
    def __getitem__(self, index): return torch.tensor([float(index)])
train = DataLoader(Numbers(), batch_size=8)
"""


class Loader:
    """What looks like a loader to whoever suggests one."""

    batch_size = 4

    def __iter__(self) -> Any:
        return iter(())


def run(shell: Any, cell: str) -> Any:
    """Run a cell, and raise what it raised."""
    done = shell.run_cell(cell)
    done.raise_error()
    return done.result


@pytest.mark.slow
@pytest.mark.system
def test_the_main_job_by_magics_alone(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Serve a loader, look, run two trials on it, pull a result, see the table, stop."""
    run(shell, LOADER)
    run(shell, "%tensorsocket start train --name numbers --late-join 100%")
    assert "serving a copy of 'train'" in capsys.readouterr().out
    run(shell, "%tensorsocket list\n")
    assert capsys.readouterr().out.startswith("numbers (served by")
    run(shell, "%tensorsocket status")
    assert "stream numbers: idle" in capsys.readouterr().out
    run(shell, "%%trial one\ntotal = sum(float(batch.sum()) for batch in tsnb.attach())\nprint('got', total)")
    run(shell, "%%trial two --batch-size 5 --seed 1 --wait\nsizes = [len(batch) for batch in tsnb.attach()]")
    table = run(shell, "%trials wait")
    assert table is trials
    assert trials["one"]["total"] == sum(range(32))
    assert trials["two"]["sizes"] == [5, 5, 5, 5, 5, 5, 2]
    assert trials["two"].options["seed"] == 1
    assert "[one] got 496.0" in capsys.readouterr().out
    run(shell, "%trials logs one")
    assert "got 496.0" in capsys.readouterr().out
    kept = trials._trials.pop("one")  # as after a restart of the notebook
    run(shell, "%trials logs one")
    assert "got 496.0" in capsys.readouterr().out
    trials._trials["one"] = kept
    run(shell, "%%trial own --wait\nfor batch in train: pass")
    assert "note: this trial loops over its own copy of 'train'" in capsys.readouterr().out
    run(shell, "%trials stop own")
    pid = producer_kernels["numbers"].pid
    for again in ("", LOADER):  # the very same loader, and one that the same cell has made anew
        run(shell, again)
        run(shell, "%tensorsocket start train --name numbers --late-join 100%")
        assert "'numbers' is already served" in capsys.readouterr().out
    for other in ("train --name numbers", "other --name numbers --late-join 100%"):
        run(shell, "other = DataLoader(Numbers(16), batch_size=8)")
        with pytest.raises(UsageError, match=r"'numbers' is already served .* add --replace"):
            run(shell, f"%tensorsocket start {other}")
    assert producer_kernels["numbers"].pid == pid
    with pytest.raises(UsageError, match="detach=False, which cannot change while it is served"):
        run(shell, "%tensorsocket start other --name numbers --replace --detach")
    run(shell, "%tensorsocket start other --name numbers --replace --window 3 --guard")
    assert "serving this loader as 'numbers' again" in capsys.readouterr().out
    assert (tsnb.streams.status("numbers").epoch_batches, tsnb.streams.status("numbers").window) == (2, 3)
    with tsnb.attach("guarded", "numbers") as consumer:
        assert consumer._inner.welcome.guard
    run(shell, "%tensorsocket start other --name numbers --window 3 --guard")
    assert "'numbers' is already served" in capsys.readouterr().out
    run(shell, "%tensorsocket stop")
    assert "stopped 'numbers'" in capsys.readouterr().out
    assert tsnb.streams.list() == []
    run(shell, "%tensorsocket stop numbers")
    assert "has already stopped" in capsys.readouterr().out
    run(shell, "%tensorsocket list")
    assert "no stream is served" in capsys.readouterr().out


@pytest.mark.system
def test_the_report_of_a_stop_says_how_the_trials_ended_that_it_has_ended(shell: Any) -> None:
    """They do so a moment later: it counted them as ended, and called one the best that its panel did not."""
    run(shell, LOADER)
    run(shell, "%tensorsocket start train --name numbers")
    run(shell, "%%trial one\nfor batch in tsnb.attach():\n    tsnb.log(loss=1.0)")
    run(
        shell,
        "%%trial two\nimport time\nfor k in range(10_000):\n"
        "    for batch in tsnb.attach():\n        tsnb.log(loss=0.5)\n        time.sleep(0.05)",
    )
    trials["one"].wait(60)
    until(lambda: trials["two"].metrics, 60)
    said = run(shell, "%tensorsocket stop").text
    assert trials["two"].state == "stopped"
    assert "one is best: loss 1.000. 1 done, 1 stopped. two ended early with 0.500." in said, said


@pytest.mark.system
def test_a_cell_builds_the_loader(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """`%%tensorsocket start`: the body runs in the kernel, magics in it too; its output is shown and kept."""
    run(shell, LOADER)
    run(
        shell,
        "%%tensorsocket start --name built --window 3\n%env TSNB_BUILT=1\nprint('building')\n"
        "loader = DataLoader(Numbers(6), batch_size=2)",
    )
    assert "[built] building" in capsys.readouterr().out
    assert producer_kernels["built"].options.window == 3
    build = (
        "%%tensorsocket start --name built --window 3\n%env TSNB_BUILT=1\nprint('building')\n"
        "loader = DataLoader(Numbers(6), batch_size=2)"
    )
    run(shell, LOADER)
    run(shell, build)
    assert "'built' is already served" in capsys.readouterr().out
    with pytest.raises(UsageError, match=r"'built' is already served .* add --replace"):
        run(shell, build.replace("6", "8"))
    run(shell, build.replace("6", "8").replace("start", "start --replace"))
    assert "serving this loader as 'built' again" in capsys.readouterr().out
    assert tsnb.streams.status("built").epoch_batches == 4
    run(shell, "%tensorsocket logs built")
    assert "building" in capsys.readouterr().out
    with pytest.raises(UsageError, match="only start takes a cell"):
        run(shell, "%%tensorsocket status\nx = 1")
    with pytest.raises(UsageError, match="takes no variable"):
        run(shell, "%%tensorsocket start train --name other\nloader = train")


@pytest.mark.slow
@pytest.mark.system
def test_restart_and_reload_by_magics(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The same loader, then the notebook's of now; a variable that is gone leaves the stream as it was."""
    run(shell, LOADER)
    run(shell, "%tensorsocket start train --name numbers --restart on-crash")
    assert "after a crash the stream restarts, and trials resume" in capsys.readouterr().out
    assert producer_kernels["numbers"].seed is not None
    run(shell, "%tensorsocket restart numbers")
    said = capsys.readouterr().out
    assert "serving the same loader as 'numbers' again" in said
    assert "trials in the middle of an epoch resume at their position" in said
    run(shell, "train = DataLoader(Numbers(48), batch_size=8)")
    run(shell, "%tensorsocket reload numbers")
    said = capsys.readouterr().out
    assert "serving 'train' as it is now as 'numbers' again" in said
    assert "raise ProducerGone, because the order has changed" in said
    assert tsnb.streams.status("numbers").epoch_batches == 6
    run(shell, "%tensorsocket status numbers")
    assert "started again 2 times" in capsys.readouterr().out
    pid = producer_kernels["numbers"].pid
    run(shell, "del train")
    with pytest.raises(UsageError, match="%tensorsocket reload: this notebook has no variable 'train'"):
        run(shell, "%tensorsocket reload")
    assert producer_kernels["numbers"].pid == pid
    run(shell, "%tensorsocket stop numbers")
    with pytest.raises(UsageError, match=r"'numbers' has ended\. Serve its loader again"):
        run(shell, "%tensorsocket restart numbers")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            "%tensorsocket start trian --name n",
            r"no variable 'trian'.*Did you mean 'train'\?.*notebook: train\.",
        ),
        ("%tensorsocket start --name n", "needs a loader\\. Loaders in this notebook: train"),
        ("%tensorsocket start loaders['a'] --name n", "is not a variable's name"),
        ("%tensorsocket start count --name n", "'count' has the type int, which cannot be iterated"),
        ("%tensorsocket start train --name a/b", "Try 'a-b'"),
        ("%tensorsocket stop nobody", "No stream named 'nobody' is running"),
        ("%tensorsocket status nobody", "No stream named 'nobody' is running"),
        ("%tensorsocket logs nobody", "'nobody' was not started here"),
        ("%tensorsocket restart nobody", "No stream named 'nobody' is running"),
        ("%tensorsocket reload nobody", "No stream named 'nobody' is running"),
        ("%tensorsocket restart", "No stream is running"),
        ("%tensorsocket tune nobody", "No stream named 'nobody' is running"),
        ("%tensorsocket tune nobody --workers many", 'a number of processes, 0 to 1024, or "auto"'),
        ("%tensorsocket tune nobody --workers 2 --memory 1GiB", 'Add workers="auto", or leave out memory'),
        ("%tensorsocket tune nobody --wrokers 2", "Did you mean '--workers'"),
        (
            "%tensorsocket start train --name n --detach --restart on-crash",
            "A detached stream outlives this notebook, so the notebook cannot restart it",
        ),
        ("%%trial a/b\n1", "Try 'a-b'"),
        ("%%trial\n1", "required: NAME"),
        ("%%trial x\nprint(trian)", r"'trian' \(did you mean 'train'\?\) is not defined"),
        ("%%trial x\n\n1 +", "line 3 of this cell"),
        ("%%trial x\nlock", "cannot copy 'lock': it is a lock"),
        ("%trials wiat", "Did you mean 'wait'"),
        ("%trials rerun nobody", "No trial is named 'nobody'"),
        ("%%trial x --after nobody\n1", "No trial is named 'nobody'"),
        ("%%trial x --after x\n1", "cannot wait for itself"),
        ("%%trial x --log-to tensorbord\n1", "Did you mean 'tensorboard'"),
        ("%%trial --name x\n1", r"unknown option --name\. Write the name first: %%trial NAME"),
        (
            "%%trial x --epochs 3\n1",
            r"unknown option --epochs\. %%trial takes no parameters: set epochs in the cell",
        ),
        (
            "%%sweep x --lr 0.1,0.01\n1",
            r"unknown option --lr\. To sweep over a parameter, write --grid lr=A,B",
        ),
        ("%%trial x --detatch\n1", "unknown option --detatch. Did you mean '--detach'"),
        ("%trials stop nobody", "No trial is named 'nobody'"),
    ],
)
def test_bad_input_is_one_clear_message(shell: Any, cell: str, message: str) -> None:
    """Every mistake is a usage error that says what to do; nothing is started."""
    shell.push({"train": Loader(), "count": 3})
    run(shell, "import threading\nlock = threading.Lock()")
    with pytest.raises(UsageError, match=message):
        run(shell, cell)
    assert not trials
    assert tsnb.streams.list() == []


@pytest.mark.system
def test_trials_one_after_another_and_once_more(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """`--after` queues, `--restart` survives a crash, `rerun` changes options; numbers go to a tracker as well."""
    run(shell, "%%trial one\nimport time\ntime.sleep(0.2)\nprint('first')")
    run(
        shell,
        "%%trial two --after one --restart on-crash --seed 1\nimport random\ndrawn = random.random()\nprint('second')",
    )
    run(shell, "%trials wait")
    said = capsys.readouterr().out
    assert "trial 'two' queued: it starts when 'one' is done" in said
    assert said.index("[one] first") < said.index("[two] second")
    assert trials["two"].options == {"seed": 1, "after": "one", "restart": "on-crash"}
    former = trials["two"]["drawn"]
    run(shell, "%trials rerun two seed=2 name=three")
    assert "trial 'three': run" in capsys.readouterr().out
    run(shell, "%trials rerun two")
    run(shell, "%trials wait")
    assert trials["two"]["drawn"] == former
    assert trials["three"]["drawn"] != former
    with pytest.raises(UsageError, match="%trials rerun: The cell of trial 'two' reads no variable 'lr'"):
        run(shell, "%trials rerun two lr=1")


@pytest.mark.system
def test_what_the_cell_says_in_text_arrives(shell: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """Shell lines, %env, queries and eval see the notebook's variables; so do decorated functions their own."""
    run(shell, "lr, word, limit = 0.5, 'said', 1\nimport functools\nimport pandas as pd")
    run(shell, "lock = __import__('threading').Lock()\n@functools.lru_cache\ndef twice(x): return 2 * x")
    cell = (
        "%%trial texts-{word} --wait --with limit\n%env SAID={word}\nout = !echo {lr} $word\n"
        "import os\nframe = pd.DataFrame({'a': [1, 2]}).query('a > @limit')\n"
        "found = (os.environ['SAID'], list(out), len(frame), eval('twice(limit)'), 'lock' in globals())\n"
        "print('{lock}'.format(**globals())) if 'lock' in globals() else None\nexec('limit' + '= 7')\n"
    )
    run(shell, cell)
    assert trials["texts-said"]["found"] == ("said", ["0.5 said"], 1, 2, False), (
        "a lock that is only mentioned stays behind"
    )
    with pytest.raises(UsageError, match=r"'nowhere' is not defined.* --no-check"):
        run(shell, "%%trial lacks\nnowhere")
    run(shell, "%%trial lacks --no-check\ntry:\n    nowhere\nexcept NameError:\n    x = 1")
    assert trials["lacks"]["x"] == 1
    with pytest.raises(UsageError, match="'nowhere' is not defined"):
        run(shell, "%%trial lacks --with nowhere\n1")


@pytest.mark.system
def test_a_sweep_names_its_trials_by_its_own_parameters(shell: Any) -> None:
    """The README's example, in a notebook that has a variable of that name."""
    run(shell, "lr, seed = 9, 3")
    sweep = run(shell, '%%sweep "cnn-lr{lr}" --grid lr=0.1,0.5 --seed {seed} --wait\nx = lr')
    assert list(sweep) == ["cnn-lr0.1", "cnn-lr0.5"]
    assert [trial["x"] for trial in sweep.values()] == [0.1, 0.5]
    assert trials["cnn-lr0.1"].options["seed"] == 3


@pytest.mark.system
def test_a_module_is_found_where_it_was_imported_from(
    shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`import mine` beside the notebook, then `%cd data`."""
    (tmp_path / "data").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "nb1_mine.py").write_text("value = 3")
    (tmp_path / "src" / "nb1_other.py").write_text("value = 4")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "src", *sys.path])
    run(shell, "import nb1_mine, nb1_other, os\nos.chdir('data')")
    run(shell, "%%trial local --wait\nx = nb1_mine.value + nb1_other.value")
    assert trials["local"]["x"] == 7


@pytest.mark.system
def test_a_detached_trial_by_magics(
    shell: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says where its log is, ends its kernel with its code, and its log is shown."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))  # it would stay in the table of every other test
    run(shell, "%%trial far --detach --wait\nprint('from afar')")
    assert "it continues without this notebook, log: " in capsys.readouterr().out
    run(shell, "%trials logs far")
    assert "from afar" in capsys.readouterr().out


def test_logs_of_former_runs_are_shown_by_number(
    shell: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart the last run of a name, or that which is named; of one that is gone, that it is."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    for number in (1, 2, 3):
        former = Run.begin(RunStart("old", "x = 1"))
        if number < 3:
            former.log_path.write_text(f"printed by run {number}\x1b]0;title\x07\x1b[31m")
        former.end("done")
    run(shell, "%trials logs old --run 1")
    assert capsys.readouterr().out == "printed by run 1?]0;title?\x1b[31m\n"
    run(shell, "%trials logs old --run 2")
    assert "printed by run 2" in capsys.readouterr().out
    run(shell, "%trials logs old")
    assert "The log of trial 'old' (run 3) no longer exists" in capsys.readouterr().out
    with pytest.raises(UsageError, match=r"'old' has no run 4 in .*Its runs: 1, 2, 3"):
        run(shell, "%trials logs old --run 4")
    with pytest.raises(UsageError, match="No trial is named 'older'"):
        run(shell, "%trials logs older --run 1")


@pytest.mark.system
def test_a_failed_trial_that_was_waited_for_fails_its_cell(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """`Run all` stops there; the traceback is shown once, as the trial's own."""
    with pytest.raises(
        UsageError, match=r"^%%trial: trial 'bad' failed: ZeroDivisionError: division by zero$"
    ):
        run(shell, "%%trial bad --wait\n1 / 0")
    assert capsys.readouterr().err.count("Traceback") == 1


def test_loading_the_extension_does_not_wait_for_torch() -> None:
    """`%load_ext tsnb` is quick: torch and the panel's packages come when they are used."""
    heavy = "{'torch', 'plotly', 'anywidget', 'pandas', 'numpy'}"
    code = f"import sys, tsnb.notebook.extension as e; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_extension_comes_out_as_it_went_in(shell: Any) -> None:
    """Loading twice registers once; unloading leaves no magic, hook or event."""
    run(shell, "%load_ext tsnb")
    events = shell.events.callbacks["post_run_cell"]
    ours = [c for c in events if c.__module__.startswith("tsnb")]
    assert len(ours) == len(set(ours)) == 3
    tsnb.unload_ipython_extension(shell)
    assert shell.find_line_magic("tensorsocket") is None
    assert shell.find_cell_magic("trial") is None
    assert not [c for c in events if c.__module__.startswith("tsnb")]
    tsnb.unload_ipython_extension(shell)
    tsnb.load_ipython_extension(shell)


def test_when_a_cell_ends_nobody_waits_for_this_notebook_s_consumers(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next cell may be run in an hour: the hook rests consumers, if there can be any."""
    rested: list[bool] = []

    def rest_all(failed: bool) -> None:
        rested.append(failed)

    fake = types.SimpleNamespace(rest_all=rest_all)
    monkeypatch.setitem(sys.modules, "tsnb.stream.consumer", fake)
    run(shell, "x = 1")
    assert rested == [False]
    shell.run_cell("1 / 0")
    assert rested == [False, True], "a loop in a cell that raised is over"
    monkeypatch.delitem(sys.modules, "tsnb.stream.consumer")
    run(shell, "x = 1")
    assert len(rested) == 2


def test_the_end_of_a_cell_does_not_mind_a_half_imported_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that the cell has started may be importing it just then."""
    monkeypatch.setitem(sys.modules, "tsnb.stream.consumer", types.ModuleType("tsnb.stream.consumer"))
    extension.rest_consumers()


@pytest.mark.system
def test_the_panel_s_stop_button_stops_the_trial(shell: Any) -> None:
    """A trial of this notebook is stopped as a whole, not only its loop."""
    run(shell, "%%trial busy\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    panel = run(shell, "tsnb.dashboard('nobody-serves-this')")
    deadline = time.monotonic() + 60
    while "begun" not in trials["busy"].logs() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert run(shell, "%tensorsocket dashboard nobody-serves-this") is panel
    panel.steer("stop", "busy")
    assert trials["busy"].state == "stopped"
    panel.close()


@pytest.mark.slow
@pytest.mark.system
def test_a_set_up_cell_runs_first_in_every_trial(shell: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """Cells, functions and sweeps; it reads the notebook's variables, and makes names for them; it is recorded."""
    run(shell, "width, seen = 40, 0\nimport pandas as pd")
    run(
        shell,
        "%%trial --setup\npd.set_option('display.width', width)\ndef shared(): return width\nprint('set up')",
    )
    assert "trials that start from now on run this cell first" in capfd.readouterr().out
    run(shell, "%%trial one --seed 1 --wait\nx = (pd.get_option('display.width'), shared())")
    assert trials["one"]["x"] == (40, 40)
    assert "[one] set up" in capfd.readouterr().out
    record = Run.find("one")
    assert record is not None and (read := record.read()) is not None
    assert "pd.set_option" in read.source and "x = (pd" in read.source
    assert trials["one"].rerun().wait()["x"] == (40, 40)
    sweep = run(shell, "%%sweep many --grid k=1,2 --wait\ny = shared() + k")
    assert [trial["y"] for trial in sweep.values()] == [41, 42]
    with pytest.raises(UsageError, match="'nowhere' is not defined"):
        run(shell, "%%trial --setup\nnowhere")
    with pytest.raises(UsageError, match="--setup takes no name"):
        run(shell, "%%trial x --setup\n1")
    run(shell, "%%trial --setup\nbad = 1\n1 / 0")
    with pytest.raises(
        UsageError, match=r"'two' failed: the set-up cell \(%%trial --setup\) raised ZeroDivisionError"
    ):
        run(shell, "%%trial two --wait\nx = 1")
    run(shell, "%%trial --setup\n ")
    assert "run no set-up cell" in capfd.readouterr().out
    run(shell, "%%trial two --wait\nx = 1")


@pytest.mark.slow
@pytest.mark.system
def test_a_second_notebook_changes_nothing_for_the_first(
    shell: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines without a name mean the notebook's own stream, and a panel's buttons the row that they stand in."""
    run(shell, LOADER)
    run(shell, "%tensorsocket start train --name ours")
    monkeypatch.setenv("TSNB_OWNER", f"{os.getppid()}-{started(os.getppid())}")
    endless = DataLoader(TensorDataset(torch.zeros(1 << 20)), batch_size=1)
    with tsnb.serve(endless, name="theirs", window=2):
        monkeypatch.delenv("TSNB_OWNER")
        run(
            shell,
            "%%trial cnn\nimport time\nfor batch in tsnb.attach():\n    pass\nprint('read')\ntime.sleep(60)",
        )
        run(shell, "%tensorsocket status")
        assert "stream ours: " in capsys.readouterr().out
        panel = run(shell, "tsnb.dashboard()")
        assert panel.stream == "ours"
        theirs = tsnb.dashboard("theirs")
        beside = tsnb.attach("beside", stream="theirs")
        with pytest.raises(
            UsageError, match=r"No trial is named 'beside'.* In a terminal, run: tsnb stop theirs/beside$"
        ):
            run(shell, "%trials stop beside")
        with pytest.raises(UsageError, match=r"tsnb set theirs/beside NAME=VALUE$"):
            run(shell, "%trials set beside lr=0.1")
        with pytest.raises(UsageError, match=r"Trials here: cnn\.$"):
            run(shell, "%trials stop nobody")
        monkeypatch.setattr("tsnb.steering.STOP_S", 0.2)
        assert main(["stop", "theirs/beside"]) == 0, "what was said does it"
        with pytest.raises(tsnb.errors.StopRequested):
            sum(1 for _ in beside)
        beside.close()
        capsys.readouterr()
        consumer = tsnb.attach("cnn", stream="theirs")
        batches = iter(consumer)
        next(batches)
        deadline = time.monotonic() + 30
        while theirs.pid_of("cnn") is None or "read" not in trials["cnn"].logs():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert theirs.steer is not None
        with pytest.raises(
            tsnb.errors.TsnbError,
            match="cnn cannot be interrupted from here, because it is not a trial of this notebook",
        ):
            theirs.steer("interrupt", "cnn")
        theirs.steer("stop", "cnn")
        with pytest.raises(tsnb.errors.StopRequested):
            sum(1 for _ in batches)
        assert trials["cnn"].state == "running"
        consumer.close()
        with pytest.raises(
            UsageError, match=r"'theirs' belongs to another notebook or script: .*stop theirs --other"
        ):
            run(shell, "%tensorsocket stop theirs")
        run(shell, "%tensorsocket stop")
        assert "stopped 'ours'" in capsys.readouterr().out
        with pytest.raises(UsageError, match="This notebook serves no stream"):
            run(shell, "%tensorsocket stop")
        theirs.close()
        panel.close()
        run(shell, "%tensorsocket stop theirs --other")
        assert "stopped 'theirs'" in capsys.readouterr().out
