"""What each operation uses of an offloaded model on a GPU: brought in before it computes, forwards and backwards.

A parameter of a GPU that is not there must not be computed with at all: CUDA would read from address zero. So spilled
parameters have a class of their own (and their old one back after `close`), whose `__torch_function__` sees every
operation with them, in the model's modules and in the user's own lines: a norm that is logged, an average of weights.

    forward     before a module: its parameters and the next one's are read ahead, while others compute
                at an operation: what it uses is brought in, and waited for on the device
    backward    before the operation's node: the same again, and the states of its parameters and the parameters of
                the operation before it are read ahead, while this one computes

Views of a parameter (`weight.t()`, `weight[:10]`, `weight.data`) are seen in the same way. What is not: kernels of
extensions that are called from outside of torch's operations; they find the parameters of the module that is run.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from tsnb.errors import TsnbError
from tsnb.spilling.offloaded import Offloaded, plain

__all__ = ["Operations"]

METADATA = frozenset(
    {
        "__get__",
        "__len__",
        "_has_compatible_shallow_copy_type",
        "detach",
        "dim",
        "element_size",
        "is_complex",
        "is_contiguous",
        "is_floating_point",
        "ndimension",
        "nelement",
        "numel",
        "register_hook",
        "register_post_accumulate_grad_hook",
        "requires_grad_",
        "size",
        "storage_offset",
        "stride",
        "untyped_storage",
    }
)
"""Operations that read no values."""
VIEWS = frozenset({"H", "T", "imag", "mH", "mT", "real"})
"""Attributes that are views."""


class _Watched:
    """A tensor whose operations are seen."""

    tsnb_operations: Operations | None = None
    """None: of a copy, which is as any other tensor."""
    tsnb_tensor: torch.Tensor
    """The same memory, as the rest of spilling knows it."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        tensors = _tensors((args, tuple(kwargs.values())))
        found = [t for t in tensors if isinstance(t, _Watched) and t.tsnb_operations is not None]
        with plain():
            operations = found[0].tsnb_operations if found else None
            return func(*args, **kwargs) if operations is None else operations.run(func, args, kwargs, found)


class _Parameter(_Watched, nn.Parameter):
    """A parameter of an offloaded model."""


class _View(_Watched, torch.Tensor):
    """A view of one."""


@dataclass(eq=False)
class _Use:
    """What one operation of the forward pass used, for its node in `backward`."""

    tensors: list[torch.Tensor]
    before: weakref.ref[_Use] | None
    """The operation before it; it lives as long as its node."""


class Operations:
    """The operations on a model's offloaded parameters.

    Args:
        memory: Where the parameters are.
        states: Tells a parameter's optimizer states.
    """

    def __init__(self, memory: Offloaded, states: Callable[[nn.Parameter], Iterator[torch.Tensor]]) -> None:
        self._memory = memory
        self._states = states
        self._watched: list[nn.Parameter] = []
        self._owners: dict[int, nn.Parameter] = {}
        self._last: weakref.ref[_Use] | None = None

    def watch(self, model: nn.Module) -> list[Any]:
        """See the operations on a model's parameters from now on; returns handles of its modules' hooks."""
        for parameter in dict.fromkeys(model.parameters()):
            if self._memory.has(parameter):
                known = parameter.data
                parameter.__class__ = _Parameter
                assert isinstance(parameter, _Parameter)
                parameter.tsnb_operations, parameter.tsnb_tensor = self, known
                self._watched.append(parameter)
                self._owners[id(known)] = parameter
        modules = [m for m in model.modules() if any(True for _ in m.parameters(recurse=False))]
        order = [[p for p in m.parameters(recurse=False) if isinstance(p, _Parameter)] for m in modules]
        return [
            module.register_forward_pre_hook(partial(self._enter, mine, following))
            for module, mine, following in zip(modules, order, [*order[1:], []], strict=True)
        ]

    def release(self) -> None:
        """Give parameters their class back."""
        for parameter in self._watched:
            parameter.__class__ = nn.Parameter
            parameter.__dict__.pop("tsnb_operations")
            parameter.__dict__.pop("tsnb_tensor")
        self._watched.clear()
        self._owners.clear()

    def run(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], found: list[Any]
    ) -> Any:
        """Run an operation. Called by torch in place of it; `found` are its parameters and views of them.

        Raises:
            TsnbError: What it uses does not fit into the limit, is gone, or would lose its home.
        """
        name = getattr(func, "__name__", "")
        of = (
            getattr(getattr(func, "__self__", None), "__name__", "") if name in ("__get__", "__set__") else ""
        )
        if name in METADATA and of not in VIEWS:
            return self._views(func(*args, **kwargs), found)
        if name == "__set__":
            if of == "data":
                raise TsnbError(
                    "The .data of an offloaded parameter cannot be replaced, so model.to(...), "
                    "model.half() and similar calls do not work. First call close() on the object that "
                    "tsnb.offload returned, or use parameter.copy_(...)."
                )
            return func(*args, **kwargs)
        used = [t.tsnb_tensor for t in found]
        if not all(map(self._memory.has, used)):
            raise TsnbError("This view of a parameter is from before close(). Take the view again.")
        if torch._C._current_graph_task_id() == -1:  # outside of backward, so that one is over
            self._memory.hold()
        writes = name.endswith("_") or "out" in kwargs
        with self._memory.in_use(used, writes=writes):
            versions = [t._version for t in found]
            made = func(*args, **kwargs)
            # inference mode counts no versions
            sure = not (writes and torch.is_inference_mode_enabled())
            self._memory.changed(
                *(t.tsnb_tensor for t, v in zip(found, versions, strict=True) if t._version != v or not sure)
            )
        self._again_in_backward(made, used)
        return self._views(made, found)

    def _views(self, made: Any, found: list[Any]) -> Any:
        """Have views of a parameter be seen, too."""
        if isinstance(made, (list, tuple)) and type(made) in (list, tuple):
            return type(made)(self._views(one, found) for one in made)
        if isinstance(made, torch.Tensor) and not isinstance(made, _Watched) and self._memory.has(made):
            for one in found:
                if made.untyped_storage()._cdata == one.tsnb_tensor.untyped_storage()._cdata:
                    view = made.as_subclass(_View)
                    view.tsnb_operations, view.tsnb_tensor = self, one.tsnb_tensor
                    return view
        return made

    def _enter(
        self, mine: list[_Parameter], following: list[_Parameter], _module: nn.Module, _inputs: Any
    ) -> None:
        """Bring in a module's parameters, and begin with the next one's. Called by torch before its forward."""
        with contextlib.suppress(TsnbError):  # too many at once: its operations may take them one by one
            self._memory.use(*mine)
        self._memory.read_ahead(*mine, *following)

    def _again_in_backward(self, made: Any, used: list[torch.Tensor]) -> None:
        nodes = {t.grad_fn for t in _tensors((made,)) if t.grad_fn is not None}
        if nodes:
            use = _Use(used, self._last)
            self._last = weakref.ref(use)
            for node in nodes:
                node.register_prehook(partial(self._before_node, use))

    def _before_node(self, use: _Use, _gradients: Any) -> None:
        """Bring in what a node uses. Called by torch in `backward`, in its thread, before the node."""
        self._memory.hold(*use.tensors)
        before = use.before() if use.before is not None else None
        owners = [self._owners[id(t)] for t in use.tensors if id(t) in self._owners]
        self._memory.read_ahead(
            *(state for p in owners for state in self._states(p)), *(before.tensors if before else ())
        )


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
