"""One law for the odd place: it works there, or one sentence says what is missing and what to do.

A script serves a loader, runs a trial and reads the results, in each of the places. Where that cannot be, an error of
tsnb's own says so: no traceback of another library, and no wait without an end.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.system

NOBODY = 61234
"""A user without a name or a home."""

SCRIPT = """
import json, os, sys


def loader():
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    return DataLoader(TensorDataset(torch.arange(64)), batch_size=8)


def work():
    import tsnb
    seen = []
    for (rows,) in tsnb.attach():
        seen += rows.tolist()
        tsnb.log(loss=float(len(seen)))
    print("trained")
    return sorted(seen)


def told(**facts):
    os.write(int(sys.argv[1]), (json.dumps(facts) + "\\n").encode())


if __name__ == "__main__":
    exec(sys.argv[2])
    import tsnb
    from tsnb.errors import TsnbError
    try:
        with tsnb.serve(loader(), name="odd"):
            trial = tsnb.run(work, name="one")
            trial.wait(240)
            seen = trial.result()
            rows = len(tsnb.results())
        told(works=seen == list(range(64)) and trial.state == "done", rows=rows)
    except TsnbError as error:
        told(says=str(error))
    except BaseException as error:
        told(raises=repr(error))
        raise
"""

REFUSED = """
import ctypes, struct
def refuse(number, *seconds):  # a system call; with which second arguments it fails: none means with any
    words = []
    for second in seconds or [None]:
        ends = [(0x06, 0, 0, 0x00050000 | NO_LOCKS)]
        looks = [] if second is None else [(0x20, 0, 0, 24), (0x15, 0, 1, second)]
        words += [(0x20, 0, 0, 0), (0x15, 0, len(looks + ends), number), *looks, *ends]
    words.append((0x06, 0, 0, 0x7FFF0000))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *word) for word in words))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(words), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
""".replace("NO_LOCKS", str(errno.ENOLCK))
"""The system's own filter of calls: a file system without locks, wherever the test runs."""

FLOCK, FCNTL = 73, 72  # x86_64
LOCKS = [6, 7, 37, 38]  # F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW


class Place(NamedTuple):
    """Where a script runs."""

    name: str
    says: str = ""
    """Words of the sentence, where it cannot work; "": it works."""
    before: str = ""
    """Python that the script runs first."""
    mounts: tuple[str, ...] = ()
    """Of a mount namespace of its own."""
    environment: tuple[tuple[str, str | None], ...] = ()
    directory: bytes = b"work"
    user: int = 0
    either: bool = False
    """It may work as well: how much of it there is depends on the machine."""


LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_{0}, ({1}, {1}))"
FULL = "head -c 1000000 /dev/zero > {0}/fill 2>/dev/null; true"
PLACES = [
    Place("no flock", before=f"{REFUSED}\nrefuse({FLOCK})"),
    Place(
        "no locks", before=f"{REFUSED}\nrefuse({FLOCK})\nrefuse({FCNTL}, *{LOCKS})", says="has no file locks"
    ),
    Place(
        "runtime directory not UTF-8", environment=(("TSNB_RUNTIME_DIR", "BASE/caf\udce9"),), says="not UTF-8"
    ),
    Place("working directory not UTF-8", directory=b"caf\xe9"),
    Place("no home", user=NOBODY, environment=(("HOME", None),), says="Set HOME"),
    Place(
        "deleted working directory",
        before="import shutil, torch.utils.data, tsnb.experiments; shutil.rmtree(os.getcwd())",
        says="working directory",
    ),
    Place(
        "read-only working directory",
        mounts=("mount --bind BASE/work BASE/work", "mount -o remount,ro,bind BASE/work"),
    ),
    Place(
        "read-only runtime directory",
        mounts=("mount --bind BASE/run BASE/run", "mount -o remount,ro,bind BASE/run"),
        says="TSNB_RUNTIME_DIR",
    ),
    Place("few descriptors", before=LIMITED.format("NOFILE", 40), says="limit of open files", either=True),
    # what it meets first depends on the machine: the hub's thread, zmq, the fork, a thread of the kernel; the limit is
    # one of all processes of a user
    *(
        Place(
            f"{most} processes",
            user=NOBODY + most,
            before=LIMITED.format("NPROC", most),
            says="limit",
            either=True,
        )
        for most in (8, 11, 14, 16, 19, 22)
    ),
    Place("closed stdout", before="os.close(1)"),
    Place(
        "full working directory",
        mounts=("mount -t tmpfs -o size=64k,mode=700 none BASE/work", FULL.format("BASE/work")),
    ),
    Place(
        "full runtime directory",
        mounts=("mount -t tmpfs -o size=64k,mode=700 none BASE/run", FULL.format("BASE/run")),
        says="No space left on device",
    ),
]
"""Each is there once; whatever asks the system for something is asked in each."""


@pytest.fixture
def base() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="tsnb-place-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def _words(place: Place, base: Path) -> list[str]:
    """Return what a command stands behind in a place."""
    words = []
    if place.mounts:
        mounts = "; ".join(mount.replace("BASE", str(base)) for mount in place.mounts)
        words += ["unshare", "-m", "sh", "-c", f'{mounts}; cd "$0"; exec "$@"', str(base / "work")]
    if place.user:  # it may read what is installed, wherever that lies
        able = "+dac_override,+dac_read_search"
        words += ["setpriv", f"--reuid={place.user}", f"--regid={place.user}", "--clear-groups"]
        words += [f"--inh-caps={able}", f"--ambient-caps={able}"]
    return words


def _can(words: list[str]) -> bool:
    if not words:
        return True
    try:
        return subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def in_place(place: Place, base: Path) -> tuple[dict[str, Any], str]:
    """Run the script there; return what it told, and what it wrote to stderr."""
    here = base / os.fsdecode(place.directory)
    for path in (here, base / "run"):
        path.mkdir(mode=0o700)
        os.chown(path, place.user, place.user)
    words = _words(place, base)
    if not _can(words):
        pytest.skip("only root of a whole machine can make this place")
    (base / "script.py").write_text(SCRIPT)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TSNB") and k != "TMPDIR"}
    environment |= {"TSNB_RUNTIME_DIR": str(base / "run"), "HOME": str(base)}
    for name, value in place.environment:
        environment.pop(name, None)
        if value is not None:
            environment[name] = value.replace("BASE", str(base))

    reading, writing = os.pipe()
    with (base / "errors").open("wb") as errors:
        process = subprocess.Popen(
            [*words, sys.executable, str(base / "script.py"), str(writing), place.before],
            cwd=here,
            env=environment,
            pass_fds=[writing],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    os.close(writing)
    try:
        process.wait(400)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    with open(reading, encoding="utf-8") as pipe:
        told = pipe.read()
    errors_said = (base / "errors").read_text(errors="replace")
    return json.loads(told) if told else {"raises": "nothing was told"}, errors_said


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_it_works_or_one_sentence_says_what_is_missing(place: Place, base: Path) -> None:
    """What is said names the limit, and what to do; where only the records suffer, a warning says it and all runs."""
    told, errors = in_place(place, base)
    said = told.get("says", "") + errors
    assert "raises" not in told, (told, errors)
    assert told.get("works") or place.says, (told, errors)
    if place.says and not (place.either and told.get("works")):
        assert place.says in said, (told, errors)
    assert "Traceback" not in errors or place.either, errors
