"""Checks of the directories in use: can only this user enter and exchange them. They look, and change nothing."""

from __future__ import annotations

import os
from pathlib import Path

from tsnb.checks.findings import Finding
from tsnb.config import nobody_elses, runtime_directory
from tsnb.directories import Unsafe
from tsnb.errors import TsnbError
from tsnb.records.project import looked_at, project_directory

__all__ = ["only_you"]

PART = "only you"


def only_you() -> Finding:
    """Look at the runtime directory, at that of the records, and at all above them: owner, mode, links."""
    try:
        says = [f"Only you can enter {runtime_directory()}."]
    except TsnbError as error:
        return Finding(PART, "fails", str(error))
    advice = []
    xdg = os.environ.get("XDG_RUNTIME_DIR")
    if xdg and not os.environ.get("TSNB_RUNTIME_DIR") and not nobody_elses(Path(xdg)):
        says.append(f"XDG_RUNTIME_DIR={xdg} could be exchanged by another user, and is not used.")
        advice.append("After `su` or `sudo -E`: unset XDG_RUNTIME_DIR.")
    place, wrong = looked_at()
    if wrong is None:
        says.append(f"Records: {place}.")
    else:
        says.append(_told(place, wrong))
        mend = f"Run `{wrong.mend}`, or set" if wrong.mend else "Set"
        advice.append(f"{mend} TSNB_PROJECT_DIR to a directory that only you can write to.")
    return Finding(PART, "limited" if advice else "works", " ".join(says), " ".join(advice))


def _told(place: Path, wrong: Unsafe) -> str:
    """Return what is wrong with the place of the records, and what that means."""
    if os.environ.get("TSNB_PROJECT_DIR") and wrong.path != str(place):
        return f"Records: {place}, which TSNB_PROJECT_DIR has chosen, though {wrong}."
    if wrong.mend.startswith("chmod 700"):
        return f"Records: {wrong}, until the next trial closes it."
    try:
        return f"Records do not lie in {place}, since {wrong}. They go to {project_directory(make=False)}."
    except TsnbError:
        return f"Records cannot lie in {place}, since {wrong}."
