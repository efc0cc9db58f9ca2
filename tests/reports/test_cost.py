"""What a trial had cost when it reached a wanted number: what was counted, and words for what was not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import tsnb
from tests.records.recorded import begun, row
from tests.reports.made import consumer, reading
from tsnb.cli import main
from tsnb.machine.energy import NOT_MEASURABLE
from tsnb.records.reading import RunRecord
from tsnb.records.selection import NoSuchRecord, chosen_runs
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


def test_what_is_reached_before_the_first_look_at_the_machine_has_its_seconds() -> None:
    """A look tells of the time before it, from when the trial came: a trial of a second has CPU seconds, too."""
    steps = [reading(s, host=host({})) for s in range(3)]  # the machine was seen before the trial came
    steps += [
        reading(
            3 + k / 4,
            consumer("a", metrics={"accuracy": k / 10}),
            host=None if k < 8 else host({}, a=(0.5, ())),
        )
        for k in range(9)
    ]
    (cost,) = costs(steps, {"accuracy": 0.4}, {"accuracy": "max"}, Prices(vcpu=3600.0))
    assert (cost.after_s, cost.cpu_s, cost.loader_cpu_s, cost.price) == (1.0, 0.5, 1.5, 0.5)
    assert "0.5 CPU s (the shared loader 1.5)" in cost.text
    (less,) = costs(steps, {"accuracy": 0.1}, {"accuracy": "max"}, Prices())
    assert "0.12 CPU s (the shared loader 0.38)" in less.text
    least = dataclasses.replace(less, cpu_s=0.004, loader_cpu_s=0.04)
    assert "0.004 CPU s (the shared loader 0.04)" in least.text, "a little is not 0"
    (whole,) = costs(steps, {"accuracy": 0.8}, {"accuracy": "max"}, Prices())
    assert (whole.after_s, whole.cpu_s) == (2.0, 1.0), (
        "from its first reading on, and not from the first look"
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
    tsnb.records.direction(wer="min")
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
    made = tsnb.report(file, target={"wer": 0.6}, vcpu_price=0.04)
    assert "wer 0.600: cnn after 0:04, 2 CPU s" in made.text
    assert json.loads(json.dumps(made.to_dict()))["costs"][0]["joules"] == 240.0
    with pytest.raises(ValueError, match="has logged 'accuracy'"):
        tsnb.report(file, target={"accuracy": 0.5})
    with pytest.raises(ValueError, match=r"has logged 'wr'\. Did you mean 'wer'"):
        tsnb.report(file, target={"wr": 0.5})
    with pytest.raises(ValueError, match="Add target="):
        tsnb.report(file, vcpu_price=0.04)
    with pytest.raises(ValueError, match="0 or more"):
        tsnb.report(file, target={"wer": 0.5}, kwh_price=-1)


def now(readings: list[StreamReading], began_s: float) -> list[StreamReading]:
    """The same readings, taken from that moment on."""
    first_s = readings[0].time_s
    return [dataclasses.replace(r, time_s=began_s + r.time_s - first_s) for r in readings]


def ran(name: str, values: list[float]) -> RunRecord:
    run = begun(name)
    run.add_rows([row(step, accuracy=value) for step, value in enumerate(values)])
    run.end("done", duration_s=30.0)
    return read_run(run.key)


def read_run(key: str) -> RunRecord:
    (found,) = [run for run in chosen_runs(None, True, None)[1] if run.key == key]
    return found


def test_results_and_report_have_the_same_figures(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Column by column, for trials with a counter of their own and without; what nothing counted stands in words."""
    file = tmp_path / "run.jsonl"
    began_s = ran("a", [0.9]).started_s
    ran("b", [0.4])
    steps = now(learning("a", "b"), began_s + 1.0)
    file.write_text(
        "\n".join(['{"tsnb": "0", "recording": 1, "stream": "mnist"}', *(r.to_json() for r in steps)])
    )
    asked: dict[str, Any] = {"target": {"accuracy": 0.4}, "kwh_price": 3.6e6}
    told = {cost.name: cost for cost in tsnb.report(file, **asked).story.costs}
    table = tsnb.results(recording=file, **asked).set_index("name")
    for name, cost in told.items():
        for field in ("after_s", "cpu_s", "loader_cpu_s", "joules", "price"):
            assert table.loc[name, field] == (getattr(cost, field) or NOT_MEASURABLE), (name, field)
    assert table.loc["a", "joules"] == 200.0 and table.loc["b", "joules"] == "not measurable here"
    assert "price" not in tsnb.results(recording=file, target={"accuracy": 0.4}).columns
    missed = tsnb.results(recording=file, target={"accuracy": 2.0})
    assert missed["joules"].isna().all() and missed["after_s"].isna().all(), "not reached: empty, not 0"
    capsys.readouterr()
    words = ["results", "--target", "accuracy=0.4", "--kwh-price", "3.6e6", "--recording", str(file)]
    assert main([*words, "--json"]) == 0
    for row_ in json.loads(capsys.readouterr().out):
        for field in ("after_s", "cpu_s", "loader_cpu_s", "joules", "price"):
            assert row_[field] == table.loc[row_["name"], field], "the command gives the same figures"
    assert main(words) == 0 and "not measurable here" in capsys.readouterr().out
    assert main(["results", "--target", "accuracy=high"]) == 1
    assert "Pass a number to reach" in capsys.readouterr().err


def test_results_of_a_run_that_nobody_watched_say_so(project: Path, tmp_path: Path) -> None:
    """A former run of the name has none of the next one's figures; what has no metric is empty."""
    file = tmp_path / "run.jsonl"
    first, second = ran("a", [0.9]), ran("a", [0.9])
    run = begun("other")
    run.end("done", duration_s=1.0)
    steps = now(learning("a"), second.started_s + 0.1)
    file.write_text(
        "\n".join(['{"tsnb": "0", "recording": 1, "stream": "mnist"}', *(r.to_json() for r in steps)])
    )
    assert first.started_s < second.started_s
    rows = tsnb.results(recording=file, target={"accuracy": 0.4}, all_runs=True)
    assert list(rows["after_s"])[:2] == ["not watched here", 4.0]
    assert rows["after_s"].isna().tolist() == [False, False, True]
    assert tsnb.results(target={"accuracy": 0.4})["joules"].iloc[0] == "not watched here"
    with pytest.raises(NoSuchRecord, match="No trial logged 'loss'"):
        tsnb.results(target={"loss": 0.4})
    with pytest.raises(ValueError, match="Add target="):
        tsnb.results(kwh_price=0.3)
    with pytest.raises(ValueError, match="Add target="):
        tsnb.results(recording=file)
