"""Joules for 1,000 samples, from the counters in readings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.reports.made import consumer, reading
from tsnb.telemetry.readings import HostReading, ProcessReading
from tsnb.telemetry.shown.rates import energy_use, per_1000


def looked(energy_j: dict[str, float], **gpus: tuple[int, ...]) -> Any:
    uses = {name: ProcessReading(1.0, 0, 1, gpus=on) for name, on in gpus.items()}
    return HostReading(2, 1.0, 0, 1, consumers=uses, energy_j=energy_j)


def test_joules_of_a_stream_and_of_a_trial_that_has_a_gpu_for_itself() -> None:
    """Of two on one GPU neither has a number; the stream has that of all."""
    on = {"a": (0,), "b": (1,), "c": (1,)}
    trials = [consumer(name, batches=0) for name in on]
    later = [consumer(name, batches=125) for name in on]
    use = energy_use(
        [
            reading(0, *trials, host=looked({"cuda:0": 10.0, "cuda:1": 0.0, "package-0": 1.0}, **on)),
            reading(1, *trials),
            reading(2, *later, host=looked({"cuda:0": 15.0, "cuda:1": 6.0, "package-0": 5.0}, **on)),
        ]
    )
    assert (use.joules, use.samples) == ({"cuda:0": 5.0, "cuda:1": 6.0, "package-0": 4.0}, 3000)
    assert (use.trial_joules, use.trial_samples) == ({"a": 5.0}, {"a": 1000})
    assert use.text == "5 J for 1,000 samples (cuda:0, cuda:1, package-0); a 5 J"


def test_joules_are_for_the_samples_that_trials_were_given() -> None:
    """One takes a tenth of each batch: its own samples are a tenth."""
    on = {"a": (0,), "tenth": (1,)}
    trials = [consumer(name, batches=0) for name in on]
    later = [consumer("a", batches=125), replace(consumer("tenth", batches=125), samples=100, passed=1000)]
    energy = [looked({"cuda:0": joules, "cuda:1": joules}, **on) for joules in (0.0, 5.5)]
    use = energy_use([reading(0, *trials, host=energy[0]), reading(2, *later, host=energy[1])])
    assert use.trial_samples == {"a": 1000, "tenth": 100}
    assert use.text == "10 J for 1,000 samples (cuda:0, cuda:1); a 5.5 J; tenth 55 J"


def test_counters_that_begin_anew_are_gone_on_from() -> None:
    """A second follower's, and those of a producer that was started again: nothing is negative or counted twice."""
    batches = [consumer("a", batches=n) for n in (0, 125, 0, 125)]
    use = energy_use(
        [
            reading(0, batches[0], host=looked({"cuda:0": 50.0}, a=(0,))),
            reading(1, batches[1], host=looked({"cuda:0": 60.0}, a=(0,))),
            reading(2, batches[2], pid=77, host=looked({"cuda:0": 0.0}, a=(0,))),
            reading(3, batches[3], pid=77, host=looked({"cuda:0": 10.0}, a=(0,))),
        ]
    )
    assert (use.joules, use.samples, use.text) == (
        {"cuda:0": 20.0},
        2000,
        "10 J for 1,000 samples (cuda:0); a 10 J",
    )


def test_where_nothing_is_counted_the_words_say_so() -> None:
    """As on a virtual machine without a GPU."""
    assert (
        energy_use([reading(0, host=looked({})), reading(1, host=looked({}))]).text == "not measurable here"
    )
    assert energy_use([]).text == "not measurable here"
    assert per_1000(None, 100) is None and per_1000(5.0, 0) is None
    assert per_1000(5.0, 500) == 10.0
