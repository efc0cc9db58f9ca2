"""Show the panel in plain Chromium, from readings, in a page that has an anywidget model and nothing else."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
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
        self.view: dict[str, Any] | None = {"flow": True}
        """What a reader chose before: to see the large charts of the flow."""
        self.still = ""
        """The mark of the picture beside it."""
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
        self.show(
            scene, *(base64.b64encode(part).decode() for part in (self.tape.history(), self.tape.curves()))
        )

    def open_several(self, tapes: Sequence[Tape]) -> None:
        """Show one panel of the streams of these tapes, as `Panel` puts them together."""
        histories, curves = [tape.history() for tape in tapes], [tape.curves() for tape in tapes]
        lengths = [[len(a), len(b)] for a, b in zip(histories, curves, strict=True)]
        scene = {"streams": [tape.scene() for tape in tapes], "lengths": lengths}
        self.show(scene, *(base64.b64encode(b"".join(parts)).decode() for parts in (histories, curves)))

    def show(self, scene: dict[str, Any], history: str, curves: str = "") -> None:
        """Show the panel of a model that holds this, history and curves in base 64."""
        script, css = ((_STATIC / f"panel.{kind}").read_text(encoding="utf-8") for kind in ("js", "css"))
        self.page.evaluate(
            "a => window.host.open(...a)", [script, css, scene, history, curves, self.view, self.still]
        )
        self.settle()

    def saved(self) -> tuple[dict[str, Any], str, str]:
        """Return what the model holds, as a notebook that is saved with its widgets keeps it."""
        scene, history, curves = self.page.evaluate("() => window.host.saved()")
        return scene, history, curves

    def chosen(self) -> dict[str, Any]:
        """Return what the model holds of what the reader chose."""
        chosen: dict[str, Any] = self.page.evaluate("() => window.host.chosen()")
        return chosen

    def feed(self, reading: StreamReading) -> None:
        """Send one live tick."""
        self.hear(self.tape.feed(reading))

    def hear(self, message: Message) -> None:
        """Send one message as the kernel would."""
        content: list[Any] = [message.content, base64.b64encode(message.frame).decode()]
        self.page.evaluate("a => window.host.hear(...a)", content)

    def hear_all(self, messages: Iterable[Message]) -> None:
        """Send many messages at once, which is faster."""
        content = [[one.content, base64.b64encode(one.frame).decode()] for one in messages]
        self.page.evaluate("all => { for (const one of all) window.host.hear(...one); }", content)

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
