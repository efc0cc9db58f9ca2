"""One kernel process: start, execute, interrupt, and every way to die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from binder.check import make_group
from tests.promises import HANG_S, promptly, took
from tsnb.kernels.hub import the_hub
from tsnb.kernels.processes.child import ENTRY, Child
from tsnb.kernels.processes.death import Death, KernelDied

pytestmark = pytest.mark.system

Output = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def output() -> Output:
    return []


@pytest.fixture(params=["fork", "spawn"])
def child(output: Output, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    """Return a kernel, by either way to start one: whoever uses it sees no difference."""
    monkeypatch.setenv("TSNB_START", request.param)
    hub = the_hub()

    async def make() -> Child:
        return Child(hub, "test", lambda kind, content: output.append((kind, content)))

    child = hub.call(make())
    hub.call(child.start())
    yield child
    hub.call(child.kill())


def printed(output: Output) -> str:
    return "".join(content["text"] for kind, content in output if kind == "stream")


def test_it_executes_and_everything_printed_is_there_when_the_reply_is(child: Child, output: Output) -> None:
    """Python's, C's and a sub-process's output all arrive, before `execute` returns."""
    reply = the_hub().call(child.execute("import os\nprint('python')\nos.system('echo shell')\n1 + 1"))
    assert reply["status"] == "ok"
    assert "python" in printed(output)
    assert ("execute_result", "2") in [(k, c["data"]["text/plain"]) for k, c in output if "data" in c]


def test_an_order_s_error_is_in_its_reply_only(child: Child, output: Output) -> None:
    """What we ask of a kernel never shows a traceback of ours to the user."""
    reply = the_hub().call(child.execute("1 / 0", order=True))
    assert reply["ename"] == "ZeroDivisionError"
    assert "error" not in [kind for kind, _ in output]
    the_hub().call(child.execute("1 / 0"))
    assert "error" in [kind for kind, _ in output]


def test_an_interrupt_ends_what_runs_and_the_kernel_goes_on(child: Child) -> None:
    """As the stop button does."""
    hub = the_hub()
    running = hub.post(child.execute("import time\ntime.sleep(60)"))
    time.sleep(0.3)
    hub.loop.call_soon_threadsafe(child.interrupt)
    assert running.result(10)["ename"] == "KeyboardInterrupt"
    assert hub.call(child.execute("1"))["status"] == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV"])
def test_a_death_is_noticed_within_a_second_with_the_signal_s_name(child: Child, name: str) -> None:
    """However it dies, whoever waits is told at once; its files are gone, its group too."""
    hub = the_hub()
    code = "import subprocess, time\np = subprocess.Popen(['sleep', '60'])\nprint(p.pid)\ntime.sleep(60)"
    running = hub.post(child.execute(code))
    deadline = time.monotonic() + HANG_S
    while not (below := psutil.Process(child.pid).children()) and time.monotonic() < deadline:
        time.sleep(0.02)
    began = time.monotonic()
    os.kill(child.pid, getattr(signal, name))
    with pytest.raises(KernelDied, match=name):
        running.result(HANG_S)
    took(time.monotonic() - began)
    assert not child.alive
    hub.call(child.kill())  # of a dead one: nothing to do
    psutil.wait_procs(below, HANG_S)
    assert not [p for p in below if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    there = {path.name for path in hub.directory.iterdir()}
    assert there <= {"door", "lock", "starting"}, "the hub's own; of the kernel nothing"


def test_without_pidfd_a_death_is_noticed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old system, or a sandbox that forbids it, costs a thread and nothing else."""

    def refuse(_pid: int) -> int:
        raise PermissionError("not in this sandbox")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    monkeypatch.setenv("TSNB_START", "spawn")  # of a forked one the server tells the end
    hub = the_hub()

    async def make() -> Child:
        return Child(hub, "old", lambda *_: None)

    child = hub.call(make())
    hub.call(child.start())
    os.kill(child.pid, signal.SIGKILL)
    promptly(lambda: not child.alive)


def test_a_crash_in_compiled_code_leaves_its_last_words(child: Child) -> None:
    """The native traceback stands in the message, not only the signal."""
    code = "import ctypes, faulthandler, sys\nfaulthandler.enable(sys.stderr._original_stdstream_copy)\n"
    with pytest.raises(KernelDied, match="Fatal Python error"):
        the_hub().call(child.execute(code + "ctypes.string_at(0)"))


def test_a_kernel_that_cannot_start_says_why(output: Output) -> None:
    """The process's own last words are in the error, and nothing is left."""
    hub = the_hub()

    async def start() -> None:
        env = {"PYTHONSTARTUP": "", "TSNB_X": "1", "PYTHONHOME": "/nonexistent"}
        child = Child(hub, "broken", lambda *_: None, env=env)
        await child.start()

    with pytest.raises(KernelDied, match="did not start"):
        hub.call(start())


PARENT = """
import sys, time
from tsnb.kernels.hub import the_hub
from tsnb.kernels.processes.child import ENTRY, Child
hub = the_hub()
async def make():
    return Child(hub, "t", lambda *_: None)
child = hub.call(make())
hub.call(child.start())
hub.post(child.execute("import re; re.match(r'(a+)+$', 'a' * 40 + 'b')"))  # holds the interpreter's lock in C
time.sleep(0.5)
print(child.pid, flush=True)
ENDING
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "kill"),
    [("time.sleep(60)", True), ("sys.exit()", False), ("1 / 0", False)],
    ids=["kill", "exit", "raise"],
)
def test_it_dies_with_its_parent_however_that_ends(ending: str, kill: bool) -> None:
    """Even while it holds the interpreter's lock in C: no orphan after SIGKILL, exit or error of the parent."""
    code = PARENT.replace("ENDING", ending)
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    if kill:
        parent.kill()
    parent.wait(HANG_S)
    parent.stdout.close()
    promptly(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


@pytest.fixture
def small_group() -> Iterator[Path]:
    """Return a control group with little memory, where this user may make one."""
    group = make_group(1 << 30)
    if group is None:
        pytest.skip("no control group with a memory limit can be made here")
    yield group.path
    deadline = time.monotonic() + 60
    while left := (group.path / "cgroup.procs").read_text():
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    group.end()
    assert not left, "somebody outlived the test in its group"


GREEDY = """
from tsnb.kernels.hub import the_hub
from tsnb.kernels.processes.child import Child
hub = the_hub()
async def make():
    return Child(hub, "t", lambda *_: None)
child = hub.call(make())
hub.call(child.start())
try:
    hub.call(child.execute("hoard = [bytearray([1]) * (1 << 24) for _ in range(200)]"))
except Exception as error:
    print(error)
"""


@pytest.mark.slow
def test_a_kernel_that_the_system_kills_for_its_memory_is_said_to_be(small_group: Path) -> None:
    """The control group counts such kills; a SIGKILL while it does is put down to memory."""
    enter = f"echo $$ > {small_group}/cgroup.procs && exec {sys.executable} -c '{GREEDY.replace(chr(39), chr(34))}'"
    done = subprocess.run(["sh", "-c", enter], capture_output=True, text=True, timeout=240, check=False)
    assert "killed by SIGKILL: the system ran out of memory" in done.stdout, done
    assert str(small_group) in done.stdout


def test_a_parent_that_died_first_is_noticed() -> None:
    """The signal is asked for after the start: a parent that was gone by then is seen by its pid."""
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, "1", "-f", "/nonexistent"], check=False, timeout=HANG_S
    )
    assert done.returncode == 1


def test_a_death_reads_as_people_say_it() -> None:
    """Exit status and signal are told apart."""
    assert str(Death(3)) == "its kernel ended with exit status 3"
    assert "SIGKILL (by a user, or by the system because it ran out of memory)" in str(Death(-9))
    assert "signal 62" in str(Death(-62))


def test_death_watch_is_told_once_to_all(child: Child, until: Callable[..., None]) -> None:
    """`death` is done after a kill, and the child counts as gone."""
    hub = the_hub()
    hub.call(child.kill())
    until(child.death.done)
    assert child.death.result().code == -signal.SIGKILL
    with pytest.raises(KernelDied):
        hub.call(child.execute("1"))
