"""JSON from elsewhere becomes dataclasses: from several threads at once, from the first line on."""

from __future__ import annotations

import subprocess
import sys

import pytest

FIRST_LINES = """
import json, sys, threading
from dataclasses import make_dataclass
from tsnb.text.foreign import Number, Text, Whole, read_json

def family(number):
    inner = make_dataclass(f"Inner{number}", [(f"a{k}", Number, 0.0) for k in range(20)])
    middle = make_dataclass(f"Middle{number}", [("inner", inner)] + [(f"b{k}", Text, "") for k in range(20)])
    return make_dataclass(
        f"Outer{number}", [("inner", inner), ("middle", list[middle])] + [(f"c{k}", Whole, 0) for k in range(20)]
    )

def read(cls, gate, found):
    gate.wait()
    found.append(read_json(cls, TEXT).middle[0].inner.a2)

TEXT = json.dumps({"inner": {"a1": 1.0}, "middle": [{"inner": {"a2": 2.0}}]})
sys.setswitchinterval(1e-6)
for number in range(100):
    cls, gate, found = family(number), threading.Barrier(4), []
    threads = [threading.Thread(target=read, args=(cls, gate, found)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [2.0] * 4, found
"""


@pytest.mark.timeout(120)
def test_the_first_lines_of_a_class_are_read_by_several_threads_at_once() -> None:
    """Two panels of a notebook begin together; it ended the process."""
    done = subprocess.run([sys.executable, "-c", FIRST_LINES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
