"""Interrupts while a process forks: in processes of their own, since what is done at forks stays."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tsnb
from tsnb.native import forks

SCRIPT = """
import os, signal, sys, threading, time
where, guarded = sys.argv[1], sys.argv[2] == "guarded"
done = []

def at(moment):
    def act():
        if moment == where:
            signal.raise_signal(signal.SIGINT)
        done.append(moment)
    return act

os.register_at_fork(before=at("before"), after_in_parent=at("after"))
if guarded:
    from tsnb.native.forks import guard
    guard()
    guard()
for _ in range(10):
    done.clear()
    try:
        if not (child := os.fork()):
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            os._exit(0)
        time.sleep(600)  # an interrupt wakes it
        print("trained on", done)
    except KeyboardInterrupt:
        print("interrupted", done)
    assert os.waitpid(child, 0)[1] == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""


@pytest.mark.parametrize("where", ["before", "after"])
def test_an_interrupt_of_what_is_done_at_a_fork_comes_after_it(where: str) -> None:
    """And what is done is done to its end: the database's locks are taken before a fork, and given back after it."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, where, "guarded"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert ran.stdout.splitlines() == ["interrupted ['before', 'after']"] * 10, ran.stderr
    assert "ignored" not in ran.stderr


def test_the_note_on_forks_and_exits_names_every_module_that_does_something_then() -> None:
    """Whoever looks for what happens at a fork, or at the end of a process, finds all of it in one place."""
    told = (ast.get_docstring(ast.parse(Path(forks.__file__).read_text(encoding="utf-8"))) or "").split(
        "NOTE."
    )[1]
    package = Path(tsnb.__file__).parent
    acting = re.compile(r"^[ @]*(os\.register_at_fork|atexit\.register)\b", re.MULTILINE)
    missing = []
    for path in sorted(package.rglob("*.py")):
        module = ".".join(path.relative_to(package).with_suffix("").parts)
        if path != Path(forks.__file__) and acting.search(path.read_text(encoding="utf-8")):
            missing += [module] if f"`{module}`" not in told else []
    assert not missing, f"the note in tsnb/native/forks.py does not name {missing}"
