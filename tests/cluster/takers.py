"""What runs on the machines of the test's cluster: consumers, each in a process of its own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import tsnb
from tsnb.discovery import registry

ROWS, BATCH, WIDTH = 240, 8, 16384
BATCH_BYTES = BATCH * (WIDTH * 4 + 8)
BATCHES = ROWS // BATCH


class Images(Dataset[Any]):
    """Sample i is drawn from a generator seeded with i; half a megabyte a batch."""

    def __init__(self, rows: int = ROWS, slow_s: float = 0.0, seen: str = "") -> None:
        self.rows, self.slow_s, self.seen = rows, slow_s, seen

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.slow_s)
        if self.seen:
            with open(self.seen, "ab", buffering=0) as file:
                file.write(b".")
        image = torch.from_numpy(np.random.default_rng(index).random(WIDTH, np.float32))
        return {"image": image, "label": index, "file": f"{index}.png"}


def loader(rows: int = ROWS, slow_s: float = 0.0, shuffle: bool = False, seen: str = "") -> DataLoader[Any]:
    """Return what the tests serve; into the file `seen` comes a byte for each sample that is prepared."""
    return DataLoader(Images(rows, slow_s, seen), BATCH, shuffle=shuffle, num_workers=1)


def digest(batch: Any) -> str:
    """Return what tells one batch from any other, bit by bit."""
    parts = [batch["image"].numpy().tobytes(), batch["label"].numpy().tobytes(), repr(batch["file"]).encode()]
    return hashlib.blake2b(b"|".join(parts), digest_size=8).hexdigest()


class Taker:
    """A consumer that takes epochs in a thread of its own, so that it can be asked how far it is."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.taken: list[tuple[int, list[str]]] = []
        self.labels: list[list[list[int]]] = []
        self.length: int | None = None
        self.error = ""
        self.thread: threading.Thread | None = None
        self.hold = threading.Event()
        self.no_more = threading.Event()

    def pid(self) -> int:
        return os.getpid()

    def start(
        self,
        name: str,
        stream: str | None,
        epochs: int = 1,
        *,
        stop_at: int = -1,
        then_at: Iterable[int] = (),
        state: Any = None,
        **options: Any,
    ) -> None:
        """Begin to take; stand still after `stop_at` batches, and after each of `then_at`, until `go_on` each time."""
        self.taken, self.labels, self.error = [], [], ""
        self.hold.clear()
        self.no_more.clear()
        consumer = tsnb.attach(name, stream=stream, **options)
        if state is not None:
            consumer.load_state_dict(state)
        with contextlib.suppress(TypeError):
            self.length = len(consumer)
        arguments = (consumer, epochs, {stop_at, *then_at})
        self.thread = threading.Thread(target=self._take, args=arguments, daemon=True)
        self.thread.start()

    def _take(self, consumer: Any, epochs: int, stops: set[int]) -> None:
        count = 0
        try:
            for _ in range(epochs):
                if self.no_more.is_set():
                    return
                rows: list[str] = []
                self.taken.append((-1, rows))
                self.labels.append([])
                for batch in consumer:
                    self.taken[-1] = (consumer.epoch, rows)
                    rows.append(digest(batch))
                    self.labels[-1].append(batch["label"].tolist())
                    count += 1
                    self.state = consumer.state_dict()
                    if count in stops:
                        self.hold.wait()
                        self.hold.clear()
        except Exception as error:  # noqa: BLE001  # told to who asks
            self.error = f"{type(error).__name__}: {error}"
        finally:
            consumer.close()

    def expected(self) -> int | None:
        """Return its length, as it attached."""
        return self.length

    def go_on(self) -> None:
        self.hold.set()

    def enough(self) -> None:
        """Have it end with the epoch that it is in."""
        self.no_more.set()

    def epoch(self) -> int:
        return self.taken[-1][0]

    def count(self) -> int:
        return sum(len(rows) for _, rows in self.taken)

    def place(self) -> Any:
        return self.state

    def result(self) -> tuple[list[tuple[int, list[str]]], str]:
        """Wait for the end; return what was taken, by epoch, and the error."""
        assert self.thread is not None
        self.thread.join(100.0)
        return self.taken, self.error if not self.thread.is_alive() else "it stands still"

    def samples(self) -> list[list[list[int]]]:
        """Return which samples each batch of each epoch held."""
        return self.labels

    def served(self) -> list[tuple[str, int]]:
        """Return the streams of this machine, and who serves each."""
        return [(entry.name, entry.pid) for entry in registry.entries()]
