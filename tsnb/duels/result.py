"""`Duel`: what `tsnb.duel` returns. The verdict as it is now, its blocks as a table, and its trials.

`drawn` is its picture: a bar for each block's difference, and one for the evidence after it, with what decides.
"""

from __future__ import annotations

import contextlib
import html
import math
import threading
from collections.abc import Sequence
from typing import Any

from tsnb.duels.blocks import Arms
from tsnb.duels.ledger import Asked
from tsnb.duels.verdict import DuelVerdict
from tsnb.errors import TrialFailed
from tsnb.lazy import Hinting
from tsnb.native.endings import Bound
from tsnb.reports.svg import Picture
from tsnb.sweeps.sweep import Sweep
from tsnb.text.printable import harmless
from tsnb.text.words import html_table, text_table

__all__ = ["Duel", "drawn"]

WIDTH, HEIGHT = 720, 132
LEFT, RIGHT, TOP, TALL = 150, 16, 14, 48
"""Pixels: margins, and the height of each of the two rows."""
BAR = 14
"""Pixels of a bar, at most."""


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
        self.resumed = len(arms.blocks)
        self._arms = arms
        self._timer: threading.Timer | None = None

    def begin(self, budget_s: float | None) -> None:
        """Start the first blocks. Called once.

        Args:
            budget_s: Seconds after which it ends. None: it has no such end.
        """
        if budget_s is not None:
            self._timer = threading.Timer(
                budget_s, self._arms.finish, [f"its budget of {budget_s:g} s is spent"]
            )
            self._timer.daemon = True
            self._timer.start()
        try:
            self.trials.begin()
        except BaseException:
            self._end_timer()
            raise

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

        An interrupt ends the waiting, and the duel continues.

        Example:
            >>> duel.wait().verdict.word

        Args:
            timeout_s: Seconds to wait. Defaults to None, without a limit.

        Returns:
            This duel.

        Raises:
            TimeoutError: If the verdict is not final within `timeout_s` seconds. The duel continues.
        """
        with contextlib.suppress(TrialFailed):  # the verdict says so
            self.trials.wait(timeout_s)
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

    def _lines(self) -> list[str]:
        verdict = self.verdict
        still = verdict.still
        lines = [f"duel {self.name!r}: {verdict if self.over else f'running. So far {verdict}'}"]
        if not self.over and still:
            lines.append(f"About {still} more seeds are needed at this pace.")
        if verdict.blocks:
            lines.append(f"{verdict.about} {verdict.unequal}".strip())
        return lines

    def _table(self) -> list[list[str]]:
        verdict = self.verdict
        rows = [
            [str(block.number), str(block.seed), f"{block.incumbent:.4g}", f"{block.candidate:.4g}",
             f"{block.candidate - block.incumbent:+.3g}", f"{2.0 ** abs(log):.3g}"]
            for block, log in zip(verdict.blocks, verdict.over_time, strict=True)
        ]  # fmt: skip
        return [["block", "seed", "incumbent", "candidate", "difference", "evidence"], *rows]

    def __repr__(self) -> str:
        return harmless("\n".join([*self._lines(), *text_table(self._table())]))

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html.escape(harmless(line))}</p>" for line in self._lines())
        return f"{lines}{drawn(self.verdict)}{html_table(self._table())}"

    def results(self) -> Any:
        """Return a table of the duel's trials, one row per trial.

        Example:
            >>> duel.results()

        Returns:
            A pandas DataFrame where pandas is installed, else a list of dictionaries with the same keys.
        """
        return self.trials.results()


def drawn(verdict: DuelVerdict) -> str:
    """Return the picture as SVG; empty while no block has ended.

    Args:
        verdict: What the blocks say so far.
    """
    if not verdict.blocks:
        return ""
    better = [block.difference(verdict.rules.mode) for block in verdict.blocks]
    needed = math.log2(verdict.needed)
    picture = Picture(WIDTH)
    room = max(len(better), min(verdict.rules.most, 16))
    names = [f"seed {block.number}: {block.candidate - block.incumbent:+.3g}" for block in verdict.blocks]
    _row(picture, TOP, "better by seed", better, _largest(better), room, names)
    _row(
        picture,
        TOP + TALL + 12,
        "evidence",
        verdict.over_time,
        max(needed * 1.1, _largest(verdict.over_time)),
        room,
        [f"{2.0 ** abs(log):.3g} times" for log in verdict.over_time],
        line=needed,
    )
    label = f"Differences and evidence of {len(better)} seeds: {verdict}"
    return picture.finished(HEIGHT, label, fluid=True)


def _largest(values: Sequence[float]) -> float:
    return max((abs(value) for value in values if math.isfinite(value)), default=0.0) or 1.0


def _row(
    picture: Picture,
    top: float,
    label: str,
    values: Sequence[float],
    most: float,
    room: int,
    titles: Sequence[str],
    line: float = 0.0,
) -> None:
    """Draw bars above and below a line, and where they decide."""
    middle, half = top + TALL / 2, TALL / 2
    step = (WIDTH - LEFT - RIGHT) / room
    picture.text(LEFT - 8, middle + 4, label, "soft", at="end")
    picture.rect(LEFT, middle - 0.5, WIDTH - LEFT - RIGHT, 1, "line")
    for sign in (1, -1) if line else ():
        picture.rect(LEFT, middle - sign * half * line / most - 0.5, WIDTH - LEFT - RIGHT, 1, "soft-line")
    for at, (value, title) in enumerate(zip(values, titles, strict=True)):
        tall = half * min(abs(value), most) / most
        left = LEFT + step * at + (step - min(step - 2, BAR)) / 2
        picture.rect(
            left,
            middle - tall if value > 0 else middle,
            min(step - 2, BAR),
            max(tall, 1),
            "#2E7D6B" if value > 0 else "waiting",
            title=title,
        )
