"""`workers="auto"`: the number of a loader's workers is found while it is read, and no batch differs for it."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import tsnb
from tests.producer.sources import Noisy, Numbers, Stream
from tsnb.caching.choice import floor_of
from tsnb.cli import main
from tsnb.errors import ProducerNotFound, TsnbError
from tsnb.extensions import tuning as autoworkers
from tsnb.extensions.tuning import Probes, first_workers
from tsnb.machine.memory import Pressure, free_memory, memory_bounds
from tsnb.notebook import streams
from tsnb.notebook.grammar import TENSORSOCKET, parse
from tsnb.options import StreamOptions
from tsnb.show.words import incidents, short_of_memory, tuned
from tsnb.telemetry.readings import StreamReading, TuningReading
from tsnb.telemetry.shown.marks import marks
from tsnb.telemetry.tuning import tune, tuning_of

pytestmark = pytest.mark.system


class Slow(Noisy):
    """Waits for each sample, as for a disk: two workers are twice as fast as one, however many cores there are."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.004)
        return super().__getitem__(index)


def slow(workers: int = 0) -> DataLoader[Any]:
    return DataLoader(Slow(200), 2, shuffle=True, num_workers=workers)


def epochs(number: int) -> list[torch.Tensor]:
    consumer = tsnb.attach("c")
    return [epoch(consumer) for _ in range(number)]


def epoch(consumer: tsnb.Consumer) -> torch.Tensor:
    return torch.stack([batch.clone() for batch in consumer])


@pytest.mark.slow
def test_workers_that_help_are_added_and_no_batch_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begins with one; the batches are those of one worker, bit for bit, random augmentation included."""
    with tsnb.serve(slow(1), name="plain", seed=5):
        wanted = epochs(2)
    monkeypatch.setattr(autoworkers, "PROBE_S", 0.3)
    monkeypatch.setattr(autoworkers, "SETTLE_S", 0.1)
    with tsnb.serve(slow(), name="tuned", seed=5, workers="auto", memory="4GiB") as producer:
        assert producer.status().workers == 1
        found = []
        consumer = tsnb.attach("c")
        while (
            len(producer.probes) < 2
        ):  # whether two are faster is this machine's affair: that they are tried is ours
            found.append(epoch(consumer))
        assert torch.equal(found[0], wanted[0])
        assert len(found) < 2 or torch.equal(found[1], wanted[1])
        assert [probe.workers for probe in producer.probes[:2]] == [1, 2]
        assert "wait share" in repr(producer.probes)
        assert "<table" in producer.probes._repr_html_()
        producer.tune(workers=1)
        assert producer.probes == Probes()
        assert not [thread for thread in threading.enumerate() if thread.name == "tsnb-workers-tuned"]


def test_a_budget_that_one_worker_fills_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tried that would pass it: one worker stays alone, however long the loader limits."""
    monkeypatch.setattr(autoworkers, "PROBE_S", 0.2)
    monkeypatch.setattr(autoworkers, "SETTLE_S", 0.0)
    monkeypatch.setattr(autoworkers, "MEMORY_S", 0.0)
    with tsnb.serve(slow(1), name="small", workers="auto", memory="1MiB") as producer:
        consumer = tsnb.attach("c")
        while not producer.probes:
            epoch(consumer)
        epoch(consumer)
        assert producer.status().workers == 1
        assert [probe.workers for probe in producer.probes] == [1]
        status = producer.status()
        assert status.tuning is not None and status.tuning.worker_bytes > 1 << 20
        assert "memory= allows 1.0 MiB" in short_of_memory(status.tuning)
        assert (
            "serve without memory" in repr(producer.probes)
            and "serve without memory" in producer.probes._repr_html_()
        )
        assert any("one worker needs" in line for line in incidents(status))
        assert any("one worker needs" in line for line in tuned(tuning_of("small")))


class InMemory(Noisy):
    """Has all of its data in memory, filled before any worker is there."""

    def __init__(self) -> None:
        super().__init__(200)
        self.data = torch.ones(256 << 18)  # 256 MiB

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.004)
        return super().__getitem__(index)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="this system does not tell")
def test_a_data_set_in_memory_is_not_held_against_workers_that_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stays when they end. Only what comes free with them counts, and a second one is tried beside the first."""
    monkeypatch.setattr(autoworkers, "PROBE_S", 0.3)
    monkeypatch.setattr(autoworkers, "SETTLE_S", 0.1)
    loader = DataLoader(InMemory(), 2, shuffle=True, num_workers=1)
    with tsnb.serve(loader, name="in-memory", seed=5, workers="auto", memory="200MiB") as producer:
        consumer = tsnb.attach("c")
        while not producer.probes:
            epoch(consumer)
        tuning = producer.status().tuning
        assert tuning is not None and 0 < tuning.worker_bytes < 60 << 20
        assert not short_of_memory(tuning)
        while len(producer.probes) < 2:
            epoch(consumer)
        assert [probe.workers for probe in producer.probes[:2]] == [1, 2]


def test_memory_that_is_too_little_is_said_with_what_is_needed() -> None:
    """For one worker, and for a second to be tried beside it; not where a number fits, was chosen or is not known."""

    def told(memory: int | None, worker: int, workers: int = 1) -> str:
        return short_of_memory(TuningReading("auto", workers, 2, memory, True, (), worker << 20))

    assert told(1 << 20, 100).startswith("note: one worker needs 100 MiB, but memory= allows 1.0 MiB")
    assert "Pass memory=300 MiB or more to try a second worker" in told(1 << 20, 100)
    assert told(200 << 20, 100).startswith(
        "note: one worker needs 100 MiB. With 200 MiB, tsnb adds no worker"
    )
    assert not told(300 << 20, 100) and not told(None, 100) and not told(1 << 20, 0)
    assert not told(250 << 20, 100, workers=2) and not short_of_memory(None)


def test_a_bare_tune_only_looks(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name it may be another's stream: nothing changes, in a terminal and a notebook, but by --workers."""
    with tsnb.serve(slow(2), name="looked-at", seed=5) as producer:

        def typed(words: str) -> str:
            return streams.tune(parse(f"tune {words}", "%tensorsocket", TENSORSOCKET)[1])

        assert main(["tune"]) == 0
        printed = capsys.readouterr().out
        assert "looked-at: 2 workers, as it was served" in printed
        assert "nothing was changed. To change it: tsnb tune looked-at --workers auto, or a number" in printed
        assert main(["tune", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"name": "looked-at", "running": 2, "asked": None}
        assert "To change it: %tensorsocket tune looked-at --workers auto" in typed("")
        assert main(["tune", "--memory", "1GiB"]) == 1
        assert "Add --workers auto, or name the stream" in capsys.readouterr().err
        assert producer.status().tuning is None
        assert main(["tune", "--workers", "3"]) == 0
        assert "3 workers from the next unassigned batch" in capsys.readouterr().out
        assert main(["tune", "--settle", "0.1"]) == 0
        assert "3 workers from the next unassigned batch" in capsys.readouterr().out
        typed("looked-at")
        tuning = producer.status().tuning
        assert tuning is not None and tuning.asked == "auto"


def test_a_notebook_does_not_change_anothers_stream_without_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells of the only one; with a number it asks for the name."""

    def nobody() -> str:
        raise ProducerNotFound("This notebook serves no stream. Name one.")

    with tsnb.serve(slow(2), name="others", seed=5) as producer:
        monkeypatch.setattr(streams, "own_name", nobody)
        assert "others: 2 workers" in streams.tune(parse("tune", "%tensorsocket", TENSORSOCKET)[1])
        for words in ("tune --workers 3", "tune --workers auto", "tune --memory 1GiB"):
            with pytest.raises(ProducerNotFound, match="Name one"):
                streams.tune(parse(words, "%tensorsocket", TENSORSOCKET)[1])
        assert producer.status().tuning is None


def test_memory_that_is_short_takes_workers_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system counts of processes that stand still for memory is heeded within a second, and told as a mark."""
    monkeypatch.setattr(autoworkers, "SETTLE_S", 0.1)
    with tsnb.serve(slow(3), name="short", workers="auto") as producer:
        consumer = tsnb.attach("c")
        epoch(consumer)
        before = producer.status()
        assert before.workers == 3
        free, bounds = free_memory(), memory_bounds()
        assert free is not None and bounds is not None
        monkeypatch.setattr(Pressure, "share", lambda _: 0.5)
        monkeypatch.setattr(
            autoworkers, "free_memory", lambda: free._replace(size=2 * floor_of(bounds.total_bytes))
        )
        while producer.status().workers > 1:
            epoch(consumer)
        assert "workers: 1," in " ".join(mark.text for mark in marks(before, producer.status()))


@pytest.mark.slow
def test_a_stream_is_tuned_from_outside(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its name: what was asked, what was measured and each change as a mark; asked again, it goes on."""
    monkeypatch.setattr(autoworkers, "PROBE_S", 0.3)
    monkeypatch.setattr(autoworkers, "SETTLE_S", 0.1)
    with tsnb.serve(slow(1), name="outside", seed=5) as producer:
        before = producer.status()
        assert tuned(before) == ["outside: 1 worker, as it was served"]
        assert tune("outside", 3).tuning == TuningReading("3", 3, 2, None, True)
        consumer = tsnb.attach("c")
        epoch(consumer)
        assert producer.status().workers == 3
        asked = tune("outside", memory="4GiB").tuning
        assert asked is not None and (asked.asked, asked.memory_bytes) == ("auto", 4 << 30)
        while len(producer.probes) < 2:
            epoch(consumer)
        again = tune("outside")
        assert again.tuning is not None and again.tuning.memory_bytes == 4 << 30
        assert again.tuning.probes[:2] == tuple(producer.probes[:2])
        text = "\n".join(tuned(again))
        assert "workers auto, memory limit 4.0 GiB" in text and "wait share" in text
        assert StreamReading.from_json(again.to_json()) == again
        told = [mark.text for mark in marks(before, again) if mark.kind == "workers"]
        assert any(text.startswith("tried 3 workers, 2 ahead each: ") for text in told)
        line = parse("tune outside --workers auto --settle 0.1", "%tensorsocket", TENSORSOCKET)[1]
        assert "outside: workers auto, memory limit 4.0 GiB; " in streams.tune(line)
        assert main(["tune", "outside", "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert (printed["name"], printed["asked"], printed["memory_bytes"]) == ("outside", "auto", 4 << 30)
        assert printed["probes"][0]["workers"] == 3
        with pytest.raises(ValueError, match="leave out memory"):
            tune("outside", 2, "1GiB")
        with pytest.raises(ValueError, match="keeps at least one worker"):
            tune("outside", 0)
        with pytest.raises(ValueError, match='or "auto"'):
            tune("outside", "many")
    with (
        tsnb.serve([torch.ones(2)], name="list"),
        pytest.raises(TsnbError, match="does not serve a DataLoader"),
    ):
        tune("list", 2)
    assert main(["tune", "list", "--workers", "2"]) == 1
    assert "No stream named 'list'" in capsys.readouterr().err


def test_the_memory_that_was_given_stays_while_a_number_is_chosen() -> None:
    """A number needs none and says none; "auto" again, here or from outside, has it back until another is given."""

    def told(reading: StreamReading) -> tuple[str, int | None]:
        assert reading.tuning is not None
        return reading.tuning.asked, reading.tuning.memory_bytes

    with tsnb.serve(slow(1), name="bounded", workers="auto", memory="4GiB") as producer:
        producer.tune(workers=1)
        assert told(producer.status()) == ("1", None)
        producer.tune(workers="auto")
        assert told(producer.status()) == ("auto", 4 << 30)
        streams.tune(parse("tune bounded --workers 2", "%tensorsocket", TENSORSOCKET)[1])
        assert told(producer.status()) == ("2", None)
        streams.tune(parse("tune bounded", "%tensorsocket", TENSORSOCKET)[1])
        assert told(producer.status()) == ("auto", 4 << 30)
        assert told(tune("bounded", 1)) == ("1", None)
        assert told(tune("bounded", memory="2GiB")) == ("auto", 2 << 30)
        assert told(tune("bounded", 1)) == ("1", None)
        assert told(tune("bounded")) == ("auto", 2 << 30)


def test_what_it_cannot_be_used_for_is_refused() -> None:
    """With the reason; nothing is served then."""
    with pytest.raises(ValueError, match="IterableDataset divides its samples among its workers"):
        tsnb.serve(DataLoader(Stream(), 2), name="refused", workers="auto")
    with pytest.raises(ValueError, match="this is a list"):
        tsnb.serve([torch.ones(2)], name="refused", workers="auto")
    with pytest.raises(ValueError, match='Add workers="auto", or leave out memory'):
        tsnb.serve(DataLoader(Numbers(), 2), name="refused", workers=2, memory="1GiB")
    with pytest.raises(ValueError, match='a number of processes, 0 to 1024, or "auto"'):
        StreamOptions(workers="many")
    with (
        tsnb.serve(DataLoader(Numbers(), 2), name="refused") as producer,
        pytest.raises(ValueError, match="without workers"),
    ):
        producer.tune(workers="auto")


def test_it_begins_with_the_loaders_own_number() -> None:
    """One at least; a number that was given stays that."""
    assert [first_workers(slow(n), "auto") for n in (0, 1, 3)] == [1, 1, 3]
    assert first_workers(slow(3), None) is None
    assert first_workers(slow(3), 0) == 0
