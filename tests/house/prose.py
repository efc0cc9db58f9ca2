"""A measure of prose: sentence length, semicolons, and constructions that technical English does not use.

    python -m tests.house.prose            one row per page
    python -m tests.house.prose PAGE...    the same, and what to change in these pages

Only paragraphs and list items count. Headings, tables, code and comments do not.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

import tsnb

ROOT = Path(__file__).parents[2]

USUAL_WORDS = 32
"""Nearly every sentence is at most this long."""
LONG_WORDS = 35
LONG_SHARE = 0.03
"""Share of the sentences that may be longer than `LONG_WORDS`."""
SEMICOLONS = 5
"""Sentences with a semicolon, per 100."""
CONSTRUCTIONS = 2
"""Constructions per 1,000 words."""
FEWEST_SENTENCES = 5
"""Shares of fewer sentences mean nothing."""
README_WORDS = 900
PAGE_WORDS = 1200

_VERB = "is|are|was|were|has|have|goes|stays|lies|stands|comes|gets|cannot|can|may"
_NOT_A_QUESTION = r"(?![^.?!\n]*\?)"
_RATED = "samples|batches|seconds?|epochs?|row|line|bytes|pages?|ms|kB|figures?|curve|number"
_AGENT = "epoch|batch|sample|trial|kind|tick|core|loader|run|value|step"


@dataclass(frozen=True)
class Rule:
    """A construction, and the words that native speakers write in its place."""

    pattern: str
    instead: str


RULES = {
    "what-clause": Rule(
        rf"(?:^|[.;:] |, and |, but ){_NOT_A_QUESTION}[Ww]hat (?!is |are |does |do |to |if )"
        rf"[\w' ]{{1,40}}? (?:{_VERB})\b"
        rf"|\b{_NOT_A_QUESTION}[Ww]hat is (?:(?!and |or )\w+ ){{1,4}}(?:{_VERB})\b",
        "name the thing",
    ),
    "told": Rule(r"\b(?:is|are|was|were|be|been|gets?) told\b|\btells? of\b", "reports, warns, raises"),
    "said": Rule(r"\b(?:is|are|was|were) said\b|\bsays? so\b", "prints, shows, the message says"),
    "go on": Rule(r"\b(?:go|goes|went|(?<!what is )going|gone) on\b", "continue, resume"),
    "stand, lie": Rule(
        r"\b(?:stands?|stood|lies|lie|lay) "
        r"(?:in|on|at|beside|below|above|behind|there|ready|apart|elsewhere|with|still|once|twice|where)\b",
        "is, is stored in, pauses, hangs",
    ),
    "beside": Rule(r"\b(?:beside|anew|likewise|meanwhile|thereby|as ever)\b", "next to, again, also, while"),
    "of its own": Rule(
        r"\bof (?:its|your|their|one's|my|our|tsnb's|each|every) own\b|\bof (?:yours|theirs|ours|tsnb's)\b",
        "its own stream, your stream",
    ),
    "one that": Rule(
        r"(?:^|[.;] )One (?:that|who|which|of them)\b"
        r"|\bone that (?:is|has|was|waits|stands|took|takes|comes|fails|died|holds)\b",
        "repeat the noun",
    ),
    "those of": Rule(r"\b(?:those|that) (?:of|that|which)\b", "repeat the noun"),
    "fronted of": Rule(
        r"(?:^|[.;:] )Of (?:a|an|the|those|what|each|more|several|equal|its|trials|one|\w+s)\b",
        "subject first",
    ),
    "whoever": Rule(
        r"\b[Ww]hoever\b"
        rf"|(?:^|[,;:(] ){_NOT_A_QUESTION}[Ww]ho "
        r"(?:is|has|was|wants|waits|comes|takes|holds|attaches|looks|asks|does|can|reaches|owns|started|sees)\b",
        "a user who, the trial that",
    ),
    "say": Rule(r"[\w)\]], say\b|,(?: [\w.=]+){1,3} say[.,;)]", "for example, such as"),
    "too": Rule(r", too(?=[.,;:)!?]|$| (?:and|or|but|if|when|as|at|by|for|from|in|of|on|with)\b)", "also"),
    "four in five": Rule(r"\bfour times in five\b", "80% interval"),
    "a second": Rule(
        rf"\b(?:{_RATED}) an? (?:second|minute|hour|day)\b(?! \w+s\b)"
        rf"|\b(?:{_RATED}) an? (?:{_AGENT})\b(?! (?:\w+s|can|could|may|will|would|had|did)\b)",
        "per second, per trial",
    ),
}
"""Constructions, by name."""

_WORD = re.compile(r"[A-Za-z0-9][\w'/.%-]*")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|al|approx|Fig|No|St|resp)\.")
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*(?:[A-Z0-9]|tsnb\b))")
_CODE = "CODE"


@dataclass(frozen=True)
class Measure:
    """What was counted in the sentences of a page."""

    sentences: list[str]

    @property
    def lengths(self) -> list[int]:
        """Words of each sentence, shortest first."""
        return sorted(words_in(sentence) for sentence in self.sentences)

    @property
    def words(self) -> int:
        """Words of all sentences."""
        return sum(self.lengths)

    @property
    def usual(self) -> int:
        """Words of the longest sentence but for the longest 5%."""
        return self.lengths[int(0.95 * (len(self.sentences) - 1))]

    @property
    def long(self) -> float:
        """Share of the sentences that are longer than `LONG_WORDS`."""
        return sum(length > LONG_WORDS for length in self.lengths) / len(self.sentences)

    @property
    def semicolons(self) -> float:
        """Sentences with a semicolon, per 100."""
        return 100 * sum(";" in sentence for sentence in self.sentences) / len(self.sentences)

    @property
    def constructions(self) -> float:
        """Constructions per 1,000 words."""
        return 1000 * len(list(self.found())) / max(1, self.words)

    def found(self) -> Iterator[tuple[str, str]]:
        """Give each construction: the rule's name and the words that it matched."""
        for sentence in self.sentences:
            yield from found_in(sentence)

    def faults(self) -> list[str]:
        """Return the limits that the page does not keep, each with its number."""
        if len(self.sentences) < FEWEST_SENTENCES:
            return []
        faults = {
            f"95% of the sentences have up to {self.usual} words": self.usual > USUAL_WORDS,
            f"{self.long:.1%} are longer than {LONG_WORDS} words": self.long > LONG_SHARE,
            f"{self.semicolons:.0f} semicolons per 100 sentences": self.semicolons > SEMICOLONS,
            f"{self.constructions:.1f} constructions per 1,000 words": self.constructions > CONSTRUCTIONS,
        }
        return [fault for fault, failed in faults.items() if failed]

    def advice(self) -> Iterator[str]:
        """Give each sentence to change, with the reason in front."""
        for sentence in self.sentences:
            reasons = [f"{words!r} -> {RULES[name].instead}" for name, words in found_in(sentence)]
            if (length := words_in(sentence)) > USUAL_WORDS:
                reasons.append(f"{length} words")
            if ";" in sentence:
                reasons.append("semicolon")
            if reasons:
                yield f"[{' | '.join(reasons)}] {sentence}"


def words_in(sentence: str) -> int:
    """Return the number of words of a sentence."""
    return len(_WORD.findall(sentence))


def found_in(text: str) -> Iterator[tuple[str, str]]:
    """Give each construction in a text: the rule's name and the words that it matched."""
    for name, rule in RULES.items():
        for found in re.finditer(rule.pattern, text, re.MULTILINE):
            yield name, found.group().strip()


def sentences_of(block: str) -> list[str]:
    """Split a paragraph without markup into sentences of three words or more."""
    flat = _ABBREVIATION.sub(lambda found: found.group().replace(".", ""), " ".join(block.split()))
    return [sentence for sentence in _END.split(flat) if words_in(sentence) >= 3]


def paragraphs_of(markdown: str) -> Iterator[str]:
    """Give the paragraphs and list items of a page, code as one word and links as their text."""
    tokens = MarkdownIt().enable("table").parse(re.sub(r"\A---\n.*?\n---\n", "", markdown, flags=re.DOTALL))
    for before, token in pairwise(tokens):
        if before.type == "paragraph_open":
            yield "".join(map(_shown, token.children or []))


def _shown(token: Token) -> str:
    if token.type == "code_inline":
        return _CODE
    return {"text": token.content, "softbreak": " ", "hardbreak": " "}.get(token.type, "")


def of_markdown(text: str) -> Measure:
    """Measure the prose of a page."""
    return Measure([sentence for block in paragraphs_of(text) for sentence in sentences_of(block)])


def of_notebook(text: str) -> Measure:
    """Measure the Markdown cells of a notebook."""
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
    return of_markdown("\n\n".join("".join(cell["source"]) for cell in cells))


def of_docstring(text: str) -> Measure:
    """Measure a docstring without its example, and without the names of its arguments."""
    text = re.sub(r"^Examples?:\n(?:(?:[ ].*)?\n)*", "", text + "\n", flags=re.MULTILINE)
    text = re.sub(r"^ +\**\w+(?: \(.*?\))?: |^\w+:$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"`+[^`]+`+", _CODE, text)
    return Measure([sentence for block in re.split(r"\n\s*\n", text) for sentence in sentences_of(block)])


def messages_of(source: str) -> Iterator[str]:
    """Give the texts of a module's `raise` statements, each value in them as one word."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and node.exc:
            yield from _texts(node.exc)


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(p.value) if isinstance(p, ast.Constant) else _CODE for p in node.values)
    elif isinstance(node, ast.Constant):
        yield from [node.value] if isinstance(node.value, str) else []
    else:
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)


def of_messages(sources: Iterable[str]) -> Measure:
    """Measure the messages of all modules as one page."""
    messages = [message for source in sources for message in messages_of(source)]
    return Measure([sentence for message in messages for sentence in sentences_of(message)])


def names() -> list[str]:
    """Return the paths of all pages and notebooks in the repository."""
    top = [
        ROOT / f"{name}.md"
        for name in (
            "README",
            "CONTRIBUTING",
            "CODE_OF_CONDUCT",
            "SECURITY",
            "CHANGELOG",
            "notebooks/README",
        )
    ]
    paths = [*top, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "notebooks").glob("*.ipynb"))]
    return [path.relative_to(ROOT).as_posix() for path in paths]


@cache
def of_page(name: str) -> Measure:
    """Measure a page or a notebook."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return of_notebook(text) if name.endswith(".ipynb") else of_markdown(text)


@cache
def docstrings() -> dict[str, Measure]:
    """Measure the docstring of every public name."""
    parts = {name: getattr(tsnb, name) for name in tsnb.__all__}
    names = {f"tsnb.{name}": found for name, found in parts.items()}
    for part, module in parts.items():
        if inspect.ismodule(module):
            names |= {f"tsnb.{part}.{name}": getattr(module, name) for name in module.__all__}
    shown = {
        name: found
        if inspect.isroutine(found) or inspect.isclass(found) or inspect.ismodule(found)
        else type(found)
        for name, found in names.items()
    }
    return {name: of_docstring(inspect.getdoc(found) or "") for name, found in shown.items()}


@cache
def messages() -> Measure:
    """Measure the messages of tsnb's exceptions."""
    return of_messages(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tsnb").rglob("*.py")))


def main(named: list[str]) -> None:
    """Print a table of all pages, or of the named pages with the sentences to change."""
    together = Measure([sentence for measure in docstrings().values() for sentence in measure.sentences])
    measures = {name: of_page(name) for name in names()} | {"docstrings": together, "messages": messages()}
    if unknown := [name for name in named if name not in measures]:
        raise SystemExit(f"not a page: {', '.join(unknown)}. Pages: {', '.join(measures)}")
    print(f"{'page':36} {'words':>6} {'95%':>4} {'long':>6} {';/100':>6} {'per 1,000':>9}")
    for name, measure in measures.items():
        if not measure.sentences or (named and name not in named):
            continue
        numbers = f"{measure.words:>6} {measure.usual:>4} {measure.long:>6.1%} {measure.semicolons:>6.0f}"
        print(f"{name:36} {numbers} {measure.constructions:>9.1f}  {'FAILS' if measure.faults() else 'ok'}")
        for line in measure.advice() if named else ():
            print("   ", line)


if __name__ == "__main__":
    main(sys.argv[1:])
