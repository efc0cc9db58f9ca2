"""What a forked child inherits: no lock that a thread of its parent holds, no thread, and no work of its parent's."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HELD = """
import concurrent.futures, gc, importlib, os, pkgutil, queue, sys, threading
import tsnb

for found in pkgutil.walk_packages(tsnb.__path__, "tsnb."):
    if not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except ImportError:  # an extra that is not installed
            pass

LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore)
GONE = (threading.Thread, concurrent.futures.Executor)


def places():
    # every object at module level, and in the attributes of ours there
    for module in [m for name, m in sorted(sys.modules.items()) if name.partition(".")[0] == "tsnb"]:
        for name, value in sorted(vars(module).items()):
            yield f"{module.__name__}.{name}", value
            if type(value).__module__.startswith("tsnb") and hasattr(value, "__dict__"):
                for inner, held in vars(value).items():
                    yield f"{module.__name__}.{name}.{inner}", held


def locks():
    return {place: lock for place, lock in places() if isinstance(lock, LOCKS)}


held, go = threading.Event(), threading.Event()
ours = locks()
assert len(ours) > 10, ours


def hold():
    for lock in {id(lock): lock for lock in ours.values()}.values():
        lock.acquire()
    held.set()
    go.wait()


threading.Thread(target=hold, daemon=True).start()
held.wait()
# those that are taken by tsnb itself before a fork, and given back on both sides of it
for place in ("_entering", "_reading"):
    module = sys.modules["tsnb.records.database"]
    setattr(module, place, type(getattr(module, place))() if place == "_reading" else threading.Lock())
pid = os.fork()
if pid == 0:
    once = {id(lock): (place, lock) for place, lock in locks().items()}
    bad = [place for place, lock in once.values() if not lock.acquire(False)]
    bad += [place for place, value in places() if isinstance(value, GONE)]
    print("inherited:", *bad, flush=True)
    os._exit(bool(bad))
sys.stdout.flush()
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""

TRIALS = """
import multiprocessing, os, sys, threading, time
import tsnb


def work(number):
    print("number", number)
    return number


def again(queue):
    try:
        before = [trial.name for trial in tsnb.trials.own]
        trial = tsnb.run(work, name="same", number=2)
        trial.wait(120)
        queue.put((before, trial.state, trial.result(), len(tsnb.results())))
    except BaseException as error:
        queue.put(repr(error))
        raise


def lasting(seconds):
    time.sleep(seconds)


if __name__ == "__main__":
    tsnb.records.notify(lambda end: None)
    tsnb.run(work, name="same", number=1).wait(120)
    beside = tsnb.run(lasting, name="beside", seconds=600)
    while beside.state != "running":
        time.sleep(0.05)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=again, args=(queue,))
    child.start()
    print(queue.get(timeout=240))
    child.join(60)
    print(child.exitcode, beside.state, os.path.exists(f"/proc/{beside.pid}"))
    after = tsnb.run(work, name="same", number=3).wait(120)
    print(after.state, after.result())
    beside.stop()
"""


def run(code: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.slow
def test_no_lock_thread_or_executor_of_the_module_level_is_inherited_as_it_was() -> None:
    """A thread holds each at the moment of a fork, as it may any day: in the child nobody would give it back."""
    assert run(HELD) == "inherited:\n"


@pytest.mark.slow
def test_a_forked_child_runs_trials_of_its_own_and_leaves_its_parents_alone(tmp_path: Path) -> None:
    """By multiprocessing, in the middle of the parent's work: the names are its own, too."""
    script = tmp_path / "script.py"
    script.write_text(TRIALS)
    ran = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", str(script)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "TSNB_PROJECT_DIR": str(tmp_path)},
    )
    said = [line for line in ran.stdout.splitlines() if not line.startswith("[")]
    assert said == ["([], 'done', 2, 2)", "0 running True", "done 3"], ran.stdout + ran.stderr
