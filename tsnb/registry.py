"""Find a producer by name, from any process of the same user.

One small JSON file a producer in the private runtime directory (0700). The file is a signpost, not the truth:
an entry whose process has gone (checked by pid *and* start time, since pids come back) is swept by whoever
looks next. The socket it points to dies with its process: an abstract address; or, where there are none, a file
in a directory beside the entries, whose name says whose it is, and which is swept in the same way.
"""

from __future__ import annotations

import difflib
import json
import os
import secrets
import sys
import time
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

from tsnb.config import check_name, explained, private_directory, runtime_directory, short_directory
from tsnb.errors import NameInUse, ProducerNotFound, TsnbError
from tsnb.files import write_private
from tsnb.native.pair import portable
from tsnb.native.processes import has_started_so, started

__all__ = [
    "Entry",
    "address_prefix",
    "age",
    "describe_origin",
    "entries",
    "find",
    "has_owner",
    "is_mine",
    "new_address",
    "own_name",
    "register",
    "socket_directory",
    "this_owner",
    "unregister",
]

_SOCKET_BYTES = 48
"""What the name of a socket's file takes: a pid, a start, a random word."""


@dataclass(frozen=True)
class Entry:
    """One producer that is being served."""

    name: str
    """The stream's name."""
    pid: int
    """The producer's process."""
    address: str
    """Abstract unix socket address, without the leading zero byte; or the path of a socket."""
    since_s: float
    """Wall clock at the start, seconds since 1970."""
    origin: str
    """Who serves it: "notebook train.ipynb", "script train.py"."""
    started: int = 0
    """When the process itself was started (`native.processes.started`): tells it from a later one with the same
    pid. On Linux in the kernel's ticks since boot, which no change of the clock moves."""
    owner: str = ""
    """The notebook or script that had it served (`this_owner`); empty: an older version of tsnb did not say."""

    def __str__(self) -> str:
        return f"{self.name} (served by {self.origin}, pid {self.pid}, for {age(self.since_s)})"


OWNER = "TSNB_OWNER"
"""The environment variable that tells background kernels, and all that they start, who their notebook is."""


def this_owner() -> str:
    """Return the notebook or script that this process belongs to: its pid and start."""
    return os.environ.get(OWNER) or f"{os.getpid()}-{started(os.getpid())}"


def is_mine(entry: Entry) -> bool:
    """Return whether this notebook or script had a stream served, in a former kernel of the same notebook too."""
    return entry.owner == this_owner() or (not has_owner(entry) and entry.origin == describe_origin())


def has_owner(entry: Entry) -> bool:
    """Return whether the notebook or script that had a stream served still runs."""
    pid, _, when = entry.owner.partition("-")
    return pid.isdigit() and when.isdigit() and has_started_so(int(pid), int(when))


def own_name() -> str:
    """Return the name of the one stream that this notebook or script has served.

    Raises:
        ProducerNotFound: It has none, or several; lists what there is.
    """
    served = entries()
    own = [entry.name for entry in served if is_mine(entry)]
    if len(own) == 1:
        return own[0]
    if own:
        raise ProducerNotFound(f"several streams of this notebook are running: {', '.join(own)}. Name one.")
    there = f" Running: {', '.join(map(str, served))}. Name one." if served else ""
    raise ProducerNotFound(
        f"this notebook serves no stream, so no producer is running that is its own.{there}"
    )


def age(since_s: float) -> str:
    """Return how long ago a moment was, as people say it ("4 min")."""
    seconds = max(0.0, time.time() - since_s)
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} s"


def describe_origin() -> str:
    """Say where this process runs: the notebook's file, the script, or the interpreter."""
    notebook = os.environ.get("JPY_SESSION_NAME")
    if notebook:
        return f"notebook {Path(notebook).name}"
    if "ipykernel" in sys.modules:
        return f"a notebook in {Path.cwd()}"
    script = sys.argv[0] if sys.argv else ""
    return f"script {Path(script).name}" if script not in ("", "-c", "-m") else "an interactive Python"


def new_address(name: str) -> str:
    """Return an address for a new producer: guessable by nobody, readable by a person who lists sockets.

    Raises:
        TsnbError: The runtime directory cannot be used, or this process may not open more descriptors.
    """
    if portable():
        with explained("choose a socket for the producer"):
            mine = f"{os.getpid()}-{started(os.getpid())}-{secrets.token_hex(8)}"
        return str(private_directory(socket_directory()) / mine)
    return f"{address_prefix()}-{name}-{secrets.token_hex(8)}"


def socket_directory() -> Path:
    """Return where producers without abstract addresses have their sockets."""
    return short_directory(_SOCKET_BYTES) / "sockets"


def address_prefix() -> str:
    """Return how the addresses of this user's producers in this runtime directory begin."""
    return f"tsnb-{os.getuid()}-{zlib.crc32(str(runtime_directory()).encode()):08x}"


def entries() -> list[Entry]:
    """Return the producers that are served now, by name; stale entries are swept on the way.

    Raises:
        TsnbError: The runtime directory cannot be used.
    """
    with explained("look up producers"):
        found = [_read(path) for path in sorted(_directory().glob("*.json"))]
        _sweep_sockets()
    return [entry for entry in found if entry is not None]


def find(name: str | None = None) -> Entry:
    """Return the producer of that name; left out: the only one of this notebook or script, else the only one of all.

    Raises:
        ProducerNotFound: There is none, or several and no name; lists what there is.
    """
    served = entries()
    if name is None:
        served = [entry for entry in served if is_mine(entry)] or served
        if len(served) == 1:
            return served[0]
    for entry in served:
        if entry.name == name:
            return entry
    if not served:
        missing = (
            "no producer is running"
            if name is None
            else f"no producer named {name!r} is running, nor any other"
        )
        raise ProducerNotFound(
            f'{missing}. Start one: tsnb.serve(loader, name="{name or "mnist"}") in a script, '
            f"%tensorsocket start LOADER --name {name or 'mnist'} in a notebook."
        )
    listed = ", ".join(map(str, served))
    if name is None:
        raise ProducerNotFound(
            f"several streams are running: {listed}. Name one, for example tsnb.attach(producer={served[0].name!r})"
        )
    near = difflib.get_close_matches(name, [e.name for e in served], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ProducerNotFound(f"no producer named {name!r} is running.{hint} Running: {listed}")


def register(name: str, address: str, origin: str) -> Entry:
    """Enter this process's producer.

    Raises:
        ValueError: The name has characters that a name may not have.
        NameInUse: A live producer has that name.
        TsnbError: The runtime directory cannot be used, or its disk is full.
    """
    check_name(name, "producer")
    path = _path(name)
    with explained(f"enter the producer {name!r} in {path.parent}"):
        entry = Entry(name, os.getpid(), address, time.time(), origin, started(os.getpid()), this_owner())
        _enter(entry, path)
    return entry


def _enter(entry: Entry, path: Path) -> None:
    draft = path.with_suffix(f".{os.getpid()}-{secrets.token_hex(4)}.new")
    try:
        write_private(draft, json.dumps(asdict(entry)))
        for _ in range(3):  # a stale entry is swept by _read, then the link succeeds
            try:
                os.link(draft, path)  # unlike a rename, fails where the name is taken
                return
            except FileExistsError:
                holder = _read(path)
                if holder is not None:
                    raise NameInUse(_taken(holder)) from None
        raise NameInUse(
            f"the name {entry.name!r} is being taken by another process right now. Try again, or choose another."
        )
    finally:
        draft.unlink(missing_ok=True)


def _taken(holder: Entry) -> str:
    return (
        f"{holder.name!r} is being served already, for {age(holder.since_s)}, by {holder.origin} "
        f"(pid {holder.pid}). Choose another name, or stop it: %tensorsocket stop {holder.name} in a notebook, "
        f"`tsnb stop {holder.name}` in a terminal."
    )


def unregister(entry: Entry) -> None:
    """Take this process's producer out again; somebody else's entry of that name stays."""
    path = _path(entry.name)
    try:
        mine = _load(path) == entry
    except OSError:  # no descriptor is left to read it; nobody can have taken the name while ours stood there
        mine = True
    if mine:
        path.unlink(missing_ok=True)


def _directory() -> Path:
    return private_directory(runtime_directory() / "producers")


def _path(name: str) -> Path:
    return _directory() / f"{name}.json"


def _read(path: Path) -> Entry | None:
    """Read one entry; sweep it if its process has gone."""
    entry = _load(path)
    if entry is not None and not has_started_so(entry.pid, entry.started):
        path.unlink(missing_ok=True)
        return None
    return entry


def _load(path: Path) -> Entry | None:
    """Read an entry; one that another version of tsnb wrote is read as far as it is known."""
    try:
        fields = json.loads(path.read_text())
        return Entry(**{name: fields[name] for name in Entry.__dataclass_fields__ if name in fields})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):  # written by nobody of ours: an entry is linked in place whole
        path.unlink(missing_ok=True)
        return None


def _sweep_sockets() -> None:
    """Remove the sockets of processes that were killed. Whoever serves is alive before its socket is there."""
    try:
        directory = socket_directory()
    except TsnbError:  # somebody else's: no producer of ours has a socket there
        return
    for path in directory.iterdir() if directory.is_dir() else ():
        pid, when, _ = (*path.name.split("-"), "", "")[:3]
        if pid.isdigit() and when.isdigit() and not has_started_so(int(pid), int(when)):
            path.unlink(missing_ok=True)
