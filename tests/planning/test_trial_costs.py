"""What was seen of trials alone and together, put together: made-up figures, no process."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import cast

import pytest

from tsnb.planning.trial_costs import Cost, Profiled, joined


def cost(step_ms: float, cpu_ms: float, device: str = "") -> Cost:
    return Cost(step_ms / 1000, cpu_ms / 1000, 1.0, 0.5, 20, 0.1, device=device)


def seen(per_s: float) -> Profiled:
    return cast("Profiled", SimpleNamespace(per_s=(per_s, 0.1)))


def test_work_took_longer_in_a_crowd_and_waiting_did_not() -> None:
    """A fifth more CPU time beside the others: theirs alone is a sixth less, and what only waits is as it was."""
    together = {"first": cost(1.2, 1.2), "works": cost(6.0, 6.0), "waits": cost(10.0, 0.6)}
    found = joined({"first": cost(1.0, 1.0)}, together, dict.fromkeys(together, seen(100.0)), whole=True)
    assert found.costs["first"].crowd == pytest.approx(1.2) and found.costs["first"].beside == 2
    assert found.costs["works"].step_s == pytest.approx(0.005)
    assert found.costs["waits"].step_s == pytest.approx(0.0099)
    assert found.costs["waits"].job("waits", 1.0, {}).crowded(2) == pytest.approx((0.01, 0.0006))
    assert found.together_s == pytest.approx(0.01) and found.off == 0.1


def test_a_crowd_is_told_by_the_trial_that_is_most_like() -> None:
    """A small step took twice as long beside the others, the longest a tenth longer: so did one nearly as long."""
    together = {
        "small": cost(0.1, 0.1),
        "tiny": cost(0.06, 0.06),
        "wide": cost(5.5, 5.5),
        "middle": cost(2.2, 2.2),
    }
    alone = {"small": cost(0.05, 0.05), "wide": cost(5.0, 5.0)}
    found = joined(alone, together, dict.fromkeys(together, seen(100.0)), whole=True).costs
    assert [found[name].crowd for name in together] == pytest.approx([2.0, 2.0, 1.1, 1.1])
    assert [found[name].step_s for name in together] == pytest.approx([5e-5, 3e-5, 0.005, 0.002])


def test_turns_on_a_gpu_are_a_crowd_too() -> None:
    """Three on one GPU: each step may take three times as long, and its CPU time is as it was."""
    together = {name: cost(6.0, 1.0, "cuda:0") for name in "abc"}
    found = joined({"a": cost(2.0, 1.0, "cuda:0")}, together, dict.fromkeys(together, seen(9.0)), whole=True)
    assert found.costs["b"].step_s == pytest.approx(0.002) and found.costs["b"].cpu_s == pytest.approx(0.001)
    assert found.costs["b"].job("b", 1.0, {}).crowded(2) == pytest.approx((0.006, 0.001))


def test_what_was_not_seen_together_says_nothing_of_a_crowd() -> None:
    """Trials in waves, or one whose pace nobody saw."""
    together = {"a": cost(1.2, 1.2), "b": cost(6.0, 6.0)}
    in_waves = joined({"a": cost(1.0, 1.0)}, together, {}, whole=False)
    assert in_waves.costs == together and in_waves.together_s is None
    unseen = joined({"a": cost(1.0, 1.0)}, together, {"a": seen(5.0), "b": seen(0.0)}, whole=True)
    assert unseen.together_s is None and unseen.costs["b"].crowd == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("batches", "state", "said"),
    [
        (0, "stopped", r"took no batch within 120 s\. Let it"),
        (0, "done", r"ended without taking a batch, so nothing can be planned"),
        (7, "stopped", r"took only 7 batches within 120 s, and profiling needs 8\."),
        (7, "done", r"took only 7 batches, and profiling needs 8\. Use smaller batches or more epochs"),
        (8, "done", r"ended too soon to be profiled, after 8 batches"),
    ],
)
def test_a_trial_of_which_too_little_was_seen_is_told_why(batches: int, state: str, said: str) -> None:
    """Four batches are left out, and three more are measured between four marks."""
    trial = SimpleNamespace(batches=batches, trial=SimpleNamespace(state=state))
    assert re.match(said, Profiled._unseen(cast("Profiled", trial)))
