"""How high the charts of reports and of `tsnb.plot` are: as high as the panel's."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tsnb.reports.ranges import DrawnLine, calm_extent, gave_up, in_range, padded

CASES = json.loads((Path(__file__).parents[1] / "panel/frontend/ranges.json").read_text(encoding="utf-8"))
"""What the front end's own test has, too."""


def _numbers(values: list[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["what"])
def test_what_sets_the_range_is_the_same_as_in_the_panel(case: dict[str, Any]) -> None:
    """A trial that gave up flattens no other, and its beginning is seen where no other had begun."""
    lines = [DrawnLine(each["xs"], _numbers(each["ys"]), each["gave_up"]) for each in case["lines"]]
    found = [list(line.ys) for line in in_range(lines, case["way"])]
    assert json.dumps(found) == json.dumps([_numbers(ys) for ys in case["counts"]])


def test_a_trial_gave_up_by_its_end_or_by_its_numbers() -> None:
    """A last number that is none, or is far worse than the first, says so too; a little worse is no end."""
    assert (
        gave_up("pruned", [2.0, 1.0], -1)
        and gave_up("done", [2.0, math.nan], 0)
        and gave_up("done", [1.0, 2.5], -1)
    )
    assert not gave_up("", [2.3, 2.4], -1) and not gave_up("", [0.12, 0.1], 1)
    assert not gave_up("stopped", [2.0, 1.0], -1) and not gave_up("done", [1.0, 2.0], 0)


def test_one_peak_of_a_noisy_line_does_not_set_the_range() -> None:
    """Of few values all count; an axis begins at 0 where it is near that."""
    noisy = [math.sin(k) for k in range(1000)]
    low, high = calm_extent([DrawnLine(range(1001), [*noisy, 1e6])]) or (0.0, 0.0)
    assert -1 <= low < -0.99 and 0.99 < high <= 1
    assert calm_extent([DrawnLine([0, 1], [1.0, 1e6])]) == (1.0, 1e6)
    assert calm_extent([DrawnLine([0], [math.nan])]) is None
    assert padded(0.1, 2.3)[0] == 0 and padded(5.0, 5.0) == (4.7, 5.3)
