"""docs/files-and-variables.md has every environment variable of tsnb, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "files-and-variables.md").read_text(encoding="utf-8")
NAMED = re.compile(r"\bTSNB_[A-Z_]*[A-Z]\b")


def test_every_variable_of_the_code_has_a_row() -> None:
    """A new one is noticed here; one that has gone leaves the page."""
    code = {name for path in (ROOT / "tsnb").rglob("*.py") for name in NAMED.findall(path.read_text("utf-8"))}
    rows = {name for row in re.findall(r"^\| `(TSNB_\w+)", PAGE, re.MULTILINE) for name in NAMED.findall(row)}
    assert rows == code
