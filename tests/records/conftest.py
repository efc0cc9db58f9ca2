"""A project of its own for every test of records."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the records directory of a new project; nothing is in it, it is not even there."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    return tmp_path / ".tsnb"
