"""What the soak serves, takes and checks: the producer's, the consumers' and the writer's processes.

Every sample's bytes follow from its number and the epoch, and the order from (seed, epoch), both computed here
without a line of tsnb: a consumer knows each batch before it comes, and compares it bit by bit.

Three modes:

    plain      as above
    kept       samples are the same in every epoch and costly enough for a cache, which is made to give memory back now
               and then; consumers take everything, a fold, what it holds out, or a subset, chosen for each epoch
    growing    files of a folder that a further process adds to; what is checked then: `tests.soak.growth`
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

import tsnb
from tests.soak import growth
from tests.soak.contents import SAMPLES, Loss, contents
from tsnb.errors import ConsumerTimedOut, LoaderFailed, ProducerGone, ProducerNotFound
from tsnb.extensions.cache import keeper_of
from tsnb.stream.consumer.batches.parts import Part

__all__ = ["NAME", "PATIENCE_S", "RECONNECT_S", "order", "serve", "train"]

Take = dict[str, Any]
"""The options of `tsnb.attach` for a part; empty: everything."""

NAME = "soak"
BATCH = 32
PATIENCE_S = 3.0
RECONNECT_S = 45.0
"""A producer's restart takes seconds (importing torch), on a crowded machine many."""


def order(seed: int, epoch: int) -> list[int]:
    """Return the samples of an epoch in their order."""
    numbers = list(range(SAMPLES))
    random.Random(f"{seed} {epoch}").shuffle(numbers)
    return numbers


class Order(Sampler[Any]):
    """Gives (sample, epoch), so that a batch of another epoch cannot pass for one of this; samples alone if `kept`."""

    def __init__(self, seed: int, kept: bool) -> None:
        self._seed = seed
        self._kept = kept
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[Any]:
        numbers = order(self._seed, self._epoch)
        return iter(numbers if self._kept else [(number, self._epoch) for number in numbers])


class Images(Dataset[dict[str, Any]]):
    """The samples."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, key: tuple[int, int]) -> dict[str, Any]:
        number, epoch = key
        return {"number": number, "image": contents(torch.tensor([number]), epoch)[0]}


class KeptImages(Dataset[dict[str, Any]]):
    """The same samples in every epoch, worth keeping."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> dict[str, Any]:
        time.sleep(0.0004)
        return {"number": number, "image": contents(torch.tensor([number]), 0)[0]}


def a_part(moods: random.Random) -> Take:
    """Choose what to take of the stream."""
    k, folds = moods.randrange(5), moods.choice([2, 5])
    fold = {"fold": (k % folds, folds)}
    subset = {"subset": moods.sample(range(SAMPLES), moods.choice([40, 400, 2000]))}
    return moods.choice([{}, {}, fold, {**fold, "held_out": True}, subset])


def tell(**words: object) -> None:
    """Say something to the soak's driver."""
    print(json.dumps(words), flush=True)


def loader_of(seed: int, workers: int, mode: str, folder: str) -> DataLoader[Any]:
    """Return what is served."""
    if mode == "growing":
        grown = tsnb.data.grow(folder, growth.read, settle_s=growth.SETTLE_S)
        grown.wait(growth.FIRST)
        return DataLoader(grown, BATCH, shuffle=True, num_workers=workers)
    kept = mode == "kept"
    dataset: Dataset[Any] = KeptImages() if kept else Images()
    return DataLoader(dataset, BATCH, sampler=Order(seed, kept), num_workers=workers)


def serve(seed: int, workers: int, mode: str, folder: str) -> None:
    """Be the producer until SIGTERM; then say what is still held. SIGUSR2: memory is short."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    asked: list[int] = []
    squeezed: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
    signal.signal(signal.SIGUSR2, lambda number, _frame: squeezed.append(number))
    torch.set_num_threads(1)
    loader = loader_of(seed, workers, mode, folder)
    options: dict[str, Any] = {"seed": seed, "stall_timeout_s": PATIENCE_S, "reconnect_s": RECONNECT_S}
    options |= {"cache": "2MiB"} if mode == "kept" else {}
    with tsnb.serve(loader, name=NAME, window=8, late_join=0.1, **options) as producer:
        tell(serving=True)
        core, keeper = producer._core, keeper_of(producer._core)
        while not asked:
            time.sleep(0.1)
            if squeezed and keeper is not None:
                squeezed.clear()
                keeper._memory.give_back(keeper._memory.used_bytes // 3)
        if keeper is not None:
            tell(hits=keeper.counts().hits)
        with core.lock:
            pinned = sum(len(member.leases) for member in core.dispatch.members.values())
            there = len(core.slots._stack) + len(core.slots._issued) + core.dispatch.epochs.kept
            tell(pinned=pinned, missing=core.arena.slots - there)


class InOrder:
    """Checks one epoch whose order is known beforehand.

    Args:
        epoch: Its number.
        expected: Its samples in order.
        drawn: Whether samples are other ones in every epoch.
    """

    def __init__(self, epoch: int, expected: list[int], *, drawn: bool) -> None:
        self._epoch = epoch
        self._expected = expected
        self._drawn = drawn
        self._rows = 0

    def take(self, numbers: torch.Tensor, image: torch.Tensor) -> None:
        """Check one batch."""
        want = torch.tensor(self._expected[self._rows : self._rows + len(numbers)])
        if not torch.equal(numbers, want):
            raise Loss(
                f"epoch {self._epoch}: samples {numbers.tolist()[:4]}... in place of {want.tolist()[:4]}... "
                f"after {self._rows}"
            )
        if not torch.equal(image, contents(want, self._epoch if self._drawn else 0)):
            raise Loss(f"epoch {self._epoch}: other contents than the loader's, after {self._rows} samples")
        self._rows += len(numbers)

    def end(self) -> None:
        """Check that nothing is missing."""
        if self._rows != len(self._expected) or not self._expected:
            raise Loss(f"epoch {self._epoch} ended after {self._rows} of {len(self._expected)} samples")

    def words(self) -> dict[str, Any]:
        """Return what the driver is to compare: nothing."""
        return {}


class Trainer:
    """One consumer: takes epochs, each in a mood of its own, until it is asked to finish.

    Args:
        name: The consumer's name.
        seed: Of the stream.
        moods: Of its own choices.
        mode: See above.
        folder: What grows.
    """

    def __init__(self, name: str, seed: int, moods: random.Random, mode: str, folder: str) -> None:
        self._name = name
        self._kept = mode == "kept"
        self._drawn = mode == "plain"
        self._folder = folder
        self._check: InOrder | growth.InFolder | None = None
        self._consumer: tsnb.Consumer | None = None
        self._mine: npt.NDArray[np.bool_] | None = None
        self._seed = seed
        self._moods = moods
        self._last_epoch = -1
        self.finishing = False
        self.interruptible = False
        self._rows = self._batches = 0
        self._before = "attached"

    def attach(self) -> tsnb.Consumer:
        """Attach, with a batch size and a part chosen anew; wait for a producer that is being started."""
        size = self._moods.choice([None, None, 7, 32, 50, 200])
        part = a_part(self._moods) if self._kept else {}
        self._mine = Part(**part).mask(SAMPLES) if part else None
        until = time.monotonic() + RECONNECT_S
        while True:
            try:
                consumer = tsnb.attach(self._name, stream=NAME, batch_size=size, **part)
            except (ProducerNotFound, ProducerGone):
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
                continue
            if (
                self._kept and consumer is not self._consumer
            ):  # one with another part is a new one, and may join any epoch
                self._consumer, self._last_epoch = consumer, -1
            return consumer

    def epoch(self) -> None:
        """Take one epoch and say how it went."""
        began = time.monotonic()
        self._rows = self._batches = 0
        self._check = None
        kept: list[tuple[torch.Tensor, int, torch.Tensor]] = []
        outcome = "error"
        try:
            self.interruptible = True
            outcome = self._take(self.attach(), kept)
        except KeyboardInterrupt:
            outcome = "interrupted"
        except ConsumerTimedOut:
            outcome = "parked"
        except LoaderFailed as error:
            outcome = "loader failed"
            if "worker" not in str(error) and "SIG" not in str(error):
                tell(loss=f"{self._name}: {error}")
        except Exception as error:  # noqa: BLE001  # whatever is not named above is a finding
            tell(loss=f"{self._name}: {type(error).__name__}: {error}")
        finally:
            self.interruptible = False
        self._before = outcome
        for numbers, epoch, image in kept:
            if not torch.equal(image, contents(numbers, epoch if self._drawn else 0)):
                tell(loss=f"{self._name}: a batch of epoch {epoch} changed while it was held")
        told: dict[str, Any] = {} if self._check is None else self._check.words()
        tell(
            outcome=outcome, rows=self._rows, batches=self._batches, seconds=time.monotonic() - began, **told
        )

    def _take(self, consumer: tsnb.Consumer, kept: list[tuple[torch.Tensor, int, torch.Tensor]]) -> str:
        """Take one epoch in a mood; return how it was left."""
        moods = self._moods
        pause_s = moods.choice([0.0, 0.0, 0.002, 0.01, 0.03])
        hoards = moods.choice([0, 0, 0, 3, 12])
        leaves_at = moods.randrange(SAMPLES) if moods.random() < 0.15 else SAMPLES + 1
        for batch in consumer:
            if self._check is None:
                self._check = self._checks(self._begin(consumer))
            numbers = batch["number"]
            self._check.take(numbers, batch["image"])
            self._rows += len(numbers)
            self._batches += 1
            if len(kept) < hoards:
                kept.append((numbers.clone(), consumer.epoch, batch["image"]))
            if self._rows >= leaves_at or self.finishing:
                return "left"
            time.sleep(pause_s)
        if self._check is None:
            raise Loss(f"epoch {consumer.epoch} had nothing")
        self._check.end()
        what = (
            "a round, complete"
            if isinstance(self._check, growth.InFolder) and self._check.is_round
            else "complete"
        )
        if moods.random() < 0.1:
            consumer.close()
            if (
                self._folder
            ):  # one that comes anew may join a round of few batches again: it is another consumer
                self._last_epoch = -1
            return f"{what}, then detached"
        time.sleep(moods.choice([0.0, 0.0, 0.2, 1.0]))
        return what

    def _checks(self, epoch: int) -> InOrder | growth.InFolder:
        """Return what checks an epoch."""
        if self._folder:
            return growth.InFolder(epoch, self._folder)
        own = [i for i in order(self._seed, epoch) if self._mine is None or self._mine[i]]
        return InOrder(epoch, own, drawn=self._drawn)

    def _begin(self, consumer: tsnb.Consumer) -> int:
        if consumer.epoch <= self._last_epoch:
            raise Loss(f"epoch {consumer.epoch} came after epoch {self._last_epoch}, {self._before}")
        self._last_epoch = consumer.epoch
        return consumer.epoch


def train(name: str, seed: int, moods: int, mode: str, folder: str) -> None:
    """Be a consumer until SIGTERM."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    torch.set_num_threads(1)
    trainer = Trainer(name, seed, random.Random(moods), mode, folder)

    def interrupt(_number: int, _frame: object) -> None:
        if trainer.interruptible:
            trainer.interruptible = False
            raise KeyboardInterrupt

    def finish(_number: int, _frame: object) -> None:
        trainer.finishing = True

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, finish)
    tell(attaching=name)
    while not trainer.finishing:
        trainer.epoch()


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: nothing outlives the soak
    role, *given, its_mode, its_folder = sys.argv[1:]
    if role == "serve":
        serve(int(given[0]), int(given[1]), its_mode, its_folder)
    elif role == "write":
        tell(writing=True)
        tell(written=growth.write(Path(its_folder), int(given[0])))
    else:
        train(given[0], int(given[1]), int(given[2]), its_mode, its_folder)
