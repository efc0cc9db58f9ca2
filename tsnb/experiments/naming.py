"""Names that tell trials apart by what they were given."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["LONGEST", "shown_value", "trial_name"]

LONGEST = 64
"""Characters of a name, as `config.check_name` has it."""

LONGEST_VALUE = 16
"""Characters of one value; a longer one is cut, and the name ends with a mark of the whole."""


def trial_name(stem: str, params: Mapping[str, Any]) -> str:
    """Return a name made of a stem and those parameters that read well in one: "train-lr0.1-augment-True".

    The same stem and values give the same name. Values that are neither numbers nor text (a dataset, a network)
    are left out; two trials that differ in nothing else get the same name.

    Args:
        stem: What it begins with: the function's name.
        params: Parameters by name, in the order in which they are to stand.
    """
    shown = [(name, shown_value(value)) for name, value in params.items()]
    words = [f"{name}{_dash(text)}{text}" for name, text in shown if text]
    full = _clean("-".join([_clean(stem) or "trial", *words]))
    if len(full) <= LONGEST and all(len(text) <= LONGEST_VALUE for _, text in shown):
        return full
    mark = hashlib.sha256(repr((stem, shown)).encode()).hexdigest()[:6]
    cut = "-".join([_clean(stem), *(f"{n}{_dash(t)}{t[:LONGEST_VALUE]}" for n, t in shown if t)])
    return f"{_clean(cut)[: LONGEST - 7].rstrip('-._')}-{mark}"


def shown_value(value: Any) -> str:
    """Return a parameter as it stands in a name: numbers short but exact to four digits; else nothing."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, (int, str)):
        return str(value)
    if isinstance(value, float):
        value = float(value)  # numpy's own float64 has another repr
        return min(repr(value), f"{value:.4g}", key=len) if len(repr(value)) > 8 else repr(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return shown_value(value.item())  # a number of numpy or torch: `grid={"width": np.array([32, 64])}`
    return ""


def _dash(text: str) -> str:
    """A number stands at its parameter's name (lr0.1), a word behind a dash (optimizer-adam)."""
    return "" if text[:1].isdigit() else "-"


def _clean(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
