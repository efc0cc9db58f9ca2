"""What was seen of a trial while it was profiled, and what a sample costs it by that. Starts nothing.

CPU time is counted, and the time in the user's own code less the waits for a core. The memory is the largest that
belonged to the process alone, short peaks between two looks included, as the system saw it after real steps with the
optimizer's state in it: no estimate. Pages that a trial shares with the fork server it came from are not its own.
"""

from __future__ import annotations

import contextlib
import math
import re
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tsnb.config import unprofiled
from tsnb.errors import TsnbError
from tsnb.experiments.trial import ENDED, Trial
from tsnb.machine import clocks
from tsnb.machine.gpus import Gpus, list_gpus
from tsnb.machine.processes import held
from tsnb.planners.fluid import Job
from tsnb.planning.places import died
from tsnb.telemetry.readings import ConsumerReading

__all__ = [
    "FIRST_LOOKS_S",
    "LIMIT_S",
    "LOOK_S",
    "Cost",
    "Profile",
    "Profiled",
    "gpu_room_bytes",
    "joined",
]

BATCHES = 24
"""A trial is stopped when it has taken so many..."""
SKIP = 4
"""... of which the first ones are not counted: those steps allocate, tune and compile."""
LEAST = 3
"""Batches that have to be counted."""
LOOK_S = 0.02
FIRST_LOOKS_S = 0.002
"""How often it is looked at first: all batches of a small trial may be over within some hundredths of a second."""
HELD_S = 0.1
"""A trial's memory is asked for this often: the kernel walks all its pages each time."""
OFFERED = 900
"""Of 1000: how much rather than other processes the system kills a trial that is only profiled."""
LIMIT_S = 120.0
"""A trial that has not asked for enough batches by then is not profiled."""
MOST_CROWD = 2.0
"""Two threads of one core take no more than so many times as long as alone; what did, did for another reason."""

_gpus = Gpus()


@dataclass(frozen=True)
class Cost:
    """What a sample costs a trial."""

    step_s: float
    """Seconds in its own code, with a core."""
    cpu_s: float
    """CPU seconds of its process, taking the sample included."""
    memory_bytes: float
    """The largest that was its own."""
    start_s: float
    """From its start to its first batch, less the waits for a core."""
    batches: int
    """So many were counted."""
    off: float
    """How far apart the first half and the second were, as a share."""
    start_cpu_s: float = 0.0
    """CPU seconds of its start."""
    crowd: float = 1.0
    """How many times as much CPU time a sample took beside `beside` others; on a GPU, how many times as long a step."""
    beside: int = 0
    """So many; 0: it was not seen beside others."""
    device: str = ""
    """The GPU that it computed on; empty: none was seen."""
    device_bytes: float = 0.0
    """The largest part of that GPU's memory that was its own, CUDA's context and reserved memory included."""
    epochs: int = 0
    """That it takes, as it said itself while it ran; 0: it did not."""

    def job(
        self, name: str, samples: float, room_bytes: Mapping[str, float], *, taking_s: float = 0.0
    ) -> Job:
        """Return it as the planners take it.

        Args:
            name: The trial's.
            samples: That it has to take.
            room_bytes: Memory of each GPU for all trials, by the GPU's name.
            taking_s: CPU seconds of taking a sample, if the loader's cost has them too.
        """
        return Job(
            name,
            samples,
            self.step_s,
            max(0.0, self.cpu_s - taking_s),
            self.memory_bytes,
            self.start_s,
            self.start_cpu_s,
            self.crowd,
            self.beside,
            self.device,
            self.device_bytes,
            room_bytes.get(self.device, math.inf),
        )


def gpu_room_bytes() -> dict[str, float]:
    """Return what is free on each GPU, by its name; nothing where there is none."""
    return {gpu.device: float(gpu.total_bytes - gpu.used_bytes) for gpu in list_gpus(_gpus)}


@dataclass(frozen=True)
class Profile:
    """What was found of some trials."""

    costs: Mapping[str, Cost]
    """What a sample costs each, by name."""
    together_s: float | None = None
    """Seconds a sample while all of them took the stream, by the clock on the wall; None: they were not seen so."""
    off: float = 0.0
    """How far off that may be, as a share."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Those that failed or died, and in what way, in words; only where that does not end all of it."""
    died_bytes: Mapping[str, float] = field(default_factory=dict)
    """The largest memory that was seen of each whose process died."""


@dataclass
class _TrialClocks:
    """The clocks of a trial at one moment."""

    batches: int
    samples: int
    computing_s: float
    cpu_s: float
    no_core_s: float
    at_s: float
    """When, by the monotonic clock."""

    def since(self, before: _TrialClocks, threads: int) -> tuple[float, float]:
        """Return seconds of its own code, and of CPU, a sample."""
        samples = max(1, self.samples - before.samples)
        own_s, cpu_s = self.computing_s - before.computing_s, self.cpu_s - before.cpu_s
        # some of the time without a core was before a batch came: that is not its own code's
        step_s = min(own_s, max(own_s - (self.no_core_s - before.no_core_s), cpu_s / threads))
        return step_s / samples, cpu_s / samples


@dataclass
class Profiled:
    """A trial while it is profiled."""

    trial: Trial
    """The real one, under a name of its own."""
    threads: int
    """Torch threads that it computes with."""
    last: ConsumerReading | None = None
    """What the stream said of it last."""
    called_s: float | None = None
    """When it was asked for, by the monotonic clock."""
    began_s: float | None = None
    """When its process was there, by the monotonic clock."""
    asking_s: float | None = None
    """When it had asked for its first batch, by the monotonic clock."""
    opened_s: float | None = None
    """When the gate opened behind which it waited for the others, by the monotonic clock."""
    first_s: float | None = None
    """When it had its first batch, by the monotonic clock."""
    start_cpu_s: float = 0.0
    """CPU seconds until it asked for that."""
    no_core_s: float = 0.0
    """How long it waited for a core until then."""
    marks: list[_TrialClocks] = field(default_factory=list)
    """Its clocks whenever it had taken more batches."""
    memory_bytes: float = 0.0
    """The largest that was its own."""
    held_bytes: float = 0.0
    """What is its own now."""
    least_s: float = 0.0
    """Its batches are counted for so long at least."""
    device: str = ""
    """The GPU on which it holds most memory; empty: none."""
    device_bytes: float = 0.0
    """The largest part of that GPU's memory that was its own."""
    skip: int = SKIP
    """So many of its batches are not counted."""
    by_itself: Cost | None = None
    """What it cost when those that had run beside it had been stopped; None: it was not seen so."""
    beside_others: Cost | None = None
    """What it cost until then, whatever becomes of it without them; None: they have not been stopped."""
    asked_s: float = 0.0
    """When its memory was asked for last, by the monotonic clock."""

    def look(self, reading: ConsumerReading | None) -> None:
        """Read its clocks, if it has taken batches since."""
        pid = self.trial.pid
        if pid is None:
            return
        now_s = time.monotonic()
        if self.began_s is None:
            self.began_s = now_s
            _offer(pid)
        if now_s - self.asked_s >= HELD_S:
            own, self.asked_s = held(pid), now_s
            self.held_bytes = own.own_bytes if own else 0.0
            self.memory_bytes = max(self.memory_bytes, own.most_bytes if own else 0.0)
            self._look_at_gpus(pid)
        if self.asking_s is None and self.trial.attached:
            self.asking_s = now_s
            self.start_cpu_s, self.no_core_s = clocks.cpu_s(pid) or 0.0, clocks.waited_s(pid)
        if reading is None or not reading.batches:
            return
        self.last = reading
        cpu_s = clocks.cpu_s(pid)
        self.first_s = self.first_s or now_s
        late = not self.marks or reading.batches > self.marks[-1].batches
        if cpu_s is not None and reading.batches > self.skip and late:
            seen = (reading.batches, reading.passed, reading.computing_s)
            self.marks.append(_TrialClocks(*seen, cpu_s, clocks.waited_s(pid), time.monotonic()))

    def _look_at_gpus(self, pid: int) -> None:
        """See which GPU it computes on, and how much of its memory it has: reserved by torch, and CUDA's context."""
        on = _gpus.by_process_and_gpu().get(pid) if _gpus.opened() else None
        if on:
            index = max(on, key=on.__getitem__)
            self.device, self.device_bytes = f"cuda:{index}", max(self.device_bytes, float(on[index]))

    def going_on(self) -> Profiled:
        """Return the same trial as one that is seen from some batches after now on."""
        batches = self.last.batches if self.last else 0
        return replace(self, marks=[], skip=batches + SKIP, beside_others=None)

    @property
    def begins(self) -> bool:
        """Whether it takes its first batches."""
        return self.asking_s is not None and len(self.marks) < LEAST and self.trial.state not in ENDED

    @property
    def done(self) -> bool:
        """Whether enough was seen, or no more will be."""
        if self.trial.state in ENDED:
            return True
        if not self.marks:
            return False
        first, last = self.marks[0], self.marks[-1]
        return last.batches - first.batches >= BATCHES - SKIP and last.at_s - first.at_s >= self.least_s

    @property
    def per_s(self) -> tuple[float, float]:
        """Samples/s on the stream by the clock on the wall, and how far off that may be, as a share; 0: not seen."""
        if len(self.marks) < LEAST:
            return 0.0, 0.0
        first, middle, last = self.marks[0], self.marks[len(self.marks) // 2], self.marks[-1]

        def pace(a: _TrialClocks, b: _TrialClocks) -> float:
            return (b.samples - a.samples) / max(1e-9, b.at_s - a.at_s)

        whole = pace(first, last)
        return whole, min(1.0, abs(pace(first, middle) - pace(middle, last)) / max(1e-9, 2 * whole))

    @property
    def batch_s(self) -> float:
        """Seconds a batch by the clock on the wall; 0: not seen."""
        first, last = (self.marks[0], self.marks[-1]) if self.marks else (None, None)
        if first is None or last is None or last.batches == first.batches:
            return 0.0
        return (last.at_s - first.at_s) / (last.batches - first.batches)

    @property
    def batches(self) -> int:
        """So many it has taken, as the stream said last or, of one that was over before that, it itself."""
        return max(self.last.batches if self.last else 0, int(self.trial.report.get("batches") or 0))

    @property
    def idle(self) -> bool:
        """Whether its code has come to its end without taking a batch."""
        return self.trial.state == "done" and not self.batches

    @property
    def failed(self) -> bool:
        """Whether its code raised, or its process died."""
        return self.trial.state in {"failed", "crashed"}

    def how_it_failed(self, *, alone: bool) -> str:
        """Say so in words, of one that has.

        Args:
            alone: Whether nothing smaller is tried anyhow.
        """
        if self.trial.state == "crashed":
            return died("its process", self.memory_bytes, alone=alone)
        return "it failed while it was profiled"

    def cost(self) -> Cost:
        """Return what was found.

        Raises:
            TsnbError: It took too few batches, or failed.
        """
        if self.beside_others is not None:
            return self.beside_others
        name = unprofiled(self.trial.name)
        if self.trial.state == "crashed":
            raise TsnbError(
                f"Nothing can be planned: {died(f'the process of trial {name!r}', self.memory_bytes)}."
            )
        if self.failed:
            why = _ended_line(self.trial.name).sub("", self.trial.logs().strip().rpartition("\n")[2])
            raise TsnbError(
                f"Trial {name!r} failed while it was profiled{': ' + why if why else ''}. Run it alone with "
                "tsnb.run to see the whole error."
            )
        first, last = (self.marks[0], self.marks[-1]) if self.marks else (None, None)
        if first is None or last is None or last.batches - first.batches < LEAST:
            raise TsnbError(f"Trial {name!r} {self._unseen()}")
        step_s, cpu_s = last.since(first, self.threads)
        middle = self.marks[len(self.marks) // 2]
        off = 0.0
        if first.batches < middle.batches < last.batches and step_s:
            off = abs(middle.since(first, self.threads)[0] - last.since(middle, self.threads)[0]) / (
                2 * step_s
            )
        counted = last.batches - first.batches
        return Cost(
            step_s,
            cpu_s,
            self.memory_bytes,
            self._start_s,
            counted,
            min(1.0, off),
            self.start_cpu_s,
            device=self.device,
            device_bytes=self.device_bytes,
            epochs=self.last.planned if self.last else 0,
        )

    def starts_within(self, seconds: float) -> bool:
        """Whether it is known to have had its first batch so soon after its process was there."""
        return (
            self.first_s is not None
            and self.began_s is not None
            and not self.failed
            and self.first_s - self.began_s <= seconds
        )

    @property
    def _start_s(self) -> float:
        """Seconds from its start to its first batch, less the waits for a core and for the others at the gate."""
        first_s, began_s = self.first_s or 0.0, self.called_s or self.began_s or 0.0
        asking_s = self.asking_s or first_s
        waited_s = max(0.0, min(first_s, self.opened_s or asking_s) - asking_s)
        return max(0.0, first_s - began_s - waited_s - self.no_core_s)

    def _unseen(self) -> str:
        """Say why too little was seen of it."""
        least, took = SKIP + LEAST + 1, self.batches
        stopped = self.trial.state != "done"  # by us, when its time was over
        if not took and stopped:
            return f"took no batch within {LIMIT_S:.0f} s. Let it take its batches from tsnb.attach()."
        if not took:
            return (
                "ended without taking a batch, so nothing can be planned. Let it take its batches from "
                "tsnb.attach()."
            )
        if took >= least:
            return f"ended too soon to be profiled, after {took} batches. Use smaller batches or more epochs."
        if stopped:
            return (
                f"took only {took} batches within {LIMIT_S:.0f} s, and profiling needs {least}. Use smaller "
                "batches."
            )
        return f"took only {took} batches, and profiling needs {least}. Use smaller batches or more epochs."


def _ended_line(name: str) -> re.Pattern[str]:
    """Return what a trial's last line begins with, by a name that nobody has given it."""
    return re.compile(f"^trial {re.escape(repr(name))} failed after [^:]*: ")


def joined(
    alone: Mapping[str, Cost], costs: Mapping[str, Cost], seen: Mapping[str, Profiled], *, whole: bool
) -> Profile:
    """Put together what was seen of some trials alone and of all of them.

    How much longer a trial of which only the second is known takes in a crowd is told by the one that is most like it:
    small steps wait for others and for memory in another way than long ones.

    Args:
        alone: What some of them cost alone, by name; one at least.
        costs: What each cost, by name; where all ran together, beside all others.
        seen: The trials while they were profiled.
        whole: Whether all ran together.
    """
    if not whole:
        return Profile(costs)
    beside = len(costs) - 1
    crowds = {name: _crowd(each, costs[name], beside) for name, each in alone.items()}

    def most_like(cost: Cost) -> str:
        return min(crowds, key=lambda name: abs(math.log(_spent_s(costs[name]) / _spent_s(cost))))

    found = {name: _uncrowded(cost, crowds[most_like(cost)], beside) for name, cost in costs.items()}
    for name, each in alone.items():
        found[name] = replace(
            _uncrowded(costs[name], crowds[name], beside),
            step_s=min(each.step_s, costs[name].step_s),
            cpu_s=min(each.cpu_s, costs[name].cpu_s),
            off=max(each.off, costs[name].off),
        )
    paces = [each.per_s for each in seen.values()]
    if not all(per_s for per_s, _ in paces):
        return Profile(found)
    per_s, off = statistics.median(pace for pace, _ in paces), statistics.median(off for _, off in paces)
    return Profile(found, 1 / per_s, off)


def _spent_s(cost: Cost) -> float:
    """Return what a crowd makes longer of a sample; never 0."""
    return max(1e-12, cost.step_s if cost.device else cost.cpu_s)


def _crowd(alone: Cost, together: Cost, beside: int) -> float:
    """Return how many times as much of what counts it took beside so many others as alone."""
    if alone.device:  # those that share a GPU take turns there
        return min(1.0 + beside, max(1.0, _spent_s(together) / _spent_s(alone)))
    return min(MOST_CROWD, max(1.0, _spent_s(together) / _spent_s(alone)))


def _uncrowded(cost: Cost, crowd: float, beside: int) -> Cost:
    """Return what a trial that was seen beside others costs alone, and that."""
    less = 1 - 1 / crowd
    step_s = cost.step_s - less * (cost.step_s if cost.device else min(cost.step_s, cost.cpu_s))
    cpu_s = cost.cpu_s if cost.device else cost.cpu_s / crowd
    return replace(cost, step_s=step_s, cpu_s=cpu_s, crowd=crowd, beside=beside)


def _offer(pid: int) -> None:
    """Let the system, if it has to kill for want of memory, take a trial that is only profiled rather than another."""
    with contextlib.suppress(OSError):  # no /proc, or it has just ended
        Path(f"/proc/{pid}/oom_score_adj").write_text(f"{OFFERED}\n")
