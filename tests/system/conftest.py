"""System tests run real scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.system.scripts import Script, scripts

Run = Callable[..., Script]


@pytest.fixture
def run() -> Iterator[Run]:
    """Start a script: `run(code)`; all are killed at the end of the test."""
    with scripts() as running:

        def start(code: str, *arguments: str, stdin: bool = False) -> Script:
            script = Script(code, *arguments, stdin=stdin)
            running.append(script)
            return script

        yield start
