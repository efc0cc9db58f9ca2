"""Reports and figures: where each second of each trial went, from readings and from the project's records.

Never imports a producer, a consumer, an arena or torch: a recorded log gives the same report as a live stream.

| module | what it does |
|---|---|
| `cost` | what a trial had cost when it reached a wanted number |
| `costed` | `tsnb.results`: the records' table, and what trials had cost in it |
| `strips` | the same in even steps of time |
| `story` | all that a report says, as numbers and words |
| `plain` | names, times and titles; a report as text |
| `svg`, `drawing` | a report as a picture; the colours |
| `learned/` | curves, the best trial and how all ended, in that picture |
| `figures` | plotly figures from readings |
| `ranges` | the y-range of a chart of logged numbers |
| `logged` | plotly figures of logged numbers, from the project's records |
| `look` | how these look on a page of whatever colour |
| `sources` | where readings come from: a watched stream, a served one, a recording |
| `document` | the report itself: shows, saves |
| `plotting` | `tsnb.plot` |
"""

from __future__ import annotations

from tsnb.reports.costed import results
from tsnb.reports.document import Report, report
from tsnb.reports.plotting import plot

__all__ = ["Report", "plot", "report", "results"]
