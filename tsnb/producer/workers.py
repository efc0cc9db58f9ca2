"""What a loader's worker processes need beside the loader: an end with the producer, and objects that arrive."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
from torch.utils.data import DataLoader, get_worker_info

from tsnb.native.ties import tie_to_parent
from tsnb.producer.tickets import TicketDataset

__all__ = ["WorkerStart", "travelling"]


class WorkerStart:
    """Runs first in each worker, in place of the user's `worker_init_fn`, which it calls.

    The worker must die with the producer, even by SIGKILL; and `get_worker_info().dataset`, which users read and
    write there, must be their own dataset.
    """

    def __init__(self, user: Callable[[int], None] | None) -> None:
        self._user = user

    def __call__(self, worker: int) -> None:
        """Prepare this worker process, then let the user's function do so."""
        above, producer = os.getppid(), multiprocessing.parent_process()
        if producer is not None and not producer.is_alive():
            os._exit(1)  # it was killed while this one was being started: what is above is somebody else
        tie_to_parent(above)
        info = get_worker_info()
        if info is not None and isinstance(info.dataset, TicketDataset):
            object.__setattr__(info, "dataset", info.dataset.dataset)  # it is frozen
        if self._user is not None:
            self._user(worker)


class _Travelling:
    """Carries an object over the ordinary pickle of spawn and forkserver, by cloudpickle.

    Classes and functions defined in a notebook do not pickle otherwise. On the other side the object itself
    arrives, not this wrapper; in this process it answers for the object.
    """

    def __init__(self, carried: Any) -> None:
        self._carried = carried

    def __reduce__(self) -> tuple[Any, ...]:
        return cloudpickle.loads, (cloudpickle.dumps(self._carried),)

    def __getattr__(self, name: str) -> Any:
        if name == "_carried":  # while being copied, before it is set
            raise AttributeError(name)
        return getattr(self._carried, name)

    def __call__(self, *args: Any) -> Any:
        return self._carried(*args)

    def __len__(self) -> int:
        return len(self._carried)

    def __getitem__(self, index: Any) -> Any:
        return self._carried[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._carried)


def travelling(carried: Any, loader: DataLoader[Any]) -> Any:
    """Return what to give to the loader in place of an object that its workers need."""
    context = loader.multiprocessing_context
    method = context.get_start_method() if context is not None else multiprocessing.get_start_method()
    return carried if carried is None or not loader.num_workers or method == "fork" else _Travelling(carried)
