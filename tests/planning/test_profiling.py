"""Real trials while they are profiled: who is seen alone, and what becomes of one that cannot go on alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.by_value import by_value
from tsnb.config import unprofiled
from tsnb.errors import TsnbError
from tsnb.experiments.overview.board import launch
from tsnb.planning import profiling
from tsnb.planning.profiling import profile, starter
from tsnb.planning.trial_costs import Profiled
from tsnb.planning.waves import together
from tsnb.planning.wishes import wanted

pytestmark = pytest.mark.system

SOURCE = """
def train(ms, told="", hears="", dies=False):
    import time
    from pathlib import Path
    import tsnb
    for number, batch in enumerate(tsnb.attach()):
        end = time.thread_time() + ms / 1000 * len(batch)
        while time.thread_time() < end:
            pass
        if told:
            Path(told).write_text(str(number))
        began_s = time.monotonic()
        while hears and int(Path(hears).read_text() or -1) < number:
            time.sleep(0.01)
            if dies and time.monotonic() - began_s > 2:
                raise ConnectionError("the peer has gone")
"""


@pytest.fixture
def train() -> Any:
    return by_value(SOURCE)


@pytest.fixture
def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(2_000)), 4)


@pytest.fixture
def seen_by_itself(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of those that went on alone."""
    names: list[str] = []
    going_on = Profiled.going_on

    def noted(each: Profiled) -> Profiled:
        names.append(each.trial.name)
        return going_on(each)

    monkeypatch.setattr(Profiled, "going_on", noted)
    return names


@pytest.mark.slow
def test_each_is_seen_alone_and_beside_the_others(
    train: Any, loader: DataLoader[Any], seen_by_itself: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a crowd costs a trial of middling steps, neither the smallest nor the longest can tell."""
    started: Counter[str] = Counter()

    def noted(plan: Any, outlet: Any) -> Any:
        started[unprofiled(plan.name)] += 1
        return launch(plan, outlet)

    monkeypatch.setattr(profiling, "launch", noted)
    ms = {"small": 0.5, "middle": 1.0, "large": 4.0}
    trials = {name: (train, {"ms": each}) for name, each in ms.items()}
    found = profile(wanted(trials, None), loader, least_s=0.2)
    assert started == {"small": 2, "middle": 2, "large": 2} and not seen_by_itself
    assert {cost.beside for cost in found.costs.values()} == {2}


@pytest.mark.slow
@pytest.mark.parametrize("first", ["large", "small"])
def test_where_a_start_takes_long_the_longest_is_seen_alone_once(
    first: str,
    train: Any,
    loader: DataLoader[Any],
    seen_by_itself: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At first, if it is the first one, and in the end, if it is not; both were seen beside the other one."""
    monkeypatch.setattr(profiling, "SOON_S", 0.0)
    ms = {"large": 4.0, "small": 0.5}
    order = [first, *(ms.keys() - {first})]
    found = profile(wanted({name: (train, {"ms": ms[name]}) for name in order}, None), loader, least_s=0.2)
    assert ["large" in name for name in seen_by_itself] == ([] if first == "large" else [True])
    assert {cost.beside for cost in found.costs.values()} == {1}


@pytest.mark.slow
@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("soon_s", [0.0, 10.0])
def test_one_that_waits_for_another_is_planned_without_being_seen_alone(
    dies: bool,
    soon_s: float,
    train: Any,
    loader: DataLoader[Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rank, for example: it stands still, or fails, without its peer, and a line says what is not known."""
    monkeypatch.setattr(profiling, "SOON_S", soon_s)
    count = tmp_path / "count"
    count.touch()
    trials = {
        "first": (train, {"ms": 0.5}),
        "waits": (train, {"ms": 4.0, "hears": str(count), "dies": dies}),
        "peer": (train, {"ms": 0.5, "told": str(count)}),
    }
    found = profile(wanted(trials, None), loader, least_s=0.2)
    assert found.costs["waits"].cpu_s > 0.5e-3 and found.costs["waits"].beside == 2
    assert capsys.readouterr().out.count("waits: takes no batches without the other trials") == 1
    assert not tsnb.streams.list() and not list(tsnb.trials)


@pytest.mark.slow
def test_one_that_is_done_is_not_said_to_need_the_others(
    train: Any, loader: DataLoader[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended before it could be seen alone."""

    def short(epochs: int = 1) -> None:
        import time

        import tsnb

        for number, _ in enumerate(tsnb.attach()):
            time.sleep(0.01)
            if number == 30:
                return

    profile(wanted({"first": (train, {"ms": 0.5}), "short": short}, None), loader)
    assert "takes no batches" not in capsys.readouterr().out


@pytest.mark.slow
def test_one_that_keeps_the_others_waiting_is_named_alone(
    train: Any, loader: DataLoader[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others have asked for their first batch, and stand behind the gate: nothing is wrong with them."""
    monkeypatch.setattr("tsnb.planning.waves.LIMIT_S", 12.0)
    monkeypatch.setattr("tsnb.planning.waves.SILENT_S", 8.0)

    def sleeps() -> None:
        import time

        time.sleep(600)

    with pytest.raises(TsnbError, match="took no batch"):
        profile(wanted({"first": (train, {"ms": 0.5}), "sleeps": sleeps}, None), loader)
    said = capsys.readouterr().out
    assert said.startswith(
        "[profile] sleeps: no batch yet after 8 s, it has to take its batches from tsnb.attach()"
    )
    assert "Ctrl-C ends this" in said


@pytest.mark.slow
def test_one_that_has_asked_and_waits_for_the_stream_is_not_told_to_attach(
    train: Any, loader: DataLoader[Any], monkeypatch: pytest.MonkeyPatch, printed: Callable[[], str]
) -> None:
    """Another trial is in the middle of an epoch: nothing is wrong with this one, which waits for the next."""
    monkeypatch.setattr("tsnb.planning.waves.SILENT_S", 8.0)
    (late,) = wanted({"late": (train, {"ms": 0.5})}, None)
    with tsnb.serve(loader, name="busy", late_join=0.0) as producer, tsnb.attach("first", "busy") as first:
        going = iter(first)
        for _ in range(50):
            next(going)
        with together({"late": starter(late, "busy", 1)}, 1) as group:
            deadline_s = time.monotonic() + 60
            while "no batch yet" not in printed() and time.monotonic() < deadline_s:
                group.look({each.name: each for each in producer.status().consumers})
                time.sleep(0.02)
    assert "late: no batch yet after 8 s, it has requested one and waits for the stream." in printed()
