"""Kernels forked from a server: as good as started, apart from each other, and gone with whoever goes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.promises import HANG_S, took
from tsnb.kernels.cargo.orders import thread_variables
from tsnb.kernels.hub import the_hub
from tsnb.kernels.processes import forking
from tsnb.kernels.processes.child import Child
from tsnb.kernels.processes.death import KernelDied
from tsnb.kernels.processes.forking import ForkServer
from tsnb.kernels.processes.process import Launch, read_once
from tsnb.machine.owners import owner
from tsnb.native.ties import packet_pair
from tsnb.notebook.extension import prepare

pytestmark = pytest.mark.system

Start = Callable[..., Child]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a kernel; what was started ends with the test."""
    hub = the_hub()
    await_fork_server()
    started: list[Child] = []

    async def make(output: Any, env: dict[str, str] | None, log: Path | None) -> Child:
        return Child(hub, "test", output, env, log)

    def one(
        output: Any = lambda *_: None, env: dict[str, str] | None = None, log: Path | None = None
    ) -> Child:
        child = hub.call(make(output, env, log))
        started.append(child)
        hub.call(child.start())
        return child

    yield one
    for child in started:
        hub.call(child.kill())


def await_fork_server(former: ForkServer | None = None) -> None:
    """Wait for it: on a busy machine its imports may take longer than a kernel's start waits for them.

    Args:
        former: One that is about to be found dead.
    """
    hub, deadline = the_hub(), time.monotonic() + HANG_S
    while former is not None and former.usable:
        assert time.monotonic() < deadline, "its end was not noticed"
        time.sleep(0.01)
    assert hub.call(forking.await_server(hub, HANG_S))


def value(child: Child, expression: str) -> Any:
    """Return what an expression is in a kernel."""
    code = f"raise RuntimeError(repr({expression}))"
    reply = the_hub().call(child.execute(code, order=True))
    assert reply["ename"] == "RuntimeError", reply
    return eval(reply["evalue"], {})


def server() -> ForkServer:
    found = forking._current
    assert found is not None
    return found


def is_forked(child: Child) -> bool:
    return psutil.Process(child.pid).ppid() == server().pid


def test_a_forked_kernel_is_a_process_of_its_own(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment, directory, process group, signals and `__main__` are what a start of its own would give."""
    monkeypatch.setenv("TSNB_LEFT_OUT", "1")
    start()
    monkeypatch.delenv("TSNB_LEFT_OUT")
    child = start(env={"TSNB_ADDED": "here"})
    assert is_forked(child)
    assert value(child, "__import__('os').environ.get('TSNB_ADDED')") == "here"
    assert value(child, "__import__('os').environ.get('TSNB_LEFT_OUT')") is None
    assert value(child, "__import__('os').getcwd()") == os.getcwd()
    assert value(child, "__import__('os').getpgrp()") == child.pid
    assert value(child, "__import__('signal').getsignal(15) == 0")
    assert value(child, "__name__") == "__main__"
    assert value(child, "__import__('gc').isenabled()")
    assert value(child, "'main' in globals() or 'tsnb' in globals()") is False


def test_limits_and_umask_are_the_notebook_s_of_now(start: Start) -> None:
    """`resource.setrlimit(RLIMIT_NOFILE, ...)` for more open files counts for trials that start after it."""
    start()
    former, umask = resource.getrlimit(resource.RLIMIT_NOFILE), os.umask(0o027)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (former[0] - 1, former[1]))
        child = start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, former)
        os.umask(umask)
    assert is_forked(child)
    assert (
        value(child, "__import__('resource').getrlimit(__import__('resource').RLIMIT_NOFILE)")[0]
        == former[0] - 1
    )
    assert value(child, "__import__('os').umask(0)") == 0o027


def test_its_imports_are_there_already(start: Start) -> None:
    """That is what it is for: torch is loaded, and next to nothing of it is this process's own."""
    child = start()
    assert value(child, "'torch' in __import__('sys').modules")
    memory = psutil.Process(child.pid).memory_full_info()
    assert memory.uss < memory.rss / 2


MAKE_AN_OPTIMIZER = """
(lambda sys, before: (
    sys.modules["torch"].optim.SGD([sys.modules["torch"].ones(1, requires_grad=True)], 0.1),
    sorted(name for name in sys.modules.keys() - before if name.startswith("torch.")),
))(__import__("sys"), {*__import__("sys").modules})[1]
""".replace("\n", " ").strip()


def test_the_first_optimizer_of_a_trial_imports_nothing(start: Start) -> None:
    """Torch imports 800 modules then, over a second of a core for each of many trials."""
    assert value(start(), MAKE_AN_OPTIMIZER) == []


TRYING = """
import sys
sys.path += [{path!r}, {folder!r}]
from tsnb.kernels.processes import forkserver
forkserver.PRELOADED, forkserver.AT_FIRST_USE = ("torch",), ("harmless", *{more!r})
forkserver.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("more", [("missing",), ("threaded",)])
def test_what_would_end_forking_is_left_to_the_kernels(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: tuple[str, ...]
) -> None:
    """A module that starts a thread, or initialises CUDA, as it is imported: all kernels would be spawned."""
    (tmp_path / "harmless.py").touch()
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    )
    path = str(Path(forking.__file__).parents[3])
    code = TRYING.format(path=path, folder=str(tmp_path), more=more)
    monkeypatch.setattr(forking, "_current", None)
    monkeypatch.setattr(forking, "entry", lambda _: code)
    await_fork_server()
    trying = server()
    try:
        child = start()
        assert is_forked(child)
        assert value(child, "'harmless' in __import__('sys').modules") == (more == ("missing",))
        assert not value(child, "'threaded' in __import__('sys').modules")
    finally:
        the_hub().call(trying.end())
        trying._process.wait()


def test_twins_draw_different_random_numbers(start: Start) -> None:
    """Python, numpy's old generator and torch: each kernel begins somewhere else."""
    draw = (
        "(__import__('random').random(), __import__('numpy').random.rand(), "
        "__import__('torch').rand(1).item(), __import__('multiprocessing').current_process().authkey)"
    )
    first, second = value(start(), draw), value(start(), draw)
    for one, other in zip(first, second, strict=True):
        assert one != other


def test_a_kernel_computes_on_the_threads_it_was_given(start: Start) -> None:
    """The server has one; torch and numpy take the number from the kernel's environment all the same."""
    blas = "__import__('tsnb.kernels.in_kernel.forked', fromlist=['x']).blas_threads()"
    threads = f"(__import__('torch').get_num_threads(), {blas})"
    for number in (1, 2):
        child = start(env=thread_variables(number))
        assert is_forked(child)
        found = value(child, threads)
        assert found[0] == number
        assert found[1] in {number, None}
    product = "float((__import__('numpy').ones((300, 300)) @ __import__('numpy').ones((300, 300))).sum())"
    assert value(child, product) == 300.0**3


def test_an_interrupt_reaches_one_kernel_only(start: Start) -> None:
    """Twins are in process groups of their own."""
    hub = the_hub()
    begun: list[str] = []
    one, other = (start(lambda kind, _: begun.append(kind) if kind == "stream" else None) for _ in range(2))
    code = "import time; print('begun', flush=True); time.sleep(60)"
    interrupted, spared = hub.post(one.execute(code)), hub.post(other.execute(code))
    deadline = time.monotonic() + 60
    while len(begun) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    hub.loop.call_soon_threadsafe(one.interrupt)
    assert interrupted.result(10)["ename"] == "KeyboardInterrupt"
    assert not spared.done()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os._exit(3)", "ended with exit status 3"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("import os; os.abort()", "SIGABRT"),
    ],
)
def test_how_a_forked_kernel_ended_is_told(start: Start, code: str, said: str) -> None:
    """The server passes on the exit status, within a second."""
    child = start()
    assert is_forked(child)
    began = time.monotonic()
    with pytest.raises(KernelDied, match=said):
        the_hub().call(child.execute(code))
    took(time.monotonic() - began)
    assert not psutil.pid_exists(child.pid), "the server has taken its status: no zombie is left"


@pytest.mark.slow
def test_a_killed_server_takes_its_kernels_along_and_the_next_start_has_a_new_one(start: Start) -> None:
    """Their end is told with the reason, within a second."""
    hub = the_hub()
    children = [start(), start()]
    former = server()
    running = [hub.post(child.execute("import time; time.sleep(60)")) for child in children]
    time.sleep(0.1)
    began = time.monotonic()
    os.kill(former.pid, signal.SIGKILL)
    for future in running:
        with pytest.raises(
            KernelDied, match="because the process that it was forked from was killed by SIGKILL"
        ):
            future.result(HANG_S)
    took(time.monotonic() - began)
    assert not any(child.alive for child in children)
    psutil.wait_procs([psutil.Process(c.pid) for c in children if psutil.pid_exists(c.pid)], HANG_S)
    await_fork_server(former)
    child = start()
    assert server() is not former
    assert is_forked(child)


@pytest.mark.slow
@pytest.mark.parametrize(
    "packet",
    [b"", b"{", b"\xff\x00", b"[]", b'"fork"', b'{"id": 1}', b'{"id": "x", "arguments": 3}', b"{" * 50_000],
    ids=["empty", "half", "bytes", "list", "text", "no-arguments", "wrong-types", "long"],
)
def test_a_request_that_makes_no_sense_does_not_end_the_server(start: Start, packet: bytes) -> None:
    """It is answered, and the next kernel comes from the same server."""
    start()
    before = server()
    if packet:
        before._control.send(packet)
    assert is_forked(start())
    assert server() is before


def test_a_fork_that_fails_half_way_says_why_and_ends(start: Start) -> None:
    """It does not go on as a second server; the server does."""
    start()
    hub, before = the_hub(), server()
    _mine, theirs = packet_pair()
    launch = Launch(["-f", "x"], before._environment, Path("/nonexistent/log"), theirs.fileno())
    with pytest.raises(forking.Unable, match="FileNotFoundError"):
        hub.call(before.fork(launch))
    assert is_forked(start())
    assert server() is before


def test_a_start_that_nobody_waits_for_any_more_leaves_no_kernel(start: Start, tmp_path: Path) -> None:
    """Interrupted between request and answer: the kernel is killed when it comes."""
    start()
    hub, before = the_hub(), server()
    os.kill(before.pid, signal.SIGSTOP)
    _mine, theirs = packet_pair()
    launch = Launch(["-f", "x"], before._environment, tmp_path / "log", theirs.fileno())
    asked = hub.post(before.fork(launch))
    time.sleep(0.2)
    asked.cancel()
    os.kill(before.pid, signal.SIGCONT)
    start()  # answered after the one before
    assert len(psutil.Process(before.pid).children()) <= 2
    deadline = time.monotonic() + 60
    while len(psutil.Process(before.pid).children()) > 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_a_start_that_is_cancelled_on_a_busy_machine_leaves_no_files(start: Start) -> None:
    """The kernel comes, and makes its files, before the hub finds the time to kill it."""
    start()
    hub = the_hub()
    before, known = names(hub.directory), server()._counter

    async def make() -> Child:
        return Child(hub, "cancelled", lambda *_: None)

    child = hub.call(make())
    starting = hub.post(child.start())
    while server()._counter == known:
        time.sleep(0.001)
    starting.cancel()
    hub.loop.call_soon_threadsafe(time.sleep, 3.0)
    deadline = time.monotonic() + HANG_S
    while server()._unwanted or names(hub.directory) - before:
        assert time.monotonic() < deadline, names(hub.directory) - before
        time.sleep(0.02)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.slow
def test_a_server_that_stands_still_is_not_waited_for(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in a debugger, say: kernels are spawned, and the next server is a new one."""
    monkeypatch.setattr(forking, "ANSWER_S", 0.3)
    start()
    before = server()
    os.kill(before.pid, signal.SIGSTOP)
    child = start()
    assert psutil.Process(child.pid).ppid() == os.getpid()
    before._process.kill()
    monkeypatch.undo()
    await_fork_server(before)
    assert is_forked(start())
    assert server() is not before


def test_what_libraries_read_once_is_known() -> None:
    """Those variables make a spawn of it, in both directions; numbers of threads do not, unless they are none."""
    own = {"OMP_NUM_THREADS": "1", "HOME": "/home/me", "TSNB_X": "1", "PYTHONHASHSEED": "3"}
    assert (
        read_once(
            {
                **own,
                "TSNB_X": "2",
                "PATH": "/else",
                "CUDA_VISIBLE_DEVICES": "1",
                "OMP_NUM_THREADS": "4",
                "PYTHONBREAKPOINT": "ray.util.rpdb.set_trace",  # by ray.init
            },
            own,
        )
        == []
    )
    assert read_once({k: v for k, v in own.items() if k != "OMP_NUM_THREADS"}, own) == []
    for name in (
        "MKL_THREADING_LAYER",
        "PYTORCH_ALLOC_CONF",
        "LD_PRELOAD",
        "OMP_WAIT_POLICY",
        "HOME",
        "PYTHONHASHSEED",
    ):
        assert read_once({**own, name: "else"}, own) == [name]
    assert read_once({**own, "OMP_NUM_THREADS": "2,4"}, own) == ["OMP_NUM_THREADS"]
    assert read_once({"OMP_NUM_THREADS": "1", "TSNB_X": "1", "HOME": "/home/me"}, own) == ["PYTHONHASHSEED"]


SETS_BY_ITSELF = """
import json, os, sys
import torch
before = dict(os.environ)
torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
for package in sys.argv[1:]:
    __import__(package)
print(json.dumps({name: value for name, value in os.environ.items() if before.get(name) != value}))
"""


@pytest.mark.slow
def test_what_a_library_sets_when_a_notebook_imports_it_does_not_end_forking(start: Start) -> None:
    """An optimizer, scikit-learn and Lightning each set variables whose names look as if they were read once."""
    words = [sys.executable, "-c", SETS_BY_ITSELF, "sklearn", "lightning", "transformers", "optuna"]
    # tests before this one may have had them set here
    mine = {
        name: value for name, value in os.environ.items() if not name.startswith(("TORCHINDUCTOR_", "KMP_"))
    }
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=mine)
    found = json.loads(done.stdout)
    assert {"TORCHINDUCTOR_CACHE_DIR", "KMP_INIT_AT_FORK"} <= set(found), (
        "they set nothing more: nothing is tested"
    )
    child = start(env=found)
    assert is_forked(child)
    for name, said in found.items():
        assert value(child, f"__import__('os').environ[{name!r}]") == said


def test_another_environment_is_a_start_of_its_own(start: Start) -> None:
    """What counts when a library is imported takes effect."""
    child = start(env={"PYTHONHASHSEED": "7"})
    assert not is_forked(child)
    assert value(child, "__import__('os').environ['PYTHONHASHSEED']") == "7"


def test_what_the_connection_cannot_carry_is_a_start_of_its_own(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment larger than a packet; a working directory that was removed, where no kernel starts."""
    large = {f"TSNB_LARGE_{n}": "x" * 100_000 for n in range(12)}
    child = start(env=large)
    assert value(child, "len(__import__('os').environ['TSNB_LARGE_7'])") == 100_000
    assert not is_forked(child)
    lost = tmp_path / "lost"
    lost.mkdir()
    monkeypatch.chdir(lost)
    lost.rmdir()
    with pytest.raises(KernelDied, match=r"working directory of this process has been removed.*%cd"):
        start()


def test_a_detached_kernel_and_one_by_wish_are_spawned(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork ends with the server, so what is to go on is none; `TSNB_START=spawn` turns forking off."""
    start()
    assert not is_forked(start(log=tmp_path / "log"))
    monkeypatch.setenv("TSNB_START", "spawn")
    assert not is_forked(start())


BROKEN = """
import sys, threading, time
from tsnb.kernels.processes import forkserver
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
forkserver.PRELOADED = ()
forkserver.main()
"""


def test_a_server_with_a_second_thread_refuses(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A lock that another thread holds would stay locked in every fork: spawned instead."""
    code = f"import sys; sys.path.append({str(Path(forking.__file__).parents[3])!r})" + BROKEN
    hub = the_hub()
    caplog.set_level(logging.DEBUG, logger="tsnb")
    monkeypatch.setattr(forking, "_current", None)
    monkeypatch.setattr(forking, "entry", lambda _: code)
    child = start()
    threaded = server()
    try:
        assert not is_forked(child)
        assert "the fork server has 2 threads" in caplog.text
    finally:
        hub.call(threaded.end())
        threaded._process.wait()


def test_a_server_that_cannot_start_is_told_once_and_not_tried_again(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With its last words; kernels are spawned."""
    monkeypatch.setattr(forking, "_current", None)
    monkeypatch.setattr(forking, "entry", lambda _: "raise ImportError('no torch today')")
    children = [start(), start()]
    assert all(psutil.Process(child.pid).ppid() == os.getpid() for child in children)
    assert caplog.text.count("no torch today") >= 1
    assert len([record for record in caplog.records if "spawned" in record.message]) == 1


def test_loading_the_extension_does_not_wait_for_the_server_and_a_trial_not_for_ever(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is slow to be ready costs the first kernel a while, the next one nothing."""
    caplog.set_level(logging.DEBUG, logger="tsnb")
    monkeypatch.setattr(forking, "_current", None)
    monkeypatch.setattr(forking, "entry", lambda _: "import time; time.sleep(60)")
    monkeypatch.setattr(forking, "WARM_S", 0.5)
    prepare()  # returns though nothing is ready
    children = [start(), start()]
    slow = server()
    try:
        assert all(psutil.Process(child.pid).ppid() == os.getpid() for child in children)
        assert caplog.text.count("it was not ready within") == 1
        assert caplog.text.count("it is not ready") == 1
    finally:
        the_hub().call(slow.end())
        slow._process.wait()


def test_many_at_once_come_from_one_server(start: Start) -> None:
    """Each has its own process, and answers."""
    hub = the_hub()
    start()

    async def bring_up() -> list[Child]:
        children = [Child(hub, f"t{n}", lambda *_: None) for n in range(8)]
        await asyncio.gather(*(child.start() for child in children))
        return children

    async def end(children: list[Child]) -> None:
        await asyncio.gather(*(child.kill() for child in children))

    children = hub.call(bring_up())
    assert all(map(is_forked, children))
    assert len({child.pid for child in children}) == 8
    hub.call(end(children))
    assert not any(child.alive for child in children)


NOTEBOOK = """
import time
from tsnb.kernels.processes import forking
from tsnb.kernels.processes.child import Child
from tsnb.kernels.hub import the_hub
hub = the_hub()
async def make():
    return Child(hub, "t", lambda *_: None)
child = hub.call(make())
hub.call(child.start())
print(forking._current.pid, child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_the_notebooks_death_takes_the_server_and_its_kernels_along() -> None:
    """SIGKILL leaves neither: the one is tied to the other."""
    notebook = subprocess.Popen([sys.executable, "-c", NOTEBOOK], stdout=subprocess.PIPE)
    assert notebook.stdout is not None
    below = [psutil.Process(int(pid)) for pid in notebook.stdout.readline().split()]
    assert len(below) == 2
    notebook.kill()
    notebook.wait()
    notebook.stdout.close()
    deadline = time.monotonic() + 60
    for process in below:
        with contextlib.suppress(psutil.NoSuchProcess):
            while process.status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < deadline, "it outlived its notebook"
                time.sleep(0.01)


def test_a_running_kernel_is_adopted_in_the_middle_of_its_cell(start: Start, tmp_path: Path) -> None:
    """Output from then on, interrupt and end of a kernel that another process may have started."""
    hub = the_hub()
    own = start(log=tmp_path / "log")
    connection = own.connection_file
    assert connection is not None
    hub.post(own.execute("import time\nfor n in range(10_000): print(n, flush=True); time.sleep(0.05)"))
    seen: list[str] = []

    def take(kind: str, content: dict[str, Any]) -> None:
        if kind == "stream":
            seen.append(content["text"])

    found = owner(own.pid)
    for other, why in (
        (found._replace(started=found.started - 1000), "has ended"),  # its number, used again
        (found._replace(namespace="pid:[1]"), "runs in another container"),
    ):
        with pytest.raises(KernelDied, match=why):
            hub.call(Child.adopt(hub, "found", take, connection, other))
    adopted = hub.call(Child.adopt(hub, "found", take, connection, found))
    deadline = time.monotonic() + 60
    while not seen:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    hub.loop.call_soon_threadsafe(adopted.interrupt)
    assert hub.call(adopted.execute("1"))["status"] == "ok"
    os.kill(own.pid, signal.SIGKILL)
    hub.call(adopted.kill())
    assert "has ended" in str(adopted.death.result())
    with pytest.raises(KernelDied, match="has ended"):
        hub.call(Child.adopt(hub, "found", take, connection, found))
