"""The end of a stream, asked for by its name: `tsnb stop`, `tsnb.streams.stop`, and the first half of a restart.

The stream's goodbye says whether another producer takes over. So who asks for an end and is told of a successor knows
that a restart was quicker, and stops the successor, too. And a restart that is told of none knows that somebody has
asked for the end meanwhile.
"""

from __future__ import annotations

import contextlib
import time

from tsnb.discovery import registry
from tsnb.discovery.promises import is_promised
from tsnb.discovery.registry import Entry
from tsnb.errors import ProducerGone, TsnbError
from tsnb.telemetry.observer import Observer

__all__ = ["end_for_now", "stop"]

LOOK_S = 0.02
"""How often it is looked whether a stream has gone, or is back."""


def stop(stream: str | None = None, timeout_s: float = 10.0, reconnect_s: float = 0.0) -> None:
    """Stop a stream, and wait until it is gone.

    It also stops a stream that is being restarted at that moment.

    Example:
        >>> numbers = tsnb.serve([1, 2, 3], name="numbers")
        >>> tsnb.streams.stop("numbers")

    Args:
        stream: Name of the stream. Defaults to the only one running.
        timeout_s: Seconds to wait for the stream to stop. Defaults to 10.
        reconnect_s: Seconds that its trials wait for a restart of the stream. Defaults to 0: they raise
            `ProducerGone`.

    Raises:
        ProducerNotFound: If no stream has that name.
        TsnbError: If the stream is still there after `timeout_s` seconds, or is being restarted and not yet back.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        observer = Observer(stream)
        successor_s = _ended(observer, timeout_s, deadline, reconnect_s)
        if reconnect_s or successor_s == 0.0 or not _is_back(observer.entry, timeout_s, deadline):
            return
        stream = observer.name


def end_for_now(stream: str, timeout_s: float, reconnect_s: float) -> bool:
    """Stop a stream that will be served again; return whether its trials wait for that.

    They do not where somebody else has asked for its end meanwhile.

    Args:
        stream: Its name.
        timeout_s: Seconds to wait for it to stop.
        reconnect_s: Seconds that its trials shall wait.

    Raises:
        ProducerNotFound, ProducerGone: It has gone before it could be asked.
        TsnbError: It has not stopped in that time.
    """
    return _ended(Observer(stream), timeout_s, time.monotonic() + timeout_s, reconnect_s) != 0.0


def _ended(observer: Observer, timeout_s: float, deadline: float, reconnect_s: float) -> float | None:
    """Ask for the end and wait for it; return how long trials wait for a successor, None if the goodbye was not heard.

    Raises:
        TsnbError: It is still there.
    """
    with contextlib.closing(observer):
        with contextlib.suppress(ProducerGone):  # it has ended just now: its goodbye can be read
            observer.request_stop(reconnect_s)
        try:
            while observer.read(left_s := max(0.0, deadline - time.monotonic())) is not None or left_s:
                pass  # what has come by then is read in any case: a goodbye lies behind readings
        except ProducerGone:
            while observer.entry in registry.entries() and time.monotonic() < deadline:
                time.sleep(LOOK_S)
            return observer.successor_s
    raise observer.lingering(timeout_s)


def _is_back(former: Entry, timeout_s: float, deadline: float) -> bool:
    """Wait until a stream that is being started again is served; return whether it is, or nobody starts it.

    Raises:
        TsnbError: It is not back in time.
    """
    while True:
        promised = is_promised(former.name)  # first: the promise is withdrawn once the stream is there
        if any(e.name == former.name and e.address != former.address for e in registry.entries()):
            return True
        if not promised:
            return False
        if time.monotonic() > deadline:
            raise TsnbError(
                f"Stream {former.name!r} is restarting and did not come back within {timeout_s:.0f} s. When "
                f"`tsnb list` shows it, run `tsnb stop {former.name}` again."
            )
        time.sleep(LOOK_S)
