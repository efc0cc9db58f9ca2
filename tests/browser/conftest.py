"""A Chromium for each browser test: it starts in a second, and nothing of it may be left after the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import chromium


@pytest.fixture
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    with chromium() as running:
        yield running
