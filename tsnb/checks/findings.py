"""The checks' findings, and how they are shown. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Literal

from tsnb.text.printable import harmless
from tsnb.text.words import marked_html

__all__ = ["WORDS", "Checkup", "Finding", "State"]

State = Literal["works", "limited", "fails", "absent"]

WORDS: dict[State, str] = {
    "works": "works",
    "limited": "works, but",
    "fails": "DOES NOT WORK",
    "absent": "not here",
}
"""What each state is called."""
WIDTH = 110
"""Columns of the printed list."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    part: str
    """The part that was checked: "shared memory"."""
    state: State
    """`works`; `limited`: works, with something to know; `fails`; `absent`: not there, and not needed."""
    says: str
    """What was seen, in one sentence with numbers."""
    advice: str = ""
    """What to do about it; empty where there is nothing to do."""


class Checkup:
    """All findings of one look at this machine. Prints as a list, in a notebook as a table.

    Args:
        findings: In the order in which they are shown.
    """

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings

    @property
    def works(self) -> bool:
        """Whether nothing that tsnb needs fails."""
        return not any(finding.state == "fails" for finding in self.findings)

    def __getitem__(self, part: str) -> Finding:
        """Return the finding on one part.

        Raises:
            KeyError: No finding has that name.
        """
        for finding in self.findings:
            if finding.part == part:
                return finding
        raise KeyError(
            f"There is no finding named {part!r}. Available: {', '.join(f.part for f in self.findings)}"
        )

    def summary(self) -> str:
        """Return it in one sentence."""
        failed = [f.part for f in self.findings if f.state == "fails"]
        limited = [f.part for f in self.findings if f.state == "limited"]
        if failed:
            return f"tsnb does not work here: {', '.join(failed)}."
        if limited:
            return f"tsnb works here, with limits: {', '.join(limited)}."
        return "tsnb works here."

    def __str__(self) -> str:
        parts, words = max(len(f.part) for f in self.findings), max(map(len, WORDS.values()))
        indent = " " * (parts + words + 4)
        lines = [self.summary(), ""]
        for found in self.findings:
            head = f"{found.part:<{parts}}  {WORDS[found.state]:<{words}}  "
            lines += wrap(found.says, WIDTH, initial_indent=head, subsequent_indent=indent)
            lines += wrap(found.advice, WIDTH, initial_indent=indent, subsequent_indent=indent)
        return harmless("\n".join(lines))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='text-align:left'>{escape(f.part)}</td><td style='text-align:left'>"
            f"{escape(WORDS[f.state])}</td><td style='text-align:left'>{marked_html(f.says)} "
            f"<b>{marked_html(f.advice)}</b></td></tr>"
            for f in self.findings
        )
        return f"<p><b>{escape(self.summary())}</b></p><table><tbody>{rows}</tbody></table>"
