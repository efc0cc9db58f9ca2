"""The command line with real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.system.scripts import ROOT
from tsnb.attaching import attach
from tsnb.cli import main
from tsnb.telemetry.recording import read_recording

pytestmark = pytest.mark.system


def tsnb(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "tsnb", *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_serve_list_status_stop(tmp_path: Path) -> None:
    """The life of a stream without a line of Python beyond its loader."""
    (tmp_path / "mydata.py").write_text(
        "import torch\ndef make(): return [torch.zeros(4, 2)] * 5\nnumber = 5\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    serving = subprocess.Popen(
        [sys.executable, "-m", "tsnb", "serve", "mydata:make", "--name", "toy", "--guard"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert serving.stdout is not None
        assert "serving 'toy'" in serving.stdout.readline()
        assert "toy (served by tsnb serve mydata:make, pid" in tsnb("list", cwd=tmp_path).stdout
        assert (
            "stream toy: idle, pass 1, batch 1 of 5 (20 %), window 0 of"
            in tsnb("status", cwd=tmp_path).stdout
        )
        screen = tsnb("top", cwd=tmp_path).stdout
        assert "● toy  idle" in screen
        assert "No trial is attached. The first batches are ready." in screen
        assert "CPU" in screen, "the machine was looked at"
        recording = subprocess.Popen(
            [sys.executable, "-m", "tsnb", "record", "toy", "run.jsonl"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert recording.stdout is not None
        assert "recording 'toy' to run.jsonl until the stream ends or Ctrl-C" in recording.stdout.readline()
        while len((tmp_path / "run.jsonl").read_text().splitlines()) < 3:
            time.sleep(0.05)
        with attach("c", "toy") as consumer:
            assert consumer._inner.welcome.guard
        assert tsnb("stop", cwd=tmp_path).stdout == "stopped 'toy'\n"
        assert serving.wait(120) == 0
        said, _ = recording.communicate(timeout=240)
        assert (
            said == f"recorded {len(read_recording(tmp_path / 'run.jsonl'))} readings of 'toy' to run.jsonl\n"
        )
    finally:
        serving.kill()
        serving.wait()
        assert serving.stdout is not None
        serving.stdout.close()


@pytest.mark.slow
def test_what_would_change_stalls_is_asked_by_options(tmp_path: Path) -> None:
    """Workers, a disk and memory: what was measured, and below it what was calculated; nothing is run in vain."""
    (tmp_path / "mydata.py").write_text(
        "import torch, pathlib\n"
        "from torch.utils.data import DataLoader, Dataset\n"
        "class Files(Dataset):\n"
        "    def __len__(self): return 64\n"
        "    def __getitem__(self, k):\n"
        "        return torch.tensor(len(pathlib.Path(f'{k}.dat').read_bytes()))\n"
        "def make(): return DataLoader(Files(), 4, num_workers=1)\n"
        "def step(batch): return batch.float().sum()\n"
    )
    for number in range(64):
        (tmp_path / f"{number}.dat").write_bytes(bytes(20_000))
    words = ("stalls", "mydata:make", "--train-step", "mydata:step", "--seconds", "0.1")
    asked = ("--workers", "2", "--disk", "1MB/s", "--memory", "640kB")
    found = json.loads(tsnb(*words, *asked, "--json", cwd=tmp_path).stdout)
    assert found["storage"]["sample_bytes"] == 20_000 and found["hits"] is None
    changed = found["what_if"]
    assert changed["asked"] == {"workers": 2, "disk": "1MB/s", "memory": "640kB"}
    assert changed["workers"] == 2 and changed["hits"]["most"] == 0.5
    assert changed["loader_per_s"] < 120 < found["loader_per_s"]  # 20 kB a sample, half of them at 1 MB/s
    half = ("--disk", "1MB/s", "--cached", "50%")
    prices = ("--gpus", "4", "--vcpu-price", "0.05", "--gpu-price", "2.5")
    printed = tsnb(*words, "--workers", "2", *half, *prices, "--cores", "16", cwd=tmp_path).stdout
    assert "\nWith --workers 2 --disk 1MB/s --cached 0.5:\n" in printed
    assert "calculated for 2 workers, a disk with 1 MB/s, 50% of the samples from memory" in printed
    assert "4 GPUs, one trial each" in printed and "16 cores." in printed and "not known" not in printed
    found = json.loads(tsnb(*words, *prices, "--cores", "16", "--json", cwd=tmp_path).stdout)
    assert {each["cores"] for each in found["sharing"]} == {16.0}
    assert found["sizing"]["gpus"] == 4 and found["sizing"]["basis"].startswith("From 3 rounds")
    for need in (found["sizing"]["separate"], found["sizing"]["shared"]):
        low, high = need["epoch_price_interval"]
        assert 0 < low < need["epoch_price"] < high
    for odd, said in (
        (("--memory", "8GiB"), "Add --cold, or --disk 100MB/s"),
        (("--disk", "fast"), 'a disk rate with its unit, such as "100MB/s"'),
        (("--workers", "0"), "a number of worker processes"),
        (("--disk", "1MB/s", "--memory", "much"), "for nothing in memory: --cached 0"),
        (("--cached", "0.5"), "Add --cold, or --disk 100MB/s"),
        (("--gpus", "0"), "gpus=0 is invalid. Pass a number of GPUs"),
        (("--vcpu-price", "-1"), "vcpu_price=-1.0 is invalid. Pass a price per hour"),
        (("--cores", "0"), "cores=0.0 is invalid. Pass a number of cores"),
    ):
        wrong = tsnb(*words, *odd, cwd=tmp_path)
        assert (wrong.returncode, wrong.stdout) == (1, "") and said in wrong.stderr


@pytest.mark.slow
def test_stalls_are_printed_or_given_as_json(tmp_path: Path) -> None:
    """The same call as in Python: a table with sentences, or its figures for programs."""
    (tmp_path / "mydata.py").write_text(
        "import torch\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "def make(): return DataLoader(TensorDataset(torch.zeros(64, 2)), 4)\n"
        "def step(batch): return batch[0].sum()\n"
    )
    words = ("stalls", "mydata:make", "--train-step", "mydata:step", "--n-trials", "3", "--seconds", "0.1")
    printed = tsnb(*words, cwd=tmp_path)
    assert "samples/s" in printed.stdout, printed.stderr
    found = json.loads(tsnb(*words, "--json", cwd=tmp_path).stdout)
    assert [each["trials"] for each in found["sharing"]] == [1, 2, 3, 4, 8]
    assert found["loader_per_s_interval"][0] <= found["loader_per_s"] <= found["loader_per_s_interval"][1]
    assert found["model_per_s"] > 0
    wrong = tsnb("stalls", "mydata:make", "--train-step", "mydata:nothing", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "has no 'nothing'" in wrong.stderr


@pytest.mark.slow
def test_a_plan_is_printed_or_given_as_json(tmp_path: Path) -> None:
    """The same call as in Python, parameters and all; a parameter that is written otherwise is refused at once."""
    (tmp_path / "mydata.py").write_text(
        "import torch, tsnb\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "def make(): return DataLoader(TensorDataset(torch.zeros(8000, 2)), 4)\n"
        "def train(width, epochs=3):\n"
        "    for _ in range(epochs):\n"
        "        for batch in tsnb.attach(): batch[0] @ torch.zeros(2, width)\n"
    )
    words = ("plan", "mydata:make", "--seconds", "0.1", "--trial", "mydata:train", "width=4")
    more = ("--trial", "mydata:train", "width=8", "epochs=1", "--cores", "1.5", "--json")
    told = json.loads(tsnb(*words, *more, cwd=tmp_path).stdout)
    assert told["cores"] == 1.5
    assert [trial["name"] for trial in told["trials"]] == ["train-width4", "train-width8-epochs1"], told
    assert {way["way"] for way in told["ways"]} >= {"in turn", "one stream"}
    low, high = next(way["interval_s"] for way in told["ways"] if way["way"] == told["choice"])
    assert 0 < low < high
    wrong = tsnb(*words, "8", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "is not a setting. Write NAME=VALUE" in wrong.stderr


@pytest.mark.slow
def test_what_fits_is_given_as_json(tmp_path: Path) -> None:
    """`tsnb plan`: peak memory of each, where it is, and why; what is larger than the given memory is not run."""
    (tmp_path / "mydata.py").write_text(
        "import torch, tsnb\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "def make(): return DataLoader(TensorDataset(torch.zeros(2000, 2)), 4)\n"
        "def train(mib, epochs=1):\n"
        "    held = torch.ones(mib << 18)\n"
        "    for _ in range(epochs):\n"
        "        for batch in tsnb.attach(): held[:8].sum()\n"
    )
    trials = [word for mib in (10, 600) for word in ("--trial", "mydata:train", f"mib={mib}")]
    asked = ("plan", "mydata:make", "--seconds", "0.1", "--memory", "500MiB", *trials)
    found = tsnb(*asked, "--execute", "--json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    told = json.loads(found.stdout)
    small, large = told["trials"]
    assert (small["name"], small["where"]) == ("train-mib10", "now")
    assert (large["name"], large["where"]) == ("train-mib600", "nowhere")
    assert large["peak_bytes"][0] >= 600 << 20
    assert told["memory_bytes"] == 500 << 20 and "actual_s" not in large


def test_alone_it_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    """As git and docker do: all commands, each with a line."""
    from tsnb.cli import main

    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"    {command}" in shown for command in ("serve", "sweep", "top", "results"))


@pytest.mark.slow
def test_an_interrupt_that_comes_while_something_is_freed_is_not_dropped(tmp_path: Path) -> None:
    """Python prints and drops it: the user has pressed Ctrl-C, and the command goes on."""
    (tmp_path / "mydata.py").write_text(
        "import os, signal, weakref\n"
        "class Freed: pass\n"
        "freed = Freed()\n"
        "watched = weakref.ref(freed, lambda _: os.kill(os.getpid(), signal.SIGINT))\n"
        "del freed\n"
        "loader = [0] * 8\n"
    )
    ran = tsnb("stalls", "mydata:loader", "--seconds", "0.1", cwd=tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_what_measures_leaves_nothing_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Interrupted, or killed, while trials are profiled: no process of it lives on, and no stream or record is left."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path / "records"))  # others' trials stand in the session's
    (tmp_path / "mydata.py").write_text(
        "import torch\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "def make(): return DataLoader(TensorDataset(torch.zeros(400, 2)), 4, num_workers=1)\n"
        "def train(epochs=1):\n"
        "    import pathlib, time, tsnb\n"
        "    for _ in range(epochs):\n"
        "        for batch in tsnb.attach():\n"
        "            pathlib.Path('seen').touch()\n"
        "            time.sleep(1)\n"
    )
    words = ("plan", "mydata:make", "--trial", "mydata:train", "epochs=3", "--seconds", "0.1")
    measuring = subprocess.Popen(
        [sys.executable, "-m", "tsnb", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    there: list[psutil.Process] = []
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "seen").exists():
            assert measuring.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        there = psutil.Process(measuring.pid).children(recursive=True)
        assert len(there) >= 2, "a trial, and what it was forked from"
        measuring.send_signal(number)
        assert measuring.wait(60) == {signal.SIGINT: 130, signal.SIGKILL: -signal.SIGKILL}[number]
        psutil.wait_procs(there, timeout=60)
        assert [each for each in there if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []
    finally:
        measuring.kill()
        measuring.wait()
    assert json.loads(tsnb("list", "--json", cwd=tmp_path).stdout) == []
    assert "train" not in tsnb("results", cwd=tmp_path).stdout


@pytest.mark.slow
def test_a_plan_is_carried_out(tmp_path: Path) -> None:
    """`--execute`: both trials run, on one stream or in turn, and what they print does not stand among the JSON."""
    (tmp_path / "mydata.py").write_text(
        "import torch, tsnb\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "def make(): return DataLoader(TensorDataset(torch.zeros(2000, 2)), 4)\n"
        "def train(width, epochs=1):\n"
        "    print('width', width)\n"
        "    for _ in range(epochs):\n"
        "        for batch in tsnb.attach(): batch[0] @ torch.zeros(2, width)\n"
    )
    trials = [word for width in (4, 8) for word in ("--trial", "mydata:train", f"width={width}")]
    found = tsnb("plan", "mydata:make", "--seconds", "0.1", *trials, "--execute", "--json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    told = json.loads(found.stdout)
    for each in told["trials"]:
        start_s, end_s = each["actual_s"]
        assert 0 <= start_s < end_s
    assert all(f"width {width}" in found.stderr for width in (4, 8))


@pytest.mark.slow
def test_how_trials_of_a_plan_ended_is_told(tmp_path: Path) -> None:
    """As text and as JSON, what it failed with too; as with a sweep, the status is 1 where none came through."""
    (tmp_path / "mydata.py").write_text(
        "import time, torch, tsnb\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "def make(): return DataLoader(TensorDataset(torch.zeros(400, 2)), 4)\n"
        "def train(bad, name, epochs=1):\n"
        "    for _ in range(epochs):\n"
        "        for batch in tsnb.attach():\n"
        "            time.sleep(0.005)\n"
        "            if bad and not name.startswith('tsnb-plan'): raise RuntimeError('out of luck')\n"
    )

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        given = [each for bad in more[0] for each in ("--trial", "mydata:train", f"bad={bad}")]
        return tsnb("plan", "mydata:make", "--seconds", "0.1", *given, "--execute", *more[1:], cwd=tmp_path)

    mixed = run("01")
    assert mixed.returncode == 0, mixed.stderr
    ends = re.findall(r"(?m)^train-bad(\d)(?: \(run \d+\))? +(done|failed) ", mixed.stdout)
    assert ends == [("0", "done"), ("1", "failed")]
    failed = run("1", "--json")
    assert failed.returncode == 1
    (told,) = json.loads(failed.stdout)["trials"]
    assert (told["state"], told["error"]) == ("failed", "RuntimeError: out of luck")


LOUD = """
import os, sys, time, torch, tsnb
from torch.utils.data import DataLoader, Dataset
print("imported")
class Loud(Dataset):
    def __len__(self): return 240
    def __getitem__(self, k):
        print("sample", k)
        os.write(1, b"from C\\n")
        return torch.zeros(2)
def make():
    print("made")
    return DataLoader(Loud(), 4, num_workers=WORKERS, multiprocessing_context=CONTEXT)
def step(batch): print("a step")
def train(width=1, epochs=1):
    print("training")
    for _ in range(epochs):
        for batch in tsnb.attach():
            batch @ torch.zeros(2, width)
            time.sleep(0.02)  # long enough to be profiled
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "workers", "context"),
    [
        (("stalls", "loud:make", "--train-step", "loud:step"), 0, None),
        (("stalls", "loud:make", "--train-step", "loud:step"), 1, "spawn"),
        (("plan", "loud:make", "--trial", "loud:train", "--execute"), 0, None),
        (("plan", "loud:make", "--trial", "loud:train", "--execute"), 1, "fork"),
    ],
    ids=["stalls", "stalls, spawned", "plan", "plan, forked"],
)
def test_with_json_the_answer_stands_alone(
    words: tuple[str, ...], workers: int, context: str | None, tmp_path: Path
) -> None:
    """Whatever the user's module, loader, workers, step and trials print, by Python or by C, goes to stderr."""
    loud = LOUD.replace("WORKERS", str(workers)).replace("CONTEXT", repr(context))
    (tmp_path / "loud.py").write_text(loud)
    done = tsnb(*words, "--seconds", "0.1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    for line in ("imported", "made", "sample 3", "from C", "a step" if words[0] == "stalls" else "training"):
        assert line in done.stderr


WRONG = """
import tsnb
{top}
def make():
    {inside}
    return [[1], [2]]
def train(): pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "top", "inside", "kind", "line"),
    [
        (("serve", "wrong:make", "--name", "x"), "", 'int("x")', "ValueError", 5),
        (("stalls", "wrong:make"), "", 'open("none/here")', "FileNotFoundError", 5),
        (("stalls", "wrong:make", "--json"), "import not_there", "pass", "ModuleNotFoundError", 3),
        (("plan", "wrong:make", "--trial", "wrong:train"), "1 / 0", "pass", "ZeroDivisionError", 3),
        (("plan", "wrong:make", "--trial", "wrong:train", "--json"), "", 'int("x")', "ValueError", 5),
        (("sweep", "wrong:train", "--grid", "a=1", "--json"), "1 / 0", "pass", "ZeroDivisionError", 3),
    ],
    ids=["serve", "stalls", "stalls, json", "plan", "plan, json", "sweep"],
)
def test_an_error_of_the_users_own_code_says_where(
    words: tuple[str, ...], top: str, inside: str, kind: str, line: int, tmp_path: Path
) -> None:
    """Its kind, file and line, and how to see all of it: no traceback of ours, and no message without a place."""
    (tmp_path / "wrong.py").write_text(WRONG.format(top=top, inside=inside))
    done = tsnb(*words, cwd=tmp_path)
    assert done.returncode == 1
    assert f"raised {kind}, in {tmp_path / 'wrong.py'}, line {line}: " in done.stderr
    assert 'To see the whole traceback: python3 -c "import wrong' in done.stderr.replace(
        "python -c", "python3 -c"
    )
    assert "Traceback" not in done.stderr
    assert "--json" not in words or kind in json.loads(done.stdout)["error"]


@pytest.mark.parametrize("words", [["--help"], ["list", "--json"], ["results", "--json"]], ids=" ".join)
def test_output_that_nobody_reads_on_is_no_traceback(words: list[str], tmp_path: Path) -> None:
    """As in `tsnb plan --json | head`: the command ends as one that SIGPIPE has ended, and says nothing."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tsnb", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 141 or (words, done.returncode) == (["--help"], 0), (
        "argparse drops its own errors"
    )


def test_a_list_of_nothing_says_so(tmp_path: Path) -> None:
    """An empty answer would look like a command that does not work; a script still reads no line."""
    done = tsnb("list", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "no stream is running" in done.stderr and "tsnb serve" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("serve", "nothing", "--name", "x"), "expected MODULE:NAME, for example"),
        (("serve", "no_such_module:x", "--name", "x"), "no module 'no_such_module'"),
        (("serve", "train.py:make", "--name", "x"), "'train.py' is a file. Name its module: train:make"),
        (("serve", "./part/train.py", "--name", "x"), "is a file. Name its module: part.train:NAME"),
        (("serve", "gc:collect", "--name", "x"), "An object of type int cannot be served"),
        (("stalls", "gc:enable"), "gc:enable is None, or returned None. Name a loader"),
        (("serve", "math:pi", "--name", "x"), "An object of type float cannot be served"),
        (("status",), "No stream is running"),
        (("stop", "x"), "No stream named 'x'"),
        (("top",), "No stream is running"),
        (("top", "x", "--once"), "No stream named 'x'"),
        (("record", "x", "run.jsonl"), "No stream named 'x'"),
    ],
)
def test_mistakes_get_one_line_that_says_what_to_do(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback of ours for a user's mistake."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))  # a duel of the session's would be told
    done = tsnb(*words, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_option_is_answered_with_the_usage_of_its_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """That of all commands says nothing of what may stand there."""
    with pytest.raises(SystemExit) as ended:
        main(["sweep", "train:train", "--lr", "0.1"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("usage: tsnb sweep") and "--grid" in said
    assert said.endswith("tsnb sweep: error: unrecognized arguments: --lr 0.1\n")
