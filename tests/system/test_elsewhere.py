"""Who is alive, seen from elsewhere: namespaces of process numbers and of the network; a directory that goes away."""

from __future__ import annotations

import functools
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.system.conftest import Run
from tests.system.scripts import PRELUDE, ROOT
from tsnb.config import runtime_directory
from tsnb.discovery import registry
from tsnb.native.memfd import SWITCH, portable

pytestmark = pytest.mark.system

SERVE = """
    with tsnb.serve([torch.arange(4)] * 8, name="s") as producer:
        say("serving")
        time.sleep(600)
"""
LOOK = """
    from tsnb.discovery import registry
    say("entries", *[(e.name, e.elsewhere) for e in registry.entries()])
    try: registry.register("s", "mine", "a second one")
    except tsnb.errors.NameInUse as error: say("refused", error)
    else: say("taken")
"""
ATTACH = """
    try:
        say("batches", sum(1 for batch in tsnb.attach("c", "s")))
    except tsnb.errors.TsnbError as error:
        say("error", type(error).__name__, error)
"""


@functools.cache
def why_not(*flags: str) -> str:
    """Return why no namespace of our own can be made here; empty where one can."""
    try:
        tried = subprocess.run(
            ["unshare", *flags, "true"], check=False, capture_output=True, text=True, timeout=30
        )
    except OSError as error:
        return str(error)
    return tried.stderr.strip() if tried.returncode else ""


def elsewhere(code: str, *flags: str) -> subprocess.Popen[str]:
    """Run a script in a container of its own, as far as `unshare` makes one."""
    flags = ("--pid", "--fork", "--kill-child", "--mount-proc", *flags)
    if reason := why_not(*flags):
        pytest.skip(f"no namespace can be made here: {reason}")
    return subprocess.Popen(
        ["unshare", *flags, sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
    )


def said(code: str, *flags: str) -> str:
    with elsewhere(code, *flags) as process:
        out, _ = process.communicate(timeout=240)
    return out


def test_who_looks_from_another_container_leaves_live_producers_alone(run: Run) -> None:
    """Their process numbers mean nothing there; the stream can be attached to as long as its socket is seen."""
    run(SERVE).expect("serving")
    out = said(LOOK + ATTACH)
    assert "entries ('s', 'another container of this machine')" in out, out
    refused = next(line for line in out.splitlines() if line.startswith("refused"))
    assert "'s' has been served" in refused and " in another container of this machine)" in refused, out
    assert "batches 8" in out, out
    (entry,) = registry.entries()
    assert entry.elsewhere == ""


@pytest.mark.slow
def test_an_attach_that_cannot_reach_the_producer_says_why(run: Run) -> None:
    """Abstract sockets belong to a network namespace."""
    if portable():
        pytest.skip("sockets that are files are seen wherever the directory is")
    run(SERVE).expect("serving")
    out = said(ATTACH, "--net")
    assert "error ProducerGone Stream 's' is served in another container" in out, out
    assert "docker run --network" in out
    assert registry.find("s").elsewhere == ""


def test_a_producer_of_another_container_is_listed_until_it_dies() -> None:
    """Its lock tells, whatever its number: the kernel lets go of it."""
    process = elsewhere(SERVE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        entry = registry.find("s")
        assert entry.elsewhere == "another container of this machine" and str(entry).count(
            "another container"
        )
        assert registry.entries() == [entry]
    finally:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
    deadline = time.monotonic() + 60
    while registry.entries():
        assert time.monotonic() < deadline, "its entry stays"
        time.sleep(0.05)


STOP = """
    from tsnb.hosting.stopping import stop
    try: stop("s", timeout_s=0.5)
    except tsnb.errors.TsnbError as error: say("error", error)
"""


def test_no_number_of_another_containers_process_is_named_to_be_killed(run: Run) -> None:
    """Here it is the number of another process, or of none."""
    producer = run(SERVE)
    producer.expect("serving")
    producer.send(signal.SIGSTOP)
    out = said(STOP)
    producer.send(signal.SIGCONT)
    assert "has not stopped" in out and "End its process in another container of this machine" in out, out
    assert "`kill" not in out


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["", "1"], ids=["linux", "portable"])
def test_a_live_producer_outlives_its_directory(
    run: Run, pair: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A logout, or a cleaner of temporary files: the entry comes back, and its socket where that is a file."""
    monkeypatch.setenv("TSNB_RUNTIME_DIR", str(tmp_path / "run"))
    if pair:
        monkeypatch.setenv(SWITCH, pair)
    run(SERVE).expect("serving")
    sockets = registry.socket_directory()
    first = registry.find("s")
    shutil.rmtree(runtime_directory())
    if pair and sockets.is_dir():
        Path(first.address).unlink()
    deadline = time.monotonic() + 30
    while first not in registry.entries() or (pair and not Path(first.address).exists()):
        assert time.monotonic() < deadline, "nobody can find it any more"
        time.sleep(0.05)
    script = run(ATTACH)
    assert script.expect("batches") == "8"


@pytest.mark.slow
def test_a_child_of_a_dead_producer_does_not_keep_it_alive(run: Run) -> None:
    """The lock is the producer's own, whatever was forked from it."""
    script = run(
        """
        producer = tsnb.serve([torch.arange(4)] * 8, name="s")
        child = os.fork()
        if child == 0: time.sleep(60); os._exit(0)
        say("child", child)
        time.sleep(600)
        """
    )
    child = int(script.expect("child"))
    assert registry.find("s").name == "s"
    script.kill()
    try:
        deadline = time.monotonic() + 60
        while registry.entries():
            assert time.monotonic() < deadline, "its child holds the lock"
            time.sleep(0.05)
    finally:
        subprocess.run(["kill", "-KILL", str(child)], check=False)
