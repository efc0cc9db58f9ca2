"""The few shapes that a report's picture is made of, as SVG text, and the colours of all figures.

There is no script in it, and no reference to anything outside.

Colours stand in attributes, for light pages; what must differ on dark ones has a class as well, which a style sheet
in the picture overrides. Where a page strips style sheets (some do) the picture is the light one, on a ground of its
own: readable everywhere.

The colours are the panel's own, so that a trial looks the same everywhere.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from tsnb.show.words import COLOURS
from tsnb.telemetry.lives.runs import trial_of
from tsnb.text.names import family_of, shortened

__all__ = [
    "BETWEEN",
    "COMPUTING",
    "HELD",
    "LIGHT",
    "PARKED",
    "PART_COLOURS",
    "SHAPES",
    "WAITING",
    "Picture",
    "colours_of",
    "fitted",
    "marked",
    "named",
    "shapes_of",
    "text_width",
    "wrapped",
]

WAITING = "#C79A3F"
"""Waiting for data: the amber of the panel's bars on white. Red is for errors."""

HELD = "#C3CAD2"
"""Held back by the slowest."""

BETWEEN = "#EEF1F4"
"""Between epochs: attached, and nothing is read."""

PARKED = "#D65A63"
"""Parked: stood still past the stream's stall timeout."""

JOINING = "#A99BC4"
"""Waiting for a pass that it can join."""

PAUSED = "#8C96A3"
"""Paused, by somebody."""

COMPUTING = "#656D76"
"""Computing of no trial in particular: in legends."""

PART_COLOURS = {
    "waiting": WAITING,
    "held": HELD,
    "joining": JOINING,
    "between": BETWEEN,
    "paused": PAUSED,
    "parked": PARKED,
}
"""What a trial's time goes to beside computing, which has the trial's own colour."""


def colours_of(names: Iterable[str], lanes: Mapping[str, int]) -> dict[str, str]:
    """Return a colour for each trial, as the panel gives them out.

    The runs of one name (`runs_apart`) share it.

    Args:
        names: The trials'.
        lanes: The number of each trial that has one (`lanes_of`); the others follow, in their order.
    """
    return {name: COLOURS[number % len(COLOURS)] for name, number in _numbers_of(names, lanes).items()}


def shapes_of(names: Iterable[str], lanes: Mapping[str, int]) -> dict[str, str]:
    """Return an outline of `SHAPES` for each trial: where there are more trials than colours, they differ by it."""
    return {name: SHAPES[number % len(SHAPES)] for name, number in _numbers_of(names, lanes).items()}


def _numbers_of(names: Iterable[str], lanes: Mapping[str, int]) -> dict[str, int]:
    found = list(names)
    numbers = dict(lanes)
    for name in map(trial_of, found):
        numbers.setdefault(name, max(numbers.values(), default=-1) + 1)
    return {name: numbers[trial_of(name)] for name in found}


SHAPES = (
    "M-4.2 0A4.2 4.2 0 1 0 4.2 0A4.2 4.2 0 1 0 -4.2 0Z",
    "M-3.8 -3.8H3.8V3.8H-3.8Z",
    "M0 -4.6L4.8 3.8H-4.8Z",
    "M0 -5L5 0L0 5L-5 0Z",
    "M0 4.6L4.8 -3.8H-4.8Z",
    "M-1.7 -4.6H1.7V-1.7H4.6V1.7H1.7V4.6H-1.7V1.7H-4.6V-1.7H-1.7Z",
    "M-4.5 -2.3L-2.3 -4.5L0 -2.2L2.3 -4.5L4.5 -2.3L2.2 0L4.5 2.3L2.3 4.5L0 2.2L-2.3 4.5L-4.5 2.3L-2.2 0Z",
)
"""Outlines by which trials of one colour are told apart, each in a box from -5 to 5: those of the panel."""

FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"

_WIDTHS = (
    (0.33, " ',.IJijl|"),
    (0.42, "!()-/:;[]frt"),
    (0.56, '"*?L_`csz'),
    (0.64, "$0123456789EFPSTYabdeghknopquvxy{}"),
    (0.70, "ABCKRVXZ"),
    (0.80, "&DGHNOQU"),
)
_WIDTH_OF = {letter: width for width, letters in _WIDTHS for letter in letters}
"""What letters take of the font's size, at most, in the widest font of `FONT` (DejaVu Sans); others take all of it."""


_BOLD = 1.17
"""How much wider letters are in bold, at most."""


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return how wide a text is at most, in pixels, in a font of a size."""
    return (_BOLD if bold else 1.0) * size * sum(_WIDTH_OF.get(letter, 1.0) for letter in text)


def fitted(text: str, room: float, size: float, *, bold: bool = False) -> str:
    """Return a text, its end left out where it is wider than so many pixels."""
    while len(text) > 1 and text_width(text, size, bold=bold) > room:
        text = text[:-2] + "…"
    return text


_FEWEST = 9
"""Letters of a name at least, as in the panel's narrowest table."""


@functools.lru_cache(maxsize=32)
def _ways(names: tuple[str, ...]) -> tuple[Mapping[str, str], ...]:
    """Return names cut to fewer and fewer letters. Kept: a picture asks for each table and chart, and is made anew."""
    return tuple(shortened(names, most) for most in range(max([_FEWEST, *map(len, names)]), _FEWEST - 1, -1))


def named(names: Iterable[str], room: float, size: float, bold: Collection[str] = ()) -> dict[str, str]:
    """Return by name what to write of it in so many pixels, so that all can be told apart; some are bold.

    The names of one sweep are cut in one way.
    """
    found = list(dict.fromkeys(names))
    ways = _ways(tuple(found))

    def fit(way: Mapping[str, str], those: Iterable[str]) -> bool:
        return all(text_width(way[name], size, bold=name in bold) <= room for name in those)

    families: dict[str, list[str]] = {}
    for name in found:
        families.setdefault(family_of(name), []).append(name)
    written: dict[str, str] = {}
    for its in families.values():
        way = next((way for way in ways if fit(way, its)), ways[-1])
        written |= {name: fitted(way[name], room, size, bold=name in bold) for name in its}
    if len(set(written.values())) == len(written):
        return written
    way = next((way for way in ways if fit(way, found)), ways[-1])
    return {name: fitted(way[name], room, size, bold=name in bold) for name in found}


def wrapped(lead: str, rest: str, room: float, size: float) -> Iterator[list[tuple[str, bool]]]:
    """Give a sentence in lines that are no wider than so many pixels, as `Picture.spans` takes them; the lead is bold.

    A number stays with its percent sign. A word that is wider than a line loses its end.
    """
    line: list[tuple[str, bool]] = []
    left = room
    for part, bold in ((lead, True), (rest, False)):
        for whole in re.split(r"\s+(?!%)", part.strip()) if part.strip() else ():
            word = fitted(whole, room, size, bold=bold)
            wide = text_width(word, size, bold=bold)
            if line and wide > left:
                yield line
                line, left = [], room
            line.append((word + " ", bold))
            left -= wide + text_width(" ", size, bold=bold)
    if line:
        yield line


LIGHT = {
    "ground": "#ffffff",
    "edge": "#d8dee4",
    "text": "#1f2328",
    "soft": "#59636e",
    "card": "#f6f8fa",
    "line": "#d8dee4",
    "soft-line": "#8c959f",
    "held-line": HELD,
    "bad": "#cf222e",
    "bad-line": "#cf222e",
    **PART_COLOURS,
}
"""What each role is painted with on light pages."""

DARK = {
    **LIGHT,
    "ground": "#0f141a",
    "edge": "#30363d",
    "text": "#e6edf3",
    "soft": "#9aa4af",
    "card": "#1a2028",
    "line": "#30363d",
    "soft-line": "#6e7681",
    "held": "#4d5661",
    "held-line": "#4d5661",
    "bad": "#f85149",
    "bad-line": "#f85149",
    "between": "#20272f",
    "parked": "#a88434",
    "joining": "#7d6fa0",
    "paused": "#6e7681",
}
"""And on dark ones."""


def _style() -> str:
    """Return the style sheet for dark pages; class names are ours alone, since a page may inline the picture."""
    rules = "".join(
        f".tsnb-r .tsnb-r-{role}{{{'stroke' if role.endswith('line') else 'fill'}:{colour}}}"
        for role, colour in DARK.items()
        if colour != LIGHT[role] and role != "edge"
    )
    ground = f".tsnb-r .tsnb-r-ground{{stroke:{DARK['edge']}}}"
    return f"<style>@media (prefers-color-scheme:dark){{{rules}{ground}}}</style>"


def marked(svg: str, mark: str) -> str:
    """Return a picture with an id, by which a page finds it."""
    return svg.replace("<svg ", f'<svg id="{mark}" ', 1)


class Picture:
    """Collects shapes; coordinates in pixels from the left top.

    Args:
        width: Pixels.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._shapes: list[str] = []

    def finished(self, height: float, label: str, *, fluid: bool = False) -> str:
        """Return the picture.

        Args:
            height: Pixels.
            label: What a screen reader says instead.
            fluid: As wide as its place, for cells: JupyterLab cuts off what is wider. Left out: its own width, where
                there is room for that.
        """
        tall = round(height)
        size = (
            'width="100%"'
            if fluid
            else f'width="{self.width}" height="{tall}" style="max-width:100%;height:auto"'
        )
        ground = (
            f'<rect class="tsnb-r-ground" x="0.5" y="0.5" width="{self.width - 1}" height="{tall - 1}" rx="8" '
            f'fill="{LIGHT["ground"]}" stroke="{LIGHT["edge"]}"/>'
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="tsnb-r" viewBox="0 0 {self.width} {tall}" '
            f'{size} role="img" aria-label="{html.escape(label)}" font-family="{FONT}" font-size="12">'
            f"{_style()}{ground}{''.join(self._shapes)}</svg>"
        )

    def rect(
        self, x: float, y: float, width: float, height: float, paint: str, rx: float = 0, title: str = ""
    ) -> None:
        """Draw a rectangle; `paint` is a role of `LIGHT` or a colour."""
        round_ = f' rx="{rx:g}"' if rx else ""
        inside = f"><title>{html.escape(title)}</title></rect>" if title else "/>"
        self._shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"{round_}{_fill(paint)}{inside}'
        )

    def ring(self, x: float, y: float, radius: float, paint: str, title: str = "") -> None:
        """Draw a circle that is not filled."""
        stroke = (
            f' class="tsnb-r-{paint}" stroke="{LIGHT[paint]}"' if paint in LIGHT else f' stroke="{paint}"'
        )
        hint = f"<title>{html.escape(title)}</title>"
        round_ = f"a{radius:g} {radius:g} 0 1 0"
        d = f"M{x - radius:g} {y:g}{round_} {2 * radius:g} 0{round_} {-2 * radius:g} 0Z"
        self._shapes.append(f'<path d="{d}" fill="none"{stroke} stroke-width="2">{hint}</path>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        paint: str = "text",
        *,
        size: float = 12,
        bold: bool = False,
        at: str = "start",
        title: str = "",
    ) -> None:
        """Write a text at its baseline; `at` is start, middle or end."""
        self.spans(x, y, [(text, bold)], paint, size=size, at=at, title=title)

    def spans(
        self,
        x: float,
        y: float,
        spans: Iterable[tuple[str, bool]],
        paint: str = "text",
        *,
        size: float = 12,
        at: str = "start",
        title: str = "",
    ) -> None:
        """Write a line of texts, each bold or not."""
        anchor = f' text-anchor="{at}"' if at != "start" else ""
        hint = f"<title>{html.escape(title)}</title>" if title else ""
        inside = "".join(
            f'<tspan font-weight="600">{html.escape(text)}</tspan>' if bold else html.escape(text)
            for text, bold in spans
        )
        self._shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}"{anchor}{_fill(paint)}>{hint}{inside}</text>'
        )

    def line(
        self, x: float, y: float, x2: float, y2: float, *, paint: str = "line", dotted: bool = False
    ) -> None:
        """Draw a thin line."""
        dots = ' stroke-dasharray="2 2"' if dotted else ""
        stroke = f' class="tsnb-r-{paint}" stroke="{LIGHT[paint]}"'
        self._shapes.append(f'<path d="M{x:.1f} {y:.1f}L{x2:.1f} {y2:.1f}" fill="none"{stroke}{dots}/>')

    def path(self, d: str, paint: str) -> None:
        """Fill a path."""
        self._shapes.append(f'<path d="{d}"{_fill(paint)}/>')

    def shape(self, outline: str, x: float, y: float, size: float, paint: str) -> None:
        """Fill one of `SHAPES` around a place."""
        moved = f' transform="translate({x:.1f} {y:.1f}) scale({size / 10:g})"'
        self._shapes.append(f'<path d="{outline}"{_fill(paint)}{moved}/>')

    def stroke(self, d: str, paint: str, width: float, *, opacity: float = 1.0) -> None:
        """Draw along a path."""
        colour = (
            f' class="tsnb-r-{paint}" stroke="{LIGHT[paint]}"' if paint in LIGHT else f' stroke="{paint}"'
        )
        pale = f' stroke-opacity="{opacity:g}"' if opacity < 1 else ""
        line = f'fill="none"{colour} stroke-width="{width:g}" stroke-linejoin="round"{pale}'
        self._shapes.append(f'<path d="{d}" {line}/>')


def _fill(paint: str) -> str:
    return f' class="tsnb-r-{paint}" fill="{LIGHT[paint]}"' if paint in LIGHT else f' fill="{paint}"'
