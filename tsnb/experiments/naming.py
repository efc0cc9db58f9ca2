"""Names that tell trials apart by what they were given."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from tsnb.masks import is_plain_word, masked

__all__ = ["LONGEST", "shown_value", "trial_name"]

LONGEST = 64
"""Characters of a name, as `config.check_name` has it."""


def trial_name(stem: str, params: Mapping[str, Any]) -> str:
    """Return a name made of a stem and those parameters that read well in one: "train-lr0.1-augment-True".

    The same stem and values give the same name. Values that are neither numbers nor plain words (a dataset, a path)
    are left out, and so are secrets (`tsnb.masks`). Where text was left out, the name ends with a mark of it.

    Args:
        stem: What it begins with: the function's name.
        params: Parameters by name, in the order in which they are to stand.
    """
    shown = [(name, shown_value(value, name)) for name, value in params.items()]
    words = [f"{name}{_dash(text)}{text}" for name, text in shown if text]
    full = _clean("-".join([_clean(stem) or "trial", *words]))
    # secrets are no part of the mark: by it they could be guessed
    left_out = [
        (name, value) for name, value in params.items() if _is_long(value) and masked(value, name) is value
    ]
    if len(full) <= LONGEST and not left_out:
        return full
    mark = hashlib.sha256(repr((stem, shown, left_out)).encode()).hexdigest()[:6]
    return f"{full[: LONGEST - 7].rstrip('-._')}-{mark}"


def shown_value(value: Any, name: str = "") -> str:
    """Return a parameter as it stands in a name: numbers short but exact to four digits, plain words; else nothing.

    Args:
        value: Its value.
        name: What it is called: a secret stands in no name, however plain.
    """
    if isinstance(value, (bool, int)) or value is None:
        return str(value)
    if isinstance(value, str):
        return value if is_plain_word(value) and masked(value, name) == value else ""
    if isinstance(value, float):
        value = float(value)  # numpy's own float64 has another repr
        return min(repr(value), f"{value:.4g}", key=len) if len(repr(value)) > 8 else repr(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return shown_value(
            value.item(), name
        )  # a number of numpy or torch: `grid={"width": np.array([32, 64])}`
    return ""


def _is_long(value: Any) -> bool:
    """Tell whether a value is text that no name has room for; two trials that differ in it have different names."""
    return isinstance(value, str) and bool(_clean(value)) and not is_plain_word(value)


def _dash(text: str) -> str:
    """A number stands at its parameter's name (lr0.1), a word behind a dash (optimizer-adam)."""
    return "" if text[:1].isdigit() else "-"


def _clean(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
