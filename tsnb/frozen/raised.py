"""What a frozen part raised, as its user should read it: whose code it was, with which batch, in which line."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tsnb.stream.loader.seams import StepFailed
from tsnb.stream.producer.failures import kind_of, message_of, text_of
from tsnb.text.printable import one_line

__all__ = ["raised_in"]

MOST_FIELDS = 8
"""Of a batch that are described."""
_HIDDEN = (str(Path(__file__).parents[1]), str(Path(nn.__file__).parent / "modules" / "module.py"))
"""Files whose frames say nothing to the user: they call the user's code."""


def raised_in(then: Any, batch: Any, error: Exception) -> StepFailed:
    """Return what is told of an error.

    Args:
        then: The frozen part.
        batch: What it was given.
        error: What it raised.
    """
    kind, message = kind_of(error), one_line(message_of(error))
    if isinstance(then, nn.Module):
        whose = f"The network of then= ({type(then).__name__})"
        advice = (
            f"It was given {_inputs_of(batch)}. If these are not its inputs, pass a function of the batch, for example "
            "then=lambda batch: (trunk(batch[0]), batch[1])."
        )
    else:
        whose = "Your then= function"
        advice = (
            f"It was given the batch {described(batch)}. To see the error alone, call the function with each batch: "
            f"for batch in loader: {_called(then)}(batch)"
        )
    said = message if message.endswith((".", "!", "?")) else f"{message}."
    return StepFailed.of(f"{whose} raised {kind}: {said}", advice, _frames(error))


def _called(then: Any) -> str:
    name = str(getattr(then, "__name__", ""))
    return name if name.isidentifier() else "function"


def _inputs_of(batch: Any) -> str:
    if isinstance(batch, (tuple, list)) and len(batch):
        return f"the first element of the batch {described(batch)}"
    return f"its inputs from the batch {described(batch)}" if isinstance(batch, Mapping) else described(batch)


def described(value: Any) -> str:
    """Return the form of a batch in a few words, such as `(float32 [64, 3, 32, 32], int64 [64])`."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, Mapping):
        fields = [f"{key!r}: {described(each)}" for key, each in [*value.items()][:MOST_FIELDS]]
        return f"{{{_joined(fields, len(value))}}}"
    if isinstance(value, (tuple, list)) and not all(isinstance(each, (str, int, float)) for each in value):
        text = _joined([described(each) for each in value[:MOST_FIELDS]], len(value))
        return f"[{text}]" if isinstance(value, list) else f"({text})"
    if isinstance(value, (tuple, list)) and value:
        return f"{type(value).__name__} of {len(value)} {type(value[0]).__name__}"
    return type(value).__name__


def _joined(words: list[str], count: int) -> str:
    return ", ".join([*words, "..."] if count > len(words) else words)


def _frames(error: Exception) -> str:
    """Return an error's traceback without what lies between the loader and the user's code.

    The message is not repeated below it, unless it has more lines than the one that was told.
    """
    try:
        told = traceback.TracebackException.from_exception(error)
        waiting, seen = [told], set()
        while waiting:
            one = waiting.pop()
            seen.add(id(one))
            one.stack = traceback.StackSummary.from_list(
                [frame for frame in one.stack if not frame.filename.startswith(_HIDDEN)]
            )
            waiting += [each for each in (one.__cause__, one.__context__) if each and id(each) not in seen]
        lines = [*told.format()]
    except BaseException:  # noqa: BLE001  # the error's own code, which may raise anything
        return text_of(error)
    last = [*told.format_exception_only()]
    alone = len(last) == 1 and last[0].count("\n") == 1
    return "".join(lines[: -len(last)] if alone else lines)
