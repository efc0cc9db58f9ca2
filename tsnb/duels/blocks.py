"""The way of a duel to real trials: which blocks start, what their arms came to, and when it is over.

Blocks start together, as many as have room, and the next when all of these have ended. The trials wait for each other
at a gate (`kernels.gate`), so all of them begin with the same batch, and each batch is loaded once. A block that
started while others train could lose its pair: one arm would be let into their epoch, and the other a moment too late.

| an arm that | counts as |
|---|---|
| is done | the value that it logged |
| failed: its code raised | worse than any number, and worse than an arm that took more samples |
| crashed, was stopped or interrupted | nothing: its block does not count, and another seed takes its place |
| failed because the loader did | the same |
| has no stream any more | nothing, and the duel ends |

Called on the sweep's thread.

Once an arm's code has raised, the other arm is stopped as soon as it has taken more samples. No more of it can change
the block: its difference is infinite then, for the arm that lasted longer. This keeps the error. The rule treats both
arms alike, and counts samples instead of time. If the change makes no difference, either arm is as likely to raise
first, and the size of the difference says nothing of its sign. That is all that the evidence relies on. No arm is
stopped for its values: a curve that is behind may still end ahead, so that would be a bet on another number.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tsnb.conducting.conductor import STREAMLESS, TrialSource, failed_by
from tsnb.duels.data import data_of
from tsnb.duels.ledger import Asked, Ledger, seed_of
from tsnb.duels.seeds import ARMS, Block, Rules
from tsnb.duels.verdict import DuelVerdict, judge
from tsnb.experiments.news import WITH_STREAM
from tsnb.experiments.overview.board import launch
from tsnb.experiments.plan import TrialPlan
from tsnb.experiments.replanning import replanned
from tsnb.experiments.trial import ENDED, STOP_GRACE_S, Trial
from tsnb.kernels.hub import the_hub
from tsnb.kernels.output.capping import Budget
from tsnb.kernels.output.marking import marked
from tsnb.kernels.output.outlets import Outlet
from tsnb.records.writes import LoggedRow
from tsnb.text.words import did_you_mean

__all__ = ["Arms"]

LOOK_S = 0.2
"""How often an arm is looked at whose other arm has failed."""

LOST = 3
"""So many blocks in succession that do not count end a duel."""

THE_LOADERS = ("LoaderFailed",)
"""Failures that are not those of an arm, as both arms have the same loader."""

SAID_S = 5.0
"""How long the line of the verdict may take to be shown."""


class Arms(TrialSource):
    """Starts the blocks of one duel, and judges them.

    Attributes:
        verdict: What the blocks say that have ended.
        params: Seed and arm of each trial, by its name; grows.
        blocks: Those that count, in the order in which they ended.
        anew: Why the seeds of a former duel do not count, in a sentence; empty if none were left out.
        says_verdict: Whether the verdict is shown where the trials' output is; where it is printed anyway, not.

    Args:
        title: Name of the duel.
        plans: The incumbent's and the candidate's, shipped.
        rules: What was asked.
        ledger: Where blocks are entered.
        asked: Its entry there, and the blocks that it has already.
        at_once: How many trials run at once.
        here: Where the output of the trials goes.
    """

    kind = "duel"

    def __init__(
        self,
        title: str,
        plans: tuple[TrialPlan, TrialPlan],
        rules: Rules,
        ledger: Ledger,
        asked: tuple[Asked, Sequence[Block]],
        at_once: int,
        here: Outlet,
    ) -> None:
        self.params: dict[str, dict[str, Any]] = {}
        self.blocks = list(asked[1])
        self.verdict: DuelVerdict = judge(self.blocks, rules, name=title)
        self.anew = ""
        self.says_verdict = True
        self.stop: Callable[[], None] = lambda: None
        self._title, self._plans, self._rules = title, plans, rules
        self._ledger, self._asked = ledger, asked[0]
        self._place = ledger.place(asked[0])
        self._at_once = at_once
        self._here, self._budget = here, Budget()
        self._number = 0
        self._running: dict[int, dict[int, Trial]] = {}
        self._open: set[int] = set()
        self._started: dict[str, Trial] = {}
        self._outlasted: set[str] = set()
        self._lost: dict[int, str] = {}  # number of the block -> why it does not count
        self._succession = 0
        self._why = ""
        self._heard: list[Callable[[DuelVerdict], None]] = []

    def listen(self, listener: Callable[[DuelVerdict], None]) -> None:
        """Call a function with the verdict after each block."""
        self._heard.append(listener)

    def finish(self, why: str) -> None:
        """End the duel: start no more blocks, and stop those that run.

        Args:
            why: Why, for a duel that is undecided then.
        """
        self._why = self._why or why
        self.stop()

    @property
    def uncounted(self) -> dict[int, str]:
        """Why blocks with a trial that is done do not count, by their numbers, as far as the duel is over."""
        known = {block.number for block in self.blocks} | self._lost.keys()
        done = {own["block"] for name, own in self.params.items() if self._is_done(name)}
        late = done - known if self.blocks and (self._why or self.verdict.decided) else set()
        return {**self._lost, **dict.fromkeys(sorted(late), "")}

    def _is_done(self, name: str) -> bool:
        return name in self._started and self._started[name].state == "done"

    @property
    def notes(self) -> list[str]:
        """Why some seeds do not count, in sentences."""
        late = [str(number) for number, why in self.uncounted.items() if not why]
        said = [f"{self.anew}."] if self.anew else []
        said += [f"Seed {number} does not count, because {why}." for number, why in self._lost.items()]
        if len(late) == 1:
            said.append(f"Seed {late[0]} ended after the verdict and does not count.")
        elif late:
            said.append(
                f"Seeds {', '.join(late[:-1])} and {late[-1]} ended after the verdict and do not count."
            )
        return said

    def more(self, free: int) -> Iterable[str]:
        """Return the trials of further blocks, as many as have room, once no other block trains."""
        names: list[str] = []
        if free < self._at_once:
            return names
        if self._goes_on and (change := self._asked.data.change(data_of(self._asked.data.stream))):
            self.finish(f"{change}. Run the duel again: a new one begins, with the data as it is now")
        taken = {block.number for block in self.blocks}
        while free >= len(names) + 2 and self._goes_on:
            self._number += 1
            if self._number in taken:
                continue
            self._open.add(self._number)
            names += [self._enter(self._number, arm) for arm in range(2)]
        return names

    @property
    def _goes_on(self) -> bool:
        return (
            not self._why
            and not self.verdict.decided
            and not self.verdict.why
            and len(self.blocks) + len(self._open) < self._rules.most
        )

    def _enter(self, number: int, arm: int) -> str:
        name = f"{self._title}-{number}-{ARMS[arm]}"
        self.params[name] = {"arm": ARMS[arm], "block": number, "seed": seed_of(self._asked.root, number)}
        return name

    def launch(self, name: str, gate: Path | None) -> Trial:
        """Start one arm of a block."""
        own = self.params[name]
        plan = replanned(self._plans[_arm_of(name)], {"seed": own["seed"], "name": name}, gate)
        # in the records, too: a parameter of the user's that has such a name is kept
        told = {"arm": own["arm"], "block": own["block"], "duel": self._place}
        plan = replace(plan, naming=None, params={**told, **plan.params})
        self._started[name] = launch(plan, marked(self._here, name, self._budget))
        return self._started[name]

    def params_of(self, name: str) -> Mapping[str, Any]:
        """Return the arm and seed of a trial that waits."""
        return self.params[name]

    def ended(self, trial: Trial) -> None:
        """Take a trial's end; judge its block if the other arm has ended too."""
        number, arm = int(trial.name.rsplit("-", 2)[1]), _arm_of(trial.name)
        there = self._running.setdefault(number, {})
        there[arm] = trial
        if failed_by(trial, STREAMLESS):
            self.finish(f"trial {trial.name} has no stream: {_error_of(trial)}")
        if trial.state == "stopped" and trial.life.failure == WITH_STREAM:
            self.finish("its stream was stopped. Serve it again, and run the same duel")
        if len(there) < 2:
            other = self._started.get(f"{self._title}-{number}-{ARMS[1 - arm]}")
            if trial.state == "failed" and other is not None and not failed_by(trial, THE_LOADERS):
                watch = threading.Thread(target=self._outlast, args=(trial, other), daemon=True)
                watch.start()
            return
        del self._running[number]
        self._open.discard(number)
        if self._why or self.verdict.decided:
            return
        lasted = self._outlasted
        gone = next((one for one in there.values() if _says_nothing(one) and one.name not in lasted), None)
        if gone is not None:
            self._lose(number, gone)
            return
        unlogged = [
            a for a in (0, 1) if there[a].state == "done" and self._rules.metric not in there[a].metrics
        ]
        if unlogged:
            self.finish(self._unlogged(unlogged, there))
            return
        self._succession = 0
        self._take(self._block(number, there[0], there[1]))

    def _unlogged(self, arms: Sequence[int], there: Mapping[int, Trial]) -> str:
        """Return that some arms are done and never logged the metric, and what to do."""
        metric, logged = (
            self._rules.metric,
            dict.fromkeys(name for arm in arms for name in there[arm].metrics),
        )
        who = f"the {ARMS[arms[0]]}" if len(arms) == 1 else "both arms"
        it, hint = "It" if len(arms) == 1 else "They", did_you_mean(metric, logged)
        call = f"tsnb.log({metric}=...)" if metric.isidentifier() else f"tsnb.log(**{{{metric!r}: ...}})"
        told = f"{who} never logged {metric!r}. {it} logged {', '.join(logged) or 'nothing'}.{hint}"
        return f"{told} Log it in both trainings, {call}, and run the duel again"

    def _outlast(self, failed: Trial, other: Trial) -> None:
        """Stop an arm once it has taken more samples than the other one, whose code has raised. On a thread."""
        while not self._why and other.state not in ENDED:
            if _samples(other) > _samples(failed):
                self._outlasted.add(other.name)
                by = f"by its duel, because {failed.name} failed"
                the_hub().post(other.life.end(STOP_GRACE_S, "stopped", by))
                return
            time.sleep(LOOK_S)

    def _lose(self, number: int, trial: Trial) -> None:
        error = _error_of(trial)
        self._lost[number] = f"{trial.name} {trial.state}{': ' if error else ''}{error.rstrip('.')}"
        self._succession += 1
        self.say(f"seed {number} does not count, because {self._lost[number]}")
        if self._succession >= LOST:
            self.finish(
                f"{LOST} seeds in succession do not count. The last time, {self._lost[number]}. Read `tsnb logs "
                f"{trial.name}`, look for too little memory if a process was killed, and run the duel again"
            )

    def _block(self, number: int, a: Trial, b: Trial) -> Block:
        values = self._values(a, b)
        reports = a.report, b.report
        longer = next(
            (
                _arm_of(one.name)
                for one, other in ((a, b), (b, a))
                if other.state == "failed" and _samples(one) > _samples(other)
            ),
            None,
        )
        return Block(
            number,
            self.params[a.name]["seed"],
            *values,
            samples=(_samples(a), _samples(b)),
            batches=(int(reports[0].get("batches", 0)), int(reports[1].get("batches", 0))),
            raised=(_error_of(a), _error_of(b)),
            paired=_paired(a, b),
            outlasted="" if longer is None else ARMS[longer],
        )

    def _values(self, a: Trial, b: Trial) -> tuple[float, float]:
        """Return what both came to: by the last values, or by those at equal samples or seconds."""
        found = [_rows(trial, self._rules) for trial in (a, b)]
        if self._rules.equal and all(found):
            end = min(rows[-1][0] for rows in found)
            found = [[row for row in rows if row[0] <= end] or rows[:1] for rows in found]
        done = [
            rows[-1][1] if rows and t.state == "done" else math.nan
            for rows, t in zip(found, (a, b), strict=True)
        ]
        return done[0], done[1]

    def _take(self, block: Block) -> None:
        self._ledger.add(self._asked.duel, block)
        self.blocks.append(block)
        self.verdict = judge(self.blocks, self._rules, name=self._title)
        for listener in self._heard:
            listener(self.verdict)
        if self.verdict.decided or self.verdict.why:
            self.finish(self.verdict.why)

    def over(self) -> None:
        """Enter the verdict, and let go of what was shipped."""
        ended = self._why or "it was stopped"
        self.verdict = judge(self.blocks, self._rules, ended=ended, name=self._title)
        for plan in self._plans:
            plan.discard()
        self._ledger.end(self._asked.duel, self.verdict)
        for listener in self._heard:
            listener(self.verdict)
        if not self.says_verdict:
            return
        with contextlib.suppress(TimeoutError, RuntimeError):  # before whoever waits goes on
            the_hub().call(self._show(str(self.verdict)), SAID_S)

    def say(self, line: str) -> None:
        """Show a line where the trials' output is shown. From any thread; returns at once."""
        the_hub().post(self._show(line))

    async def _show(self, line: str) -> None:
        self._here.publish("stream", {"name": "stdout", "text": f"duel {self._title!r}: {line}\n"})


def _arm_of(name: str) -> int:
    return ARMS.index(name.rpartition("-")[2])


def _samples(trial: Trial) -> int:
    return int(trial.report.get("samples", 0))


def _paired(a: Trial, b: Trial) -> str:
    """Return what both arms had in common, as `Block.paired` has it; first weights are known of an optimizer's."""
    began = [_first_epoch(trial) for trial in (a, b)]
    weights = [trial.report.get("weights") for trial in (a, b)]
    if began[0] is None or began[0] != began[1] or a.report.get("stream") != b.report.get("stream"):
        return ""
    if not all(weights):
        return "batches"
    return "weights" if weights[0] == weights[1] else "other weights"


def _first_epoch(trial: Trial) -> int | None:
    """Return the stream's number of a trial's first epoch; None if it is not known."""
    for row in trial.metrics.rows:
        if row.epoch is not None and row.stream_epoch is not None:
            return int(row.stream_epoch - (row.epoch - 1))
    return None


def _says_nothing(trial: Trial) -> bool:
    """Return whether the end of a trial says nothing of its code."""
    return trial.state not in {"done", "failed"} or failed_by(trial, THE_LOADERS)


def _error_of(trial: Trial) -> str:
    """Return the first line of the error of a trial whose code raised."""
    return trial.life.failure.partition("\n")[0] if trial.state == "failed" else ""


def _rows(trial: Trial, rules: Rules) -> list[tuple[float, float]]:
    """Return when a trial had which values of the metric: by samples, or seconds since its first row."""
    rows: Sequence[LoggedRow] = trial.metrics.rows
    began_s = min((row.time_s for row in rows), default=time.time())
    return [
        (row.time_s - began_s if rules.equal == "time" else float(row.samples), row.numbers[rules.metric])
        for row in rows
        if rules.metric in row.numbers
    ]
