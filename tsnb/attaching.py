"""`attach` and `Consumer` with all that is built on a stream: what each consumer of this process is extended by.

The consumer itself imports none of it (`protocol.extension`).
"""

from __future__ import annotations

from tsnb.device_sharing.on_consumers import SharedDevices
from tsnb.engines import stream_of_cluster
from tsnb.extensions.allotment import Allotment
from tsnb.extensions.live import LiveAnswers
from tsnb.extensions.metrics import MetricsTold
from tsnb.stream.consumer.attaching import attach
from tsnb.stream.consumer.consumer import Consumer
from tsnb.stream.this_process import this_process

__all__ = ["Consumer", "attach"]

this_process.device_access = SharedDevices()
this_process.extensions[:0] = [LiveAnswers, MetricsTold, Allotment]  # before those that were added already
if this_process.ask_cluster is None:  # a trial on another machine asks through its own actor
    this_process.ask_cluster = stream_of_cluster
