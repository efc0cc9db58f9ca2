"""Words and numbers as the panel writes them (`panel/frontend/src/words.js`); a test runs both and compares. Pure.

`incidents` are what has happened to a stream that its reader should know, beside the usual numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from tsnb.telemetry.forecast.eta import Eta
from tsnb.telemetry.readings import END_STATES, CacheReading, ProbeReading, StreamReading, TuningReading
from tsnb.telemetry.shown.marks import pacing_text
from tsnb.telemetry.shown.rates import Pace
from tsnb.text.words import clock_time, text_table

__all__ = [
    "COLOURS",
    "LIVE",
    "all_left",
    "balanced",
    "buffered",
    "cache_text",
    "cached",
    "clock",
    "consumer_state",
    "count",
    "epoch_left",
    "flow",
    "footnotes",
    "growth_text",
    "incidents",
    "is_accuracy",
    "mebibytes",
    "metric",
    "milliseconds",
    "pace",
    "percent",
    "probe_rows",
    "progress",
    "remaining",
    "short_of_memory",
    "stream_word",
    "tone",
    "tuned",
    "used_of",
    "waiting",
    "workers",
]

COLOURS = ("#165E9F", "#E26802", "#068F78", "#C772BA", "#0096F5", "#B54C0D", "#7C55D5", "#7C4130")
"""The panel's: a trial has the same colour everywhere."""

LIVE = frozenset({"starting", "serving", "idle", "blocked", "failed", "stopping"})
"""States in which readings arrive."""

_DASH = "\u2013"
LEAST_MIB = 0.095
"""Less would be 0.0 MiB, or 0.1 whatever it is."""
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


def clock(seconds: float) -> str:
    """Write a duration: 72 as 1:12, 3700 as 1:01:40."""
    whole = max(0, math.floor(seconds + 0.5))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def count(value: float) -> str:
    """Write a number: 612.3 as 612, 9.63 as 9.6, 12345 as 12,345."""
    if not math.isfinite(value):
        return _DASH
    return f"{value:,.1f}" if abs(value) < 9.95 and value != int(value) else f"{_half_up(value):,}"


def pace(value: float) -> str:
    """Write a rate with one decimal up to 100, so that its width stays the same."""
    return f"{value:.1f}" if math.isfinite(value) and value < 99.95 else count(value)


def percent(share: float) -> str:
    """Write a share of 0 to 1: 0.38 as 38 %."""
    # of the same share in 32 bits, as a page has it, the same: 0.37499999 is a half
    return f"{_half_up(round(share * 100, 4))} %" if math.isfinite(share) else _DASH


def milliseconds(seconds: float) -> str:
    """Write a short time: 0.0123 as 12.3 ms, 1.234 as 1,234 ms."""
    if not math.isfinite(seconds):
        return _DASH
    value = seconds * 1000
    return f"{value:.1f} ms" if value < 99.95 else f"{count(value)} ms"


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


def mebibytes(value: float) -> str:
    """Write a size in MiB for screens, where columns are narrow.

    212.4 as 212 MiB, 3200 as 3.1 GiB, 81920 as 80 GiB, 0.04 as 41 KiB.
    """
    if not math.isfinite(value):
        return _DASH
    if 0 < value < LEAST_MIB:
        return f"{1024 * value:.1f} KiB" if 1024 * value < 9.95 else f"{_half_up(1024 * value)} KiB"
    if value >= 1000:
        return f"{_half_up(value / 1024)} GiB" if value >= 10189 else f"{value / 1024:.1f} GiB"
    return f"{value:.1f} MiB" if value < 9.95 else f"{_half_up(value)} MiB"


def used_of(used: float, total: float) -> str:
    """Write two sizes in MiB as "3.1 of 16 GiB": the unit is said once where both have the same."""
    part, whole = mebibytes(used), mebibytes(total)
    return f"{part.removesuffix(whole[-4:])} of {whole}"


_ACCURACY = re.compile(
    r"(?:(?<![A-Za-z])[Aa]cc|(?<=[a-z0-9])Acc)(?:urac(?:y|ies))?(?![a-z])|(?<![A-Za-z])ACC(?:URACY)?(?![A-Za-z])"
)
"""An accuracy by a word of its name: "val_acc", "topAcc"; not "grad_accum", whose 1 is not 100 %. As `words.js`."""


def is_accuracy(name: str) -> bool:
    """Return whether a logged number is an accuracy by a word of its name."""
    return bool(_ACCURACY.search(name))


def metric(name: str, value: float | None) -> str:
    """Write a logged number: accuracies of 0 to 1 as per cent, others with two to four figures; None: a dash."""
    if value is None:
        return _DASH
    if not math.isfinite(value):
        return repr(value)
    if is_accuracy(name) and 0 <= value <= 1:
        return f"{value * 100:.1f} %"
    size = abs(value)
    if value != 0 and (size >= 1e5 or size < 1e-5):
        digits, _, power = f"{value:.1e}".partition("e")
        return f"{digits}e{int(power):+d}"
    least = {100: 0, 10: 1, 1e-2: 3, 1e-3: 4, 1e-4: 5, 0: 6}  # 0.00078 below 0.039: a column is compared
    decimals = 3 if value == 0 else next(many for low, many in least.items() if size >= low)
    return f"{value:.{decimals}f}"


def progress(epochs: float, epoch_batches: int | None) -> str:
    """Write how many epochs a consumer has taken itself: 2 and 0.66 of the third as 2.66.

    Args:
        epochs: From `telemetry.shown.marks.Taken`; nan or less than 0 before the first.
        epoch_batches: Loader batches in an epoch, where known; else epochs are whole.
    """
    if math.isnan(epochs) or epochs < 0:
        return _DASH
    return f"{epochs:.2f}" if epoch_batches else str(int(epochs))


def remaining(eta: Eta) -> str:
    """Write how long a trial still takes: 12:30; epoch 1:10 where only the end of its epoch is known."""
    if not eta.known or eta.left_s >= MOST_LEFT_S:
        return _DASH
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


def flow(window: int, rows: Sequence[tuple[str, int, int, Pace]]) -> dict[str, str]:
    """Say how a stream flows, in four facts: those of the panel's strip (`panel/frontend/src/strip.js`).

    Args:
        window: Batches that are kept at most.
        rows: Of each trial that takes batches its name, how many batches it is behind the fastest, how many are ready
            for it, and its pace.

    Returns:
        By title: the batches that are prepared, of those that are kept; the trial that is farthest behind; samples/s of
        each; the trial with the largest share of compute. A dash where nothing is known.
    """
    if not rows:
        return dict.fromkeys(("Buffer", "Lag", "Speed", "Share of compute"), _DASH)
    far, lag, _, _ = max(rows, key=lambda row: row[1])
    computing = {name: pace.computing if math.isfinite(pace.computing) else 0.0 for name, _, _, pace in rows}
    spent, most = sum(computing.values()), max(computing, key=lambda name: computing[name])
    return {
        "Buffer": f"{buffered(max(fill for _, _, fill, _ in rows), window)} prepared",
        "Lag": f"{count(lag)} behind: {far}" if lag > 0 else "all at the front",
        "Speed": _speeds([pace.samples_per_s for *_, pace in rows if math.isfinite(pace.samples_per_s)]),
        "Share of compute": f"{percent(computing[most] / spent)} {most}" if spent > 0 else _DASH,
    }


def buffered(fill: int, window: int) -> str:
    """Write how many batches are ready: of those that the window keeps, or more while they are kept for one that stops.

    Example:
        >>> buffered(3, 8), buffered(240, 8)
        ('3 of 8', '240')
    """
    return f"{count(fill)} of {count(window)}" if fill <= window else count(fill)


def _speeds(speeds: Sequence[float]) -> str:
    """Say how fast trials are: "256 each", or "120 to 512" where they differ."""
    if not speeds:
        return _DASH
    slow, fast = min(speeds), max(speeds)
    if len(speeds) == 1:
        return count(fast)
    alike = count(slow) == count(fast) or fast - slow <= 0.05 * fast
    return f"{count(fast)} each" if alike else f"{count(slow)} to {count(fast)}"


def _half_up(value: float) -> int:
    """Round as JavaScript does."""
    return math.floor(value + 0.5)


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
