"""What a plan says of how long trials take: alone at first, weighed with what is seen, and not where it is wrong."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.panel.streams import three_models
from tsnb.telemetry.forecast.eta import NO_ETA, Eta, all_left, planned_left, weighed
from tsnb.telemetry.forecast.etas import Etas
from tsnb.telemetry.readings import ConsumerReading, PlannedReading, PlanReading, StreamReading

NOW_S = 1e9
BATCHES = 100
"""In an epoch; a trial takes four of them, 0.1 s a batch: 40 s."""


def planned(name: str = "cnn", end_s: float = 40.0, off_s: float = 4.0) -> PlannedReading:
    return PlannedReading(name, NOW_S, NOW_S + end_s, off_s)


def reading(
    at_s: float,
    *plans: PlanReading,
    taken: int | None = None,
    step_s: float = 0.1,
    state: str = "streaming",
    planned_epochs: int = 4,
) -> StreamReading:
    """A trial that has gone on for `at_s` seconds; before its first batch none is there."""
    taken = int(at_s / step_s) if taken is None else taken
    epoch, position = divmod(taken, BATCHES)
    cnn = ConsumerReading(
        "cnn", 1, state, epoch, position, 0, 0, taken, 0, taken * step_s, 0.0, 0.0, epochs=epoch + 1,
        planned=planned_epochs,
    )  # fmt: skip
    return replace(
        three_models().reading(),
        time_s=NOW_S + at_s,
        epoch_batches=BATCHES,
        consumers=(cnn,) if taken >= 0 else (),
        plans=plans,
    )


def test_until_a_trial_has_shown_its_pace_its_plan_speaks() -> None:
    """From its first moment on, where without a plan nobody says anything; not where it says nothing of its epochs."""
    etas, plan = Etas(), PlanReading((planned(),))
    etas.feed(reading(0.0, plan, state="joining"))
    assert etas.of("cnn") == Eta(40.0, 36.0, 44.0, 4)
    etas.feed(reading(0.5, plan))
    assert etas.of("cnn").left_s == 39.5 and etas.all() == etas.of("cnn")
    etas.feed(reading(0.75))
    assert not etas.of("cnn").known, "the plan is over"
    etas.feed(reading(0.9, plan, planned_epochs=0))
    assert not etas.of("cnn").known, "one that goes on for as long as it likes"
    etas.feed(reading(0.9, PlanReading((planned(end_s=0.5),))))
    assert not etas.of("cnn").known, "it should have ended: the plan knows nothing any more"


def test_both_words_are_weighed_by_how_far_off_they_may_be() -> None:
    """The surer one counts more, both together are surer, and a contradiction goes against the plan."""
    seen, plan = Eta(40.0, 32.0, 48.0, 4), Eta(46.0, 42.0, 50.0, 4)
    both = weighed(seen, plan, 80.0)
    off = math.hypot(8.0, 0.15 * 40 / 2)
    assert both.left_s == pytest.approx((40 / off**2 + 46 / 16) / (1 / off**2 + 1 / 16))
    assert both.high_s - both.low_s < plan.high_s - plan.low_s and both.epochs == 4
    assert weighed(seen, NO_ETA, 80.0) == seen and weighed(NO_ETA, plan, 80.0) == plan
    wrong = Eta(70.0, 67.0, 73.0, 4)
    assert weighed(seen, wrong, 80.0) == seen
    assert weighed(Eta(3.0, 2.0, 4.0), plan, 80.0) == Eta(3.0, 2.0, 4.0), (
        "to the end of an epoch: no training's"
    )
    upwards = weighed(Eta(40.0, 38.0, 50.0, 4), plan, 80.0)
    assert upwards.high_s - upwards.left_s > 2 * (upwards.left_s - upwards.low_s), "wider where it was wider"
    assert weighed(Eta(0.0, 0.0, 0.0, 4), Eta(0.0, 0.0, 0.0, 4), 0.0).left_s == 0.0
    assert not weighed(NO_ETA, NO_ETA, 80.0).known


def test_a_quarter_of_the_way_a_plan_makes_up_for_much_of_a_bad_start() -> None:
    """A trial that begins a fifth too slowly, and goes on as was planned."""
    alone, with_plan = Etas(), Etas()
    plan = PlanReading((planned(off_s=2.0),))
    for k in range(49):
        alone.feed(reading(k / 4, taken=int(k / 4 / 0.12)))
        with_plan.feed(reading(k / 4, plan, taken=int(k / 4 / 0.12)))
    left_s = (4 * BATCHES - 100) * 0.1
    off, better = (abs(each.of("cnn").left_s - left_s) for each in (alone, with_plan))
    assert off > 5 and better < 0.7 * off


def test_time_in_which_a_trial_stands_still_is_added_to_its_plan() -> None:
    """Nobody knows an end while it is paused; what a plan says after that counts from then."""
    etas, plan = Etas(), PlanReading((planned(),))
    etas.feed(reading(0.5, plan))
    for at_s in (0.75, 30.75):
        etas.feed(reading(at_s, plan, taken=5, state="paused"))
        assert not etas.of("cnn").known
    etas.feed(reading(31.0, plan, taken=5))
    assert etas.of("cnn").left_s == pytest.approx(9.0 + 30.0)
    anew = PlanReading((planned(end_s=60.0),))
    etas.feed(reading(31.25, anew, taken=5))
    assert etas.of("cnn").left_s == pytest.approx(60.0 - 31.25)


def test_all_are_done_when_the_last_is_that_the_plan_has_not_started() -> None:
    """Those that run late hold it up; a trial that no plan knows of leaves it open."""
    waits = PlanReading((planned(off_s=0.0),), 3, NOW_S + 100.0, 10.0)
    here = {"cnn": Eta(40.0, 38.0, 42.0, 4)}
    now = reading(0.0, waits)
    assert all_left(here, now, {"cnn"}) == Eta(100.0, 90.0, 110.0, 4)
    late = {"cnn": Eta(60.0, 57.0, 63.0, 4)}
    assert all_left(late, now, {"cnn"}).left_s == 150.0
    assert all_left({"cnn": Eta(400.0, 390.0, 410.0, 4)}, now, {"cnn"}).left_s == 400.0
    assert all_left({"cnn": NO_ETA}, now, {"cnn"}) == NO_ETA, "paused"
    assert all_left(here, replace(now, to_come=3), {"cnn"}).known, "the sweep's own"
    named = dict.fromkeys(("next", "later", "last"), "queued: it starts when another trial of its sweep ends")
    assert all_left(here, replace(now, to_come=3, pending=named), {"cnn"}).known, "the plan counts them"
    more = {**named, "other": "queued: it starts when 'cnn' is done"}
    assert all_left(here, replace(now, to_come=3, pending=more), {"cnn"}) == NO_ETA
    assert all_left(here, replace(now, to_come=4), {"cnn"}) == NO_ETA
    assert all_left(here, replace(now, pending={"other": "queued: it needs 2 GiB"}), {"cnn"}) == NO_ETA
    between = replace(now, consumers=(), plans=(PlanReading((), 1, NOW_S + 50.0, 5.0),))
    assert all_left({}, between, ()).left_s == 50.0, "between two trials"
    assert all_left({}, replace(between, time_s=NOW_S + 51.0), ()) == NO_ETA
    assert all_left({}, replace(now, plans=()), ()) == NO_ETA


def test_a_trial_that_was_started_and_is_not_there_yet_is_as_planned() -> None:
    """One of the same name that was there before its start is another run of it."""
    etas, plan = Etas(), PlanReading((planned(),))
    etas.feed(replace(reading(0.0, plan), consumers=()))
    assert etas.all().left_s == 40.0 == etas.coming("cnn").left_s and not etas.of("cnn").known
    etas.feed(reading(1.0, plan))
    assert not etas.coming("cnn").known and not etas.coming("other").known
    etas.feed(reading(2.0, plan))
    assert etas.all().left_s == etas.of("cnn").left_s
    etas.feed(replace(reading(3.0, plan), consumers=()))
    assert not etas.all().known, "it has left: it is not on its way"
    again = PlannedReading("cnn", NOW_S + 3.5, NOW_S + 43.5, 4.0)
    etas.feed(replace(reading(4.0, PlanReading((again,))), consumers=()))
    assert etas.all().left_s == pytest.approx(39.5)


def test_what_is_planned_has_an_end() -> None:
    """Its epochs make it a whole training."""
    assert planned_left(planned(), NOW_S, 4).whole
    assert math.isnan(planned_left(planned(), NOW_S + 41.0).left_s)
