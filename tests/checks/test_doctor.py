"""`tsnb doctor`: it tries the real thing, and what is wrong with a machine is said with what to do about it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tsnb
from tests.house.elsewhere import run_notebook, said_in
from tests.machine.fake_nvml import H200, FakeNvml
from tests.second_user import given, reachable, two_users
from tsnb.checks import machine
from tsnb.checks.examining import CHECKS, doctor
from tsnb.checks.findings import Checkup, Finding
from tsnb.checks.hosts import editor
from tsnb.checks.machine import only_you
from tsnb.config import require_platform, runtime_directory
from tsnb.discovery.registry import socket_directory
from tsnb.errors import UnsupportedPlatform
from tsnb.machine.gpus import Gpus
from tsnb.native.memfd import SWITCH

pytestmark = pytest.mark.system


def told(done: subprocess.CompletedProcess[str]) -> str:
    """Return what was printed, as one line."""
    return " ".join(done.stdout.split())


def command(*, limit: str = "true", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `tsnb doctor` in a process of its own, after a shell command that limits it."""
    line = f"{limit} && exec {sys.executable} -m tsnb doctor"
    return subprocess.run(
        ["/bin/bash", "-c", line],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_this_machine_is_well() -> None:
    """A real stream and a real trial kernel are tried, and every part is told of once."""
    found = tsnb.doctor()
    assert found.works, str(found)
    assert [finding.part for finding in found.findings] == list(CHECKS)
    assert found["stream"].state == "works" and "received every sample once" in found["stream"].says
    assert found["trials"].state == "works" and "read an epoch" in found["trials"].says
    assert found["panel"].state == "works"
    assert not tsnb.streams.list()


@pytest.mark.slow
def test_a_process_that_may_open_few_files_is_told_how_to_get_more() -> None:
    """It works all the same: the checks themselves need few."""
    done = command(limit="ulimit -S -n 200")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "A process may open only 200 files." in told(done)
    assert "`ulimit -n " in told(done)


@pytest.mark.slow
def test_a_limit_on_file_sizes_is_found_by_trying() -> None:
    """Shared memory counts as a file: nothing can be served, and the stream's own error says why."""
    done = command(limit="ulimit -f 64")
    assert done.returncode == 1
    assert done.stdout.startswith("tsnb does not work here: stream")
    assert "ulimit -f" in told(done)


@pytest.mark.slow
def test_a_directory_of_somebody_else_is_found(tmp_path: Path) -> None:
    """Everything that needs it fails with the same advice, and the other checks are made."""
    taken = tmp_path / "open-to-all"
    taken.mkdir(mode=0o777)
    taken.chmod(0o777)
    done = command(TSNB_RUNTIME_DIR=str(taken))
    assert done.returncode == 1
    assert "Set TSNB_RUNTIME_DIR to a directory that only you can enter." in told(done)
    assert "extras" in told(done)


@pytest.mark.slow
def test_kernels_that_are_not_forked_are_said_to_cost_more() -> None:
    """They work."""
    done = command(TSNB_START="spawn")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "It was started as a new process, not forked" in told(done)
    assert "TSNB_START=spawn is set." in told(done)


def test_a_panel_without_its_bundle_or_its_front_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JupyterLab would show nothing, or an error that says little."""
    monkeypatch.setattr(machine, "jupyter_path", lambda *_: [str(tmp_path)])
    assert "ipywidgets and anywidget" in machine.panel().says
    (tmp_path / "panel").mkdir()
    monkeypatch.setattr(
        machine, "find_spec", lambda _: type("Spec", (), {"origin": str(tmp_path / "panel" / "__init__.py")})
    )
    assert machine.panel().state == "fails"


LOOKS = """
from tsnb.checks.machine import panel
found = panel()
print(found.state, "|", found.says, "|", found.advice)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"VSCODE_PID": "17"}, "VS Code shows this notebook (VSCODE_PID is set)"),
        ({"VSCODE_CWD": "/home/me"}, "VS Code shows this notebook (VSCODE_CWD is set)"),
        (
            {"VSCODE_PID": "17", "CURSOR_TRACE_ID": "a1"},
            "Cursor shows this notebook (CURSOR_TRACE_ID is set)",
        ),
        ({"VSCODE_PID": "17", "POSITRON": "1"}, "Positron shows this notebook (POSITRON is set)"),
        ({"TERM_PROGRAM": "vscode"}, "JupyterLab"),
        ({"POSITRON": "1", "JPY_SESSION_NAME": "work/a.ipynb"}, "JupyterLab"),
    ],
)
def test_an_editor_that_shows_the_notebook_is_known_by_its_kernels_variables(
    variables: dict[str, str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a real kernel; JupyterLab in a terminal of the editor is JupyterLab."""
    for sign in ("VSCODE_PID", "VSCODE_CWD", "CURSOR_TRACE_ID", "POSITRON", "JPY_SESSION_NAME"):
        monkeypatch.delenv(sign, raising=False)
    for sign, value in variables.items():
        monkeypatch.setenv(sign, value)
    said = said_in(run_notebook(Path(sys.executable), [LOOKS], tmp_path, monkeypatch))
    assert name in said, said
    assert name != "JupyterLab" or "shows this notebook" not in said, said
    if "shows" in name:
        assert said.startswith("limited | ") and "has not been tested there" in said
        assert (
            "If VS Code asks for permission".replace("VS Code", name.split(" shows", maxsplit=1)[0]) in said
        )


@pytest.mark.parametrize(
    ("sign", "name"), [("COLAB_RELEASE_TAG", "Google Colab"), ("KAGGLE_KERNEL_RUN_TYPE", "Kaggle")]
)
def test_a_service_that_runs_the_kernel_is_named_with_what_works_there(
    sign: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a real kernel: pictures and the terminal work where the panel does not."""
    monkeypatch.setenv(sign, "batch")
    said = said_in(run_notebook(Path(sys.executable), [LOOKS], tmp_path, monkeypatch))
    assert said.startswith(f"limited | {name} shows this notebook ({sign} is set)"), said
    assert "call tsnb.report() or run `tsnb top`" in said


def test_a_terminal_of_an_editor_shows_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tsnb doctor` there tells of the JupyterLab of the environment."""
    monkeypatch.setenv("VSCODE_PID", "17")
    assert editor() is None


def test_one_core_and_a_small_shm_are_worth_knowing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is an error."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert machine.cores().state == "limited"
    finally:
        os.sched_setaffinity(0, before)
    monkeypatch.setattr(machine, "SMALL_SHM_BYTES", 2**60)
    assert "--shm-size" in machine.files().advice


@pytest.mark.slow
@pytest.mark.parametrize(
    ("built_for", "visible", "advice"),
    [
        (None, None, "Install a CUDA build"),
        (None, "", "Install a CUDA build"),
        ("12.8", None, "fits the driver"),
        ("12.8", "", "CUDA_VISIBLE_DEVICES='' is set"),
    ],
)
def test_gpus_that_torch_cannot_use_are_told_with_what_keeps_it(
    built_for: str | None, visible: str | None, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hidden on purpose, or by mistake, is another thing than a torch without CUDA."""
    monkeypatch.setattr(machine, "Gpus", lambda: Gpus(FakeNvml(H200, H200)))
    monkeypatch.setattr(torch.version, "cuda", built_for)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = machine.gpus()
    assert found.state == "limited" and found.says.startswith("2 GPUs are here (`tsnb devices`)")
    assert advice in found.advice


def test_the_notebook_does_not_start_cuda_to_look_at_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold about half a GiB of the GPU until it is restarted."""
    asked: list[list[str]] = []

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(words)
        return subprocess.CompletedProcess(words, 0, "NVIDIA H200, NVIDIA H200\n", "")

    monkeypatch.setattr(machine, "Gpus", lambda: Gpus(FakeNvml(H200, H200)))
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    for name in ("is_available", "device_count", "get_device_name", "init"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: pytest.fail("this process asked CUDA"))
    monkeypatch.setattr("tsnb.checks.machine.subprocess.run", run)
    found = machine.gpus()
    assert found.state == "works" and found.says.startswith("torch can use NVIDIA H200, NVIDIA H200.")
    assert [words[0] for words in asked] == [sys.executable]


@pytest.mark.gpu
@pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="needs a GPU")
def test_the_gpus_of_torch_are_named_and_cuda_is_not_started_here() -> None:
    """On a real one: nothing of the driver is open in the process that asks."""
    code = (
        "import os, torch\n"
        "from tsnb.checks import machine\n"
        "found = machine.gpus()\n"
        "print(found.state, torch.cuda.is_initialized())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "works False\n"


def test_a_torch_that_does_not_answer_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that hangs is what a checkup is for: it says so, and the process that asked has ended."""
    monkeypatch.setattr(torch.version, "cuda", "12.4")
    monkeypatch.setattr(machine, "_ASK_TORCH", "import time; time.sleep(600)")
    monkeypatch.setattr(machine, "ANSWER_S", 1.0)
    found = machine.gpus()
    assert found.state == "limited"
    assert found.says == "torch did not list its GPUs within 1 s. tsnb stopped this check."
    assert "nvidia-smi" in found.advice


def test_an_error_inside_a_check_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are made, and the sentence at the top names it."""

    def broken() -> Finding:
        raise RuntimeError("no such thing")

    monkeypatch.setitem(CHECKS, "cores", broken)
    monkeypatch.delitem(CHECKS, "trials")
    found = doctor()
    assert found["cores"] == Finding("cores", "fails", "RuntimeError: no such thing")
    assert found.summary() == "tsnb does not work here: cores."
    assert not found.works
    with pytest.raises(KeyError, match="no finding named 'tpu'"):
        found["tpu"]


def test_what_is_shown_in_a_notebook_is_escaped() -> None:
    """A message of the system may hold anything."""
    html = Checkup([Finding("a", "limited", "<b>", "x & y")])._repr_html_()
    assert "&lt;b&gt;" in html and "x &amp; y" in html and "works, but" in html


def test_it_says_which_arena_and_channel_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux's own, or those that every POSIX system has, and why."""
    monkeypatch.delenv(SWITCH, raising=False)
    assert machine.system().state == "works" and "memfd" in machine.system().says
    monkeypatch.setenv(SWITCH, "1")
    chosen = machine.system()
    assert chosen.state == "limited" and "the portable way" in chosen.says and SWITCH in chosen.says
    monkeypatch.delenv(SWITCH)
    monkeypatch.setattr(machine, "portable", lambda: True)
    monkeypatch.setattr(machine, "has_memfd", lambda: False)
    assert "glibc" in machine.system().advice
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "tested on Linux only" in machine.system().advice


def test_a_mac_is_told_what_holds_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where sockets lie, its own kind of GPU, and a number of open files that its shell takes."""
    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(machine, "Gpus", lambda: Gpus(FakeNvml()))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert f"files in {socket_directory()}." in machine.files().says
    assert machine.open_files().advice.startswith("Run `ulimit -n 4096`")
    assert machine.gpus().state == "works" and "`mps`" in machine.gpus().says


def test_a_system_that_it_was_not_written_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows: refused before anything else fails."""
    monkeypatch.setattr(sys, "platform", "win32")
    assert machine.system().state == "fails"
    with pytest.raises(UnsupportedPlatform, match="WSL2"):
        require_platform()
    monkeypatch.setattr(sys, "platform", "darwin")
    require_platform()


@pytest.fixture
def somewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Stand in an empty directory below one that is closed to others' writing, with nothing chosen."""
    with tempfile.TemporaryDirectory(prefix="tsnb-test-") as name:
        place = reachable(Path(name).resolve())
        (place / "work").mkdir()
        monkeypatch.chdir(place / "work")
        for variable in ("TSNB_PROJECT_DIR", "XDG_RUNTIME_DIR"):
            monkeypatch.delenv(variable, raising=False)
        yield place


def test_directories_that_only_this_user_can_exchange_are_well(somewhere: Path) -> None:
    """Both are named, and nothing is made."""
    (somewhere / "work" / ".tsnb").mkdir(mode=0o700)
    found = only_you()
    assert found.state == "works", found
    assert f"Records: {somewhere / 'work' / '.tsnb'}." in found.says
    assert str(runtime_directory()) in found.says


def test_a_working_directory_that_others_can_write_to_is_told_with_the_command(somewhere: Path) -> None:
    """The records would go elsewhere; after the command they lie there. Nothing is changed by looking."""
    work = somewhere / "work"
    work.chmod(0o777)
    found = only_you()
    assert found.state == "limited"
    assert f"{work} can be written by other users (its mode is 0777)" in found.says
    assert str(runtime_directory() / "projects") in found.says
    assert not (work / ".tsnb").exists()
    assert f"Run `chmod go-w {work}`" in found.advice
    advised(found)


def advised(found: Finding) -> None:
    """Run the command that is advised; all is well then."""
    subprocess.run(found.advice.split("`")[1], shell=True, check=True)
    assert only_you().state == "works"


def test_loose_and_planted_records_are_told_with_the_command(
    somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mode from an older tsnb; a link; a chosen directory whose others are trusted."""
    records = somewhere / "work" / ".tsnb"
    records.mkdir(mode=0o755)
    found = only_you()
    assert "mode is 0755" in found.says and f"`chmod 700 {records}`" in found.advice
    assert records.stat().st_mode & 0o777 == 0o755, "looking changes nothing"
    records.rmdir()
    records.symlink_to(somewhere)
    found = only_you()
    assert "is a link" in found.says and f"`rm {records}`" in found.advice
    shared = somewhere / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(shared))
    found = only_you()
    assert (
        "which TSNB_PROJECT_DIR selects, although" in found.says and f"`chmod go-w {shared}`" in found.advice
    )


@two_users
def test_another_users_runtime_directory_is_told(somewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `su`: it is left alone; one that was chosen fails."""
    theirs = given(somewhere / "theirs", 0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(somewhere))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(theirs))
    monkeypatch.delenv("TSNB_RUNTIME_DIR")
    found = only_you()
    assert found.state == "limited"
    assert (
        f"replace XDG_RUNTIME_DIR={theirs}, so it is not used" in found.says
        and "Unset XDG_RUNTIME_DIR" in found.advice
    )
    monkeypatch.setenv("TSNB_RUNTIME_DIR", str(theirs / "run"))
    found = only_you()
    assert found.state == "fails" and "belongs to nobody (user 65534)" in found.says


IPYTHON_LOOSE = {
    "its profile": ("profile_default", 0o777),
    "its startup files": ("profile_default/startup", 0o777),
    "one startup file": ("profile_default/startup/one.py", 0o666),
    "its configuration": ("profile_default/ipython_kernel_config.py", 0o666),
    "what %store has kept": ("profile_default/db/autorestore/x", 0o666),
    "an extension": ("extensions/mine.py", 0o666),
    "all of it": (".", 0o1777),
}


@pytest.mark.parametrize("loose", IPYTHON_LOOSE)
def test_a_place_where_others_can_have_ipython_run_code_is_told_with_the_command(
    somewhere: Path, monkeypatch: pytest.MonkeyPatch, loose: str
) -> None:
    """IPython runs it in each kernel. Files that nobody runs do not count, and links to one's own files do no harm."""
    place = somewhere / "ipython"
    for name in (
        "profile_default/startup/one.py",
        "profile_default/ipython_kernel_config.py",
        "dotfiles/two.py",
    ):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    for name in ("extensions/mine.py", "profile_default/db/autorestore/x", "profile_default/history.sqlite"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    (place / "profile_default/startup/two.py").symlink_to("../../dotfiles/two.py")
    (place / "profile_default/history.sqlite").chmod(0o666)
    monkeypatch.setenv("IPYTHONDIR", str(place))
    assert only_you().state == "works", only_you()
    name, mode = IPYTHON_LOOSE[loose]
    (place / name).chmod(mode)
    found = only_you()
    assert found.state == "limited"
    assert f"Trials run no startup files of IPython, because {place / name} can be written by" in found.says
    assert f"Look in {place} for code that is not yours, and run `chmod -R go-w {place}`." in found.advice
    advised(found)


def test_a_startup_file_behind_a_link_counts_where_it_lies(
    somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is for the directory in which others can replace it."""
    shared, startup = somewhere / "shared", somewhere / "ipython/profile_default/startup"
    startup.mkdir(parents=True)
    shared.mkdir()
    (shared / "one.py").touch()
    shared.chmod(0o777)
    (startup / "one.py").symlink_to(shared / "one.py")
    (startup / "gone.py").symlink_to(somewhere / "gone.py")
    monkeypatch.setenv("IPYTHONDIR", str(somewhere / "ipython"))
    assert f"run `chmod go-w {shared}`" in only_you().advice
    shared.chmod(0o755)
    assert only_you().state == "works"
