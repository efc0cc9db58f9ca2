"""Moves in plain words, with their numbers. Pure."""

from __future__ import annotations

from tsnb.planners.estimating import Span
from tsnb.planners.parties import LOADER, Allot, Observed

__all__ = ["change", "pace_effect", "why"]

WAITS = 0.3
"""A slowest trial that waits for the loader for more of its time than this is not what limits the stream."""


def change(seen: Observed, allotments: tuple[Allot, ...], span: Span) -> tuple[str, str]:
    """Return who gains by a plan, and what, in a few words.

    Args:
        seen: Before it.
        allotments: The plan.
        span: What was measured before it.
    """
    has = {p.name: p for p in (*seen.trials, seen.loader)}
    made = {a.name: a for a in allotments}
    wanted = LOADER if span.waiting > WAITS and LOADER in made else span.slowest
    if wanted not in made:
        wanted = max(made, key=lambda name: len(made[name].cores))
    its, had = made[wanted], has[wanted]
    if its.cores != had.cores and len(its.cores) < len(had.home):
        return wanted, f"{_count(len(its.cores), 'core')} of its own for {_called(wanted)}"
    if its.threads > had.threads and wanted != LOADER:
        return wanted, f"{_count(its.threads, 'thread')} for {_called(wanted)}"
    fewer = [name for name, a in made.items() if a.threads < has[name].threads]
    if fewer:
        return wanted, f"fewer threads for {', '.join(_called(name) for name in fewer)}"
    return wanted, "all cores to all"


def why(span: Span, gains: str) -> str:
    """Say what a move is for."""
    if gains == LOADER:
        return f"{span.slowest} waits for the loader {span.waiting:.0%} of its time"
    if gains == span.slowest:
        return f"it sets the pace at {span.pace:.1f} batches/s, computing {span.computing:.0%} of its time"
    return f"{span.slowest} sets the pace at {span.pace:.1f} batches/s"


def pace_effect(before: float, after: float, kept: bool) -> str:
    """Say what a move has done to the pace of the slowest, in batches a second."""
    digits = 1 if max(before, after) >= 1 else 2
    said = f"pace {before:.{digits}f} -> {after:.{digits}f} batches/s"
    return said if kept else f"{said}, so it was undone"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _called(name: str) -> str:
    return "the loader" if name == LOADER else name
