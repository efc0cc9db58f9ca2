"""A stream's story: all that a report says, as plain numbers and words. Pure; JSON goes in and out of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tsnb.errors import TsnbError
from tsnb.machine.energy import NOT_MEASURABLE
from tsnb.planners.timeline import Timeline
from tsnb.reports.cost import TrialCost
from tsnb.reports.learned.beside import Beside
from tsnb.reports.runs import trial_of
from tsnb.reports.spent import Spent, spent
from tsnb.telemetry.diagnosis import Diagnosis, MeanHost, diagnose, in_the_past
from tsnb.telemetry.eta import NO_ETA, Eta
from tsnb.telemetry.etas import Etas
from tsnb.telemetry.marks import Mark, all_marks, pacing_text
from tsnb.telemetry.outcome import ENDS
from tsnb.telemetry.rates import energy_use
from tsnb.telemetry.readings import ConsumerReading, HostReading, StreamReading
from tsnb.telemetry.words import all_left

__all__ = ["Story", "story"]

SPOKEN = 0.1
"""The headline is about trials that lived at least this share of the longest life."""

LATE_BATCHES = 1
"""More batches than this at the first reading: the stream was not watched from its start."""


@dataclass(frozen=True)
class Story:
    """One stream from its first reading to its last."""

    name: str
    """The stream's."""
    begin_s: float
    """Its first reading: wall clock, seconds since 1970."""
    end_s: float
    """Its last reading."""
    state: str
    """Its state then, or "gone" where it has ended since."""
    epochs: float
    """Epochs loaded, the one under way as a share where the loader has a length."""
    batches: int
    """Batches prepared, by all of its producers."""
    delivered: int
    """Batches that trials took: what separate loaders would have had to prepare."""
    workers: int
    """The loader's workers (0: its own process)."""
    window: int
    """How many batches the fastest may be ahead of the slowest."""
    cores: int
    """The machine's cores; 0 where they are not known."""
    cpu: float
    """Cores busy on average; 0 where they are not known."""
    watched_late: bool
    """Whether it had run before its first reading: time between epochs before that is not known."""
    lead: str
    """What matters, in a few words."""
    rest: str
    """The numbers behind it."""
    pace: str
    """The trial that set the pace for the longest; empty where none did."""
    kind: str
    """What limited it, as `Diagnosis.kind`."""
    trials: tuple[Spent, ...]
    """Where the time of each trial went, in the order of first appearance."""
    marks: tuple[Mark, ...]
    """What changed, and when, in the order of time."""
    energy: str = NOT_MEASURABLE
    """Joules for 1,000 samples, in words."""
    failure: str = ""
    """The loader's last error, one line."""
    pacing: str = "together"
    """How compute was divided at the end."""
    etas: Mapping[str, Eta] = field(default_factory=dict)
    """How long the trials that are there still take, by name; empty once the stream has ended."""
    all_done: Eta = NO_ETA
    """How long all of them still take, of those too that a plan is still to start; `NO_ETA`: nobody knows, or ended."""
    pending: Mapping[str, str] = field(default_factory=dict)
    """State and reason of the trials that are not attached yet, by name; empty once the stream has ended."""
    to_come: int = 0
    """Trials of sweeps that are still to attach; 0 once the stream has ended."""
    costs: tuple[TrialCost, ...] = ()
    """What each trial had cost when it reached the wanted numbers; empty: none were asked for."""
    plan: Timeline | None = None
    """When its trials were to start and end, and did, if they were planned; times are from the plan's beginning on."""

    beside: tuple[Beside, ...] = ()
    """The notebook's trials without a stream, where this is the picture of its panel."""

    @property
    def over(self) -> bool:
        """Whether the stream, or each of its trials, has ended."""
        return self.state == "gone" or all(trial.state in ENDS for trial in self.trials)

    @property
    def latest(self) -> list[Spent]:
        """The last run of each name: what came out, and which is best, is of these alone, as in the panel."""
        return [trial for trial in self.trials if trial.name == trial_of(trial.name)]

    @property
    def left(self) -> str:
        """How long all of them still take, in words; empty where nobody knows that of one."""
        return all_left(self.all_done, self.end_s)

    @property
    def seconds(self) -> float:
        """From the first reading to the last."""
        return self.end_s - self.begin_s

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it: numbers, texts, lists and dictionaries."""
        return asdict(self)


def story(readings: Sequence[StreamReading], *, ended: bool = False) -> Story:
    """Tell what became of a stream.

    Args:
        readings: Oldest first.
        ended: Whether the stream has ended since.

    Raises:
        TsnbError: The stream has no readings.
    """
    if not readings:
        raise TsnbError("This stream has no readings yet, so there is nothing to report")
    first, last = readings[0], readings[-1]
    trials = spent(readings)
    batches, blocked_s = _grown(readings)
    mean = MeanHost()
    for reading in readings:
        mean.feed(reading)
    host = mean.host
    pace = max(trials, key=lambda trial: trial.pace_s, default=None)
    setter = pace.name if pace is not None and pace.pace_s > 0 else ""
    etas = Etas()
    for reading in () if ended else readings:
        etas.feed(reading)
    said = _diagnosis(readings, trials, batches, blocked_s, setter, host)
    if ended or (trials and all(trial.state in ENDS for trial in trials)):
        said = in_the_past(said)
    whole = last.epoch_batches
    return Story(
        name=last.name,
        begin_s=first.time_s,
        end_s=last.time_s,
        state="gone" if ended else last.state,
        epochs=batches / whole if whole else float(last.epoch + 1),
        batches=batches,
        delivered=sum(trial.batches for trial in trials),
        workers=last.workers,
        window=last.window,
        cores=host.cores if host else 0,
        cpu=host.cpu if host else 0.0,
        watched_late=any(c.batches > LATE_BATCHES for c in first.consumers),
        lead=said.lead,
        rest=said.text[len(said.lead) :].strip(),
        pace=said.pace or "",
        kind=said.kind,
        trials=tuple(trials),
        marks=tuple(all_marks(readings)),
        energy=energy_use(readings).text,
        failure=last.failure,
        pacing=pacing_text(last),
        etas={} if ended else {c.name: etas.of(c.name) for c in last.consumers if c.state != "gone"},
        all_done=etas.all(),
        pending={} if ended else last.pending,
        to_come=0 if ended else last.to_come,
    )


def _grown(readings: Sequence[StreamReading]) -> tuple[int, float]:
    """Return batches and blocked_s of all of the stream's producers, one after the other."""
    lasts = [r for r, after in zip(readings, [*readings[1:], None], strict=True) if _ends(r, after)]
    return sum(reading.batches for reading in lasts), sum(reading.blocked_s for reading in lasts)


def _ends(reading: StreamReading, after: StreamReading | None) -> bool:
    return after is None or after.pid != reading.pid or after.batches < reading.batches


def _diagnosis(
    readings: Sequence[StreamReading],
    trials: Sequence[Spent],
    batches: int,
    blocked_s: float,
    setter: str,
    host: HostReading | None,
) -> Diagnosis:
    """Say of the whole life what the panel says of the last two seconds, in the same words."""
    first, last = readings[0], readings[-1]
    if last.state == "failed":
        return diagnose(first, last)
    nothing = replace(first, consumers=(), batches=0, blocked_s=0.0, host=None)
    # of the time in which some trial read: before the first trial and after the last the loader has nothing to do.
    # A stream that was found under way had counted before its first reading, for longer than the span
    seconds = max([_busy_s(readings), *(trial.inside_s for trial in trials)])
    # a trial that lived for a moment has next to no part in what limited the stream
    spoken = SPOKEN * max((trial.inside_s for trial in trials), default=0.0)
    consumers = tuple(_as_reading(t, t.name == setter) for t in trials if t.inside_s >= spoken)
    whole = replace(
        last,
        time_s=first.time_s + seconds,
        state="serving",
        batches=batches,
        blocked_s=blocked_s,
        consumers=consumers,
        host=None,
    )
    said = diagnose(nothing, whole, host, in_seconds=True)
    if said.kind in {"idle", "starting"}:
        text = "No batch was read." if trials else "No trial has attached."
        return Diagnosis("idle", text, None, text)
    return said


def _busy_s(readings: Sequence[StreamReading]) -> float:
    """Return the seconds in which at least one trial was on the stream."""
    pairs = itertools.pairwise(readings)
    return sum(after.time_s - r.time_s for r, after in pairs if r.state in {"serving", "blocked"})


def _as_reading(trial: Spent, sets_the_pace: bool) -> ConsumerReading:
    return ConsumerReading(
        name=trial.name,
        pid=0,
        state="sets the pace" if sets_the_pace else "streaming",
        epoch=0,
        position=0,
        fill=0,
        lag=0,
        batches=trial.batches,
        samples=trial.samples,
        computing_s=trial.computing_s,
        waiting_s=trial.waiting_s,
        held_s=trial.held_s,
    )
