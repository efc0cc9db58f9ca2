"""What has happened to a stream that its reader should know, beside the numbers of every day."""

from __future__ import annotations

from tsnb.telemetry.readings import StreamReading

__all__ = ["incidents"]


def incidents(reading: StreamReading) -> list[str]:
    """Return a line for each incident; none in an undisturbed stream."""
    lines = [
        f"{consumer.name} gave up {consumer.skipped} batches to keep pace"
        for consumer in reading.consumers
        if consumer.skipped
    ]
    if reading.refused:
        were = "connection was" if reading.refused == 1 else "connections were"
        lines.append(f"{reading.refused} {were} dropped: malformed or hostile messages")
    return lines
