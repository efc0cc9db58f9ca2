"""Settings of a notebook that change numbers and messages, carried to its background kernels.

| setting | where it is applied |
|---|---|
| torch: default dtype, TF32 and other precisions, deterministic algorithms, cudnn, print options | every kernel |
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
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

__all__ = ["numerics_here", "seed_here", "take_on"]

MOST_SEED = 2**32

_PLAIN = (str, int, float, bool, type(None))
_NUMPY_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
_TORCH_PRINTS = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
_TORCH = {
    "dtype": "float32", "precision": "highest", "deterministic": [False, False], "benchmark": False,
    "cudnn_deterministic": False, "cudnn_tf32": True, "device": "cpu", "grad": True, "anomaly": [False, True],
    "cudnn_enabled": True, "reductions": [True, True], "attention": [True] * 4, "prints": _TORCH_PRINTS, "fp32": {},
}  # fmt: skip
_TOLD = {
    "dtype": "the default dtype", "precision": "float32_matmul_precision", "deterministic": "deterministic algorithms",
    "benchmark": "cudnn.benchmark", "cudnn_deterministic": "cudnn.deterministic", "cudnn_tf32": "cudnn.allow_tf32",
    "device": "the default device", "grad": "the grad mode", "anomaly": "anomaly detection", "prints": "print options",
    "fp32": "fp32_precision", "cudnn_enabled": "cudnn.enabled", "reductions": "reduced-precision reductions",
    "attention": "the attention kernels",
}  # fmt: skip
_REDUCTIONS = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
_ATTENTION = ("flash", "mem_efficient", "math", "cudnn")
_FP32 = {
    "": "none", "cuda.matmul": "none", "cudnn": "none", "cudnn.conv": "tf32", "cudnn.rnn": "tf32",
    "mkldnn": "none", "mkldnn.matmul": "none", "mkldnn.conv": "none", "mkldnn.rnn": "none",
}  # fmt: skip
"""Where torch has `fp32_precision`, a backend before its operators, and what it is by default."""
_OF_A_TRIAL = ("device", "grad", "anomaly")


def numerics_here() -> dict[str, Any]:
    """Return the settings of this process, by package, those that are not as they begin. On the user's thread."""
    found: dict[str, Any] = {"warnings": _filters(), "logging": _levels()}
    if "torch" in sys.modules:
        with contextlib.suppress(ImportError):  # a thread of the notebook that imports it may fail
            found["torch"] = _torch()
    if "numpy" in sys.modules:
        found["numpy"] = _numpy()
    return {package: settings for package, settings in found.items() if settings}


def seed_here() -> int | None:
    """Return the seed that the user has given torch (`torch.manual_seed(0)`, `seed_everything`); None: none was given.

    torch draws its own seed from 64 bits, so a number below 2**32 is a user's.
    """
    torch = sys.modules.get("torch")
    seed = getattr(torch, "initial_seed", lambda: MOST_SEED)()
    return int(seed) if seed < MOST_SEED else None


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
        print(f"some settings of {package} in the notebook do not apply here: {error}", file=sys.stderr)  # noqa: T201


def _torch() -> dict[str, Any]:
    """Return torch's settings that differ from its defaults; `unread` names those that torch did not tell.

    Each is read by itself: torch's getters of TF32 raise once `fp32_precision` has been set (torch 2.9 and later), and
    a torch of another version may lack some.
    """
    torch: Any = importlib.import_module("torch")  # a thread may be importing it just now: this waits for it
    cudnn = torch.backends.cudnn
    getters: dict[str, Callable[[], Any]] = {
        "dtype": lambda: str(torch.get_default_dtype()).removeprefix("torch."),
        "precision": torch.get_float32_matmul_precision,
        "deterministic": lambda: [
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ],
        "benchmark": lambda: cudnn.benchmark,
        "cudnn_deterministic": lambda: cudnn.deterministic,
        "cudnn_tf32": lambda: cudnn.allow_tf32,
        "cudnn_enabled": lambda: cudnn.enabled,
        "reductions": lambda: [_plain(getattr(torch.backends.cuda.matmul, name)) for name in _REDUCTIONS],
        "attention": lambda: [getattr(torch.backends.cuda, f"{kind}_sdp_enabled")() for kind in _ATTENTION],
        "device": lambda: _default_device(torch),
        "grad": torch.is_grad_enabled,
        "anomaly": lambda: [torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()],
        "prints": lambda: {name: getattr(torch._tensor_str.PRINT_OPTS, name) for name in _TORCH_PRINTS},
        "fp32": lambda: _fp32_precisions(torch),
    }
    found, unread = {}, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, get in getters.items():
            try:
                value = get()
            except Exception:  # noqa: BLE001 (RuntimeError, AttributeError: whatever this torch raises)
                unread.append(name)
                continue
            if value != _TORCH[name]:
                found[name] = value
    if found.get("fp32"):  # they say the same as the old getters, and are read where those raise
        unread = [name for name in unread if name not in {"precision", "cudnn_tf32"}]
    return found | ({"unread": unread} if unread else {})


def _default_device(torch: Any) -> str:
    """Return torch's default device by name, without starting CUDA in this process.

    `torch.get_default_device()` makes a tensor to find the number of a device that was set without one, as in
    `torch.set_default_device("cuda")`. On a GPU that costs the notebook about half a GiB. Without one it raises.
    """
    kind = importlib.import_module("torch.utils._device").DeviceContext
    modes = importlib.import_module("torch.overrides")._get_current_function_mode_stack()
    devices = [mode.device for mode in modes if isinstance(mode, kind)]
    if not devices:
        return "cpu"
    started = getattr(getattr(torch, devices[-1].type, None), "is_initialized", bool)()
    return str(torch.get_default_device() if started else devices[-1])


def _fp32_precisions(torch: Any) -> dict[str, str]:
    """Return what `torch.backends.*.fp32_precision` is set to, by its place; empty before torch 2.9."""
    found = {}
    for place, usual in _FP32.items():
        try:
            precision = attrgetter(f"{place}.fp32_precision".lstrip("."))(torch.backends)
        except (AttributeError, RuntimeError):
            continue
        if precision != usual:
            found[place] = str(precision)
    return found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _set_reductions(torch: Any, wanted: list[Any]) -> None:
    for name, on in zip(_REDUCTIONS, wanted, strict=True):
        setattr(torch.backends.cuda.matmul, name, tuple(on) if isinstance(on, list) else on)


def _set_fp32_precisions(torch: Any, wanted: Mapping[str, str]) -> None:
    """Set those that are not so yet: the old setters may have done it, and torch refuses to read a mix of both.

    Places that are not named get their usual value. An old setter may have changed them as well: the matmul precision
    "high" also sets that of the CPU, and the notebook may have changed that of the GPU alone.
    """
    for place, precision in (_FP32 | dict(wanted)).items():
        backend = attrgetter(place)(torch.backends) if place else torch.backends
        if backend.fp32_precision != precision:
            backend.fp32_precision = precision


def _take_torch(settings: Mapping[str, Any]) -> None:
    """Apply each setting by itself; one that fails here does not keep the others from being applied.

    Raises:
        RuntimeError: Some could not be carried; names them with the reason.
    """
    if not settings:
        return
    torch: Any = importlib.import_module("torch")
    cudnn = torch.backends.cudnn
    steps: dict[str, Callable[[Any], Any]] = {
        "dtype": lambda name: torch.set_default_dtype(getattr(torch, name)),
        "precision": torch.set_float32_matmul_precision,
        "deterministic": lambda on: torch.use_deterministic_algorithms(on[0], warn_only=on[1]),
        "benchmark": lambda on: setattr(cudnn, "benchmark", on),
        "cudnn_deterministic": lambda on: setattr(cudnn, "deterministic", on),
        "cudnn_tf32": lambda on: setattr(cudnn, "allow_tf32", on),
        "cudnn_enabled": lambda on: setattr(cudnn, "enabled", on),
        "reductions": lambda on: _set_reductions(torch, on),
        "attention": lambda on: [
            getattr(torch.backends.cuda, f"enable_{kind}_sdp")(one)
            for kind, one in zip(_ATTENTION, on, strict=True)
        ],
        "fp32": lambda wanted: _set_fp32_precisions(torch, wanted),
        "grad": torch.set_grad_enabled,
        "anomaly": lambda on: torch.autograd.set_detect_anomaly(on[0], check_nan=on[1]),
        "prints": lambda shown: torch.set_printoptions(**shown),
        "device": torch.set_default_device,
    }
    failed = [
        f"{_TOLD.get(name, name)} (could not be read in the notebook)" for name in settings.get("unread", ())
    ]
    for name, step in steps.items():
        if name in settings:
            try:
                step(settings[name])
            except Exception as error:  # noqa: BLE001 (a GPU that this machine lacks, say)
                failed.append(f"{_TOLD.get(name, name)} ({str(error).partition(chr(10))[0]})")
    if failed:
        raise RuntimeError(", ".join(failed))


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
            found["format"] = [*_format(handler.formatter), "stdout" if on_out else "stderr"]
    return found


def _format(formatter: logging.Formatter) -> list[Any]:
    """Return a formatter's format, date format and style; Python's own where its class or defaults cannot travel."""
    styles: Mapping[str, Any] = logging._STYLES
    if type(formatter) is logging.Formatter and not getattr(formatter._style, "_defaults", None):
        for style, (kind, _) in styles.items():
            if type(formatter._style) is kind:
                return [formatter._fmt, formatter.datefmt, style]
    return [logging.BASIC_FORMAT, None, "%"]


def _take_levels(settings: Mapping[str, Any]) -> None:
    for name, level in settings.get("levels", {}).items():
        logging.getLogger(name or None).setLevel(level)
    if "format" in settings:
        words, dates, style, stream = settings["format"]
        logging.basicConfig(format=words, datefmt=dates, style=style, stream=getattr(sys, stream))
