"""Runs the few tests that failed in a whole run once more, alone, and says which pass then: `make test` calls it.

The whole run keeps every core busy for a quarter of an hour with processes that are killed, stopped and starved. A test
that fails only there is still a fault, of the test or of what it tests, and its name is printed for that; but it tells
nothing of the change that happens to be tested. Many failures, or one that stays, fail the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAILED = Path(".pytest_cache/v/cache/lastfailed")
MOST = 3
"""More than so many are no accident."""
TESTS_FAILED = 1
"""What pytest exits with when tests failed, and nothing else was wrong."""


def main(status: int, root: Path = ROOT) -> int:
    """Look at how a run ended; return the exit status that it deserves.

    Args:
        status: What pytest exited with.
        root: Where it ran.
    """
    failed = _failed(root)
    if status != TESTS_FAILED or not 0 < len(failed) <= MOST:
        return status
    print(f"\n{len(failed)} failed among all the others. Once more, alone:", flush=True)
    for test in failed:
        if subprocess.run([sys.executable, "-m", "pytest", test], cwd=root, check=False).returncode:
            return status
    print("\nUNSTABLE: failed in the whole run, passed alone. Please find out why before it is forgotten:")
    print("\n".join(f"  {test}" for test in failed))
    return 0


def _failed(root: Path) -> list[str]:
    try:
        return sorted(json.loads((root / FAILED).read_text()))
    except FileNotFoundError:
        return []


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
