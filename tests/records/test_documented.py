"""The query that docs/compare-runs.md shows works as it stands there; tests/house/test_pages.py runs the rest."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from tests.records.recorded import begun, row, trained
from tsnb.records.database import FILE

DOCUMENT = Path(__file__).parents[2] / "docs" / "compare-runs.md"


def blocks(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found, f"no {language} in {DOCUMENT.name}"
    return found


@pytest.fixture
def sweep(project: Path) -> Path:
    """Record a small sweep."""
    for number, lr in enumerate((0.1, 0.2)):
        trained(f"w{number}", [2.0, 1.0], sweep="widths", params={"lr": lr})
        begun(f"top-w{number}", sweep="widths", lr=lr).add_rows([row(0, accuracy=0.5)])
    return project


def test_the_file_can_be_asked_in_sql(sweep: Path) -> None:
    """The query of the document gives each logged loss once."""
    connection = sqlite3.connect(sweep / FILE)
    rows = connection.execute(blocks("sql")[0]).fetchall()
    connection.close()
    assert rows == [("w0", 1, 0, 2.0), ("w0", 1, 1, 1.0), ("w1", 1, 0, 2.0), ("w1", 1, 1, 1.0)]
