"""`Duel`: what `tsnb.duel` returns. The verdict as it is now, its blocks as a table, and its trials.

`shown` has those that the panel and reports show, as `Duel.told` has them.
"""

from __future__ import annotations

import contextlib
import html
import math
import os
import threading
from collections.abc import Collection
from typing import Any

from tsnb.duels.blocks import Arms
from tsnb.duels.ledger import Asked
from tsnb.duels.seeds import ARMS, Block
from tsnb.duels.verdict import SHOWN, DuelVerdict, signed
from tsnb.errors import TrialFailed
from tsnb.lazy import Hinting
from tsnb.native.endings import Bound
from tsnb.reports.learned.duelled import Duelled, draw_bars, sources
from tsnb.reports.svg import Picture
from tsnb.sweeps.sweep import Sweep
from tsnb.telemetry.shown.outcome import duel_texts
from tsnb.text.printable import harmless
from tsnb.text.words import html_table, text_table

__all__ = ["Duel", "drawn", "enter", "seed_line", "shown"]

WIDTH, EDGE = 720, 14
"""Pixels of the picture, and around its bars."""


class Duel(Bound, Hinting):
    """Hold two arms that are compared over seeds, and show the verdict.

    Made by `tsnb.duel`. The verdict is up to date each time it is shown.

    Example:
        >>> duel = tsnb.duel(train, changed, metric="loss")
        >>> print(duel.wait())

    Attributes:
        name: Name of the duel.
        trials: Trials of both arms by name, as a sweep.
        series: Name of the series whose error it shares, or empty.
        stream: Name of the stream that both arms read, or empty if their code names it.
        resumed: Number of seeds that it has from an earlier process.

    Args:
        name: Name of the duel.
        arms: Its blocks under way.
        trials: Its trials.
        asked: Its entry in the ledger.
    """

    _instead = "Pass its verdict instead: duel.verdict.to_dict()."
    _meant = dict.fromkeys(("kill", "cancel", "terminate"), "stop()") | {
        "join": "wait()",
        "result": "verdict",
        "blocks": "verdict.blocks",
    }

    def __init__(self, name: str, arms: Arms, trials: Sweep, asked: Asked) -> None:
        self.name = name
        self.trials = trials
        self.series = asked.series
        self.stream = asked.data.stream
        self.resumed = len(arms.blocks)
        self._arms = arms
        self._timer: threading.Timer | None = None

    def begin(self, budget_s: float | None) -> None:
        """Start the first blocks. Called once.

        Args:
            budget_s: Seconds after which it ends. None: it has no such end.
        """
        if budget_s is not None:
            self._timer = threading.Timer(budget_s, self._spend, [budget_s])
            self._timer.daemon = True
            self._timer.start()
        try:
            self.trials.begin()
        except BaseException:
            self._end_timer()
            raise

    def _spend(self, budget_s: float) -> None:
        why = f"its budget of {budget_s:g} s is spent"
        if not self.verdict.blocks:
            why += " before a seed has ended. To continue, run the same duel again with a larger budget_s="
        self._arms.finish(why)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def verdict(self) -> DuelVerdict:
        """DuelVerdict after the seeds that have ended."""
        return self._arms.verdict

    @property
    def over(self) -> bool:
        """Whether the verdict is final."""
        return self.trials.over

    def wait(self, timeout_s: float | None = None) -> Duel:
        """Wait until the verdict is final.

        An interrupt ends the waiting, and the duel continues. A line says so. If the interrupt also ends the `with`
        block that serves the stream, the duel is stopped first.

        Example:
            >>> duel.wait().verdict.word

        Args:
            timeout_s: Seconds to wait. Defaults to None, without a limit.

        Returns:
            This duel.

        Raises:
            TimeoutError: If the verdict is not final within `timeout_s` seconds. The duel continues.
        """
        try:
            with contextlib.suppress(TrialFailed):  # the verdict says so
                self.trials.wait(timeout_s)
        except TimeoutError:
            now = f"So far {self.verdict.said}. {self.verdict.needs}".rstrip()
            raise TimeoutError(
                f"Duel {self.name!r} is not over after {timeout_s} s, and continues. {now}"
            ) from None
        except KeyboardInterrupt:
            if not self.over:
                self._arms.say("the duel continues while its stream is served. To end it, call its stop()")
            raise
        self._end_timer()
        return self

    def stop(self) -> None:
        """Stop both arms of every seed. The verdict of the seeds that have ended stays.

        The same code under the same name continues the duel later.

        Example:
            >>> duel.stop()
        """
        self._end_timer()
        self._arms.finish("it was stopped")
        self.trials.stop()

    @property
    def notes(self) -> list[str]:
        """Sentences on the seeds that do not count: an arm was killed, the data was other, or they came too late."""
        return self._arms.notes

    def told(self) -> dict[str, Any]:
        """Return all that screens show of it, as strict JSON: `DuelVerdict.told`, with the seeds that do not count."""
        told = self.verdict.told(self.name, over=self.over)
        return {**told, "about": " ".join(line for line in (told["about"], *self.notes) if line)}

    def _lines(self) -> list[str]:
        verdict = self.verdict
        lines = [
            f"duel {self.name!r}: {'' if self.over else 'running. So far '}{verdict.said}",
            verdict.needs,
        ]
        lines += [f"{verdict.about} {verdict.unequal}".strip() if verdict.compared else "", *self.notes]
        return [line for line in lines if line]

    def _table(self) -> list[list[str]]:
        rows = _rows(self.verdict)
        if not rows:
            return []
        head = ["block", "seed", "incumbent", "candidate", "difference", "evidence", "evidence for"]
        return [head, *rows]

    def __repr__(self) -> str:
        table = self._table()
        return harmless("\n".join([*self._lines(), *(text_table(table) if table else [])]))

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html.escape(harmless(line))}</p>" for line in self._lines())
        table = self._table()
        return f"{lines}{drawn(self.told())}{html_table(table) if table else ''}"

    def results(self) -> Any:
        """Return a table of the duel's trials, one row per trial.

        Example:
            >>> duel.results()

        Returns:
            A pandas DataFrame where pandas is installed, else a list of dictionaries with the same keys.
        """
        return self.trials.results()


def seed_line(verdict: DuelVerdict, at: int) -> str:
    """Return what a seed came to, in a line for a terminal.

    Args:
        verdict: A verdict that has this seed.
        at: Its place among the seeds that count, from 0.
    """
    number, _, incumbent, candidate, difference, evidence, side = _rows(verdict)[at]
    arms = f"incumbent {incumbent}, candidate {candidate}"
    apart = f", difference {difference}" if difference else ""
    return f"seed {number}: {arms}{apart}, evidence {evidence}{f' for {side}' if side else ''}"


def _rows(verdict: DuelVerdict) -> list[list[str]]:
    return [
        [str(row["block"]), str(row["seed"]), *(_came_to(block, arm) for arm in (0, 1)),
         signed(row["difference"]) if math.isfinite(row["difference"]) else row["favours"],
         f"{row['evidence']:.3g}", row["for"]]
        for row, block in zip(verdict.rows, verdict.blocks, strict=True)
    ]  # fmt: skip


def _came_to(block: Block, arm: int) -> str:
    """Return what an arm of a block came to, in a word or a number."""
    if block.raised[arm]:
        return "failed"
    return "stopped" if block.outlasted == ARMS[arm] else f"{(block.incumbent, block.candidate)[arm]:.4g}"


def drawn(told: Duelled) -> str:
    """Return the picture as SVG; empty while no block has ended.

    Args:
        told: The duel as `Duel.told` has it.
    """
    if not told["blocks"]:
        return ""
    picture = Picture(WIDTH)
    height = draw_bars(picture, told, (0, WIDTH - EDGE), EDGE) + EDGE
    return picture.finished(height, f"Differences and evidence of seeds: {told['said']}", fluid=True)


_duels: dict[str, Duel] = {}
os.register_at_fork(after_in_child=_duels.clear)  # they are the parent's, as their trials are


def enter(made: Duel) -> None:
    """Take in a duel, in the place of a former one of its name.

    Args:
        made: The duel.
    """
    _duels.pop(made.name, None)
    _duels[made.name] = made


def shown() -> list[Duel]:
    """Return the newest duels, the last one of each name, in the order of their start."""
    return list(_duels.values())[-SHOWN:]


def _duels_of(trials: Collection[str]) -> list[dict[str, Any]]:
    return [duel.told() for duel in _of(trials)]


def _of(trials: Collection[str]) -> list[Duel]:
    return [duel for duel in shown() if not duel.trials.params.keys().isdisjoint(trials)]


def _said_of(trials: Collection[str]) -> str:
    # four times a second: no more of it than the sentence
    said = ((duel.name, duel.verdict.sentence(over=duel.over)) for duel in _of(trials))
    return " ".join(f"Duel {name}: {sentence.rstrip('.')}." for name, sentence in said)


sources.append(_duels_of)
duel_texts.append(_said_of)
