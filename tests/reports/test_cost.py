"""What a trial had cost when it reached a wanted number: what was counted, and words for what was not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import tsnb
from tests.reports.made import consumer, reading
from tsnb.reports.cost import Prices, costs
from tsnb.telemetry.readings import HostReading, ProcessReading, StreamReading


def host(energy_j: dict[str, float], **cpu: tuple[float, tuple[int, ...]]) -> Any:
    uses = {name: ProcessReading(busy, 0, 1, gpus=gpus) for name, (busy, gpus) in cpu.items()}
    return HostReading(2, 1.0, 0, 1, producer=ProcessReading(1.5, 0, 2), consumers=uses, energy_j=energy_j)


def learning(*names: str, energy: bool = True) -> list[StreamReading]:
    """Ten seconds; accuracy grows by 0.1 a second, of the second trial by half of that."""
    steps = []
    for s in range(11):
        trials = [
            consumer(name, batches=s, metrics={"accuracy": s / (10.0 + 10.0 * i)})
            for i, name in enumerate(names)
        ]
        counted = {"cuda:0": 100.0 + 50.0 * s, "package-0": 10.0 * s} if energy else {}
        uses = {name: (0.5, (i,)) for i, name in enumerate(names)}
        steps.append(reading(s, *trials, host=host(counted, **uses) if s % 2 == 0 else None))
    return steps


def test_a_trial_alone_has_all_that_was_counted_until_it_was_there() -> None:
    """Seconds, CPU seconds in proportion, joules of all counters, and a price of them."""
    (cost,) = costs(learning("cnn"), {"accuracy": 0.4}, {"accuracy": "max"}, Prices(3600.0, 3.6e6))
    assert (cost.after_s, cost.cpu_s, cost.loader_cpu_s) == (4.0, 2.0, 6.0)
    assert (cost.joules, cost.sources, cost.price) == (240.0, ("cuda:0", "package-0"), 242.0)
    assert cost.text == (
        "accuracy 40.0 %: cnn after 0:04, 2 CPU s (the shared loader 6), 240 J (cuda:0, package-0), price 242"
    )


def test_of_two_trials_only_the_gpu_of_its_own_counts() -> None:
    """The package works for both; the second has a device without a counter."""
    first, second = costs(learning("a", "b"), {"accuracy": 0.4}, {"accuracy": "max"}, Prices(kwh=3.6e6))
    assert (first.joules, first.sources, first.price) == (200.0, ("cuda:0",), 200.0)
    assert (second.after_s, second.joules, second.price) == (8.0, None, None)
    assert second.text.endswith("energy not measurable here, price not measurable here")


def test_what_is_not_measured_is_no_zero() -> None:
    """On a machine without counters, and where the machine was not looked at."""
    (cost,) = costs(learning("a", energy=False), {"accuracy": 0.4}, {"accuracy": "max"}, Prices())
    assert cost.joules is None and "energy not measurable here" in cost.text and "price" not in cost.text
    blind = [dataclasses.replace(r, host=None) for r in learning("a")]
    (cost,) = costs(blind, {"accuracy": 0.4}, {"accuracy": "max"}, Prices(vcpu=1.0))
    assert (cost.cpu_s, cost.price) == (None, None)
    assert "CPU time not measurable here" in cost.text
    (missed,) = costs(learning("a"), {"accuracy": 2.0}, {"accuracy": "max"}, Prices())
    assert missed.text == "accuracy 2.000: a has not reached it"


def test_the_report_says_it_and_refuses_what_nobody_logs(tmp_path: Path) -> None:
    """As text and as JSON; a metric that is good when low is reached from above."""
    file = tmp_path / "run.jsonl"
    tsnb.direction(wer="min")
    steps = [
        dataclasses.replace(
            r,
            consumers=tuple(
                dataclasses.replace(c, metrics={"wer": 1 - c.metrics["accuracy"]}) for c in r.consumers
            ),
        )
        for r in learning("cnn")
    ]
    file.write_text(
        "\n".join(['{"tsnb": "0", "recording": 1, "stream": "mnist"}', *(r.to_json() for r in steps)])
    )
    made = tsnb.report(file, until={"wer": 0.6}, vcpu_price=0.04)
    assert "wer 0.600: cnn after 0:04, 2 CPU s" in made.text
    assert json.loads(json.dumps(made.to_dict()))["costs"][0]["joules"] == 240.0
    with pytest.raises(ValueError, match="has logged 'accuracy'"):
        tsnb.report(file, until={"accuracy": 0.5})
    with pytest.raises(ValueError, match="add until="):
        tsnb.report(file, vcpu_price=0.04)
    with pytest.raises(ValueError, match="0 or more"):
        tsnb.report(file, until={"wer": 0.5}, kwh_price=-1)
