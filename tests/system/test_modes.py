"""Modes of a real stream: chosen at its start or live, from anywhere, and nothing is lost by it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tsnb
from tests.system.scripts import ROOT
from tsnb.config import MAX_WEIGHTS
from tsnb.errors import ProducerGone
from tsnb.stream.producer.steering import Contention
from tsnb.telemetry.observer import balance
from tsnb.telemetry.readings import ConsumerReading, StreamReading

pytestmark = pytest.mark.system

BATCHES = 2000
"""Many times the wide window: nobody is through while somebody else is looked at."""


class Numbers:
    """An epoch of batches of one number each."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter([k] for k in range(BATCHES))

    def __len__(self) -> int:
        return BATCHES


class Trial(threading.Thread):
    """Takes one epoch; `step_s` may be changed while it runs."""

    def __init__(self, name: str, step_s: float) -> None:
        super().__init__()
        self.label, self.step_s = name, step_s
        self.taken: list[int] = []
        self.start()

    def run(self) -> None:
        with tsnb.attach(self.label, "modes") as consumer:
            for batch in consumer:
                self.taken += batch
                if self.step_s:
                    time.sleep(self.step_s)


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def named(reading: StreamReading, name: str) -> ConsumerReading:
    return next(c for c in reading.consumers if c.name == name)


def test_a_change_of_mode_widens_and_narrows_the_window_and_loses_nothing() -> None:
    """In step, free, by weight, in step again, while two read: each has every batch once, in order."""
    with tsnb.serve(Numbers(), name="modes", window=4, late_join=1.0) as producer:
        slow = Trial("slow", 0.05)
        until(lambda: bool(slow.taken))  # from now on the window holds the other one
        fast = Trial("fast", 0.0)
        until(lambda: len(slow.taken) > 3 and len(fast.taken) > 3)
        assert producer.status().window == 4
        producer.balance("free")
        until(lambda: named(producer.status(), "slow").lag > 20)
        reading = producer.status()
        assert reading.pacing == "free"
        assert 20 < reading.window_fill <= reading.window
        producer.balance("weights", {"slow": 2})
        reading = producer.status()
        assert (reading.pacing, reading.weights) == ("weights", {"slow": 2.0})
        assert [named(reading, name).weight for name in ("fast", "slow")] == [1.0, 2.0]
        producer.balance("together")
        published = producer.status().batches  # what lay ready may still be taken
        until(lambda: len(slow.taken) > 10)
        if len(slow.taken) + 4 < published:
            assert producer.status().batches <= published + 1, (
                "the loader rests, but for the batch in its hand"
            )
        slow.step_s = 0.0
        fast.join(120)
        slow.join(120)
    assert fast.taken == slow.taken == list(range(BATCHES))


@pytest.mark.slow
def test_by_weight_the_heavy_one_has_its_share_of_compute() -> None:
    """Two equal trials of weights 1 and 3: the light one is held back, not for the loader's sake."""
    with tsnb.serve(
        Numbers(), name="modes", pacing="weights", weights={"heavy": 3}, late_join=1.0
    ) as producer:
        watched = producer._core.dispatch.balance
        watched.note_contended = lambda contended: None  # type: ignore[method-assign]  # sleeping needs no core
        light, heavy = Trial("light", 0.02), Trial("heavy", 0.02)
        until(lambda: min(len(light.taken), len(heavy.taken)) > 3)  # one of them may have begun much earlier
        before, had = producer.status(), len(heavy.taken)
        until(lambda: len(heavy.taken) > had + 150, 120)
        reading = producer.status()

        def grown(name: str, what: str) -> float:
            return float(getattr(named(reading, name), what) - getattr(named(before, name), what))

        ratio = grown("heavy", "computing_s") / grown("light", "computing_s")
        assert 2.0 < ratio < 4.0, reading.consumers
        assert grown("light", "held_s") > grown("light", "waiting_s")
        light.step_s = heavy.step_s = 0.0
        light.join(120)
        heavy.join(120)
    assert light.taken == heavy.taken == list(range(BATCHES))


@pytest.mark.slow
def test_held_back_for_one_that_stands_still_it_goes_on_as_soon_as_cores_are_idle() -> None:
    """The producer goes on looking once a second, though by weight nothing is due for minutes."""
    competing, stands, ends = [True], threading.Event(), threading.Event()

    def stand_still() -> None:
        with tsnb.attach("heavy", "modes") as consumer:
            for _ in consumer:
                stands.set()
                ends.wait(100)
                break

    with tsnb.serve(
        Numbers(), name="modes", pacing="weights", weights={"heavy": 1000}, late_join=1.0
    ) as producer:
        producer._server._contention.look = lambda pids: competing[0]  # type: ignore[method-assign]
        heavy = threading.Thread(target=stand_still)
        heavy.start()
        assert stands.wait(30)
        light = Trial("light", 0.3)
        until(lambda: any(c.name == "light" and c.state == "held back" for c in producer.status().consumers))
        had = len(light.taken)
        competing[0] = False
        until(lambda: len(light.taken) > had + 3)
        light.step_s = 0.0
        ends.set()
        light.join(120)
        heavy.join(120)
    assert light.taken == list(range(BATCHES))


def test_an_observer_changes_the_mode_and_hears_that_it_has() -> None:
    """From another process: the command line says what holds now, and whose weight belongs to nobody."""
    command = [sys.executable, "-m", "tsnb", "balance"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def typed(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *words], env=environment, capture_output=True, text=True, check=False
        )

    with tsnb.serve(Numbers(), name="modes") as producer:
        done = typed("modes", "weights", "--weight", "resnet50=2")
        assert done.returncode == 0, done.stderr
        assert "modes: pacing weights (resnet50 2, others 1)" in done.stdout
        assert (
            "no trial named 'resnet50' is attached yet. Its weight takes effect when it attaches"
            in done.stdout
        )
        assert producer.status().weights == {"resnet50": 2.0}
        assert balance(None, "free").window > 8
        failed = typed("modes", "fre")
        assert failed.returncode == 1
        assert "Did you mean 'free'?" in failed.stderr
        assert "Traceback" not in failed.stderr
    with pytest.raises(ProducerGone, match="Serve its loader again"):
        producer.balance("together")


@pytest.mark.parametrize(
    ("mode", "weights", "message"),
    [
        ("fast", None, "Choose one of together, weights, free"),
        ("weights", {"a": 0}, "Pass a number above 0"),
        ("weights", {"a": float("nan")}, "Pass a number above 0"),
        ("weights", {"a": 1e16}, "from 1e-6 to 1e6"),
        ("weights", {"a": 1e-300}, "from 1e-6 to 1e6"),
        ("weights", {"a b": 2}, "cannot name a trial"),
        ("weights", {f"a{k}": 1.0 for k in range(MAX_WEIGHTS + 1)}, f"Pass at most {MAX_WEIGHTS}"),
        ("together", {"a": 2}, "Choose 'weights', or leave out a"),
    ],
)
def test_what_cannot_be_divided_by_is_refused_with_what_to_do(
    mode: str, weights: dict[str, float] | None, message: str
) -> None:
    """At the start and live; a stream that runs stays as it was."""
    with pytest.raises(ValueError, match=message):
        tsnb.serve(Numbers(), name="modes", pacing=mode, weights=weights)
    with tsnb.serve(Numbers(), name="modes") as producer:
        with pytest.raises(ValueError, match=message):
            producer.balance(mode, weights)
        assert producer.status().pacing == "together"


class Cores:
    """A machine of four cores whose use is told by hand."""

    used_s = 0.0

    def cores(self) -> int:
        return 4

    def cpu_s(self) -> float:
        return self.used_s


def test_with_a_core_to_spare_trials_do_not_compete_but_with_gpus_nobody_knows(tmp_path: Path) -> None:
    """Idle cores are seen from the CPU time of the last second; two processes with a GPU open always compete."""
    machine = Cores()
    watch = Contention(machine, gpu_files=str(tmp_path))  # type: ignore[arg-type]
    assert watch.look([os.getpid()]), "nothing to compare with"
    time.sleep(0.02)
    assert not watch.look([os.getpid()]), "four cores were idle"
    time.sleep(0.02)
    machine.used_s += 1000.0
    assert watch.look([os.getpid()]), "none was"
    script = "import sys; f = open(sys.argv[1]); print(flush=True); sys.stdin.read()"
    (tmp_path / "nvidia0").touch()
    with (
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "nvidia0")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as child,
        (tmp_path / "nvidia0").open(),
    ):
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(0.02)
        assert watch.look([os.getpid(), child.pid])
        time.sleep(0.02)
        assert not watch.look([os.getpid()]), "one alone competes with nobody"
        child.communicate()
