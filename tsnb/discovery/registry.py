"""Find a producer by name, from any process of the same user.

One small JSON file a producer in the private runtime directory (0700). The producer holds a lock on its file for as
long as it serves (`flock`: the kernel lets go of it with the process, and it counts in all containers of the machine).
A process that looks up a name goes by that lock:

| the entry | is |
|---|---|
| locked | served, here or elsewhere |
| not locked, written under this kernel by a version that locks | stale, and swept |
| not locked, of an older version, or of a file system without locks | stale if its process has gone for certain |
| of another machine | left alone: this one cannot know |

An entry is removed under its lock, and only if it is still the file that was looked at: another's fresh one stays. A
producer whose entry is missing (a cleaner of temporary files, a logout) puts it back (`put_back`, each second or two).

The entry carries a random *token*, which the first message of every connection repeats: a process that sees the
socket (a container that shares the network, say) and cannot read this directory is turned away.

A stream that is not served now, and will be in a moment, has a *promise* beside the entries (`promises`).

The socket it points to dies with its process: an abstract address; or, on systems without those, a file in a
directory beside the entries. Its name says which process it belongs to, and it is swept when that no longer listens.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

from tsnb.config import check_name, explained, private_directory, runtime_directory
from tsnb.discovery.addresses import address_prefix, new_address, socket_directory, sweep_sockets
from tsnb.discovery.entries import MOST_BYTES, Entry, age, is_at, lock, may_live, parsed, this_owner
from tsnb.discovery.promises import FIRST, Promised, promises, require_unpromised
from tsnb.errors import NameInUse, ProducerGone, ProducerNotFound, StreamNotNamed, TsnbError
from tsnb.machine.owners import has_gone, owner, same_boot
from tsnb.machine.processes import is_stopped
from tsnb.text.words import did_you_mean

__all__ = [
    "RELAY",
    "Entry",
    "address_prefix",
    "age",
    "away",
    "describe_origin",
    "entries",
    "find",
    "has_owner",
    "is_mine",
    "leaving",
    "line",
    "new_address",
    "new_token",
    "own_name",
    "put_back",
    "reached",
    "register",
    "socket_directory",
    "unregister",
    "why_silent",
]

RELAY = "the cluster's relay"
"""The origin of a stream of the cluster on a machine that is not its producer's, as registries have it."""

_Channel = TypeVar("_Channel")

_TRIES = 20
_TRY_S = 0.01
"""Two processes that sweep the same stale entry may hinder one another; then a newcomer looks again."""

leaving: list[Callable[[str], None]] = []
"""Each is called with a stream's name when an error leaves the block that serves it, before the stream ends, and stops
what takes it in this process."""

_held: dict[tuple[str, str], int] = {}
"""By name and address: the descriptors that hold the locks of this process's producers."""


def _let_go_of_parents() -> None:
    """A forked child has no part in its parent's locks (`native.forks`, 1)."""
    while _held:
        with contextlib.suppress(OSError):
            os.close(_held.popitem()[1])


os.register_at_fork(after_in_child=_let_go_of_parents)


def is_mine(entry: Entry) -> bool:
    """Return whether this notebook or script had a stream served, in a former kernel of the same notebook too."""
    if entry.elsewhere:
        return False
    return entry.owner == this_owner() or (not has_owner(entry) and entry.origin == describe_origin())


def has_owner(entry: Entry) -> bool:
    """Return whether the notebook or script that had a stream served still runs, or may: in another container."""
    pid, _, when = entry.owner.partition("-")
    if not (f"{pid}{when}".isascii() and pid.isdigit() and when.isdigit()):
        return False
    return not has_gone(entry.process._replace(pid=int(pid), started=int(when)))


def own_name() -> str:
    """Return the name of the one stream that this notebook or script has served.

    Raises:
        ProducerNotFound: It serves no stream, or several; lists those that run.
    """
    served, promised = _look()
    own = [entry.name for entry in served if is_mine(entry)]
    own += {one.name for one in promised if one.owner == this_owner()} - {entry.name for entry in served}
    if len(own) == 1:
        return own[0]
    if own:
        raise StreamNotNamed(f"Several streams of this notebook are running: {', '.join(own)}. Name one.")
    there = f" Running: {', '.join(map(str, served))}. Name one." if served else ""
    raise ProducerNotFound(f"This notebook serves no stream.{there}")


def describe_origin() -> str:
    """Say where this process runs: the notebook's file, the script, or the interpreter."""
    notebook = os.environ.get("JPY_SESSION_NAME")
    if notebook:
        return f"notebook {Path(notebook).name}"
    if "ipykernel" in sys.modules:
        with contextlib.suppress(FileNotFoundError):  # its directory has been removed
            return f"a notebook in {Path.cwd()}"
        return "a notebook"
    script = sys.argv[0] if sys.argv else ""
    return f"script {Path(script).name}" if script not in ("", "-c", "-m") else "an interactive Python"


def new_token() -> str:
    """Return the secret with which every connection to a new producer has to begin; it cannot be guessed."""
    return secrets.token_hex(16)


def _why_not(entry: Entry) -> str:
    """Return why a producer that is elsewhere does not answer at its address, and what to do."""
    if same_boot(entry.process):
        return (
            f"Stream {entry.name!r} is served in {entry.elsewhere} ({entry.origin}, host "
            f"{entry.host}), whose sockets this process cannot see. Start both containers with the "
            "same network (docker run --network), or attach inside that container."
        )
    return (
        f"Stream {entry.name!r} is served on {entry.elsewhere} ({entry.origin}), and batches are shared through the "
        "memory of one machine. Attach there, or serve over a cluster (docs/ray-cluster.md)."
    )


def reached(entry: Entry, connect: Callable[[str], _Channel]) -> _Channel:
    """Return a connection to a producer.

    Args:
        entry: The producer's.
        connect: Connects to an address.

    Raises:
        ConnectionError: Nobody listens there any more.
        ProducerGone: It cannot be reached from here; says why.
        TsnbError: It stands still, or this process may not open more descriptors.
    """
    if entry.elsewhere and not same_boot(entry.process):
        raise ProducerGone(_why_not(entry))
    try:
        return connect(entry.address)
    except ConnectionError:
        if entry.elsewhere:
            raise ProducerGone(_why_not(entry)) from None
        raise


def why_silent(pid: int) -> str:
    """Return why a producer may not answer, and what to do: the end of a sentence on it.

    Args:
        pid: Its process; 0 where that cannot be seen from this container.
    """
    if pid and is_stopped(pid):
        return (
            f"its process is stopped (by a signal, Ctrl-Z or a debugger). Run `kill -CONT {pid}` to "
            "continue it."
        )
    return "it may be busy, or stopped in a debugger."


def line(entry: Entry) -> str:
    """Return a producer as lists have it, with what to do where it stands still."""
    if entry.elsewhere or not is_stopped(entry.pid):
        return str(entry)
    return f"{entry}: stopped by a signal, Ctrl-Z or a debugger. Run `kill -CONT {entry.pid}` to continue it"


def entries() -> list[Entry]:
    """List the streams that are served now, by name.

    Example:
        >>> [stream.name for stream in tsnb.streams.list()]

    Raises:
        TsnbError: If the runtime directory cannot be used.
    """
    return _look()[0]


def _look() -> tuple[list[Entry], list[Promised]]:
    """Return what is served, and what is promised; what is left of dead processes is swept on the way."""
    with explained("look up streams"):
        found = [_read(path) for path in sorted(_directory().glob("*.json"))]
        promised = promises()
        sweep_sockets()
    return [entry for entry in found if entry is not None], promised


def find(name: str | None = None) -> Entry:
    """Return the producer of that name; left out: the only one of this notebook or script, else the only one of all.

    Raises:
        ProducerNotFound: No producer has that name, or none was named and there is not exactly one; lists them.
    """
    served, promised = _look()
    if name is None:
        here = [entry for entry in served if not entry.elsewhere]
        served = [entry for entry in served if is_mine(entry)] or here or served
        if len(served) == 1:
            return served[0]
    for entry in served:
        if entry.name == name:
            return entry
    if to_come := [one for one in promised if one.name == name]:
        again = "" if all(one.kind == FIRST for one in to_come) else " again"
        raise ProducerNotFound(f"Stream {name!r} is being started{again}. Try again in a moment.")
    if not served:
        missing = (
            "No stream is running"
            if name is None
            else f"No stream named {name!r} is running, and no other either"
        )
        raise ProducerNotFound(
            f'{missing}. Start one: tsnb.serve(loader, name="{name or "mnist"}") in a script, '
            f"%tensorsocket start LOADER --name {name or 'mnist'} in a notebook, or "
            f"tsnb serve MODULE:LOADER --name {name or 'mnist'} in a terminal."
        )
    listed = ", ".join(map(str, served))
    if name is None:
        said, example = f"Several streams are running: {listed}.", served[0].name
        error = StreamNotNamed(
            f"{said} Name one, for example tsnb.attach(stream={example!r}), or tsnb status {example} in a terminal."
        )
        error.said, error.example = said, example
        raise error
    hint = did_you_mean(name, [e.name for e in served])
    raise ProducerNotFound(f"No stream named {name!r} is running.{hint} Running: {listed}.")


def register(name: str, address: str, origin: str, token: str = "") -> Entry:
    """Enter this process's producer, and hold the lock on its entry until `unregister`.

    Args:
        name: The stream's.
        address: Where it listens.
        origin: What serves it, in words: "notebook train.ipynb".
        token: What its connections have to say first.

    Raises:
        ValueError: The name has characters that a name may not have.
        NameInUse: A live producer has that name, or it is kept for one that comes back.
        TsnbError: The runtime directory cannot be used, or its disk is full.
    """
    check_name(name, "stream")
    path = _path(name)
    with explained(f"register stream {name!r} in {path.parent}"):
        if _read(path) is None:  # else it is served: `_enter` says by whom
            require_unpromised(name)
        mine = owner(os.getpid())
        entry = Entry(
            name, mine.pid, address, time.time(), origin, mine.started, this_owner(), token, *mine[:3]
        )  # fmt: skip
        return _enter(entry, path)


def _enter(entry: Entry, path: Path) -> Entry:
    draft = path.with_suffix(f".{os.getpid()}-{secrets.token_hex(4)}.new")
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        entry = replace(entry, locked=lock(fd, fcntl.LOCK_EX))
        os.write(fd, json.dumps(asdict(entry)).encode())
        for _ in range(_TRIES):  # a stale entry is swept by _read, then the link succeeds
            try:
                os.link(draft, path)  # unlike a rename, fails where the name is taken
            except FileExistsError:
                holder = _read(path)
                if holder is not None:
                    raise NameInUse(_taken(holder)) from None
                time.sleep(_TRY_S)
            else:
                key = (entry.name, entry.address)
                old, _held[key] = _held.pop(key, -1), fd
                fd = old
                return entry
        raise NameInUse(
            f"Another process is taking the name {entry.name!r} right now. Try again, or choose another name."
        )
    finally:
        draft.unlink(missing_ok=True)
        if fd >= 0:
            os.close(fd)


def put_back(entry: Entry) -> bool:
    """Enter this process's producer again if its entry has gone, with its directory; return whether it is there.

    Called by the serving thread now and then. What another producer entered under that name meanwhile stays.

    Raises:
        NameInUse: Another producer has the name now.
        OSError, TsnbError: It cannot be entered.
    """
    held = _held.get((entry.name, entry.address))
    if held is None:
        return False
    path = runtime_directory() / "producers" / f"{entry.name}.json"
    if is_at(held, path):
        return True
    _enter(entry, _path(entry.name))
    return True


def _taken(holder: Entry) -> str:
    return (
        f"{holder.name!r} has been served for {age(holder.since_s)} by {holder.origin} "
        f"({holder.whose_pid}). Choose another name, or stop it with %tensorsocket stop {holder.name} "
        f"in a notebook or `tsnb stop {holder.name}` in a terminal."
    )


def unregister(entry: Entry) -> None:
    """Remove this process's producer; an entry of that name that is another process's stays."""
    held = _held.pop((entry.name, entry.address), None)
    if held is None:
        return
    with contextlib.suppress(OSError, TsnbError):
        path = _path(entry.name)
        if is_at(held, path):  # no lock is free, so nobody else removes it meanwhile
            path.unlink(missing_ok=True)
    os.close(held)


def away(name: str | None = None) -> str | None:
    """Return the stream that is not served just now, and will be; None: there is none, or several.

    Args:
        name: The stream's; left out: the only one of this notebook or script, else the only one of all.
    """
    served, promised = _look()
    gone = [one for one in promised if one.name not in {entry.name for entry in served}]
    if name is not None:
        return name if name in {one.name for one in gone} else None
    mine = [one.name for one in gone if one.owner == this_owner()]
    if any(map(is_mine, served)) or (served and not mine):
        return None
    there = mine or [one.name for one in gone]
    return there[0] if len(set(there)) == 1 else None


def _directory() -> Path:
    return private_directory(runtime_directory() / "producers")


def _path(name: str) -> Path:
    return _directory() / f"{name}.json"


def _read(path: Path) -> Entry | None:
    """Read one entry; sweep it if it is stale."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (
            errno.ELOOP,
            errno.EISDIR,
            errno.ENXIO,
        ):  # a link, a directory, a pipe: nothing of ours
            return None
        raise
    try:
        entry = parsed(os.read(fd, MOST_BYTES), path.stem)
        if may_live(entry, free=lock(fd, fcntl.LOCK_SH)):
            return entry
        # nobody else removes it meanwhile, or puts another in its place: that takes this lock first
        if lock(fd, fcntl.LOCK_EX) and is_at(fd, path):
            path.unlink(missing_ok=True)
        return None
    finally:
        os.close(fd)
