"""What stays of a panel in a saved notebook: the picture beside it, and the panel itself as a recording."""

from __future__ import annotations

from typing import Any, Protocol

from tsnb.telemetry.readings import StreamReading

__all__ = ["Fallback", "saved"]


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
