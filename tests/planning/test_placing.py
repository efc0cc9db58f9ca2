"""`tsnb.place`: which trials fit, from made-up figures and with real trials under a real memory limit."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.system.scripts import Script, scripts
from tsnb.machine.processes import held
from tsnb.planners.fluid import Job, LoaderCost, Resources
from tsnb.planners.scheduling import annealed
from tsnb.planning.co_runs import CoRun, at_once, gpu_advice, groups
from tsnb.planning.places import PlacedTrial, placed, said
from tsnb.planning.placing import Fitting
from tsnb.planning.ways import LISTED, Foretold
from tsnb.planning.wishes import TrialWish

GIB = float(1 << 30)
MIB = 1 << 20


def test_groups_fit_the_memory_and_hold_four_at_most() -> None:
    """The largest first; one that fits beside no other is in no group."""
    peaks = {"a": 3.0, "b": 2.0, "c": 2.0, "d": 1.0, "e": 6.0}
    found = groups(list(peaks), peaks, 6.0)
    assert found == [("a", "b", "d")], "e needs all of it, c is left alone"
    assert groups(["a"], peaks, 6.0) == []
    assert [len(each) for each in groups(list("abcd") * 2, peaks, math.inf)] == [4, 4]


def test_more_run_at_once_only_while_it_is_worth_it() -> None:
    """Two that are as fast as one alone are done in half the time; four that slow each other down are too many."""
    alone = dict.fromkeys("abcd", 100.0)

    def together(names: str, per_s: float) -> CoRun:
        return CoRun(tuple(names), dict.fromkeys(names, per_s), 2.0)

    assert together("ab", 100.0).gain(alone) == pytest.approx(2.0)
    assert at_once([together("ab", 95.0), together("abcd", 60.0)], alone) is None, (
        "four are the best: all that fit"
    )
    assert at_once([together("ab", 95.0), together("abcd", 30.0)], alone) == 2
    assert at_once([together("ab", 40.0)], alone) == 1
    assert at_once([], alone) is None, "nothing was seen together"
    assert at_once([together("ab", 95.0)], {"a": 100.0}) is None, "of b nothing is known alone"


def rows_of(
    peaks: dict[str, float], memory: float, gpu: dict[str, float] | None = None, most: int | None = None
) -> tuple[tuple[PlacedTrial, ...], Foretold]:
    """Return places of trials that take so much memory, and so much of a GPU of 10 GiB."""
    feed, wishes = LoaderCost(0.001, 0.001, 0.0), [TrialWish(name, print, {}, 1.0) for name in peaks]
    fits = [name for name in peaks if peaks[name] <= memory]
    jobs = [Job(name, 1000.0, 0.001, 0.001, peaks[name]) for name in fits]
    if gpu is not None:
        jobs = [
            replace(job, device="cuda:0", device_room_bytes=10 * GIB, device_bytes=gpu[job.name])
            for job in jobs
        ]
    found = annealed(jobs, Resources(feed, 4, memory, at_once=most))
    way = Foretold(LISTED, found.schedule, 0.1, found.order, found.at_once)
    runs = [CoRun(("a", "b"), {"a": 90.0, "b": 90.0}, 2.0)]
    by_name = {job.name: job for job in jobs}
    return placed(wishes, found, peaks, dict.fromkeys(peaks, 100.0), runs, {}, memory, by_name), way


def test_every_trial_has_a_place_and_a_reason() -> None:
    """What runs at once fits at every moment; what does not waits and says for which; what is too large says so."""
    peaks = {"a": 3 * GIB, "b": 2 * GIB, "c": 2 * GIB, "huge": 9 * GIB}
    rows, way = rows_of(peaks, 5 * GIB)
    by = {row.name: row for row in rows}
    for row in rows:
        if row.where != "nowhere":
            assert sum(peaks[name] for name in (row.name, *row.together)) <= 5 * GIB
    queued = [row for row in rows if row.where == "queued"]
    assert queued and all(row.after and f"when {row.after[-1]} has ended" in row.why for row in queued)
    assert "pass the memory" in queued[0].why
    assert by["huge"].where == "nowhere" and "smaller batches" in by["huge"].why
    assert 'tsnb.offload(model, optimizer, limit="2560MiB")' in by["huge"].why
    assert by["a"].group == 2 and by["a"].together_per_s == 90.0 and by["c"].group == 0
    text = said(rows, way, 5 * GIB, "of the machine's memory")
    assert text.startswith(
        "Together they need 16.0 GiB, more than the 5.0 GiB left of the machine's memory. "
    )
    assert "waits until there is room" in text and "huge: too large" in text and "four times in five" in text
    rows, way = rows_of({"a": GIB, "b": GIB}, 5 * GIB)
    assert {row.where for row in rows} == {"now"}
    assert said(rows, way, 5 * GIB, "of the machine's memory").startswith(
        "Both fit at once: 2.0 GiB of the 5.0 GiB left of the machine's memory"
    )


def test_a_trial_that_waits_though_it_would_fit_is_not_said_to_lack_room() -> None:
    """Where fewer at once were measured to be faster, the words are those, with one and with several."""
    peaks = dict.fromkeys("abc", GIB)
    rows, way = rows_of(peaks, 50 * GIB, most=1)
    assert [row.where for row in rows] == ["now", "queued", "queued"] and not any(row.lacks for row in rows)
    text = said(rows, way, 50 * GIB, "of the machine's memory")
    assert text.startswith("All 3 would fit at once: 3.0 GiB of the 50.0 GiB left of the machine's memory.")
    assert "1 of 3 starts now: a." in text and "room" not in text
    assert "2 wait for a place, as one at a time is the fastest: b, c." in text
    rows, way = rows_of({"a": 3 * GIB, "b": 3 * GIB}, 5 * GIB)
    assert rows[1].lacks == "the memory"
    assert "1 waits until there is room: b." in said(rows, way, 5 * GIB, "of the machine's memory")


def test_what_does_not_fit_a_gpu_is_queued_for_its_memory() -> None:
    """No group that it does not hold is run, the reason is named, and the table has each trial's part of it."""
    peaks, gpu = dict.fromkeys("abc", GIB), {"a": 6 * GIB, "b": 3 * GIB, "c": 6 * GIB}
    rows, way = rows_of(peaks, 50 * GIB, gpu)
    queued = next(row for row in rows if row.where == "queued")
    assert queued.name in "ac" and queued.why.startswith("it would pass the memory of cuda:0;")
    assert (queued.device, queued.device_bytes) == ("cuda:0", 6 * GIB)
    jobs = [
        Job(n, 1.0, 0.0, 0.0, GIB, device="cuda:0", device_bytes=gpu[n], device_room_bytes=10 * GIB)
        for n in gpu
    ]
    assert groups("abc", peaks, 50 * GIB, {job.name: job for job in jobs}) == [("a", "b")]
    found = Fitting(rows, (), way, 50 * GIB, "of the machine's memory", "", advice=("Start tsnb mps.",))
    assert found.table[0][2] == "GPU" and found.table[1][2].startswith("cuda:0, ")
    assert "Start tsnb mps." in repr(found) and "Start tsnb mps." in found._repr_html_()
    told = found.to_dict()
    assert told["advice"] == ["Start tsnb mps."] and told["trials"][0]["device"] == "cuda:0"
    assert told["basis"].startswith("Measured: each trial alone")
    plain = Fitting(rows_of(peaks, 50 * GIB)[0], (), way, 50 * GIB, "of the machine's memory", "")
    assert "GPU" not in plain.table[0] and plain.to_dict()["trials"][0]["device"] is None


def test_several_on_one_gpu_are_told_how_they_share_it() -> None:
    """As `tsnb.devices()` says it, by what is found: where two compute on the same one, and only there."""

    def told() -> Any:
        return SimpleNamespace(advice=("Take MPS.",))

    on = {name: Job(name, 1.0, 0.0, 0.0, device="cuda:0") for name in "ab"}
    assert gpu_advice(on, told) == ("Take MPS.",)
    assert gpu_advice({**on, "b": Job("b", 1.0, 0.0, 0.0, device="cuda:1")}, told) == ()
    assert gpu_advice({"a": Job("a", 1.0, 0.0, 0.0), "b": Job("b", 1.0, 0.0, 0.0)}, told) == ()


def test_memory_that_comes_free_with_a_process_is_its_own() -> None:
    """What a fork shares with its parent is not the child's; what it takes is, and a short peak is known afterwards."""
    shared = bytearray(b"x") * (64 * MIB)
    read, write = os.pipe()
    done, end = os.pipe()
    child = os.fork()
    if child == 0:
        own = bytearray(b"y") * (32 * MIB)
        peak = bytearray(b"z") * (48 * MIB)
        del peak
        os.write(write, b".")
        os.read(done, 1)
        os._exit(len(own) + len(shared) == 0)
    try:
        os.read(read, 1)
        found = held(child)
        assert found is not None
        assert 32 * MIB <= found.own_bytes < 60 * MIB
        assert found.most_bytes >= found.own_bytes + 40 * MIB
    finally:
        os.write(end, b".")
        os.waitpid(child, 0)
        for descriptor in (read, write, done, end):
            os.close(descriptor)
    assert held(child) is None


# -- really ----------------------------------------------------------------------------------------------

LIMIT = 1000 * MIB
SIZES = (40, 80, 120, 160, 200, 240, 280, 320)
"""MiB that each of eight trials takes on top of what a trial needs anyhow."""

TRIALS = f"""
SOURCE = '''
def train(mib, epochs=2):
    import time, torch, tsnb
    from pathlib import Path
    Path("/proc/self/oom_score_adj").write_text("900")  # the test's script is not to be killed in its place
    held = []
    for _ in range(epochs):
        for batch in tsnb.attach():
            if len(held) < 4:  # grows over its first batches, as gradients and an optimizer's state do
                held.append(torch.ones(mib * (1 << 18) // 4))
            time.sleep(0.02)
    return sum(len(each) for each in held) * 4 >> 20
'''
made = {{"__name__": "__main__"}}
exec(SOURCE, made)
sizes = {SIZES}
trials = {{f"t{{mib}}": (made["train"], {{"mib": mib}}) for mib in sizes}}
loader = DataLoader(Numbers(200), 4, shuffle=True)
"""


def _group() -> Path | None:
    """Return a new control group with a limit of its own, inside of ours; None where that is not permitted."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        version = 2 if not controllers else 1 if controllers == "memory" else 0
        base = Path("/sys/fs/cgroup") / ("memory" if version == 1 else "") / path.lstrip("/")
        limit = "memory.limit_in_bytes" if version == 1 else "memory.max"
        made = base / f"tsnb-test-placing-{os.getpid()}"
        if not version:
            continue
        try:
            made.mkdir()
            if (made / limit).exists():
                (made / limit).write_text(str(LIMIT))
                return made
            made.rmdir()
        except OSError:
            continue
    return None


@pytest.fixture
def group() -> Iterator[Path]:
    made = _group()
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


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_eight_trials_under_a_limit_are_lost_at_once_and_none_is_when_they_are_placed(
    group: Path,
) -> None:
    """In a container whose memory holds some of them: started all at once, the system kills; placed, they all end."""
    code = f"""
open("{group}/cgroup.procs", "w").write(str(os.getpid()))
{TRIALS}
from tsnb.experiments.expected_memory import expected_memory
from tsnb.records.run import Run, RunStart
state = torch.random.get_rng_state()
found = tsnb.place(trials, loader=loader, seconds=0.5)
assert torch.equal(torch.random.get_rng_state(), state)
assert not tsnb.streams.list() and not list(tsnb.trials)
print(found, file=sys.stderr, flush=True)
rows = {{row.name: row for row in found.rows}}
for mib in sizes:
    assert rows[f"t{{mib}}"].peak_bytes[0] >= mib << 20, rows[f"t{{mib}}"]
assert found.memory_bytes < {LIMIT} and "control group" in found.memory_where
assert {{"queued", "now"}} == {{row.where for row in found.rows}}
known = {{name: expected_memory(Run.begin(RunStart(name, "x = 1"))) for name in ("t320", "train-mib320")}}
assert {{each.because for each in known.values()}} == {{"as tsnb.place measured"}}, known
assert {{each.needs_bytes for each in known.values()}} == {{int(rows["t320"].peak_bytes[1])}}, known
done = found.run()
say("placed", *sorted(trial.state for trial in done.values()))
assert [done[f"t{{mib}}"].result() for mib in sizes] == list(sizes)
tsnb.trials.clear()
with tsnb.serve(loader, name="all"):
    swept = tsnb.sweep(made["train"], grid={{"mib": list(sizes)}}, at_once=8, stream="all")
    try: swept.wait()
    except Exception as error: print(error, file=sys.stderr)
    say("at once", *sorted(trial.state for trial in swept.values()))
say("end")
"""
    with scripts() as running:
        script = Script(code)
        running.append(script)
        assert script.expect("placed", 500) == " ".join(8 * ["done"])
        assert "lost" in script.expect("at once", 300).split()
        script.expect("end", 60)
        script.end()
