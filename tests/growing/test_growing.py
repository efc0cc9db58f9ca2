"""Data sets that grow: an index that is whole after any kill, files taken whole, every sample once in an epoch."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, DataLoader, Dataset, RandomSampler, Subset, TensorDataset

import tsnb
from tests.growing.growths import growth_in
from tests.second_user import does, reachable, two_users
from tests.second_user import given as given_them
from tests.waiting import wait_until
from tsnb.cli import main
from tsnb.errors import JoinRefused, LoaderFailed, ProducerNotFound, TsnbError
from tsnb.extensions.growth import GrowingBatches, Growth, growth_of
from tsnb.growing.index import GrowthIndex
from tsnb.growing.log import GrowthLog
from tsnb.growing.order import Arrivals, EpochOrder
from tsnb.growing.selection import Standing, Trigger, every, interval, read_select, worse
from tsnb.growing.sources import ALIKE
from tsnb.notebook import streams
from tsnb.notebook.grammar import TENSORSOCKET, parse
from tsnb.telemetry.observer import status
from tsnb.telemetry.shown.diagnosis import diagnose

HANG_S = 60.0


def number_in(path: str) -> int:
    """Read a sample of the folders that these tests grow."""
    return int(Path(path).read_text(encoding="utf-8"))


def add(folder: Path, *numbers: int) -> None:
    """Put files into a folder, each renamed into its place."""
    for number in numbers:
        unfinished = folder / f"{number:06}.tmp"
        unfinished.write_text(str(number), encoding="utf-8")
        unfinished.rename(folder / f"{number:06}.txt")


def folder_of(tmp_path: Path, samples: int) -> Path:
    folder = tmp_path / "incoming"
    folder.mkdir()
    add(folder, *range(samples))
    return folder


# -- the index ------------------------------------------------------------------------------------------------


def test_a_folder_s_files_are_samples_and_keep_their_numbers(tmp_path: Path) -> None:
    """New files come last, in any process; `len` changes at `refresh` alone, and a plain DataLoader takes it."""
    folder = folder_of(tmp_path, 5)
    grown = tsnb.data.grow(folder, number_in, settle_s=0)
    (folder / "a").mkdir()
    add(folder / "a", 5)
    add(folder, 3000)
    assert len(grown) == 5
    there = pickle.loads(pickle.dumps(grown))  # as a worker that is spawned gets it
    assert grown.refresh() == 7
    assert there[6] == grown[6] == 3000 and grown[5] == 5 and grown[-7] == 0
    again = tsnb.data.grow(folder, number_in, settle_s=0)
    assert [again[i] for i in range(7)] == [grown[i] for i in range(7)]
    taken = torch.cat(list(DataLoader(grown, 3, shuffle=True)))
    assert sorted(taken.tolist()) == [0, 1, 2, 3, 4, 5, 3000]
    with pytest.raises(IndexError):
        grown[7]


def test_files_that_are_being_written_are_not_taken(tmp_path: Path) -> None:
    """Not under a name that says so, not while empty, not before they have settled; and a change afterwards is told."""
    folder = folder_of(tmp_path, 2)
    (folder / "half.part").write_text("1", encoding="utf-8")
    (folder / ".hidden").write_text("1", encoding="utf-8")
    (folder / "empty.txt").touch()
    assert len(tsnb.data.grow(folder, number_in, settle_s=0)) == 2
    (folder / "open.txt").write_text("7", encoding="utf-8")
    patient = tsnb.data.grow(folder, number_in, settle_s=3600, index=tmp_path / "patient")
    assert len(patient) == 0
    ahead = (
        time.time() + 7200
    )  # as a file server with a clock of its own says: it counts once it has been still for us
    quick = tsnb.data.grow(folder, number_in, settle_s=0.2, index=tmp_path / "quick")
    os.utime(folder / "open.txt", (ahead, ahead))
    assert quick.wait(3, HANG_S) and len(quick) == 3
    last = next(i for i in range(3) if quick[i] == 7)
    (folder / "open.txt").write_text("77", encoding="utf-8")
    with pytest.raises(TsnbError, match=r"had 1 bytes when it was added and has 2 now.*rename"):
        quick[last]
    (folder / "open.txt").unlink()
    with pytest.raises(FileNotFoundError, match="a dataset that can only grow"):
        quick[last]


def test_a_folder_that_is_not_there_or_vanishes_is_named(tmp_path: Path) -> None:
    """Both when it is opened and later."""
    with pytest.raises(TsnbError, match=r"incoming.*does not exist"):
        tsnb.data.grow(tmp_path / "incoming", number_in)
    folder = folder_of(tmp_path, 2)
    grown = tsnb.data.grow(folder, number_in, settle_s=0, index=tmp_path / "index")
    folder.rename(tmp_path / "gone")
    with pytest.raises(TsnbError, match="Create it, mount it again"):
        grown.refresh()


def test_lines_of_a_file_are_samples_once_they_are_ended(tmp_path: Path) -> None:
    """A line that is being written waits for its end; a file that became shorter is refused."""
    table = tmp_path / "rows.jsonl"
    table.write_bytes(b'{"a": 1}\n\n{"a"')
    grown = tsnb.data.grow(table, bytes.decode)
    assert [grown[i] for i in range(len(grown))] == ['{"a": 1}', ""]
    with table.open("ab") as file:
        file.write(b": 2}\n")
    assert grown.refresh() == 3 and grown[2] == '{"a": 2}'
    table.write_bytes(b"{}\n")
    with pytest.raises(TsnbError, match="can only get longer"):
        grown.refresh()


def test_what_a_function_lists_is_a_sample_each(tmp_path: Path) -> None:
    """A text that was listed before is the same sample, wherever it stands in the list."""
    listed = ["b", "a"]
    grown = tsnb.data.grow(lambda: listed, str.upper, index=tmp_path / "index")
    listed[:0] = ["c"]
    listed += ["ä", "a"]
    grown.refresh()
    assert [grown[i] for i in range(len(grown))] == ["B", "A", "C", "Ä"]
    listed.append(7)  # type: ignore[arg-type]
    with pytest.raises(TsnbError, match="return a list of strings"):
        grown.refresh()


def test_input_that_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    """Each with what to write instead."""
    with pytest.raises(ValueError, match="index="):
        tsnb.data.grow(list, str)
    with pytest.raises(TypeError, match="parse="):
        tsnb.data.grow(tmp_path, "parse")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="0 or more"):
        tsnb.data.grow(tmp_path, str, settle_s=-1)
    (tmp_path / "samples").write_bytes(b"something else that is long enough")
    with pytest.raises(TsnbError, match="is not an index"):
        tsnb.data.grow(list, str, index=tmp_path)


@pytest.mark.parametrize("given", ["abc", None, 3, b"abc", [None]])
def test_a_function_that_lists_no_list_is_refused(tmp_path: Path, given: Any) -> None:
    """A text is iterable too: its letters would be samples."""
    with pytest.raises(TsnbError, match=r"returned .*return a list of strings"):
        tsnb.data.grow(lambda: given, str, index=tmp_path / "index")


def test_sources_and_times_of_another_type_are_refused_by_name(tmp_path: Path) -> None:
    """As are numbers of samples to wait for."""
    with pytest.raises(TypeError, match=r"expects a folder, a file or a function.* got int"):
        tsnb.data.grow(3, str)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"settle_s='soon' is invalid\. Pass a number of seconds"):
        tsnb.data.grow(tmp_path, str, settle_s="soon")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"wait\('all'\) is invalid\. Pass a number of samples"):
        tsnb.data.grow(tmp_path, str).wait("all")  # type: ignore[arg-type]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.data())
@settings(max_examples=40, deadline=None)
def test_an_index_cut_at_any_byte_is_whole_up_to_there(batches: list[int], data: st.DataObject) -> None:
    """As a killed writer leaves it: keys that no record names, or a record in part. The next writer goes on."""
    with TemporaryDirectory() as directory:
        listed: list[str] = []
        grown = tsnb.data.grow(lambda: listed, str, index=directory)
        for size in batches:
            listed += [f"sample {len(listed) + i}" for i in range(size)]
            grown.refresh()
        samples = Path(directory, "samples")
        os.truncate(samples, data.draw(st.integers(32, samples.stat().st_size)))
        listed.append("the last")
        grown = tsnb.data.grow(lambda: listed, str, index=directory)
        assert [grown[i] for i in range(len(grown))] == listed


@pytest.mark.system
def test_two_writers_that_are_killed_again_and_again_leave_each_sample_once(tmp_path: Path) -> None:
    """Two processes that add to one index, SIGKILLed at any moment: no key is lost or twice."""
    listed = [f"{i:05}" for i in range(4000)]
    turn = iter(range(10, 10_000))

    def write() -> None:
        shown = 0
        grown = tsnb.data.grow(lambda: listed[:shown], str, index=tmp_path)
        while True:
            shown += 7
            grown.refresh()

    for _ in range(6):
        children = []
        for _ in range(2):
            if (child := os.fork()) == 0:
                write()
            children.append(child)
        index = GrowthIndex(str(tmp_path))
        goal, deadline = next(turn) + index.count(), time.monotonic() + HANG_S
        while index.count() < min(goal, len(listed)) and time.monotonic() < deadline:
            time.sleep(0.001)
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    grown = tsnb.data.grow(lambda: listed, str, index=tmp_path)
    assert sorted(grown[i] for i in range(len(grown))) == listed


# -- the order ------------------------------------------------------------------------------------------------


@given(
    st.integers(0, 60), st.lists(st.tuples(st.integers(0, 8), st.integers(1, 20)), max_size=4), st.booleans()
)
def test_what_enters_stands_after_its_place_and_each_sample_is_there_once(
    samples: int, entries: list[tuple[int, int]], shuffle: bool
) -> None:
    """Whatever stands before the place stays; the rest keeps its order among itself; the same again from the log."""
    facts: dict[str, Any] = {"seed": 3, "epoch": 2, "batch_size": 7, "shuffle": shuffle, "drop_last": False}
    order = EpochOrder(np.arange(samples), **facts)
    again = EpochOrder(np.arange(samples), **facts)
    first, place = samples, 0
    for further, size in entries:
        place = min(place + further, order.batches)
        before = [order.batch(number).tolist() for number in range(place)]
        rest = [i for number in range(place, order.batches) for i in order.batch(number).tolist()]
        order.enter(Arrivals(place, first, size))
        again.enter(Arrivals(place, first, size))
        assert [order.batch(number).tolist() for number in range(place)][: len(before) - 1] == before[:-1]
        after = [i for number in range(place, order.batches) for i in order.batch(number).tolist()]
        assert [i for i in after if i < first] == rest
        first += size
    whole = [i for number in range(order.batches) for i in order.batch(number).tolist()]
    assert sorted(whole) == list(range(first)) and order.samples == first
    assert whole == [i for number in range(again.batches) for i in again.batch(number).tolist()]


def test_where_a_new_sample_comes_is_uniform_over_the_rest() -> None:
    """Chi-square over 3,000 epochs: of 24 places left, a new sample stands at each as often (23 degrees, p > 0.001)."""
    counts = np.zeros(24)
    for epoch in range(3000):
        order = EpochOrder(np.arange(40), seed=1, epoch=epoch, batch_size=4, shuffle=True, drop_last=False)
        order.enter(Arrivals(5, 40, 4))
        whole = np.concatenate([order.batch(number) for number in range(order.batches)])
        counts[int(np.flatnonzero(whole == 41)[0]) - 20] += 1
    assert ((counts - 125) ** 2 / 125).sum() < 49.7


class Stage:
    """A stream's order without the stream: producers that are killed at any moment, one after the other."""

    def __init__(self, directory: str, begin_with: int, batch_size: int, drop_last: bool = False) -> None:
        self.directory = directory
        self.drop_last = drop_last
        self.batch_size = batch_size
        self.listed = [str(i) for i in range(begin_with)]
        self.ordered: dict[int, list[list[int]]] = {}
        self.growth: Growth | None = None
        self.over: set[int] = set()

    def producer(self) -> Growth:
        """A producer begins; the one before was killed: nothing of it is closed in good order."""
        if self.growth is not None:
            self.growth.log.close()  # which the system does when it is killed
        grown = tsnb.data.grow(lambda: self.listed, int, index=self.directory)
        loader = DataLoader(grown, self.batch_size, shuffle=True, drop_last=self.drop_last)
        self.growth = growth_of(loader, "s", 5)
        assert self.growth is not None
        return self.growth

    def order(self, epoch: int, start: int, several: int, arriving: list[int]) -> None:
        """Give some batches of an epoch from one on; samples arrive meanwhile."""
        assert self.growth is not None
        batches = GrowingBatches(self.growth)
        batches.set_epoch(epoch)
        known = self.ordered.setdefault(epoch, [])
        for number, batch in enumerate(batches):
            if number < len(known):
                assert batch == known[number], "a batch that was given is given again as it was"
            else:
                assert epoch not in self.over
                known.append(batch)
            if number >= start and arriving:
                self.listed += [str(len(self.listed) + i) for i in range(arriving.pop())]
                self.growth._dataset.refresh()
            if number + 1 >= start + several:
                return
        self.over.add(epoch)


def test_a_listing_that_takes_long_is_asked_for_rarely_and_triggers_are_not(tmp_path: Path) -> None:
    """A listing of 0.3 s once in six seconds; who waits for a round is asked four times a second all the same."""
    listed, looks, enough = 0, 0, threading.Event()

    def listing() -> list[str]:
        nonlocal listed
        listed += 1
        time.sleep(0.3)
        return ["1", "2"]

    def looked() -> None:
        nonlocal looks
        looks += 1
        if looks == 8:
            enough.set()

    growth = growth_of(DataLoader(tsnb.data.grow(listing, int, index=tmp_path), 2), "s", 5)
    assert growth is not None
    before = listed
    growth.start(looked)
    assert enough.wait(HANG_S)
    assert 1 <= listed - before <= 2
    growth.close()


@pytest.mark.slow
@given(
    st.integers(1, 30),
    st.lists(
        st.tuples(
            st.sampled_from(["on", "killed", "back", "next"]),
            st.integers(0, 6),
            st.lists(st.integers(0, 9), max_size=4),
        ),
        max_size=12,
    ),
)
@settings(max_examples=60, deadline=None)
def test_epochs_of_killed_producers_are_given_again_as_they_were_and_each_sample_once(
    begin_with: int, moments: list[tuple[str, int, list[int]]]
) -> None:
    """Growth, SIGKILL and consumers that come back to any place, in any order: nothing differs, is lost or twice."""
    with TemporaryDirectory() as directory:
        stage = Stage(directory, begin_with, 4)
        epoch = stage.producer().first_epoch
        for what, several, arriving in moments:
            if what == "killed":
                assert stage.producer().first_epoch == max(stage.ordered, default=-1) + 1
            if what == "next":
                stage.order(epoch, 0, 1 << 30, list(arriving))  # to its end, first
                epoch += 1
            given_so_far = len(stage.ordered.get(epoch, []))
            start = min(several, given_so_far) if what == "back" else given_so_far
            stage.order(epoch, start, 1 + several, list(arriving))
        for number in range(epoch + 2):  # all to their ends; the last begins when nothing arrives any more
            stage.order(number, 0, 1 << 30, [])
            taken = [i for batch in stage.ordered[number] for i in batch]
            assert len(set(taken)) == len(taken), "twice in an epoch"
            assert set(taken) == set(range(len(taken))), "lost"
        assert len(taken) == len(stage.listed), "found in the end"
        assert stage.growth is not None
        stage.growth.close()


def test_a_stream_of_weeks_holds_what_entered_its_last_epochs_and_reads_the_rest(tmp_path: Path) -> None:
    """A hundred entries in each of fifty epochs are in the file; a consumer that goes back gets them from there."""
    log = GrowthLog(str(tmp_path), "s", "", 5)
    for epoch in range(50):
        log.begin(epoch, 10)
        for place in range(100):
            log.enter(epoch, Arrivals(place, 10 + place, 1))
    assert [len(entries) for entries in log._entered.values()] == [100]
    log.close()
    log = GrowthLog(str(tmp_path), "s", "", 5)
    assert [len(entries) for entries in log._entered.values()] == [100]
    assert log.entries(3) == log.entries(49) == [Arrivals(place, 10 + place, 1) for place in range(100)]
    log.enter(3, Arrivals(100, 110, 2))  # a successor lets more into an epoch that was broken off
    assert log.entries(3)[100:] == [Arrivals(100, 110, 2)] and log.given == 112
    log.close()


# -- served ---------------------------------------------------------------------------------------------------


@pytest.mark.system
@pytest.mark.parametrize("workers", [0, 1])
def test_new_samples_enter_the_running_epoch_and_its_length_follows(tmp_path: Path, workers: int) -> None:
    """Those found before the last batch is ordered are in it, once, and `len` says so; the log gives the same again."""
    folder = folder_of(tmp_path, 120)
    grown = tsnb.data.grow(folder, number_in, settle_s=0)
    loader = DataLoader(grown, 4, shuffle=True, num_workers=workers)
    with tsnb.serve(loader, name="g", seed=3, window=2) as producer, tsnb.attach("a", "g") as consumer:
        assert len(consumer) == 30
        taken = []
        for number, batch in enumerate(consumer):
            taken += batch.tolist()
            if number == 3:
                add(folder, *range(120, 128))
                wait_until(lambda: len(grown) == 128)
        assert sorted(taken) == list(range(128)) and len(consumer) == 32
        assert max(taken[:16]) < 120, "what was given before they were there"
        assert producer.status().epoch_batches == 32
        state = consumer.state_dict()
        numbers = [consumer.epoch]
    with tsnb.serve(loader, name="g", seed=3, window=2), tsnb.attach("a", "g") as consumer:
        consumer.load_state_dict({**state, "epoch": 0, "batch": 5, "offset": 0})  # of the epoch that grew
        assert torch.cat(list(consumer)).tolist() == taken[20:]
        numbers.append(consumer.epoch)
        assert sorted(torch.cat(list(consumer)).tolist()) == list(range(128))
        numbers.append(consumer.epoch)
    assert numbers == [0, 0, 1]


@pytest.mark.system
def test_a_folder_that_vanishes_ends_the_epoch_with_its_name_and_comes_back(tmp_path: Path) -> None:
    """The loop gets `LoaderFailed`, the stream stays; once the folder is back, the next epoch is whole."""
    folder = folder_of(tmp_path, 400)
    loader = DataLoader(
        tsnb.data.grow(folder, number_in, settle_s=0, index=tmp_path / "index"), 4, shuffle=True
    )
    with tsnb.serve(loader, name="g", window=2) as producer, tsnb.attach("a", "g") as consumer:
        loop = iter(consumer)
        next(loop)
        folder.rename(tmp_path / "gone")
        with pytest.raises(LoaderFailed, match="incoming"):
            list(loop)
        (tmp_path / "gone").rename(folder)
        growth = growth_in(producer)
        assert growth is not None
        wait_until(lambda: not growth.look_failure)
        assert len(torch.cat(list(consumer))) == 400


@pytest.mark.system
def test_what_does_not_go_with_growth_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """Parts, a cache, a sampler of one's own; and nothing of what was begun stays."""
    grown = tsnb.data.grow(folder_of(tmp_path, 20), number_in, settle_s=0)
    loader = DataLoader(grown, 4, shuffle=True, num_workers=1)
    with pytest.raises(ValueError, match="this dataset grows"):
        tsnb.serve(loader, name="g", cache="8MiB")
    with pytest.raises(ValueError, match="without your own sampler"):
        tsnb.serve(DataLoader(grown, 4, sampler=RandomSampler(grown, replacement=True)), name="g")
    with tsnb.serve(loader, name="g"), pytest.raises(JoinRefused, match="dataset grows"):
        tsnb.attach("a", "g", subset=[1, 2])
    assert not [thread for thread in threading.enumerate() if thread.name == "tsnb-grow"]


@pytest.mark.system
@pytest.mark.parametrize("workers", [0, 1])
def test_a_folder_that_vanishes_with_its_index_is_named_whenever_it_does(
    tmp_path: Path, workers: int
) -> None:
    """The default index lies inside: in the middle of an epoch, between two, and after both the next one is whole."""
    folder, gone = folder_of(tmp_path, 400), tmp_path / "gone"
    loader = DataLoader(tsnb.data.grow(folder, number_in, settle_s=0), 4, shuffle=True, num_workers=workers)
    said = r"The folder '.*incoming' of a growing dataset does not exist. Create it, mount it again"
    with tsnb.serve(loader, name="g", window=2) as producer, tsnb.attach("a", "g") as consumer:
        growth = growth_in(producer)
        assert growth is not None
        loop = iter(consumer)
        next(loop)
        folder.rename(gone)
        with pytest.raises(LoaderFailed, match=said):
            list(loop)
        with pytest.raises(LoaderFailed, match=said):
            list(consumer)
        gone.rename(folder)
        wait_until(lambda: not growth.look_failure)
        assert len(torch.cat(list(consumer))) == 400


@pytest.mark.slow
@pytest.mark.system
def test_a_look_that_fails_while_trials_wait_for_a_round_is_told_everywhere_in_the_same_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the reading, `tsnb status`, `tsnb top`, the magic and the panel's sentence, until a look succeeds."""
    folder, gone = folder_of(tmp_path, 8), tmp_path / "gone"
    loader = DataLoader(tsnb.data.grow(folder, number_in, settle_s=0), 4)
    taken: list[int] = []

    def loop(consumer: tsnb.Consumer) -> None:
        taken.extend(int(n) for batch in consumer for n in batch)

    with tsnb.serve(loader, name="g", window=2), tsnb.attach("a", "g") as consumer:
        loop(consumer)
        tsnb.data.rounds("g", every(2), select="new")
        waiting = threading.Thread(target=loop, args=(consumer,), daemon=True)
        waiting.start()
        wait_until(lambda: not status("g").look_failure and bool(status("g").rounds))
        folder.rename(gone)
        wait_until(lambda: bool(status("g").look_failure))
        said = f"Looking for new samples failed: {status('g').look_failure}"
        assert f"The folder {str(folder)!r} of a growing dataset does not exist" in said
        assert diagnose(status("g"), status("g")).text == said
        assert said in " ".join(streams.status("g").split())
        main(["status", "g"])
        assert said in " ".join(capsys.readouterr().out.split())
        main(["top", "g", "--once"])
        shown = capsys.readouterr().out
        assert "Looking for new samples failed: The folder" in " ".join(shown.split()), shown
        gone.rename(folder)
        wait_until(lambda: not status("g").look_failure)
        assert "not found" not in streams.status("g")
        add(folder, 8, 9)
        waiting.join(HANG_S)
        assert taken == list(range(10))
        tsnb.data.rounds("g", None)


class Wrapped(Dataset[Any]):
    """A wrapper of the user's."""

    def __init__(self, inner: Any) -> None:
        self.names, self.rows = [str(i) for i in range(2000)], list(range(2000))
        self.parts = {"train": [inner]}

    def __len__(self) -> int:
        return len(self.parts["train"][0])

    def __getitem__(self, index: int) -> Any:
        return self.parts["train"][0][index]


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "Subset": lambda grown: Subset(grown, range(8)),
    "ConcatDataset": lambda grown: ConcatDataset([TensorDataset(torch.zeros(2)), grown]),
    "Cached": tsnb.data.cache,
    "Wrapped": Wrapped,
    "nested": lambda grown: Subset(Wrapped(ConcatDataset([grown])), range(4)),
}


@pytest.mark.system
@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize(
    "options", [{}, {"cache": "8MiB"}, {"engine": "local"}], ids=["plain", "cache", "engine"]
)
def test_a_wrapper_around_a_data_set_that_grows_is_refused_as_it_would_never_grow(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    """It is named, and so is the way out; no thread and no name stays."""
    wrapped = WRAPPERS[name](tsnb.data.grow(folder_of(tmp_path, 8), number_in, settle_s=0))
    with pytest.raises(ValueError, match=rf"inside a {'Subset' if name == 'nested' else name}, .*parse="):
        tsnb.serve(DataLoader(wrapped, 4, num_workers=1), name="g", **options)
    with pytest.raises(ProducerNotFound):
        status("g")


@pytest.mark.system
def test_an_empty_folder_says_to_wait_for_its_first_samples(tmp_path: Path) -> None:
    """When it is served, and nothing is said of samplers."""
    folder = folder_of(tmp_path, 0)
    grown = tsnb.data.grow(folder, number_in, settle_s=0)
    with pytest.raises(TsnbError, match=r"has no sample yet. Wait for the first .*\.wait\(1\)"):
        tsnb.serve(DataLoader(grown, 4), name="g")
    add(folder, 1)
    with tsnb.serve(DataLoader(grown, 4), name="g"):  # one that has come since counts
        pass


def fill(what: str) -> None:
    """Say what is said in a process whose files may not grow; called in a child."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    listed = [str(number) for number in range(30)]
    directory = os.environ["INDEX"]
    grown = tsnb.data.grow(lambda: listed, int, index=directory)
    growth = growth_of(DataLoader(grown, 2), "s", 5)
    assert growth is not None
    size = {
        "index": Path(directory, "samples").stat().st_size,
        "log": growth.log._path.stat().st_size,
        "first": 0,
        "rounds": 10,
    }[what]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    try:
        if what == "index":
            listed += [str(number) for number in range(30, 60)]
            grown.refresh()
        elif what == "log":
            growth.begin(0)
        elif what == "rounds":
            growth.set_rounds(every(5), "new")
        else:
            tsnb.data.grow(lambda: listed, int, index=f"{directory}-2")
    except TsnbError as error:
        print(f"{error}")


@pytest.mark.slow
@pytest.mark.parametrize("what", ["index", "log", "first", "rounds"])
def test_a_full_disk_under_an_index_is_named_with_the_way_out(tmp_path: Path, what: str) -> None:
    """The samples, the log of epochs, a first index, what rounds there are; what was whole before stays so."""
    code = f"from tests.growing.test_growing import fill; fill({what!r})"
    words = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "INDEX": str(tmp_path / "index")},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert str(tmp_path / "index") in words.stdout, words.stderr
    assert "`ulimit -f`" in words.stdout and "ree some space" not in words.stdout
    again = tsnb.data.grow(lambda: [str(number) for number in range(60)], int, index=tmp_path / "index")
    assert [again[i] for i in range(60)] == list(range(60))


def test_an_index_that_other_users_could_change_is_refused(tmp_path: Path) -> None:
    """A link there would have the index written into another file of this user's."""
    folder = folder_of(tmp_path, 3)
    private = tmp_path / "private"
    private.mkdir()
    (folder / ".tsnb-index").symlink_to(private)
    with pytest.raises(TsnbError, match=r"other users could change it: .* Pass your own directory as index="):
        tsnb.data.grow(folder, number_in, settle_s=0)
    assert not list(private.iterdir())
    (folder / ".tsnb-index").unlink()
    folder.chmod(0o777)
    with pytest.raises(TsnbError, match=r"can be written by other users"):
        tsnb.data.grow(folder, number_in, settle_s=0)
    grown = tsnb.data.grow(folder, number_in, settle_s=0, index=tmp_path / "index")
    assert len(grown) == 3
    assert (tmp_path / "index").stat().st_mode & 0o777 == 0o700


# -- a folder that others write to ------------------------------------------------------------------------------


@two_users
@pytest.mark.timeout(120)
def test_what_another_user_puts_into_a_shared_folder_ends_no_stream(tmp_path: Path, caplog: Any) -> None:
    """What one may not read, pipes, links that loop, multiply or lead nowhere, and names thousands deep."""
    folder = reachable(tmp_path) / "incoming"
    folder.mkdir()
    folder.chmod(0o777)
    add(folder, 0, 1)
    does(THEIRS, folder)
    (tmp_path / "mine").mkdir(mode=0o700)
    os.chown(tmp_path / "mine", 4711, 4711)
    os.setegid(4711)
    os.seteuid(4711)  # root may read everything
    try:
        grown = tsnb.data.grow(
            folder, lambda path: Path(path).read_text(), settle_s=0, index=tmp_path / "mine"
        )
        found = [grown[number] for number in range(len(grown))]
        assert grown.refresh() == len(found)
    finally:
        os.seteuid(0)
        os.setegid(0)
        subprocess.run(["rm", "-rf", folder / "d"], check=True)  # too deep for pytest
    theirs = found.count("theirs")
    assert sorted(found) == ["0", "1", *["theirs"] * theirs]
    assert 2 < theirs <= ALIKE + 2, "itself, own.txt, and through links"
    for word in ("you may not read it", "it is a link to a folder", "more than 8 links", "name too long"):
        assert caplog.text.lower().count(word) == 1, caplog.text


THEIRS = """
os.chdir(sys.argv[1])
os.mkdir("closed", 0o700); open("closed/1.txt", "w").write("closed")
open("closed.txt", "w").write("closed"); os.chmod("closed.txt", 0o600)
os.mkfifo("pipe.txt")
os.symlink("loop", "loop"); os.symlink("/nowhere", "gone"); os.symlink("closed", "into")
os.symlink("/dev/zero", "endless.txt")
os.mkdir("around"); os.symlink(".", "around/again")
os.mkdir("last"); open("last/1.txt", "w").write("theirs")
for number in range(40):
    os.mkdir(f"twice{number}")
    for name in "ab":
        os.symlink(f"../twice{number + 1}" if number < 39 else "../last", f"twice{number}/{name}")
os.symlink("last/1.txt", "own.txt")
for number in range(3000):
    os.mkdir("d"); os.chdir("d")
"""


@two_users
def test_a_private_file_becomes_no_sample_by_a_link_of_another_user(tmp_path: Path, caplog: Any) -> None:
    """Neither at first, nor where a sample's file or folder is exchanged for a link; one's own links count."""
    folder = folder_of(reachable(tmp_path), 2)
    folder.chmod(0o777)
    private = tmp_path / "private"
    private.mkdir()
    (private / "7.txt").write_text("7")
    (folder / "mine").symlink_to(private)
    does("os.symlink(sys.argv[2], sys.argv[1] + '/file.txt')", folder, private / "7.txt")
    does("os.symlink(sys.argv[2], sys.argv[1] + '/folder')", folder, private)
    does("os.mkdir(sys.argv[1]); open(sys.argv[1] + '/7.txt', 'w').write('8')", folder / "theirs")
    grown = tsnb.data.grow(folder, number_in, settle_s=0, index=tmp_path / "index")
    assert sorted(grown[number] for number in range(len(grown))) == [0, 1, 7, 8]
    assert caplog.text.count("is another user's link") == 1
    does("os.remove(sys.argv[1] + '/7.txt'); os.rmdir(sys.argv[1]); os.symlink(sys.argv[2], sys.argv[1])",
         folder / "theirs", private)  # fmt: skip
    read = []
    for number in range(4):
        with contextlib.suppress(TsnbError):
            read.append(grown[number])
    assert sorted(read) == [0, 1, 7]


@two_users
def test_another_users_link_on_the_way_to_the_source_is_not_followed(tmp_path: Path) -> None:
    """The folder or file itself, one above it, and behind one's own link: at first, and exchanged later."""
    private, theirs = folder_of(reachable(tmp_path), 2), given_them(tmp_path / "theirs")
    (private / "lines").write_text("mine\n")
    does("os.symlink(sys.argv[2], sys.argv[1] + '/data')", theirs, private)
    does("os.symlink(sys.argv[2], sys.argv[1] + '/lines')", theirs, private / "lines")
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("data", "lines"):
        (mine / name).symlink_to(theirs / name)
    (private / "below").mkdir()
    index = tmp_path / "index"
    for source in (theirs / "data", theirs / "data" / "below", theirs / "lines", mine / "data", mine / "lines",
                   mine / ".." / "theirs" / "lines"):  # fmt: skip
        with pytest.raises(
            TsnbError, match=r"theirs/(data|lines) is another user's link.*pass the path"
        ) as told:
            tsnb.data.grow(source, bytes, settle_s=0, index=index)
        assert str(told.value).endswith(f"{source.resolve()}.")
    assert not index.exists() and not (private / ".tsnb-index").exists()
    makes = "os.mkdir(sys.argv[1] + '/own'); open(sys.argv[1] + '/own/7.txt', 'w').write('7')"
    does(f"{makes}; open(sys.argv[1] + '/own.lines', 'w').write('hers\\n')", theirs)
    does("os.symlink('own', sys.argv[1] + '/to'); os.symlink('own.lines', sys.argv[1] + '/to.lines')", theirs)
    folder = tsnb.data.grow(theirs / "to", number_in, settle_s=0, index=index)
    lines = tsnb.data.grow(theirs / "to.lines", bytes, index=tmp_path / "other")
    assert (folder[0], lines[0]) == (7, b"hers")
    swaps = "[(os.remove(at), os.symlink(to, at)) for at, to in (sys.argv[1:3], sys.argv[3:5])]"
    does(swaps, theirs / "to", private, theirs / "to.lines", private / "lines")
    for grown in (folder, lines):
        for look in (grown.refresh, lambda grown=grown: grown[0]):
            with pytest.raises(TsnbError, match="is another user's link"):
                look()


@two_users
def test_another_users_link_behind_ones_own_becomes_no_sample(tmp_path: Path, caplog: Any) -> None:
    """One's own link in the folder leads to another user's, and that to a private file: at first, or later."""
    folder, theirs = folder_of(reachable(tmp_path), 1), given_them(tmp_path / "theirs")
    (tmp_path / "private.txt").write_text("9")
    does("os.symlink(sys.argv[2], sys.argv[1] + '/a')", theirs, tmp_path / "private.txt")
    does("open(sys.argv[1] + '/b', 'w').write('8')", theirs)
    (folder / "a.txt").symlink_to(theirs / "a")
    (folder / "b.txt").symlink_to(theirs / "b")
    grown = tsnb.data.grow(folder, number_in, settle_s=0, index=tmp_path / "index")
    assert sorted(grown[number] for number in range(len(grown))) == [0, 8]
    assert caplog.text.count("is another user's link") == 1
    does(
        "os.remove(sys.argv[1] + '/b'); os.symlink(sys.argv[2], sys.argv[1] + '/b')",
        theirs,
        tmp_path / "private.txt",
    )
    read = []
    for number in range(2):
        with contextlib.suppress(TsnbError):
            read.append(grown[number])
    assert read == [0]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["samples", "keys", "log", "rounds"])
@pytest.mark.parametrize("kind", ["link", "hard", "pipe"])
def test_an_index_out_of_an_archive_leads_to_no_other_file(tmp_path: Path, name: str, kind: str) -> None:
    """A data set that somebody packed has a `.tsnb-index` with a link, or a pipe, in place of one of its files."""
    folder = folder_of(tmp_path, 3)
    victim = tmp_path / "victim"

    def used() -> None:
        grown = tsnb.data.grow(folder, number_in, settle_s=0)
        assert [grown[number] for number in range(3)] == [0, 1, 2]
        log = GrowthLog(grown.directory, "x", "", 1)
        try:
            log.rounds = "a"
            assert log.rounds == "a"
        finally:
            log.close()

    used()
    index = folder / ".tsnb-index"
    (path,) = index.glob({"log": "*.log", "rounds": "*.rounds"}.get(name, name))
    victim.write_bytes(before := path.read_bytes())
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(victim)
    else:
        path.hardlink_to(victim)
    add(folder, 3)
    if name == "rounds":
        used()  # it is put in the place of whatever is there
    else:
        with pytest.raises(TsnbError, match=re.escape(str(path))):
            used()
    assert victim.read_bytes() == before


# -- rounds ---------------------------------------------------------------------------------------------------


def test_triggers_say_when_a_round_begins() -> None:
    """Each of its own accord, several as soon as one does; what was written down is read back."""
    since = Standing(100, 50.0)
    assert not every(20).reason(since, Standing(119, 1e9)) and every(20).reason(since, Standing(120, 0.0))
    assert not interval("1min").reason(since, Standing(999, 109.9)) and interval("1min").reason(
        since, Standing(0, 110.0)
    )
    assert [interval(t).after_s for t in (5, "90s", "30min", "1.5h", "2d")] == [5, 90, 1800, 5400, 172800]
    either = every(20) | interval(60) | worse("val_loss", min_delta=0.5)
    assert Trigger.from_text(either.to_text()) == either
    assert either.reason(since, Standing(120, 0.0)) and either.reason(since, Standing(0, 110.0))
    assert either.words == "every 20 new samples or after 60 s or val_loss worse by 0.5"
    for said in (
        "",
        "[]",
        "[1, 2]",
        "[-1, 0, []]",
        '[0, 0, [["a", "up", 1]]]',
        "[1e999, 0, []]",
        "[" * 100_000,
    ):
        with pytest.raises(ValueError, match="not a trigger"):
            Trigger.from_text(said)


def test_a_number_is_worse_than_its_best_of_the_same_trial() -> None:
    """Down for a loss, up for an accuracy; the first value is only compared with; nothing given yet is bad enough."""
    for trigger, values in (
        (worse("val_loss", min_delta=0.02), (0.5, 0.4, 0.41, 0.43)),
        (worse("score", min_delta=0.02, mode="max"), (0.5, 0.6, 0.59, 0.57)),
    ):
        name, since = trigger.worse[0][0], Standing(100, 0.0)
        fired = []
        for value in values:
            now = Standing(100, 0.0, {("a", name): value, ("b", name): 9.0, ("a", "other"): value * 100})
            fired.append(bool(trigger.reason(since, now)))
            since = since.better(trigger, now)
        assert fired == [False, False, False, True]
        assert trigger.reason(Standing(0, 0.0), Standing(1, 0.0))


@pytest.mark.parametrize(
    ("select", "first"), [("new", 70), ("all", 0), ("recent:40", 60), ("recent:5000", 0)]
)
def test_a_selection_is_the_samples_that_it_says(select: str, first: int) -> None:
    """In the order in which they were found."""
    selection = read_select(select)
    assert (selection.first(100, 70), selection.size(100, 70)) == (first, 100 - first)


def test_rounds_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    """Each with what to write instead, and before a stream is looked for."""
    for said in (0, -1, 2.5, True, "2000"):
        with pytest.raises(ValueError, match=r"tsnb\.data\.every\(2000\)"):
            tsnb.data.every(said)  # type: ignore[arg-type]
    for said in (0, "", "h", "soon", "-1h", "nan", "inf", True):
        with pytest.raises(ValueError, match="30min"):
            tsnb.data.interval(said)
    for by in (0, -1, float("nan"), float("inf"), "0.1", True):
        with pytest.raises(ValueError, match="above 0"):
            tsnb.data.worse("val_loss", by)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot tell whether"):
        tsnb.data.worse("val", 0.02)
    for select in (
        *("newest", "recent", "recent:0", "recent:-1", "new:3", "", 7, None),
        *("hard", "hard:0", "hard:1.5", "hard:nan", "hard:much", "hard:0.3:", "hard:0.3:a b", "hard:0.3:a:b"),
    ):
        with pytest.raises(ValueError, match='Pass "new"'):
            tsnb.data.rounds("s", tsnb.data.every(3), select)  # type: ignore[arg-type]
    for trigger in (3, "1h", Trigger()):
        with pytest.raises(ValueError, match="to end the rounds"):
            tsnb.data.rounds("s", trigger)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        tsnb.data.every(3) | 5  # type: ignore[operator]
    with pytest.raises(ProducerNotFound):
        tsnb.data.rounds("s", tsnb.data.every(3))


@given(
    st.integers(1, 30),
    st.lists(
        st.tuples(st.sampled_from(["new", "new", "all", "recent:7"]), st.integers(0, 20), st.booleans()),
        max_size=8,
    ),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_rounds_are_given_again_as_they_were_and_new_samples_come_in_one_round(
    begin_with: int, moments: list[tuple[str, int, bool]], drop_last: bool
) -> None:
    """Samples that come during a round are new for the next; a killed producer's successor gives the same round."""
    with TemporaryDirectory() as directory:
        stage = Stage(directory, begin_with, 4, drop_last)
        growth = stage.producer()
        fresh = 0
        for select, arriving, killed in moments:
            growth.set_rounds(every(1), select)
            if killed:
                growth = stage.producer()
                assert growth.in_words == f"{select}, every 1 new samples"
            stage.listed += [str(len(stage.listed) + i) for i in range(arriving)]
            growth._dataset.refresh()
            known, epoch = growth.found, growth.first_epoch
            wanted = {
                "new": range(fresh, known),
                "all": range(known),
                "recent:7": range(max(0, known - 7), known),
            }[select]
            due = known > fresh and len(wanted) >= (4 if drop_last else 1)
            assert growth.round_due({}) == due
            if not due:
                continue
            stage.order(epoch, 0, 1, [3])  # three more arrive in its middle
            if killed:
                growth = stage.producer()
                assert growth.first_epoch == epoch + 1
            stage.order(epoch, 1, 1 << 30, [])
            taken = [i for batch in stage.ordered[epoch] for i in batch]
            assert len(taken) == len(set(taken)) == len(wanted) - (len(wanted) % 4 if drop_last else 0)
            assert set(taken) <= set(wanted)
            fresh = known
        assert stage.growth is not None
        stage.growth.close()


@pytest.mark.system
def test_trials_wait_for_a_round_and_all_of_them_get_it_once(tmp_path: Path) -> None:
    """It begins when its trigger says so; a stream that is served again still has rounds, and its samples stay new."""
    folder = folder_of(tmp_path, 40)
    loader = DataLoader(tsnb.data.grow(folder, number_in, settle_s=0), 4, shuffle=True, num_workers=1)
    taken: dict[str, list[list[int]]] = {"a": [], "b": []}

    together = threading.Barrier(len(taken))

    def train(name: str, consumer: tsnb.Consumer, rounds: int) -> None:
        with consumer:
            for number in range(rounds):
                epoch: list[int] = []
                for batch in consumer:
                    if not (number or epoch):
                        together.wait(HANG_S)  # one that begins later than the band reaches waits
                    epoch += batch.tolist()
                taken[name].append(epoch)

    def begin(rounds: int) -> list[threading.Thread]:
        there = {name: tsnb.attach(name, "g") for name in taken}
        threads = [threading.Thread(target=train, args=(name, it, rounds)) for name, it in there.items()]
        for thread in threads:
            thread.start()
        return threads

    with tsnb.serve(loader, name="g", seed=3, window=2, late_join=1.0, stall_timeout_s=60) as producer:
        assert producer.status().rounds == ""
        tsnb.data.rounds("g", tsnb.data.every(10), "new")
        assert (producer.status().rounds, producer.status().found) == ("new, every 10 new samples", 40)
        threads = begin(2)  # the epoch that had begun before, and a round
        wait_until(lambda: all(len(epochs) == 1 for epochs in taken.values()))
        add(folder, *range(40, 49))
        wait_until(lambda: producer.status().found == 49)
        assert all(len(epochs) == 1 for epochs in taken.values())
        add(folder, 49)
        for thread in threads:
            thread.join(HANG_S)
        add(folder, *range(50, 55))
        wait_until(lambda: producer.status().found == 55)
    with tsnb.serve(loader, name="g", seed=3, window=2, late_join=1.0, stall_timeout_s=60) as producer:
        assert producer.status().rounds == "new, every 10 new samples"
        threads = begin(2)
        add(folder, *range(55, 60))
        wait_until(lambda: all(len(epochs) == 3 for epochs in taken.values()))
        tsnb.data.rounds("g", None)
        for thread in threads:
            thread.join(HANG_S)
    assert taken["a"] == taken["b"]
    assert [sorted(epoch) for epoch in taken["a"]] == [
        list(range(40)),
        list(range(40, 50)),
        list(range(50, 60)),
        list(range(60)),
    ]


@pytest.mark.system
def test_a_stream_ends_while_it_looks_for_new_samples(tmp_path: Path) -> None:
    """Its last look wants the stream's lock, and the end of the stream wants that look to be over."""
    looking, ends, stopped = threading.Event(), threading.Event(), threading.Event()

    def listed() -> list[str]:
        if threading.current_thread().name == "tsnb-grow":
            looking.set()
            ends.wait(HANG_S)
        return ["0", "1"]

    producer = tsnb.serve(DataLoader(tsnb.data.grow(listed, int, index=tmp_path), 1), name="g")
    devices = producer.core.devices
    close = devices.close

    def close_and_go_on() -> None:  # while the lock is held
        close()
        ends.set()

    devices.close = close_and_go_on  # type: ignore[method-assign]
    assert looking.wait(HANG_S)

    def end() -> None:
        producer.stop()
        stopped.set()

    threading.Thread(target=end, daemon=True).start()
    assert stopped.wait(HANG_S), "each waits for the other"


@pytest.mark.system
def test_one_number_that_a_trial_logs_begins_no_further_round(tmp_path: Path) -> None:
    """The first begins at once; a number that is not worse than one before begins none."""
    folder = folder_of(tmp_path, 12)
    loader = DataLoader(tsnb.data.grow(folder, number_in, settle_s=0), 4, shuffle=True)
    with tsnb.serve(loader, name="g", window=2) as producer, tsnb.attach("a", "g") as consumer:
        tsnb.data.rounds("g", tsnb.data.worse("val_loss", min_delta=0.1), "all")
        losses = iter([0.5, 0.45, 0.7, 0.69])
        rounds = 0

        def train() -> None:
            nonlocal rounds
            for loss in losses:
                rounds += sum(1 for _ in consumer) > 0
                tsnb.log(val_loss=loss)

        thread = threading.Thread(target=train)
        thread.start()
        wait_until(lambda: rounds == 1 and any("val_loss" in c.metrics for c in producer.status().consumers))
        growth = growth_in(producer)
        assert growth is not None
        wait_until(lambda: ("a", "val_loss") in growth._since.metrics)
        assert rounds == 1, "one number alone is not worse"
        tsnb.data.rounds("g", None)
        thread.join(HANG_S)
        assert rounds == 4


@pytest.mark.system
def test_rounds_of_a_stream_that_does_not_grow_are_refused() -> None:
    """With the way out."""
    with (
        tsnb.serve(DataLoader(TensorDataset(torch.arange(8)), 4), name="g"),
        pytest.raises(TsnbError, match=r"does not grow.*tsnb\.data\.grow"),
    ):
        tsnb.data.rounds("g", tsnb.data.every(3))


@pytest.mark.slow
@pytest.mark.system
def test_the_command_and_the_magic_set_and_end_rounds_as_the_function_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each says what is so then, in the words of status; without options nothing changes."""
    loader = DataLoader(tsnb.data.grow(folder_of(tmp_path, 12), number_in, settle_s=0), 4, shuffle=True)

    def told(*words: str) -> str:
        assert main(words) == 0
        return capsys.readouterr().out.strip()

    def magic(line: str) -> str:
        return streams.rounds(parse(line, "%tensorsocket", TENSORSOCKET)[1])

    with tsnb.serve(loader, name="g", window=2) as producer:
        nothing = "g: 12 samples found; no rounds"
        assert told("rounds", "g") == magic("rounds g") == nothing
        often = "12 samples found; rounds: recent:5, every 2,000 new samples or after 3600 s"
        assert told("rounds", "--every", "2000", "--interval", "1h", "--select", "recent:5") == f"g: {often}"
        assert magic("rounds g") == f"g: {often}"
        assert often in told("status", "g") and often in streams.status("g")
        assert often in " ".join(told("top", "g", "--once").split())
        words = 'rounds g --worse val_loss=0.02 --worse "top 5=1:max" --select all'
        assert magic(words) == "g: 12 samples found; rounds: all, val_loss worse by 0.02 or top 5 worse by 1"
        reading = producer.status()
        assert json.loads(told("rounds", "g", "--json")) == {
            "name": "g",
            "found": reading.found,
            "rounds": reading.rounds,
        }
        assert told("rounds", "g", "--off") == nothing == magic("rounds g --off")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--select all", "needs a trigger"),
        ("--every 3 --off", "leave out --off"),
        ("--off --select new", "leave out --off"),
        ("--every many", r"tsnb\.data\.every\(2000\)"),
        ("--every 0", r"tsnb\.data\.every\(2000\)"),
        ("--interval soon", "30min"),
        ("--worse val_loss", "--worse val_loss=0.02"),
        ("--worse val_loss=much", "--worse val_loss=0.02"),
        ("--worse val_loss=-1", "above 0"),
        ("--worse val_loss=1:up", "min"),
        ("--worse thing=0.1", "--worse thing=0.1:max"),
        ("--every 3 --select newest", 'Pass "new"'),
        ("--every 3", "No stream named 'g'"),
    ],
)
def test_rounds_typed_wrongly_say_what_to_type(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the words of what was typed, and without a stream; the magic and the command alike."""
    assert main(["rounds", "g", *words.split()]) == 1
    assert re.search(message, capsys.readouterr().err)
    with pytest.raises((ValueError, TsnbError), match=message):
        streams.rounds(parse(f"rounds g {words}", "%tensorsocket", TENSORSOCKET)[1])
