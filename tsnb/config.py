"""Where tsnb keeps its few files, and what a name may look like.

Owns no state and imports nothing heavy, so that every layer may use it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tsnb.errors import TsnbError, UnsupportedPlatform
from tsnb.private.directories import Unsafe, check_parents, make_private
from tsnb.text.printable import encodable
from tsnb.text.words import did_you_mean, size_text

__all__ = [
    "LIVE_LETTERS",
    "MAX_CONSUMERS",
    "MOST_LIVE",
    "MOUNT_PROC",
    "PACINGS",
    "PROFILED",
    "check_balance",
    "check_name",
    "explained",
    "is_profiled",
    "limit_met",
    "nobody_elses",
    "private_directory",
    "read_weight",
    "require_platform",
    "runtime_directory",
    "short_directory",
    "tells_of_processes",
    "unprofiled",
    "way_out",
]

MOST_LIVE, LIVE_LETTERS = 16, 40
"""Live values that readings tell of one consumer, and letters of a name or a value."""
MAX_CONSUMERS = 128
"""Consumers of one stream at once. The arena has slots for all of them; address space only, until they come."""

PACINGS = ("together", "weights", "free")
"""How a stream divides compute between its consumers (docs/balance.md)."""

PROFILED = "tsnb-plan-"
"""What the names of trials begin with while they are profiled for a plan: no screen, report or recording has them."""

_PUT_BEFORE = re.compile(rf"^{PROFILED}\d+-\d+-")
"""All that is put before the name of a trial meanwhile (`planning.profiling.profile_name`)."""

_TOGETHER_S = 0.1
"""Processes that make such a directory in the same moment have made theirs after so long, and take the same one."""

LONGEST_SOCKET = 103
"""Bytes that the path of a unix socket may have: macOS has room for fewer than Linux."""

MAX_WEIGHT = 1e6
"""Of the compute of a trial with weight 1, and one over it is the least: readings hold no number of any size."""
MAX_WEIGHTS = 256
"""Twice as many as one stream takes consumers."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ELSEWHERE = "Set TSNB_RUNTIME_DIR to a directory that only you can enter."
_ON_ANOTHER = "set TSNB_RUNTIME_DIR to your own directory on another file system"
_PROCESS_LIMITS = {
    errno.EMFILE: "This process has reached its limit of open files. Raise the limit (`ulimit -n`) before it starts, "
    "run fewer streams or workers in it, or close files.",
    errno.ENFILE: "The whole system has reached its limit of open files. Raise fs.file-max, or end some programs.",
    errno.ENOMEM: "The system has no memory left for this. End some programs, or raise the limit of this process.",
}
_NO_PROCESS = (
    "This user or container has reached its limit of processes and threads. Raise it (`ulimit -u`, or "
    "`--pids-limit` of a container), or end some programs."
)
_LAST_WORDS = {
    os.strerror(errno.EMFILE): _PROCESS_LIMITS[errno.EMFILE],
    os.strerror(errno.EAGAIN): _NO_PROCESS,
    "can't start new thread": _NO_PROCESS,
}  # what programs say when they meet a limit
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
_OF_FILES = _NO_LOCKS | {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, *_PROCESS_LIMITS}
"""What `way_out` has words of its own for."""


def is_name(name: object) -> bool:
    """Whether it can name a producer, consumer or trial."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def is_profiled(name: str) -> bool:
    """Whether a trial or consumer of that name is only profiled for a plan."""
    return name.startswith(PROFILED)


def unprofiled(name: str) -> str:
    """Return what the user calls a trial: a name that it has while it is profiled without what is put before it."""
    return _PUT_BEFORE.sub("", name)


def check_name(name: object, kind: str) -> str:
    """Return `name` if it can name a stream or a trial.

    Args:
        name: What the user gave.
        kind: What it names, for the message ("stream", "trial").

    Raises:
        ValueError: Not 1-64 letters, digits, dots, dashes or underscores, starting with a letter or digit.
    """
    if isinstance(name, str) and is_name(name):
        return name
    near = re.sub(r"[^A-Za-z0-9._-]+", "-", str(name)).strip("-._")[:64]
    hint = f" Try {near!r}." if near else ""
    raise ValueError(
        f"{name!r} cannot name a {kind}. Use 1 to 64 letters, digits, '.', '_' or '-', starting with a "
        f"letter or digit.{hint}"
    )


def check_balance(pacing: object, weights: Mapping[str, float] | None) -> tuple[str, dict[str, float]]:
    """Return a pacing and its weights if a stream can divide compute by them.

    Args:
        pacing: One of `PACINGS`.
        weights: By the consumer's name; only with the pacing "weights". A consumer that is not named has weight 1.

    Raises:
        ValueError: The pacing is unknown; a weight is not a number above 0, or its name is invalid; or weights are
            given in a pacing without weights.
    """
    if pacing not in PACINGS:
        hint = did_you_mean(pacing, PACINGS)
        raise ValueError(f"pacing {pacing!r} is invalid. Choose one of {', '.join(PACINGS)}.{hint}")
    found: dict[str, float] = {}
    for name, weight in (weights or {}).items():
        check_name(name, "trial")
        number = weight if isinstance(weight, (int, float)) and not isinstance(weight, bool) else 0.0
        if not 1 / MAX_WEIGHT <= number <= MAX_WEIGHT:
            raise ValueError(
                f"weight {name}={weight!r} is invalid. Pass a number above 0, from 1e-6 to 1e6. {name}=2 means "
                "twice the compute of a trial with weight 1."
            )
        found[name] = float(number)
    if len(found) > MAX_WEIGHTS:  # they stand in every reading, which has to fit a packet
        raise ValueError(
            f"{len(found)} weights are too many. Pass at most {MAX_WEIGHTS}. A trial without a weight "
            "has weight 1."
        )
    if found and pacing != "weights":
        raise ValueError(
            f"Weights have an effect only with pacing 'weights', and the pacing is {pacing!r}. Choose "
            f"'weights', or leave out {', '.join(found)}."
        )
    return str(pacing), found


def read_weight(text: str) -> tuple[str, float]:
    """Read a weight as it is typed: `resnet50=2`.

    Raises:
        ValueError: It is not written so.
    """
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError:
        raise ValueError(f"{text!r} is not a weight. Write NAME=NUMBER, for example resnet50=2") from None


def runtime_directory() -> Path:
    """Return this user's private runtime directory (mode 0700), made on first use.

    `TSNB_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/tsnb` where no other user could replace it (after `su` it is
    another user's), else `tsnb-UID` in the system's temporary directory.

    Raises:
        TsnbError: It cannot be written, or another user could enter or exchange it; says what mends that.
    """
    chosen = os.environ.get("TSNB_RUNTIME_DIR")
    xdg = os.environ.get("XDG_RUNTIME_DIR")
    if chosen:
        path = Path(chosen)
    elif xdg and os.access(xdg, os.W_OK) and nobody_elses(Path(xdg)):
        path = Path(xdg) / "tsnb"
    else:
        path = _own_in(Path(tempfile.gettempdir()))
    return private_directory(path)


def _own_in(shared: Path) -> Path:
    """Return the directory of this user's in one that everybody may write to: `tsnb-UID`, or one beside it.

    Anybody can make `tsnb-UID` first, and nobody else can remove it. So where that name is another user's, the place is
    one of this user's with a name that could not be known before it was there; all processes take the oldest of those.
    """
    plain = shared / f"tsnb-{os.geteuid()}"
    if _is_mine(plain):
        return plain
    found = _beside(plain)
    if not found and os.path.lexists(plain):
        with contextlib.suppress(OSError):
            (plain.with_name(f"{plain.name}-{time.time_ns():x}-{secrets.token_hex(8)}")).mkdir(mode=0o700)
            time.sleep(_TOGETHER_S)
            found = _beside(plain)
    return found[0] if found else plain


def _beside(plain: Path) -> list[Path]:
    """Return directories of this user's whose names begin with that one, the oldest first."""
    with contextlib.suppress(OSError):
        return sorted(path for path in plain.parent.glob(f"{plain.name}-*-*") if _is_mine(path))
    return []


def _is_mine(path: Path) -> bool:
    with contextlib.suppress(OSError):
        status = path.lstat()
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return False


def nobody_elses(path: Path) -> bool:
    """Tell whether only root and this user can exchange what lies in a directory.

    Raises:
        TsnbError: This process may open no more files, so that it cannot look.
    """
    try:
        with explained(f"look at {path}"):
            check_parents(path)
    except (Unsafe, OSError):
        return False
    return True


def short_directory(room_bytes: int) -> Path:
    """Return where sockets lie: the runtime directory, or one in /tmp if that has a long path.

    Args:
        room_bytes: Bytes that will be added to its path.

    Raises:
        TsnbError: It cannot be used.
    """
    chosen = runtime_directory()
    if len(os.fsencode(chosen)) + room_bytes <= LONGEST_SOCKET:
        return chosen
    most = LONGEST_SOCKET - room_bytes
    shorter = f"Set TSNB_RUNTIME_DIR to your own directory with a path of at most {most} bytes."
    return private_directory(_own_in(Path("/tmp")), shorter)  # noqa: S108 (short, and checked to be ours)


def private_directory(path: Path, elsewhere: str = "") -> Path:
    """Make `path` with mode 0700, or check that only this user can enter it and no other can replace it.

    Args:
        path: The directory.
        elsewhere: What else helps, a sentence; left out: to set TSNB_RUNTIME_DIR.

    Raises:
        TsnbError: It cannot be made or written, or others can enter or exchange it; says what mends that.
    """
    shown = encodable(str(path))
    if shown != str(path):
        raise TsnbError(f"tsnb cannot use {shown}: its name is not UTF-8, which sockets need. {_ELSEWHERE}")
    try:
        made = make_private(path)
    except Unsafe as error:
        mend = f" Run `{error.mend}` to keep using it, or choose another place." if error.mend else ""
        within = "" if error.path == str(path) else f"tsnb cannot use {path}: "
        raise TsnbError(f"{within}{error}.{mend} {elsewhere or _ELSEWHERE}") from None
    except OSError as error:
        mend = way_out(error, _ON_ANOTHER) if error.errno in _OF_FILES else _ELSEWHERE
        raise TsnbError(f"tsnb cannot use its runtime directory {path}: {error.strerror}. {mend}") from None
    if not os.access(made, os.W_OK | os.X_OK):
        raise TsnbError(f"{path} is not writable. {_ELSEWHERE}")
    return made


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turn the operating system's refusals inside the block into an error that says what to do next.

    Args:
        doing: What cannot be done then, after "tsnb cannot".

    Raises:
        TsnbError: A limit of the system was met: open files, memory, disk, permission. Other errors pass.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_FILES:
            raise
        raise TsnbError(f"tsnb cannot {doing}: {error.strerror}. {way_out(error, _ON_ANOTHER)}") from None


def way_out(error: BaseException, elsewhere: str = "") -> str:
    """Return what to do about a file that cannot be written: one sentence, by what the system has really met.

    Args:
        error: The system's; one without a number (sqlite's, torch's) may be any of them.
        elsewhere: What makes it lie in another place, as a clause: "set TSNB_PROJECT_DIR to another directory".
    """
    number, limit_bytes = getattr(error, "errno", None), _file_limit_bytes()
    other = f", or {elsewhere}" if elsewhere else ""
    if number in _PROCESS_LIMITS:
        return _PROCESS_LIMITS[number]
    if number in _NO_LOCKS:
        return f"The file system there has no file locks. Mount it with locks{other}."
    if number == errno.EFBIG and limit_bytes is None:
        return f"The file system there does not allow files of this size. Make the file smaller{other}."
    if number == errno.EFBIG:
        return (
            f"A limit on file sizes is set (`ulimit -f`, {size_text(limit_bytes or 0)} per file), "
            "which also applies to shared memory. Raise it before the program starts."
        )
    if number == errno.EDQUOT:
        return f"Your disk quota there is used up. Delete some of your files there{other}."
    if number in {errno.EROFS, errno.EACCES}:
        return f"That place is not writable. Make it writable{other}."
    if number is None and limit_bytes is not None:
        return (
            f"A limit on file sizes is set (`ulimit -f`, {size_text(limit_bytes)} per file). Raise it "
            f"before the program starts. If that is not the cause, free some space there{other}."
        )
    return f"Free some space there{other}."


def limit_met(said: str) -> str:
    """Return what to do about a limit that a program says it has met, as a further sentence; or ""."""
    return next((f". {way}" for words, way in _LAST_WORDS.items() if words in said), "")


def _file_limit_bytes() -> int | None:
    """Return how large a file of this process may be; None: there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if soft == resource.RLIM_INFINITY else soft


MOUNT_PROC = (
    "Mount /proc with `mount -t proc proc /proc`, as root. Containers have /proc, a chroot needs it mounted."
)
"""What to do on a Linux that does not tell of processes."""


def require_platform() -> None:
    """Check that tsnb can serve and attach on this system.

    Raises:
        TsnbError: This process is one that multiprocessing has just spawned, and the user's script is imported in it.
        UnsupportedPlatform: Anything but Linux (WSL2 is Linux) and macOS; or Linux without /proc.
    """
    spawned = sys.modules.get("multiprocessing.process")  # imported where a process was spawned
    if spawned is not None and getattr(spawned.current_process(), "_inheriting", False):
        raise TsnbError(
            "A worker process has started and runs this script from its first line, so it would serve, "
            "attach or train again. Put the code of the script under: if __name__ == '__main__':"
        )
    if not sys.platform.startswith(("linux", "darwin")):
        raise UnsupportedPlatform(
            f"tsnb supports only Linux, WSL2 and macOS (this is {sys.platform}), because it needs "
            "POSIX shared memory and sockets. Run it in WSL2, a container or a Linux machine."
        )
    if not tells_of_processes():
        raise UnsupportedPlatform(f"tsnb cannot see any process here, not even its own. {MOUNT_PROC}")


def tells_of_processes() -> bool:
    """Return whether this system tells of processes: a Linux without /proc (a bare chroot) does not."""
    if Path("/proc/self/stat").exists():
        return True
    import psutil  # macOS has other ways, which it knows; on Linux this is not reached

    try:
        psutil.Process().status()
    except (psutil.Error, OSError):
        return False
    return True
