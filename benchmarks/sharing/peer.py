"""The peer, tensorsocket 0.0.5 from PyPI: as it comes, and at its best on a machine without a GPU.

As it comes, `TensorPayload` goes through plain pickle, and a CPU tensor's storage is then pickled *whole*: each of
the 8 slices of a producer batch carries all 8 loader batches through TCP, once for each consumer, to every
consumer. Only a CUDA tensor travels as a handle. `HANDLES` uses the constructors' own options to let CPU tensors
travel as handles too: `pack_fn` names the shared memory's descriptor, `unpack_fn` maps it, once for each of the
pool's ten buffers. Producer batches of 2 loader batches are the smallest that work (1 raises IndexError).
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from benchmarks.sharing.workloads import Workload

__all__ = ["DEFAULT_BATCHES", "POOL", "TUNED_BATCHES", "free_ports", "serve", "take", "working_bytes"]

DEFAULT_BATCHES = 8
"""Loader batches that it collates into one producer batch."""
TUNED_BATCHES = 2
POOL = 10
"""Producer batches in its pool, which has warmed up when it has gone round once."""

Ports = Sequence[int]

_new_shared_fd: Any = torch.UntypedStorage._new_shared_fd_cpu  # type: ignore[attr-defined]


def working_bytes(workload: Workload, consumers: int) -> int:
    """Memory that the default settings need for one message: pickled, sent, received and unpickled by everybody."""
    message = DEFAULT_BATCHES * DEFAULT_BATCHES * workload.batch_bytes * consumers
    return message * (2 + 2 * consumers)


def free_ports() -> list[int]:
    """Return four ports that nobody listens at now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(4)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _by_ports(ports: Ports) -> dict[str, Any]:
    return {"port": ports[0], "ack_port": ports[1], "heart_ports": (ports[2], ports[3])}


def serve(
    loader: Any, ports: Ports, consumers: int, failed: Callable[[BaseException], None], *, tuned: bool
) -> None:
    """Serve one epoch from a thread, as soon as all consumers have been heard of.

    Args:
        loader: The DataLoader.
        ports: Four free ones.
        consumers: How many to wait for: who comes later than the late-join window misses the epoch.
        failed: Told what the producer raised.
        tuned: Its best settings, not its defaults.
    """
    _hush()
    from tensorsocket import TensorProducer

    best: dict[str, Any] = {"producer_batch_size": TUNED_BATCHES, "pack_fn": _pack} if tuned else {}
    # the late-join window as it is for epochs of up to 400 batches, which this one only pretends not to be
    producer = TensorProducer(
        loader, rubber_band_pct=0.0, consumer_max_buffer_size=POOL, **_by_ports(ports), **best
    )

    def iterate() -> None:
        try:
            while len(producer.hb.consumers) < consumers:
                # its SUB socket subscribes to a newcomer only when it is used; used first after the first batch was
                # sent, it would often miss the first acknowledgement, and send that batch again for ever
                producer.ack_socket.poll(10)
            for _ in producer:
                pass
        except BaseException as error:  # noqa: BLE001  # it is what the row will say
            failed(error)

    threading.Thread(target=iterate, daemon=True).start()


@contextmanager
def take(ports: Ports, batch_size: int, *, tuned: bool) -> Iterator[Iterator[Any]]:
    """Attach; returns once the producer has the consumers it waits for.

    Args:
        ports: The producer's.
        batch_size: The loader's, so that no batch is cut.
        tuned: As in `serve`.
    """
    _hush()
    from tensorsocket import TensorConsumer

    best = {"unpack_fn": _Unpack()} if tuned else {}
    yield iter(TensorConsumer(batch_size=batch_size, **_by_ports(ports), **best))


def _hush() -> None:
    """Keep off the terminal what it says of deprecated storages, and what its logging set-up makes others say."""
    warnings.simplefilter("ignore")
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _pack(tensors: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
    """Name where the tensors lie: process, descriptor, bytes; and which part of that they are."""
    packed = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        fd, size = storage._share_fd_cpu_()
        where = (os.getpid(), fd, size)
        packed.append((where, tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()))
    return tuple(packed)


class _Unpack:
    """Maps what `_pack` named, each memory once."""

    def __init__(self) -> None:
        self._mapped: dict[tuple[int, int, int], torch.UntypedStorage] = {}

    def __call__(self, packed: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
        tensors = []
        for where, dtype, offset, shape, stride in packed:
            storage = self._mapped.get(where)
            if storage is None:
                pid, fd, size = where
                opened = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR)
                storage = self._mapped[where] = _new_shared_fd(opened, size)
                os.close(opened)
            tensors.append(torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride))
        return tuple(tensors)
