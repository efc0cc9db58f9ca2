"""The picture of the rows: drawn by plotly, in a headless Chromium, which writes it down as SVG."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.sharing.rows import Report
from benchmarks.sharing.systems import SYSTEMS
from benchmarks.sharing.workloads import WORKLOADS

__all__ = ["NoChromium", "draw", "figure"]

COLOURS = dict(
    zip(
        SYSTEMS,
        ("#777777", "#d9822b", "#c5b0d5", "#8e63b5", "#1f77b4", "#2ca02c", "#17becf"),
        strict=True,
    )
)
WIDTH, HEIGHT = 1200, 560
DRAWN_S = 60
"""How long Chromium may take; its own clock is told to run ahead, so that it does not wait either."""


class NoChromium(RuntimeError):
    """There is no browser to draw with."""


def figure(report: Report) -> Any:
    """Return the figure: a column for each kind of batch; above the pace, below the CPU time, both against plain."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    workloads = list(dict.fromkeys(row.workload for row in report.rows if not WORKLOADS[row.workload].calm))
    made = make_subplots(
        2,
        len(workloads),
        column_titles=workloads,
        shared_xaxes=True,
        vertical_spacing=0.06,
        shared_yaxes=True,
    )
    quantities = ("samples_per_s", "cpu_s_per_1000")
    for column, workload in enumerate(workloads, 1):
        plain = report.find(workload, "plain", 1)
        for system, colour in COLOURS.items():
            rows = [r for r in report.rows if (r.workload, r.system) == (workload, system) and not r.unable]
            if plain is None or not rows:
                continue
            if system == "separate":
                rows.insert(0, plain)  # what it means for one consumer
            for line, quantity in enumerate(quantities, 1):
                drawn = go.Scatter(
                    x=[row.consumers for row in rows],
                    y=[getattr(row, quantity) / getattr(plain, quantity) for row in rows],
                    name=system,
                    legendgroup=system,
                    showlegend=line == 1 and not any(trace.name == system for trace in made.data),
                    mode="lines+markers",
                    marker={"size": 8, "symbol": "diamond" if system == "floor" else "circle"},
                    line={"color": colour, "width": 3 if system == "tsnb" else 1.5},
                )
                made.add_trace(drawn, line, column)
    ticks = sorted({row.consumers for row in report.rows})
    made.update_xaxes(type="log", tickvals=ticks, ticktext=[str(n) for n in ticks])
    made.update_xaxes(title_text="consumers", row=2)
    made.update_yaxes(type="log", dtick="D2")
    made.update_yaxes(title_text="pace of the slowest / plain", row=1, col=1)
    made.update_yaxes(title_text="CPU per sample / plain", row=2, col=1)
    made.update_layout(
        width=WIDTH,
        height=HEIGHT,
        template="plotly_white",
        margin={"l": 70, "r": 20, "t": 40, "b": 50},
        legend={"orientation": "h", "y": -0.12},
    )
    return made


def draw(report: Report, path: Path) -> None:
    """Write the picture as SVG.

    Raises:
        NoChromium: There is none on the PATH, or it did not draw.
    """
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise NoChromium("no Chromium on the PATH to draw the picture with (Debian: apt install chromium).")
    script = (
        "<script>Plotly.toImage('picture', {format: 'svg', width: %d, height: %d}).then(url => {"
        "document.body.innerHTML = '<pre id=svg></pre>';"
        "document.getElementById('svg').textContent = decodeURIComponent(url.slice(url.indexOf(',') + 1))})</script>"
    )
    page = figure(report).to_html(include_plotlyjs=True, div_id="picture")
    with tempfile.TemporaryDirectory(prefix="tsnb-bench-") as directory:
        file = Path(directory, "picture.html")
        file.write_text(page.replace("</body>", script % (WIDTH, HEIGHT) + "</body>"), encoding="utf-8")
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        command = [
            chromium,
            *flags,
            f"--user-data-dir={directory}",
            "--virtual-time-budget=20000",
            "--dump-dom",
        ]
        done = subprocess.run(
            [*command, file.as_uri()], capture_output=True, text=True, timeout=DRAWN_S, check=False
        )
    found = re.search(r'<pre id="svg">(<svg.*?|&lt;svg.*?)</pre>', done.stdout, re.DOTALL)
    if found is None:
        raise NoChromium(f"{chromium} drew no picture: {done.stderr.strip()[-300:]}")
    path.write_text(html.unescape(found[1]) + "\n", encoding="utf-8")
