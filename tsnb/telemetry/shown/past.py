"""What limited a stream, in the past tense: its trials have ended."""

from __future__ import annotations

from dataclasses import replace

from tsnb.telemetry.shown.diagnosis import Diagnosis

__all__ = ["in_the_past"]

_PAST = {
    " sets the pace": " set the pace",
    "The loader is the limit": "The loader was the limit",
    "The frozen part is the limit": "The frozen part was the limit",
    "No trial is waiting.": "No trial waited.",
    "No other trial is reading.": "No other trial was reading.",
    "No trial is training yet.": "No trial trained.",
    "The trials take turns.": "The trials took turns.",
    "Compute is shared by weight.": "Compute was shared by weight.",
    " buffered batches are in use": " buffered batches were in use",
    " must wait for ": " had to wait for ",
    " waits for ": " waited for ",
    " wait for ": " waited for ",
    " computes ": " computed ",
    " compute ": " computed ",
    " cores are busy": " cores were busy",
    "the only core is busy": "the only core was busy",
}
"""Words of what limits a stream, and what they are once it is over; names of trials have no spaces."""


def in_the_past(said: Diagnosis) -> Diagnosis:
    """Return what limited a stream, in the past tense: its trials have ended."""
    lead, rest = said.lead, said.text[len(said.lead) :]
    for now, then in _PAST.items():
        lead, rest = lead.replace(now, then), rest.replace(now, then)
    return replace(said, text=lead + rest, lead=lead)
