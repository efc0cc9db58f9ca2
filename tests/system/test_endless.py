"""Loaders without a length, some of which never end: who comes late, and what is said."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Sampler

import tsnb
from tsnb.stream.consumer.attaching import detach_all

LONG_S = 60.0


@pytest.fixture(autouse=True)
def _detached() -> Iterator[None]:
    yield
    detach_all()


def endless(epoch: int) -> Iterator[Any]:
    return ([i] for i in itertools.count())


def test_all_of_an_epoch_is_kept_for_latecomers_though_nobody_knows_how_long_it_is() -> None:
    """late_join=1 without len(): one that comes after a hundred batches begins with the first."""
    with tsnb.serve(endless, name="s", late_join=1.0):
        early: Any = iter(tsnb.attach("early", stream="s"))
        assert [next(early)[0] for _ in range(100)] == list(range(100))
        late: Any = iter(tsnb.attach("late", stream="s"))
        assert [next(late)[0] for _ in range(50)] == list(range(50))


def test_a_share_of_what_has_no_length_is_told_to_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tsnb"), tsnb.serve(endless, name="s", late_join=0.5):
        assert next(iter(tsnb.attach("one", stream="s"))) == [0]
    assert "'s' has no length, so late_join=0.5" in caplog.text


@pytest.mark.slow
def test_a_latecomer_to_an_endless_epoch_is_told_what_helps() -> None:
    """Not a larger share of an epoch that has no length."""
    with tsnb.serve(endless, name="s", stall_timeout_s=600.0):
        early: Any = iter(tsnb.attach("early", stream="s"))
        for _ in range(100):
            next(early)
        late = tsnb.attach("late", stream="s")

        def wait() -> None:
            next(iter(late))

        waiting = threading.Thread(target=wait)
        waiting.start()
        with pytest.warns(RuntimeWarning, match=r"no length. If the loader never ends.*join='here'"):
            waiting.join(6.0)
        del early
        tsnb.attach("early", stream="s").close()
        waiting.join(LONG_S)
        assert not waiting.is_alive()


class Endless(Sampler[int]):
    """Counts for ever, by a hundred."""

    def __iter__(self) -> Iterator[int]:
        return (i % 100 for i in itertools.count())


def never_ending() -> DataLoader[Any]:
    """As language models are trained: by steps, and without epochs."""
    return DataLoader(torch.arange(100), 2, sampler=Endless())  # type: ignore[arg-type]


def test_a_latecomer_to_an_endless_sampler_begins_at_the_batch_that_the_others_take() -> None:
    """It is told which one. Two that come together begin with the same batch, and all go on together."""
    with tsnb.serve(never_ending(), name="s"):
        early: Any = iter(tsnb.attach("early", stream="s"))
        for _ in range(60):
            next(early)
        loops = [iter(tsnb.attach(name, stream="s")) for name in ("late", "later")]
        with pytest.warns(RuntimeWarning, match="'late' starts with batch 60 of pass 1 of 's'.*more samples"):
            first = next(loops[0])
        with pytest.warns(RuntimeWarning, match="'later' starts with batch 60"):
            assert torch.equal(first, next(loops[1]))
        assert torch.equal(first, next(early)) and first.tolist() == [20, 21]
        for loop in (early, *loops):
            assert [next(loop).tolist() for _ in range(3)] == [[22, 23], [24, 25], [26, 27]]


def test_one_that_leaves_an_endless_loop_and_begins_another_is_let_in_again() -> None:
    """Within the patience, where the others do not leave it, too."""
    over = threading.Event()

    def go_on() -> None:
        for _ in tsnb.attach("early", stream="s"):
            if over.wait(0.01):
                break

    with tsnb.serve(never_ending(), name="s", stall_timeout_s=2.0, late_join=1.0):
        early = threading.Thread(target=go_on)
        early.start()
        again = tsnb.attach("again", stream="s")
        for number, _ in enumerate(again):
            if number == 60:
                break
        with pytest.warns(RuntimeWarning, match="'again' starts with batch"):
            assert next(iter(again)).tolist()
        assert again.epoch == 0
        over.set()
        early.join(LONG_S)


def test_whoever_says_so_begins_in_the_middle_of_any_epoch() -> None:
    """With `join="here"`: for a loader of which nobody can tell whether it ends; then whole epochs follow."""

    def batches(epoch: int) -> Iterator[Any]:
        return ([100 * epoch + i] for i in range(60))

    with tsnb.serve(batches, name="s"):
        early: Any = iter(tsnb.attach("early", stream="s"))
        for _ in range(30):
            next(early)
        here = tsnb.attach("here", stream="s", join="here")
        loop: Any = iter(here)
        with pytest.warns(RuntimeWarning, match="'here' starts with batch 30 of pass 1 of 's'"):
            assert next(loop) == [30]
        del early
        tsnb.attach("early", stream="s").close()
        assert [given[0] for given in loop] == list(range(31, 60))
        assert [given[0] for given in here] == list(range(100, 160))
