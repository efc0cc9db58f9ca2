"""Words as the panel writes them (`panel/frontend/src/words.js`); a test runs both and compares. Pure.

`incidents` are what has happened to a stream that its reader should know, beside the usual numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tsnb.telemetry.forecast.eta import Eta
from tsnb.telemetry.readings import (
    END_STATES,
    STANDING,
    CacheReading,
    ProbeReading,
    StreamReading,
    TuningReading,
)
from tsnb.telemetry.shown.marks import pacing_text
from tsnb.text.numbers import DASH, buffered, clock, count, mebibytes, pace, percent
from tsnb.text.words import clock_time, text_table

if TYPE_CHECKING:
    from tsnb.telemetry.shown.rows import Row
    from tsnb.telemetry.shown.view import StreamView

__all__ = [
    "COLOURS",
    "LIVE",
    "PART_NAMES",
    "all_left",
    "balanced",
    "cache_text",
    "cached",
    "consumer_state",
    "epoch_left",
    "far_behind",
    "flow",
    "footnotes",
    "growth_text",
    "incidents",
    "probe_rows",
    "progress",
    "remaining",
    "short_of_memory",
    "stream_word",
    "tone",
    "tuned",
    "waiting",
    "workers",
]

COLOURS = ("#165E9F", "#E26802", "#068F78", "#C772BA", "#0096F5", "#B54C0D", "#7C55D5", "#7C4130")
"""The panel's: a trial has the same colour everywhere."""

LIVE = frozenset({"starting", "serving", "idle", "blocked", "failed", "stopping"})
"""States in which readings arrive."""

PART_NAMES = {
    "computing": "computing",
    "waiting": "waiting for data",
    "held": "waiting for slower trials",
    "joining": "waiting to join a pass",
    "between": "between epochs",
    "paused": "paused",
    "parked": "timed out",
}
"""What a trial's time goes to, in the panel's words."""

MOST_EPOCH_S, MOST_LEFT_S = 360_000.0, 3_600_000.0
"""A hundred hours of an epoch, a thousand of a training: more is no estimate any more."""
_TONES = {
    "serving": "ok",
    "blocked": "ok",
    "idle": "soft",
    "starting": "warn",
    "failed": "bad",
    "stopping": "warn",
}
_END_TONES = {"done": "ok", "failed": "bad", "crashed": "bad", "interrupted": "warn"}
_CONSUMER_TONES = {
    "sets the pace": "ok",
    "waiting": "warn",
    "skipping": "warn",
    "timed out": "warn",
}
_STREAM_WORDS = {"absent": "not served", "gone": "ended", "serving": "", "blocked": ""}


def tone(state: str) -> str:
    """Return ok, warn, bad or soft: how the dot before the stream's name is painted."""
    return _TONES.get(state, "soft")


def stream_word(state: str) -> str:
    """Return the word beside the stream's name; none while all is well."""
    return _STREAM_WORDS.get(state, state)


def consumer_state(state: str, for_s: float, live: bool) -> tuple[str, str]:
    """Return a consumer's state as shown, and its tone.

    Args:
        state: One of `CONSUMER_STATES` or `END_STATES`, or that of a trial that is not attached yet.
        for_s: Seconds in that state.
        live: Whether the stream is served.
    """
    if state in END_STATES:
        return state, _END_TONES.get(state, "soft")
    if not live and state != "gone":
        return "ended", "soft"
    if state == "paused":
        return f"{state} {clock(for_s)}", "soft"
    return "left" if state == "gone" else state, _CONSUMER_TONES.get(state, "soft")


def balanced(reading: StreamReading) -> list[str]:
    """Say how a stream divides compute, and which weights belong to no attached trial."""
    window = f"window of {reading.window}"
    full = reading.window_fill >= reading.window > 0
    what = {
        "together": f"the {window} keeps all trials in step, and large models get the compute that small models leave",
        "free": f"all {reading.window} buffered batches are in use, so the other trials wait until the slowest "
        "has caught up"
        if full
        else f"each trial runs as fast as it can until {reading.window} batches are buffered for the slowest",
        "weights": f"a {window}, and a trial that has computed more than its weight lets other trials go first",
    }
    lines = [f"{reading.name}: pacing {pacing_text(reading)}: {what.get(reading.pacing, window)}"]
    # the ranks of a group, bert[0] and so on, have the weight of its name
    here = list(dict.fromkeys(consumer.name.partition("[")[0] for consumer in reading.consumers))
    for name in reading.weights:
        if name not in here:
            there = ", ".join(here) or "none"
            lines.append(
                f"note: no trial named {name!r} is attached yet. Its weight takes effect when it attaches. "
                f"Attached: {there}"
            )
    return lines


def probe_rows(probes: Iterable[ProbeReading]) -> list[list[str]]:
    """Return measured choices of the loader's workers as rows of cells, the head first."""
    cells = [
        [str(p.workers), str(p.prefetch), pace(p.pace), percent(p.waited), "yes" if p.kept else "no"]
        for p in probes
    ]
    return [["workers", "ahead", "batches/s", "wait share", "kept"], *cells]


def short_of_memory(tuning: TuningReading | None) -> str:
    """Say that the memory that was given to workers is too little for one, or for a second one; empty where it is not.

    A second one is tried while the first still hands in what it has: new ones beside it, which makes three.
    """
    if tuning is None or tuning.memory_bytes is None or not tuning.worker_bytes:
        return ""
    need, given = tuning.worker_bytes, tuning.memory_bytes
    if 3 * need <= given or (tuning.workers > 1 and need <= given):
        return ""
    one, has, enough = (mebibytes(size / 2**20) for size in (need, given, 3 * need))
    passed = (
        f", but memory= allows {has}. tsnb keeps this worker and exceeds the limit" if need > given else ""
    )
    return (
        f"note: one worker needs {one}{passed}. With {has}, tsnb adds no worker. Pass memory={enough} or more "
        "to try a second worker, or serve without memory="
    )


def tuned(reading: StreamReading) -> list[str]:
    """Say how many workers a stream's loader was asked to have, and what was measured for it."""
    tuning = reading.tuning
    if tuning is None:
        return [f"{reading.name}: {workers(reading)}, as it was served"]
    if tuning.asked != "auto":
        later = "" if reading.workers == tuning.workers else f", {reading.workers} until then"
        number = "1 worker" if tuning.workers == 1 else f"{tuning.workers} workers"
        return [f"{reading.name}: {number} from the next unassigned batch on{later}"]
    bound = "the free memory" if tuning.memory_bytes is None else mebibytes(tuning.memory_bytes / 2**20)
    state = "found, still monitored" if tuning.resting else "being tried"
    if not reading.consumers:
        state = "tried when a trial takes batches"
    now = f"{workers(reading)}, {tuning.prefetch} ahead each"
    head = f"{reading.name}: workers auto, memory limit {bound}; {state}. Now {now}"
    short = [text] if (text := short_of_memory(tuning)) else []
    return [
        head,
        *short,
        *(text_table(probe_rows(tuning.probes)) if tuning.probes else ["no measurements yet"]),
    ]


def growth_text(reading: StreamReading) -> str:
    """Return how many samples a growing data set has, and which rounds; empty where it does not grow."""
    if reading.found is None:
        return ""
    found = "1 sample" if reading.found == 1 else f"{reading.found:,} samples"
    return f"{found} found; " + (f"rounds: {reading.rounds}" if reading.rounds else "no rounds")


def cached(reading: CacheReading) -> str:
    """Return a stream's cache in one line."""
    if reading.state == "off":
        return f"cache: off, {reading.why}"
    asked = reading.hits + reading.misses
    fetched = f" ({percent(reading.lent_hits / asked)} fetched)" if reading.lent_hits else ""
    share = f", {percent(reading.hits / asked)} of samples served from it{fetched}" if reading.hits else ""
    back = f", {mebibytes(reading.given_bytes / 2**20)} freed" if reading.given_bytes else ""
    why = f" ({reading.why})" if reading.why else ""
    packed = f" ({reading.packed:,} packed)" if reading.packed else ""
    return (
        f"cache: {reading.state}, {reading.kept:,} of {reading.samples:,} samples{packed} in "
        f"{mebibytes(reading.kept_bytes / 2**20)} of {mebibytes(reading.limit_bytes / 2**20)}{_lent(reading)}"
        f"{share}{back}{why}"
    )


def _lent(reading: CacheReading) -> str:
    """Return what of a cache other machines keep; empty where they keep nothing."""
    if not reading.lenders:
        return ""
    machines = "1 other machine" if reading.lenders == 1 else f"{reading.lenders:,} other machines"
    return f", {reading.lent_kept:,} in {mebibytes(reading.lent_bytes / 2**20)} of {machines}"


def cache_text(reading: StreamReading) -> str:
    """Return what a stream's cache does, without the word cache; empty where it is served without one."""
    return cached(reading.cache).removeprefix("cache: ") if reading.cache is not None else ""


def progress(epochs: float, epoch_batches: int | None) -> str:
    """Write how many epochs a consumer has taken itself: 2 and 0.66 of the third as 2.66.

    Args:
        epochs: From `telemetry.shown.marks.Taken`; nan or less than 0 before the first.
        epoch_batches: Loader batches in an epoch, where known; else epochs are whole.
    """
    if math.isnan(epochs) or epochs < 0:
        return DASH
    return f"{epochs:.2f}" if epoch_batches else str(int(epochs))


def remaining(eta: Eta) -> str:
    """Write how long a trial still takes: 12:30; epoch 1:10 where only the end of its epoch is known."""
    if not eta.known or eta.left_s >= MOST_LEFT_S:
        return DASH
    return clock(eta.left_s) if eta.whole else f"epoch {clock(eta.left_s)}"


def epoch_left(left_s: float, share: float) -> str:
    """Write how long a stream's epoch still takes, as it follows what is done of it; empty where that is not known.

    Args:
        left_s: Seconds; NaN: not known.
        share: What of it is done, 0 to 1.
    """
    return f", {clock(left_s)} left" if share < 1 and left_s < MOST_EPOCH_S else ""


def all_left(eta: Eta, now_s: float | None = None) -> str:
    """Write how long all of a stream's trials still take; empty where that of one is not known.

    Args:
        eta: The time left of all trials.
        now_s: When that was estimated, seconds since 1970: the time of day is written, too.
    """
    if not eta.whole or eta.left_s >= MOST_LEFT_S:
        return ""
    at = "" if now_s is None else f", at {clock_time(now_s + eta.left_s, now_s)}"
    return f"all done in {clock(eta.left_s)}{at} ({clock(eta.low_s)} to {clock(eta.high_s)})"


def workers(reading: StreamReading) -> str:
    """Write how many workers the loader has."""
    return {0: "no workers", 1: "1 worker"}.get(reading.workers, f"{reading.workers} workers")


def flow(view: StreamView) -> dict[str, str]:
    """Say how a stream flows, in four facts: those of the panel's strip (`panel/frontend/src/strip.js`).

    Args:
        view: The stream; of its trials those count that take batches.

    Returns:
        By title: the batches that are prepared, of those that are kept; the trial that is farthest behind; samples/s of
        each; the trial with the largest share of compute. A dash where nothing is known.
    """
    with view.lock:
        rows = [
            (row.name, row.reading.lag, row.reading.fill, row.pace)
            for row in view.rows.values()
            if row.here and row.reading.state not in STANDING
        ]
        window = view.latest.window if view.latest else 0
    if not rows:
        return dict.fromkeys(("Buffer", "Lag", "Speed", "Share of compute"), DASH)
    far, lag, _, _ = max(rows, key=lambda row: row[1])
    computing = {name: pace.computing if math.isfinite(pace.computing) else 0.0 for name, _, _, pace in rows}
    spent, most = sum(computing.values()), max(computing, key=lambda name: computing[name])
    return {
        "Buffer": f"{buffered(max(fill for _, _, fill, _ in rows), window)} prepared",
        "Lag": f"{count(lag)} behind: {far}" if lag > 0 else "all at the front",
        "Speed": _speeds([pace.samples_per_s for *_, pace in rows if math.isfinite(pace.samples_per_s)]),
        "Share of compute": f"{percent(computing[most] / spent)} {most}" if spent > 0 else DASH,
    }


def far_behind(rows: Iterable[Row], window: int) -> str:
    """Say who is behind by more batches than the window has, and why that can be; empty: nobody is.

    Args:
        rows: The trials.
        window: The stream's.
    """
    far = max((row for row in rows if row.here), key=lambda row: row.reading.lag, default=None)
    if far is None or far.reading.lag <= window:
        return ""
    return (
        f"{far.name} is {far.reading.lag:,} batches behind the front, more than the window of {window:,}. "
        "The stream keeps what a trial misses while it validates, saves or compiles."
    )


def _speeds(speeds: Sequence[float]) -> str:
    """Say how fast trials are: "256 each", "about 250 each", or "120 to 512" where they differ."""
    if not speeds:
        return DASH
    slow, fast = min(speeds), max(speeds)
    if len(speeds) == 1:
        return count(fast)
    if count(slow) == count(fast):
        return f"{count(fast)} each"
    mean = sum(speeds) / len(speeds)
    return f"about {count(mean)} each" if fast - slow <= 0.05 * fast else f"{count(slow)} to {count(fast)}"


SHOWN_MOVES = 3
"""The last moves of cores; the readings have more."""


def waiting(states: Mapping[str, str], alone: int = 3) -> list[str]:
    """Return lines on the trials that are not attached yet: where many wait for the same, one line for them all.

    Args:
        states: State and reason of each by name.
        alone: So many that wait for the same have a line each.
    """
    alike: dict[str, list[str]] = {}
    for name, said in states.items():
        alike.setdefault(said, []).append(name)
    lines = []
    for said, names in alike.items():
        if len(names) <= alone:
            lines += [f"{name} {said}" for name in names]
        else:
            lines.append(f"{len(names)} trials, each {said} ({', '.join(map(str.strip, names[:3]))}, …)")
    return lines


def footnotes(reading: StreamReading) -> list[str]:
    """Return what `tsnb status` and `%tensorsocket status` say below the trials."""
    cache = [] if reading.cache is None else [cached(reading.cache)]
    return [*incidents(reading), *filter(None, [growth_text(reading), reading.ordinary]), *cache]


def incidents(reading: StreamReading) -> list[str]:
    """Return a line for each incident; none in an undisturbed stream."""
    lines = [
        f"{consumer.name} skipped {consumer.skipped} batches to keep pace"
        for consumer in reading.consumers
        if consumer.skipped
    ]
    if reading.rebalancing.startswith("stands"):
        lines.append(f"cores are not moved: the balancer {reading.rebalancing}")
    if short := short_of_memory(reading.tuning):
        lines.append(f"workers: {short.removeprefix('note: ')}")
    for move in reading.moves[-SHOWN_MOVES:]:
        effect = f": {move.effect}" if move.effect else ""
        lines.append(
            f"{clock(max(0.0, reading.time_s - move.time_s))} ago {move.text} ({move.reason}){effect}"
        )
    if reading.refused:
        were = "connection was" if reading.refused == 1 else "connections were"
        lines.append(f"{reading.refused} {were} dropped: malformed or hostile messages")
    return lines
