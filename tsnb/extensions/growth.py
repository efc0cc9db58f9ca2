"""A stream over a data set that grows: looks for new samples, and lets them into the epochs.

    thread `tsnb-grow`     looks into the folder, four times a second        Growth.count
                           unless that takes long, and for triggers
    loading thread         GrowingBatches, in place of the batch sampler: before each batch that it orders, what was
                           found since enters the rest of the epoch          GrowthLog, EpochOrder

An epoch takes at most as many new samples as it began with, and none once its last batch is ordered: so each epoch
ends, however fast the data grows, and what came after enters the next.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from tsnb.errors import TsnbError
from tsnb.growing.grown import Grown, grown_inside
from tsnb.growing.inclusion import Selected, balanced, hard
from tsnb.growing.labels import STEP
from tsnb.growing.log import BY_FILE, OVER, GrowthLog
from tsnb.growing.losses import KeptLosses, SampleLosses
from tsnb.growing.news import GrowthNews
from tsnb.growing.order import Arrivals, EpochOrder
from tsnb.growing.selection import Selection, Standing, Trigger, check_select, in_words, read_select
from tsnb.stream.producer.failures import message_of
from tsnb.text.masks import masked_text

__all__ = ["GrowingBatches", "Growth", "growth_of", "refuse_wrapped"]

LOOK_S = 0.25
"""How often new samples are looked for, where that takes no time, and triggers for a round."""
SHARE = 0.05
"""Of the time that looks may take: a folder is listed whole each time, 28 ms with 10,000 files."""

BACK_S = 10.0
"""So long after a producer's start, trials that reported to the one before count as attached: they are on their way."""


def growth_of(loader: Any, name: str, seed: int | None) -> Growth | None:
    """Return what lets new samples into the epochs of a loader; None if its data set does not grow.

    Args:
        loader: The loader to serve.
        name: The stream's.
        seed: As `tsnb.serve`.

    Raises:
        ValueError: It orders its samples itself, or wraps the data set that grows.
        TsnbError: The log cannot be kept, the folder has gone, or nothing is in it yet.
    """
    refuse_wrapped(loader)
    if not isinstance(loader, DataLoader) or not isinstance(loader.dataset, Grown):
        return None
    if not loader.dataset.refresh():
        raise TsnbError(
            f"The dataset of {loader.dataset.words} has no sample yet. Wait for the first with data = "
            "tsnb.data.grow(...), data.wait(1) before you create and serve the DataLoader."
        )
    sampler = getattr(loader, "sampler", None)
    shuffle = type(sampler) is RandomSampler and not sampler.replacement
    if type(loader.batch_sampler) is not BatchSampler or not (shuffle or type(sampler) is SequentialSampler):
        raise ValueError(
            "The stream sets the order of a growing dataset, so that new samples can enter. Give its "
            "DataLoader batch_size= and shuffle=True or False, without your own sampler or "
            "batch_sampler."
        )
    facts = f"batch_size={loader.batch_size} shuffle={shuffle} drop_last={loader.drop_last}"
    log = GrowthLog(loader.dataset.directory, name, facts, seed)
    return Growth(loader.dataset, log, loader.batch_size or 1, shuffle=shuffle, drop_last=loader.drop_last)


def refuse_wrapped(loader: Any) -> None:
    """Refuse a loader that would go on with the samples that there were when it was made.

    Raises:
        ValueError: A data set that grows is inside another one.
    """
    if (found := grown_inside(loader)) is not None:
        outer, grown = found
        raise ValueError(
            f"The dataset that grows from {grown.words} is inside a {type(outer).__name__}, which "
            "would keep the samples of this moment. Give the DataLoader the result of tsnb.data.grow, "
            "and process samples in parse=."
        )


def _read_rounds(text: str) -> tuple[Trigger, str]:
    """Return what a log says about rounds."""
    if not text:
        return Trigger(), "new"
    trigger, select = json.loads(text)
    return Trigger.from_text(trigger), check_select(select)


class Growth:
    """New samples of one stream.

    Args:
        dataset: What grows.
        log: What entered where.
        batch_size: Samples in a batch.
        shuffle: As `EpochOrder`.
        drop_last: As `EpochOrder`.

    Attributes:
        losses: What trials report of its samples.
        news: What is told of rounds and of samples that enter.
    """

    def __init__(
        self, dataset: Grown, log: GrowthLog, batch_size: int, *, shuffle: bool, drop_last: bool
    ) -> None:
        self._dataset = dataset
        self._shuffle = shuffle
        self._drop_last = drop_last
        self._batch_size = batch_size
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._told: Callable[[], None] = lambda: None
        self._watch = threading.Thread(target=self._look, name="tsnb-grow", daemon=True)
        self._selected: Selected | None = None  # of the epoch that was begun last; None: its weights are 1
        self._rounds = threading.Lock()  # guards what follows
        self._trigger, self._select = _read_rounds(log.rounds)
        self._since = Standing(log.given, time.monotonic() - log.age_s)
        self._reason = ""  # why the next round begins
        self._logged: Mapping[tuple[str, str], float] = {}
        self._attached: Collection[str] = ()
        self.log = log
        self._kept = KeptLosses(log.losses, dataset.identity)
        known = self._kept.read()
        self._back = (frozenset(known), time.monotonic() + BACK_S)
        self.losses = SampleLosses(dataset.__len__, known)
        self.news = GrowthNews()

    @property
    def order(self) -> str:
        """The identity of the order in which epochs come: equal for the same data and the same log only."""
        return f"grown {self._dataset.identity} {self.log.identity} seed={self.log.seed}"

    @property
    def seed(self) -> int:
        """Of its order and of the workers' random numbers: the one of its log."""
        return self.log.seed

    def batches(self) -> GrowingBatches:
        """Return what orders its batches."""
        return GrowingBatches(self)

    @property
    def first_epoch(self) -> int:
        """The number of the first epoch that no producer of this log has begun."""
        return self.log.next_epoch

    def start(self, look: Callable[[], None]) -> None:
        """Look for new samples from now on.

        Args:
            look: Called after each look.
        """
        self._told = look
        self._watch.start()

    def close(self) -> None:
        """Stop looking."""
        self._ended.set()
        if self._watch.is_alive():
            self._watch.join()
        self._keep_losses()
        self.log.close()

    def _keep_losses(self) -> None:
        if (losses := self.losses.changes(anyway=self._kept.failed)) is not None:
            self._kept.save(losses)

    def _look(self) -> None:
        next_s = 0.0
        while not self._ended.wait(LOOK_S):
            began_s = time.monotonic()
            if began_s >= next_s:
                self._refresh()
                next_s = began_s + (time.monotonic() - began_s) / SHARE
            self.news.look()
            if self._kept.due:
                self._keep_losses()
            self._told()

    def _refresh(self) -> None:
        try:
            self._ask_classes(self._dataset.refresh())
        except Exception as error:  # noqa: BLE001  # of the user's listing too: the loading thread raises it
            self._error = error
        else:
            self._error = None

    def _ask_classes(self, samples: int) -> None:
        """Have the class of each sample known, where rounds balance them, before a round is chosen."""
        labels = self._dataset.labels
        if labels is not None and read_select(self._select).word == "balanced":
            while labels.known < samples and not self._ended.is_set():
                labels.of(min(samples, labels.known + STEP))

    @property
    def look_failure(self) -> str:
        """Why the last look for new samples failed, in one line; empty where it did not."""
        return "" if self._error is None else masked_text(message_of(self._error))

    @property
    def found(self) -> int:
        """Samples that have been found."""
        return len(self._dataset)

    @property
    def in_words(self) -> str:
        """What its rounds are; empty where epochs follow each other."""
        return in_words(self._trigger, self._select)

    def set_rounds(self, trigger: Trigger, select: str) -> None:
        """Select the samples of each epoch that begins from now on.

        Args:
            trigger: When one begins; one that never fires: epochs have all samples, as before.
            select: As `selection.check_select`.

        Raises:
            TsnbError: That cannot be written down: a full disk.
        """
        with self._rounds:
            self.log.rounds = json.dumps([trigger.to_text(), select])
            self._trigger, self._select = trigger, select
            self._since = Standing(self.log.given, time.monotonic())

    def round_due(self, logged: Mapping[tuple[str, str], float], attached: Collection[str] = ()) -> bool:
        """Whether a round should begin: its trigger says so, and there is something to select.

        Args:
            logged: The last numbers that trials logged, by trial and name.
            attached: Names of the trials that are attached.
        """
        with self._rounds:
            self._logged, self._attached = logged, attached
            now = Standing(self.found, time.monotonic(), logged)
            self._reason = self._trigger.reason(self._since, now)
            due = bool(self._reason)
            self._since = self._since.better(self._trigger, now)
            enough = self._batch_size if self._drop_last else 1
            selection = read_select(self._select)
            if selection.word != "balanced":
                return due and selection.size(now.samples, self.log.given) >= enough
            labels = self._dataset.labels
            if labels is None or self._error is not None:
                return due  # choosing raises what is wrong
            classes = labels.counts(now.samples).tolist()
            return due and labels.known >= now.samples and selection.size(now.samples, 0, classes) >= enough

    def why_not(self, select: str) -> str:
        """Return why rounds cannot have such samples; empty where they can."""
        if read_select(select).word == "balanced" and self._dataset.labels is None:
            return (
                f"select={select!r} needs the class of each sample. Pass label= to tsnb.data.grow, a "
                "function that returns it"
            )
        return ""

    def _choose(self, epoch: int, samples: int) -> None:
        """Begin an epoch that has not begun before: a round, where epochs are rounds."""
        before = self.log.given
        if not self.in_words:
            self.log.begin(epoch, samples)
            if 0 < before < samples:
                self.news.enter(epoch, samples - before)
            return
        select = self._select
        selection = read_select(select)
        if selection.weighs:  # not under the lock: a million samples take a moment
            drawn = self._drawn(selection, epoch, samples)
            self.log.keep_selected(epoch, drawn)
            self.log.begin(epoch, samples, BY_FILE)
            size = len(drawn.samples)
        else:
            self.log.begin(epoch, samples, first := selection.first(samples, before))
            size = samples - first
        with self._rounds:
            self.news.begin_round(epoch, size, select, self._reason)
            self._reason = ""
            self._since = Standing(samples, time.monotonic()).better(
                self._trigger, Standing(samples, 0.0, self._logged)
            )

    def _drawn(self, selection: Selection, epoch: int, samples: int) -> Selected:
        """Return the samples of a round in which some are likelier than others.

        Raises:
            TsnbError: Classes are to be balanced, and there are none.
        """
        if selection.word == "balanced":
            if self._dataset.labels is None:
                raise TsnbError(
                    f"{self.why_not(selection.word)}, or choose other rounds with tsnb.data.rounds."
                )
            labels = self._dataset.labels.of(samples)
            return balanced(labels, int(selection.number) or None, self.log.seed, epoch)
        former, until_s = self._back
        self.losses.keep({*self._attached, selection.trial, *(former if time.monotonic() < until_s else ())})
        losses = self.losses.mean(samples, selection.trial)
        return hard(losses, selection.size(samples, self.log.given), self.log.seed, epoch)

    def weights_of(self, samples: Sequence[int]) -> bytes:
        """Return the weights of a batch's samples, as `protocol.messages.Drawn`; empty where all are 1.

        Args:
            samples: Of the epoch that was begun last.
        """
        if self._selected is None:
            return b""
        known, weights = self._selected
        found: bytes = weights[np.searchsorted(known, np.asarray(samples))].astype("<f4").tobytes()
        return found

    @property
    def count(self) -> int:
        """Samples that have been found.

        Raises:
            Exception: The last look failed.
        """
        if self._error is not None:
            raise self._error
        return len(self._dataset)

    def begin(self, epoch: int) -> EpochOrder:
        """Return the order of an epoch that begins, or begins again, with all that has entered it so far.

        Raises:
            TsnbError: The folder has gone, or the disk is full.
        """
        samples = self._dataset.refresh()
        if not self.log.begun(epoch):
            with self._dataset.source_first():
                self._choose(epoch, samples)
        selected = self._selected = self.log.selected(epoch)
        order = EpochOrder(
            np.arange(self.log.first(epoch), self.log.samples(epoch), dtype=np.int64)
            if selected is None
            else selected.samples,
            seed=self.log.seed,
            epoch=epoch,
            batch_size=self._batch_size,
            shuffle=self._shuffle,
            drop_last=self._drop_last,
        )
        for entry in self.log.entries(epoch):
            order.enter(entry)
        return order

    def let_in(self, epoch: int, order: EpochOrder, place: int) -> None:
        """Let the samples that were found since enter an epoch, before one of its batches is ordered.

        Args:
            epoch: Which.
            order: Its order.
            place: The batch's number.

        Raises:
            Exception: The last look failed.
        """
        if self.log.is_round(epoch):
            return
        began = self.log.samples(epoch)
        entries = self.log.entries(epoch)
        known = began + sum(entry.size for entry in entries)
        count = min(self.count - known, 2 * began - known)
        if count > 0 and place >= self.log.mark(epoch) and order.takes(place):
            entry = Arrivals(place, known, count)
            with self._dataset.source_first():
                self.log.enter(epoch, entry)
            self.news.enter(epoch, count)
            order.enter(entry)


class GrowingBatches:
    """Orders the batches of a stream that grows, in place of the loader's batch sampler.

    Attributes:
        order: Of the epoch that was begun last.
    """

    def __init__(self, growth: Growth) -> None:
        self._growth = growth
        self._epoch = 0
        self.order: EpochOrder | None = None

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration orders."""
        self._epoch = epoch
        self.order = self._growth.begin(epoch)

    def __len__(self) -> int:
        return 0 if self.order is None else self.order.batches

    def __iter__(self) -> Iterator[list[int]]:
        epoch, order = self._epoch, self.order
        assert order is not None
        log, number = self._growth.log, 0
        while True:
            self._growth.let_in(epoch, order, number)
            batch = order.batch(number)
            if not len(batch):
                log.raise_mark(epoch, OVER)
                self._growth.news.end_epoch()
                return
            number += 1
            log.raise_mark(epoch, number)
            yield batch.tolist()
