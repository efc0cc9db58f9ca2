"""Which trials of a plan fit, from made-up figures and with real trials under a real memory limit."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.control_groups import limited_group
from tests.system.scripts import Script, scripts
from tsnb.machine.processes import held
from tsnb.planners.fluid import Job, LoaderCost, Resources
from tsnb.planners.scheduling import annealed, fits
from tsnb.planning.places import PlacedTrial, gpu_advice, memory_text, placed
from tsnb.planning.ways import LISTED, Foretold

GIB = float(1 << 30)
MIB = 1 << 20


def rows_of(
    peaks: dict[str, float], memory: float, gpu: dict[str, float] | None = None, most: int | None = None
) -> tuple[PlacedTrial, ...]:
    """Return places of trials that take so much memory, and so much of a GPU of 10 GiB."""
    feed = LoaderCost(0.001, 0.001, 0.0)
    jobs = [Job(name, 1000.0, 0.001, 0.001, size) for name, size in peaks.items()]
    if gpu is not None:
        jobs = [
            replace(job, device="cuda:0", device_room_bytes=10 * GIB, device_bytes=gpu[job.name])
            for job in jobs
        ]
    fit = [job for job in jobs if fits(job, memory)]
    found = annealed(fit, Resources(feed, 4, memory, at_once=most))
    way = Foretold(LISTED, found.schedule, 0.1, found.order, found.at_once)
    return placed(way, {job.name: job for job in jobs}, memory)


def test_every_trial_has_a_place_and_a_reason() -> None:
    """What runs at once fits at every moment; what does not waits and says for which; what is too large says so."""
    peaks = {"a": 3 * GIB, "b": 2 * GIB, "c": 2 * GIB, "huge": 9 * GIB}
    rows = rows_of(peaks, 5 * GIB)
    by = {row.name: row for row in rows}
    for row in rows:
        if row.where != "nowhere":
            assert sum(peaks[name] for name in (row.name, *row.together)) <= 5 * GIB
    queued = [row for row in rows if row.where == "queued"]
    assert queued and all(row.after and f"when {row.after[-1]} has ended" in row.why for row in queued)
    assert "exceed the memory" in queued[0].why
    assert by["huge"].where == "nowhere" and rows[-1].name == "huge" and "smaller batches" in by["huge"].why
    text = memory_text(rows, 5 * GIB, "of the machine's memory")
    assert text == (
        "Together they need 7.0 GiB, more than the 5.0 GiB left of the machine's memory. "
        f"{queued[0].name} waits until there is room."
    )
    rows = rows_of({"a": GIB, "b": GIB}, 5 * GIB)
    assert {row.where for row in rows} == {"now"}
    assert memory_text(rows, 5 * GIB, "of the machine's memory") == (
        "Both fit into memory: 2.0 GiB of the 5.0 GiB left of the machine's memory."
    )
    assert memory_text(rows, math.inf, "") == memory_text(rows_of({"a": 9 * GIB}, GIB), GIB, "") == ""


def test_a_trial_that_waits_though_it_would_fit_is_not_said_to_lack_room() -> None:
    """Where fewer at once are faster, the words are those."""
    rows = rows_of(dict.fromkeys("abc", GIB), 50 * GIB, most=1)
    assert [row.where for row in rows] == ["now", "queued", "queued"] and not any(row.lacks for row in rows)
    assert rows[1].why == "one at a time is fastest; it starts when a has ended"
    text = memory_text(rows, 50 * GIB, "of the machine's memory")
    assert text == "All 3 fit into memory: 3.0 GiB of the 50.0 GiB left of the machine's memory."


def test_what_does_not_fit_a_gpu_is_queued_for_its_memory() -> None:
    """The reason is named; one that is larger than all of the GPU runs nowhere."""
    peaks, gpu = dict.fromkeys("abc", GIB), {"a": 6 * GIB, "b": 3 * GIB, "c": 6 * GIB}
    rows = rows_of(peaks, 50 * GIB, gpu)
    queued = next(row for row in rows if row.where == "queued")
    assert queued.name in "ac" and queued.why.startswith("it would exceed the memory of cuda:0;")
    assert (queued.device, queued.device_bytes) == ("cuda:0", 6 * GIB)
    assert memory_text(rows, 50 * GIB, "of the machine's memory").startswith("Together they need 3.0 GiB of")
    *_, large = rows_of(peaks, 50 * GIB, {**gpu, "a": 11 * GIB})
    assert (large.name, large.where) == ("a", "nowhere")
    assert "it needs 11.0 GiB, more than the 10.0 GiB free on cuda:0" in large.why


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


@pytest.fixture
def group() -> Iterator[Path]:
    with limited_group(LIMIT) as made:
        yield made


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_eight_trials_under_a_limit_are_lost_at_once_and_none_is_when_they_are_planned(
    group: Path,
) -> None:
    """In a container whose memory holds some of them: started all at once, the system kills; planned, they all end."""
    code = f"""
open("{group}/cgroup.procs", "w").write(str(os.getpid()))
{TRIALS}
from tsnb.experiments.memory_queue import expected_memory
from tsnb.records.run import Run, RunStart
state = torch.random.get_rng_state()
found = tsnb.plan(trials, loader=loader, seconds=0.5)
assert torch.equal(torch.random.get_rng_state(), state)
assert not tsnb.streams.list() and not list(tsnb.trials)
print(found, file=sys.stderr, flush=True)
rows = {{row.name: row for row in found.trials}}
for mib in sizes:
    assert rows[f"t{{mib}}"].peak_bytes[0] >= mib << 20, rows[f"t{{mib}}"]
assert found.memory_bytes < {LIMIT} and "control group" in found.text
assert {{"queued", "now"}} == {{row.where for row in found.trials}}
known = {{name: expected_memory(Run.begin(RunStart(name, "x = 1"))) for name in ("t320", "train-mib320")}}
assert {{each.because for each in known.values()}} == {{"as tsnb.plan measured"}}, known
assert {{each.needs_bytes for each in known.values()}} == {{int(rows["t320"].peak_bytes[1])}}, known
done = found.run()
say("planned", *sorted(trial.state for trial in done.values()))
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
        assert script.expect("planned", 500) == " ".join(8 * ["done"])
        assert "crashed" in script.expect("at once", 300).split()
        script.expect("end", 60)
        script.end()
