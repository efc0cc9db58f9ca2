"""The balancer against simulated machines: it never harms, it ends, and where there is something to gain it gains."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.balance_machine import Happened, Loader, Machine, Model
from tsnb.planners.balancing import HELPED, MOST_MOVES, Balancer, Timing
from tsnb.planners.dividing import weighted
from tsnb.planners.parties import LOADER, Allot, Measured, Moved, Observed

UNIT_S = 0.02
THREE = (Model("small", UNIT_S), Model("middle", 6 * UNIT_S), Model("large", 20 * UNIT_S))
LONG_S = 900.0
EXAMPLES = settings(max_examples=30, deadline=None, derandomize=True)
"""The same ones each time: what failed is tried again by design, by one machine in many just when it is watched."""

models = st.builds(
    Model,
    name=st.just(""),
    work_s=st.floats(0.005, 0.5),
    parallel=st.floats(0.0, 0.98),
    blocked_s=st.sampled_from([0.0, 0.0, 0.1]),
    threads=st.sampled_from([1, 1, 2, 8]),
    fixed=st.booleans(),
)


@st.composite
def machines(draw: st.DrawFn, noise: float = 0.0) -> Machine:
    trials = draw(st.lists(models, min_size=1, max_size=5))
    named = tuple(replace(trial, name=f"t{k}") for k, trial in enumerate(trials))
    loader = Loader(draw(st.floats(0.001, 0.2)), draw(st.integers(1, 4)))
    return Machine(draw(st.sampled_from([2, 4, 8, 64])), named, loader, noise=noise)


def of(kind: type, happened: list[Happened]) -> list[Happened]:
    return [one for one in happened if isinstance(one.made, kind)]


@pytest.mark.slow
@EXAMPLES
@given(machines())
def test_the_pace_never_ends_below_what_it_was_and_moves_come_to_an_end(machine: Machine) -> None:
    """Whatever the models, the loader and the cores: no worse than without, and quiet after a while."""
    before, balancer = machine.pace, Balancer()
    happened = machine.run(balancer, LONG_S)
    while balancer._judging is not None:
        happened += machine.run(balancer, 2.0)
    assert machine.pace >= before * 0.999
    assert len(of(Moved, happened)) <= MOST_MOVES
    judged = [one.made.number for one in of(Measured, happened)]  # type: ignore[union-attr]
    assert judged == [one.made.number for one in of(Moved, happened)]  # type: ignore[union-attr]
    assert not of(Moved, machine.run(balancer, 400.0)), "it has found its place"


@pytest.mark.slow
@EXAMPLES
@given(machines(noise=0.03), st.integers(0, 100))
def test_noise_costs_no_more_than_the_noise(machine: Machine, seed: int) -> None:
    """Paces that are measured with some per cent of error: the end is not below what it was beyond that."""
    machine._random.seed(seed)
    before = machine.pace
    balancer = Balancer()
    machine.run(balancer, LONG_S)
    while balancer._judging is not None:
        machine.run(balancer, 2.0)
    assert machine.pace >= before * 0.97


@EXAMPLES
@given(machines())
def test_what_is_allotted_can_be_used_and_each_trial_has_a_core_where_there_are_enough(
    machine: Machine,
) -> None:
    """After every step: only cores that there are, none without; and n trials never have fewer than n cores."""
    balancer = Balancer()
    while machine.time_s < 300.0:
        seen = machine.observe()
        for made in balancer.step(seen):
            if isinstance(made, Allot):
                assert set(made.cores) <= set(machine.cores)
                assert made.cores
                assert made.threads >= 1
                party = next(p for p in (*seen.trials, seen.loader) if p.name == made.name)
                assert made.threads == party.threads or not party.fixed
                machine.apply(made)
        trials = machine.observe().trials
        if len(machine.cores) >= len(trials):
            for trial in trials:
                inside = [other for other in trials if set(other.cores) <= set(trial.cores)]
                assert len(inside) <= len(trial.cores), "crowded out though there are enough"
        machine.run(None, 2.0)


@pytest.mark.parametrize(
    ("cores", "threads", "times"),
    # what the models are worth: (1 + 6 + 20 + 3 for the loader) x 20 ms of work, 80 % of it on all threads
    [
        (2, 1, 1.05),
        (4, 1, 1.8),
        (8, 1, 2.5),
        (64, 1, 3.5),
        (2, 2, 1.0),
        (4, 4, 1.05),
        (8, 8, 1.03),
        (64, 64, 1.0),
    ],
)
def test_models_of_1_6_20_gain_what_the_machine_has_to_give(cores: int, threads: int, times: float) -> None:
    """One thread each leaves cores idle; as many threads as cores each stand in each other's way."""
    machine = Machine(
        cores, tuple(replace(m, threads=threads) for m in THREE), Loader(3 * UNIT_S, 2), noise=0.02
    )
    before = machine.pace
    machine.run(Balancer(), LONG_S)
    assert machine.pace >= times * before


def test_on_eight_cores_it_is_as_good_as_the_best_split_there_is() -> None:
    """Against every way to give the three models and the loader cores of their own."""
    machine = Machine(8, THREE, Loader(3 * UNIT_S, 2), noise=0.02)
    best = machine.best_split()
    machine.run(Balancer(), LONG_S)
    assert machine.pace >= 0.97 * best


def test_a_loader_that_is_the_limit_is_made_room_for() -> None:
    """Trials with eight threads each crowd out its four workers: that ends, and the reason says why."""
    crowd = tuple(Model(f"t{k}", 0.08, parallel=0.5, threads=8) for k in range(5))
    machine = Machine(8, crowd, Loader(0.6, 4))
    before = machine.pace
    happened = machine.run(Balancer(), LONG_S)
    assert machine.pace > HELPED * before
    assert any("the loader" in one.made.reason for one in of(Moved, happened))  # type: ignore[union-attr]


def test_who_computes_nothing_is_given_nothing() -> None:
    """A step that waits for a GPU is no faster on more cores."""
    machine = Machine(8, (Model("gpu", 0.01, blocked_s=0.5), Model("small", 0.01)), Loader(0.01, 1))
    assert machine.run(Balancer(), LONG_S) == []


def test_a_move_that_did_not_help_is_undone_and_not_tried_again_for_long() -> None:
    """A model that says it scales and does not: the cores come back, and the next try is after `retry_s`."""
    machine = Machine(8, (Model("stubborn", 0.4, parallel=0.0),), Loader(0.02, 1))
    timing = Timing(retry_s=300.0)
    happened = machine.run(Balancer(timing), 1500.0)
    moved, measured = of(Moved, happened), of(Measured, happened)
    assert measured
    assert not any(one.made.kept for one in measured)  # type: ignore[union-attr]
    assert "undone" in measured[0].made.effect  # type: ignore[union-attr]
    assert machine.allotments() == {"stubborn": (8, 1), LOADER: (8, 1)}
    kinds: dict[str, list[float]] = {}
    for one in moved:
        kinds.setdefault(one.made.text, []).append(one.time_s)  # type: ignore[union-attr]
    for times_s in kinds.values():
        assert all(b - a >= timing.retry_s for a, b in pairwise(times_s))


def test_all_is_given_back_when_a_trial_leaves_and_measured_anew() -> None:
    """Those who stay have all cores again at once; then the largest of them gets what it can use."""
    machine, balancer = Machine(8, THREE, Loader(3 * UNIT_S, 2)), Balancer()
    machine.run(balancer, 40.0)
    assert machine.allotments()["large"][0] < 8
    machine.leave("large")
    happened = machine.run(balancer, 2.0)
    assert [one.made.text for one in of(Moved, happened)] == ["all cores to all"]  # type: ignore[union-attr]
    assert set(machine.allotments().values()) == {(8, 1), (8, 2)}
    machine.run(balancer, LONG_S)
    assert machine.allotments()["middle"][1] > 1


def test_one_that_comes_back_under_its_name_has_been_given_nothing() -> None:
    """Run again between two looks, or attached again: everything is given back, and divided anew."""
    machine, balancer = Machine(8, THREE, Loader(3 * UNIT_S, 2)), Balancer()
    machine.run(balancer, 40.0)
    assert machine.allotments()["large"][0] < 8
    seen = machine.observe()
    again = tuple(p._replace(attachment=7) if p.name == "small" else p for p in seen.trials)
    found = balancer.step(seen._replace(trials=again))
    assert {made.name for made in found if isinstance(made, Allot)} == {"small", "middle", "large", LOADER}
    assert all(len(made.cores) == 8 for made in found if isinstance(made, Allot))
    assert [made.text for made in found if isinstance(made, Moved)] == ["all cores to all"]


def test_all_is_given_back_when_it_is_switched_off() -> None:
    """By an answer to `give_back`, whatever it was in the middle of."""
    machine, balancer = Machine(8, THREE, Loader(3 * UNIT_S, 2)), Balancer()
    machine.run(balancer, 34.0)
    assert machine.allotments()["large"][0] < 8
    for made in balancer.give_back(machine.observe(), "it was switched off"):
        if isinstance(made, Allot):
            machine.apply(made)
    assert set(machine.allotments().values()) == {(8, 1), (8, 2)}
    assert balancer.give_back(machine.observe(), "again") == []


@pytest.mark.parametrize(("cores", "expected"), [(8, (2, 5)), (4, (1, 2)), (2, (2, 2))])
def test_weights_divide_the_cores_in_proportion(cores: int, expected: tuple[int, int]) -> None:
    """Weights 1 and 2, one core for the loader where there is one to spare."""
    pair = (Model("one", 0.1), Model("two", 0.1, weight=2.0))
    machine = Machine(cores, pair, Loader(0.02, 1), pacing="weights")
    plan = weighted(machine.observe(), 0.2)
    assert plan is not None
    found = {made.name: len(made.cores) for made in plan.allotments}
    assert (found["one"], found["two"]) == (expected if cores > 2 else (1, 1))
    happened = machine.run(Balancer(), LONG_S)
    assert len(of(Moved, happened)) == 1
    assert machine.allotments()["two"][0] == found["two"]


def test_fewer_cores_than_weighted_trials_are_not_divided() -> None:
    """There is nothing to divide without taking a trial's last core."""
    machine = Machine(
        2, tuple(replace(m, weight=k + 1.0) for k, m in enumerate(THREE)), Loader(0.02, 1), pacing="weights"
    )
    assert machine.run(Balancer(), 300.0) == []


def test_free_moves_nothing_and_a_change_to_it_gives_everything_back() -> None:
    """Each as fast as it can: equal processes have equal shares already."""
    assert Machine(8, THREE, Loader(0.06, 2), pacing="free").run(Balancer(), LONG_S) == []
    machine, balancer = Machine(8, THREE, Loader(0.06, 2)), Balancer()
    machine.run(balancer, 40.0)
    machine.pacing = "free"
    happened = machine.run(balancer, 60.0)
    assert [one.made.text for one in of(Moved, happened)] == ["all cores to all"]  # type: ignore[union-attr]
    assert "pacing is now free" in of(Moved, happened)[0].made.reason  # type: ignore[union-attr]
    assert {number for number, _ in machine.allotments().values()} == {8}


def test_cores_that_a_user_chose_for_a_trial_are_its_limits() -> None:
    """A trial pinned to cores 2 and 3 is given no others, and the others are not crowded onto them."""
    machine, balancer = Machine(8, THREE, Loader(3 * UNIT_S, 2)), Balancer()

    def pinned(seen: Observed) -> Observed:
        trials = tuple(
            p._replace(home=(2, 3), cores=tuple(c for c in p.cores if c in (2, 3)))
            if p.name == "small"
            else p
            for p in seen.trials
        )
        return seen._replace(trials=trials)

    machine.apply(Allot("small", (2, 3), 1))
    found = []
    while machine.time_s < 120.0:
        for made in balancer.step(pinned(machine.observe())):
            if isinstance(made, Allot):
                found.append(made)
                machine.apply(made)
        machine.run(None, 2.0)
    assert found
    assert all(set(made.cores) <= {2, 3} for made in found if made.name == "small")


def test_nothing_is_decided_while_trials_stand_still() -> None:
    """Validation, a breakpoint: no batches, so no pace."""
    machine, balancer = Machine(8, THREE, Loader(0.06, 2)), Balancer()
    frozen = machine.observe()
    assert [balancer.step(frozen._replace(time_s=2.0 * k)) for k in range(200)] == [[]] * 200
