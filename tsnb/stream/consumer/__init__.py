"""The consumer: attach to a stream by name, and iterate it like a DataLoader.

| module | what it owns |
|---|---|
| `attaching`, `consumer` | `attach`; `Consumer`, which it returns: what a training loop needs |
| `attachment` | one attachment to a stream, which is behind a `Consumer` |
| `finding` | which stream is meant, also while it is away for a moment |
| `tasks` | the end of a task of a pool or a thread |
| `loop`, `options` | one loop over one epoch; how batches are wanted, and what was taken |
| `counts` | rows of one consumer, and the totals of a process |
| `place` | where a consumer stands, and saved places |
| `losses` | what a trial reports of the samples of a batch |
| `notices` | what a user is told once |
| `dataloader` | a consumer as a torch `DataLoader` |
| `dataset` | what stands for the loader's dataset and sampler: lengths, small attributes |
| `batches/` | a batch as its user gets it |
| `talking/` | what a consumer and its producer say to each other |
"""

from tsnb.stream.consumer.attaching import (
    attach,
    consumers,
    cpu_time,
    detach_all,
    log_losses,
    rest_all,
    totals,
)
from tsnb.stream.consumer.consumer import Consumer
from tsnb.stream.consumer.options import Stats

__all__ = [
    "Consumer",
    "Stats",
    "attach",
    "consumers",
    "cpu_time",
    "detach_all",
    "log_losses",
    "rest_all",
    "totals",
]
