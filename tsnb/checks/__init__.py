"""`tsnb.doctor`: tries what tsnb needs on this machine, and says in plain words what works and what will not."""

from __future__ import annotations

from tsnb.checks.examining import doctor
from tsnb.checks.findings import Checkup, Finding

__all__ = ["Checkup", "Finding", "doctor"]
