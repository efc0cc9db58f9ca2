"""How `Stalls` is shown: its sentences, what was measured, and what k trials would get. Pure: numbers in, text out.

`as_plain` gives the figures as plain values, for JSON: each with what it lies between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tsnb.stalling.figures import Interval, between, number_of, percent, plain, rate, size, times
from tsnb.stalling.intervals import Figure, basis, four_in_five
from tsnb.stalling.sharing import Loading, Sharing, TrialPace, foretell
from tsnb.text.words import (
    FEATURES_KEPT,
    FROZEN_LIMITS,
    frozen_takes,
    html_table,
    marked_html,
    short_number,
    text_table,
)

if TYPE_CHECKING:
    from tsnb.stalling.result import Stalls

__all__ = ["as_plain", "caution", "frozen_limit", "html", "plain_text", "sentences", "tables"]

NO_FILES = "The disk was not measured, because the loader is not a DataLoader or opened no visible file."
SMALL = 0.10
"""A stall below a tenth of the time, or a gain below a tenth, is not worth doing something about."""
NEARLY = 0.95
"""This share of the pace with the most workers is enough: the fewest that reach it are advised."""
NOTICED = 0.25
"""Cores that other programs may take before the numbers are given with a warning."""


def sentences(told: Stalls) -> list[str]:
    """Return what limits one trial, what sharing would give several, what to do next, and how sure that is."""
    return [
        _one_trial(told),
        *_frozen(told),
        _several(told),
        *_next(told),
        *_reading(told),
        *caution(told),
        *_trained(told),
    ]


def _one_trial(told: Stalls) -> str:
    loader = f"{rate(told.loader_per_s)} samples/s"
    if told.model_per_s is None:
        step_ms = 1000 * told.batch_size / told.loader_per_s
        return (
            f"The loader alone delivers {loader} ({_workers(told)}). A model that takes less than "
            f"{short_number(step_ms)} ms for a batch of {told.batch_size} waits for it."
        )
    model, stalled = f"{rate(told.model_per_s)} samples/s", told.stalled
    if stalled is None:
        return f"The model could train on {model}, and the loader delivers {loader}."
    waits = percent(stalled) + between(told.stalled_interval, percent, brackets=True)
    if stalled < SMALL:
        return (
            f"The model is the limit: it trains on {model} and waits {waits} of its time. The loader delivers "
            f"{loader}."
        )
    if told.plain.workers and told.loader_per_s > told.model_per_s:
        short = told.sharing(1).separate.limit == "cores"
        why = (
            f"both together need more than {_cores(told)}"
            if short
            else ("transferring batches from the workers takes long")
        )
        return (
            f"One trial waits {waits} of its time, although the loader alone delivers {loader} and the model "
            f"alone takes {model}: {why}."
        )
    return (
        f"One trial waits {waits} of its time for data: the loader delivers {loader} ({_workers(told)}), and "
        f"the model could train on {model}."
    )


def _frozen(told: Stalls) -> list[str]:
    """Say what the frozen part of a network costs, and what would spare it where it is the limit."""
    if told.frozen is None:
        return []
    limits = frozen_limit(told)
    if not limits or (told.stalled is not None and told.stalled < SMALL):
        return [f"{frozen_takes(told.frozen.name, percent(told.frozen.share))}."]
    return [f"The frozen part is the limit: {limits}."]


def frozen_limit(told: Stalls) -> str:
    """Return what the frozen part takes and what would spare that; "" where it is not most of the loader's time."""
    if told.frozen is None or told.frozen.share <= FROZEN_LIMITS:
        return ""
    takes = frozen_takes(told.frozen.name, percent(told.frozen.share))
    return f"{takes}, {FEATURES_KEPT} (cache=). Fewer trials would not help"


def _several(told: Stalls) -> str:
    found = told.sharing(told.trials)
    most = "at most " if told.computing is None else ""
    own, one = (f"{most}{rate(pace.samples_per_s)}" for pace in (found.separate, found.shared))
    gain = times(found.gain)
    if found.gain_interval is not None and found.gain_interval[0] < found.gain_interval[1]:
        gain += f"; 80% interval {between(found.gain_interval, times)}"
    if told.trials == 1:
        return f"On a shared loader one trial would get {one} samples/s ({gain})."
    return (
        f"{_count(told.trials).capitalize()} trials with separate loaders would get {own} samples/s each, and "
        f"{one} on one shared loader ({gain})."
    )


def _next(told: Stalls) -> list[str]:
    """Compare the best of both ways: sharing often pays only with workers that a loader each has no cores for."""
    found = told.sharing(told.trials)
    own_workers, own = _best(told, shared=False)
    workers, one = _best(told, shared=True)
    advice = []
    if one >= own * (1 + SMALL):
        more = "" if workers == told.plain.workers else f" with num_workers={workers}"
        advice.append(
            f"Next: serve this loader once{more}, with {_call(told)}, and let "
            "each trial take its batches from `tsnb.attach()`."
        )
        if more:
            then, apart = _paced(_with(told, workers).shared), _paced(_with(told, own_workers).separate)
            at_best = f", and {apart} at best with separate loaders" if told.trials > 1 else ""
            advice.append(f"{_each(told)} would then get {then} samples/s{at_best}.")
        elif told.computing is not None:
            advice.append(f"Then {_why(told, found)}.")
    elif one <= own * (1 - SMALL):
        advice.append(
            f"Sharing would make {_trials(told)} slower, because transferring a batch costs more here than "
            "separate loaders. Next: keep a separate loader for each trial."
        )
    elif told.computing is not None:
        saved = f", though it saves {found.cpu_saved:.0%} of the CPU time" if found.cpu_saved >= SMALL else ""
        advice.append(f"Sharing makes {_trials(told)} hardly faster{saved}: {_why(told, found)}.")
        if own_workers != told.plain.workers:
            gain = times(own / found.separate.samples_per_s)
            pace = _paced(_with(told, own_workers).separate)
            advice.append(
                f"Next: num_workers={own_workers}; {_each(told).lower()} would get {pace} samples/s ({gain})."
            )
    if told.computing is None:
        advice.append("Pass train_step= (--train-step in a terminal) to include your model.")
    return advice


def _call(told: Stalls) -> str:
    """Return how to serve the loader; what the user calls the frozen part is not known."""
    then, option = ("", "") if told.frozen is None else ("then=trunk, ", " --then trunk")
    return f'`tsnb.serve(loader, {then}name="data")` or `%tensorsocket start loader --name data{option}`'


def _best(told: Stalls, *, shared: bool) -> tuple[int, float]:
    """Return the fewest workers that give nearly the most, and the pace with them; those of now if it gains little."""

    def pace(loader: Stalls) -> float:
        found = foretell(told.trials, loader.own, loader.one, loader.cores)
        return (found.shared if shared else found.separate).samples_per_s

    now = told.plain.workers
    choices = range(now + 1, max(int(told.cores), now + 1) + 1)
    paces = {workers: pace(told.with_workers(workers)) for workers in choices}
    enough = next(workers for workers in choices if paces[workers] >= NEARLY * max(paces.values()))
    return (enough, paces[enough]) if paces[enough] >= pace(told) * (1 + SMALL) else (now, pace(told))


def _with(told: Stalls, workers: int) -> Sharing:
    """Return what the trials get with so many workers, with its intervals."""
    return (told if workers == told.plain.workers else told.with_workers(workers)).sharing(told.trials)


def _why(told: Stalls, found: Sharing) -> str:
    limit = found.shared.limit
    if limit == "loader":
        cheaper = "; make samples cheaper, for example by storing them smaller or decoded"
        if frozen_limit(told):
            return "the frozen part is the limit"
        return "the loader is the limit" + (cheaper if told.plain.workers >= told.cores else "")
    if limit == "device":
        return "the GPU that the trials share is the limit"
    if limit == "cores":
        assert told.computing is not None
        cpu_s = told.trials * told.computing.cpu_s
        verb = "is" if told.cores == 1 else "are"
        share = cpu_s / (cpu_s + told.served.cpu_s + told.trials * told.served.taking_s)
        return f"{_cores(told)} {verb} the limit, busy with the models for {share:.0%} of the time"
    return "each model's own computing is the limit"


def caution(told: Stalls) -> list[str]:
    """Say that other programs took cores while it was measured, if they did; nothing else."""
    if told.others is None or told.others < NOTICED:
        return []
    text = (
        f"Other programs took {told.others:.1f} of {number_of(told.cores)} cores during the measurement. The "
        "figures exclude that as far as possible. Measure again when the machine is quieter."
    )
    return [text]


def _trained(told: Stalls) -> list[str]:
    """Say that the step was no rehearsal."""
    if not told.steps:
        return []
    runs = "once" if told.steps == 1 else f"{told.steps:,} times"
    text = (
        f"The step ran {runs} and trained your model. To leave your model unchanged, pass a step on "
        "copy.deepcopy(model)."
    )
    return [text]


def _reading(told: Stalls) -> list[str]:
    """Say what a sample reads from files, how much of that was in memory, and what the disk costs."""
    seen = told.storage
    if seen is None:
        return [NO_FILES] if told.cold else []
    whole = "" if seen.total_bytes is None else f" of {size(seen.total_bytes)} per epoch"
    text = f"A sample reads {size(seen.sample_bytes)}{whole} from files"
    if seen.cached is not None:
        text += f", {seen.cached:.0%} of it from the page cache"
    if seen.unseen >= SMALL:
        text += (
            f"; {seen.unseen:.0%} of the data comes from files that only C code opens, which are not counted"
        )
    parts = [f"{text}."]
    if seen.wait_s is not None:
        limit = seen.disk_bytes_per_s
        most = "" if limit is None else f", and the disk delivers {size(limit)}/s to all workers together"
        parts.append(
            f"A sample that is not in memory waits {short_number(1000 * seen.wait_s)} ms for the disk "
            f"(±{seen.off:.0%}){most}."
        )
        parts += [_from_disk(told)] if told.hits is None else [_assumed(told)]
    elif seen.why_not:
        parts.append(f"The cost of the disk could not be measured: {seen.why_not}.")
    elif seen.cached is not None and seen.total_bytes is not None:
        parts.append("Pass cold=True (--cold in a terminal) to measure the cost of the disk.")
    return parts


def _from_disk(told: Stalls) -> str:
    cold = told.with_cached(0.0)
    pace = rate(cold.loader_per_s) + between(cold.interval, brackets=True)
    return f"With nothing in memory the loader would deliver {pace} samples/s."


def _assumed(told: Stalls) -> str:
    assert told.hits is not None
    low, high = told.interval
    share = f"{told.hits.likely:.0%}"
    if told.hits.most > told.hits.least:
        share += f" ({told.hits.least:.0%} to {told.hits.most:.0%})"
    return (
        f"Predicted for {share} of the samples from memory: the loader delivers {rate(low)} to {rate(high)} "
        "samples/s (80% interval)."
    )


def _workers(told: Stalls) -> str:
    number = told.plain.workers
    return "no worker" if not number else f"{number} worker{'s' if number > 1 else ''}"


def _cores(told: Stalls) -> str:
    return "the one core" if told.cores == 1 else f"the {number_of(told.cores)} cores"


def _trials(told: Stalls) -> str:
    return "one trial" if told.trials == 1 else f"{_count(told.trials)} trials"


def _each(told: Stalls) -> str:
    return "One trial" if told.trials == 1 else f"Each of {_count(told.trials)} trials"


def _count(number: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[number] if number < len(words) else str(number)


Row = list[str]


def tables(told: Stalls) -> tuple[list[Row], list[Row]]:
    """Return what was measured, and what k trials would get; each with its head."""
    measured = [["measured", "samples/s", "CPU ms per batch"]]

    def row(name: str, figure: Figure, cost: str, interval: Interval | None = None) -> None:
        pace = figure(told)
        if pace is not None:
            found = interval or four_in_five(told, figure)
            measured.append([name, rate(pace) + between(found, brackets=True), cost])

    step_ms = 1000 * told.batch_size * told.computing.cpu_s if told.computing is not None else 0.0
    row("loader alone", lambda each: each.loader_per_s, _cost(told, told.plain), told.interval)
    row("model alone", lambda each: each.model_per_s, short_number(step_ms))
    row("both together", lambda each: each.together_per_s, "")
    row("loader alone, shared", lambda each: each.served_per_s, _cost(told, told.served))
    row("both together, shared", lambda each: each.together_served_per_s, "")
    foretold = [
        ["trials", "separate loaders", "limit", "one shared loader", "limit", "gain", "CPU saved"],
    ]
    for number in _numbers(told.trials):
        found = told.sharing(number)
        own, one = found.separate, found.shared
        paces = [_paced(own), own.limit, _paced(one), one.limit]
        gain = times(found.gain) + between(found.gain_interval, times, brackets=True)
        saved = percent(found.cpu_saved) + between(found.cpu_saved_interval, percent, brackets=True)
        foretold.append([str(number), *paces, gain, saved if found.cpu_saved >= 0 else "none"])
    return measured, foretold


def _paced(pace: TrialPace) -> str:
    return rate(pace.samples_per_s) + between(pace.interval, brackets=True)


def plain_text(told: Stalls) -> str:
    """Return the sentences and the tables as text."""
    shown = ["\n".join(text_table(rows)) for rows in tables(told)]
    return "\n\n".join(["\n".join(sentences(told)), *shown, _below(told)])


def html(told: Stalls) -> str:
    """Return the same for a notebook."""
    first, *others = sentences(told)
    parts = [f"<p><b>{marked_html(first)}</b> {marked_html(' '.join(others))}</p>"]
    style = "display:inline-table;margin-right:2em;vertical-align:top"
    parts += [html_table(rows, style) for rows in tables(told)]
    return "".join([*parts, f"<p><small>{marked_html(_below(told))}</small></p>"])


def _below(told: Stalls) -> str:
    threads = f"{told.threads} torch thread{'s' if told.threads > 1 else ''} each"
    return (
        f"Samples/s of each trial, batches of {told.batch_size}, {number_of(told.cores)} cores, {threads}, "
        f"for trials that compute as long as the measured step. {basis(told)} In brackets: 80% interval. For "
        "other numbers of trials: .sharing(k)."
    )


def _numbers(trials: int) -> list[int]:
    """Return the numbers of trials that the table shows."""
    return sorted({*range(1, min(trials, 4) + 1), *(n for n in (8, 16, 32) if n < trials), trials})


def _cost(told: Stalls, loading: Loading) -> str:
    return short_number(1000 * told.batch_size * (loading.cpu_s + loading.taking_s))


def as_plain(told: Stalls, trials: Iterable[int], cores: float | None = None) -> dict[str, Any]:
    """Return the figures as plain values.

    Args:
        told: The measurements, or what was calculated from them.
        trials: Numbers of trials, of which each gets an entry of `sharing`.
        cores: CPU cores for all of these; None: those of this machine.
    """

    def both(name: str, figure: Figure) -> dict[str, Any]:
        return {name: figure(told), f"{name}_interval": plain(four_in_five(told, figure))}

    return {
        "cores": told.cores,
        "others": told.others,
        "threads": told.threads,
        "batch_size": told.batch_size,
        "workers": told.plain.workers,
        "basis": basis(told),
        "steps": told.steps,
        "loader_per_s": told.loader_per_s,
        "loader_per_s_interval": plain(told.interval),
        **both("served_per_s", lambda each: each.served_per_s),
        **both("model_per_s", lambda each: each.model_per_s),
        **both("together_per_s", lambda each: each.together_per_s),
        **both("together_served_per_s", lambda each: each.together_served_per_s),
        **both("loader_cpu_s", lambda each: each.plain.cpu_s + each.plain.taking_s),
        **both("served_cpu_s", lambda each: each.served.cpu_s + each.served.taking_s),
        **both("model_cpu_s", lambda each: each.computing.cpu_s if each.computing else None),
        "stalled": told.stalled,
        "stalled_interval": plain(told.stalled_interval),
        "frozen": None if told.frozen is None else asdict(told.frozen),
        "storage": _storage(told),
        "hits": None if told.hits is None else asdict(told.hits),
        "sharing": [_shared(told.sharing(number, cores=cores), cores or told.cores) for number in trials],
        "sizing": None if told.computing is None else told.sizing(gpus=told.trials).to_dict(),
        "text": told.text,
    }


def _shared(found: Sharing, cores: float) -> dict[str, Any]:
    return {
        "trials": found.trials,
        "cores": cores,
        "separate_per_s": found.separate.samples_per_s,
        "separate_per_s_interval": plain(found.separate.interval),
        "separate_limit": found.separate.limit,
        "shared_per_s": found.shared.samples_per_s,
        "shared_per_s_interval": plain(found.shared.interval),
        "shared_limit": found.shared.limit,
        "gain": found.gain,
        "gain_interval": plain(found.gain_interval),
        "cpu_saved": found.cpu_saved,
        "cpu_saved_interval": plain(found.cpu_saved_interval),
    }


def _storage(told: Stalls) -> dict[str, Any] | None:
    """Return what a sample reads from files, and the disk's rate; None where nothing is read, or it was not seen."""
    seen = told.storage
    return None if seen is None else {**asdict(seen), "disk_bytes_per_s": seen.disk_bytes_per_s}
