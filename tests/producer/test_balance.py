"""How compute is divided: simulated consumers that compute all they can, and single decisions."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.producer.simulation import asked, joined, left_epoch, released, took, waits
from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.dispatch import Dispatch
from tsnb.stream.protocol import messages as ms

WIDE = 10_000


class Machine:
    """Consumers on a loader that is always ahead, each with steps of its own length; time goes from event to event.

    They share cores as an operating system shares them: in equal parts among those who compute.

    Args:
        steps: CPU seconds of each consumer's step.
        cores: Of the machine; one thread each.

    Attributes:
        used: Seconds that each was in a step.
    """

    def __init__(self, steps: dict[str, float], cores: float = 100.0, window: int = WIDE) -> None:
        self.dispatch = Dispatch(window, 1, 30.0)
        self.steps = steps
        self.cores = cores
        self.now = 0.0
        self.left: dict[int, float] = {}  # CPU seconds left of the step that each one is in
        self.ready: dict[int, list[ev.Granted]] = {}
        self.used: dict[str, float] = dict.fromkeys(steps, 0.0)
        self.silent: set[int] = set()
        self.slots = itertools.count()
        for key, name in enumerate(steps):
            self.ready[key] = []
            self.do(joined(key, name))
            self.do(asked(key))

    def join(self, name: str, step_s: float) -> None:
        """Let one more come, to the newest batch."""
        key = len(self.steps)
        self.steps[name] = step_s
        self.used[name], self.ready[key] = 0.0, []
        self.do(joined(key, name))
        self.do(asked(key, 0, 0, self.dispatch.epochs.end, exact=True))

    def do(self, event: ev.Event) -> None:
        for made in self.dispatch.step(event, self.now):
            if isinstance(made, ev.Granted):
                self.ready[made.member].append(made)
        self.dispatch.check()

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            front = max(m.cursor for m in self.dispatch.members.values())
            while self.dispatch.wanted and self.dispatch.epochs.end < front + 3:
                self.do(ev.BatchLoaded(0, ev.Placed(next(self.slots), b"", 1, 0, 0)))
            for key in list(self.ready):
                if key not in self.left and key not in self.silent:
                    self.go_on(key)
            self.pass_time(until)

    def go_on(self, key: int) -> None:
        if not self.ready[key]:
            self.do(waits(key))
            return
        granted = self.ready[key].pop(0)
        self.left[key] = self.steps[list(self.steps)[key]]
        self.do(took(key))
        self.do(released(key, granted.lease))

    def pass_time(self, until: float) -> None:
        share = min(1.0, self.cores / max(1, len(self.left)))
        ends = [self.now + left / share for left in self.left.values()]
        due_s = self.dispatch.due_s
        then = min([until, *ends, *([due_s] if due_s is not None else [])])
        passed, self.now = then - self.now, then
        for key in list(self.left):
            self.left[key] -= passed * share
            self.used[list(self.steps)[key]] += passed
            if self.left[key] < 1e-9:
                del self.left[key]
        if due_s is not None and self.now >= due_s:
            self.do(ev.Tick())


def shares(used: dict[str, float]) -> dict[str, float]:
    return {name: seconds / sum(used.values()) for name, seconds in used.items()}


@pytest.mark.parametrize("cores", [1.0, pytest.param(2.0, marks=pytest.mark.slow), 100.0])
@pytest.mark.parametrize("weights", [{"large": 2.0}, {"small": 3.0}, {"small": 0.5, "middle": 4.0}, {}])
def test_by_weight_each_has_its_share_of_compute_whatever_its_steps(
    weights: dict[str, float], cores: float
) -> None:
    """Steps of 1:6:20 and any number of cores: seconds of computing follow the weights to a few per cent."""
    machine = Machine({"small": 0.05, "middle": 0.3, "large": 1.0}, cores)
    machine.do(ev.Balanced("weights", weights, WIDE))
    machine.run(100.0)
    wanted = {name: weights.get(name, 1.0) for name in machine.steps}
    total = sum(wanted.values())
    for name, share in shares(machine.used).items():
        assert share == pytest.approx(wanted[name] / total, rel=0.1), (name, shares(machine.used))


def test_nobody_is_withheld_anything_while_nobody_else_computes() -> None:
    """The others fall silent in the middle of a wait: who is left goes on at once, whatever it has used."""
    machine = Machine({"small": 0.05, "large": 1.0})
    machine.do(ev.Balanced("weights", {"large": 100.0}, WIDE))
    machine.run(20.0)
    assert shares(machine.used)["small"] < 0.05
    machine.silent.add(1)
    machine.run(1.0)  # the step that it was in
    machine.do(waits(1)) if not machine.ready[1] else machine.do(ev.Left(1))
    before = machine.used["small"]
    machine.run(10.0)
    assert machine.used["small"] - before == pytest.approx(10.0, abs=0.2)


def test_one_that_stands_still_in_its_step_is_not_waited_for_for_good() -> None:
    """It counts as computing, so its use grows with time, and the others catch up with it."""
    machine = Machine({"small": 0.05, "large": 1.0})
    machine.do(ev.Balanced("weights", {"large": 4.0}, WIDE))
    machine.run(20.0)
    machine.steps["large"] = 1e6
    before = machine.used["small"]
    machine.run(40.0)
    assert machine.used["small"] - before > 0.9 * 40.0 / 4


def test_a_long_absence_saves_up_no_claim() -> None:
    """Back from half a minute of validation, the heavy one has its share again, and no more."""
    machine = Machine({"small": 0.1, "large": 0.1})
    machine.do(ev.Balanced("weights", {"large": 2.0}, WIDE))
    machine.run(5.0)
    machine.silent.add(1)
    machine.run(1.0)
    machine.ready[1].clear()
    machine.do(asked(1, 1, 0, 60, exact=True))  # it waits while the other one computes
    machine.run(30.0)
    machine.silent.clear()
    before = dict(machine.used)
    machine.run(30.0)
    grown = {name: machine.used[name] - before[name] for name in before}
    assert shares(grown)["large"] == pytest.approx(2 / 3, rel=0.1), grown


def test_a_newcomer_begins_where_the_others_are() -> None:
    """It neither has to wait for what others used before, nor may it catch up with them."""
    machine = Machine({"small": 0.1, "large": 0.1})
    machine.do(ev.Balanced("weights", {"large": 2.0}, WIDE))
    machine.run(30.0)
    machine.join("new", 0.1)
    before = dict(machine.used)
    machine.run(60.0)
    grown = {name: machine.used[name] - before[name] for name in before}
    assert shares(grown) == pytest.approx({"small": 0.25, "large": 0.5, "new": 0.25}, rel=0.1)


def test_with_a_core_to_spare_nobody_is_withheld_anything() -> None:
    """Where nobody competes each computes all it can; when they do again, from then on."""
    machine = Machine({"small": 0.1, "large": 0.1})
    machine.do(ev.Balanced("weights", {"large": 2.0}, WIDE))
    machine.do(ev.Contended(False))
    machine.run(10.0)
    assert machine.used == pytest.approx({"small": 10.0, "large": 10.0}, rel=0.05)
    machine.do(ev.Contended(True))
    machine.run(10.0)
    assert machine.used == pytest.approx({"small": 15.0, "large": 20.0}, rel=0.05)


def test_at_the_edge_of_the_window_those_in_front_wait_and_the_last_is_never_withheld() -> None:
    """However light its weight: who is in front waits for it, computes nothing, and so withholds nothing."""
    machine = Machine({"small": 0.1, "large": 1.0}, window=4)
    machine.do(ev.Balanced("weights", {"large": 0.1}, 4))
    machine.run(60.0)
    assert machine.used["large"] > 35.0


def test_in_free_mode_the_wide_window_lets_the_fast_run_ahead() -> None:
    """In step the fast one has the slow one's pace; free, its own; back in step, it waits until that one is there."""
    machine = Machine({"small": 0.1, "large": 1.0}, window=4)
    machine.run(20.0)
    assert machine.used["small"] == pytest.approx(2.4, abs=0.3)
    machine.do(ev.Balanced("free", {}, 40))
    machine.run(3.0)
    assert machine.used["small"] == pytest.approx(5.4, abs=0.4)
    machine.do(ev.Balanced("together", {}, 4))
    machine.run(10.0)
    assert machine.used["small"] == pytest.approx(5.4, abs=0.4)
    assert machine.dispatch.drift.ahead > 4
    machine.run(40.0)
    assert machine.dispatch.drift.ahead <= 4


def test_what_is_withheld_is_booked_as_held_back() -> None:
    """A diagnosis must not blame the loader for it."""
    machine = Machine({"small": 0.1, "large": 0.1})
    machine.do(ev.Balanced("weights", {"large": 4.0}, WIDE))
    machine.run(40.0)
    times: list[Any] = [m.read(machine.now, 0.0) for m in machine.dispatch.members.values()]
    computing_s, waiting_s, held_s = times[0][:3]
    assert computing_s == pytest.approx(10.0, rel=0.1)
    assert held_s == pytest.approx(30.0, rel=0.1)
    assert waiting_s < 0.5


def test_a_long_absence_saves_up_no_claim_though_the_others_wait_at_the_moment_it_ends() -> None:
    """The loader has nothing for the one who stayed, just when the other one takes its first batch again."""
    machine = Machine({"small": 0.1, "large": 0.1})
    machine.do(ev.Balanced("weights", {}, WIDE))
    machine.run(5.0)
    machine.silent.add(1)
    machine.run(1.0)
    machine.ready[1].clear()
    machine.do(asked(1, 1, 0, 60, exact=True))
    machine.run(30.0)
    machine.left.clear()
    while machine.dispatch.members[0].granted:
        machine.do(took(0))
    machine.ready[0].clear()
    machine.do(waits(0))
    machine.silent.clear()
    before = dict(machine.used)
    machine.go_on(1)
    machine.run(10.0)
    assert machine.used["small"] - before["small"] > 4.0


def test_a_newcomer_does_not_begin_where_one_is_that_has_long_been_away() -> None:
    """Else the others would stand still until it has had as much as they."""
    machine = Machine({"small": 0.1, "gone": 0.1})
    machine.do(ev.Balanced("weights", {}, WIDE))
    machine.run(5.0)
    machine.do(left_epoch(1))
    machine.do(ev.Heard(1, ms.Rest()))
    del machine.ready[1]
    machine.left.pop(1, None)
    machine.run(60.0)
    machine.join("new", 0.1)
    before = dict(machine.used)
    machine.run(20.0)
    grown = {name: machine.used[name] - before[name] for name in ("small", "new")}
    assert shares(grown) == pytest.approx({"small": 0.5, "new": 0.5}, rel=0.1), grown


def test_when_to_look_again_is_never_seen_in_the_middle_of_a_step() -> None:
    """The serving thread reads it while the loading thread steps: were nothing due for a moment, it would oversleep."""
    machine = Machine({"small": 0.1, "large": 0.1})
    machine.do(ev.Balanced("weights", {"large": 4.0}, WIDE))
    machine.run(2.0)
    dispatch, withholds = machine.dispatch, machine.dispatch.balance.withholds
    while dispatch.due_s is None:
        machine.run(0.01)
    before, seen = dispatch.due_s, []

    def look(member: Any, now: float) -> bool:
        seen.append(dispatch.due_s)
        return withholds(member, now)

    dispatch.balance.withholds = look  # type: ignore[method-assign]
    machine.do(ev.BatchLoaded(0, ev.Placed(next(machine.slots), b"", 1, 0, 0)))
    assert seen and set(seen) == {before}
