"""The messages that pages quote in "When something is refused" are messages of tsnb."""

from __future__ import annotations

import ast
import builtins
import itertools
import re
from pathlib import Path

import pytest

import tsnb
from tests.house.messages import SOURCES, can_say

DOCS = Path(__file__).parents[2] / "docs"
HEADING = "When something is refused"
SYMPTOMS = DOCS / "by-symptom.md"
PAGES = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if page == SYMPTOMS or f"## {HEADING}" in page.read_text(encoding="utf-8")
]
OF_OTHERS = {
    "UsageError: Cell magic": "install.md: IPython",
    "UsageError: Line magic function": "install.md: IPython",
    "tsnb: command not found": "install.md: the shell",
    "output array is read-only": "from-a-dataloader.md: NumPy",
    "out of memory": "by-symptom.md: the system, CUDA",
    "Magic function not found": "by-symptom.md: IPython",
    "Error displaying widget: model not found": "by-symptom.md: JupyterLab",
}
"""Messages of other programs, with the page and whose they are."""
_QUOTED = re.compile(r'"([^"`]+)"|`([A-Z]\w+)`')


def quoted(page: Path) -> list[str]:
    """Return what the first column of the section's table quotes: code in a table of messages, else text in quotes.

    The page of symptoms has quotes and errors in bold, and the reasons of a wait in italics.
    """
    if page == SYMPTOMS:
        text = page.read_text(encoding="utf-8")
        bold = [
            words
            for line in re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE)
            for words in _QUOTED.findall(line)
        ]
        return [quote or name for quote, name in bold] + re.findall(r"^- \*([^*]+)\*", text, re.MULTILINE)
    _, _, below = page.read_text(encoding="utf-8").partition(f"## {HEADING}")
    section = re.split(r"\n## |\n\*\*See also", below)[0]
    rows = [line.strip("|").split("|")[0].strip() for line in section.splitlines() if line.startswith("|")]
    pattern = r"`([^`]+)`" if rows and rows[0].lower() == "message" else r'"([^"`]+)"'
    return [text for row in rows[2:] for text in re.findall(pattern, row)]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_quoted_messages_are_messages_of_the_code(page: Path) -> None:
    """A message that was changed in the code is changed on its page as well."""
    unknown = [
        text
        for text in quoted(page)
        if text not in tsnb.errors.__all__
        and not hasattr(builtins, text)
        and not (can_say(text) or can_say(text[0].swapcase() + text[1:]))
    ]
    wrong = [text for text in unknown if OF_OTHERS.get(text, "").partition(":")[0] != page.name]
    assert not wrong


def test_the_list_of_other_programs_is_needed() -> None:
    """A message that no page quotes any more leaves the list."""
    assert OF_OTHERS.keys() <= {text for page in PAGES for text in quoted(page)}


@pytest.mark.parametrize(
    ("quote", "said"),
    [
        ("No stream named 'x' is running", True),
        ("has no length that anybody could ever like", False),
        ("fold=7 is as blue as the sky", False),
    ],
)
def test_a_quote_is_found_with_its_values(quote: str, said: bool) -> None:
    """Names and numbers may be any, the words between them may not."""
    assert can_say(quote) is said


FROM_ONE = {"tsnb/records/writes.py": "a parent's epoch is counted from 1 where it is stored"}
"""Modules whose numbers of epochs are counted from 1 already, with the reason."""


def numbered_from_zero(path: Path) -> list[str]:
    """Return the places of a module where a text has an epoch's, a pass's or a round's number as it is stored."""
    return [
        f"{path.name}:{text.lineno}: {ast.unparse(after)}"
        for text in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(text, ast.JoinedStr)
        for before, after in itertools.pairwise(text.values)
        if isinstance(before, ast.Constant)
        and re.search(r"\b(epoch|pass|round) $", str(before.value), re.IGNORECASE)
        and isinstance(after, ast.FormattedValue)
        and isinstance(after.value, (ast.Name, ast.Attribute))
        and re.search("epoch|number", ast.unparse(after.value))
    ]


def test_people_read_epochs_counted_from_one() -> None:
    """The code counts epochs, passes and rounds from 0. No text shows that number as it is."""
    wrong = {
        str(path.relative_to(SOURCES.parent)): numbered_from_zero(path) for path in SOURCES.rglob("*.py")
    }
    assert {name for name, places in wrong.items() if places} == set(FROM_ONE), wrong
