"""What has happened to a stream that its reader should know, beside the numbers of every day."""

from __future__ import annotations

from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.words import clock

__all__ = ["incidents"]

SHOWN_MOVES = 3
"""The last moves of cores; the readings have more."""


def incidents(reading: StreamReading) -> list[str]:
    """Return a line for each incident; none in an undisturbed stream."""
    lines = [
        f"{consumer.name} gave up {consumer.skipped} batches to keep pace"
        for consumer in reading.consumers
        if consumer.skipped
    ]
    if reading.rebalancing.startswith("stands"):
        lines.append(f"cores are not moved: the balancer {reading.rebalancing}")
    for move in reading.moves[-SHOWN_MOVES:]:
        effect = f": {move.effect}" if move.effect else ""
        lines.append(
            f"{clock(max(0.0, reading.time_s - move.time_s))} ago {move.text} ({move.reason}){effect}"
        )
    if reading.refused:
        were = "connection was" if reading.refused == 1 else "connections were"
        lines.append(f"{reading.refused} {were} dropped: malformed or hostile messages")
    return lines
