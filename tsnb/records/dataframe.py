"""The project's tables as pandas has them; loaded where pandas is installed only."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tsnb.printable import block

__all__ = ["PrintableFrame"]


class PrintableFrame(pd.DataFrame):
    """A DataFrame that steers no terminal when it is printed.

    A parameter may be a text from elsewhere, a class of a data set say. The values stay as they are, and whatever is
    made of the table (a copy, a part, a pickle) is a plain DataFrame.
    """

    def to_string(self, *args: Any, **kwargs: Any) -> Any:
        """Return the table as text, printable."""
        text = super().to_string(*args, **kwargs)
        return None if text is None else block(text, most=len(text))

    def __repr__(self) -> str:
        text = super().__repr__()
        return block(text, most=len(text))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return pd.DataFrame, (pd.DataFrame(self),)
