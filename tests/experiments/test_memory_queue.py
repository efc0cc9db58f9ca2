"""Trials that said how much memory they need: first come, first served, and none that could never start."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator

import pytest

import tsnb
from tests.by_value import by_value
from tests.promises import HANG_S
from tsnb.experiments import memory_queue, trials
from tsnb.experiments.memory_queue import MemoryClaim, MemoryQueue, too_large
from tsnb.experiments.running import own_life
from tsnb.machine.memory import Free, memory_bounds

GIB = 1 << 30


def nobody() -> int | None:
    """No process yet."""
    return None


def test_the_first_that_came_is_let_in_first_and_what_was_promised_is_not_promised_twice() -> None:
    """A small one does not pass a large one; those that run count with what they do not hold yet."""
    queue = MemoryQueue(lambda: Free(10 * GIB, "this machine"))

    async def course() -> None:
        large, larger, small = (queue.join(size * GIB, nobody) for size in (6, 8, 1))
        assert await queue.why_not(small) == "2 trials before it wait for memory"
        assert await queue.why_not(larger) == "1 trial before it waits for memory"
        assert await queue.why_not(large) == ""
        why = await queue.why_not(larger)
        assert why == (
            "it needs 8.0 GiB, and 10.0 GiB are free (this machine), 6.0 GiB of that reserved for "
            "trials that have just started"
        )
        assert await queue.why_not(small) == "1 trial before it waits for memory", "it would fit"
        queue.leave(larger)  # it is stopped while it waits
        assert await queue.why_not(small) == ""
        late = queue.join(4 * GIB, nobody)
        waiting = asyncio.ensure_future(queue.wait(late))
        await asyncio.sleep(0)
        queue.leave(large)
        await asyncio.wait_for(waiting, HANG_S)
        for claim in (late, small, small):
            queue.leave(claim)

    asyncio.run(course())


def test_what_a_process_holds_is_not_taken_from_what_is_free_once_more() -> None:
    """The system has taken it already; one that holds more than it said is not owed anything."""
    assert 0 < MemoryClaim(1 << 40, os.getpid).missing_bytes < 1 << 40
    assert MemoryClaim(1, os.getpid).missing_bytes == 0


def test_where_the_system_does_not_tell_nobody_waits() -> None:
    """A queue that nobody could leave would be worse than none."""
    queue = MemoryQueue(lambda: None)
    assert asyncio.run(queue.why_not(queue.join(1 << 50, nobody))) == ""


def hold_nothing(x: int) -> None:
    """A function to refuse."""


def test_what_could_never_start_is_refused_before_anything_does() -> None:
    """By its size and the machine's; so is what is no size."""
    bounds = memory_bounds()
    assert bounds is not None and too_large(bounds.total_bytes) == ""
    with pytest.raises(
        ValueError,
        match=r"Trial 'big' needs .* could never start, because this machine has .*. Nothing was started",
    ):
        tsnb.run(nobody, name="big", needs=2.0 * bounds.total_bytes)
    with pytest.raises(
        ValueError, match=r"needs='much' is invalid. Pass a size with its unit, such as \"512MiB\""
    ):
        tsnb.run(nobody, name="big", needs="much")
    with pytest.raises(ValueError, match="A sweep with plan=True starts only trials that fit"):
        tsnb.sweep(hold_nothing, grid={"x": [1, 2]}, needs="1GiB")
    assert not list(trials)


SOURCE = """
def hold(path):
    import os, time
    while not os.path.exists(path):
        time.sleep(0.01)
    return os.getpid()
"""


@pytest.fixture
def hold() -> Iterator[Callable[..., int]]:
    """A function that travels by value, and returns once a file is there."""
    yield by_value(SOURCE, "hold")
    trials.clear()


def until(fact: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + HANG_S
    while not fact():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.mark.system
def test_a_trial_waits_for_the_memory_of_another_and_says_so(
    hold: Callable[..., int],
    tmp_path: os.PathLike[str],
    printed: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It starts when that one has ended; one that is stopped in the queue never runs, and the next moves up."""
    # as much as on a quiet machine, whatever runs beside this test
    monkeypatch.setattr(own_life, "_memory", MemoryQueue(lambda: Free(4 * GIB, "this machine")))
    path = os.fspath(tmp_path) + "/go"
    needs = "3GiB"
    first = tsnb.run(hold, path=path, name="first", needs=needs)
    until(lambda: first.state == "running")
    second, third, small = (
        tsnb.run(hold, path=path, name=name, needs=size)
        for name, size in (("second", needs), ("third", needs), ("small", "1MiB"))
    )
    until(lambda: "trial 'small' queued: 2 trials before it wait for memory" in printed())
    assert (
        "trial 'second' queued: it needs " in printed()
        and "just started; it starts when enough memory is free" in printed()
    )
    assert [trial.state for trial in (second, third, small)] == ["queued"] * 3
    table = {row["name"]: row["state"] for row in json.loads(json.dumps(trials_rows()))}
    assert table["second"] == "queued"
    second.stop()
    until(lambda: second.state == "stopped")
    open(path, "w").close()
    assert len({trial.wait(HANG_S).result() for trial in (first, third, small)}) == 3
    assert third.started_s < time.time() and "trial 'third' running" in printed()
    again = second.rerun(needs=0)
    assert again.wait(HANG_S).state == "done"


def trials_rows() -> list[dict[str, str]]:
    """Names and states as the project's records have them."""
    return [
        {"name": str(row["name"]), "state": str(row["state"])} for row in tsnb.results().to_dict("records")
    ]


def test_trials_that_ask_together_wait_for_a_look_each_and_are_told_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They had been told that memory was short, and each was let in half a second after the one before it."""
    monkeypatch.setattr(memory_queue, "LOOK_S", 100 * HANG_S)  # nobody may need the next look
    looks = 0

    def free() -> Free:
        nonlocal looks
        looks += 1
        time.sleep(0.02)  # the others ask while the first one's look lasts
        return Free(10 * GIB, "this machine")

    queue = MemoryQueue(free)

    async def course() -> list[str]:
        claims = [queue.join(GIB, nobody) for _ in range(5)]
        return await asyncio.wait_for(asyncio.gather(*map(queue.ask, claims)), HANG_S)

    assert asyncio.run(course()) == [""] * 5 and looks == 5


def test_the_whole_line_moves_up_when_one_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those behind one that did not fit begin when it is stopped, one look after the other."""
    monkeypatch.setattr(memory_queue, "LOOK_S", 100 * HANG_S)
    queue = MemoryQueue(lambda: Free(4 * GIB, "this machine"))

    async def course() -> None:
        large, *small = (queue.join(size * GIB, nobody) for size in (5, 1, 1, 1))
        said = await asyncio.gather(*map(queue.ask, (large, *small)))
        assert said[1] == "1 trial before it waits for memory"
        assert all(said), "the one before them does not fit"
        waiting = [asyncio.ensure_future(queue.wait(claim)) for claim in small]
        await asyncio.sleep(0.05)
        queue.leave(large)
        await asyncio.wait_for(asyncio.gather(*waiting), HANG_S)

    asyncio.run(course())


@pytest.mark.system
def test_two_trials_that_ran_before_start_together_again(
    hold: Callable[..., int], tmp_path: os.PathLike[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What they took is known then, and is free: nothing is said of memory, and neither joins late for it."""
    for _ in range(2):
        for trial in [
            tsnb.run(hold, path=os.fspath(tmp_path), name=name) for name in ("one", "two", "three")
        ]:
            trial.wait(HANG_S)
    assert "queued" not in capsys.readouterr().out
