"""`tsnb top` in a real terminal: live numbers, ends on q and Ctrl-C, leaves the terminal as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile import HOSTILE_TEXTS
from tests.system.scripts import ROOT, Script, scripts

pytestmark = pytest.mark.system

SERVE = """
import threading
def train(name, pause):
    for epoch in range(10_000):
        for batch in tsnb.attach(name, stream="s"): time.sleep(pause)
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
    """`tsnb top`, or another command, with a terminal of 100 columns around it."""

    def __init__(self, *words: str, command: str = "top") -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tsnb", command, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  # so that Ctrl-C reaches it
        )
        self.theirs = theirs
        self.said = b""

    def expect(self, what: bytes, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        start = len(self.said)
        while what not in self.said[start:]:
            ready, _, _ = select.select([self.ours], [], [], 0.1)
            self.said += os.read(self.ours, 65536) if ready else b""
            assert time.monotonic() < deadline, self.said[-3000:].decode(errors="replace")

    def end(self) -> int:
        code = self.process.wait(120)
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


@pytest.mark.slow
@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "Ctrl-C"])
def test_it_shows_the_stream_until_a_key_ends_it(terminal: Terminal, key: bytes) -> None:
    """Live on a screen of its own; at the end that is left, the last numbers stay, and keys echo again."""
    terminal.expect(ENTER)
    terminal.expect(b"slow sets the pace.")
    terminal.expect(b"q quits")
    assert termios.tcgetattr(terminal.theirs) != terminal.before
    os.write(terminal.ours, key)
    assert terminal.end() == 0
    _, _, after = terminal.said.rpartition(LEAVE)
    assert (b"fast" in after and b"where its time goes" in after) or b"its time" in after
    assert b"q quits" not in after
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


@pytest.mark.slow
def test_a_producer_that_stands_still_is_told(terminal: Terminal, stream: Script) -> None:
    """Old numbers are not passed off as new ones; they come back with the readings."""
    terminal.expect(b"sets the pace")
    stream.send(signal.SIGSTOP)
    try:
        terminal.expect(b"No data for")
    finally:
        stream.send(signal.SIGCONT)
    terminal.expect(b"sets the pace")


@pytest.mark.slow
def test_where_there_is_no_terminal_it_is_printed_once(stream: Script) -> None:
    """Into a pipe or a file: plain text, no control characters, rates included."""
    done = subprocess.run(
        [sys.executable, "-m", "tsnb", "top"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert "slow sets the pace. fast waits for slower trials" in done.stdout, done.stderr
    assert "\x1b" not in done.stdout
    assert "q quits" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 120
    ascii_only = subprocess.run(
        [sys.executable, "-m", "tsnb", "top", "s", "--once"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
        timeout=240,
    )
    assert ascii_only.returncode == 0, ascii_only.stderr
    assert b"sets the pace" in ascii_only.stdout


HOSTILE = """
BAD = "".join({texts!r})
class Files(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        if i < 32: return torch.zeros(4)
        raise FileNotFoundError(BAD + "no such photo: Größe.png" + BAD[:40])
import threading
def train():
    for batch in tsnb.attach("cnn", stream="s"):
        tsnb.log({{"loss" + BAD: 0.5}})
        time.sleep(0.1)
producer = tsnb.serve(DataLoader(Files(), batch_size=8), name="s", window=2, origin="script " + BAD)
thread = threading.Thread(target=train, daemon=True)
thread.start()
say("serving")
thread.join()
time.sleep(60)
"""


@pytest.mark.slow
def test_nothing_that_comes_from_elsewhere_steers_the_terminal() -> None:
    """File names in errors, metric names and origins, through the real commands."""
    with scripts() as running:
        running.append(Script(HOSTILE.format(texts=HOSTILE_TEXTS)))
        running[0].expect("serving")
        running[0].expect("Exception in thread")
        for command, words in (("top", ["s", "--once"]), ("status", ["s"]), ("list", [])):
            terminal = Terminal(*words, command=command)
            try:
                assert terminal.end() == 0
            finally:
                terminal.close()
            said = terminal.said.decode()
            if command != "list":
                assert "Größe" in said, said  # the line may be wrapped
            assert_harmless(terminal.said)


@pytest.mark.slow
def test_an_error_that_is_raised_does_not_steer_the_terminal(tmp_path: Path) -> None:
    """The loader fails at once: the message and its traceback in the terminal that serves it."""
    (tmp_path / "bad.py").write_text(
        f"def make():\n    yield 1 / 0 if 0 else open({''.join(HOSTILE_TEXTS).replace(chr(0), '')!r})\n",
        "utf-8",
    )
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        terminal = Terminal("bad:make", "--name", "bad", command="serve")
    finally:
        os.chdir(before)
    try:
        assert terminal.end() == 1
    finally:
        terminal.close()
    assert b"The loader raised" in terminal.said
    assert_harmless(terminal.said)


def assert_harmless(said: bytes) -> None:
    """Colours are all that a terminal was told."""
    left = re.sub(r"\x1b\[[0-9;]*m", "", said.decode())
    assert all(line.isprintable() for line in left.replace("\r\n", "\n").split("\n")), ascii(left)
