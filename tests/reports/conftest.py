"""A project of its own for tests that read records."""

from __future__ import annotations

from tests.records.conftest import project

__all__ = ["project"]
