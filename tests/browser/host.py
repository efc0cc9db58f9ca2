"""Show the panel in plain Chromium, from readings, in a page that has an anywidget model and nothing else."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from tsnb.panel.tape import Message, Tape
from tsnb.telemetry.readings import StreamReading

_HERE = Path(__file__).parent
_STATIC = _HERE.parents[1] / "tsnb" / "panel" / "static"


class Host:
    """One page with one panel.

    Args:
        browser: Where to open it.
        width: Of the page, in px.
        theme: "light" or "dark".
    """

    def __init__(self, browser: Browser, width: int = 1000, theme: str = "light") -> None:
        self.tape = Tape("mnist")
        self.errors: list[str] = []
        self.page: Page = browser.new_page(viewport={"width": width, "height": 700}, device_scale_factor=1)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto((_HERE / "host.html").as_uri())
        self.page.wait_for_function("window.ready")
        self.page.evaluate("theme => document.body.className = theme", theme)

    def open(self, readings: Iterable[StreamReading] = (), log: dict[str, Any] | None = None) -> None:
        """Show the panel with what these readings leave behind, and with what the log pane is told of logs."""
        for reading in readings:
            self.tape.feed(reading)
        scene = {**self.tape.scene(), **({"log": log} if log else {})}
        self.show(scene, base64.b64encode(self.tape.history()).decode())

    def show(self, scene: dict[str, Any], history: str) -> None:
        """Show the panel of a model that holds this, the history in base 64."""
        script, css = ((_STATIC / f"panel.{kind}").read_text(encoding="utf-8") for kind in ("js", "css"))
        self.page.evaluate("a => window.host.open(...a)", [script, css, scene, history])
        self.settle()

    def saved(self) -> tuple[dict[str, Any], str]:
        """Return what the model holds, as a notebook that is saved with its widgets keeps it."""
        scene, history = self.page.evaluate("() => window.host.saved()")
        return scene, history

    def feed(self, reading: StreamReading) -> None:
        """Send one live tick."""
        self.hear(self.tape.feed(reading))

    def hear(self, message: Message) -> None:
        """Send one message as the kernel would."""
        content: list[Any] = [message.content, base64.b64encode(message.frame).decode()]
        self.page.evaluate("a => window.host.hear(...a)", content)

    def settle(self) -> None:
        """Wait until the panel has drawn."""
        self.page.evaluate("() => new Promise(done => setTimeout(done, 400))")

    def facts(self) -> dict[str, str]:
        """Return the data attributes of the panel's root."""
        facts: dict[str, str] = self.page.evaluate(
            "() => ({...document.querySelector('.tsnb-panel').dataset})"
        )
        return facts

    def shot(self, path: Path) -> None:
        """Save a screenshot of the panel alone."""
        path.parent.mkdir(exist_ok=True)
        self.page.locator(".tsnb-panel").screenshot(path=path)
