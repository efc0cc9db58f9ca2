"""Pages, notebooks, docstrings and messages are plain English, by the measure in `prose`.

`python -m tests.house.prose PAGE` prints the sentences of a page that must change, with the reasons.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container

import pytest

from tests.house import prose

NOT_YET: set[str] = set()
"""Pages that fail. This list only shrinks: add no page, and remove a page once it passes."""

TOO_LONG: set[str] = set()
"""Pages with too many words. This list only shrinks."""

DOCSTRINGS_NOT_YET: set[str] = set()
"""Public names whose docstring fails. This list only shrinks."""

PAGES = prose.names()


def holds_the_line(name: str, faults: list[str], exceptions: Container[str]) -> None:
    """Fail if something has faults, or if it is an exception without having any."""
    if name in exceptions:
        assert faults, f"{name} passes now. Remove it from the list of exceptions."
    else:
        assert not faults, f"{faults}; to see the sentences: python -m tests.house.prose {name}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_plain_english(page: str) -> None:
    """Sentences are short, semicolons are few, and native writers would use the same constructions."""
    holds_the_line(page, prose.of_page(page).faults(), NOT_YET)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_read_in_one_sitting(page: str) -> None:
    """A page of the docs has at most 1,200 words outside code and tables. The README has at most 900."""
    most = {"README.md": prose.README_WORDS}.get(page, prose.PAGE_WORDS)
    words = prose.of_page(page).words
    holds_the_line(page, [f"{words} words, at most {most}"] if words > most else [], TOO_LONG)


@pytest.mark.parametrize("name", sorted(prose.docstrings()))
def test_a_docstring_is_plain_english(name: str) -> None:
    """It has few constructions. The length of its first line is checked with the public names."""
    measure = prose.docstrings()[name]
    faults = [words for _, words in measure.found()] if measure.constructions > prose.CONSTRUCTIONS else []
    holds_the_line(name, faults, DOCSTRINGS_NOT_YET)


def test_no_docstring_points_at_the_one_above() -> None:
    """A reader who comes by search sees one line: "Likewise." and "As above." say nothing there."""
    empty = re.compile(
        r'"""(?:That|Likewise|The same|Those|It)\.|: (?:That|Likewise|The same|As above|It)\.$|[Ll]ikewise'
    )
    found = [
        f"{path.relative_to(prose.ROOT)}:{number}"
        for path in sorted((prose.ROOT / "tsnb").rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if empty.search(line)
    ]
    assert not found


def test_messages_are_plain_english() -> None:
    """The texts of all `raise` statements are measured together."""
    measure = prose.messages()
    faults = [words for _, words in measure.found()] if measure.constructions > prose.CONSTRUCTIONS else []
    holds_the_line("messages", faults, NOT_YET)


@pytest.mark.parametrize(
    ("exceptions", "known"),
    [(NOT_YET, {*PAGES, "messages"}), (TOO_LONG, PAGES), (DOCSTRINGS_NOT_YET, prose.docstrings())],
    ids=["voice", "length", "docstrings"],
)
def test_an_exception_names_something_that_exists(exceptions: set[str], known: Container[str]) -> None:
    """A page that was renamed or removed is no exception any more."""
    assert not [name for name in exceptions if name not in known]


FOREIGN = {
    "what-clause": [
        "What cannot be shared is refused with its place.",
        "The trial ends, and what it has logged stays in the folder.",
        "You see at once what is not shared has no row.",
    ],
    "told": ["The trial is told so by an error.", "The panel tells of its end."],
    "said": ["This is said once for each stream.", "An error says so."],
    "go on": ["The other trials go on.", "They went on without it."],
    "stand, lie": ["The number stands in the table.", "The batches lie beside each other."],
    "beside": ["The panel opens beside the notebook.", "The cell runs anew.", "A tensor is copied likewise."],
    "of its own": ["The trial runs in a process of its own.", "Pass a loader of yours."],
    "one that": ["One that died is started again.", "The plan prefers one that takes less memory."],
    "those of": ["The values are those of the newest run.", "The order is that which the loader gives."],
    "fronted of": [
        "Of a trial that ended, the last value is shown.",
        "It depends: Of several trials the last stays.",
    ],
    "whoever": ["Whoever started the stream stops it.", "Who attaches later waits for the next epoch."],
    "say": ["Pass a number, say 8.", "Choose another name, model say."],
    "too": ["A cell can do this, too.", "This works, too, with a sweep.", "It is kept, too, if it fails."],
    "four in five": ["The time lies within these bounds four times in five."],
    "a second": [
        "The loader gives 200 samples a second.",
        "This costs two epochs a trial.",
        "It took 3 ms a batch.",
    ],
}
"""Sentences with one construction each, and at times others, by the name of the rule."""


@pytest.mark.parametrize(
    ("rule", "sentence"), [(rule, sentence) for rule, examples in FOREIGN.items() for sentence in examples]
)
def test_a_construction_is_found(rule: str, sentence: str) -> None:
    """Each rule finds its own examples."""
    assert rule in [name for name, _ in prose.found_in(sentence)]


def test_every_rule_has_an_example() -> None:
    """A new rule comes with sentences that it finds."""
    assert FOREIGN.keys() == prose.RULES.keys()


@pytest.mark.parametrize(
    "sentence",
    [
        "Each trial receives every sample exactly once per epoch.",
        "What has changed is a question for later, is it not?",
        "Who is waiting for whom?",
        "The panel shows what is slow and has a button to pause it.",
        "You can watch what is going on.",
        "DDP stands for distributed data parallel.",
        "If you use, too often, a large window, memory runs out.",
        "Pass the number of epochs a trial runs.",
        "The names of samples a trial can skip are listed.",
        "In the quickstart, three models share one loader.",
        "Of course you can pass a list.",
    ],
)
def test_plain_english_passes(sentence: str) -> None:
    """A rule leaves alone the words that native writers use."""
    assert not list(prose.found_in(sentence))


def test_only_prose_counts() -> None:
    """Headings, tables, code and comments are left out, and code inside a sentence is one word."""
    page = """
# What is here stands in a heading

Pass `a; b` to [the other page](https://example.org/a;b)
that continues this sentence. tsnb starts the next one.

- An item is a paragraph.

| What is here stands | in a table; yes |
|---|---|
| it is told so | likewise |

```python
what = "lies in here;"
```
<!-- check
it goes on; beside
-->
"""
    assert prose.of_markdown(page).sentences == [
        "Pass CODE to the other page that continues this sentence.",
        "tsnb starts the next one.",
        "An item is a paragraph.",
    ]


@pytest.mark.parametrize(
    ("sentence", "fault"),
    [
        ("The loader " + "really " * 40 + "works.", "95% of the sentences"),
        ("The loader " + "really " * 40 + "works.", "longer than 35 words"),
        ("The loader works; the trial waits.", "semicolons"),
        ("The loader is told to wait.", "constructions"),
    ],
)
def test_a_page_fails_by_each_limit(sentence: str, fault: str) -> None:
    """One bad sentence among four good ones is too many for so short a page."""
    good = "The trial takes its next batch. " * 4
    assert not prose.of_markdown(good + "It works well.").faults()
    assert any(fault in found for found in prose.of_markdown(f"{good}\n\n{sentence}\n\n{sentence}").faults())


def test_a_notebook_is_read_by_its_markdown() -> None:
    """What its cells run is left out."""
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "The trial\n", "starts here."]},
        {"cell_type": "code", "source": ["# this goes on here\n"]},
    ]
    assert prose.of_notebook(json.dumps({"cells": cells})).sentences == ["The trial starts here."]


def test_a_message_is_read_from_its_raise() -> None:
    """Parts of a message are one text, a value in it is one word, and other strings are left out."""
    source = """
note = "this goes on"
raise ValueError(f"trial {name!r} goes "
                 "on") from error
"""
    assert list(prose.messages_of(source)) == ["trial CODE goes on"]


def test_a_docstring_counts_without_its_example() -> None:
    """The names of arguments are left out as well."""
    text = """Start a small trial.

Example:
    >>> what = "goes on; beside"

Args:
    beside: A number of trials. Defaults to 1.

Raises:
    NameInUse: If a trial of that name runs.
"""
    assert prose.of_docstring(text).sentences == [
        "Start a small trial.",
        "A number of trials.",
        "Defaults to 1.",
        "If a trial of that name runs.",
    ]
