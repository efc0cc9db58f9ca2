"""What is looked for before a fork in the middle of a trial's code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

OPEN_FILES = """
import os, sqlite3, subprocess, sys
from tsnb.kernels.in_kernel.hazards import _writes

log = os.open("own.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for number in (1, 2):
    os.dup2(log, number)
copy, (_, pipe) = os.dup(log), os.pipe()
sys.stdout._original_stdstream_copy = copy  # as ipykernel has it, which turns 1 and 2 to pipes
for number in (1, 2):
    os.dup2(pipe, number)
os.close(log)
found = [_writes()]
database = sqlite3.connect("own.sqlite", isolation_level=None)
database.execute("PRAGMA journal_mode=WAL")
database.execute("CREATE TABLE rows (value)")
database.execute("BEGIN IMMEDIATE")
found.append(_writes())
other = "import sqlite3; sqlite3.connect('own.sqlite', 0).execute('BEGIN IMMEDIATE')"
found.append(subprocess.run([sys.executable, "-c", other]).returncode != 0)
database.execute("COMMIT")
with open("table.csv", "w"):
    found.append(_writes())
found.append(_writes())
os.write(copy, repr(found).encode())
"""


def test_a_database_and_the_log_need_no_look_for_files_with_text_in_their_buffers(tmp_path: Path) -> None:
    """A trial always has both open, and would stand still for the look; no lock on the database is given up."""
    subprocess.run([sys.executable, "-c", OPEN_FILES], cwd=tmp_path, check=True, timeout=120)
    said = (tmp_path / "own.log").read_text().splitlines()[-1]
    log, database, locked, table, closed = eval(said)
    assert not log, "the log is seen through the copies of its descriptors that ipykernel keeps"
    assert not database
    assert locked, "another process could write into the database in the middle of a transaction"
    assert table, "a file of the user's"
    assert not closed
