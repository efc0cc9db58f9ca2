"""The streams of this machine: list, read, change, record, stop them.

```python
import tsnb

with tsnb.serve([1, 2, 3], name="numbers"):
    print([stream.name for stream in tsnb.streams.list()])
    print(tsnb.streams.status("numbers").batches)
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsnb.lazy import lazily

if TYPE_CHECKING:
    from tsnb.discovery.registry import entries as list  # noqa: A004 (its name there)
    from tsnb.hosting.stopping import stop
    from tsnb.notebook.panels import replay
    from tsnb.serving.stream import Producer
    from tsnb.telemetry.observer import balance, status
    from tsnb.telemetry.recording import record
    from tsnb.telemetry.tuning import tune

__all__ = ["Producer", "balance", "list", "record", "replay", "status", "stop", "tune"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "Producer": "tsnb.serving.stream",
        "balance": "tsnb.telemetry.observer",
        "list": "tsnb.discovery.registry:entries",
        "record": "tsnb.telemetry.recording",
        "replay": "tsnb.notebook.panels",
        "status": "tsnb.telemetry.observer",
        "stop": "tsnb.hosting.stopping",
        "tune": "tsnb.telemetry.tuning",
    },
)
