"""What each trial of a stream had cost when it reached a wanted number: seconds, CPU seconds, joules, money. Pure.

    "accuracy 95.0 %: cnn after 1:12, 84 CPU s, 412 J (cuda:0)"

- CPU seconds are of the trial's own process and its children (`cpu_time`), in proportion up to the moment at which it
  was reached. The loader is shared, so its seconds stand apart: those of the producer in the same time, once for all
  trials.
- Joules are those of the GPUs that the trial had to itself. If it was the only trial, all counters count, as they do
  the whole machine. Of several trials on one device no joule can be told apart, and nobody guesses.
- A price is only of what was measured: with `kwh_price` and no counter there is none.

What is not measured is None, and in words "not measurable here": never 0, never an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tsnb.machine.energy import NOT_MEASURABLE
from tsnb.telemetry.lives.cpu_time import LOADER, Stretch, cpu_text, cpu_until, stretches
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.shown.ends import Ends
from tsnb.telemetry.shown.rates import energy_use
from tsnb.text.numbers import clock, metric
from tsnb.text.words import short_number

__all__ = ["Prices", "TrialCost", "costs", "wanted_of"]

_HOUR_S = 3600.0
_KWH_J = 3.6e6


@dataclass(frozen=True)
class Prices:
    """What a unit costs, in any currency.

    Raises:
        ValueError: A price is negative or not a number.
    """

    vcpu: float | None = None
    """An hour of one core; None: not counted."""
    kwh: float | None = None
    """A kilowatt hour; None: not counted."""

    def __post_init__(self) -> None:
        for name, price in (("vcpu_price", self.vcpu), ("kwh_price", self.kwh)):
            if price is not None and not (math.isfinite(price) and price >= 0):
                raise ValueError(f"{name}={price!r} is invalid. Pass a price, 0 or more.")

    def of(self, cpu_s: float | None, joules: float | None) -> float | None:
        """Return the price of what was used; None where a part of it was not measured, or nothing has a price."""
        parts = []
        for price, used, unit in ((self.vcpu, cpu_s, _HOUR_S), (self.kwh, joules, _KWH_J)):
            if price is not None:
                parts.append(None if used is None else price * used / unit)
        if not parts or None in parts:
            return None
        return math.fsum(part for part in parts if part is not None)

    @property
    def asked(self) -> bool:
        """Whether anything has a price."""
        return self.vcpu is not None or self.kwh is not None


@dataclass(frozen=True)
class TrialCost:
    """What one trial had cost when a metric of its reached a value."""

    name: str
    """The trial's."""
    metric: str
    """What it logs."""
    value: float
    """What was wanted of it."""
    after_s: float | None
    """From the trial's first reading until it was reached; None: it was not, and the rest is None too."""
    cpu_s: float | None = None
    """CPU seconds of its process and its children; None: the machine was not seen, nor did it say at its end."""
    loader_cpu_s: float | None = None
    """CPU seconds of the producer and its workers in that time, which all trials share."""
    joules: float | None = None
    """Counted energy that is this trial's alone; None: not measurable."""
    sources: tuple[str, ...] = ()
    """What counted it: "cuda:0", "package-0"."""
    price: float | None = None
    """Of its CPU seconds and joules; None: no price was given, or a part of it was not measured."""
    priced: bool = False
    """Whether a price was asked for."""

    @property
    def text(self) -> str:
        """What to show, in one line."""
        head = f"{self.metric} {metric(self.metric, self.value)}: {self.name}"
        if self.after_s is None:
            return f"{head} has not reached it"
        cpu = f"CPU time {NOT_MEASURABLE}" if self.cpu_s is None else f"{cpu_text(self.cpu_s)} CPU s"
        loader = "" if self.loader_cpu_s is None else f" (the shared loader {cpu_text(self.loader_cpu_s)})"
        if self.joules is None:
            energy = f"energy {NOT_MEASURABLE}"
        else:
            energy = f"{short_number(self.joules)} J ({', '.join(self.sources)})"
        parts = [f"{head} after {clock(self.after_s)}", cpu + loader, energy]
        if self.priced:
            parts.append(f"price {NOT_MEASURABLE}" if self.price is None else f"price {self.price:.4g}")
        return ", ".join(parts)


def wanted_of(target: Mapping[str, float] | None, prices: Prices) -> dict[str, float]:
    """Return the numbers to reach, by logged name.

    Raises:
        ValueError: One is not a number, or there is a price and nothing to reach.
    """
    wanted = dict(target or {})
    if prices.asked and not wanted:
        raise ValueError(
            "Prices apply to the cost until a number was reached. Add target={'accuracy': 0.95}."
        )
    for key, value in wanted.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError(f"target={{{key!r}: {value!r}}} is invalid. Pass a number to reach.")
    return wanted


def costs(
    readings: Sequence[StreamReading], wanted: Mapping[str, float], ways: Mapping[str, str], prices: Prices
) -> list[TrialCost]:
    """Return what each trial that logs a wanted metric had cost when it reached it, in the order of the metrics.

    Args:
        readings: The stream's, oldest first.
        wanted: By metric, the value to reach.
        ways: By metric, whether less is good ("min") or more ("max").
        prices: What a unit costs.
    """
    used = stretches(readings)
    found = []
    for name, course in _courses(readings).items():
        for key, value in wanted.items():
            logged = [(time_s, metrics[key]) for time_s, metrics in course if key in metrics]
            if not logged:
                continue
            sign = 1.0 if ways[key] == "max" else -1.0
            at_s = next((time_s for time_s, number in logged if sign * (number - value) >= 0), None)
            cost = TrialCost(name, key, value, None)
            if at_s is not None:
                cpu_s = cpu_until(used.get(name, ()), at_s)
                loader_s = _between(used.get(LOADER, ()), course[0][0], at_s)
                joules, sources = _joules([r for r in readings if r.time_s <= at_s], name)
                spent = cpu_s, loader_s, joules, sources, prices.of(cpu_s, joules), prices.asked
                cost = TrialCost(name, key, value, at_s - course[0][0], *spent)
            found.append(cost)
    return sorted(found, key=lambda cost: list(wanted).index(cost.metric))


def _courses(readings: Sequence[StreamReading]) -> dict[str, list[tuple[float, Mapping[str, float]]]]:
    """Return when each trial had logged what, from its attaching to its end, by name.

    One that came and went between two readings is known from what was told of its end.
    """
    found: dict[str, list[tuple[float, Mapping[str, float]]]] = {}
    ends = Ends()
    for reading in readings:
        for consumer in reading.consumers:
            found.setdefault(consumer.name, []).append((reading.time_s, consumer.metrics))
        for name, end in ends.feed(reading).items():
            if name not in found and end.since_s:
                found[name] = [(end.since_s, {})]
            if name in found:
                found[name].append((end.time_s, end.metrics))
    return found


def _between(its: Sequence[Stretch], from_s: float, until_s: float) -> float | None:
    """Return the CPU seconds between two moments; None where nothing was seen of that time."""
    found = [
        one.before(until_s) - one.before(from_s)
        for one in its
        if from_s < one.until_s and one.from_s < until_s
    ]
    return math.fsum(found) or None  # less than a look can tell is not 0


def _joules(readings: Sequence[StreamReading], name: str) -> tuple[float | None, tuple[str, ...]]:
    """Return the joules that are one trial's alone, and what counted them."""
    readings = [reading for reading in readings if any(c.name == name for c in reading.consumers)]
    use = energy_use(readings)
    if not use.joules:
        return None, ()
    if {c.name for reading in readings for c in reading.consumers} == {name}:
        return math.fsum(use.joules.values()), tuple(use.joules)
    if name not in use.trial_joules:
        return None, ()
    on = {i for r in readings if r.host and name in r.host.consumers for i in r.host.consumers[name].gpus}
    return use.trial_joules[name], tuple(f"cuda:{index}" for index in sorted(on))
