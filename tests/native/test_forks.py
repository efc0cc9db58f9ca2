"""Interrupts while a process forks: in processes of their own, since what is done at forks stays."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
