"""A machine that lends memory, as the tests have it: a process of its own with a shard, on the loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tsnb.caching.owners import Lender

__all__ = ["LendingMachine"]

CODE = """
import sys
from tsnb.caching.shard import Shard
words = sys.stdin.readline().split()
shard = Shard("127.0.0.1", int(words[1]), bytes.fromhex(words[0]))
print(shard.port, flush=True)
for line in sys.stdin:
    shard.give_back(int(line))
    print(shard.used_bytes, flush=True)
shard.close()
"""


class LendingMachine:
    """One such process; ends with the test.

    Args:
        name: The machine's.
        token: The stream's.
        room_bytes: What it lends.
    """

    def __init__(self, name: str, token: bytes, room_bytes: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        port = int(self._said(f"{token.hex()} {room_bytes}"))
        self.lender = Lender(name, "127.0.0.1", port, room_bytes)

    def _said(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def give_back(self, size: int) -> int:
        """Have it give memory back; return what it uses then."""
        return int(self._said(str(size)))

    def stand_still(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it, however it is."""
        self.process.kill()
        self.process.communicate()
