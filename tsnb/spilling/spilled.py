"""A model that does not fit into memory with its optimizer, made by `tsnb.offload` (`asked`), and trained as any other.

    plain                                    spilled
    backward: all gradients                  backward: one gradient, that parameter's step, the gradient goes;
    optimizer.step(): all parameters                   the next parameter is read meanwhile
    memory: parameters + gradients + states  memory: the limit, one gradient, activations

The step of a parameter needs nothing of the others for every optimizer of torch.optim except LBFGS, so the numbers are
the same. It is taken by the user's own optimizer, with its own groups, learning rates and states, when the gradient
is whole (`register_post_accumulate_grad_hook`); `optimizer.step()` then finds no gradient and does nothing.

On the CPU parameters and states lie in a file (`pages`), on a GPU in pinned host memory (`offloaded`): the steps
are the same, and `Pages` and `Offloaded` have one interface.

Whatever needs all gradients at once does not work: clipping by their common norm, several `backward` for one step, a
`GradScaler`. Clipping is warned of, the others are refused before a wrong step (`gradients`).
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from tsnb.errors import TsnbError
from tsnb.machine.memory import free_memory
from tsnb.spilling.checkpoints import checkpoint_hooks
from tsnb.spilling.gradients import SCALED, is_scaled, unwatch, watch
from tsnb.spilling.offloaded import Offloaded, plain, reserve_bytes
from tsnb.spilling.operations import Operations
from tsnb.spilling.pages import SMALL_BYTES, Pages, bytes_of, free_at_once
from tsnb.text.words import size_text

__all__ = ["Spilled", "is_spilled"]

STATES = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "Adadelta": 2, "ASGD": 1, "Adagrad": 1}
"""Tensors of a parameter's size that an optimizer keeps beside it, to foretell what it will take; others: 1."""

_spilled: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_stepping: weakref.WeakSet[Spilled] = weakref.WeakSet()
"""Those whose gradients go."""


def is_spilled(model: nn.Module) -> bool:
    """Tell whether a model is offloaded now."""
    return model in _spilled


def _gone(parameters: Iterable[Any]) -> list[Spilled]:
    """Return those of which some of these parameters have lost their gradients."""
    known = set(map(id, parameters))
    return [spilled for spilled in list(_stepping) if not spilled.stepped.isdisjoint(known)]


def _ended() -> None:
    """Leave heap and torch as usual once no model is offloaded any more."""
    if not list(_spilled):  # its length may still count one that goes now
        free_at_once(False)
        unwatch()


class Spilled:
    """A model and its optimizer whose tensors lie in a file, or in host memory; made by `tsnb.offload`.

    Attributes:
        need_bytes: What parameters, gradients and states would take in memory.
        limit_bytes: What parameters and states may take; on a GPU gradients, too.

    Args:
        model: The model.
        optimizer: Over its parameters.
        limit_bytes: What parameters and states may take.
        pages: Where tensors go; closed with this one, or if it cannot be made.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, limit_bytes: int, pages: Pages | Offloaded
    ) -> None:
        self.limit_bytes = limit_bytes
        self._model = model
        self._optimizer = optimizer
        self._groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        self._parameters = list(dict.fromkeys(model.parameters()))
        self._states_each = STATES.get(type(optimizer).__name__, 1)
        self.need_bytes = sum(map(bytes_of, self._parameters)) + sum(
            (1 + self._states_each) * bytes_of(p) for p in self._stepped_ones()
        )
        self._pages = pages
        self._operations = Operations(pages, self._states) if isinstance(pages, Offloaded) else None
        self._stepped: set[int] = set()
        self._stepping = False
        self._handles: list[Any] = []
        try:
            self._check()
            if isinstance(pages, Pages):
                free_at_once(True)
            self._move()
        except BaseException:
            if self._operations is not None:  # those in a file can be used where they are
                self._bring_back()
            self._pages.close()
            _ended()
            raise
        self._hook()
        _spilled.add(model)
        _stepping.add(self)
        watch(_gone)
        weakref.finalize(model, _ended).atexit = False  # it may go without close()

    def _stepped_ones(self) -> list[nn.Parameter]:
        """Return the parameters that take steps."""
        return [p for p in self._parameters if id(p) in self._groups and p.requires_grad]

    def _check(self) -> None:
        """Refuse what cannot go, and advise against what need not be.

        Raises:
            ValueError: The limit is too low.
            TsnbError: The optimizer is another model's, or a parameter is of a class of its own.
        """
        known = {id(p) for p in self._parameters}
        if strangers := [
            p for group in self._optimizer.param_groups for p in group["params"] if id(p) not in known
        ]:
            raise TsnbError(
                f"{len(strangers)} of the optimizer's parameters do not belong to the model. Pass the "
                "model that the optimizer was created for."
            )
        largest = max(map(bytes_of, self._parameters), default=0)
        least = (1 + self._states_each) * largest
        also = ""
        if isinstance(self._pages, Offloaded):
            for name, parameter in self._model.named_parameters():
                if type(parameter) is not nn.Parameter:
                    raise TsnbError(
                        f"{name!r} is a {type(parameter).__name__}. On a GPU, tsnb.offload needs "
                        "models whose parameters are torch.nn.Parameter."
                    )
            reserve = reserve_bytes(self._model, self._stepped_ones(), self._states_each)
            least += reserve
            also = ", gradients and the data that stays on the GPU"
            self._pages.limit_bytes = self.limit_bytes - reserve
        if self.limit_bytes < least:
            raise ValueError(
                f"limit={self.limit_bytes:,} bytes is too low: the largest parameter takes {largest:,} "
                f"bytes, and {least:,} with its optimizer states{also}. Pass at least {least:,}."
            )
        free = self._free_bytes()
        if self.need_bytes <= self.limit_bytes or (free is not None and self.need_bytes < free // 2):
            room = f"{size_text(free)} are free" if free is not None else "the limit is higher"
            warnings.warn(
                f"This model and its optimizer take {size_text(self.need_bytes)}, and {room}. They "
                "fit, so offloading only makes each step slower. Leave tsnb.offload out.",
                RuntimeWarning,
                stacklevel=4,
            )

    def _free_bytes(self) -> int | None:
        """Return the memory that the model could have where it trains, and what it has there on a GPU."""
        if isinstance(self._pages, Pages):
            free = free_memory()
            return None if free is None else free.size
        there = self._pages.transfers.free_bytes()
        own = sum(bytes_of(p) for p in self._parameters if p.is_cuda)
        return None if there is None else there + own

    # -- moving ------------------------------------------------------------------------------------------

    def _move(self) -> None:
        """Put parameters, and states that are there, where they are kept; one after the other."""
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
                    f"A {type(module).__name__} created on the device 'meta' has no reset_parameters "
                    "method to initialize it. Create that part on the CPU, or add the method."
                )
            parameters = list(module.parameters(recurse=False))
            self._pages.use(*parameters, writes=True)
            reset()
            self._pages.changed(*parameters)
        self._parameters = list(dict.fromkeys(self._model.parameters()))
        if isinstance(self._pages, Offloaded):
            self._move_buffers(self._pages.transfers.device)
            self._pages.transfers.trim()

    def _move_buffers(self, device: torch.device) -> None:
        """Put buffers where the model is trained, where they stay."""
        for module in self._model.modules():
            for name, buffer in module.named_buffers(recurse=False):
                if not buffer.is_meta:
                    setattr(module, name, buffer.to(device))

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
            if not isinstance(value, torch.Tensor) or self._pages.has(value):
                continue
            # small ones, counters and such, stay where they are; beside a parameter on a GPU they are there, too
            if bytes_of(value) >= SMALL_BYTES or (self._operations is not None and value.dim()):
                state[name] = self._pages.tensor(value)

    def _states(self, parameter: nn.Parameter) -> Iterator[torch.Tensor]:
        for value in (self._optimizer.state.get(parameter) or {}).values():
            if isinstance(value, torch.Tensor):
                yield value

    # -- while it trains -----------------------------------------------------------------------------------

    def _hook(self) -> None:
        """Have each module's parameters read ahead, and each parameter take its step in `backward`."""
        if isinstance(self._pages, Pages):
            modules = [m for m in self._model.modules() if any(True for _ in m.parameters(recurse=False))]
            order = [list(m.parameters(recurse=False)) for m in modules]
            for number, module in enumerate(modules):
                following = order[number + 1] if number + 1 < len(order) else []
                self._handles.append(
                    module.register_forward_pre_hook(_Forward(self._pages, order[number], following))
                )
        elif self._operations is not None:
            self._handles += self._operations.watch(self._model)
            self._handles += checkpoint_hooks(self._model, self._optimizer, self._pages)
        for number, parameter in enumerate(self._parameters):
            if id(parameter) in self._groups and parameter.requires_grad:
                # on a GPU it is read when backward comes to its operation, which is sooner
                before = self._parameters[number - 1] if number and self._operations is None else None
                register: Any = parameter.register_post_accumulate_grad_hook
                self._handles.append(register(self._step_of(before)))
        self._handles.append(self._optimizer.register_step_post_hook(self._step_over))

    def _step_of(self, before: nn.Parameter | None) -> Callable[[torch.Tensor], None]:
        # torch keeps the hook where Python finds no circles; the optimizer's keeps this
        known = weakref.ref(self)

        def step(parameter: torch.Tensor) -> None:
            spilled = known()
            assert isinstance(parameter, nn.Parameter)
            if spilled is not None:
                spilled._step(parameter, before)

        return step

    def _step(self, parameter: nn.Parameter, before: nn.Parameter | None) -> None:
        """Step one parameter. Called in `backward`, when its gradient is whole."""
        if is_scaled():
            raise TsnbError(SCALED)
        if id(parameter) in self._stepped:
            raise TsnbError(
                "backward() ran twice before optimizer.step(). An offloaded model updates its "
                "parameters in each backward(), so gradients cannot accumulate. Call optimizer.step() "
                "after each backward(), if necessary with larger batches."
            )
        if before is not None:  # read while this one is computed
            self._pages.read_ahead(before)
            self._pages.read_ahead(*self._states(before))
        states = list(self._states(parameter))
        room = 0 if states else self._states_each * bytes_of(parameter)
        self._pages.use(parameter, *states, writes=True, room=room)
        groups = self._optimizer.param_groups  # others after a load_state_dict
        kept = [group["params"] for group in groups]
        mine = next((group for group in groups if any(p is parameter for p in group["params"])), None)
        self._stepping = True
        try:
            for group in groups:
                group["params"] = [parameter] if group is mine else []
            with torch.no_grad(), self._as_usual():
                type(self._optimizer).step(self._optimizer)  # not the instance's: a scheduler counts that
        finally:
            self._stepping = False
            for group, parameters in zip(groups, kept, strict=True):
                group["params"] = parameters
        parameter.grad = None
        self._stepped.add(id(parameter))
        self._pages.done(parameter, *states)
        self._take_states(parameter)

    def _as_usual(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which the optimizer steps what was brought in for it."""
        return plain() if self._operations is not None else contextlib.nullcontext()

    def _step_over(self, *_: Any) -> None:
        if not self._stepping:
            self._stepped.clear()
            if isinstance(self._pages, Offloaded):
                self._pages.hold()  # backward is over

    @property
    def stepped(self) -> frozenset[int]:
        """The parameters, by `id`, that took their steps in the last `backward`, and lost their gradients."""
        return frozenset(self._stepped if self._handles else ())

    # -- about it ------------------------------------------------------------------------------------------

    @property
    def present_bytes(self) -> int:
        """What of parameters and states is in memory now, or on the GPU, at most `limit_bytes`."""
        return self._pages.present_bytes

    @property
    def moved_bytes(self) -> int:
        """What was let go of so far, to be read again later."""
        return self._pages.dropped_bytes

    def close(self) -> None:
        """Bring parameters and states back into memory, or to the GPU; from then on the optimizer steps as ever.

        Raises:
            TsnbError: They do not fit on the GPU; nothing was changed.
        """
        if isinstance(self._pages, Offloaded):
            self._pages.check_room()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._bring_back()
        self._pages.close()
        _spilled.discard(self._model)
        _ended()

    def _bring_back(self) -> None:
        """Give parameters and states memory of their own again."""
        if self._operations is not None:
            self._operations.release()
        for parameter in self._parameters:
            if self._pages.has(parameter.data):
                parameter.data = self._pages.alone(parameter.data)
            state = self._optimizer.state.get(parameter) or {}
            for name, value in state.items():
                if isinstance(value, torch.Tensor) and self._pages.has(value):
                    state[name] = self._pages.alone(value)

    def __repr__(self) -> str:
        return (
            f"<tsnb offloaded model: {size_text(self.present_bytes)} of {size_text(self.need_bytes)} in memory, limit "
            f"{size_text(self.limit_bytes)}>"
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
