"""This process's membership in a Ray cluster: joined where it is needed first, left where nothing needs it any more.

Ray's own `address="auto"` takes what any user of the machine has announced: by the command line of a process called
raylet, or in `ray_current_cluster` in the temporary directory. A process that joins runs what that cluster asks for,
and hands it code. So this machine's cluster is looked for here, and Ray is given its address: the process, the file (on
its descriptor) and what listens at the address have to be this user's or root's. A process of root's proves nothing by
itself: anybody can start a set-uid program under the name raylet. So its word counts only where root or this user
listens at that address on this machine; the head of another machine is taken from the file.

A process on any machine of the cluster finds a stream by its name: what runs behind the names is `stream_hub` and
`stream_relay`. A process that has not joined a cluster finds what its own machine has.
"""

from __future__ import annotations

import contextlib
import getpass
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

from tsnb.config import runtime_directory
from tsnb.engines import joined
from tsnb.errors import ExtraMissing, ProducerNotFound, StreamNotNamed, TsnbError
from tsnb.native.forks import free_in_child
from tsnb.private.directories import user_word
from tsnb.stream.protocol.messages import PROTOCOL

__all__ = [
    "bring_here",
    "hub_name",
    "join_cluster",
    "last_words",
    "local_address",
    "namespace",
    "only_stream",
    "stay_in_cluster",
]

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


_PREFIX = "tsnb-hub-"
OPEN_S = 120.0
"""How long a machine's relay may take to come up: a process that imports torch, on a machine that may be busy."""


def namespace() -> str:
    """Return the part of a cluster's names that is this user's: `TSNB_RAY_NAMESPACE`, else `tsnb-` and the user."""
    chosen = os.environ.get("TSNB_RAY_NAMESPACE")
    if chosen:
        return chosen
    try:
        return f"tsnb-{getpass.getuser()}"
    except (KeyError, OSError):  # a container's user that has no name
        return f"tsnb-{os.getuid()}"


def hub_name(stream: str) -> str:
    """Return by which name a stream's hub is known in the cluster."""
    return _PREFIX + stream


def last_words(error: BaseException) -> str:
    """Return the one line of what Ray has raised that tells most: the error within, without its traceback."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    raised = [line for line in lines if "Error" in line.partition(":")[0]]
    return (raised or lines or [type(error).__name__])[-1].rstrip(".")


def only_stream() -> str | None:
    """Return the name of the only stream of the cluster; None if it has none, or this process is not in a cluster.

    Raises:
        ProducerNotFound: There are several; lists them.
    """
    ray = joined()
    names = _streams(ray) if ray is not None else []
    if len(names) > 1:
        raise StreamNotNamed(
            f"Several streams are running in the cluster: {', '.join(names)}. Name one, for example "
            f"tsnb.attach(stream={names[0]!r})."
        )
    return names[0] if names else None


def bring_here(stream: str) -> str | None:
    """Have a stream of the cluster served on this machine, by a relay.

    Args:
        stream: Its name.

    Returns:
        Its name; None if this process is in no cluster.

    Raises:
        ProducerNotFound: The cluster has no such stream; lists those that it has.
        TsnbError: The relay cannot be started here; says why.
    """
    ray = joined()
    if ray is None:
        return None
    try:
        hub = ray.get_actor(hub_name(stream), namespace=namespace())
    except ValueError:
        raise ProducerNotFound(_not_there(stream, _streams(ray))) from None
    node = ray.get_runtime_context().get_node_id()
    try:
        ray.get(hub.relay_on.remote(node, str(runtime_directory()), PROTOCOL), timeout=OPEN_S)
    except ray.exceptions.RayError as error:
        raise TsnbError(
            f"Stream {stream!r} of the cluster is not available on this machine: {_why_not(error, ray)}"
        ) from None
    return stream


def _why_not(error: Any, ray: Any) -> str:
    if isinstance(error, ray.exceptions.GetTimeoutError):
        return (
            f"its relay was not ready within {OPEN_S:.0f} s, because this machine or the machine of the "
            "stream is busy or unreachable (`ray status` lists them). Attach again."
        )
    if isinstance(error, ray.exceptions.RayActorError):
        return (
            "its hub, on the machine of the stream, has ended. Serve the stream again, and attach again. "
            f"({last_words(error)})"
        )
    if isinstance(cause := getattr(error, "cause", None), TsnbError):
        return f"{cause}."
    return f"{last_words(error)}. Every machine of the cluster needs the same version of tsnb (docs/ray-cluster.md)."


def _not_there(stream: str, names: list[str]) -> str:
    there = f"The cluster has {', '.join(names)}" if names else "The cluster has no stream"
    return (
        f"No stream named {stream!r} is running on this machine or in the cluster's namespace "
        f'{namespace()!r}. {there}. Serve it there with engine="ray". If it is served, check that '
        "TSNB_RAY_NAMESPACE and the user name are the same on both machines."
    )


def _streams(ray: Any) -> list[str]:
    """Return the names of this user's streams in the cluster."""
    mine = namespace()
    listed = ray.util.list_named_actors(all_namespaces=True)
    return sorted(
        actor["name"].removeprefix(_PREFIX)
        for actor in listed
        if actor["namespace"] == mine and actor["name"].startswith(_PREFIX)
    )
