"""A project of its own for tests that read records, and an end to the watches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.records.conftest import project
from tests.telemetry.watches import forget_watches

__all__ = ["project"]


@pytest.fixture(autouse=True)
def no_watches() -> Iterator[None]:
    yield
    forget_watches()
