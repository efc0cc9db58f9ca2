"""Chromium for the browser tests: on the PATH, else Playwright's own, else a skip that says why.

`TSNB_BROWSER=required` turns that skip into a failure, where a missing browser must not pass for a green run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts"
"""Screenshots for a person to look at; git-ignored."""

_FLAGS = [
    "--no-sandbox",  # containers lack what the sandbox is made of
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",  # a container's /dev/shm is 64 MB
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a headless Chromium, and end it."""
    with sync_playwright() as playwright:
        path = _executable(playwright)
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def _executable(playwright: Playwright) -> str:
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        path = shutil.which(name)
        if path:
            return path
    own = playwright.chromium.executable_path
    if Path(own).is_file():
        return own
    reason = "no Chromium: install the system's (apt install chromium) or run `playwright install chromium`"
    if os.environ.get("TSNB_BROWSER") == "required":
        pytest.fail(reason)
    pytest.skip(reason)
