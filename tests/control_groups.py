"""Control groups with a limit on memory, as containers have, for processes that a test starts."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["limited_group"]


@contextmanager
def limited_group(limit_bytes: int) -> Iterator[Path]:
    """Give a new control group inside of ours, for so long; skip the test where that is not permitted."""
    made = _made(limit_bytes)
    if made is None:
        pytest.skip("no control group can be made here")
    yield made
    deadline = time.monotonic() + 30
    while True:
        try:
            made.rmdir()
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def _made(limit_bytes: int) -> Path | None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        version = 2 if not controllers else 1 if controllers == "memory" else 0
        base = Path("/sys/fs/cgroup") / ("memory" if version == 1 else "") / path.lstrip("/")
        limit = "memory.limit_in_bytes" if version == 1 else "memory.max"
        made = base / f"tsnb-test-{os.getpid()}"
        if not version:
            continue
        try:
            made.mkdir()
            if (made / limit).exists():
                (made / limit).write_text(str(limit_bytes))
                return made
            made.rmdir()
        except OSError:
            continue
    return None
