"""Where each second went: totals over lives, restarts and gaps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.panel.streams import three_models
from tests.reports.made import START_S, consumer, reading
from tsnb.reports.strips import COUNTED, strips
from tsnb.telemetry.lives.spent import PARTS, parts_of, spent
from tsnb.telemetry.readings import ConsumerReading, EndReading, HostReading, ProcessReading
from tsnb.telemetry.shown.history import History


def test_every_second_of_a_watched_trial_is_accounted_for() -> None:
    """From its first reading to its last, the parts of a trial's time add up to the time that has passed."""
    readings = list(three_models().run(120))
    for trial in spent(readings):
        assert trial.total_s == pytest.approx(trial.last_s - trial.first_s, abs=0.3), trial.name
    parked = spent(readings)[3]
    assert parked.name == "resnet18-wide-sgd"
    assert parked.parked_s == pytest.approx(50.0, abs=0.5), "it is parked from second 70 on"
    assert spent(readings)[2].pace_s > 80, "the largest model sets the pace while it is there"


def test_a_trial_that_comes_back_counts_all_of_its_lives() -> None:
    """Attached anew, or after its producer was started again, its counters begin at zero and are added."""
    readings = [
        reading(0, consumer("a"), pid=7),
        reading(4, consumer("a", 3.0, 1.0), pid=7),
        reading(5, pid=7),
        reading(6, consumer("a", 0.5), pid=7),
        reading(9, consumer("a", 2.5, 1.0), pid=7),
        reading(11, consumer("a", 1.0), pid=8),
        reading(14, consumer("a", 2.0, 0.0, 2.0), pid=8),
    ]
    (trial,) = spent(readings)
    assert (trial.computing_s, trial.waiting_s, trial.held_s) == (7.5, 2.0, 2.0)
    assert trial.batches == 75
    assert trial.between_s == 0.0
    assert trial.share("computing") == pytest.approx(7.5 / 11.5)


def test_who_comes_after_the_end_knows_the_speed_that_those_have_who_saw_the_trial() -> None:
    """A stream counts from a moment before its trial does; `tsnb status` gave 731 samples/s where results had 735."""
    seen = consumer("a", 1.0, 0.5, 8.0, attached_s=9.5)
    end = EndReading(
        "a", "pruned", START_S + 10, seen.pid, samples=1832, batches=seen.batches, attached_s=9.9
    )
    end = replace(end, computing_s=1.0, waiting_s=0.5, held_s=8.6)
    (watched,) = spent([reading(0, seen), replace(reading(10), ends=(end,))])
    (late,) = spent([replace(reading(10), ends=(end,))])
    assert late.samples_per_s == watched.samples_per_s == pytest.approx(1832 / 9.9)
    assert late.share("held") == watched.share("held")


def test_another_process_of_the_name_is_another_life() -> None:
    """Even where its counters have overtaken the former one's between two readings."""
    readings = [reading(0, consumer("a", 1.0, pid=1)), reading(9, consumer("a", 8.0, pid=2))]
    assert spent(readings)[0].computing_s == 9.0


def test_time_outside_epochs_is_known_only_while_watched() -> None:
    """What was counted before the first reading counts; what was not counted then is not made up."""
    readings = [
        reading(0, consumer("a", 100.0, 20.0)),
        reading(6, consumer("a", 104.0, 21.0, state="between epochs")),
        reading(9, consumer("a", 104.0, 21.0, state="between epochs")),
    ]
    (trial,) = spent(readings)
    assert trial.computing_s == 104.0
    assert trial.between_s == pytest.approx(4.0)


def test_one_reading_is_enough_for_totals() -> None:
    """A stream that is looked at for the first time."""
    (trial,) = spent([reading(0, consumer("a", 3.0, 1.0, epoch=2))])
    assert trial.total_s == 4.0
    assert spent([]) == []


def test_a_thinned_history_gives_the_same_totals() -> None:
    """Whoever left long ago keeps its last counters."""
    readings = list(three_models().run(200))
    history = History(most=160, full_s=10.0)
    for one in readings:
        history.add(one)
    for whole, thinned in zip(spent(readings), spent(history.readings()), strict=True):
        assert {part: thinned.seconds(part) for part in PARTS} == pytest.approx(
            {part: whole.seconds(part) for part in PARTS}, abs=1.5
        )
        assert thinned.samples == whole.samples


def test_steps_of_time_add_up_to_the_totals() -> None:
    """Cut into strips nothing is lost, nor counted twice."""
    readings = list(three_models().run(90))
    cut = strips(readings, most=50)
    assert cut is not None
    assert len(cut.edges_s) == 51
    for trial in spent(readings):
        begun = next(c for r in readings for c in r.consumers if c.name == trial.name)
        for part in ("computing", "waiting", "held"):
            whole = trial.seconds(part) - getattr(begun, f"{part}_s")
            assert cut.parts[trial.name][part].sum() == pytest.approx(whole, abs=1e-6)
        assert cut.parts[trial.name]["parked"].sum() == pytest.approx(trial.parked_s, abs=0.3)
        assert cut.here_s[trial.name].sum() == pytest.approx(trial.last_s - trial.first_s, abs=1e-3)
        assert cut.samples[trial.name].sum() == trial.samples - begun.samples
    shares = cut.compute_shares()
    assert np.allclose(np.nansum(list(shares.values()), axis=0), 1.0)


def test_a_trial_between_two_lives_has_no_time() -> None:
    """Its strip is empty there."""
    readings = [
        reading(0, consumer("a"), consumer("b")),
        reading(10, consumer("a", 10.0), consumer("b", 10.0)),
        reading(11, consumer("b", 11.0)),
        reading(30, consumer("b", 30.0)),
        reading(31, consumer("a", 0.0), consumer("b", 31.0)),
        reading(40, consumer("a", 9.0), consumer("b", 40.0)),
    ]
    cut = strips(readings, most=40)
    assert cut is not None
    middle = (cut.centres_s > START_S + 12) & (cut.centres_s < START_S + 29)
    assert middle.sum() > 10
    for part in COUNTED:
        assert not cut.parts["a"][part][middle].any()
    assert not cut.here_s["a"][middle].any()
    assert cut.parts["a"]["computing"].sum() == pytest.approx(19.0)


def test_strips_need_time() -> None:
    """One reading, or none, has no course."""
    assert strips([]) is None
    assert strips([reading(0)]) is None


def test_what_a_trial_did_alone_and_its_cpu_seconds_are_in_its_totals() -> None:
    """CPU from one look at the machine to the next; without a look it is not known, and not zero."""
    readings = [
        reading(0, consumer("a")),
        reading(2, consumer("a", 1.0, 1.0)),
    ]
    (trial,) = spent(readings)
    assert np.isnan(trial.cpu_s)
    assert trial.step_s == pytest.approx(trial.computing_s / trial.batches)
    assert trial.alone_per_s == pytest.approx(trial.samples / trial.computing_s)
    used = HostReading(2, 1.0, 1, 2, consumers={"a": ProcessReading(0.5, 1, 2)})
    seen = [replace(one, host=used) for one in readings]
    assert spent(seen)[0].cpu_s == pytest.approx(1.0)


def test_shares_and_samples_a_second_are_of_the_time_attached_on_every_surface() -> None:
    """Validation between two epochs counts: report, panel and results divide by the same seconds."""
    readings = [reading(k / 4, consumer("a", min(k, 30) / 4, batches=10 * min(k, 30))) for k in range(41)]
    (trial,) = spent(readings)
    assert (trial.inside_s, trial.between_s, trial.active_s) == (7.5, 2.5, 10.0)
    assert trial.share("computing") == 0.75 and trial.share("between") == 0.25
    assert trial.samples_per_s == trial.samples / 10.0


@pytest.mark.parametrize("state", ["paused", "timed out"])
def test_a_trial_that_stands_still_counts_once(state: str) -> None:
    """The seconds since its last batch are no computing any more then, and what it had computed before stays."""
    readings = [
        reading(0, consumer("a", 0.0, batches=0)),
        reading(4, consumer("a", 4.0, batches=40)),
        reading(9, consumer("a", 9.0, batches=40)),
        reading(10, consumer("a", 4.0, batches=40, state=state)),
        reading(19, consumer("a", 4.0, batches=40, state=state)),
        reading(20, consumer("a", 4.5, batches=45)),
    ]
    (trial,) = spent(readings)
    assert (trial.computing_s, trial.total_s) == (4.5, 20.0)


def test_a_pause_is_a_part_of_its_own_and_makes_no_trial_slow() -> None:
    """Three minutes of a pause were told as three minutes between epochs, and the shares fell with them."""
    (trial,) = spent(
        [reading(0, attached("a", 0)), reading(10, attached("a", 10, paused_s=5.0, joining_s=1.0))]
    )
    assert (trial.computing_s, trial.joining_s, trial.between_s, trial.paused_s) == (3.0, 1.0, 1.0, 5.0)
    assert (trial.total_s, trial.active_s) == (10.0, 5.0)
    assert trial.share("computing") == 0.6 and trial.samples_per_s == trial.samples / 5.0
    assert parts_of([trial]) == ["computing", "waiting", "held", "joining", "between", "paused"]


@pytest.mark.parametrize("first_s", [0, 8])
def test_who_watches_late_has_the_same_parts_as_who_watched_all_along(first_s: int) -> None:
    """Of a trial that is there, and of one that has left: its stream has counted."""
    last = attached("a", 10, paused_s=4.0)
    seen = [reading(k, attached("a", k, paused_s=0.4 * k)) for k in range(first_s, 10)]
    told = {name: getattr(last, name) for name in ("computing_s", "paused_s", "attached_s", "samples")}
    end = EndReading("a", "left", START_S + 10, 1, **told)
    for readings in ([*seen, reading(10, last)], [*seen, reading(10.25, ends=(end,))]):
        (trial,) = spent(readings)
        assert trial.paused_s == pytest.approx(4.0) and trial.between_s == pytest.approx(3.0)
        assert trial.samples_per_s == pytest.approx(last.samples / 6.0)


def attached(name: str, seconds: float, **more: float) -> ConsumerReading:
    """Return a trial that has been attached for so long, and computed for three tenths of it."""
    return consumer(name, 0.3 * seconds, attached_s=float(seconds), **more)
