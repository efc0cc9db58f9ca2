"""All checks, one after the other."""

from __future__ import annotations

from collections.abc import Callable

from tsnb.checks import machine, private, trying, widgets
from tsnb.checks.findings import Checkup, Finding

__all__ = ["doctor"]

CHECKS: dict[str, Callable[[], Finding]] = {
    "system": machine.system,
    "cores": machine.cores,
    "memory": machine.memory,
    "open files": machine.open_files,
    "directories": machine.files,
    "only you": private.only_you,
    "stream": trying.stream,
    "trials": trying.trial,
    "panel": widgets.panel,
    "GPU": machine.gpus,
    "extras": machine.extras,
}
"""Each part, and what looks at it."""


def doctor() -> Checkup:
    """Try what tsnb needs on this machine: a loader is served and taken, and a real trial kernel started.

    Takes some seconds. Nothing is left behind, and a trial that runs meanwhile is not disturbed.

    Returns:
        What works, what does not and what to do about it: printed as a list, shown as a table in a notebook;
        `.works` for programs.
    """
    return Checkup([_checked(part, check) for part, check in CHECKS.items()])


def _checked(part: str, check: Callable[[], Finding]) -> Finding:
    """Run one check; whatever it raises is what was found."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001  # the next check may say why
        return Finding(part, "fails", f"{type(error).__name__}: {error}")
