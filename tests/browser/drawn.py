"""What is drawn of learning curves, read from a page's canvases and from a picture, in the numbers of their axes."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["RECORDS", "Curves", "alike", "in_picture", "on_canvas"]

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"

RECORDS = """(() => {
  const of = CanvasRenderingContext2D.prototype;
  const also = (name, act) => {
    const own = of[name];
    of[name] = function (...args) { act(this, ...args); return own.apply(this, args); };
  };
  const keep = (ctx, what) => ctx.canvas.drawn && ctx.canvas.drawn.push(what);
  const width = (ctx) => Math.round(10 * ctx.lineWidth) / 10;
  const style = (ctx) => ({ colour: ctx.strokeStyle, width: width(ctx), alpha: ctx.globalAlpha });
  also('clearRect', (ctx) => { ctx.canvas.drawn = []; });
  also('beginPath', (ctx) => { ctx.points = []; });
  for (const name of ['moveTo', 'lineTo']) also(name, (ctx, x, y) => ctx.points && ctx.points.push([x, y]));
  also('stroke', (ctx) => ctx.points && keep(ctx, { ...style(ctx), points: ctx.points }));
  also('fillText', (ctx, text, x, y) => keep(ctx, { text, x, y }));
})()"""
"""Keeps with each canvas what is drawn on it."""

Curves = dict[str, dict[str, list[tuple[float, float]]]]
"""Points by metric and trial."""


def number(text: str) -> float:
    """Return the number that an axis shows."""
    plain_ = text.replace(",", "").removesuffix("%").strip()
    return float(plain_) / (100 if text.endswith("%") else 1)


def scaled(labels: list[tuple[float, str]]) -> Any:
    """Return the function from pixels to the numbers of an axis, by the labels at its ends."""
    (a, low), (b, high) = labels[0], labels[-1]
    assert a != b, f"an axis needs two labels: {labels}"
    return lambda at: number(low) + (at - a) * (number(high) - number(low)) / (b - a)


def on_canvas(drawn: dict[str, list[dict[str, Any]]], trials: Iterable[str]) -> Curves:
    """Return the curves that a page has drawn: a thick line each, in the order of the names at their ends.

    Args:
        drawn: The steps of drawing, by metric.
        trials: All names: those beside the curves may be their ends only.
    """
    found: Curves = {}
    for name, steps in drawn.items():
        texts = [step for step in steps if "text" in step]
        bottom = max(step["y"] for step in texts)
        x = scaled([(step["x"], step["text"]) for step in texts if step["y"] == bottom])
        # where the numbers of the axis end: it is as wide as they are
        left = min(step["x"] for step in texts if step["y"] != bottom)
        y = scaled([(step["y"], step["text"]) for step in texts if step["x"] == left])
        names = [step["text"] for step in texts if step["x"] != left and step["y"] != bottom]
        lines = [step["points"] for step in steps if step.get("width") == 1.8]
        found[name] = {
            next(one for one in trials if one.endswith(short.removeprefix(ELLIPSIS))): [
                (x(a), y(b)) for a, b in line
            ]
            for short, line in zip(names, lines, strict=True)
        }
    return found


@dataclass
class Chart:
    """What is drawn in one chart of a picture."""

    name: str
    across: list[tuple[float, str]] = field(default_factory=list)
    up: list[tuple[float, str]] = field(default_factory=list)
    lines: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def take(self, node: ET.Element, square: str) -> None:
        """Take in one element; `square`: the colour of the last filled shape."""
        text, size = "".join(node.itertext()), node.get("font-size")
        if node.get("stroke-width") == "1.8":
            self.lines[str(node.get("stroke"))] = str(node.get("d"))
        elif size == "10.5" and node.get("text-anchor") == "end" and not self.across:
            self.up.append((float(node.get("y", 0)) - 4, text))
        elif size == "10.5":
            self.across.append((float(node.get("x", 0)), text))
        elif size == "11" and text != "by batch":
            self.names[square] = str(node[0].text) if len(node) else text

    @property
    def curves(self) -> dict[str, list[tuple[float, float]]]:
        x, y = scaled(self.across), scaled(self.up)
        paths = {colour: re.findall(r"([\d.]+) ([\d.]+)", d) for colour, d in self.lines.items()}
        return {
            self.names[colour]: [(x(float(a)), y(float(b))) for a, b in path]
            for colour, path in paths.items()
        }


def in_picture(svg: str) -> Curves:
    """Return the curves of a picture: a thick line each, whose colour is that of the square before its name."""
    charts: list[Chart] = []
    square = ""
    for node in ET.fromstring(svg):
        bold = [part for part in node if part.get("font-weight") and not part.tail]
        if node.get("font-size") == "13" and len(bold) == 1 and not node.text:
            charts.append(Chart(str(node[0].text)))  # its tooltip, where it is cut
        elif "".join(node.itertext()) == "trial":
            break
        elif charts:
            square = str(node.get("fill")) if node.get("d") and node.get("fill") != "none" else square
            charts[-1].take(node, square)
    return {chart.name: chart.curves for chart in charts}


def alike(curves: Curves, pictured: Curves) -> None:
    """A picture has the points of the page's curves, as far as its pixels go."""
    names = [{name: sorted(its) for name, its in one.items()} for one in (pictured, curves)]
    assert names[0] == names[1]
    for name, its in curves.items():
        every = [value for points in its.values() for _, value in points]
        near = (max(every) - min(every) or abs(every[0])) / 80
        for trial, points in its.items():
            own = pictured[name][trial]
            assert len(own) == len(points), (name, trial)
            for (x, y), (a, b) in zip(points, own, strict=True):
                assert abs(x - a) < 0.5, (name, trial, x, a)
                assert abs(y - b) < near, (name, trial, x, y, b)
