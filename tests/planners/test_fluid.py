"""Paces of the fluid model, calculated by hand: what one loader at a time can have, the page cache, a crowd."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from tsnb.planners.fluid import Course, Disk, Job, LoaderCost, Resources
from tsnb.planners.scheduling import apart, in_turn, listed, staggered

FREE = LoaderCost(0.0, 0.0, 0.0)
PLENTY = Resources(FREE, 64)


def job(name: str, samples: float = 1000.0, ms: float = 1.0, crowd: float = 1.0, beside: int = 0) -> Job:
    return Job(name, samples, ms / 1000, ms / 1000, crowd=crowd, beside=beside)


def test_loaders_hold_each_other_up_where_one_at_a_time_gets_on() -> None:
    """A disk for one read at a time: two loaders take twice as long, three three times; one stream does not."""
    reads = Resources(LoaderCost(0.004, 0.0, 0.0, lone_s=0.004), 8)
    half = Resources(LoaderCost(0.004, 0.0, 0.0, lone_s=0.002), 8)
    two, three = [job("a"), job("b")], [job("a"), job("b"), job("c")]
    assert apart(two, reads).makespan_s == pytest.approx(8.0)
    assert apart(three, reads).makespan_s == pytest.approx(12.0)
    assert listed(three, reads).makespan_s == pytest.approx(4.0)
    assert in_turn(two, reads).makespan_s == pytest.approx(8.0)
    # half of each read is the loader's own time: two at once just fit
    assert apart(two, half).makespan_s == pytest.approx(4.0)
    # a slow trial leaves the disk to the other
    ends = apart([job("slow", ms=16.0), job("fast")], reads).ends_s
    assert ends == pytest.approx({"slow": 16.0, "fast": 5.333}, rel=1e-3)


def test_a_loader_has_to_start_once_on_one_stream_and_for_each_trial_that_has_its_own() -> None:
    """A start of 2 s, computing: in turn each pays it, two at once share a core for it, one stream pays it once."""
    fills = Resources(LoaderCost(0.001, 0.0, 0.0, fill_s=2.0), 8)
    two = [job("a"), job("b")]
    assert in_turn(two, fills).makespan_s == pytest.approx(6.0)
    assert apart(two, fills).makespan_s == pytest.approx(3.0)
    assert apart(two, replace(fills, cores=1)).makespan_s == pytest.approx(4.0 + 2.0)
    assert listed(two, fills).makespan_s == pytest.approx(3.0)
    course = Course(fills, shared=True)
    course.begin(two[0])
    assert course.go_on() == []  # it has started
    assert course.go_on() == ["a"]
    course.begin(two[1])
    assert course.go_on() == ["b"]
    assert course.now_s == pytest.approx(4.0)


def test_steps_are_slower_in_a_crowd_in_proportion() -> None:
    """Alone as measured alone, beside as many as were measured so much slower, and not more beside still more."""
    jobs = [job(name, ms=2.0, crowd=1.5, beside=2) for name in "abc"]
    assert in_turn(jobs[:1], PLENTY).makespan_s == pytest.approx(2.0)
    assert listed(jobs[:2], PLENTY).makespan_s == pytest.approx(2.5)
    assert listed(jobs, PLENTY).makespan_s == pytest.approx(3.0)
    assert apart(jobs, PLENTY).makespan_s == pytest.approx(3.0)
    more = [*jobs, job("d", ms=2.0, crowd=1.5, beside=2)]
    assert listed(more, PLENTY).makespan_s == pytest.approx(3.0)
    # one that waits for something else than a core is not held up; on a GPU all of a step is
    waits = [replace(each, cpu_s=0.0) for each in jobs]
    assert listed(waits, PLENTY).makespan_s == pytest.approx(2.0)
    on_gpu = [replace(each, device="cuda:0") for each in waits]
    assert listed(on_gpu, PLENTY).makespan_s == pytest.approx(3.0)


def test_a_stream_goes_as_it_was_seen_to_go() -> None:
    """Three were a fifth slower together than their costs say: so are three, two half of that, one is not."""
    seen = Resources(LoaderCost(0.0, 0.0, 0.0, drag=1.2, drag_of=3), 64)
    jobs = [job(name, ms=2.0) for name in "abc"]
    took = [listed(jobs[:number], seen).makespan_s for number in (1, 2, 3)]
    assert took == pytest.approx([2.0, 2.2, 2.4])
    assert apart(jobs, seen).makespan_s == pytest.approx(2.0), "of the stream, not of loaders of their own"


def test_files_come_into_memory_and_stay() -> None:
    """A first epoch from the disk, a second from memory; where half fits, half of the reads are misses for good."""
    disk = Disk(0.008, 0.008, 1)
    feed = LoaderCost(0.001, 0.0, 0.0, disk=disk, epoch_samples=1000.0)
    two_epochs = in_turn([job("a", 40_000, 0.0)], Resources(feed, 8)).makespan_s
    assert two_epochs == pytest.approx(40 + 8.0, rel=0.05), (
        "40 s of preparing, and each file once from the disk"
    )
    half = LoaderCost(0.001, 0.0, 0.0, disk=Disk(0.008, 0.008, 1, cached=0.5, fits=0.5), epoch_samples=1000.0)
    assert in_turn([job("a", 10_000, 0.0)], Resources(half, 8)).makespan_s == pytest.approx(10 + 40.0)
    warm = LoaderCost(0.001, 0.0, 0.0, disk=Disk(0.008, 0.008, 1, cached=1.0), epoch_samples=1000.0)
    assert in_turn([job("a", 10_000, 0.0)], Resources(warm, 8)).makespan_s == pytest.approx(10.0)


def test_a_later_start_finds_files_in_memory_and_is_never_said_to_be_later_than_at_once() -> None:
    """The best offset is no worse than none; trials start by it; with nothing to gain it is 0."""
    disk = Resources(LoaderCost(0.0005, 0.0005, 0.0, disk=Disk(0.01, 0.01, 1), epoch_samples=1000.0), 2)
    luck = random.Random(0)
    for _ in range(10):
        jobs = [job(name, luck.choice((1e3, 3e3)), luck.uniform(0.5, 6.0)) for name in "abc"]
        found, apart_s = staggered(jobs, disk)
        assert found.makespan_s <= apart(jobs, disk).makespan_s * (1 + 1e-9)
        starts = sorted(found.starts_s.values())
        assert starts == pytest.approx([0.0, apart_s, 2 * apart_s])
        # one stream reads each file once, too, and pays for one loader
        assert listed(jobs, disk).makespan_s <= found.makespan_s * 1.05
    even = [job("a"), job("b")]
    assert staggered(even, Resources(FREE, 8))[1] == 0.0


def test_time_goes_on_by_hand() -> None:
    """In steps as short as asked for, and never past the end of a trial."""
    course = Course(Resources(FREE, 8), shared=True)
    course.begin(job("a", 1000, 1.0))
    assert course.go_on(0.25) == [] and course.going[0].left == pytest.approx(750.0)
    assert course.go_on(math.inf) == ["a"] and course.now_s == pytest.approx(1.0) and not course.going


def test_on_a_stream_a_trial_that_comes_in_an_epoch_waits_for_the_next_one() -> None:
    """Those that begin together wait for each other; after them one waits for the epoch's end, if somebody trains."""
    epochs = Resources(LoaderCost(0.001, 0.0, 0.0, epoch_samples=1000.0), 8)
    first = Job("first", 2000, 0.0, 0.0, start_s=0.5)
    slow = Job("slow", 1000, 0.0, 0.0, start_s=0.9)
    assert listed([first, slow], epochs).ends_s == pytest.approx({"slow": 1.9, "first": 2.9})
    # two in memory: the third starts at 1.9, is ready at 2.4, in the middle of first's second epoch, which ends at 2.9
    third = Job("third", 1000, 0.0, 0.0, start_s=0.5, memory_bytes=1.0)
    first, slow = (replace(each, memory_bytes=1.0) for each in (first, slow))
    found = listed([first, slow, third], replace(epochs, memory_bytes=2.0))
    assert found.starts_s["third"] == pytest.approx(1.9) and found.ends_s["third"] == pytest.approx(3.9)
    in_turn_s = listed([first, slow, third], replace(epochs, memory_bytes=1.0)).makespan_s
    assert in_turn_s == pytest.approx(2.5 + 1.9 + 1.5)
    # one that runs already is 300 samples from its epoch's end
    beside = replace(epochs, running=[Job("runs", 1300, 0.0, 0.0)])
    assert listed([third], beside).ends_s == pytest.approx({"runs": 1.3, "third": 2.3})
    late = Job("late", 1000, 0.0, 0.0, start_s=0.2)
    assert listed([late], beside).ends_s["late"] == pytest.approx(1.3)
