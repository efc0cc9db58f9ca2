"""Duels of a stream's trials in its report: the verdict, and a bar for each seed. Pure.

A duel comes as `DuelVerdict.told` has it: the same numbers under the same names as in the panel and in `tsnb status`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

from tsnb.reports.svg import Picture, fitted, text_width, wrapped

__all__ = ["Duelled", "draw_bars", "draw_duels", "duel_lines", "duels_of", "sources"]

Duelled = Mapping[str, Any]
"""A duel as screens have it."""

sources: list[Callable[[Collection[str]], list[dict[str, Any]]]] = []
"""Each returns the duels of this process that have one of some trials, by their names."""

LABELS = 150
"""Pixels left of the bars."""
TALL, APART = 48, 20
"""Pixels: the height of each of the two rows of bars, and between them, where the numbers of seeds stand."""
SMALL = 9.5
"""Of the font of scales and seeds."""
BAR = 14
"""Pixels of a bar, at most."""
FEWEST = 16
"""Seeds that have room at least."""
WIDEST = 160
"""Letters of a line in the text."""
GOOD, BAD = "#2E7D6B", "waiting"


def duels_of(trials: Collection[str]) -> tuple[Duelled, ...]:
    """Return the duels that have one of these trials.

    Args:
        trials: Their names.
    """
    return tuple(duel for source in sources for duel in source(trials))


def _sentences(duel: Duelled, *, brief: bool = False) -> list[str]:
    """Return what is said below a duel's name; in brief not what a duel that is over is about."""
    lines = [duel["said"], duel["needs"], "" if brief and duel["over"] else duel["about"]]
    return [line for line in lines if line]


def duel_lines(duels: Sequence[Duelled], *, brief: bool = False) -> Iterator[str]:
    """Give them as lines of text, each with a heading.

    Args:
        duels: The duels.
        brief: Whether to leave out what those are about that are over.
    """
    for duel in duels:
        yield ""
        head, said = f"Duel {duel['duel']}: ", _sentences(duel, brief=brief)
        if said[0].startswith(duel["state"]):  # it need not be said twice
            said[0] = f"{head}{said[0]}"
        else:
            yield f"{head}{duel['state']}"
        for sentence in said:
            yield from wrap(sentence, WIDEST)


def draw_duels(picture: Picture, duels: Sequence[Duelled], span: tuple[float, float], y: float) -> float:
    """Draw them; return where the picture goes on.

    Args:
        picture: Where to draw.
        duels: The duels.
        span: Left and right edge.
        y: Below what is drawn already.
    """
    left, room = span[0], span[1] - span[0]
    for duel in duels:
        y += 34
        name, state = f"Duel {duel['duel']}", f"  {duel['state']}"
        name = fitted(name, room - text_width(state, 13), 13, bold=True)
        picture.spans(left, y, [(name, True), (state, False)], size=13)
        for spans in (line for said in _sentences(duel) for line in wrapped("", said, room, 11)):
            y += 16
            picture.spans(left, y, spans, "soft", size=11)
        if duel["blocks"]:
            y = draw_bars(picture, duel, span, y + 12)
    return y


def draw_bars(picture: Picture, duel: Duelled, span: tuple[float, float], y: float) -> float:
    """Draw a bar for each seed's difference, and one for the evidence after it; return where the picture goes on.

    Args:
        picture: Where to draw.
        duel: The duel, with one seed or more.
        span: Left and right edge.
        y: Where the bars begin.
    """
    rows, sign = duel["blocks"], 1 if duel["mode"] == "max" else -1
    room = max(len(rows), min(duel["most"], FEWEST))
    gains = [_gain(row, sign) for row in rows]
    logs = [math.log2(row["evidence"]) * {"better": 1, "worse": -1}.get(row["for"], 0) for row in rows]
    names = [f"seed {row['block']}: {_difference(row)}" for row in rows]
    told = [f"seed {row['block']}: evidence {row['evidence']:.3g}, {row['for'] or 'none'}" for row in rows]
    most = max([abs(gain) for gain in gains if math.isfinite(gain)], default=0.0)
    scale = f"{most:.3g} better", f"{most:.3g} worse" if min(gains) < 0 else ""
    _bars(picture, span, y, ("better by seed", gains, names), room, scale=scale if most else ("", ""))
    _seeds(picture, span, y + TALL + 11, [row["block"] for row in rows], room)
    y += TALL + APART
    decided = f"{duel['needed']:.3g}: better", f"{duel['needed']:.3g}: worse"
    _bars(picture, span, y, ("evidence", logs, told), room, decides=math.log2(duel["needed"]), scale=decided)
    return y + TALL


def _gain(row: Mapping[str, Any], sign: int) -> float:
    """Return how much better the candidate is; infinite if only one of the two has a number."""
    if row["difference"] is not None:
        return float(row["difference"]) * sign
    return {"better": math.inf, "worse": -math.inf}.get(row["favours"], 0.0)


def _difference(row: Mapping[str, Any]) -> str:
    if row["difference"] is not None:
        return f"{row['difference']:+.3g}"
    return f"no number, {row['favours'] or 'equal'}"


def _bars(
    picture: Picture,
    span: tuple[float, float],
    top: float,
    what: tuple[str, Sequence[float], Sequence[str]],
    room: int,
    decides: float = 0.0,
    scale: tuple[str, str] = ("", ""),
) -> None:
    """Draw bars above and below a line, and where they decide; `scale`: what its upper and lower end stand for."""
    (label, values, titles), left, width = what, span[0] + LABELS, span[1] - span[0] - LABELS
    most = max([abs(value) for value in values if math.isfinite(value)] + [1.1 * decides]) or 1.0
    middle, half = top + TALL / 2, TALL / 2
    step = width / room
    picture.text(left - 8, middle + 4, label, "soft", at="end")
    for text, y in zip(scale, (top + 7, top + TALL), strict=True):
        if text:
            picture.text(left - 8, y, text, "soft", size=SMALL, at="end")
    picture.rect(left, middle - 0.5, width, 1, "line")
    for side in (1, -1) if decides else ():
        picture.rect(left, middle - side * half * decides / most - 0.5, width, 1, "soft-line")
    for at, (value, title) in enumerate(zip(values, titles, strict=True)):
        tall, wide = half * min(abs(value), most) / most, min(step - 2, BAR)
        picture.rect(
            left + step * at + (step - wide) / 2,
            middle - tall if value > 0 else middle,
            wide,
            max(tall, 1),
            GOOD if value > 0 else BAD,
            title=title,
        )


def _seeds(picture: Picture, span: tuple[float, float], y: float, numbers: Sequence[int], room: int) -> None:
    """Write the number of each seed below its bar; where there is no room for all, of every second or so."""
    left, step = span[0] + LABELS, (span[1] - span[0] - LABELS) / room
    wide = max((text_width(str(number), SMALL) for number in numbers), default=0.0) + 4
    picture.text(left - 8, y, "seed", "soft", size=SMALL, at="end")
    for at in range(0, len(numbers), max(1, math.ceil(wide / step))):
        picture.text(left + step * (at + 0.5), y, str(numbers[at]), "soft", size=SMALL, at="middle")
