"""A trial of which it is known what it takes is queued by itself where memory is short, and its row says why."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tsnb
from tests.by_value import by_value
from tests.promises import HANG_S
from tests.records.recorded import begun, trained
from tsnb.discovery.registry import describe_origin
from tsnb.experiments import trials
from tsnb.experiments.in_kernel import peak_memory
from tsnb.experiments.in_kernel.peak_memory import PeakMemory
from tsnb.experiments.memory_queue import MemoryQueue, expected_memory, measured
from tsnb.experiments.plan import TrialOptions
from tsnb.experiments.running import own_life
from tsnb.machine.memory import Free
from tsnb.machine.processes import HAS_PROC, HeldMemory, largest_bytes

MIB = 1 << 20


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own: what other tests' trials took is not known in it, nor what they placed."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    monkeypatch.setattr("tsnb.experiments.memory_queue._planned", {})
    return tmp_path / ".tsnb"


def test_a_process_is_looked_at_in_full_only_when_it_can_have_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel walks all its pages for that; what is told only grows, and the last look tells all of it."""
    seen, own, looks = [100 * MIB], [60 * MIB], []
    monkeypatch.setattr(peak_memory, "HAS_PROC", True)
    monkeypatch.setattr(peak_memory, "largest_bytes", lambda _: seen[0])

    def held(pid: int) -> HeldMemory:
        looks.append(pid)
        return HeldMemory(own[0], own[0])

    monkeypatch.setattr(peak_memory, "held", held)
    told: list[int] = []
    peak = PeakMemory(told.append)
    for _ in range(3):
        peak.look()
    assert told == [60 * MIB] and len(looks) == 1
    seen[0], own[0] = 102 * MIB, 62 * MIB
    peak.look()
    assert len(looks) == 1, "it has grown by two in a hundred"
    peak.look(last=True)
    assert told == [60 * MIB, 62 * MIB]
    seen[0], own[0] = 200 * MIB, 40 * MIB
    peak.look()
    assert told == [60 * MIB, 62 * MIB], "it holds less of its own"


@pytest.mark.skipif(not HAS_PROC, reason="the system tells of no process")
def test_the_largest_memory_of_a_process_is_known() -> None:
    """As the system has counted it; of one that does not exist nothing is said."""
    found = largest_bytes(os.getpid())
    assert found is not None and found > MIB
    assert largest_bytes(1 << 30) is None


def test_what_a_trial_takes_is_known_from_its_runs_in_this_notebook(project: Path) -> None:
    """From the last that was done on; another notebook's runs of that name say nothing of it."""
    run = begun("cnn", origin="notebook a.ipynb")
    assert expected_memory(run) is None
    for state, peak, origin in (
        ("done", 900, "a"),
        ("done", 300, "a"),
        ("crashed", 500, "a"),
        ("failed", 0, "a"),
        ("done", 9000, "b"),
    ):
        former = trained("cnn", [1.0], state=state, origin=f"notebook {origin}.ipynb")
        if peak:
            former.peak(peak * MIB)
            former.peak(MIB)  # another process of it, that took less
    run = begun("cnn", origin="notebook a.ipynb")
    assert expected_memory(run) == (500 * MIB, "as its run 4 took before it crashed")
    trained("cnn", [1.0], origin="notebook a.ipynb").peak(200 * MIB)
    run = begun("cnn", origin="notebook a.ipynb")
    assert expected_memory(run) == (200 * MIB, "as its run 8 took")
    run.peak(700 * MIB)
    assert expected_memory(run) == (700 * MIB, "as it took before"), "its process died, and it starts again"
    table = tsnb.results("cnn", all_runs=True)
    assert table["peak_bytes"].fillna(0).tolist()[1:4] == [900 * MIB, 300 * MIB, 500 * MIB]


def test_what_place_measured_is_known_too(project: Path) -> None:
    """Under the name that it was given, and that which `tsnb.run` would give it; a real run knows better."""
    measured(("placed-small", "train-width32"), 64 * MIB)
    for name in ("placed-small", "train-width32"):
        assert expected_memory(begun(name)) == (64 * MIB, "as tsnb.plan measured")
    trained("placed-small", [1.0]).peak(80 * MIB)
    assert expected_memory(begun("placed-small")) == (80 * MIB, "as its run 2 took")


def test_nothing_is_a_size_here() -> None:
    """It says that the trial is never queued, and is kept as an option that was given."""
    for zero in (0, 0.0, "0"):
        options = TrialOptions(needs=zero)  # type: ignore[arg-type]
        options.check("cnn")
        assert options.needs == 0 and options.given == {"needs": 0}
    with pytest.raises(ValueError, match='Pass a size with its unit, such as "512MiB" or "2GiB", or 0'):
        TrialOptions(needs=-1).check("cnn")


SOURCE = """
def hold(mib, path):
    import os, time
    block = bytearray(os.urandom(1 << 20) * mib)
    while not os.path.exists(path):
        time.sleep(0.01)
    return len(block)
"""


@pytest.fixture
def hold() -> Iterator[Callable[..., int]]:
    """A function that travels by value, takes so much memory, and returns once a file is there."""
    yield by_value(SOURCE, "hold")
    trials.clear()


def until(fact: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + HANG_S
    while not fact():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def peak_of(name: str) -> float:
    """What the records have of the last run of a name; 0: nothing."""
    return float(tsnb.results(name)["peak_bytes"].fillna(0).iloc[0])


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.skipif(not HAS_PROC, reason="the system does not tell what a process took")
def test_a_trial_is_queued_by_what_its_last_run_took_and_says_so(
    project: Path,
    hold: Callable[..., int],
    tmp_path: Path,
    printed: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only where memory is short: it starts when there is enough, and at once with needs=0."""
    free = [4096 * MIB]
    monkeypatch.setattr(own_life, "_memory", MemoryQueue(lambda: Free(free[0], "of a test's memory")))
    path = tmp_path / "go"
    path.touch()
    tsnb.run(hold, mib=300, path=str(path), name="large").wait(HANG_S)
    assert 300 * MIB <= peak_of("large") < 1200 * MIB
    again = tsnb.run(hold, mib=300, path=str(path), name="large").wait(HANG_S)
    assert "queued" not in printed(), "there is enough: nothing changes"
    free[0] = 100 * MIB
    again = tsnb.run(hold, mib=300, path=str(path), name="large")
    until(lambda: again.waits_for)
    why = again.waits_for
    assert (
        why.startswith("it needs ")
        and "as its run 2 took, and 100.0 MiB are free (of a test's memory)" in why
    )
    assert f"queued: {why}" in repr(trials)
    until(lambda: f"trial 'large' queued: {why}" in printed())
    assert again.state == "queued"
    free[0] = 4096 * MIB
    assert again.wait(HANG_S).result() == 300 * MIB and not again.waits_for
    free[0] = 100 * MIB
    assert again.rerun(needs=0).wait(HANG_S).result() == 300 * MIB


@pytest.mark.system
@pytest.mark.skipif(not HAS_PROC, reason="the system does not tell what a process took")
def test_a_trial_that_was_killed_is_known_by_what_it_had_taken(
    project: Path, hold: Callable[..., int], tmp_path: Path
) -> None:
    """It cannot say so at its end: what it has taken by then is in its record."""
    trial = tsnb.run(hold, mib=300, path=str(tmp_path / "never"), name="killed")
    until(lambda: peak_of("killed") >= 300 * MIB)
    pid = trial.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: trial.state == "crashed")
    found = expected_memory(begun("killed", origin=describe_origin()))
    assert found is not None and found.needs_bytes >= 300 * MIB
    assert found.because == "as its run 1 took before it crashed"
