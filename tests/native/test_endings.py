"""Work at an object's end: done once, whatever ends it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tsnb.native.endings import ending


class Owner:
    """Ends in work of ours; may be part of a cycle."""

    __slots__ = ("__del__", "other")
    __del__: Callable[[], None]
    other: Owner


@pytest.mark.parametrize("first", ["the owner", "its ending"])
def test_the_work_is_done_once_in_a_cycle_whichever_the_collector_comes_to_first(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch in a cycle, of a traceback say: its lease is given back, and nothing is printed."""
    done: list[int] = []
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    gc.collect()
    if first == "the owner":
        owner = Owner()
        work = ending(lambda: done.append(1))
    else:
        work = ending(lambda: done.append(1))
        owner = Owner()
    owner.__del__, owner.other = work, owner
    del owner, work
    gc.collect()
    assert done == [1]
    assert not unraisable


def test_it_may_be_called_again() -> None:
    """Once is all that it does."""
    done: list[int] = []
    work = ending(lambda: done.append(1))
    for _ in range(3):
        work()
    assert done == [1]
