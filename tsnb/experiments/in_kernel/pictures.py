"""Logged values that are not numbers: text is printed when it changes, pictures and tables are kept as artifacts.

Called on the thread that logs. Values of unknown types are left to `telemetry.metrics`, which warns of them.
"""

from __future__ import annotations

import datetime as dt
import enum
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from tsnb.records.run import Run
from tsnb.text.printable import encodable

__all__ = ["Pictures"]

LONGEST = 500
"""Characters of a text that are printed."""

_TEXTS = (str, os.PathLike, enum.Enum, dt.date, dt.time, dt.timedelta, bytes)
_BYTES = (("_repr_png_", ".png"), ("_repr_jpeg_", ".jpg"), ("_repr_svg_", ".svg"))
"""What gives a picture as bytes or text, and what such a file is called."""
_WRITERS = (("savefig", ".png"), ("write_html", ".html"), ("to_csv", ".csv"))
"""What writes itself to a path: figures of matplotlib and plotly, tables of pandas."""


class Pictures:
    """Keeps logged values that are not numbers.

    Args:
        run: The trial's run, whose artifacts the pictures become.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._printed: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def __call__(self, step: int | None, name: str, value: Any) -> bool:
        """Take one value; return whether it was of a known kind.

        Raises:
            Exception: Whatever a picture raises that cannot be drawn.
        """
        if isinstance(value, _TEXTS):
            self._print(name, str(value))
            return True
        kind = type(value)
        for method, suffix in _BYTES:
            if hasattr(kind, method) and (picture := getattr(value, method)()):
                data = picture.encode() if isinstance(picture, str) else picture
                return self._keep(name, suffix, step, lambda path, data=data: path.write_bytes(data))
        for method, suffix in _WRITERS:
            if hasattr(kind, method):
                return self._keep(name, suffix, step, getattr(value, method))
        return False

    def _print(self, name: str, text: str) -> None:
        if self._printed.get(name) != text:
            self._printed[name] = text
            shown = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
            print(f"{name}: {encodable(shown)}", flush=True)  # noqa: T201 (the trial's output)

    def _keep(self, name: str, suffix: str, step: int | None, write: Any) -> bool:
        count = self._counts[name] = self._counts.get(name, -1) + 1
        word = re.sub(r"[^\w./-]+|\.\.+", "_", name).strip("/") or "logged"
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, f"picture{suffix}")
            write(path)
            self._run.add_artifact(path, f"{word}-{count if step is None else step}{suffix}")
        return True
