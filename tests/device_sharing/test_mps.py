"""This user's MPS daemon: real processes, pipes and files; the control program is a stand-in (`control_program`).

NVIDIA's own comes with a driver, and there is none where these tests run; what needs it is marked `gpu`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.device_sharing.control_program import install
from tests.machine.fake_nvml import GIB, H200, FakeNvml
from tsnb import cli
from tsnb.device_sharing import mps
from tsnb.device_sharing.mps import find, start, status, stop, with_mps
from tsnb.errors import TsnbError
from tsnb.experiments.cells import run_cell
from tsnb.machine.gpus import MPS_DIRECTORY, Gpus
from tsnb.machine.owners import has_gone
from tsnb.machine.placement import VISIBLE, place

WHOLE = {**H200, "uuid": "GPU-aa"}
CUT = {**H200, "uuid": "GPU-bb", "instances": [{**H200, "memory": (0, GIB), "uuid": "MIG-cc"}]}
NAMES = (MPS_DIRECTORY, mps.LOGS)


def nvml(*gpus: dict[str, Any], starts: bool = True) -> Gpus:
    return Gpus(FakeNvml(*(gpus or (WHOLE,)), starts=starts), host_pids=True)


@pytest.fixture
def home(runtime_directory: Path) -> Path:
    """Where the daemon's files lie."""
    return runtime_directory / "mps"


@pytest.fixture
def behave(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Give what tells the control program how to behave; in the end no daemon is left."""
    monkeypatch.delenv(VISIBLE, raising=False)
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(mps, "_USUAL", tmp_path / "usual")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    install(tmp_path)
    yield lambda **ways: install_ways(tmp_path, ways)
    install_ways(tmp_path, {})
    if (home / "pipe").exists():
        stop()
    shutil.rmtree(home, ignore_errors=True)


def install_ways(folder: Path, ways: dict[str, Any]) -> None:
    (folder / "ways.new").write_text(json.dumps(ways))
    (folder / "ways.new").replace(folder / "ways.json")


@pytest.fixture
def sleeper() -> Iterator[Callable[..., psutil.Process]]:
    """Start processes that do nothing, and end them."""
    begun: list[subprocess.Popen[str]] = []

    def begin(code: str = "import time; time.sleep(60)") -> psutil.Process:
        begun.append(subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, text=True))
        return psutil.Process(begun[-1].pid)

    yield begin
    for process in begun:
        for below in psutil.Process(process.pid).children(recursive=True):
            below.kill()
        process.kill()
        process.communicate()


def test_a_daemon_is_started_once_and_leaves_nothing(behave: Any, home: Path) -> None:
    """It lies in private directories, answers, and has gone with all its files after `stop`."""
    daemon, new = start(nvml())
    assert new and find() == daemon
    assert start(nvml()) == (daemon, False)
    assert [oct((home / part).stat().st_mode)[-3:] for part in ("", "pipe", "log", "daemon")] == [
        "700"
    ] * 3 + ["600"]
    told = status({})
    assert (told.pid, told.directory, told.servers, told.trials) == (daemon.pid, str(home / "pipe"), (), ())
    assert stop() and not home.exists() and has_gone(daemon)
    assert not stop() and find() is None
    assert str(status({})).startswith("No MPS daemon is running for your user")


def test_new_processes_get_the_variables_while_it_lives(
    behave: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before, not after, not over the user's own, and not where no whole GPU is seen."""
    assert with_mps({"a": "b"}) == {"a": "b"}
    start(nvml())
    both = {MPS_DIRECTORY: str(home / "pipe"), mps.LOGS: str(home / "log")}
    assert with_mps({"a": "b"}) == {"a": "b", **both}
    for own in ({MPS_DIRECTORY: "/mine"}, {MPS_DIRECTORY: ""}, {VISIBLE: ""}, {VISIBLE: "MIG-cc"}):
        assert with_mps(own) == own
    assert place("cuda:0", 25, with_mps({}), nvml()).environment[VISIBLE] == "GPU-aa"
    monkeypatch.setenv(MPS_DIRECTORY, "/mine")
    assert with_mps({}) == {}
    monkeypatch.delenv(MPS_DIRECTORY)
    os.kill(find().pid, signal.SIGKILL)  # type: ignore[union-attr]
    while find() is not None:
        time.sleep(0.01)
    assert with_mps({}) == {}


@pytest.mark.slow
def test_trials_that_start_while_it_lives_compute_through_it(behave: Any, home: Path, page: Any) -> None:
    """Real kernels: one from before has no variables, one from now has both, `--env` and `--device cpu` win."""
    look = f"import os; seen = [os.environ.get(name) for name in {NAMES}]"
    before = run_cell("before", look, {}, outlet=page)
    assert before.wait(120)["seen"] == [None, None]
    start(nvml())
    during = run_cell("during", look, {}, outlet=page)
    own = run_cell("own", look, {}, outlet=page, env={MPS_DIRECTORY: "/mine"})
    hidden = run_cell("hidden", look, {}, outlet=page, device="cpu")
    assert during.wait(120)["seen"] == [str(home / "pipe"), str(home / "log")]
    assert own.wait(120)["seen"] == ["/mine", None]
    assert hidden.wait(120)["seen"] == [None, None]


def test_who_is_attached_is_the_daemons_own_word(behave: Any, sleeper: Any) -> None:
    """Trials by name, also by a process they have started; from before it with the way out; strangers by number."""
    before = sleeper()
    time.sleep(0.05)  # processes are told apart by when they started, in hundredths of a second
    daemon, _ = start(nvml())
    child = (
        "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])"
    )
    cnn, rnn, later, loader, other = sleeper(), sleeper(child), sleeper(), sleeper(), sleeper()
    while not rnn.children():
        time.sleep(0.01)
    behave(clients={"71": [cnn.pid, rnn.children()[0].pid], "72": [other.pid]})
    ours = {
        before.pid: "before",
        cnn.pid: "cnn",
        rnn.pid: "rnn",
        later.pid: "later",
        loader.pid: "loader of digits",
    }
    told = status(ours)
    assert told.servers == (71, 72) and told.others == (other.pid,)
    assert {one.trial: one.attached for one in told.trials} == {
        "before": False,
        "cnn": True,
        "rnn": True,
        "later": False,
    }
    text = str(told)
    assert (
        f"before (pid {before.pid}): not attached: it started before the daemon. Stop it and start it again"
        in text
    )
    assert f"later (pid {later.pid}): not attached: it has not used CUDA yet, or was started without" in text
    assert json.loads(json.dumps(told.to_dict()))["running"] is True and told.pid == daemon.pid
    behave(clients={"71": [loader.pid]})
    assert f"loader of digits (pid {loader.pid}): attached" in str(status(ours))


def test_it_is_not_stopped_under_those_who_compute_through_it(behave: Any, sleeper: Any) -> None:
    """They are named, and it goes on."""
    daemon, _ = start(nvml())
    cnn = sleeper()
    behave(clients={"71": [cnn.pid]})
    with pytest.raises(TsnbError, match=rf"still serves cnn \(pid {cnn.pid}\). Stop them first"):
        stop({cnn.pid: "cnn"}.__getitem__)
    assert find() == daemon


def test_what_does_not_end_or_answer_is_named(
    behave: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the time limits, and its files stay as long as it does."""
    monkeypatch.setattr(mps, "STOP_S", 0.5)
    monkeypatch.setattr(mps, "ANSWER_S", 0.5)
    daemon, _ = start(nvml())
    behave(stays=True)
    with pytest.raises(TsnbError, match=rf"nvidia-cuda-mps-control \(pid {daemon.pid}\) did not end within"):
        stop()
    behave(mute=True)
    with pytest.raises(
        TsnbError, match=rf"\(pid {daemon.pid}, logs: .*\) does not answer `get_server_list` within"
    ):
        status({})
    assert home.is_dir() and find() == daemon


@pytest.mark.parametrize("look", [lambda: status({}), stop, lambda: start(nvml())])
def test_what_a_dead_daemon_has_left_is_swept(behave: Any, home: Path, look: Callable[[], Any]) -> None:
    """By whichever command comes next; a later process of its number is another."""
    daemon, _ = start(nvml())
    os.kill(daemon.pid, signal.SIGKILL)
    while not has_gone(daemon):
        time.sleep(0.01)
    (home / "daemon").write_text(json.dumps([*daemon[:3], os.getpid(), daemon.started]))
    (home / "pipe" / "left").touch()
    assert find() is None
    look()
    assert not (home / "pipe" / "left").exists()


def test_a_daemon_whose_start_was_killed_is_found_again(behave: Any, home: Path) -> None:
    """It runs, and was not recorded yet."""
    daemon, _ = start(nvml())
    (home / "daemon").unlink()
    assert find() == daemon
    assert start(nvml()) == (daemon, False)
    assert stop() and not home.exists()


def test_one_of_another_machine_is_left_alone(behave: Any, home: Path) -> None:
    """Its files are not swept by who cannot tell whether it lives; trials here do without."""
    (home).mkdir(mode=0o700)
    (home / "daemon").write_text(json.dumps(["elsewhere", "boot", "pid:[1]", 1234, 5]))
    for command in (find, stop, lambda: start(nvml()), lambda: status({})):
        with pytest.raises(TsnbError, match=r"on another machine \(elsewhere, pid 1234\). Stop it there"):
            command()
    assert with_mps({}) == {} and (home / "daemon").exists()


@pytest.mark.parametrize(
    ("ways", "says"),
    [
        (
            {"fails": "cuda initialisation failed"},
            r"started no daemon that answers \(1\): cuda initialisation failed",
        ),
        ({"mute": True}, "does not answer `get_server_list`"),
    ],
)
def test_a_failed_start_leaves_nothing(
    behave: Any, home: Path, monkeypatch: pytest.MonkeyPatch, ways: dict[str, Any], says: str
) -> None:
    """Neither a process nor a file, and says the program's own words."""
    monkeypatch.setattr(mps, "ANSWER_S", 0.5)
    behave(**ways)
    with pytest.raises(TsnbError, match=says):
        start(nvml())
    assert not home.exists() and find() is None


def test_a_directory_that_is_not_private_is_refused(behave: Any, home: Path, tmp_path: Path) -> None:
    """Others could put a socket of theirs there; a link is not followed either."""
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    with pytest.raises(TsnbError, match="can be entered by other users"):
        start(nvml())
    assert with_mps({}) == {}
    home.rmdir()
    home.symlink_to(tmp_path)
    with pytest.raises(TsnbError, match="is a link"):
        start(nvml())
    home.unlink()


@pytest.mark.parametrize(
    ("gpus", "environment", "says"),
    [
        (nvml(starts=False), {}, r"this machine has none \(NVML says: Driver Not Loaded\)"),
        (nvml(), {"PATH": ""}, "nvidia-cuda-mps-control is not on the PATH"),
        (nvml(), {MPS_DIRECTORY: "/mine"}, "CUDA_MPS_PIPE_DIRECTORY=/mine is set"),
        (nvml(WHOLE, CUT), {}, r"MIG instances \(mig:MIG-cc\).*To use MPS on undivided GPUs"),
        (nvml(CUT), {VISIBLE: "MIG-cc"}, r"MIG instances \(mig:MIG-cc\)"),
        (nvml(WHOLE), {VISIBLE: "0"}, "Set it to GPU-aa, also in notebooks"),
        (nvml(WHOLE), {VISIBLE: ""}, "It hides all GPUs"),
    ],
)
def test_where_it_cannot_run_nothing_is_started(
    behave: Any,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpus: Gpus,
    environment: dict[str, str],
    says: str,
) -> None:
    """The reason is said, with the way out."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(TsnbError, match=says):
        start(gpus)
    assert not home.exists()


def test_whole_gpus_named_by_uuid_are_enough(behave: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside one that is cut."""
    monkeypatch.setenv(VISIBLE, "GPU-aa")
    assert start(nvml(WHOLE, CUT))[1]


def test_beside_another_daemon_none_is_started(behave: Any, home: Path, tmp_path: Path) -> None:
    """Trials would use that one; a socket that a dead one has left is none."""
    usual = tmp_path / "usual"
    usual.mkdir()
    asked = {**os.environ, MPS_DIRECTORY: str(usual)}
    subprocess.run([mps.PROGRAM, "-d"], env=asked, check=True)
    while not (usual / f"{mps.PROGRAM}.pid").exists():
        time.sleep(0.01)
    with pytest.raises(TsnbError, match=r"An MPS daemon of .* answers at .*, and trials already use it"):
        start(nvml())
    assert not home.exists()
    subprocess.run([mps.PROGRAM], env=asked, input=b"quit\n", check=True)
    assert (usual / "control").exists()
    assert start(nvml())[1]


def test_two_commands_at_once_do_not_meet(behave: Any) -> None:
    """The second is told so, and does nothing."""
    with mps._alone(), pytest.raises(TsnbError, match="Another `tsnb mps`"):
        start(nvml())


def test_the_command_line_answers_in_words_and_json(
    behave: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Failures too, with the exit status 1."""
    assert cli.main(["mps", "start", "--json"]) == 1
    assert "this machine has none" in json.loads(capsys.readouterr().out)["error"]
    monkeypatch.setattr(mps, "Gpus", nvml)
    assert cli.main(["mps", "start", "--json"]) == 0
    begun = json.loads(capsys.readouterr().out)
    assert begun == {"started": True, "pid": find().pid}  # type: ignore[union-attr]
    assert cli.main(["mps", "start"]) == 0
    assert f"is already running (pid {begun['pid']})" in capsys.readouterr().out
    assert cli.main(["mps", "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pid"] == begun["pid"]
    assert cli.main(["mps", "stop"]) == 0
    assert "stopped" in capsys.readouterr().out
    assert cli.main(["mps", "status"]) == 0
    assert "No MPS daemon is running for your user" in capsys.readouterr().out


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.skipif(shutil.which(mps.PROGRAM) is None, reason=f"there is no {mps.PROGRAM} here")
def test_a_trial_on_a_gpu_is_attached_to_the_real_daemon(
    page: Any, until: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVIDIA's own program: the trial's process is its client, and once that has ended `stop` leaves nothing."""
    monkeypatch.delenv(VISIBLE, raising=False)
    daemon, _ = start()
    enough = tmp_path / "enough"
    code = (
        "import pathlib, time, torch\nx = torch.ones(1, device='cuda')\n"
        f"while not pathlib.Path({str(enough)!r}).exists(): time.sleep(0.05)"
    )
    trial = run_cell("attached", code, {}, outlet=page)
    try:
        until(lambda: trial.pid and any(one.attached for one in status({trial.pid: "attached"}).trials))
        with pytest.raises(TsnbError, match=f"pid {trial.pid}"):
            stop()
        enough.touch()
        trial.wait(60)
    finally:
        trial.stop()
        until(_stopped)
    assert not home.exists() and has_gone(daemon)


def _stopped() -> bool:
    """Stop the daemon, unless it still serves a process."""
    with contextlib.suppress(TsnbError):
        stop()
    return find() is None
