"""The consumer: attach to a stream by name, and iterate it like a DataLoader.

| module | what it owns |
|---|---|
| `attaching`, `consumer` | `attach`; `Consumer`, which it returns: what a training loop needs |
| `attachment` | one attachment to a stream, which is behind a `Consumer` |
| `finding`, `standstill` | which stream is meant, also while it is away for a moment; a producer that stands still |
| `tasks` | the end of a task of a pool or a thread |
| `loop`, `options` | one loop over one epoch; how batches are wanted, and what was taken |
| `counts` | rows of one consumer, and the totals of a process |
| `session`, `place` | a consumer's side of the protocol, without I/O; where it stands, and saved places |
| `line`, `waits` | carries out what the session decides; what is looked at while it waits for a message or successor |
| `connection` | messages and batches of one producer |
| `unpacking`, `leaves` | a slot as tensors; each tensor, array and object in it |
| `rebatching`, `parts` | batches of another size; which rows are its own |
| `device` | batches on a GPU: shared there, or copied ahead |
| `losses` | what a trial reports of the samples of a batch |
| `notices` | what a user is told once |
| `dataloader` | a consumer as a torch `DataLoader` |
| `dataset` | what stands for the loader's dataset and sampler: lengths, small attributes |
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
