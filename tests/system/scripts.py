"""Real processes for system tests: a script is run by the same Python and talks by printing lines."""

from __future__ import annotations

import contextlib
import queue
import signal
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests import forking

ROOT = Path(__file__).resolve().parents[2]

PRELUDE = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
import tsnb
torch.set_num_threads(1)

class Numbers(Dataset):
    '''Sample i is filled with i: whatever is lost, doubled or overwritten shows.'''
    def __init__(self, n, width=16, slow_s=0.0): self.n, self.width, self.slow_s = n, width, slow_s
    def __len__(self): return self.n
    def __getitem__(self, i):
        if self.slow_s: time.sleep(self.slow_s)
        return torch.full((self.width,), float(i)), i

def together(consumer, others):
    '''Ask for an epoch, then wait until as many consumers have: nobody is late, however slow the machine.'''
    loop = iter(consumer)
    while sum(c.state != "joining" for c in tsnb.streams.status().consumers) < others: time.sleep(0.01)
    return loop

def say(*words): print(*words, flush=True)
"""

FAMILY = """
import signal, traceback
from tsnb.native.ties import tie_to_parent

def say(*words): os.write(1, (" ".join(map(str, words)) + chr(10)).encode())  # a line whole, whoever writes beside

def forked(role, *arguments):
    '''A process of its own, without another import of torch; it ends with this one.'''
    parent, child = os.getpid(), os.fork()
    if child == 0:
        try:
            tie_to_parent(parent)
            role(*arguments)
        except BaseException: say("failed", role.__name__, traceback.format_exc())
        finally: os._exit(0)
    return child

def together(stream, name, others, batch_size=None):
    '''Attach, and wait until as many consumers have asked for the epoch.'''
    consumer = tsnb.attach(name, stream, batch_size=batch_size)
    loop = iter(consumer)
    while sum(c.state != "joining" for c in tsnb.streams.status(stream).consumers) < others: time.sleep(0.01)
    return consumer, loop
"""
"""What a script that forks its processes begins with: much cheaper than a script each."""


def runs(process: psutil.Process) -> bool:
    """Return whether a process has not ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


class Script:
    """One running script."""

    def __init__(self, code: str, *arguments: str, stdin: bool = False) -> None:
        text = PRELUDE + textwrap.dedent(code)
        self.process = forking.start(text, *arguments, stdin=stdin)
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def expect(self, start: str, timeout_s: float = 120.0) -> str:
        """Return the rest of the next line that starts so.

        Raises:
            AssertionError: The script ended, or was silent for too long; with what it said.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._queue.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                said = "\n".join(self.lines[-40:])
                raise AssertionError(f"no line {start!r}; exit {self.process.poll()}; it said:\n{said}")
            self.lines.append(line)
            if line.startswith(start):
                return line[len(start) :].strip()

    def answer(self, line: str) -> None:
        """Give it a line to read; it was started with `stdin=True`."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def send(self, number: signal.Signals) -> float:
        """Send a signal; return the moment."""
        self.process.send_signal(number)
        return time.monotonic()

    def kill(self) -> None:
        """Kill it, if it still runs, and let go of its output."""
        self.process.kill()
        self.process.wait()
        self._reader.join(5.0)  # longer only if a child of its own still has the pipe: `no_leftovers` tells
        if self.process.stdin is not None:
            self.process.stdin.close()
        if self.process.stdout is not None and not self._reader.is_alive():
            self.process.stdout.close()

    def end(self, timeout_s: float = 120.0) -> int:
        """Wait for the end; return the exit status."""
        return self.process.wait(timeout_s)


@contextmanager
def scripts() -> Iterator[list[Script]]:
    """Kill whatever still runs at the end of a test."""
    running: list[Script] = []
    try:
        yield running
    finally:
        for script in running:
            script.kill()
