"""Live values: what is read within a batch stays, what is set holds from the next one, and can be repeated."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb import cli
from tsnb.errors import TsnbError
from tsnb.experiments import Trial, run_cell
from tsnb.experiments.live_values import Live, LiveValues, NoSuchLiveValue
from tsnb.notebook import runs
from tsnb.records.run import Run
from tsnb.records.writes import LiveChange
from tsnb.telemetry.observer import status

Until = Callable[..., None]


class Stream:
    """Where a training is, as far as live values see it."""

    def __init__(self) -> None:
        self.values = LiveValues()
        self.values.place = lambda: self.here
        self.values.noted = self.take
        self.noted: list[LiveChange] = []
        self.here: tuple[int | None, int | None, int] = (None, None, 0)

    def take(self, changes: list[LiveChange]) -> None:
        self.noted += changes

    def batch(self, epoch: int, batch: int) -> None:
        """Take the next batch."""
        self.here = (epoch, batch, 8 * (10 * epoch + batch))

    def live(self, name: str, default: Any, **what: Any) -> Live:
        return self.values.declare(name, default, what.get("bounds"), what.get("choices"))


def test_a_change_holds_from_the_next_batch_on_and_changes_made_together_come_together() -> None:
    """Every read within one batch gives the same, and the place that is noted is that of the first new one."""
    stream = Stream()
    lr, width = stream.live("lr", 0.1), stream.live("width", 3)
    stream.batch(0, 4)
    assert float(lr) == 0.1
    assert stream.values.request({"lr": 1, "width": 5}) == {"lr": 1.0, "width": 5}
    assert (float(lr), int(width)) == (0.1, 3), "this batch has begun with the old ones"
    stream.batch(0, 5)
    assert int(width) == 5
    assert lr.current == 1.0, "read or not, it is part of the same change"
    assert [change[:5] for change in stream.noted] == [("lr", 1.0, 0, 5, 40), ("width", 5, 0, 5, 40)]
    lr.set(0.5)
    lr.set(0.25)
    stream.batch(0, 6)
    assert (lr.value, [change.value for change in stream.noted[2:]]) == (0.25, [0.5, 0.25])


def test_without_a_stream_a_change_holds_at_the_next_read() -> None:
    """There are no batches to wait for."""
    lr = Stream().live("lr", 0.1)
    lr.set(0.2)
    assert float(lr) == 0.2


def test_changes_of_another_run_hold_after_as_many_samples() -> None:
    """Whatever the epochs are called by then: the stream may have gone on."""
    stream = Stream()
    stream.values.plan([
        LiveChange("lr", 0.5, 0, 5, 40, 0.0),
        LiveChange("lr", 0.25, 1, 2, 96, 0.0),
    ])  # fmt: skip
    lr, seen = stream.live("lr", 0.1), []
    for epoch, batch in ((0, 4), (0, 5), (0, 6), (1, 1), (1, 2)):
        stream.batch(epoch, batch)
        stream.here = (7 + epoch, batch, stream.here[2])
        seen.append(float(lr))
    assert seen == [0.1, 0.5, 0.5, 0.5, 0.25]
    assert [change[:4] for change in stream.noted] == [("lr", 0.5, 7, 5), ("lr", 0.25, 8, 2)]


@pytest.mark.parametrize(
    ("what", "bad", "why"),
    [
        ({"default": 0.1, "bounds": (1e-5, 1.0)}, 3.0, r"x=3.0 is invalid. Pass a number from 1e-05 to 1\."),
        ({"default": 0.1}, float("nan"), "x=nan is invalid. Pass a number"),
        ({"default": 0.1}, "fast", "x='fast' is invalid. Pass a number"),
        ({"default": 0.1}, True, "x=True is invalid. Pass a number"),
        ({"default": 3}, 2.5, "x=2.5 is invalid. Pass a whole number"),
        ({"default": False}, 1, "x=1 is invalid. Pass True or False"),
        (
            {"default": "sum", "choices": ("sum", "mean")},
            "max",
            "x='max' is invalid. Pass one of 'sum', 'mean'",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(what: dict[str, Any], bad: Any, why: str) -> None:
    """And nothing of the same change is taken."""
    stream = Stream()
    value, other = stream.live("x", **what), stream.live("other", 1)
    with pytest.raises(ValueError, match=why):
        stream.values.request({"other": 2, "x": bad})
    assert (value.value, other.value) == (what["default"], 1)


def test_a_name_that_nothing_reads_is_answered_with_those_that_are_read() -> None:
    """With the nearest one."""
    stream = Stream()
    stream.live("momentum", 0.9)
    with pytest.raises(NoSuchLiveValue, match=r"'momentun'.*Did you mean 'momentum'.*momentum=0\.9"):
        stream.values.request({"momentun": 1.0})


def test_what_cannot_be_a_live_value_is_refused() -> None:
    """A name that `trial.set(NAME=...)` cannot take, a default out of its own bounds, a text without choices."""
    with pytest.raises(ValueError, match="identifier"):
        tsnb.live("learning rate", 0.1)
    with pytest.raises(ValueError, match="Pass a number from 1 to 2"):
        tsnb.live("refused", 0.1, bounds=(1, 2))
    with pytest.raises(TypeError, match="choices="):
        tsnb.live("refused", "sum")


def test_an_optimizer_gets_a_value_once_for_each_change() -> None:
    """What a scheduler makes of it stays; tensors stay the same; an unknown key is told with those there are."""
    stream = Stream()
    lr = stream.live("lr", 0.1)
    layers = [torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)]
    optimizer = torch.optim.SGD([{"params": layer.parameters()} for layer in layers], lr=1.0)
    assert lr.apply(optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.1]
    optimizer.param_groups[0]["lr"] = 0.05
    assert not lr.apply(optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.05
    lr.set(0.2)
    assert lr.apply(optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.2
    tensor = torch.tensor(1.0)
    optimizer.param_groups[1]["lr"] = tensor
    lr.set(0.3)
    lr.apply(optimizer)
    assert optimizer.param_groups[1]["lr"] is tensor
    assert float(tensor) == pytest.approx(0.3)
    with pytest.raises(KeyError, match=r"no 'width'. Pass key= with one of params, lr"):
        stream.live("width", 1).apply(optimizer)


CELL = """
import time
from pathlib import Path
lr = tsnb.live("lr", 0.1, bounds=(1e-5, 1.0))
pairs, steps = [], 0
for epoch in range(2):
    for (batch,) in tsnb.attach():
        before = float(lr)
        if steps == 3:
            print("here", flush=True)
            while not Path(go).exists():
                time.sleep(0.01)
        pairs.append((before, float(lr)))
        tsnb.log(lr=before)
        steps += 1
"""


@pytest.mark.system
def test_a_trial_is_set_while_it_runs_and_run_again_with_the_same_changes(
    page: Any, until: Until, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of its code; refusals come back; the change is in the record with its batch, and repeated there."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    go = tmp_path / "go"
    loader = DataLoader(TensorDataset(torch.arange(48.0)), batch_size=8)
    with tsnb.serve(loader, name="live", late_join=1.0, seed=0):
        trial = run_cell("set", CELL, {"go": str(go)}, outlet=page)
        until(lambda: "here" in page.text or trial.state == "failed", 120)
        assert trial.live == {"lr": 0.1}
        with pytest.raises(ValueError, match=r"lr=3 is invalid\. Pass a number from 1e-05 to 1"):
            trial.set(lr=3)
        with pytest.raises(NoSuchLiveValue, match=r"'lrr'.*Did you mean 'lr'"):
            trial.set(lrr=0.3)
        with pytest.raises(TypeError, match=r"set\(lr=0\.03\).*lr=0\.1"):
            trial.set()
        trial.set(lr=torch.tensor(0.25))
        assert trial.live == {"lr": 0.25}, "as it will be from the next batch on"
        go.touch()
        trial.wait(60)
        assert trial["pairs"] == 4 * [(0.1, 0.1)] + 8 * [(0.25, 0.25)]
        (change,) = trial.changes
        first = next(row for row in trial.metrics.rows if row.numbers["lr"] == 0.25)
        assert change[:5] == ("lr", 0.25, first.epoch, first.batch, first.samples)
        assert trial.live == {"lr": 0.25}
        run = Run.find("set")
        record = None if run is None else run.read()
        assert record is not None
        assert record.changes == [change]
        with pytest.raises(TsnbError, match=r"is done\. Live hyperparameters can be set only while it runs"):
            trial.set(lr=0.5)
        again: Trial = trial.rerun(repeat_changes=True).wait(60)
        assert again.metrics.by_step("lr") == trial.metrics.by_step("lr")
        assert [each[:2] for each in again.changes] == [("lr", 0.25)]
        plain = again.rerun().wait(60)
        assert set(plain.metrics.by_step("lr").values()) == {0.1}


def test_what_is_asked_over_a_stream_is_answered_and_never_raises() -> None:
    """With all values as they will be and what may be given; what is wrong is told as the notebook would be."""
    stream = Stream()
    stream.live("lr", 0.1, bounds=(0.0, 1.0))
    stream.live("loss", "sum", choices=("sum", "mean"))
    values, *error = stream.values.answer('{"lr": 0.5}')
    assert json.loads(values) == {
        "lr": {"value": 0.5, "wanted": "a number from 0 to 1"},
        "loss": {"value": "sum", "wanted": "one of 'sum', 'mean'"},
    }
    assert error == ["", ""]
    refused = {
        asked: stream.values.answer(asked)[1:]
        for asked in ('{"lr": 2, "loss": "mean"}', '{"lrr": 1}', '{"loss": null}', "[1]", '"lr"', "nonsense")
    }
    assert refused['{"lr": 2, "loss": "mean"}'] == (
        "ValueError",
        "lr=2 is invalid. Pass a number from 0 to 1.",
    )
    assert refused['{"lrr": 1}'][0] == "NoSuchLiveValue"
    assert all(kind and text for kind, text in refused.values())
    assert stream.values.answer("{}")[0] == values.replace("0.5", "0.1"), "only what fits has been taken"
    stream.batch(0, 1)
    assert float(stream.live("lr", 0.1)) == 0.5


STEERED = """
lr, loss = tsnb.live("lr", 0.1, bounds=(1e-5, 1.0)), tsnb.live("loss", "sum", choices=("sum", "mean"))
while True:
    for (batch,) in tsnb.attach():
        tsnb.log(lr=float(lr))
"""


@pytest.mark.system
def test_live_values_are_set_from_a_terminal(
    page: Any,
    until: Until,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`tsnb set STREAM/TRIAL`: refused with the bounds, recorded as `trial.set`, of one that is paused, too."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))

    def tsnb_json(*words: str, status: int = 0) -> Any:
        assert cli.main([*words, "--json"]) == status
        return json.loads(capsys.readouterr().out)

    loader = DataLoader(TensorDataset(torch.arange(48.0)), batch_size=8)
    with tsnb.serve(loader, name="live", late_join=1.0):
        trial = run_cell("hot", STEERED, {}, outlet=page)
        until(lambda: "lr" in trial.metrics, 120)
        both = {
            "lr": {"value": 0.1, "wanted": "a number from 1e-05 to 1"},
            "loss": {"value": "sum", "wanted": "one of 'sum', 'mean'"},
        }
        assert tsnb_json("set", "live/hot") == {"stream": "live", "trial": "hot", "live": both}
        refused = tsnb_json("set", "live/hot", "loss=mean", "lr=3", status=1)
        assert refused == {"error": "'hot': lr=3 is invalid. Pass a number from 1e-05 to 1."}
        assert "Did you mean 'lr'" in tsnb_json("set", "live/hot", "lrr=1", status=1)["error"]
        assert "Did you mean 'hot'" in tsnb_json("set", "live/hott", "lr=1", status=1)["error"]
        assert "Write STREAM/TRIAL" in tsnb_json("set", "live", "lr=1", status=1)["error"]
        assert tsnb_json("set", "live/hot", "lr=0.03", "loss=mean")["live"]["lr"]["value"] == 0.03
        until(lambda: trial.metrics["lr"] == 0.03, 60)
        assert [change[:2] for change in trial.changes] == [("lr", 0.03), ("loss", "mean")]
        assert trial.changes[0].batch is not None
        cli.main(["pause", "live/hot"])
        until(lambda: trial.state == "paused", 60)
        assert (
            runs.steer("set", [], Namespace(name="hot", changes=[("lr", 0.5)]))
            == "hot: lr=0.5 from the next batch on"
        )
        assert cli.main(["set", "live/hot", "lr=0.25"]) == 0
        assert "'hot' of 'live': lr=0.25 from its next batch on" in capsys.readouterr().out
        assert (trial.metrics["lr"], len(trial.changes)) == (0.03, 2), "it has read nothing since"
        panel = tsnb.dashboard("live")
        until(lambda: panel.pid_of("hot"), 60)
        assert panel.steer is not None
        panel.steer("resume", "hot")
        panel.close()
        until(lambda: trial.metrics["lr"] == 0.25, 60)
        assert status("live").consumers[0].live == {"lr": "0.25", "loss": "mean"}
        run = Run.find("hot")
        record = None if run is None else run.read()
        assert record is not None
        assert [change[:2] for change in record.changes[2:]] == [("lr", 0.5), ("lr", 0.25)]
        assert tsnb_json("stop", "live/hot") == {"stream": "live", "trial": "hot", "left": True}
        until(lambda: trial.state == "stopped", 60)
        again = trial.rerun()
        until(lambda: "lr" in again.metrics, 120)
        assert tsnb_json("interrupt", "live/hot")["interrupted"] is True
        until(lambda: again.state in {"stopped", "interrupted"}, 60)
