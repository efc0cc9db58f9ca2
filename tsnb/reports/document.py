"""A report: what became of a stream, to be shown in a cell and to be kept as a file."""

from __future__ import annotations

import html
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsnb.errors import ExtraMissing, TsnbError
from tsnb.planners.timeline import Timeline, newest_on
from tsnb.private.files import replace_file
from tsnb.records.scores import direction_of, known_direction
from tsnb.reports.cost import Prices, TrialCost, costs, wanted_of
from tsnb.reports.drawing import draw
from tsnb.reports.figures import draw_word
from tsnb.reports.learned.curves import Curves, curves_of
from tsnb.reports.learned.duelled import Duelled, duels_of
from tsnb.reports.plain import plain
from tsnb.reports.sources import is_recording, recorded, streamed
from tsnb.reports.story import Story, story
from tsnb.reports.strips import Strips, strips, while_attached
from tsnb.telemetry.lives.runs import runs_apart
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.shown.outcome import metrics_of
from tsnb.text.words import did_you_mean, strict

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["Report", "report"]

STEPS = 140
"""Steps of time in the picture: each is some five pixels wide."""

STEP_S = 0.25
"""A step is at least as long as the time between two readings."""

PAGE_FIGURES = ("spent", "share", "throughput", "lag", "fill", "waiting", "held")
"""The figures on a report's page."""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>:root{{color-scheme:light dark}}
body{{max-width:960px;margin:24px auto;padding:0 16px;font-family:system-ui,sans-serif}}
.picture{{overflow-x:auto}}.picture svg{{min-width:680px}}
figure{{margin:20px 0;border-radius:8px;overflow:hidden;background:#fff}}</style>
</head><body><main>
<div class="picture">{picture}</div>
{figures}
</main></body></html>
"""


class Report:
    """Where each second of each trial of a stream went. Made by `tsnb.report()`; a cell that ends with it shows it.

    Shown as a picture without a script (SVG), which saved notebooks keep and GitHub shows, or as text.

    Attributes:
        story: All that it says, as numbers and words.

    Args:
        readings: The stream's, oldest first.
        ended: Whether the stream has ended since.

        costs: What each trial had cost when it reached a wanted number.
        plan: When its trials were to start and end, where they were planned.
        logged: What trials logged, by name, as far as more is known of it than by the readings.
        duels: The duels of its trials.

    Raises:
        TsnbError: The stream has no readings.
    """

    def __init__(
        self,
        readings: Sequence[StreamReading],
        *,
        ended: bool = False,
        costs: Sequence[TrialCost] = (),
        plan: Timeline | None = None,
        logged: Curves | None = None,
        duels: Sequence[Duelled] = (),
    ) -> None:
        self._logged: Curves = logged or {}
        self._readings = runs_apart(readings)
        told = story(self._readings, ended=ended)
        self.story: Story = replace(told, costs=tuple(costs), plan=plan, duels=tuple(duels))

    @cached_property
    def svg(self) -> str:
        """The picture."""
        return draw(self.story, self._strips, self._curves)

    @cached_property
    def _strips(self) -> Strips | None:
        return strips(while_attached(self._readings), STEPS, STEP_S)

    @cached_property
    def _curves(self) -> Curves:
        names, found = metrics_of(self.story.trials), curves_of(self._readings)
        return {
            name: {**found.get(name, {}), **self._logged.get(name, {})}
            for name in sorted(names, key=lambda name: known_direction(name) is None)
        }

    @property
    def text(self) -> str:
        """The report as lines of text."""
        return plain(self.story)

    def figure(self) -> go.Figure:
        """Return where each second of each trial went as a plotly figure, to look into, change or save."""
        return draw_word("spent", self._readings)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers and words as JSON has them; nan becomes None."""
        found = strict({"tsnb": _version(), "report": 1, **self.story.to_dict()})
        assert isinstance(found, dict)
        return found

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report to a file; its suffix says how.

        Args:
            path: .svg (the picture), .html (the picture and figures to look into, nothing from the network), .png (the
                figure, through kaleido), or .json (the numbers). A new file is this user's alone (mode 0600), one
                that is replaced keeps its mode.

        Returns:
            The path.

        Raises:
            ValueError: The suffix is not one of these.
            ExtraMissing: .png needs kaleido, which is not installed.
            TsnbError: kaleido cannot draw here; says why.
            OSError: The file cannot be written.
        """
        target = Path(path)
        writers: dict[str, Callable[[Path], None]] = {
            ".svg": lambda file: replace_file(file, self.svg),
            ".html": lambda file: replace_file(file, self._page()),
            ".json": lambda file: replace_file(file, json.dumps(self.to_dict(), indent=1)),
            ".png": self._write_png,
        }
        writer = writers.get(target.suffix.lower())
        if writer is None:
            raise ValueError(
                f"{target.name!r} cannot hold a report. Use a name that ends in {', '.join(writers)}"
            )
        writer(target)
        return target

    def _page(self) -> str:
        """Return a page that needs nothing else: plotly's own script stands in it, some 5 MB."""
        drawn = [draw_word(word, self._readings) for word in PAGE_FIGURES] if len(self._readings) > 1 else []
        figures = "\n".join(
            f"<figure>{figure.to_html(full_html=False, include_plotlyjs=number == 0)}</figure>"
            for number, figure in enumerate(drawn)
        )
        title = html.escape(f"{self.story.name}: where the time went")
        return PAGE.format(title=title, picture=self.svg, figures=figures)

    def _write_png(self, target: Path) -> None:
        if find_spec("kaleido") is None:
            raise ExtraMissing(
                "PNG needs kaleido, which is not installed. Install it (pip install 'tsnb[png]'), or use "
                ".save('report.svg') or .save('report.html')"
            )
        try:
            drawn: bytes = self.figure().to_image("png", scale=2, width=900)
        except (RuntimeError, ValueError) as error:  # no Chrome, or one that does not start
            why = " ".join(str(error).split()).rstrip(".")
            raise TsnbError(
                f"kaleido cannot draw here: {why}. You can also use .save('report.svg')"
            ) from error
        replace_file(target, drawn)

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {
            "image/svg+xml": draw(self.story, self._strips, self._curves, fluid=True),
            "text/plain": self.text,
        }


def report(
    stream: str | os.PathLike[str] | None = None,
    *,
    target: Mapping[str, float] | None = None,
    vcpu_price: float | None = None,
    kwh_price: float | None = None,
) -> Report:
    """Report where each second of each trial of a stream went.

    This process watches the stream from the first call on. The report of an ended stream stays available here.

    Example:
        >>> tsnb.report("digits").save("report.html")

    Args:
        stream: Name of the stream, or path of a recording (`tsnb.streams.record`). Defaults to the only stream
            served, else the last one watched.
        target: Numbers to reach, by logged name: {"accuracy": 0.95}. The report then has what each trial had cost
            by then (docs/reports.md). Defaults to None.
        vcpu_price: Price of one core for an hour, in any currency, with `target`. Defaults to None, not counted.
        kwh_price: Price of a kilowatt hour, with `target`. Defaults to None, not counted.

    Returns:
        The report. It shows as a picture and has `figure()`, `save("report.html")` and `to_dict()`.

    Raises:
        ProducerNotFound: If no such stream is served or was watched.
        TsnbError: If no reading of the stream exists, or the recording cannot be read.
        UnknownDirection: If tsnb cannot tell whether a high or a low value of a metric is good.
        ValueError: If the file is not a recording, a number or price is invalid, or no trial logs that metric.
    """
    prices = Prices(vcpu_price, kwh_price)
    wanted = wanted_of(target, prices)
    recording = stream is not None and is_recording(stream)
    source = recorded(stream) if recording else streamed(stream)  # type: ignore[arg-type]
    readings = runs_apart(source.readings)
    logged = sorted({k for reading in readings for c in reading.consumers for k in c.metrics})
    for key in wanted:
        if key not in logged:  # before its direction: of a misspelt name nobody can say which way is good
            raise ValueError(
                f"No trial of this stream has logged {key!r}.{did_you_mean(key, logged)} Logged: "
                f"{', '.join(logged) or 'nothing'}."
            )
    found = costs(readings, wanted, {key: direction_of(key) for key in wanted}, prices)
    return Report(
        readings,
        ended=source.ended,
        costs=found,
        plan=None if recording else newest_on(readings[-1].name, source.since_s, readings[-1].time_s),
        logged=source.logged,
        duels=() if recording else duels_of({c.name for reading in readings for c in reading.consumers}),
    )


def _version() -> str:
    # not `import tsnb`: its lazy names reach up to the notebook layer
    return str(sys.modules["tsnb"].__version__)
