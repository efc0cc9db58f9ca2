"""The formulas behind `with_memory`, `with_disk` and `with_cached`, without a file or a clock."""

from __future__ import annotations

import json
import math
import random
import re
from collections import OrderedDict
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pytest

from benchmarks.foretelling import ds_analyzer_s
from tests.stalling.made_up import measured
from tsnb.stalling import Stalls
from tsnb.stalling.storage import Storage, busy_of, hits, loading_s, preparing_s

DISK = Storage(100_000.0, 1.0, 1e9, 1.0, 0.0, 100, wait_s=0.004, busy_s=0.001)


def lru_hits(items: int, held: int, epochs: int = 30) -> float:
    """Play a cache that forgets what was not used for longest, each epoch in an order of its own."""
    luck, cache, found = random.Random(1), OrderedDict[int, None](), 0
    for epoch in range(epochs):
        for item in luck.sample(range(items), items):
            found += epoch > 0 and item in cache
            cache.pop(item, None)
            cache[item] = None
            if len(cache) > held:
                cache.popitem(last=False)
    return found / (items * (epochs - 1))


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.75, 0.9, 1.0])
def test_the_lower_bound_of_hits_is_what_such_a_cache_does(share: float) -> None:
    """The formula against a played cache; nothing is ever above the share that fits."""
    told = hits(share * 1e9, 1e9)
    assert told.least == pytest.approx(lru_hits(400, int(share * 400)), abs=0.02)
    assert told.least <= told.likely <= told.most == share
    assert hits(5e9, 1e9).least == 1.0


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_between_its_bounds_a_loader_is_slower_than_either(workers: int) -> None:
    """It is never faster than its workers, nor than the disk; with all in memory it is the workers."""
    prepare_s = 0.004
    assert loading_s(workers, prepare_s, DISK, 1.0) == prepare_s / workers
    for share in (0.0, 0.25, 0.5, 0.75):
        missed = 1 - share
        worker_s = (prepare_s + missed * DISK.wait_s) / workers  # type: ignore[operator]
        found = loading_s(workers, prepare_s, DISK, share, batch_size=8)
        assert max(worker_s, missed * 0.001) * 0.95 < found < 1.35 * max(worker_s, missed * 0.001)
    one_disk = replace(DISK, busy_s=0.004)
    assert loading_s(8, prepare_s, one_disk, 0.0) == pytest.approx(0.004, rel=0.01)
    assert loading_s(0, prepare_s, DISK, 0.0) == pytest.approx(0.008, rel=0.01)


def test_each_formula_solved_backwards_gives_what_it_was_made_from() -> None:
    """What a worker needs in memory, and how long the disk is busy, from paces."""
    for share in (0.2, 0.6, 1.0):
        wall_s = loading_s(2, 0.003, DISK, share)
        assert preparing_s(wall_s, 2, DISK, share) == pytest.approx(0.003, rel=0.02)
    for busy_s in (0.0021, 0.003, 0.004):
        disk = replace(DISK, busy_s=busy_s)
        wall_s = loading_s(4, 0.001, disk, 0.0, batch_size=1)
        assert busy_of(0.004, wall_s, 4, 0.001, disk) == pytest.approx(busy_s, rel=0.02)


def test_a_disk_whose_limit_was_not_met_has_no_rate() -> None:
    """What several workers did not wait for each other in front of is a bound at most, and no figure for programs."""
    assert DISK.disk_bytes_per_s == pytest.approx(100_000 / 0.001)
    for busy_s in (None, 0.0, 3e-10, 0.0003):
        unbound = replace(DISK, busy_s=busy_s)
        assert unbound.disk_bytes_per_s is None, busy_s
        told = replace(measured(), storage=unbound)
        assert told.to_dict()["storage"]["disk_bytes_per_s"] is None and "the disk delivers" not in told.text


def test_a_slow_disk_is_no_stage_of_a_pipeline() -> None:
    """DS-Analyzer's formula hides reading behind preparing, which a DataLoader's worker cannot do."""
    ours = loading_s(1, 0.004, DISK, 0.0)
    theirs = ds_analyzer_s(1, 0.004, 100_000, 1e10, 100_000 / 0.004, 0.0)
    assert ours == pytest.approx(0.008, rel=0.01) and theirs == pytest.approx(0.004, rel=0.01)


def test_what_if_is_answered_from_what_was_measured() -> None:
    """Less memory, a slower disk, more workers: each alone, and one after the other, in any order."""
    told = replace(measured(prepare_ms=4.0, workers=2, cores=8), storage=DISK)
    warm = told.loader_per_s
    assert warm == pytest.approx(500)
    assert told.with_cached(1.0).loader_per_s == pytest.approx(warm)
    paces = [told.with_cached(share).loader_per_s for share in (1.0, 0.75, 0.5, 0.25, 0.0)]
    assert paces == sorted(paces, reverse=True) and paces[-1] == pytest.approx(250, rel=0.02)
    half = told.with_memory("500MB")
    low, high = half.interval
    assert low < half.loader_per_s < high
    assert told.with_memory("2GiB").loader_per_s == pytest.approx(warm)
    # the disk alone: everything comes from it, with 10 ms for each sample
    slow = told.with_disk("10MB/s")
    assert slow.loader_per_s == pytest.approx(100, rel=0.02)
    assert slow.with_workers(8).loader_per_s == pytest.approx(
        100, rel=0.02
    )  # more workers do not help a disk
    assert told.with_workers(8).with_disk("10MB/s").loader_per_s == pytest.approx(100, rel=0.02)
    one_way = told.with_cached(0.5).with_disk("50MB/s").with_workers(4).loader_per_s
    assert told.with_workers(4).with_disk("50MB/s").with_cached(0.5).loader_per_s == pytest.approx(
        one_way, rel=0.03
    )
    # several loaders meet in front of the disk no less than one
    assert told.with_cached(0.0).sharing(4).shared.limit == "loader"


def test_what_is_not_known_is_said_with_the_way_out() -> None:
    """No files, no cold reading, no size, no share."""
    plain = measured()
    with pytest.raises(ValueError, match="cold=True"):
        plain.with_cached(0.5)
    with pytest.raises(ValueError, match="with_cached"):
        plain.with_memory("8GiB")
    with pytest.raises(ValueError, match="opens no visible file"):
        plain.with_disk("100MB/s")
    seen = replace(plain, storage=replace(DISK, wait_s=None, busy_s=None, why_not="the files are on a tmpfs"))
    with pytest.raises(ValueError, match=r"tmpfs.*cold=True.*with_disk"):
        seen.with_memory("8GiB")
    assert seen.with_disk("100MB/s").with_memory("1MB").loader_per_s < plain.loader_per_s
    for wrong in (-0.1, 1.5):
        with pytest.raises(ValueError, match="0 to 1"):
            seen.with_cached(wrong)
    with pytest.raises(ValueError, match="8GiB"):
        seen.with_memory("a lot")


def test_sizing_counts_the_cores_that_each_gpu_needs() -> None:
    """By hand: 8 ms of preparing, 1 ms of CPU beside a step of 10 ms on a GPU."""
    told = measured(prepare_ms=8.0, served_ms=8.0, compute_ms=10.0, device=True)
    alone, four = told.sizing(), told.sizing(gpus=4, samples=360_000, vcpu_price=0.05, gpu_price=1.0)
    assert alone.separate.vcpus == pytest.approx(0.9) == alone.shared.vcpus
    assert four.shared.vcpus == pytest.approx(0.3) and four.separate.workers == pytest.approx(0.8)
    assert four.separate.epoch_price == pytest.approx(1.0 * (0.9 * 0.05 + 1.0))  # an hour
    assert four.shared.epoch_price == pytest.approx(1.0 * (0.3 * 0.05 + 1.0))
    assert alone.separate.epoch_price is None and "unknown" in repr(alone)
    assert "one shared loader" in repr(four) and "<td" in four._repr_html_()
    with pytest.raises(ValueError, match="step="):
        measured(compute_ms=None).sizing()
    with pytest.raises(ValueError, match="a number of GPUs"):
        told.sizing(gpus=0)


@pytest.mark.parametrize(
    ("ask", "values", "wanted"),
    [
        ("with_workers", (0, -1, 2.5, True, "4", None, math.nan, 10**30), "a number of worker processes"),
        ("with_cached", (-0.1, 1.1, math.nan, True, "half", None), "a share of the samples, 0 to 1"),
        (
            "with_memory",
            ("fast", "8GiB/s", 0, -1, math.nan, math.inf, True, None),
            r"for nothing in memory: with_cached\(0\)",
        ),
        (
            "with_disk",
            ("fast", 0, -1, math.nan, math.inf, True, None),
            'a disk rate with its unit, such as "100MB/s"',
        ),
        ("sharing", (0, -1, 1.5, True, "4", None, math.nan), "a number of trials"),
        ("to_dict", (4, "12", (1, 0), (1.5,), [True], None), "numbers? of trials"),
    ],
)
def test_what_is_asked_is_refused_in_the_words_of_the_question(ask: str, values: Any, wanted: str) -> None:
    """Wrong types, zero, less, nan and True: by the argument's name, with what to give."""
    told = replace(measured(), storage=DISK)
    for value in values:
        with pytest.raises(ValueError, match=rf"^\w+=.*(: give| is invalid\. Pass) .*{wanted}"):
            getattr(told, ask)(value)


def made_of(*prepare_ms: float, storage: Storage | None = None) -> Stalls:
    """Return the medians of several rounds, in each of which preparing took so long."""
    each = [measured(prepare_ms=cost, served_ms=cost / 2, compute_ms=1.0, workers=1) for cost in prepare_ms]
    middle = measured(
        prepare_ms=median(prepare_ms), served_ms=median(prepare_ms) / 2, compute_ms=1.0, workers=1
    )
    return replace(middle, rounds=tuple((one.own, one.one) for one in each), storage=storage)


def test_every_figure_has_an_interval_and_says_from_what() -> None:
    """Of paces, gains, vCPUs and prices: as wide as the rounds were apart, in both views and as plain values."""
    told = made_of(9.0, 10.0, 11.0)
    shared, sized = told.sharing(4), told.sizing(gpus=2, vcpu_price=0.05, gpu_price=1.0, samples=1000)
    for value, interval in (
        (shared.separate.samples_per_s, shared.separate.interval),
        (shared.shared.samples_per_s, shared.shared.interval),
        (shared.gain, shared.gain_interval),
        (sized.separate.vcpus, sized.separate.vcpus_interval),
        (sized.shared.vcpus, sized.shared.vcpus_interval),
        (sized.separate.epoch_price, sized.separate.price_interval),
    ):
        assert interval is not None and value is not None and interval[0] < value < interval[1] < 1.3 * value
    for found in (shared, sized):
        assert "80% interval" in repr(found) and "From 3 rounds of measurement" in repr(found)
        assert "80% interval" in found._repr_html_() and "From 3 rounds" in found._repr_html_()
    assert "limit" in repr(shared) and "Sharing(" not in repr(shared)
    assert "In brackets: 80% interval" in repr(told) and "From 3 rounds of measurement" in repr(told)
    assert re.search(r"loader alone, shared +\S+ \(\d+ to \d+\)", repr(told))
    assert re.search(r"[\d,]+ on one shared loader \(\S+x; 80% interval \S+x to \S+x\)", told.text)
    plain = told.to_dict((4,))
    assert plain["sharing"][0]["gain_interval"] == list(shared.gain_interval or ())
    assert plain["sizing"]["shared"]["vcpus_interval"][0] < plain["sizing"]["shared"]["vcpus"]
    assert plain["basis"].startswith("From 3 rounds")
    same = made_of(10.0, 10.0, 10.0).sharing(4)
    assert same.gain_interval == pytest.approx((0.95 * same.gain, 1.05 * same.gain)), "no figure is closer"


def test_no_figure_for_programs_lacks_its_interval() -> None:
    """Each number that is foretold, shares too, has a neighbour that says what it lies between."""
    plain = replace(made_of(9.0, 10.0, 11.0), off=0.05).to_dict((1, 4))
    lacking = []
    for part in (
        plain,
        *plain["sharing"],
        plain["sizing"],
        plain["sizing"]["separate"],
        plain["sizing"]["shared"],
    ):
        for name in part.keys() - {"cores", "others"}:  # these two are counted
            if isinstance(part[name], float):
                low, high = part.get(f"{name}_interval") or (0.0, 0.0)
                lacking += [name] if not low <= part[name] <= high or low == high else []
    assert lacking == []


def test_shares_have_intervals_that_are_shares() -> None:
    """Of the time waited, and of the CPU time saved: beside the figure, between 0 and 1, and nothing without a step."""
    told = replace(made_of(9.0, 10.0, 11.0), own=measured(prepare_ms=10.0, stalled=0.5).own)
    ways = [measured(prepare_ms=10.0, stalled=waited) for waited in (0.4, 0.5, 0.6)]
    told = replace(told, rounds=tuple((way.own, way.one) for way in ways))
    low, high = told.stalled_interval or (0.0, 0.0)
    assert 0 < low < 0.5 < high < 1
    assert f"One trial waits 50% ({low:.0%} to {high:.0%}) of its time" in told.text
    assert measured(compute_ms=None).stalled_interval is None
    busy = replace(measured(stalled=0.0), rounds=((measured(stalled=0.0).own, measured().one),) * 3)
    assert (busy.stalled_interval or ()) == pytest.approx((0.0, 0.05))
    saved = made_of(9.0, 10.0, 11.0).sharing(4)
    low, high = saved.cpu_saved_interval or (0.0, 0.0)
    assert low < saved.cpu_saved < high <= 1 and f"{low:.0%} to {high:.0%}" in repr(saved)
    assert f"{saved.cpu_saved:.0%} ({low:.0%} to {high:.0%})" in repr(made_of(9.0, 10.0, 11.0))


def test_what_is_assumed_widens_the_interval_and_is_named() -> None:
    """What the page cache keeps, and how far the wait for the disk may be off; other workers and disks are said."""
    told = made_of(9.0, 10.0, 11.0, storage=replace(DISK, off=0.2, wait_s=0.02))
    half = told.with_memory("500MB").sharing(1)
    wide, narrow = half.separate.interval, told.with_cached(1.0).sharing(1).separate.interval
    assert wide is not None and narrow is not None and wide[1] / wide[0] > narrow[1] / narrow[0]
    found = told.with_workers(4).with_disk("10MB/s").with_cached(0.5)
    assert "calculated for 4 workers, a disk with 10 MB/s, 50% of the samples from memory" in repr(
        found.sharing(2)
    )
    plain = found.to_dict()
    assert plain["hits"] == {"least": 0.5, "likely": 0.5, "most": 0.5}
    assert plain["storage"]["disk_bytes_per_s"] == pytest.approx(1e7) and plain["storage"]["files"] == 1.0
    assert plain["storage"]["wait_s"] == plain["storage"]["busy_s"] == pytest.approx(0.01)
    json.dumps(plain, allow_nan=False)
    assert told.to_dict()["hits"] is None and measured(compute_ms=None).to_dict()["sizing"] is None


def test_the_last_sentence_says_that_the_step_trained() -> None:
    """How often it ran, and how a model is kept as it is; nothing of it without a step."""
    text = replace(measured(), steps=1312).text
    assert text.endswith(
        "The step ran 1,312 times and trained your model. To leave your model unchanged, pass a step on "
        "copy.deepcopy(model)."
    )
    assert "trained your model" not in measured(compute_ms=None).text


def test_the_numbers_of_a_sizing_are_checked_each() -> None:
    """GPUs, samples, prices and cores; 0 samples are not those of the loader."""
    told = replace(measured(), storage=DISK)
    odd: dict[str, list[Any]] = {
        "gpus": [0, -1, 1.5, True, "1", None],
        "samples": [0, -1, 1.5, True],
        "vcpu_price": [-0.1, math.nan, math.inf, True, "1"],
        "gpu_price": [-0.1, math.nan, math.inf, True, "1"],
    }
    for name, values in odd.items():
        for value in values:
            with pytest.raises(ValueError, match=rf"^{name}={value!r}(: give| is invalid\. Pass) "):
                told.sizing(**{name: value})
    for cores in (0, -1, math.nan, math.inf, True, "2"):
        with pytest.raises(ValueError, match="a number of cores"):
            told.sharing(2, cores=cores)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers() -> None:
    """What comes out of an array can be asked with, and comes out as Python's own."""
    told = replace(measured(), storage=DISK)
    assert told.with_workers(np.int64(3)).plain.workers == 3  # type: ignore[arg-type]
    assert told.sharing(np.int32(2), cores=np.float32(2)).trials == 2  # type: ignore[arg-type]
    assert told.with_disk(np.float64(1e7)).with_cached(np.float32(0.5)).loader_per_s > 0  # type: ignore[arg-type]
    assert told.with_disk(np.int64(10**7)).with_memory(np.int64(10**6)).loader_per_s > 0  # type: ignore[arg-type]
    found = told.sizing(gpus=np.int64(2), vcpu_price=np.float64(1), gpu_price=np.int64(1))  # type: ignore[arg-type]
    assert type(found.gpus) is int
    json.dumps(told.to_dict(np.array([1, 2])))
