"""A control daemon of NVIDIA's Multi-Process Service (MPS), this user's own.

`start` runs `nvidia-cuda-mps-control -d`. All it has lies in `mps` in the runtime directory, which is private:

| what | which |
|---|---|
| `pipe` | CUDA_MPS_PIPE_DIRECTORY: its sockets, and its process number |
| `log` | CUDA_MPS_LOG_DIRECTORY: its logs, and its server's |
| `daemon` | the process, as `machine.owners` knows one; written once it answers |

A process that has those variables before it first uses CUDA computes through the daemon: `with_mps` adds them for each
kernel, while the daemon lives. The daemon starts a server with its first client. It is asked by the same program: one
line in, lines with process numbers out, within `ANSWER_S`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tsnb.config import explained, private_directory, runtime_directory, short_directory
from tsnb.errors import TsnbError
from tsnb.machine.gpus import MPS_DIRECTORY, Gpus, list_gpus, mps_answers
from tsnb.machine.owners import Owner, alive, has_gone, owner
from tsnb.machine.placement import VISIBLE, visible_gpus
from tsnb.machine.processes import is_ours, program_name, started
from tsnb.private.directories import user_word
from tsnb.private.files import open_private, read_foreign, read_private, write_private
from tsnb.text.printable import harmless, one_line

__all__ = ["MpsStatus", "MpsTrial", "find", "start", "status", "stop", "with_mps"]

PROGRAM = "nvidia-cuda-mps-control"
LOGS = "CUDA_MPS_LOG_DIRECTORY"
ANSWER_S = 2.0
"""How long the daemon may take to answer: milliseconds, unless it stands still."""
START_S = 10.0
"""How long it may take to start."""
STOP_S = 10.0
"""How long it may take to end, with its servers, when nobody computes through it."""
LOOK_S = 0.02
_USUAL = Path("/tmp/nvidia-mps")  # noqa: S108  # where CUDA looks by itself
_LONGEST = len("/mps/pipe/control_privileged")


@dataclass(frozen=True)
class MpsTrial:
    """One trial of this user's."""

    trial: str
    """Its name; "loader of NAME" for a loader that computes through the daemon."""
    pid: int
    """Its process."""
    attached: bool
    """Whether it, or a process that it has started, computes through the daemon."""
    why: str = ""
    """Why not, and what to do."""


@dataclass(frozen=True)
class MpsStatus:
    """This user's daemon, and who computes through it, by its own word."""

    pid: int = 0
    """The control daemon; 0: none runs."""
    directory: str = ""
    """Its pipes (CUDA_MPS_PIPE_DIRECTORY)."""
    servers: tuple[int, ...] = ()
    """Its servers; none before the first process has used CUDA."""
    trials: tuple[MpsTrial, ...] = ()
    """This user's trials, attached or not."""
    others: tuple[int, ...] = ()
    """Other processes that compute through it."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"running": bool(self.pid), **asdict(self)}

    def __str__(self) -> str:
        if not self.pid:
            return "No MPS daemon is running for your user. Start one with `tsnb mps start`."
        servers = ", ".join(f"pid {pid}" for pid in self.servers) or "starts with the first use of CUDA"
        lines = [f"Your MPS daemon is running (pid {self.pid}, {self.directory}). Its server: {servers}"]
        for one in self.trials:
            state = "attached" if one.attached else f"not attached: {one.why}"
            lines.append(f"{one.trial} (pid {one.pid}): {state}")
        return harmless(
            "\n".join([*lines, *(f"another process (pid {pid}): attached" for pid in self.others)])
        )


def with_mps(added: Mapping[str, str]) -> dict[str, str]:
    """Return variables for a new process, with those that attach it to this user's daemon while that lives.

    A directory that the user has set is left alone, and so is a process that sees no GPU, or a MIG instance only.

    Args:
        added: What it gets beside this process's own environment.
    """
    given = {**os.environ, **added}
    visible = given.get(VISIBLE, "all")
    with contextlib.suppress(TsnbError, OSError):  # `tsnb mps status` says why; a trial computes without it
        if MPS_DIRECTORY not in given and visible and not visible.startswith("MIG-") and find() is not None:
            return {**_variables(_home()), **added}
    return dict(added)


def find() -> Owner | None:
    """Return this user's daemon; None: none runs.

    Raises:
        TsnbError: The directory is not this user's alone; or it may run in another container or on another machine.
    """
    home = _home()
    if not os.path.lexists(home):  # a link that leads nowhere is refused, too
        return None
    private_directory(home)
    daemon = _recorded(home) or _unrecorded(home)
    if daemon is None or has_gone(daemon):
        return None
    if not alive(daemon):
        raise TsnbError(
            f"Your MPS daemon runs in another container or on another machine ({daemon.host}, pid "
            f"{daemon.pid}). Stop it there. If it no longer exists, remove {home}."
        )
    return daemon


def start(gpus: Gpus | None = None) -> tuple[Owner, bool]:
    """Start this user's daemon and wait until it answers; on failure nothing is left.

    Args:
        gpus: NVML; left out: this machine's.

    Returns:
        The daemon, and whether it was started now: one that runs is left alone.

    Raises:
        TsnbError: It cannot run here, or did not start; says why.
    """
    with _alone():
        found = find()
        if found is not None:
            return found, False
        _check(gpus or Gpus())
        home = _home()
        _sweep(home)
        try:
            for directory in (home, home / "pipe", home / "log"):
                private_directory(directory)
            return _launched(home), True
        except BaseException:
            _end(home)
            raise


def status(ours: Mapping[int, str]) -> MpsStatus:
    """Ask this user's daemon who computes through it; what a dead one has left is removed.

    Args:
        ours: Names of this user's trials and loaders ("loader of NAME"), by their processes.

    Raises:
        TsnbError: It does not answer in time; or as `find`.
    """
    daemon = find()
    if daemon is None:
        with contextlib.suppress(TsnbError), _alone():
            if find() is None:
                _sweep(_home())
        return MpsStatus()
    home = _home()
    servers, clients = _served(home)
    above = {pid: _ours_above(pid, ours) for pid in clients}
    attached = set(above.values())
    trials = [
        MpsTrial(name, pid, pid in attached, "" if pid in attached else _why_not(pid, daemon))
        for pid, name in ours.items()
        if pid in attached or not name.startswith("loader of ")
    ]
    others = tuple(pid for pid in clients if not above[pid])
    return MpsStatus(daemon.pid, str(home / "pipe"), tuple(servers), tuple(trials), others)


def stop(name_of: Callable[[int], str] = str) -> bool:
    """End this user's daemon and its servers, and remove its files.

    While processes compute through it, it is not asked to end: it would take no new ones until they have ended.

    Args:
        name_of: Gives a process's name by its number.

    Returns:
        Whether one ran.

    Raises:
        TsnbError: Processes compute through it, it does not answer, or something has not ended in time; names them.
    """
    with _alone():
        home, daemon = _home(), find()
        if daemon is None:
            _sweep(home)
            return False
        servers, clients = _served(home)
        if clients:
            listed = ", ".join(f"{name_of(pid) or 'a process'} (pid {pid})" for pid in clients)
            raise TsnbError(
                f"Your MPS daemon still serves {listed}. Stop them first, or wait until they end."
            )
        ending = {f"{PROGRAM} (pid {daemon.pid})": daemon}
        ending |= {f"nvidia-cuda-mps-server (pid {pid})": owner(pid) for pid in servers}
        deadline = time.monotonic() + STOP_S
        with contextlib.suppress(TsnbError):  # it may end before it has answered: what counts is its end
            _ask(home, "quit", limit_s=STOP_S)
        while left := [name for name, process in ending.items() if not has_gone(process)]:
            if time.monotonic() >= deadline:
                names = " and ".join(left)
                raise TsnbError(
                    f"{names} did not end within {STOP_S:g} s of `quit`. Run `tsnb mps stop` again, or "
                    "kill the remaining processes."
                )
            time.sleep(LOOK_S)
        _sweep(home)
        return True


def _home() -> Path:
    return short_directory(_LONGEST) / "mps"


def _variables(home: Path) -> dict[str, str]:
    return {MPS_DIRECTORY: str(home / "pipe"), LOGS: str(home / "log")}


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Let nobody else start, stop or sweep meanwhile."""
    descriptor = os.open(runtime_directory(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            with explained("lock its runtime directory"):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TsnbError("Another `tsnb mps` is starting or stopping the daemon. Try again.") from None
        yield
    finally:
        os.close(descriptor)


def _recorded(home: Path) -> Owner | None:
    try:
        host, boot, namespace, pid, when = json.loads(read_private(home / "daemon"))
        return Owner(str(host), str(boot), str(namespace), int(pid), int(when))
    except (OSError, ValueError, TypeError):
        return None


def _unrecorded(home: Path) -> Owner | None:
    """Return a daemon that is starting, or whose start was killed before it was recorded."""
    try:
        pid = int(read_foreign(home / "pipe" / f"{PROGRAM}.pid"))
    except (OSError, ValueError):
        return None
    # a process's name in /proc has 15 letters at most
    return owner(pid) if is_ours(pid) and program_name(pid)[:15] == PROGRAM[:15] else None


def _check(gpus: Gpus) -> None:
    """Check that a daemon can run here, and that trials would use it.

    Raises:
        TsnbError: It cannot, or they would not; says why.
    """
    found = list_gpus(gpus)
    if not found:
        why = gpus.obstacle or "NVML lists no GPU"
        raise TsnbError(f"MPS needs an NVIDIA GPU and its driver, and this machine has none ({why}).")
    if shutil.which(PROGRAM) is None:
        raise TsnbError(f"{PROGRAM} is not on the PATH. Install that part of NVIDIA's driver.")
    chosen = os.environ.get(MPS_DIRECTORY)
    if chosen is not None and chosen != str(_home() / "pipe"):
        raise TsnbError(f"{MPS_DIRECTORY}={chosen} is set, so trials use the daemon there. Unset it first.")
    visible = os.environ.get(VISIBLE)
    seen = visible_gpus(found, visible)
    if visible is not None and not (
        seen and all(word.strip().startswith(("GPU-", "MIG-")) for word in visible.split(","))
    ):
        named = ",".join(gpu.uuid for gpu in seen)
        mend = f"Set it to {named}, also in notebooks" if named else "It hides all GPUs, so unset it"
        raise TsnbError(
            f"{VISIBLE}={visible} has no meaning for MPS, whose daemon numbers the GPUs itself. {mend}."
        )
    if cut := [gpu.device for gpu in seen if gpu.mig]:
        raise TsnbError(
            f"The GPU is divided into MIG instances ({', '.join(cut)}). Trials on different instances "
            "run at the same time without MPS. To use MPS on undivided GPUs, list their UUIDs in "
            f"{VISIBLE}."
        )
    if mps_answers(_USUAL):
        whose = user_word((_USUAL / "control").stat().st_uid)
        raise TsnbError(
            f"An MPS daemon of {whose} answers at {_USUAL}, and trials already use it. Two daemons on "
            "one GPU take turns, so none was started."
        )


def _launched(home: Path) -> Owner:
    told = home / "log" / "start"
    deadline = time.monotonic() + START_S
    code: int | str
    output = open_private(told, os.O_WRONLY | os.O_CREAT)  # no pipe: the daemon may keep its end of one
    try:
        code = _run(home, START_S, "-d", stdin=subprocess.DEVNULL, stdout=output, stderr=output).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        code = str(error)
    finally:
        os.close(output)
    while code == 0 and time.monotonic() < deadline:
        daemon = _unrecorded(home)
        if daemon is not None and mps_answers(home / "pipe"):
            _ask(home, "get_server_list")
            write_private(home / "daemon", json.dumps(daemon))
            return daemon
        time.sleep(LOOK_S)
    logs = (told, home / "log" / "control.log")
    words = one_line(" ".join(log.read_text(errors="replace") for log in logs if log.is_file())[-1000:])
    raise TsnbError(
        f"`{PROGRAM} -d` started no daemon that answers ({code}): {words or 'it printed nothing'}"
    )


def _run(home: Path, limit_s: float, *words: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run the control program in a session of its own, so that Ctrl-C does not reach the daemon."""
    how |= {"env": {**os.environ, **_variables(home)}, "cwd": "/", "start_new_session": True}
    return subprocess.run([PROGRAM, *words], timeout=limit_s, check=False, **how)


def _ask(home: Path, line: str, limit_s: float | None = None) -> list[int]:
    """Say one line to the daemon; return the process numbers that it answers, one a line.

    Raises:
        TsnbError: It does not answer in time (`ANSWER_S`, or the limit that is given), or refuses.
    """
    limit_s = ANSWER_S if limit_s is None else limit_s
    how = {"input": f"{line}\n", "capture_output": True, "encoding": "utf-8", "errors": "replace"}
    daemon = _recorded(home) or _unrecorded(home)
    name = f"Your MPS daemon (pid {daemon.pid if daemon else 'unknown'}, logs: {home / 'log'})"
    try:
        told = _run(home, limit_s, **how)
    except subprocess.TimeoutExpired:
        raise TsnbError(
            f"{name} does not answer `{line}` within {limit_s:g} s. If this persists, kill it."
        ) from None
    except OSError as error:
        raise TsnbError(f"{PROGRAM} cannot be run: {error.strerror}.") from None
    if told.returncode:
        words = one_line(told.stderr or told.stdout) or f"exit status {told.returncode}"
        raise TsnbError(f"{name} refused `{line}`: {words}")
    return [int(answer) for answer in map(str.strip, told.stdout.splitlines()) if answer.isdecimal()]


def _served(home: Path) -> tuple[list[int], list[int]]:
    """Return the daemon's servers, and the processes that compute through them.

    Raises:
        TsnbError: It does not answer.
    """
    servers = _ask(home, "get_server_list")
    return servers, [pid for server in servers for pid in _ask(home, f"get_client_list {server}")]


def _ours_above(pid: int, ours: Mapping[int, str]) -> int:
    """Return which of ours a process is, or was started by; 0: none."""
    import psutil

    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return next((one.pid for one in (process, *process.parents()) if one.pid in ours), 0)
    return 0  # it has just ended


def _why_not(pid: int, daemon: Owner) -> str:
    if started(pid) < daemon.started:
        return "it started before the daemon. Stop it and start it again"
    return f"it has not used CUDA yet, or was started without {MPS_DIRECTORY}={_home() / 'pipe'}"


def _end(home: Path) -> None:
    """End what a failed start has left: a daemon that was started now, and that nobody uses yet."""
    daemon, deadline = _unrecorded(home), time.monotonic() + ANSWER_S
    while daemon is not None and not has_gone(daemon) and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon.pid, signal.SIGKILL)
        time.sleep(LOOK_S)
    _sweep(home)


def _sweep(home: Path) -> None:
    """Remove the files of a daemon that does not run."""
    if home.is_dir():
        shutil.rmtree(private_directory(home))
