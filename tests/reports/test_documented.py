"""docs/reports.md lists every word that `tsnb.plot` knows. tests/house/test_pages.py runs its examples."""

from __future__ import annotations

import re
from pathlib import Path

from tsnb.reports.figures import WORDS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")


def test_every_word_for_a_figure_is_in_the_table_and_the_other_way_round() -> None:
    table = TEXT.partition("| word | figure |")[2].partition("\n\n")[0]
    firsts = " ".join(row.split("|")[1] for row in table.splitlines() if row.startswith("|"))
    assert re.findall(r"`(\w+)`", firsts) == [*WORDS, "plan", "lineage"], "those two are of no stream"
