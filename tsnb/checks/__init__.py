"""`tsnb.doctor`: tries what tsnb needs on this machine, and says in plain words what works and what will not.

| module | what it owns |
|---|---|
| `examining` | all checks, one after the other; those that serve a loader and start a trial |
| `machine` | those that only look: the machine, the directories in use, the panel's packages |
| `findings` | what was found, and how it is shown |
"""

from __future__ import annotations

from tsnb.checks.examining import doctor
from tsnb.checks.findings import Checkup, Finding

__all__ = ["Checkup", "Finding", "doctor"]
