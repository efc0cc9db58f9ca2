"""Loaders without a length, some of which never end: who comes late, and what is said."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tsnb
from tsnb.consumer.attaching import detach_all

LONG_S = 60.0


@pytest.fixture(autouse=True)
def _detached() -> Iterator[None]:
    yield
    detach_all()


def endless(epoch: int) -> Iterator[Any]:
    return ([i] for i in itertools.count())


def test_all_of_an_epoch_is_kept_for_latecomers_though_nobody_knows_how_long_it_is() -> None:
    """rubber_band=1 without len(): one that comes after a hundred batches begins with the first."""
    with tsnb.serve(endless, name="s", rubber_band=1.0):
        early: Any = iter(tsnb.attach("early", producer="s"))
        assert [next(early)[0] for _ in range(100)] == list(range(100))
        late: Any = iter(tsnb.attach("late", producer="s"))
        assert [next(late)[0] for _ in range(50)] == list(range(50))


def test_a_share_of_what_has_no_length_is_told_to_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tsnb"), tsnb.serve(endless, name="s", rubber_band=0.5):
        assert next(iter(tsnb.attach("one", producer="s"))) == [0]
    assert "'s' has no length, so rubber_band=0.5" in caplog.text


def test_a_latecomer_to_an_endless_epoch_is_told_what_helps() -> None:
    """Not a larger share of an epoch that has no length."""
    with tsnb.serve(endless, name="s", patience_s=600.0):
        early: Any = iter(tsnb.attach("early", producer="s"))
        for _ in range(100):
            next(early)
        late = tsnb.attach("late", producer="s")

        def wait() -> None:
            next(iter(late))

        waiting = threading.Thread(target=wait)
        waiting.start()
        with pytest.warns(RuntimeWarning, match=r"no length, and if it never ends .*islice"):
            waiting.join(6.0)
        del early
        tsnb.attach("early", producer="s").close()
        waiting.join(LONG_S)
        assert not waiting.is_alive()
