"""`tsnb.report` and `tsnb.plot` over real streams, over streams that have ended, and over recordings."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.panel.streams import three_models
from tsnb.discovery import registry
from tsnb.errors import ProducerNotFound, TsnbError
from tsnb.planners import timeline
from tsnb.planners.timeline import PlannedTrial, Timeline
from tsnb.records.selection import NoSuchRecord
from tsnb.reports.sources import is_recording
from tsnb.telemetry.watching import watched


@pytest.fixture
def producer() -> Iterator[tsnb.streams.Producer]:
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(64.0)), batch_size=4), name="numbers") as served:
        yield served


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "three.jsonl"
    lines = [
        '{"tsnb":"0.1.0","recording":1,"stream":"mnist"}',
        *(r.to_json() for r in three_models().run(30)),
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def train(name: str, step_s: float, metric: float = 0.5) -> None:
    with tsnb.attach(name, stream="numbers") as consumer:
        for _ in consumer:
            tsnb.log(loss=metric)
            time.sleep(step_s)
        time.sleep(0.4)  # readings come four times a second: the next one has the last step too


@pytest.mark.system
def test_a_report_knows_of_the_end_before_the_name_is_free(
    producer: tsnb.streams.Producer, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two a second stream of that name was looked for: the picture beside a panel stayed a live one."""
    train("one", 0.01)
    assert tsnb.report("numbers").story.state != "gone"
    there = watched()["numbers"]
    free, unregister = threading.Event(), registry.unregister

    def later(entry: registry.Entry) -> None:
        assert free.wait(60)
        unregister(entry)

    monkeypatch.setattr(registry, "unregister", later)
    stopping = threading.Thread(target=producer.stop)
    stopping.start()
    try:
        deadline = time.monotonic() + 60
        while not there.over and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [entry.name for entry in registry.entries()] == ["numbers"]
        assert tsnb.report("numbers").story.state == "gone"
        assert watched()["numbers"] is there
    finally:
        free.set()
        stopping.join()


@pytest.mark.system
def test_a_stream_has_its_report_while_it_runs_and_after_its_end(
    producer: tsnb.streams.Producer, project: Path
) -> None:
    """Whoever asked once watches it from then on; the end closes the watch and leaves the report."""
    early = tsnb.report()
    assert early.story.name == "numbers"
    assert early.story.lead == "No trial has attached."
    train("slow", 0.1)
    live = tsnb.report("numbers")
    (trial,) = live.story.trials
    assert trial.name == "slow"
    assert trial.batches == 16
    assert trial.computing_s > 1.0
    # its pause at the end is a fifth, and the rest is this machine's, whose other tests run meanwhile
    assert trial.computing_s > 0.5 * trial.total_s
    assert "slow" in live.svg and "slow joined" in live.text
    lag = tsnb.plot("lag", stream="numbers")
    assert [line.name for line in lag.data] == ["slow"]
    assert max(v for v in tsnb.plot("loss", stream="numbers").data[0].y if v is not None) == 0.5
    producer.stop()
    assert list(watched()) == ["numbers"]
    deadline = time.monotonic() + 60
    while not watched()["numbers"].over and time.monotonic() < deadline:
        time.sleep(0.05)
    after = tsnb.report()
    assert after.text.startswith("stream numbers, ended: 1 trial")
    assert after.story.trials[0].batches == 16


@pytest.mark.system
def test_a_stream_found_under_way_has_its_totals(producer: tsnb.streams.Producer) -> None:
    """The first look comes late: what was counted before is in the report, the time attached too."""
    with tsnb.attach("late", stream="numbers") as consumer:
        began_s = time.monotonic()
        for number, _ in enumerate(consumer):
            time.sleep(0.02)
            if number == 12:
                passed_s = time.monotonic() - began_s
                found = tsnb.report("numbers")
    assert found.story.trials[0].batches >= 10
    assert found.story.trials[0].total_s >= passed_s
    assert "not observed from its start" not in found.text


@pytest.mark.system
def test_a_report_that_comes_late_has_the_plan_of_the_stream(
    producer: tsnb.streams.Producer, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trials had ended before anybody watched; a stream served later, of that name too, has not that plan."""
    monkeypatch.setattr(timeline, "_newest", [])
    began_s = time.time()
    with tsnb.attach("planned", stream="numbers") as consumer:
        assert sum(1 for _ in consumer) == 16
    ended_s = time.time()
    ran = PlannedTrial("planned", (0.0, 1.0), (0.0, ended_s - began_s))
    found = Timeline("plan", (ran,), ("numbers",), began_s)
    timeline.show(lambda: found)
    assert not watched()
    made = tsnb.report("numbers")
    assert made.story.begin_s > ended_s and made.story.plan == found
    panel = tsnb.dashboard("numbers")
    assert panel._plan() == found.to_dict()
    producer.stop()
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(64.0)), batch_size=4), name="numbers"):
        deadline = time.monotonic() + 60
        while (readings := watched()["numbers"].readings()) and readings[0].time_s <= made.story.end_s + 1e-2:
            assert time.monotonic() < deadline, "the panel goes on with the stream of that name"
            time.sleep(0.05)
        assert panel._plan() is None and tsnb.report("numbers").story.plan is None
    panel.close()


def test_a_recording_is_a_stream_that_has_been(recording: Path, project: Path) -> None:
    """The same report and figures from a file; nothing is watched for it."""
    assert tsnb.report(recording).story == tsnb.report(str(recording)).story
    assert tsnb.report(recording).story.trials[0].name == "cnn-small"
    assert len(tsnb.plot("share", recording=recording).data) == 4
    assert tsnb.plot("loss", recording=str(recording)).layout.yaxis.title.text == "loss"
    assert not watched()


def test_a_recording_that_is_none_says_why(tmp_path: Path) -> None:
    """Missing, empty, something else."""
    with pytest.raises(TsnbError, match=r"gone\.jsonl"):
        tsnb.report(tmp_path / "gone.jsonl")
    (tmp_path / "else.jsonl").write_text("[1, 2]\n")
    with pytest.raises(ValueError, match="is not a recording"):
        tsnb.report(tmp_path / "else.jsonl")
    (tmp_path / "empty.jsonl").write_text('{"tsnb":"0.1.0","recording":1,"stream":"mnist"}\n')
    with pytest.raises(TsnbError, match="is empty"):
        tsnb.report(tmp_path / "empty.jsonl")


def test_a_name_that_is_no_stream_says_which_there_are() -> None:
    """Nothing served, nothing watched: what to type is in the message."""
    with pytest.raises(ProducerNotFound, match="%tensorsocket start LOADER"):
        tsnb.report()
    with pytest.raises(
        ProducerNotFound, match=r"No stream named 'mnist'.*Served now: none.*results.*save.*'FILE\.jsonl'"
    ):
        tsnb.report("mnist")
    assert not watched(), "a name that nobody serves is not watched for a question"


@pytest.mark.system
def test_of_several_streams_one_must_be_named(producer: tsnb.streams.Producer) -> None:
    """The message names them; an ended one is listed with what is known here."""
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(4.0))), name="other"):
        with pytest.raises(ProducerNotFound, match="Several streams are served: numbers, other"):
            tsnb.plot("lag")
        assert tsnb.report("other").story.name == "other"
    with pytest.raises(ProducerNotFound, match="Served now: numbers; ended, but known here: other"):
        tsnb.report("third")


def test_what_does_not_go_together_is_refused(recording: Path, project: Path) -> None:
    """Options of the records with a stream, a stream and a recording, a number that nobody logged there."""
    with pytest.raises(ValueError, match="by= works for logged numbers, not for a stream's 'lag'"):
        tsnb.plot("lag", by="lr", recording=recording)
    with pytest.raises(ValueError, match="stream= or recording="):
        tsnb.plot("lag", stream="a", recording=recording)
    with pytest.raises(NoSuchRecord, match=r"'los'.*Did you mean 'loss'.*stream 'mnist': loss, accuracy"):
        tsnb.plot("los", recording=recording)


@pytest.mark.parametrize(
    ("name", "file"),
    [("mnist", False), ("run.1", False), ("runs/one.jsonl", True), ("one.jsonl", True), (Path("x"), True)],
)
def test_names_and_files_are_told_apart(name: str | Path, file: bool) -> None:
    assert is_recording(name) is file
