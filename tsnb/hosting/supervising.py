"""A serving process of the command line that is started again when it crashes: `tsnb serve --restart on-crash`.

The process that was called watches; a fork of it serves, made anew for each life, tied to it (the system kills it
when the watching one goes, however that ends), and in the same process group, so Ctrl-C reaches both.
The watching one stays small: it never loads torch or the user's module.

Exit status: that of the serving process if it ended unasked, 128 + N if it was asked to end by signal N,
1 where it crashed too often.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable

from tsnb.discovery.entries import OWNER, this_owner
from tsnb.discovery.promises import FIRST, STANDING, Promise
from tsnb.hosting.crashes import Crashes, Following
from tsnb.kernels.processes.death import cause_of_death
from tsnb.native.ties import tie_to_parent

__all__ = ["supervise"]

LOOK_S = 0.25
"""How often to look: a death is seen within it, and readings come as often."""

LEAVING_S = 15.0
"""How long a process that was asked to stop may take: its loader may be in the middle of a long step."""

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask for the end; any other death is a crash."""


def supervise(name: str, serve: Callable[[int], int]) -> int:
    """Serve in a child process until it is asked to end, or crashes too often.

    Called on the main thread of a process without other threads.

    Args:
        name: The stream's.
        serve: Called in the child with the epoch to begin with; returns its exit status when the stream has ended.

    Returns:
        The exit status.
    """
    crashes, following = Crashes(), Following(name)
    with contextlib.ExitStack() as promised, _Asked() as asked:
        promised.callback(Promise(name, FIRST).close)

        def is_served() -> None:
            """The name is kept for it from now on, through its crashes."""
            if not standing:
                standing.append(Promise(name, STANDING))
                promised.callback(standing[0].close)

        standing: list[Promise] = []
        while True:
            code, served = _one_life(following, lambda: serve(crashes.position.epoch), asked, is_served)
            if asked or -code in ASKING:
                return 128 + (asked[0] if asked else -code)
            if code >= 0 and (not served or code == 0 or code == 128 + signal.SIGINT):
                return code
            cause = cause_of_death(code, f"The process that served {name!r}")
            if not crashes.allow_another(time.monotonic(), following.position):
                _say(f"{cause}. It is not started again: {crashes.reason}.")
                return 1
            is_served()
            _say(f"{cause}. tsnb restarts the stream in pass {crashes.position.epoch + 1}.")


class _Asked(list[int]):
    """Signals that asked for the end, which are noted instead of ending this process at once."""

    def __enter__(self) -> _Asked:
        heeded = [
            number for number in ASKING if signal.getsignal(number) is not signal.SIG_IGN
        ]  # nohup stays
        self._former = {number: signal.signal(number, self._note) for number in heeded}
        return self

    def __exit__(self, *_: object) -> None:
        for number, action in self._former.items():
            signal.signal(number, action)

    def _note(self, number: int, _: object) -> None:
        self.append(number)


def _one_life(
    following: Following, serve: Callable[[], int], asked: _Asked, is_served: Callable[[], None]
) -> tuple[int, bool]:
    """Run one serving process to its end; return its exit status (negative: a signal) and whether it served.

    Args:
        following: The stream, as it is seen from here.
        serve: As `supervise`.
        asked: Signals that have come.
        is_served: Called, again and again, once the stream is served.
    """
    pid = _fork(serve, asked)
    asked_until_s = 0.0
    following.served = False
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            following.close()
            return os.waitstatus_to_exitcode(status), following.served
        if asked and not asked_until_s:
            asked_until_s = time.monotonic() + LEAVING_S
            if not following.ask_to_stop() and not following.served:  # else it is ending already
                os.kill(pid, signal.SIGTERM)
        elif len(asked) > 1 or (asked and time.monotonic() > asked_until_s):
            os.kill(pid, signal.SIGKILL)
        if not following.look(LOOK_S) and (following.served or not following.open(pid)):
            time.sleep(LOOK_S)
        if following.served:
            is_served()


def _fork(serve: Callable[[], int], asked: _Asked) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    parent, whose = os.getpid(), this_owner()
    mask = signal.pthread_sigmask(
        signal.SIG_BLOCK, ASKING
    )  # the child would note what is meant for it, and go on
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return pid
    tie_to_parent(parent)
    os.environ[OWNER] = whose  # the name is kept for it
    asked.__exit__()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    sys.exit(serve())


def _say(text: str) -> None:
    sys.stderr.write(f"tsnb serve: {text}\n")
    sys.stderr.flush()
