"""The frozen part as the stream runs it: in each worker, without gradients, timed, tried twice on the first batch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tsnb.frozen.applying import Unfit, computed, function_computed
from tsnb.frozen.changes import AtStart
from tsnb.frozen.counters import Counters
from tsnb.frozen.on_device import HOST, device_of, moved
from tsnb.frozen.raised import raised_in
from tsnb.frozen.ran import Ran
from tsnb.frozen.reaching import reached
from tsnb.frozen.refusals import copied, require_frozen, require_same
from tsnb.stream.loader.identity import identity
from tsnb.stream.loader.seams import StepFailed, worker_row
from tsnb.stream.protocol.forms import TwoForms

__all__ = ["FrozenPart", "name_of"]


def name_of(then: Any) -> str:
    """Return what a frozen part is called: a function by its name, an object by that of its class."""
    return str(getattr(then, "__name__", type(then).__name__))


class FrozenPart:
    """What every batch of a stream goes through.

    Args:
        then: A network, or a function from batch to batch.
        inputs: Whether batches keep their inputs beside, for consumers that ask for them.

    Attributes:
        inputs: As given.
        name: What it is called.
        counters: How long it has computed, in all workers.
        device: Where it is computed.
        key: Stands for its code and its parameters: another one for another part.

    Raises:
        TypeError: It cannot be called.
        ValueError: It is not frozen; says why.
    """

    def __init__(self, then: Callable[[Any], Any], *, inputs: bool = False) -> None:
        require_frozen(then)
        self._then = then
        self.inputs = inputs
        self.name = name_of(then)
        self._at_start = AtStart(then)
        self.key = f"{identity(then)}{self._at_start.digest}"
        tensors = [*reached(then).tensors()]
        self.device = device_of(tensors)
        self.counters = Counters()
        self._ran = Ran(tensors, self.counters)

    def __call__(self, batch: Any) -> Any:
        """Return the batch that trials get: a `TwoForms` where inputs are kept. In a worker, or where there is none.

        Raises:
            StepFailed: It raised, the first batch gives another result the second time, or it has changed.
        """
        if why := self._at_start.why_changed_since_batch():
            raise StepFailed(why)
        again = None if self.counters.tried else copied(batch)
        began = time.perf_counter()
        try:
            made = self._made(batch)
        except Unfit as error:
            raise StepFailed(str(error)) from None
        except Exception as error:  # noqa: BLE001  # whatever the user's code raises
            raise raised_in(self._then, batch, error) from None
        self.counters.count(worker_row(), time.perf_counter() - began)
        if again is not None:
            self._try_again(again, made.batch)
        return made if self.inputs else made.batch

    def _try_again(self, batch: Any, first: Any) -> None:
        self._ran.before_noting()
        alike, own = False, copied(batch)
        with contextlib.suppress(Exception):  # of the user's code
            require_same(lambda same: self._ran.noting(lambda: self._made(same).batch), own, first)
            alike = True
        if why := self._ran.why_changed():
            raise StepFailed(why)
        if not alike:  # while it is noted what runs, torch may take another way, with other last bits
            require_same(lambda same: self._made(same).batch, batch, first)
        self.counters.note_tried()

    def _made(self, batch: Any) -> TwoForms:
        with torch.inference_mode():
            if isinstance(self._then, nn.Module):
                there = batch if self.device == HOST else moved(batch, self.device)
                made = computed(self._then, there)
            else:  # it moves its inputs itself
                made = function_computed(self._then, batch)
        if self.device == HOST:
            return made
        here: TwoForms = moved(made, HOST)
        return here

    def uses_more(self) -> bool:
        """Return whether the first batch used tensors for which `key` does not stand."""
        return bool(self.counters.ran())

    def require_unchanged(self) -> None:
        """Refuse to go on with other weights than at the start. Called in the serving process, before each epoch.

        Raises:
            StepFailed: They have changed, or the mode of a network has.
        """
        if why := self._at_start.why_changed() or self._ran.why_changed():
            raise StepFailed(why)
