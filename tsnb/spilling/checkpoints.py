"""Checkpoints of a model on a GPU that is offloaded: whole values, saved from host memory and loaded into it.

state_dict()                parameters and states are their homes in host memory, whatever is on the GPU
model.load_state_dict       copies into one parameter after the other, as any other operation on them (`operations`)
optimizer.load_state_dict   would put all states on the GPU first: large ones are kept back, and get homes
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import nn

from tsnb.spilling.offloaded import Offloaded
from tsnb.spilling.pages import SMALL_BYTES, bytes_of

__all__ = ["checkpoint_hooks"]


def checkpoint_hooks(model: nn.Module, optimizer: torch.optim.Optimizer, memory: Offloaded) -> list[Any]:
    """Have a model and its optimizer give and take whole values; returns handles of the hooks.

    Args:
        model: Its parameters have homes.
        optimizer: Its states have, or get them.
        memory: Where homes are.
    """
    whole = _Checkpoints(optimizer, memory)
    return [
        # the public name of it is of torch 2.5
        *(module._register_state_dict_hook(whole.model_saved) for module in model.modules()),  # type: ignore[no-untyped-call]
        optimizer.register_state_dict_post_hook(whole.saved),
        optimizer.register_load_state_dict_pre_hook(whole.kept_back),
        optimizer.register_load_state_dict_post_hook(whole.loaded),
    ]


class _Checkpoints:
    """A model's parameters and its optimizer's states in checkpoints."""

    def __init__(self, optimizer: torch.optim.Optimizer, memory: Offloaded) -> None:
        self._optimizer = optimizer
        self._memory = memory
        self._saved: dict[int, dict[str, torch.Tensor]] = {}
        self._old: list[torch.Tensor] = []
        self._numbers: list[int] = []

    def model_saved(self, module: nn.Module, state_dict: dict[str, Any], prefix: str, _metadata: Any) -> None:
        """Put homes into a module's state dict."""
        for name, parameter in module.named_parameters(recurse=False):
            if prefix + name in state_dict and self._memory.has(parameter):
                state_dict[prefix + name] = self._memory.whole(parameter)

    def saved(self, _optimizer: Any, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return the state dict with homes."""
        state = {
            number: {
                name: self._memory.whole(value) if self._is_here(value) else value
                for name, value in values.items()
            }
            for number, values in state_dict["state"].items()
        }
        return {**state_dict, "state": state}

    def kept_back(self, _optimizer: Any, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return a state dict without large whole."""
        self._saved = {
            number: {name: value for name, value in values.items() if bytes_of(value) >= SMALL_BYTES}
            for number, values in state_dict["state"].items()
        }
        self._numbers = list(chain.from_iterable(group["params"] for group in state_dict["param_groups"]))
        self._old = [
            v for values in self._optimizer.state.values() for v in values.values() if self._is_here(v)
        ]
        small = {
            number: {name: value for name, value in values.items() if name not in self._saved[number]}
            for number, values in state_dict["state"].items()
        }
        return {**state_dict, "state": small}

    def loaded(self, optimizer: torch.optim.Optimizer) -> None:
        """Give large states homes."""
        for old in self._old:
            self._memory.discard(old)
        parameters = chain.from_iterable(group["params"] for group in optimizer.param_groups)
        for number, parameter in zip(self._numbers, parameters, strict=True):
            for name, value in self._saved.get(number, {}).items():
                own = value.to(parameter.dtype) if parameter.is_floating_point() else value
                optimizer.state[parameter][name] = self._memory.tensor(own)
        self._saved, self._old, self._numbers = {}, [], []

    def _is_here(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and self._memory.has(value)
