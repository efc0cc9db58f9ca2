"""What a trial is said to have been given is what its loops got, on every screen; closed consumers go on counting."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tsnb
from tests.consumer.played import End, Played, played
from tests.consumer.test_parts import loader
from tsnb.experiments.in_kernel.reporter import position, report
from tsnb.stream.consumer import attaching
from tsnb.stream.consumer.attachment import Attachment
from tsnb.stream.consumer.counts import Count, Total, Totals
from tsnb.stream.consumer.options import Options
from tsnb.stream.protocol import messages as ms


@pytest.fixture
def stream() -> Iterator[tsnb.streams.Producer]:
    """50 samples in batches of 8."""
    with tsnb.serve(loader(), name="s", seed=3, window=16) as producer:
        yield producer


@pytest.fixture(autouse=True)
def nothing_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins as a process does."""
    attaching.detach_all()
    monkeypatch.setattr(attaching, "_totals", Totals())


def told(name: str) -> tuple[int, int]:
    """Return what the producer says of a consumer: rows that it was given, and rows of its batches."""
    found = {consumer.name: consumer for consumer in tsnb.streams.status("s").consumers}[name]
    return found.samples, found.passed


OPTIONS: dict[str, dict[str, Any]] = {
    "all": {},
    "other batches": {"batch_size": 12},
    "a full last batch alone": {"drop_last": True},
    "other batches, a full last one alone": {"batch_size": 12, "drop_last": True},
    "a part": {"subset": range(0, 50, 3)},
    "a part in other batches": {"fold": (1, 5), "batch_size": 6, "drop_last": True},
    "a rank": {"rank": 0, "world_size": 1},
}


@pytest.mark.system
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_samples_are_those_that_the_loop_got(stream: tsnb.streams.Producer, options: dict[str, Any]) -> None:
    """After each batch, at an epoch's end, after an epoch that was left, and at the producer after each epoch."""
    consumer = tsnb.attach("c", **options)
    got = 0
    for stops in (None, 2, None):
        for number, (_, labels, _) in enumerate(consumer, start=1):
            got += len(labels)
            assert consumer.stats().samples == got == position().samples
            if number == stops:
                break
        assert told("c")[0] == got
    assert got == report()["samples"]


@pytest.mark.system
def test_each_rank_counts_its_own_rows(stream: tsnb.streams.Producer) -> None:
    """Two of one group have 50 rows together; the stream's batches are whole for each."""
    ranks = [tsnb.attach("g", rank=rank, world_size=2) for rank in range(2)]
    loops = [iter(rank) for rank in ranks]
    got = [sum(len(labels) for _, labels, _ in loop) for loop in loops]
    assert got == [rank.stats().samples for rank in ranks] and sum(got) == 50
    assert [told(f"g[{rank}]") for rank in range(2)] == [(got[0], 50), (got[1], 50)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12)), max_size=8), st.integers(0, 200))
def test_what_the_producer_adds_up_is_what_was_given(batches: list[tuple[int, int]], given: int) -> None:
    """Of any takes, right or wrong, and a last word: never more than went by, never less than nothing."""
    from tsnb.stream.decisions.members import Grant, Member

    member = Member(1, "c", skips=False)
    for seq, (rows, own) in enumerate(batches):
        member.give(seq, Grant(seq, rows, seq), 1)
        member.take(own)
    share = member.share
    assert 0 <= share.left_out <= share.passed == sum(rows for rows, _ in batches)
    member.settle(given)
    assert share.passed - share.left_out == min(given, share.passed)


def test_the_last_word_on_rows_is_said_only_where_it_is_another() -> None:
    """A loop that got all says nothing; one that was left says how many; the next producer counts from 0."""
    count, batch = Count(), ms.Batch(0, 0, 0, 0, 8, 1, 0, 0)
    assert count.took(batch, b"", Options()) == ms.Take()
    count.given += 8
    assert count.settled() == ()
    assert count.took(batch, b"", Options(rank=1, world_size=3)) == ms.Take(3)
    assert count.settled() == (ms.Got(8),)
    assert count.settled() == ()
    count.connected()
    count.took(batch, b"", Options())
    count.given += 8
    assert count.settled() == ()


@pytest.fixture
def producer() -> Iterator[Played]:
    with played() as made:
        yield made


def train(producer: Played, name: str, batches: int, epoch: int) -> tuple[tsnb.Consumer, End]:
    """Attach, and take an epoch of so many batches of 4."""
    consumer, end = tsnb.attach(name), producer.end()
    loop = iter(consumer)
    end.begin(epoch)
    end.give(*range(batches), epoch=epoch)
    end.tell(ms.EpochEnded(epoch, batches))
    assert len(list(loop)) == batches
    return consumer, end


def test_a_consumer_that_is_closed_goes_on_counting(producer: Played) -> None:
    """Training closed, then a held-out consumer: samples never go back, and epochs are those of training."""
    seen = []
    for epoch in range(2):
        with train(producer, "train", 3, epoch)[0]:
            seen.append(position().samples)
    held, _ = train(producer, "held", 1, 2)
    seen.append(position().samples)
    assert seen == [12, 24, 28]
    assert position()[:2] == (2, 3), "its second, where most was taken"
    found = report()
    assert (found["epochs"], found["batches"], found["samples"], found["stream"]) == (2, 7, 28, "s")
    held.close()
    attaching.detach_all()
    assert (report()["samples"], report()["batches"]) == (28, 7)
    assert attaching.consumers() == []


def test_while_a_trial_leaves_its_streams_its_numbers_stay(
    producer: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report that is made on another thread just then has the held-out consumer, too: it was left out."""
    for name, batches in (("train", 3), ("held", 1)):
        train(producer, name, batches, 0)
    seen: list[dict[str, Any]] = []
    close = Attachment.close

    def look(consumer: Attachment) -> None:
        for closes in (False, True):
            if closes:
                close(consumer)
            looking = threading.Thread(target=lambda: seen.append(report()))
            looking.start()
            looking.join()

    monkeypatch.setattr(Attachment, "close", look)
    attaching.detach_all()
    assert [(one["batches"], one["samples"]) for one in seen] == [(4, 16)] * 4
    assert (report()["batches"], report()["samples"]) == (4, 16)


def test_a_clone_s_consumer_that_two_names_lead_to_counts_once(producer: Played) -> None:
    """Code of the parent's attaches by the former name."""
    consumer, _ = train(producer, "c", 2, 0)
    attaching._consumers["s", "another"] = consumer._inner
    assert attaching.consumers() == [consumer._inner]
    assert report()["samples"] == 8
    attaching.detach_all()
    assert report()["samples"] == 8


def test_totals_of_one_name_are_one() -> None:
    """An attachment that took nothing does not take the place away."""
    totals = Totals()
    totals.keep(("s", "c"), Total("s", 4, 7, 10, 80, 1, 2.0, 1.0))
    (found,) = totals.with_open([(("s", "c"), Total("s", -1, 0, 0, 0, 0, 0.5, 0.5))])
    assert found == Total("s", 4, 7, 10, 80, 1, 2.5, 1.5)


def test_cpu_seconds_count_from_the_first_attaching_and_anew_in_a_fork() -> None:
    """A clone has computed nothing yet; what its parent had is the parent's."""
    totals = Totals()
    assert totals.cpu_time() is None, "it has never attached"
    totals.attaching()
    began = totals.cpu_time()
    assert began is not None
    while time.process_time() < 0.1 or (totals.cpu_time() or began).cpu_s < 0.05:
        pass
    totals.attaching()
    now = totals.cpu_time()
    assert now is not None and now.since_s == began.since_s and now.cpu_s >= 0.05
    read, write = os.pipe()
    if not (child := os.fork()):
        totals.forked()
        here = totals.cpu_time() or began
        os.write(write, b"new" if here.since_s > began.since_s and here.cpu_s < 0.05 else b"old")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 3) == b"new"
    os.close(read)
    os.close(write)


def test_an_epoch_that_is_begun_twice_counts_once() -> None:
    """Lightning begins a loop to look at it, and the one that it takes batches of."""
    with tsnb.serve([[1, 2]] * 3, name="begun"), tsnb.attach("c", "begun") as consumer:
        for epoch in range(1, 4):
            iter(consumer)
            assert len(list(consumer)) == 3
            (total,) = [each for each in attaching.totals() if each.stream == "begun"]
            assert total.begun == epoch
