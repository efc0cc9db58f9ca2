"""What stays of a panel: in a saved notebook its picture and itself as a recording, and a page of its own as a file."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from tsnb.telemetry.readings import StreamReading

__all__ = ["Fallback", "bundle", "page_of", "saved"]

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ margin: 0; background: #ffffff; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #111418; --jp-ui-font-color1: #e6edf3; }} }}
{css}
</style>
</head><body><div id="here"></div>
<script type="application/json" id="kept">{kept}</script>
<script type="module">
const {{ script, values, binary }} = JSON.parse(document.getElementById("kept").textContent);
for (const name of binary) {{
  values[name] = new DataView(Uint8Array.from(atob(values[name]), (c) => c.charCodeAt(0)).buffer);
}}
const nothing = () => {{}};
const set = (name, value) => {{ values[name] = value; }};
const model = {{ get: (name) => values[name], set, send: nothing, on: nothing, off: nothing }};
const url = URL.createObjectURL(new Blob([script], {{ type: "text/javascript" }}));
const widget = (await import(url)).default();
widget.initialize({{ model }});
widget.render({{ model, el: document.getElementById("here") }});
</script>
</body></html>
"""
"""A page with all that the panel needs, and nothing from the network."""


def bundle(file: str) -> Path:
    """Return the path of one file of the bundle.

    Raises:
        ImportError: It was never built.
    """
    path = Path(__file__).parent / "static" / file
    if not path.is_file():
        raise ImportError(
            f"The panel's front end is missing ({path}). It is built when tsnb is installed. In a checkout, "
            "run `pip install -e .`, or `python hatch_build.py` for the front end alone."
        )
    return path


class Fallback(Protocol):
    """A still picture of a panel, shown where the panel cannot be."""

    mark: str
    """What the front end knows it by, to hide it while the panel is there."""

    def news(self, reading: StreamReading | None = None, stream: str = "") -> None:
        """Take note of a reading, or of another change of a stream's state. Called with the panel's lock held."""

    def again(self) -> None:
        """Give the panel its newest picture again: a page was loaded, which may hold an old one."""


def saved(scene: dict[str, Any]) -> dict[str, Any]:
    """Return a scene as a page keeps it in a notebook that is saved with its widgets (`snapshot` in streams.js)."""
    if "streams" in scene:
        return {**scene, "streams": [saved(one) for one in scene["streams"]], "saved": True}
    return {**scene, "recorded": True, "saved": True, "can": {}}


def page_of(title: str, script: str, css: str, state: Mapping[str, Any]) -> str:
    """Return a page that shows a panel as a recording, without a notebook and without a network.

    Args:
        title: The page's.
        script: The panel's front end.
        css: Its style.
        state: What its model holds: values, and bytes.
    """
    values = {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in state.items()
    }
    binary = [name for name, value in state.items() if isinstance(value, bytes)]
    # no text of a trial, and nothing of the script, ends the element
    kept = json.dumps({"script": script, "values": values, "binary": binary}).replace("<", "\\u003c")
    return _PAGE.format(title=html.escape(title), css=css.replace("</", "<\\/"), kept=kept)
