"""`tsnb top` in a real terminal: live numbers, ends on q and Ctrl-C, leaves the terminal as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from tests.system.scripts import ROOT, Script, scripts

pytestmark = pytest.mark.system

SERVE = """
import threading
def train(name, pause):
    for epoch in range(10_000):
        for batch in tsnb.attach(name, producer="s"): time.sleep(pause)
with tsnb.serve(DataLoader(Numbers(320), batch_size=16), name="s", window=4) as producer:
    for name, pause in (("slow", 0.03), ("fast", 0.0)):
        threading.Thread(target=train, args=(name, pause), daemon=True).start()
    say("serving")
    producer.wait()
"""
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture
def stream() -> Iterator[Script]:
    with scripts() as running:
        running.append(Script(SERVE))
        running[0].expect("serving")
        yield running[0]


class Terminal:
    """`tsnb top` with a terminal of 100 columns around it."""

    def __init__(self, *words: str) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tsnb", "top", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  # so that Ctrl-C reaches it
        )
        self.theirs = theirs
        self.said = b""

    def expect(self, what: bytes, timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        start = len(self.said)
        while what not in self.said[start:]:
            ready, _, _ = select.select([self.ours], [], [], 0.1)
            self.said += os.read(self.ours, 65536) if ready else b""
            assert time.monotonic() < deadline, self.said[-3000:].decode(errors="replace")

    def end(self) -> int:
        code = self.process.wait(20)
        while select.select([self.ours], [], [], 0)[0]:
            self.said += os.read(self.ours, 65536)
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal(stream: Script) -> Iterator[Terminal]:
    found = Terminal("s")
    yield found
    found.close()


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "Ctrl-C"])
def test_it_shows_the_stream_until_a_key_ends_it(terminal: Terminal, key: bytes) -> None:
    """Live on a screen of its own; at the end that is left, the last numbers stay, and keys echo again."""
    terminal.expect(ENTER)
    terminal.expect(b"slow sets the pace.")
    terminal.expect(b"q ends")
    assert termios.tcgetattr(terminal.theirs) != terminal.before
    os.write(terminal.ours, key)
    assert terminal.end() == 0
    _, _, after = terminal.said.rpartition(LEAVE)
    assert (b"fast" in after and b"where its time goes" in after) or b"its time" in after
    assert b"q ends" not in after
    assert termios.tcgetattr(terminal.theirs) == terminal.before
    assert b"Traceback" not in terminal.said


def test_the_end_of_the_stream_is_shown(terminal: Terminal, stream: Script) -> None:
    """It stays, and says so."""
    terminal.expect(b"sets the pace")
    stream.send(signal.SIGKILL)
    terminal.expect(b"has ended")
    assert terminal.process.poll() is None
    os.write(terminal.ours, b"q")
    assert terminal.end() == 0


def test_a_producer_that_stands_still_is_told(terminal: Terminal, stream: Script) -> None:
    """Old numbers are not passed off as new ones; they come back with the readings."""
    terminal.expect(b"sets the pace")
    stream.send(signal.SIGSTOP)
    try:
        terminal.expect(b"No news for")
    finally:
        stream.send(signal.SIGCONT)
    terminal.expect(b"sets the pace")


def test_where_there_is_no_terminal_it_is_printed_once(stream: Script) -> None:
    """Into a pipe or a file: plain text, no control characters, rates included."""
    done = subprocess.run(
        [sys.executable, "-m", "tsnb", "top"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "slow sets the pace. fast is held back" in done.stdout, done.stderr
    assert "\x1b" not in done.stdout
    assert "q ends" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 120
    ascii_only = subprocess.run(
        [sys.executable, "-m", "tsnb", "top", "s", "--once"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert ascii_only.returncode == 0, ascii_only.stderr
    assert b"sets the pace" in ascii_only.stdout
