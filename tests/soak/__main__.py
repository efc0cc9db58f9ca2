"""The soak: one producer, several consumers, a random fault every few seconds, every sample checked.

    make soak                                       two minutes
    make soak SOAK="--minutes 30 --consumers 8 --report soak.md"
    make soak SOAK=--kept                           with a cache that memory is taken from, folds and subsets
    make soak SOAK=--growing                        a folder that another process adds to, now and then in rounds

Ends with status 1 on any loss. Faults are drawn from `--seed`, which is printed; when they hit is the machine's
own doing, so a run is never repeated exactly. Some come at a set share of the run at the latest (`SET`), so that none
goes without them. The producer is killed and started again in the first half of the run only: the second half is one
life, whose memory and descriptors must stay flat.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

import tsnb
from tests.soak import growth
from tests.soak.report import Sample, Tally, report, verdict
from tests.soak.stream import NAME, PATIENCE_S, RECONNECT_S
from tsnb.errors import TsnbError
from tsnb.growing.selection import Trigger

ROOT = Path(__file__).resolve().parents[2]
STANDSTILL_S = RECONNECT_S + 15.0
"""No batch anywhere for so long, while nobody is stopped on purpose: a hang."""
STARTING_S = 240.0
"""How long until the first consumer has a batch: each imports torch, all at once, on a machine that may be busy."""
ALL_FILES_S = 300.0
"""How long until an epoch has every file: two of them, at the slowest consumer's pace."""
END_S = 45.0
"""How long the consumers may take to end their epochs."""


KILLED = "SIGKILL of the producer, and its restart"
NEW, LAST, OFF = "rounds of what is new", f"rounds of the last {growth.RECENT}", "no rounds any more"
SET = {KILLED: (0.2, 0.45), NEW: (0.1,), LAST: (0.3,), OFF: (0.6,)}
"""When faults come at the latest: shares of the run."""


class Member:
    """One process of the soak, and what it says."""

    def __init__(self, soak: Soak, *arguments: str) -> None:
        self.words: list[dict[str, Any]] = []
        self.rest: deque[str] = deque(maxlen=40)
        self.doomed = False
        self._soak = soak
        self._named = " ".join(arguments)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "tests.soak.stream", *arguments]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                words = json.loads(line)
            except ValueError:  # a traceback, a warning, or a line that a SIGKILL cut
                self.rest.append(line.rstrip())
                continue
            self.words.append(words)
            self._soak.hear(words)

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def end(self, number: signal.Signals) -> None:
        """Send a signal that ends it."""
        self.doomed = True
        self.send(number)
        self.process.wait(END_S)

    def __str__(self) -> str:
        return self._named


class Soak:
    """One run."""

    def __init__(
        self, consumers: int, seed: int, seconds: float, every_s: float, mode: str = "plain", folder: str = ""
    ) -> None:
        self.tally = Tally()
        self._given = (mode, folder)
        self._kept = mode == "kept"
        self._folder = folder
        self._writer: Member | None = None
        self._lock = threading.Lock()
        self._count, self._seed, self._seconds, self._every_s = consumers, seed, seconds, every_s
        self._random = random.Random(seed)
        self._names = itertools.count()
        self._heard_s = time.monotonic()
        self._producer: Member | None = None
        self._consumers: list[Member] = []
        self._began = time.monotonic()
        self._over = False

    def hear(self, words: dict[str, Any]) -> None:
        """Count what a process said. Called from its reader's thread."""
        with self._lock:
            self._heard_s = time.monotonic()
            if "outcome" in words:
                self.tally.outcomes[words["outcome"]] += 1
                self.tally.samples += words["rows"]
                self.tally.batches += words["batches"]
            if "loss" in words:
                self.tally.losses.append(words["loss"])
            self.tally.hits += words.get("hits", 0)
            self.tally.files = max(self.tally.files, words.get("whole", 0))
            for place, piece in enumerate(words.get("pieces", ())):
                if self.tally.pieces.setdefault((words["epoch"], place), piece) != piece:
                    self.tally.losses.append(f"epoch {words['epoch']} came in two orders")

    # -- processes ---------------------------------------------------------------------------------------

    def _start_producer(self) -> Member:
        self.tally.life.clear()
        return Member(self, "serve", str(self._seed), "2", *self._given)

    def _start_consumer(self) -> None:
        drawn = str(self._random.randrange(1 << 30))
        self._consumers.append(
            Member(self, "train", f"c{next(self._names)}", str(self._seed), drawn, *self._given)
        )

    def _start_writer(self) -> None:
        if self._folder:
            chosen = random.Random(self._seed)
            for number in range(growth.FIRST):
                growth.add(Path(self._folder), number, chosen)
            self._writer = Member(self, "write", str(self._seed), *self._given)

    def _everybody(self) -> list[Member]:
        others = (self._producer, self._writer)
        return [*self._consumers, *(member for member in others if member is not None)]

    def _anybody(self) -> Member:
        """Return one that has come up: importing torch takes seconds, and is not what is tested."""
        while not (up := [member for member in self._consumers if member.words]):
            time.sleep(0.1)
        return self._random.choice(up)

    def _replace(self, member: Member, number: signal.Signals) -> None:
        member.end(number)
        self._consumers.remove(member)
        self._start_consumer()

    def _worker(self) -> psutil.Process | None:
        assert self._producer is not None
        with contextlib.suppress(psutil.Error):
            workers = psutil.Process(self._producer.process.pid).children()
            return self._random.choice(workers) if workers else None
        return None

    # -- faults ------------------------------------------------------------------------------------------

    def _pause(self, members: list[Member], seconds: float) -> None:
        for member in members:
            member.send(signal.SIGSTOP)
        time.sleep(seconds)
        for member in members:
            member.send(signal.SIGCONT)

    def _faults(self) -> dict[str, tuple[float, Callable[[], object]]]:
        """Return every fault by its name, with its weight."""
        assert self._producer is not None
        draw, producer = self._random, self._producer
        faults: dict[str, tuple[float, Callable[[], object]]] = {
            "SIGKILL of a consumer": (3, lambda: self._replace(self._anybody(), signal.SIGKILL)),
            "SIGSEGV of a consumer": (1, lambda: self._replace(self._anybody(), signal.SIGSEGV)),
            "one consumer leaves, another comes": (
                1,
                lambda: self._replace(self._anybody(), signal.SIGTERM),
            ),
            "a consumer stands still, shorter than stall timeout": (
                2,
                lambda: self._pause([self._anybody()], draw.uniform(0.1, 0.7 * PATIENCE_S)),
            ),
            "a consumer stands still, longer than stall timeout": (
                1,
                lambda: self._pause([self._anybody()], PATIENCE_S + draw.uniform(1.5, 3)),
            ),
            "Ctrl-C of a consumer": (5, lambda: self._anybody().send(signal.SIGINT)),
            "SIGKILL of a loader worker": (0.5, self._kill_worker),
            "a loader worker stands still": (0.5, self._stop_worker),
            "the producer stands still": (0.5, lambda: self._pause([producer], draw.uniform(0.2, 2))),
            "everything stands still": (
                0.3,
                lambda: self._pause([producer, *self._consumers], PATIENCE_S + draw.uniform(0, 2)),
            ),
        }
        if self._kept:
            faults["memory gets short, and the cache gives some back"] = (
                2,
                lambda: producer.send(signal.SIGUSR2),
            )
        if self._folder:
            faults[NEW] = (1, lambda: self._set_rounds(tsnb.data.every(5) | tsnb.data.interval("2s"), "new"))
            faults[LAST] = (
                1,
                lambda: self._set_rounds(
                    tsnb.data.every(20) | tsnb.data.interval("3s"), f"recent:{growth.RECENT}"
                ),
            )
            faults[OFF] = (1, lambda: self._set_rounds(None))
        if time.monotonic() - self._began < self._seconds / 2:
            faults[KILLED] = (0.7, self._restart_producer)
        return faults

    def _choose(self, faults: dict[str, tuple[float, Callable[[], object]]]) -> str:
        """Return the next fault: one whose time has come, or any."""
        share = (time.monotonic() - self._began) / self._seconds
        for name, shares in SET.items():
            if name in faults and self.tally.faults[name] < sum(share >= each for each in shares):
                return name
        return self._random.choices(list(faults), [weight for weight, _ in faults.values()])[0]

    def _set_rounds(self, trigger: Trigger | None, select: str = "new") -> bool:
        """Have the stream go in rounds, or no longer; return whether its producer was there to do so."""
        try:
            tsnb.data.rounds(NAME, trigger, select=select)
        except (TsnbError, OSError):  # it is being started
            return False
        return True

    def _kill_worker(self) -> None:
        worker = self._worker()
        if worker is not None:
            with contextlib.suppress(psutil.Error):
                worker.kill()

    def _stop_worker(self) -> None:
        worker = self._worker()
        if worker is not None:
            with contextlib.suppress(psutil.Error):
                worker.suspend()
                time.sleep(self._random.uniform(0.2, 2))
                worker.resume()

    def _restart_producer(self) -> None:
        assert self._producer is not None
        self._producer.end(signal.SIGKILL)
        self._producer = self._start_producer()

    # -- the run -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Soak, then let everybody finish."""
        try:
            self._start_writer()
            self._producer = self._start_producer()
            for _ in range(self._count):
                self._start_consumer()
            watch = threading.Thread(target=self._watch, daemon=True)
            watch.start()
            while time.monotonic() - self._began < self._seconds and not self._lost():
                time.sleep(self._random.uniform(0.3, 2 * self._every_s))
                if not self._producer.words:  # it is being started
                    continue
                faults = self._faults()
                name = self._choose(faults)
                self.tally.faults[name] += 1
                faults[name][1]()
            self._finish()
        except subprocess.TimeoutExpired:
            self._describe_standstill(f"a process did not end within {END_S:.0f} s")
        finally:
            self._over = True
            for member in self._everybody():
                member.process.kill()
                member.process.wait()
                member.reader.join(5)
                if member.process.stdout is not None and not member.reader.is_alive():
                    member.process.stdout.close()

    def _lost(self) -> bool:
        """Return whether to give up: a process ended by itself, or nothing moves any more."""
        for member in self._everybody():
            status = member.process.poll()
            if status is not None and not member.doomed:
                self.tally.losses.append(
                    f"{member} ended with status {status}: {' | '.join(member.rest)[-600:]}"
                )
                return True
        most_s = STANDSTILL_S if any(member.words for member in self._consumers) else STARTING_S
        if time.monotonic() - self._heard_s > most_s:
            self._describe_standstill(f"nothing moved for {most_s:.0f} s")
            return True
        return False

    def _describe_standstill(self, why: str) -> None:
        """Note a loss, and print where everybody stands."""
        with contextlib.suppress(TsnbError, OSError):
            print(tsnb.streams.status(NAME))
        for member in self._everybody():
            member.send(signal.SIGUSR1)
            time.sleep(0.3)
            print(f"--- {member}", *member.rest, sep="\n")
        self.tally.losses.append(why)

    def _finish(self) -> None:
        """Let every consumer end its epoch, then ask the producer what is still held."""
        self._wait_for_the_producer()
        self._wait_for_all_files()
        for member in self._consumers:
            member.doomed = True
            member.send(signal.SIGTERM)
        for member in self._consumers:
            status = member.process.wait(END_S)
            if status not in (0, -signal.SIGTERM):  # the latter before it had come up
                self.tally.losses.append(f"{member} ended with status {status}: {' | '.join(member.rest)}")
        assert self._producer is not None
        time.sleep(1.0)  # a connection's end is noticed at once, but by another thread
        self._producer.end(signal.SIGTERM)
        self._producer.reader.join(10)
        last = self._producer.words[-1] if self._producer.words else {}
        self.tally.pinned, self.tally.missing = last.get("pinned"), last.get("missing")

    def _wait_for_the_producer(self) -> None:
        """Let one that was started late come up, and end its rounds: who waits for one would not end."""
        deadline = time.monotonic() + RECONNECT_S
        assert self._producer is not None
        while time.monotonic() < deadline and not self._lost():
            if self._producer.words and (not self._folder or self._set_rounds(None)):
                return
            time.sleep(0.2)

    def _wait_for_all_files(self) -> None:
        """Let the writer end, and wait for an epoch that has each of its files."""
        if self._writer is None or self.tally.losses:
            return
        self._writer.end(signal.SIGTERM)
        self._writer.reader.join(10)
        written = self._writer.words[-1]["written"]
        deadline = time.monotonic() + ALL_FILES_S
        while self.tally.files < written and time.monotonic() < deadline:
            if self._lost():
                return
            time.sleep(0.2)
        if sorted(growth.indexed(self._folder)) != list(range(written)) or self.tally.files != written:
            self.tally.losses.append(f"no epoch had all {written} files: at most {self.tally.files}")
        self.tally.losses += growth.wrong_rounds(self._folder)

    def _watch(self) -> None:
        """Look at the producer's memory and descriptors, once a second."""
        while not self._over:
            member = self._producer
            assert member is not None
            with contextlib.suppress(psutil.Error, TsnbError, OSError):
                process = psutil.Process(member.process.pid)
                memory, descriptors = process.memory_info(), process.num_fds()
                arena = tsnb.streams.status(NAME).touched_bytes
                if member is self._producer and member.words:
                    private = memory.rss - memory.shared
                    self.tally.life.append(Sample(time.monotonic(), private, descriptors, arena))
            time.sleep(1.0)


def main() -> int:
    """Soak, print the report, return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--consumers", type=int, default=4)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between faults, on average")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 20))
    parser.add_argument("--report", type=Path, help="write the report here")
    parser.add_argument(
        "--kept", action="store_true", help="samples that a cache keeps, consumers that take parts"
    )
    parser.add_argument(
        "--growing", action="store_true", help="files of a folder that another process adds to"
    )
    chosen = parser.parse_args()
    if chosen.kept and chosen.growing:
        parser.error("a data set that grows has no cache and no parts: give --kept or --growing")
    mode = "kept" if chosen.kept else "growing" if chosen.growing else "plain"
    print(f"seed {chosen.seed}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tsnb-soak-") as folder:
        place = folder if chosen.growing else ""
        soak = Soak(chosen.consumers, chosen.seed, 60 * chosen.minutes, chosen.every, mode, place)
        soak.run()
    option = "" if mode == "plain" else f" --{mode}"
    command = f'make soak SOAK="--minutes {chosen.minutes:g} --consumers {chosen.consumers}{option}"'
    seconds = time.monotonic() - began
    text = report(soak.tally, command=command, seconds=seconds, consumers=chosen.consumers, seed=chosen.seed)
    print(text)
    if chosen.report is not None:
        chosen.report.write_text(text, encoding="utf-8")
    return 1 if verdict(soak.tally) else 0


if __name__ == "__main__":
    sys.exit(main())
