"""The project's tables as pandas has them; loaded where pandas is installed only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from tsnb.text.printable import harmless

__all__ = ["PrintableFrame", "exact"]

EXACT = 2**53
"""Up to here a float holds every integer."""


class PrintableFrame(pd.DataFrame):
    """A DataFrame that steers no terminal when it is printed.

    A parameter may be a text from elsewhere, a class of a data set say. The values stay as they are, and whatever is
    made of the table (a copy, a part, a pickle) is a plain DataFrame.
    """

    def to_string(self, *args: Any, **kwargs: Any) -> Any:
        """Return the table as text, printable."""
        text = super().to_string(*args, **kwargs)
        return None if text is None else harmless(text)

    def __repr__(self) -> str:
        text = super().__repr__()
        return harmless(text)

    def _repr_html_(self) -> str | None:
        """Return the table for a notebook: a letter that turns the order of others makes a name look like another."""
        page: str | None = pd.DataFrame._repr_html_(self)  # type: ignore[attr-defined]
        return None if page is None else harmless(page)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return pd.DataFrame, (pd.DataFrame(self),)


def exact(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """Return a table whose numbers are those that were given.

    Beside a gap or a fraction pandas makes integers floats, which changes large ones (a seed, an id of 18 digits): such
    a column keeps its values as they are, as objects.

    Args:
        columns: The names, each of them once.
        rows: With a value for each.
    """
    found = pd.DataFrame(rows, columns=list(columns))
    for place, (name, kind) in enumerate(zip(columns, found.dtypes, strict=True)):
        values = [row[place] for row in rows] if kind.kind == "f" else ()
        if any(type(value) is int and abs(value) > EXACT for value in values):
            found[name] = pd.Series(values, dtype=object)
    return found
