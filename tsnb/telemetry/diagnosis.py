"""Who waits for whom: one plain sentence from two readings.

Between the two readings each consumer spent its time computing, waiting for the loader, or held back by the
window. If most time goes into waiting, the loader is the limit; if into being held, the consumer with the
largest fill is; otherwise the models are busy and nothing is wasted.
"""

from __future__ import annotations

from dataclasses import dataclass

from tsnb.telemetry.readings import ConsumerReading, StreamReading

__all__ = ["Diagnosis", "Shares", "diagnose", "shares"]

SMALL = 0.10
"""Below a tenth of its time, waiting is not worth a sentence."""


@dataclass(frozen=True)
class Shares:
    """Where one consumer's time went between two readings, each 0 to 1."""

    computing: float
    waiting: float
    held: float


@dataclass(frozen=True)
class Diagnosis:
    """What limits the stream now."""

    kind: str
    """starting, idle, loader-bound, window-bound, model-bound, failed, or gone."""
    text: str
    """One plain sentence with numbers."""
    pace: str | None = None
    """The consumer that sets the pace, where one does."""


def shares(earlier: ConsumerReading, later: ConsumerReading) -> Shares | None:
    """Return where the consumer's time went between two readings; None if it took no part."""
    computing = later.computing_s - earlier.computing_s
    waiting = later.waiting_s - earlier.waiting_s
    held = later.held_s - earlier.held_s
    total = computing + waiting + held
    if total <= 0:
        return None
    return Shares(computing / total, waiting / total, held / total)


def diagnose(earlier: StreamReading, later: StreamReading) -> Diagnosis:
    """Say in one sentence what limits the stream.

    Args:
        earlier: A reading of about two seconds before.
        later: The newest reading.
    """
    if later.state == "failed":
        return Diagnosis("failed", f"The loader failed: {later.failure}")
    if later.state in ("stopping", "gone"):
        return Diagnosis("gone", "The stream has ended.")
    before = {c.name: c for c in earlier.consumers}
    parts = {
        c.name: s
        for c in later.consumers
        if c.name in before and (s := shares(before[c.name], c)) is not None
    }
    if not later.consumers:
        return Diagnosis("idle", "No consumer is attached; the first batches are ready.")
    if not parts:
        return _resting(later)
    held = {name: s.held for name, s in parts.items() if s.held >= SMALL}
    waiting = {name: s.waiting for name, s in parts.items() if s.waiting >= SMALL}
    if held and max(held.values()) >= max(waiting.values(), default=0.0):
        return _window_bound(later, parts, held)
    if waiting:
        return _loader_bound(earlier, later, waiting)
    return _model_bound(parts)


def _resting(later: StreamReading) -> Diagnosis:
    names = [c.name for c in later.consumers if c.state != "gone"]
    between = all(c.state == "between epochs" for c in later.consumers)
    if between:
        return Diagnosis("idle", f"{_list(names)} {_be(names)} between epochs; nothing is being read.")
    return Diagnosis("starting", f"{_list(names)} attached; nothing has been read yet.")


def _window_bound(later: StreamReading, parts: dict[str, Shares], held: dict[str, float]) -> Diagnosis:
    free = [c for c in later.consumers if c.name in parts and c.name not in held]
    slowest = max(free, key=lambda c: (c.state == "sets the pace", c.lag), default=None)
    others = _with_percent(held)
    if slowest is None:
        return Diagnosis("window-bound", f"The window is full: {others} of {_their(held)} time held back.")
    text = f"{slowest.name} sets the pace: {others} of {_their(held)} time held back."
    return Diagnosis("window-bound", text, slowest.name)


def _loader_bound(earlier: StreamReading, later: StreamReading, waiting: dict[str, float]) -> Diagnosis:
    seconds = later.time_s - earlier.time_s
    pace = f" at {(later.batches - earlier.batches) / seconds:.1f} batches/s" if seconds > 0 else ""
    workers = "its own process" if later.workers == 0 else f"{later.workers} workers"
    # a stream does not know the machine's load: advice that holds only with cores to spare must say so
    advice = "num_workers=2 or more" if later.workers == 0 else "more workers"
    text = (
        f"The loader is the limit{pace} ({workers}): {_with_percent(waiting)} of {_their(waiting)} time "
        f"waiting for data; {advice} would help if cores are free."
    )
    return Diagnosis("loader-bound", text)


def _model_bound(parts: dict[str, Shares]) -> Diagnosis:
    names = list(parts)
    least = min(s.computing for s in parts.values())
    return Diagnosis(
        "model-bound",
        f"{_list(names)} {_be(names)} busy computing at least {least:.0%} of the time; nobody waits.",
    )


def _with_percent(parts: dict[str, float]) -> str:
    return _list([f"{name} spends {share:.0%}" for name, share in parts.items()])


def _their(parts: dict[str, float]) -> str:
    return "their" if len(parts) > 1 else "its"


def _be(names: list[str]) -> str:
    return "are" if len(names) > 1 else "is"


def _list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
