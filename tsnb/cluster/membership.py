"""This process's membership in a Ray cluster: joined where it is needed first, left where nothing needs it any more.

Ray's own `address="auto"` takes what any user of the machine has announced: by the command line of a process called
raylet, or in `ray_current_cluster` in the temporary directory. A process that joins runs what that cluster asks for,
and hands it code. So this machine's cluster is looked for here, and Ray is given its address: the process, the file (on
its descriptor) and what listens at the address have to be this user's or root's. A process of root's proves nothing by
itself: anybody can start a set-uid program under the name raylet. So its word counts only where root or this user
listens at that address on this machine; the head of another machine is taken from the file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from tsnb.directories import user_word
from tsnb.errors import ExtraMissing, TsnbError
from tsnb.native.forks import free_in_child

__all__ = ["join_cluster", "local_address", "stay_in_cluster"]

FLAG = "--gcs-address="
_LISTENS = "0A"


def local_address(among: Iterable[psutil.Process] | None = None) -> str:
    """Return HOST:PORT of the cluster of this machine that this user or root has started.

    Args:
        among: The processes that are looked at; left out: all of this machine.

    Raises:
        TsnbError: Only another user's cluster runs here; says whose, and how to name your own.
        ConnectionError: No cluster runs here.
    """
    trusted = {0, os.geteuid()}
    running, latest = _announced_by_processes(among), list(_announced_in_file())
    there = {address for address, _ in running}
    # of several that run, the one that was started last; a file that is left over comes last
    announced = [
        *((*each, True) for each in latest if each[0] in there),
        *((address, owners, owners == {os.geteuid()} != {0}) for address, owners in running),
        *((*each, True) for each in latest),
    ]
    refusals = []
    for address, owners, sure in announced:
        listening = _listeners(address)
        others = (owners | listening) - trusted
        if not others and (sure or listening):
            return address
        refusals.append((address, others))
    if not refusals:
        raise ConnectionError("No Ray cluster is announced on this machine.")
    address, others = refusals[0]
    whose = ", ".join(map(user_word, sorted(others)))
    belongs = f"belongs to {whose}. Joining it would give that user your code and data"
    unproven = "is announced only by a process of root, which any user can imitate with a set-uid program"
    raise TsnbError(
        f"The Ray cluster at {address} that is announced on this machine "
        f"{belongs if whose else unproven}. Nothing was joined. If you trust it, name it: "
        'engine="ray://HOST:PORT", or RAY_ADDRESS=HOST:PORT in the environment. To start your own '
        "cluster: `ray start --head`."
    )


def _announced_in_file() -> Iterable[tuple[str, set[int]]]:
    """Return what Ray's file says, with the file's owner; one with a second name may have been written elsewhere."""
    above = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 (as Ray looks for it)
    with contextlib.suppress(OSError):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(Path(above, "ray", "ray_current_cluster"), flags), "rb") as file:
            status = os.fstat(file.fileno())
            address = file.read(200).decode(errors="replace").strip()
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and _is_address(address):
                return [(address, {status.st_uid})]
    return []


def _announced_by_processes(among: Iterable[psutil.Process] | None) -> list[tuple[str, set[int]]]:
    """Return what the command lines of Ray's processes say, with all their owners; in a lasting order."""
    found: set[tuple[str, frozenset[int]]] = set()
    for process in psutil.process_iter() if among is None else among:
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if words and Path(words[0]).name == "raylet":
                owners = frozenset(process.uids())  # of a set-uid program the real one is who started it
                said = (word.removeprefix(FLAG) for word in " ".join(words).split() if word.startswith(FLAG))
                found |= {(address, owners) for address in said if _is_address(address)}
    mine = {os.geteuid()}
    return [
        (at, {*who})
        for at, who in sorted(found, key=lambda each: (each[1] != mine, each[0], sorted(each[1])))
    ]


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdigit() and len(port) <= 5


def _listeners(address: str) -> set[int]:
    """Return the users whose sockets listen at an address of this machine; none if it is another's or hidden."""
    host, _, port = address.rpartition(":")
    try:
        known = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, OverflowError):
        return set()
    places = {str(each[4][0]) for each in known}
    if not any(map(_is_here, places)):
        return set()
    owners = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                at, _, number = fields[1].partition(":")
                if fields[3] == _LISTENS and int(number, 16) == int(port):
                    place = socket.inet_ntop(family, _in_order(at))
                    plain = place.removeprefix("::ffff:")
                    if plain in places or not int(at, 16):
                        owners.add(int(fields[7]))
    return owners


def _in_order(hexadecimal: str) -> bytes:
    """Return an address of /proc/net/tcp as the network has it: there each four bytes are a number of the machine's."""
    words = [hexadecimal[start : start + 8] for start in range(0, len(hexadecimal), 8)]
    return b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)


def _is_here(place: str) -> bool:
    """Tell whether an address is one of this machine's."""
    with contextlib.suppress(OSError):
        with socket.socket(socket.AF_INET6 if ":" in place else socket.AF_INET) as probe:
            probe.bind((place, 0))
        return True
    return False


REACH_S = 10.0
"""How long a cluster's head may take to accept a connection."""
_START_ONE = (
    "If no cluster is running, start one with `ray start --head` here and `ray start "
    "--address=HOST:PORT` on the other machines, and run this on one of them."
)
_joining = free_in_child(threading.Lock())
_joined = ""
"""This process's life in a cluster, where it was joined here and not by the user."""
_needing = 0
"""How many streams need it, and whether trials do: with the process's leaving, what it has started there would end."""


def join_cluster(address: str) -> contextlib.ExitStack:
    """Be in a cluster; return what leaves it again, if this process joins it by this, and nothing else needs it then.

    Args:
        address: HOST:PORT of its head; "" for the one that this process or machine is in.

    Raises:
        ExtraMissing: Ray is not installed.
        TsnbError: The cluster does not exist, or this process is in another one.
    """
    global _joined, _needing
    try:
        import ray
    except ImportError:
        raise ExtraMissing("engine=\"ray\" needs Ray: pip install 'tsnb[ray]'") from None
    leave = contextlib.ExitStack()
    with _joining:
        client: Any = ray.util.client.ray
        if client.is_connected():
            raise TsnbError(
                "This process is connected to its Ray cluster from outside, through Ray Client "
                '(ray.init("ray://...")). Run it on one of the cluster\'s machines, with '
                'ray.init(address="auto") or without ray.init.'
            )
        if ray.is_initialized():
            here = ray.get_runtime_context().gcs_address
            if address and address != here:
                raise TsnbError(
                    f"This process is in the Ray cluster at {here}, not in the one at {address}. Call "
                    'ray.shutdown() first, or pass engine="ray".'
                )
        else:
            _init(ray, address)
            _joined, _needing = _life(ray), 0
        if _life(ray) == _joined:
            _needing += 1
            leave.callback(_leave, ray, _joined)
    return leave


def stay_in_cluster(address: str) -> None:
    """Be in a cluster until this process ends, whatever streams it serves meanwhile. Errors as `join_cluster`'s."""
    join_cluster(address).pop_all()


def _init(ray: Any, address: str) -> None:
    if address:
        _require_answer(address)
    try:
        # RAY_ADDRESS names one, and Ray reads it; "auto" alone would take another user's
        named = address or ("auto" if os.environ.get("RAY_ADDRESS") else local_address())
        ray.init(address=named, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        at = f"The Ray cluster at {address}" if address else "A Ray cluster on this machine"
        said = " ".join(str(error).split()).rstrip(".")[:600]
        raise TsnbError(
            f"{at} cannot be joined: {said}. {_START_ONE} If it requires a token, give this process "
            "RAY_AUTH_MODE=token and the token (docs/ray-cluster.md)."
        ) from None


def _require_answer(address: str) -> None:
    """Look whether anybody is at an address: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        if not (host and port.isdigit()):
            raise OSError("that is not HOST:PORT")
        socket.create_connection((host, int(port)), REACH_S).close()
    except (OSError, OverflowError) as error:
        raise TsnbError(f"No Ray cluster was found at {address!r}: {error}. {_START_ONE}") from None


def _leave(ray: Any, life: str) -> None:
    """Leave the cluster, if nothing else needs it."""
    global _needing
    with _joining:
        if life != _joined:
            return  # that life is over
        _needing -= 1
        if not _needing and ray.is_initialized() and _life(ray) == life:
            ray.shutdown()


def _life(ray: Any) -> str:
    """Return what tells this process's life in its cluster from any other."""
    context = ray.get_runtime_context()
    return f"{context.gcs_address} {context.get_job_id()}"
