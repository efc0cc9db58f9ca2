"""Where a network finds its inputs in a batch, and what becomes of the batch.

| batch | the network gets | every trial gets | `attach(inputs=True)` gets |
|---|---|---|---|
| a tensor | the tensor | features | (inputs, features) |
| a tuple or list | its first element | (features, rest...) | (inputs, features, rest...) |
| a dict | its inputs, see below | {"features", rest...} | and the inputs, too |

The inputs of a dict are the fields that `forward` names, else its only field of floating-point numbers.

A function in place of a network gets the batch, and what it returns is the batch. There `attach(inputs=True)` gets the
pair of both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from tsnb.stream.protocol.forms import TwoForms

__all__ = ["FEATURES", "Unfit", "computed", "function_computed"]

FEATURES = "features"
"""What the network's result is called in a dict."""
_WAY_OUT = (
    'Pass a function of the batch, for example then=lambda batch: (trunk(batch["image"]), batch["label"])'
)


class Unfit(TypeError):
    """A batch and what it should go through do not go together; the message says what to pass."""


def function_computed(function: Callable[[Any], Any], batch: Any) -> TwoForms:
    """Return what a function makes of a batch, with the batch beside it.

    Raises:
        Unfit: It returned nothing.
    """
    made = function(batch)
    if made is None:
        raise Unfit("then= returned None. Let the function return the batch that trials should get.")
    return TwoForms(made, (batch, made))


def computed(network: torch.nn.Module, batch: Any) -> TwoForms:
    """Return a batch with a network's features in place of its inputs, and one that has both.

    Raises:
        Unfit: The batch is of a kind in which inputs have no place of their own, or a dict that does not say which
            field they are.
    """
    if isinstance(batch, (torch.Tensor, np.ndarray)):
        features = _plain(network(_tensor(batch)))
        return TwoForms(features, (batch, features))
    if isinstance(batch, Mapping):
        return _in_fields(network, batch)
    if isinstance(batch, (tuple, list)) and len(batch):
        inputs, *rest = batch
        features = _plain(network(_tensor(inputs)))
        kind = list if isinstance(batch, list) else tuple
        return TwoForms(kind([features, *rest]), kind([inputs, features, *rest]))
    raise Unfit(
        f"then= is a network, and a batch is a {type(batch).__name__}, in which its inputs have no place. {_WAY_OUT}."
    )


def _in_fields(network: torch.nn.Module, batch: Mapping[Any, Any]) -> TwoForms:
    names = _named_by_forward(network, batch)
    if names:
        features = _plain(network(**{name: _tensor(batch[name]) for name in names}))
    else:
        names = [_only_numbers(batch)]
        features = _plain(network(_tensor(batch[names[0]])))
    if FEATURES in batch and FEATURES not in names:
        raise Unfit(f"The batch has a field {FEATURES!r} already. {_WAY_OUT}.")
    rest = {key: value for key, value in batch.items() if key not in names}
    inputs = {key: batch[key] for key in names if key != FEATURES}
    return TwoForms({FEATURES: features, **rest}, {**inputs, FEATURES: features, **rest})


def _named_by_forward(network: torch.nn.Module, batch: Mapping[Any, Any]) -> list[Any]:
    """Return the fields that are called like arguments of `forward`; none where a required argument is missing."""
    given = [
        each
        for each in inspect.signature(network.forward).parameters.values()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]
    if any(each.default is each.empty and each.name not in batch for each in given):
        return []
    return [each.name for each in given if each.name in batch]


def _only_numbers(batch: Mapping[Any, Any]) -> Any:
    found = [
        key
        for key, value in batch.items()
        if isinstance(value, (torch.Tensor, np.ndarray))
        and value.ndim > 1
        and _tensor(value).is_floating_point()
    ]
    if len(found) == 1:
        return found[0]
    raise Unfit(
        f"then= is a network, and the batch has the fields {', '.join(map(str, batch))}: which of them are its inputs "
        f"cannot be told. {_WAY_OUT}."
    )


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _plain(features: Any) -> Any:
    """Return a network's result; one of a library's own class of mapping as a plain dict, which every trial knows."""
    return dict(features) if isinstance(features, Mapping) and type(features) is not dict else features
