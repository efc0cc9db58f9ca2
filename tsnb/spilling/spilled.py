"""`tsnb.spill`: train a model whose parameters and optimizer states do not fit into memory.

    plain                                    spilled
    backward: all gradients                  backward: one gradient, that parameter's step, the gradient goes;
    optimizer.step(): all parameters                   the next parameter is read meanwhile
    memory: parameters + gradients + states  memory: the limit, one gradient, activations

The step of a parameter needs nothing of the others for every optimizer of torch.optim except LBFGS, so the numbers are
the same. It is taken by the user's own optimizer, with its own groups, learning rates and states, when the gradient
is whole (`register_post_accumulate_grad_hook`); `optimizer.step()` then finds no gradient and does nothing.

Whatever needs all gradients at once does not work: clipping by their common norm, several `backward` for one step, a
`GradScaler`. The second is noticed and refused; the others find gradients of None.
"""

from __future__ import annotations

import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tsnb.errors import TsnbError
from tsnb.machine.memory import free_memory
from tsnb.spilling.pages import Pages, bytes_of, free_at_once
from tsnb.words import bytes_of as size_of

__all__ = ["Spilled", "spill"]

STATES = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "Adadelta": 2, "ASGD": 1, "Adagrad": 1}
"""Tensors of a parameter's size that an optimizer keeps beside it, to foretell what it will take; others: 1."""
SMALL_BYTES = 1 << 16
"""States below this stay where they are: counters and such."""

_spilled: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def spill(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    limit: str | float,
    *,
    directory: str | Path | None = None,
) -> Spilled:
    """Keep a model's parameters and its optimizer's states in a file, and at most `limit` of them in memory.

    The loop stays as it is: `loss.backward()`, `optimizer.step()`, `optimizer.zero_grad()`. Each parameter takes
    its step during `backward`, as soon as its gradient is there, and the gradient goes; losses are the same as
    without. Saving and loading of `state_dict` works as usual (load with `torch.load(..., mmap=True)`, or it is in
    memory first). A model that does not even fit once is made on the device "meta": its modules' `reset_parameters`
    then fill it.

    Gradients are gone after `backward`: no clipping by their common norm, no accumulation over several `backward`, no
    `GradScaler`. Until `close()`, memory blocks of 128 KiB or more that the process frees go back to the system at once
    (glibc's `M_MMAP_THRESHOLD`), or holes in the heap would take as much memory as the file saves.

    Args:
        model: On the CPU, or on "meta".
        optimizer: Over its parameters; any of torch.optim except LBFGS.
        limit: Memory for parameters and states, "700MB"; activations and one gradient come on top.
        directory: Where the file is, on a disk. By default that of temporary files.

    Returns:
        The spilled model; `close()` undoes it.

    Raises:
        ValueError: The limit is not a size, or below what the largest parameter needs.
        TypeError: The optimizer does not step parameter by parameter.
        TsnbError: The model is on another device, is spilled already, or the directory cannot be used.
    """
    most = int(size_of(limit))
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError(
            "LBFGS needs all gradients at once: tsnb.spill works with any other optimizer of torch.optim."
        )
    if model in _spilled:
        raise TsnbError("this model is spilled already: close() what tsnb.spill has returned first.")
    spilled = Spilled(model, optimizer, most, Path(directory or tempfile.gettempdir()).resolve())
    _spilled.add(model)
    weakref.finalize(model, _ended).atexit = False  # it may go without close()
    return spilled


def _ended() -> None:
    """Have the heap keep freed blocks, as usual, once no model is spilled any more."""
    if not list(_spilled):  # its length may still count one that goes now
        free_at_once(False)


class Spilled:
    """A model and its optimizer whose tensors lie in a file; made by `tsnb.spill`.

    Attributes:
        need_bytes: What parameters, gradients and states would take in memory.
        limit_bytes: What parameters and states may take.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, limit_bytes: int, directory: Path
    ) -> None:
        self.limit_bytes = limit_bytes
        self._model = model
        self._optimizer = optimizer
        self._groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        self._parameters = list(dict.fromkeys(model.parameters()))
        states = STATES.get(type(optimizer).__name__, 1)
        sizes = [bytes_of(p) for p in self._parameters]
        self.need_bytes = sum(sizes) + sum(
            (1 + states) * bytes_of(p) for p in self._parameters if id(p) in self._groups and p.requires_grad
        )
        self._check(max(sizes, default=0), states)
        self._pages = Pages(limit_bytes, directory)
        self._stepped: set[int] = set()
        self._stepping = False
        self._handles: list[Any] = []
        free_at_once(True)
        try:
            self._move()
        except BaseException:
            self._pages.close()
            _ended()
            raise
        self._hook()

    def _check(self, largest: int, states: int) -> None:
        """Refuse what cannot go, and advise against what need not be.

        Raises:
            ValueError: The limit is too low.
            TsnbError: The model is elsewhere, or the optimizer is another model's.
        """
        for name, parameter in self._model.named_parameters():
            if parameter.device.type not in ("cpu", "meta"):
                raise TsnbError(
                    f"tsnb.spill is for models on the CPU, and {name!r} is on {parameter.device}. Call it before "
                    "model.to(...), or leave it out."
                )
        known = {id(p) for p in self._parameters}
        if strangers := [
            p for group in self._optimizer.param_groups for p in group["params"] if id(p) not in known
        ]:
            raise TsnbError(
                f"{len(strangers)} of the optimizer's parameters are not the model's: give the model it was "
                "made for."
            )
        least = (1 + states) * largest
        if self.limit_bytes < least:
            raise ValueError(
                f"limit={self.limit_bytes:,} bytes is too low: the largest parameter takes {largest:,} bytes, and "
                f"{least:,} with its optimizer's states. Give at least that."
            )
        free = free_memory()
        if self.need_bytes <= self.limit_bytes or (free is not None and self.need_bytes < free.size // 2):
            room = f"{_human(free.size)} are free" if free is not None else "the limit is higher"
            warnings.warn(
                f"this model and its optimizer take {_human(self.need_bytes)}, and {room}: they fit, and spilling only "
                "makes each step slower. Leave tsnb.spill out.",
                RuntimeWarning,
                stacklevel=4,
            )

    # -- moving ------------------------------------------------------------------------------------------

    def _move(self) -> None:
        """Put parameters, and states that are there, into the file; one after the other."""
        empty = [
            module
            for module in self._model.modules()
            if any(p.is_meta for p in module.parameters(recurse=False))
        ]
        fresh: dict[int, nn.Parameter] = {}
        for name, parameter in list(self._model.named_parameters(remove_duplicate=False)):
            if not parameter.is_meta:
                if not self._pages.has(parameter.data):
                    parameter.data = self._pages.tensor(parameter.data)
                    self._take_states(parameter)
                continue
            if id(parameter) not in fresh:
                made = nn.Parameter(self._pages.tensor(parameter, fill=False), parameter.requires_grad)
                fresh[id(parameter)] = made
                self._exchange(parameter, made)
            owner, _, own = name.rpartition(".")
            setattr(self._model.get_submodule(owner), own, fresh[id(parameter)])
        for module in empty:
            reset: Callable[[], None] | None = getattr(module, "reset_parameters", None)
            if reset is None:
                raise TsnbError(
                    f"a {type(module).__name__} made on the device 'meta' has no reset_parameters to fill it: "
                    "make that part on the CPU, or give it one."
                )
            for parameter in module.parameters(recurse=False):
                self._pages.use(parameter)
            reset()
        self._parameters = list(dict.fromkeys(self._model.parameters()))

    def _exchange(self, old: nn.Parameter, new: nn.Parameter) -> None:
        """Have the optimizer know a parameter that took another's place."""
        group = self._groups.pop(id(old), None)
        if group is not None:
            group["params"] = [new if p is old else p for p in group["params"]]
            self._groups[id(new)] = group

    def _take_states(self, parameter: nn.Parameter) -> None:
        """Put a parameter's states into the file that are not there yet: after its first step, or after a load."""
        state = self._optimizer.state.get(parameter)
        if not state:
            return
        for name, value in state.items():
            if (
                isinstance(value, torch.Tensor)
                and bytes_of(value) >= SMALL_BYTES
                and not self._pages.has(value)
            ):
                state[name] = self._pages.tensor(value)

    def _states(self, parameter: nn.Parameter) -> Iterator[torch.Tensor]:
        for value in (self._optimizer.state.get(parameter) or {}).values():
            if isinstance(value, torch.Tensor):
                yield value

    # -- while it trains -----------------------------------------------------------------------------------

    def _hook(self) -> None:
        """Have each module's parameters read ahead, and each parameter take its step in `backward`."""
        modules = [m for m in self._model.modules() if any(True for _ in m.parameters(recurse=False))]
        order = [list(m.parameters(recurse=False)) for m in modules]
        for number, module in enumerate(modules):
            following = order[number + 1] if number + 1 < len(order) else []
            self._handles.append(
                module.register_forward_pre_hook(_Forward(self._pages, order[number], following))
            )
        for number, parameter in enumerate(self._parameters):
            if id(parameter) in self._groups and parameter.requires_grad:
                before = self._parameters[number - 1] if number else None
                register: Any = parameter.register_post_accumulate_grad_hook
                self._handles.append(register(self._step_of(before)))
        self._handles.append(self._optimizer.register_step_post_hook(self._step_over))

    def _step_of(self, before: nn.Parameter | None) -> Callable[[torch.Tensor], None]:
        def step(parameter: torch.Tensor) -> None:
            assert isinstance(parameter, nn.Parameter)
            self._step(parameter, before)

        return step

    def _step(self, parameter: nn.Parameter, before: nn.Parameter | None) -> None:
        """Step one parameter. Called in `backward`, when its gradient is whole."""
        if id(parameter) in self._stepped:
            raise TsnbError(
                "a second backward() before optimizer.step(): a spilled model takes its step in each backward(), so "
                "gradients cannot be added up. Call optimizer.step() after each, with larger batches if need be."
            )
        if before is not None:  # read while this one is computed
            self._pages.read_ahead(before)
            for state in self._states(before):
                self._pages.read_ahead(state)
        self._pages.use(parameter)
        for state in self._states(parameter):
            self._pages.use(state)
        groups = self._optimizer.param_groups  # others after a load_state_dict
        kept = [group["params"] for group in groups]
        mine = next((group for group in groups if any(p is parameter for p in group["params"])), None)
        self._stepping = True
        try:
            for group in groups:
                group["params"] = [parameter] if group is mine else []
            with torch.no_grad():
                type(self._optimizer).step(self._optimizer)  # not the instance's: a scheduler counts that
        finally:
            self._stepping = False
            for group, parameters in zip(groups, kept, strict=True):
                group["params"] = parameters
        parameter.grad = None
        self._stepped.add(id(parameter))
        self._take_states(parameter)

    def _step_over(self, *_: Any) -> None:
        if not self._stepping:
            self._stepped.clear()

    # -- about it ------------------------------------------------------------------------------------------

    @property
    def present_bytes(self) -> int:
        """What of parameters and states is in memory now, at most `limit_bytes`."""
        return self._pages.present_bytes

    @property
    def moved_bytes(self) -> int:
        """What was let go of so far, to be read again later."""
        return self._pages.dropped_bytes

    def close(self) -> None:
        """Bring parameters and states back into memory; from then on the optimizer steps as ever."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for parameter in self._parameters:
            if self._pages.has(parameter.data):
                parameter.data = parameter.data.clone()
            state = self._optimizer.state.get(parameter) or {}
            for name, value in state.items():
                if isinstance(value, torch.Tensor) and self._pages.has(value):
                    state[name] = value.clone()
        self._pages.close()
        _spilled.discard(self._model)
        _ended()

    def __repr__(self) -> str:
        return (
            f"<tsnb spilled model: {_human(self.present_bytes)} of {_human(self.need_bytes)} in memory, limit "
            f"{_human(self.limit_bytes)}>"
        )


class _Forward:
    """Reads a module's parameters, and those of the next one ahead."""

    def __init__(self, pages: Pages, mine: list[nn.Parameter], following: list[nn.Parameter]) -> None:
        self._pages = pages
        self._mine = mine
        self._following = following

    def __call__(self, _module: nn.Module, _inputs: Any) -> None:
        for parameter in self._mine:
            self._pages.use(parameter)
        for parameter in self._following:
            self._pages.read_ahead(parameter)


def _human(size: int) -> str:
    return f"{size / 2**30:,.2f} GiB" if size >= 2**30 else f"{size / 2**20:,.1f} MiB"
