"""Does `workers="auto"` find the best number of workers while trials go on? Beside fixed numbers and grain's rule.

What is isolated: the loader. One consumer takes batches as fast as they come, in the producer's own process. Five
pipelines, of which an epoch lasts longer than all measurements of it, as what is compared is numbers of workers and not
how long their start takes:

    jpeg      decodes and crops a picture: CPU time, the same for each sample
    tiny      next to nothing a sample: workers cost more than they give
    uneven    one sample in twenty costs twenty times the others
    leaking   three stages of uneven cost, all of which compute, and a worker that keeps some memory of each sample
    read      waits for a disk that serves two reads at a time

For each "auto" runs with the budget until nothing is left to try, and `REST_S` on. From then on its choice and every
fixed number of workers from 1 to `--most`, which includes 2 workers and as many as cores, are measured in turn, on the
same stream, `--rounds` times; every second round goes backwards. A number that was best of one measurement each was
some of the time only the luckiest, and what a machine is given changes within seconds. So the best of the grid is the
number with the largest median, and what auto reaches of it the median of the ratios within each round, with the least
and the largest. Where auto has chosen just that ("the same"), they tell the noise, and the best counts as reached. As
many workers as grain's rule gives (the budget by the bytes of one batch) are the largest of the grid where they are
more.

Beside it: a plain DataLoader with PyTorch's defaults, no worker, in this process, before and after that; a stream
without workers; probes; seconds until auto rested; its pace then; the most memory of all workers in samples at 20 Hz;
whether its batches are those of one worker, until two numbers were measured; and where asked for (`--halve`) the same
comparison after half of the cores were taken away: of what auto held `RECOVER_S` later.

The memory is what comes free when the workers end, as "auto" itself counts it. What each has resident would count the
producer's memory once a worker: 1,279 MiB for eight that had 97 (`read`).

InTune (arXiv:2308.08500) reports 2.29 times the throughput, over other optimizers and on other machines. Where all
stages compute, as in `leaking`, no number of workers gives more than as many times a plain loader as there are cores,
which stands beside the figure.

    python -m benchmarks.tuning [--pipelines jpeg read] [--seconds 2] [--rounds 5] [--most 4] [--memory 1GiB] [--halve]
        [--json FILE]
"""

from __future__ import annotations

import abc
import argparse
import contextlib
import hashlib
import itertools
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

import tsnb
from benchmarks.tuning_pipelines import PIPELINES, Pipeline
from benchmarks.tuning_results import PREFETCH, Race, Row, table, verdict
from tsnb.machine.processes import children_of_thread, forks_bytes, use_of
from tsnb.planners.tuning import Crew
from tsnb.text.words import bytes_of

if TYPE_CHECKING:
    from typing_extensions import Self

BATCH, SEED = 8, 7
SAMPLE_S, WEIGH_S = 0.05, 0.5
TRIES_S = 120.0
"""Auto has so long until nothing may be left to try."""
REST_S = 20.0
"""Long enough for workers that leak to reach the budget."""
RECOVER_S = 15.0
SETTLE_S = 0.5
"""Of a measurement, once the former workers have gone."""


class Beside(abc.ABC):
    """Works on a thread of its own while a `with` block runs."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @abc.abstractmethod
    def _run(self) -> None:
        """Work until `_over` is set."""


class Taker(Beside):
    """Takes batches; counts them, and keeps a digest of each of the first."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.taken = 0
        self.digests: list[bytes] = []
        self.digesting = True
        self._name = name

    def _run(self) -> None:
        with tsnb.attach("taker", self._name) as consumer:
            while not self._over.is_set():
                for batch in consumer:
                    if self.digesting:
                        self.digests.append(hashlib.blake2b(batch.numpy(), digest_size=16).digest())
                    self.taken += 1
                    if self._over.is_set():
                        break

    def pace(self, seconds: float) -> float:
        """Return batches a second over the next seconds."""
        began, before = time.monotonic(), self.taken
        time.sleep(seconds)
        return (self.taken - before) / (time.monotonic() - began)

    def until(self, batches: int) -> None:
        """Wait until so many were taken."""
        while self.taken < batches:
            time.sleep(0.02)


class Scale(Beside):
    """Weighs the workers twenty times a second.

    The kernel walks all pages of all of them for that, which would slow them down. So it is done when they begin or
    end, for `WEIGH_S` after that, and every `WEIGH_S`; in between counts what became resident since.
    """

    def __init__(self, thread: int) -> None:
        super().__init__()
        self.most_bytes, self.looks = 0.0, 0
        self._loading = thread

    def _run(self) -> None:
        workers: tuple[int, ...] = ()
        bytes_then, resident_then = 0, 0
        changed_s = weighed_s = 0.0
        while not self._over.wait(SAMPLE_S):
            now_s, before, workers = time.monotonic(), workers, children_of_thread(self._loading)
            if workers != before:
                changed_s = now_s
            resident = sum(use.anonymous_bytes for pid in workers if (use := use_of(pid)) is not None)
            if now_s - changed_s < WEIGH_S or now_s - weighed_s >= WEIGH_S:
                bytes_then, resident_then, weighed_s = forks_bytes(workers), resident, now_s
            weighed = bytes_then + resident - resident_then
            self.most_bytes, self.looks = max(self.most_bytes, float(weighed)), self.looks + 1


@contextlib.contextmanager
def _served(
    kind: str, gate: Path, workers: int | str, **more: Any
) -> Iterator[tuple[tsnb.streams.Producer, Taker]]:
    loader = DataLoader(Pipeline(kind, gate), BATCH, shuffle=True)
    with (
        tsnb.serve(loader, name=f"tuning-{kind}", seed=SEED, workers=workers, **more) as producer,
        Taker(producer.name) as taker,
    ):
        taker.until(4)
        yield producer, taker


def fixed(kind: str, gate: Path, workers: int, seconds: float, batches: int = 0) -> tuple[float, list[bytes]]:
    """Return batches a second of a stream with so many workers, and the digests of its first batches."""
    with _served(kind, gate, workers) as (_, taker):
        taker.until(2 * BATCH)
        pace = taker.pace(seconds)
        taker.until(batches)
        return pace, taker.digests[:batches]


def plain(kind: str, gate: Path, seconds: float, rounds: int) -> list[float]:
    """Return batches a second of a DataLoader with PyTorch's defaults, taken as fast as they come, by round."""
    loader = DataLoader(Pipeline(kind, gate), BATCH, shuffle=True)
    batches = (batch for epoch in itertools.repeat(loader) for batch in epoch)
    for _ in itertools.islice(batches, 2 * BATCH):  # as many as a stream gives before it counts
        pass
    paces = []
    for _ in range(rounds):
        began, taken = time.monotonic(), 0
        while time.monotonic() - began < seconds or taken < 2:
            next(batches)
            taken += 1
        paces.append(taken / (time.monotonic() - began))
    return paces


def raced(
    producer: tsnb.streams.Producer, taker: Taker, auto: Crew, most: int, seconds: float, rounds: int
) -> Race:
    """Measure a choice of auto's and every number of workers up to one in turn; auto is over with that.

    Args:
        producer: Of the stream.
        taker: Its consumer.
        auto: What was chosen.
        most: The largest number of workers.
        seconds: Of each measurement.
        rounds: How often each is measured.
    """
    race = Race(auto, [], {workers: [] for workers in range(1, most + 1)})
    producer.tune(workers=auto.workers)
    source: Any = producer.core.source
    choices = [(auto, race.auto_per_s)]
    choices += [(Crew(workers, PREFETCH), paces) for workers, paces in race.grid.items()]
    for number in range(rounds):
        for choice, paces in choices if number % 2 == 0 else reversed(choices):
            source.workers.change(*choice, advised=False)
            while (
                source.workers.wanted != source.workers.number
                or source.workers.prefetch != choice.prefetch
                or source.workers.handing_over
            ):
                time.sleep(0.02)
            taker.pace(SETTLE_S)
            paces.append(taker.pace(seconds))
    return race


def measure(
    kind: str, seconds: float, rounds: int, most: int, budget_bytes: float, *, rest_s: float, halve: bool
) -> Row:
    """Measure one pipeline."""
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        gate = Path(folder)
        plain_per_s = plain(kind, gate, seconds, rounds)
        none_per_s, _ = fixed(kind, gate, 0, seconds)
        with _served(kind, gate, "auto", memory=int(budget_bytes)) as (producer, taker):
            thread = next(t for t in threading.enumerate() if t.name == f"tsnb-load-{producer.name}")
            loading = thread.native_id or 0
            with Scale(loading) as scale:
                rested_s, compared = _rested(producer, taker)
                rest_per_s = taker.pace(max(seconds, rest_s))
            taker.digesting = False
            auto, probes = _crew(producer), len(producer.probes)
            halved = None
            if halve and cores > 1:
                halved = _halved(producer, taker, loading, seconds, rounds, most)
            race = raced(producer, taker, auto, most, seconds, rounds)
            digests = taker.digests[:compared]
        plain_per_s += plain(kind, gate, seconds, rounds)
        same = fixed(kind, gate, 1, 0.0, compared)[1] == digests
        grain_rule = max(1, int(budget_bytes / (BATCH * Pipeline(kind, gate)[0].nbytes)))
    return Row(
        kind,
        race,
        cores,
        min(most, grain_rule),
        grain_rule,
        rest_per_s,
        probes,
        rested_s,
        scale.most_bytes,
        budget_bytes,
        scale.looks,
        compared,
        same,
        none_per_s,
        statistics.median(plain_per_s),
        halved,
    )


def _rested(producer: tsnb.streams.Producer, taker: Taker) -> tuple[float | None, int]:
    """Wait until auto rests; return how long that took, and how many batches there were until it had measured two."""
    began, compared = time.monotonic(), 0
    while (took_s := time.monotonic() - began) < TRIES_S:
        tuning = producer.status().tuning
        if tuning is not None and len(tuning.probes) >= 2:
            compared = compared or len(taker.digests)
        if tuning is not None and tuning.resting:
            return took_s, compared or len(taker.digests)
        time.sleep(0.1)
    return None, compared or len(taker.digests)


def _crew(producer: tsnb.streams.Producer) -> Crew:
    source: Any = producer.core.source
    return Crew(source.workers.number, source.workers.prefetch)


def _halved(
    producer: tsnb.streams.Producer, taker: Taker, loading: int, seconds: float, rounds: int, most: int
) -> Race:
    """Take half of the loader's cores away; compare what auto holds a while later; give them back."""
    all_cores = sorted(os.sched_getaffinity(loading))
    for task in (loading, *children_of_thread(loading)):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(task, all_cores[: len(all_cores) // 2])
    time.sleep(RECOVER_S)
    race = raced(producer, taker, _crew(producer), most, seconds, rounds)
    for task in (loading, *children_of_thread(loading)):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(task, all_cores)
    return race


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; print the table.

    Args:
        arguments: Left out: those of the command line.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tuning", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--pipelines", nargs="+", choices=PIPELINES, default=list(PIPELINES))
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement (2)")
    parser.add_argument("--rounds", type=int, default=5, help="in which each choice is measured (5)")
    parser.add_argument("--rest", type=float, default=REST_S, help="seconds that auto goes on (20)")
    parser.add_argument("--most", type=int, help="workers of the grid (twice the cores)")
    parser.add_argument("--memory", type=bytes_of, default=2.0**30, help="budget of all workers (1GiB)")
    parser.add_argument("--halve", action="store_true", help="also take half of the cores away")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    given = parser.parse_args(arguments)
    cores = len(os.sched_getaffinity(0))
    most = given.most or 2 * cores
    rows = []
    for kind in given.pipelines:
        rows.append(
            measure(
                kind, given.seconds, given.rounds, most, given.memory, rest_s=given.rest, halve=given.halve
            )
        )
        print(table(rows[-1:]), flush=True)
    load = os.getloadavg()[0]
    of = f"{given.rounds} rounds of {given.seconds:g} s, medians (the least-the most)"
    print(f"\n{cores} cores, load {load:.1f}, {of}; batches of {BATCH} a second\n")
    print(table(rows))
    print(f"\n{verdict(rows)}")
    if given.json is not None:
        given.json.write_text(
            json.dumps({"cores": cores, "load": load, "rows": [asdict(r) for r in rows]}, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
