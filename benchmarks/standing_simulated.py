"""Which window is the best one: the real decisions of a stream, on a simulated machine, by three ways to bound the lag.

    narrow     the fastest trial may be 8 batches ahead of the slowest, whatever that one does
    wide       as many as fit into memory, for all
    stopping   8 again; and as many as fit into memory where the slowest stops, between two epochs or in a long step

Simulated are the loader with one worker, the trials, and cores that are shared equally; one trial uses one core at
most. A batch is decided about by `tsnb.stream.decisions`, as in a stream. Two figures count for each case: when the
first trial is done, over its time alone (that is what its neighbours cost it), and when the last one is, over the same
in the narrow window (that is what the balance between models that differ steadily loses).

    python -m benchmarks.standing_simulated
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.dispatch import Dispatch
from tsnb.stream.protocol import messages as ms

__all__ = ["WAYS", "Case", "Trial", "simulate", "table"]

EPOCHS, BATCHES = 4, 100
WINDOW, WIDE = 8, 1000
WAYS = {"narrow": (WINDOW, WINDOW), "wide": (WIDE, WIDE), "stopping": (WINDOW, WIDE)}
"""The window, and the batches that one which stops may be behind."""
TICK_S = 1.0


@dataclass(frozen=True)
class Trial:
    """What a trial does."""

    step_s: float
    """Seconds of a core, for a batch."""
    stops_s: float = 0.0
    """Seconds that it stops in each epoch."""
    stops_at: int = BATCHES
    """After how many batches of the epoch; all: between two epochs."""


@dataclass(frozen=True)
class Case:
    """Trials on one machine."""

    name: str
    cores: int
    loader_s: float
    trials: tuple[Trial, ...]


CASES = (
    Case("one of two stops 0 s", 4, 0.001, (Trial(0.005), Trial(0.005))),
    Case("one of two stops 1 s", 4, 0.001, (Trial(0.005), Trial(0.005, 1.0))),
    Case("one of two stops 4 s", 4, 0.001, (Trial(0.005), Trial(0.005, 4.0))),
    Case("one of two stops 16 s", 4, 0.001, (Trial(0.005), Trial(0.005, 16.0))),
    Case("4 s in the middle", 4, 0.001, (Trial(0.005), Trial(0.005, 4.0, 50))),
    Case("three of four stop 4 s", 8, 0.001, (Trial(0.005), *[Trial(0.005, 4.0)] * 3)),
    Case("three of four, apart", 8, 0.001, (Trial(0.005), *[Trial(0.005, 4.0, 25 * k) for k in (1, 2, 3)])),
    Case("steady, 1 to 3", 2, 0.01, (Trial(0.02), Trial(0.06))),
    Case("steady, 1 to 20", 2, 0.01, (Trial(0.02), Trial(0.11), Trial(0.4))),
    Case("steady, on many cores", 8, 0.01, (Trial(0.02), Trial(0.11), Trial(0.4))),
    Case("steady, a slow loader", 2, 0.06, (Trial(0.02), Trial(0.06))),
    Case("1 to 3, both stop 1 s", 2, 0.01, (Trial(0.02, 1.0), Trial(0.06, 1.0))),
)


@dataclass
class _Runner:
    """A trial on the machine."""

    trial: Trial
    work_s: float | None = None
    """Seconds of a core that its step still needs; None: it is in no step."""
    stops_until_s: float | None = None
    granted: deque[int] = field(default_factory=deque)
    holds: int | None = None
    epoch: int = -1
    taken: int = 0
    told_end: bool = False
    done_s: float | None = None


@dataclass(frozen=True)
class Found:
    """What happened."""

    done_s: tuple[float, ...]
    """When each trial was done."""
    most_behind: int


class _Machine:
    def __init__(self, case: Case, window: int, widest: int) -> None:
        self._case = case
        self._dispatch = Dispatch(window, window, 30.0)
        self._dispatch.widen(widest)
        self._dispatch.note_repeatable(True)
        self._runners = [_Runner(trial) for trial in case.trials]
        self._now_s = self._ticked_s = 0.0
        self._loading_s: float | None = None
        self._run, self._given = -1, 0
        self._free = deque(range(2 * WIDE + 64 * len(case.trials)))
        self._most_behind = 0

    def run(self) -> Found:
        for key in range(len(self._runners)):
            self._heard(key, ms.Hello("consumer", f"t{key}", ""))
        for key in range(len(self._runners)):
            self._ask(key)
        while any(one.done_s is None for one in self._runners):
            self._load()
            self._pass_time()
        return Found(tuple(one.done_s or 0.0 for one in self._runners), self._most_behind)

    def _pass_time(self) -> None:
        """Let time pass until the next thing happens, and let it happen."""
        steps = [one.work_s for one in self._runners if one.work_s is not None]
        jobs = [*steps, *([] if self._loading_s is None else [self._loading_s])]
        rate = min(1.0, self._case.cores / len(jobs)) if jobs else 1.0
        stops = [one.stops_until_s for one in self._runners if one.stops_until_s is not None]
        due_s = self._dispatch.due_s
        ends = [*stops, self._ticked_s + TICK_S, math.inf if due_s is None else max(due_s, self._now_s)]
        passed_s = min([each / rate for each in jobs] + [each - self._now_s for each in ends])
        self._now_s += passed_s
        if self._loading_s is not None:
            self._loading_s -= passed_s * rate
        for key, one in enumerate(self._runners):
            if one.work_s is not None:
                one.work_s -= passed_s * rate
                if one.work_s < 1e-9:
                    self._stepped(key)
            elif one.stops_until_s is not None and one.stops_until_s <= self._now_s + 1e-9:
                one.stops_until_s = None
                self._goes_on(key)
        if self._now_s >= self._ticked_s + TICK_S - 1e-9 or (
            due_s is not None and self._now_s >= due_s - 1e-9
        ):
            self._ticked_s = self._now_s
            self._step(ev.Tick())

    def _load(self) -> None:
        """Give the batch that is ready, and begin the next one that is wanted."""
        if self._loading_s is not None and self._loading_s < 1e-9:
            self._loading_s = None
            self._given += 1
            self._step(ev.BatchLoaded(self._run, ev.Placed(self._free.popleft(), b"", 4, 0, 0)))
        while self._loading_s is None and (wanted := self._dispatch.wanted) is not None:
            if wanted.run != self._run:
                self._run, self._given = wanted.run, wanted.first
            if self._given < BATCHES:
                self._loading_s = self._case.loader_s
            else:
                self._step(ev.LoaderEnded(self._run))

    def _stepped(self, key: int) -> None:
        """A step is over."""
        one = self._runners[key]
        one.work_s = None
        if one.taken == BATCHES and one.told_end:
            self._heard(key, ms.Leave())
        if one.taken == one.trial.stops_at and one.trial.stops_s:
            one.stops_until_s = self._now_s + one.trial.stops_s
        else:
            self._goes_on(key)

    def _goes_on(self, key: int) -> None:
        one = self._runners[key]
        if one.holds is not None:
            lease, one.holds = one.holds, None
            self._heard(key, ms.Release(lease))
        if one.granted:
            self._take(key)
        elif not one.told_end:
            self._heard(key, ms.Waiting())
        elif one.epoch + 1 < EPOCHS:
            self._ask(key)
        elif one.done_s is None:
            one.done_s = self._now_s
            self._heard(key, ms.Bye())
            self._step(ev.Left(key))

    def _take(self, key: int) -> None:
        one = self._runners[key]
        one.holds = one.granted.popleft()
        one.work_s, one.taken = one.trial.step_s, one.taken + 1
        self._heard(key, ms.Take())

    def _ask(self, key: int) -> None:
        one = self._runners[key]
        one.epoch, one.taken, one.told_end = one.epoch + 1, 0, False
        self._heard(key, ms.Ask(one.epoch, one.epoch))

    def _heard(self, key: int, message: ms.Message) -> None:
        self._step(ev.Heard(key, message))

    def _step(self, event: ev.Event) -> None:
        wait = []
        for made in self._dispatch.step(event, self._now_s):
            if isinstance(made, ev.FreeSlot):
                self._free.append(made.slot)
            elif isinstance(made, ev.Granted):
                self._runners[made.member].granted.append(made.lease)
                wait.append(made.member)
            elif isinstance(made, ev.Tell) and isinstance(made.message, ms.EpochEnded):
                self._runners[made.member].told_end = True
                wait.append(made.member)
        self._most_behind = max(self._most_behind, self._dispatch.drift.ahead)
        for key in wait:
            one = self._runners[key]
            if one.work_s is None and one.stops_until_s is None and one.holds is None and one.done_s is None:
                self._goes_on(key)


def simulate(case: Case, way: str) -> Found:
    """Let the trials of a case train to their end."""
    return _Machine(case, *WAYS[way]).run()


def table(cases: Sequence[Case] = CASES) -> str:
    """Return what each way gives, as Markdown."""
    lines = [
        ["case", *(f"first: {way}" for way in WAYS), *(f"all: {way}" for way in WAYS), "most behind"],
    ]
    for case in cases:
        alone_s = (
            _Machine(Case("", case.cores, case.loader_s, case.trials[:1]), *WAYS["narrow"]).run().done_s[0]
        )
        found = {way: simulate(case, way) for way in WAYS}
        last_s = max(found["narrow"].done_s)
        lines.append([
            case.name,
            *(f"{found[way].done_s[0] / alone_s:.2f}" for way in WAYS),
            *(f"{max(found[way].done_s) / last_s:.2f}" for way in WAYS),
            " ".join(str(found[way].most_behind) for way in WAYS),
        ])  # fmt: skip
    rule = ["---", *["--:"] * (len(lines[0]) - 1)]
    return "\n".join("| " + " | ".join(each) + " |" for each in [lines[0], rule, *lines[1:]])


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
