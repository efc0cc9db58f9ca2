"""What trials print in a script: no trial waits for whoever reads it, whatever stdout is."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tsnb.kernels import terminal as terminal_module
from tsnb.kernels.terminal import Terminal

SCRIPT = """
import sys, tsnb
from pathlib import Path


def work(lines):
    for number in range(lines):
        print("line", number, "x" * 200, flush=True)


class Bare:
    def write(self, text):
        return len(text)


def closed():
    stream = open("closed", "w")
    stream.close()
    return stream


WAYS = {"closed": closed, "none": lambda: None, "full": lambda: open("/dev/full", "w"), "bare": Bare}

if __name__ == "__main__":
    facts = Path(sys.argv[1])
    there = sys.stdout
    for way in sys.argv[2:]:
        sys.stdout = WAYS.get(way, lambda: there)()
        trial = tsnb.run(work, name=way, lines=1000)
        try:
            trial.wait(120)
        except TimeoutError:
            pass
        with facts.open("a") as file:
            file.write(f"{way} {trial.state}\\n")
    sys.stdout = there
"""


@pytest.fixture
def script(tmp_path: Path) -> list[str]:
    (tmp_path / "script.py").write_text(SCRIPT)
    return [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "facts")]


def facts(folder: Path, count: int) -> list[str]:
    """Return what the script has noted, once it has noted so much."""
    path, deadline = folder / "facts", time.monotonic() + 400
    while not path.exists() or len(path.read_text().splitlines()) < count:
        assert time.monotonic() < deadline, path.read_text() if path.exists() else "nothing"
        time.sleep(0.1)
    return path.read_text().splitlines()


@contextlib.contextmanager
def running(command: list[str], folder: Path, stdout: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, cwd=folder, stdout=stdout, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def printed(text: str) -> list[int]:
    """Return how many letters each of the two trials has printed: a line may come in two pieces, each marked."""
    lines = text.splitlines()
    return [
        sum(line.count("x") for line in lines if line.startswith(f"[{name}] "))
        for name in ("first", "second")
    ]


@pytest.mark.slow
def test_a_trial_ends_where_stdout_takes_no_text(script: list[str], tmp_path: Path) -> None:
    """It is closed, None, on a full disk, or an object of one's own that can only write."""
    ways = ["closed", "none", "full", "bare"]
    ran = subprocess.run(
        [*script, *ways], cwd=tmp_path, capture_output=True, text=True, timeout=560, check=False
    )
    assert facts(tmp_path, 4) == [f"{way} done" for way in ways], ran.stderr
    said = [line for line in ran.stderr.splitlines() if "cannot be shown" in line]
    assert len(said) == 2, ran.stderr  # once for the closed one, once for the full disk
    assert "No space left on device" in said[1]
    assert "The trials continue" in said[1]


@pytest.mark.slow
def test_trials_end_while_nobody_reads_the_pipe(script: list[str], tmp_path: Path) -> None:
    """Two of them, each with more than the pipe holds; what was printed is there for a reader who comes later."""
    reading, writing = os.pipe()
    with running([*script, "first", "second"], tmp_path, writing) as process:
        os.close(writing)
        assert facts(tmp_path, 2) == ["first done", "second done"]
        with open(reading, encoding="utf-8") as pipe:
            text = pipe.read()
        assert process.wait(60) == 0
    assert printed(text) == [1000 * 200] * 2


@pytest.mark.slow
def test_trials_end_while_a_terminal_is_stopped(script: list[str], tmp_path: Path) -> None:
    """Ctrl-S."""
    master, slave = pty.openpty()
    with running([*script, "first", "second"], tmp_path, slave) as process:
        termios.tcflow(slave, termios.TCOOFF)
        assert facts(tmp_path, 2) == ["first done", "second done"]
        termios.tcflow(slave, termios.TCOON)
        os.close(slave)
        text = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while piece := os.read(master, 65536):
                text += piece
        os.close(master)
        assert process.wait(60) == 0
    assert printed(text.decode()) == [1000 * 200] * 2


STOPPED = """
import sys, time, tsnb
from pathlib import Path


def work(lines, folder):
    Path(folder, "begins").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    for number in range(lines):
        print("line", number, "x" * 20, flush=True)
    Path(folder, "printed").touch()


if __name__ == "__main__":
    trial = tsnb.run(work, name="t", lines=10_000, folder=sys.argv[1])
    trial.wait(120)
    Path(sys.argv[1], "log").write_text(trial.logs())
"""


@pytest.mark.slow
def test_what_is_printed_while_nobody_takes_it_is_not_lost(tmp_path: Path) -> None:
    """The trial's notebook stands still for a moment, as on a busy machine: here it is stopped by a signal."""
    (tmp_path / "script.py").write_text(STOPPED)
    with running(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path)], tmp_path, subprocess.DEVNULL
    ) as it:
        wait_for(tmp_path / "begins")
        it.send_signal(signal.SIGSTOP)
        (tmp_path / "go").touch()
        wait_for(tmp_path / "printed")
        it.send_signal(signal.SIGCONT)
        assert it.wait(120) == 0
    lines = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("line ")]
    assert lines == [f"line {number} {'x' * 20}" for number in range(10_000)]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)


def test_letters_that_stdout_does_not_have_lose_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    """An ASCII stdout, and a lone surrogate on one that is UTF-8."""
    for encoding, shown in (("ascii", "bef\\xf6re \\u2713 \\udcff"), ("utf-8", "before ✓ \\udcff")):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding)
        text = "before ✓ \udcff\nafter\n" if encoding == "utf-8" else "beföre ✓ \udcff\nafter\n"
        Terminal().write(stream, text)
        assert raw.getvalue().decode() == f"{shown}\nafter\n"
    assert not capsys.readouterr().err


def test_what_is_left_out_is_told_and_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads for long: the newest text is missing, one line says so, and then all is shown again."""
    monkeypatch.setattr(terminal_module, "MOST_CHARACTERS", 1000)
    go = threading.Event()

    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            go.wait()
            return super().write(text)

    shown, terminal = Slow(), Terminal()
    for number in range(100):
        terminal.write(shown, f"{number:02} {'x' * 96}\n")
    go.set()
    terminal.drain()
    lines = shown.getvalue().splitlines()
    assert [line[:2] for line in lines[:-1]] == [f"{number:02}" for number in range(10)]
    assert "is missing here because it was not read in time" in lines[-1]
    terminal.write(shown, "later\n")
    assert shown.getvalue().endswith("trial has all of it.\nlater\n")


@pytest.mark.slow
def test_a_reader_that_goes_ends_nothing(script: list[str], tmp_path: Path) -> None:
    """As `| head` does."""
    reading, writing = os.pipe()
    with running([*script, "first"], tmp_path, writing) as process:
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        assert facts(tmp_path, 1) == ["first done"]
        assert process.wait(60) in {0, 120, -signal.SIGPIPE}
