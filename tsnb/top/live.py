"""The terminal: draws a screen a few times a second, listens for q, and leaves the terminal as it was."""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator

from rich.console import Console, RenderableType
from rich.live import Live

from tsnb.discovery import registry
from tsnb.show.words import LIVE
from tsnb.telemetry.following import Follower, look
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.shown.view import StreamView
from tsnb.text.numbers import clock
from tsnb.top.view import ALL, screen

__all__ = ["top"]

_REDRAW_S = 0.25
_STALE_S = 5.0
"""Readings come four times a second; after this long without one the screen says so."""

_QUIT = (b"q", b"Q", b"")
"""The key that ends it, and the end of a terminal that was closed."""

_HINT = "q quits"

_ONCE_WIDTH = 120
"""Columns if the output is not a terminal."""


def top(name: str | None = None, once: bool = False) -> None:
    """Show a stream in this terminal until q or Ctrl-C; without a terminal, print it once.

    Args:
        name: The stream's name; None: the one that is running.
        once: Print it once in any case.

    Raises:
        ProducerNotFound: That stream is not served.
        ProducerGone: It ended before it could be read.
    """
    served = registry.find(name).name
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            errors="replace"
        )  # a terminal or a pipe that knows no squares gets question marks
    if once or not sys.stdout.isatty():
        _print(look(served)[1])
    else:
        _show(served)


def _print(view: StreamView) -> None:
    """Print the screen as it shall stay."""
    console = Console() if sys.stdout.isatty() else Console(width=_ONCE_WIDTH)
    console.print(screen(view, console.width, most=ALL), soft_wrap=not console.is_terminal)


class _Heard:
    """The story as the follower's thread tells it and the terminal's thread draws it."""

    def __init__(self) -> None:
        self.view = StreamView()
        self._heard_s = time.monotonic()

    def take(self, reading: StreamReading) -> None:
        """Take in a reading; called by the follower."""
        with self.view.lock:
            self._heard_s = time.monotonic()
            self.view.feed(reading)

    def note(self, state: str, text: str, _name: str) -> None:
        """Take in what no reading says; called by the follower."""
        self.view.note(state, text)

    def draw(self, width: int, hint: str = "") -> RenderableType:
        """Return the screen; without a hint about keys it is one that stays, with all trials."""
        with self.view.lock:
            silent_s = time.monotonic() - self._heard_s
            if silent_s > _STALE_S and self.view.state in LIVE:
                self.view.note(
                    "stale", f"No data for {clock(silent_s)}: the stream's process is busy or stopped."
                )
            return screen(self.view, width, hint) if hint else screen(self.view, width, most=ALL)


def _show(name: str) -> None:
    heard, console = _Heard(), Console()
    follower = Follower(name, heard.take, heard.note)
    follower.start()
    try:
        with _quit_key() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
            while not pressed(_REDRAW_S):
                live.update(heard.draw(console.width, _HINT), refresh=True)
    except KeyboardInterrupt:
        pass
    finally:
        follower.close()
    console.print(heard.draw(console.width))


def _never(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@contextlib.contextmanager
def _quit_key() -> Iterator[Callable[[float], bool]]:
    """Read single keys while it lasts; gives a function that waits some seconds and says whether q was pressed."""
    if not sys.stdin.isatty():  # its input is a file or nothing: Ctrl-C ends it
        yield _never
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def pressed(seconds: float) -> bool:
        ready, _, _ = select.select([terminal], [], [], seconds)
        return bool(ready) and os.read(terminal, 64) in _QUIT

    tty.setcbreak(terminal)
    try:
        yield pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
