"""Settings of a notebook that change numbers and messages, carried to its background kernels.

| setting | where it is applied |
|---|---|
| torch: default dtype, matmul precision, deterministic algorithms, cudnn, print options | every kernel |
| torch: default device, grad mode, anomaly mode | trials |
| numpy: handling of floating-point errors, print options | every kernel |
| warning filters; levels of loggers, and the root logger's format where it writes to the screen | every kernel |

Only settings that differ from the defaults of Python, numpy and torch are carried, as plain values. All others (pandas,
matplotlib, handlers) are for a set-up cell: `%%trial --setup`.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import logging
import re
import sys
import warnings
from collections.abc import Mapping
from typing import Any

__all__ = ["numerics_here", "take_on"]

_PLAIN = (str, int, float, bool, type(None))
_NUMPY_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
_TORCH = {
    "dtype": "float32", "precision": "highest", "deterministic": [False, False], "benchmark": False,
    "cudnn_deterministic": False, "cudnn_tf32": True, "device": "cpu", "grad": True, "anomaly": [False, True],
}  # fmt: skip
_TORCH_PRINTS = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
_OF_A_TRIAL = ("device", "grad", "anomaly")


def numerics_here() -> dict[str, Any]:
    """Return the settings of this process, by package, those that are not as they begin. On the user's thread."""
    found: dict[str, Any] = {"warnings": _filters(), "logging": _levels()}
    if "torch" in sys.modules:
        with contextlib.suppress(Exception):  # a torch of another version may lack any of it
            found["torch"] = _torch()
    if "numpy" in sys.modules:
        found["numpy"] = _numpy()
    return {package: settings for package, settings in found.items() if settings}


def take_on(settings: Mapping[str, Any], *, trial: bool, device: str | None = None) -> None:
    """Take on the settings of a notebook. Called in the kernel, on its main thread.

    Args:
        settings: What `numerics_here` has returned there.
        trial: Whether the kernel computes as the notebook does; else it prepares batches.
        device: The device that the trial was put on, which comes before the notebook's default one.
    """
    for package, apply in (("numpy", _take_numpy), ("warnings", _take_filters), ("logging", _take_levels)):
        if package in settings:
            _try(package, apply, settings[package])
    if "torch" in settings:
        own = settings["torch"]
        wanted = {name: value for name, value in own.items() if trial or name not in _OF_A_TRIAL}
        if device is not None:
            wanted.pop("device", None)
        _try("torch", _take_torch, wanted)


def _try(package: str, apply: Any, settings: Any) -> None:
    try:
        apply(settings)
    except Exception as error:  # noqa: BLE001 (a GPU that this machine lacks, say): the trial can do without, and is told
        print(f"not all settings of {package} in the notebook apply here: {error}", file=sys.stderr)  # noqa: T201


def _torch() -> dict[str, Any]:
    torch: Any = importlib.import_module("torch")  # a thread may be importing it just now: this waits for it
    cudnn = torch.backends.cudnn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        now = {
            "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
            "precision": torch.get_float32_matmul_precision(),
            "deterministic": [
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ],
            "benchmark": cudnn.benchmark,
            "cudnn_deterministic": cudnn.deterministic,
            "cudnn_tf32": cudnn.allow_tf32,
            "device": str(torch.get_default_device()),
            "grad": torch.is_grad_enabled(),
            "anomaly": [torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()],
        }
    prints = torch._tensor_str.PRINT_OPTS
    shown = {name: getattr(prints, name) for name in _TORCH_PRINTS}
    other = {name: value for name, value in now.items() if value != _TORCH[name]}
    return other | ({"prints": shown} if shown != _TORCH_PRINTS else {})


def _take_torch(settings: Mapping[str, Any]) -> None:
    if not settings:
        return
    torch: Any = importlib.import_module("torch")
    cudnn = torch.backends.cudnn
    steps = {
        "dtype": lambda name: torch.set_default_dtype(getattr(torch, name)),
        "precision": torch.set_float32_matmul_precision,
        "deterministic": lambda on: torch.use_deterministic_algorithms(on[0], warn_only=on[1]),
        "benchmark": lambda on: setattr(cudnn, "benchmark", on),
        "cudnn_deterministic": lambda on: setattr(cudnn, "deterministic", on),
        "cudnn_tf32": lambda on: setattr(cudnn, "allow_tf32", on),
        "grad": torch.set_grad_enabled,
        "anomaly": lambda on: torch.autograd.set_detect_anomaly(on[0], check_nan=on[1]),
        "prints": lambda shown: torch.set_printoptions(**shown),
        "device": torch.set_default_device,
    }
    for name, step in steps.items():
        if name in settings:
            step(settings[name])


def _numpy() -> dict[str, Any]:
    np: Any = importlib.import_module("numpy")  # as torch
    errors = {kind: how for kind, how in np.geterr().items() if how in {"ignore", "warn", "raise", "print"}}
    shown = {name: value for name, value in np.get_printoptions().items() if isinstance(value, _PLAIN)}
    first = {"precision": 8, "threshold": 1000, "edgeitems": 3, "linewidth": 75, "suppress": False}
    other = {name: shown[name] for name, value in first.items() if shown.get(name, value) != value}
    found = {"errors": errors if errors != _NUMPY_ERRORS else {}, "prints": other}
    return {name: value for name, value in found.items() if value}


def _take_numpy(settings: Mapping[str, Any]) -> None:
    np: Any = importlib.import_module("numpy")
    np.seterr(**settings.get("errors", {}))
    np.set_printoptions(**settings.get("prints", {}))


def _filters() -> list[list[Any]]:
    """Return the warning filters, the first that counts first; those of a notebook's own classes stay behind."""
    return [
        [action, _text(message), f"{kind.__module__}:{kind.__qualname__}", _text(module), line]
        for action, message, kind, module, line in list(warnings.filters)
        if isinstance(kind, type) and kind.__module__ != "__main__"
    ]


def _text(pattern: Any) -> str:
    return str(getattr(pattern, "pattern", pattern) or "")


def _take_filters(filters: Any) -> None:
    known = {tuple(one) for one in _filters()}
    for action, message, kind, module, line in reversed(filters):
        where, _, name = kind.partition(":")
        found = getattr(builtins if where == "builtins" else sys.modules.get(where), name, None)
        if (
            isinstance(found, type)
            and issubclass(found, Warning)
            and (action, message, kind, module, line) not in known
        ):
            with contextlib.suppress(re.error):
                warnings.filterwarnings(action, message, found, module, line)


def _levels() -> dict[str, Any]:
    root = logging.getLogger()
    own = [("", root), *logging.Logger.manager.loggerDict.items()]
    levels = {n: logger.level for n, logger in own if isinstance(logger, logging.Logger) and logger.level}
    if levels.get("") == logging.WARNING:
        del levels[""]
    found: dict[str, Any] = {"levels": levels} if levels else {}
    for handler in root.handlers:
        if type(handler) is logging.StreamHandler and handler.formatter is not None:
            on_out = getattr(handler.stream, "name", "") in {"stdout", "<stdout>"}
            found["format"] = [
                handler.formatter._fmt,
                handler.formatter.datefmt,
                "stdout" if on_out else "stderr",
            ]
    return found


def _take_levels(settings: Mapping[str, Any]) -> None:
    if "format" in settings:
        style, dates, stream = settings["format"]
        logging.basicConfig(format=style, datefmt=dates, stream=getattr(sys, stream))
    for name, level in settings.get("levels", {}).items():
        logging.getLogger(name or None).setLevel(level)
