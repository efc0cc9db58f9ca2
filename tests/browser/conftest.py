"""One Chromium for the browser tests of a module; what a test opened is closed with it."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest
from playwright.sync_api import Browser

from tests import leftovers
from tests.browser.chromium import chromium


@pytest.fixture(scope="module")
def shared_browser() -> Iterator[Browser]:
    """A headless Chromium; afterwards no process of it is left."""
    before = set(psutil.Process().children())
    with chromium() as running:
        (driver,) = set(psutil.Process().children()) - before
        leftovers.kept.add(driver.pid)  # its processes come and go as it likes
        family = driver.children(recursive=True)
        yield running
        family += driver.children(recursive=True)
    leftovers.kept.remove(driver.pid)
    _, left = psutil.wait_procs([driver, *family], timeout=30)
    assert not left


@pytest.fixture
def browser(shared_browser: Browser) -> Iterator[Browser]:
    """The Chromium, with no page of another test in it."""
    yield shared_browser
    for context in shared_browser.contexts:
        context.close()
