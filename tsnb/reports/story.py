"""A stream's story: all that a report says, as plain numbers and words. Pure; JSON goes in and out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tsnb.errors import TsnbError
from tsnb.machine.energy import NOT_MEASURABLE
from tsnb.planners.timeline import Timeline
from tsnb.reports.cost import TrialCost
from tsnb.reports.learned.beside import Beside
from tsnb.reports.learned.duelled import Duelled
from tsnb.show.words import all_left
from tsnb.telemetry.forecast.eta import NO_ETA, Eta
from tsnb.telemetry.forecast.etas import Etas
from tsnb.telemetry.lives.limits import StreamLife
from tsnb.telemetry.lives.runs import lanes_of, trial_of
from tsnb.telemetry.lives.spent import Spent, spent
from tsnb.telemetry.readings import OutcomeReading, StreamReading
from tsnb.telemetry.shown.ends import Ends
from tsnb.telemetry.shown.marks import Mark, all_marks, pacing_text
from tsnb.telemetry.shown.outcome import ENDS
from tsnb.telemetry.shown.rates import energy_use

__all__ = ["Story", "story"]

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
    """Whether time between epochs is not known of before its first reading: the stream does not tell it."""
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
    lanes: Mapping[str, int] = field(default_factory=dict)
    """The number of each trial on the stream, by its name: its colour follows from it, in the panel too."""
    trained: tuple[float, float] | None = None
    """As `telemetry.shown.ends.Ends.trained`."""
    idle_s: float = 0.0
    """As `Ends.idle_s`."""
    compared: OutcomeReading | None = None
    """How its notebooks compare the trials; None: they did not tell."""
    costs: tuple[TrialCost, ...] = ()
    """What each trial had cost when it reached the wanted numbers; empty: none were asked for."""
    plan: Timeline | None = None
    """When its trials were to start and end, and did, if they were planned; times are from the plan's beginning on."""

    beside: tuple[Beside, ...] = ()
    """The notebook's trials without a stream, where this is the picture of its panel."""
    duels: tuple[Duelled, ...] = ()
    """The duels of its trials that this process has."""

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
    def trained_s(self) -> float:
        """Seconds in which some trial was there, until the last one's end, or the last reading."""
        first_s, last_s = self.trained or (self.begin_s, self.end_s)
        seen_s = [
            trial.last_s for trial in self.trials if trial.state not in ENDS
        ]  # their ends were not told
        return (max([last_s, *seen_s]) if self.over else self.end_s) - first_s - self.idle_s

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
    ends = Ends()
    trials = spent(readings, ends)
    life = StreamLife(readings, trials)
    batches, host, said = life.batches, life.host, life.limited(over=ended)
    etas = Etas()
    for reading in () if ended else readings:
        etas.feed(reading)
    epoch_batches = last.epoch_batches
    return Story(
        name=last.name,
        begin_s=first.time_s,
        end_s=last.time_s,
        state="gone" if ended else last.state,
        epochs=batches / epoch_batches if epoch_batches else float(last.epoch + 1),
        batches=batches,
        delivered=sum(trial.batches for trial in trials),
        workers=last.workers,
        window=last.window,
        cores=host.cores if host else 0,
        cpu=host.cpu if host else 0.0,
        watched_late=any(c.batches > LATE_BATCHES and not c.attached_s for c in first.consumers),
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
        pending={} if ended else ends.to_come(last),
        to_come=0 if ended else last.to_come,
        lanes=lanes_of(readings),
        trained=ends.trained,
        idle_s=ends.idle_s,
        compared=last.outcome,
    )
