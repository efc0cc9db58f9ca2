"""Functions as trials: `tsnb.run` and `@tsnb.trial`, in a notebook or a plain script.

A function travels as everything else does: one of the notebook or script by value, with what it reads there; one
of an importable module by name. Arguments that do not fit are refused before anything is started.
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import sys
import textwrap
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, overload

from tsnb.config import unprofiled
from tsnb.experiments.cells import set_up_now
from tsnb.experiments.overview.board import launch
from tsnb.experiments.plan import (
    FUNCTION,
    OPTION_NAMES,
    PARAMETERS,
    RESULT,
    TrialOptions,
    TrialPlan,
    name_of,
    trial_name,
)
from tsnb.experiments.replanning import check_fit
from tsnb.experiments.trial import Trial
from tsnb.kernels.cargo import orders
from tsnb.kernels.cargo.capture import Captured, UndefinedNames, take_along
from tsnb.kernels.cargo.imported import changes_here, packed
from tsnb.kernels.cargo.obstacles import CargoPart, parts_of
from tsnb.kernels.cargo.shipping import ship
from tsnb.machine.placement import inside_name
from tsnb.stream.this_process import this_process

__all__ = ["TrialFunction", "plan_function", "run", "trial"]

CALL = f"{RESULT} = {FUNCTION}(**{PARAMETERS})"
"""What the kernel runs."""


def run(
    fn: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    stream: str | None = None,
    batch_size: int | None = None,
    device: str | None = None,
    mps_percent: int | None = None,
    seed: int | None = None,
    threads: int | None = None,
    env: Mapping[str, str] | None = None,
    after: str | Trial | None = None,
    needs: str | float | None = None,
    restart: str | bool | None = None,
    detach: bool = False,
    log_to: str | Iterable[str] | None = None,
    engine: str = "local",
    with_: str | Iterable[str] = (),
    check: bool = True,
    wait: bool = False,
    **params: Any,
) -> Trial:
    """Run a function as a trial in the background.

    Returns at once. Output appears under the calling cell, or on the terminal of a script. An option that the
    function has as a parameter (`seed`, `device`) is passed to the function too.

    Example:
        >>> trial = tsnb.run(train, lr=0.1)
        >>> trial.result()

    Args:
        fn: Function to run. It takes `params` and reads its batches from `tsnb.attach()`.
        name: Name of the trial. Defaults to the function's name with its parameters, "train-lr0.1".
        stream: Name of the stream that `tsnb.attach()` takes there. Defaults to the only one served.
        batch_size: Samples per batch that `tsnb.attach()` gives there. Defaults to the loader's.
        device: Device of the trial: "cuda:1", "gpu", "mig:UUID" or "cpu". It sees no other, and its GPU is called
            cuda:0 there. Defaults to what this process sees.
        mps_percent: Percent of the GPU's threads that it may use, with NVIDIA's MPS. Defaults to None, no limit.
        seed: Number that seeds Python's, numpy's and torch's generators. Defaults to None.
        threads: Torch threads of the trial. Defaults to 1, or more if the balancer assigns more (docs/balance.md).
        env: Environment variables to add. Defaults to none.
        after: Trial, or its name, that must be done first. Defaults to None.
        needs: Memory that must be free before it starts, for example "3GiB"; 0 never waits. Defaults to what an
            earlier run or `tsnb.plan` measured.
        restart: "on-crash" to continue from its last checkpoint when its process dies, or from the top without one.
            At most three times without progress. Defaults to None, no restart.
        detach: Whether the trial continues when this notebook or script ends. Defaults to False.
        log_to: Trackers that get its numbers too: "tensorboard", "mlflow", "trackio", "wandb". Defaults to none.
        engine: "local", "ray" or "ray://HOST:PORT" (docs/ray-cluster.md). With Ray, `device` is "gpu" or "cpu".
            Defaults to "local".
        with_: Names of variables to take along that the function does not name, for example in an `eval`. Defaults
            to none.
        check: Whether undefined names are refused before the start. Defaults to True.
        wait: Whether to return only when the trial has ended. Defaults to False.
        **params: Arguments of the function, by name.

    Returns:
        The trial, with `wait()`, `stop()`, `metrics` and `result()`.

    Raises:
        TypeError: If the parameters do not fit the function, or `fn` is not a function, or is a generator or async.
        UndefinedNames: If the function reads names that are not defined.
        NotShippable: If the function or one of its parameters cannot be pickled.
        ValueError: If a name or option is invalid.
        NameInUse: If a detached trial of that name is running.
        ExtraMissing: If `engine` is "ray" and Ray is not installed.
        TsnbError: If the cluster does not exist.
        TrialFailed: If `wait` is True and the trial failed.
    """
    given = {
        "stream": stream, "batch_size": batch_size, "device": device, "mps_percent": mps_percent,
        "seed": seed, "threads": threads,
        "env": dict(env or {}), "after": after, "needs": needs, "restart": restart, "detach": detach,
        "log_to": log_to if isinstance(log_to, str) else tuple(log_to or ()), "engine": engine,
    }  # fmt: skip
    plain = TrialOptions()
    chosen = {option: value for option, value in given.items() if value != getattr(plain, option)}
    started = launch(plan_function(fn, params, name=name, with_=with_, check=check, **chosen))
    return started.wait() if wait else started


def plan_function(
    fn: Callable[..., Any],
    params: Mapping[str, Any],
    *,
    name: str | None = None,
    with_: str | Iterable[str] = (),
    check: bool = True,
    **options: Any,
) -> TrialPlan:
    """Return the plan of a function, shipped with its parameters. `board.launch` starts it.

    Args:
        fn: The function, or one that `@tsnb.trial` has made.
        params: Its arguments, by name.
        name: The trial's name; by default made from the function's and the parameters.
        with_: Variables that it takes along besides.
        check: Whether names that are not defined are refused.
        **options: `plan.TrialOptions`, by name, those that were given.

    Raises:
        Exception: As `run` raises.
    """
    if isinstance(fn, TrialFunction):
        given_there = dict(fn.options)
        always = given_there.pop("name", None)
        name = always if name is None else name
        with_ = with_ or given_there.pop("with_", ())
        check = given_there.pop("check", True) and check
        fn, options = fn.__wrapped__, {**given_there, **options}
    if not callable(fn):
        raise TypeError(f"tsnb.run takes a function, not a {type(fn).__name__}. Nothing was started.")
    own = name_of(fn)
    _check_runs(fn, own)
    signature = inspect.signature(fn)
    chosen = name or trial_name(own, params)
    both = OPTION_NAMES & signature.parameters.keys()
    passed = {option: value for option, value in options.items() if option in both}
    if "device" in passed:
        passed["device"] = inside_name(str(passed["device"]))
    if "name" in signature.parameters:
        passed["name"] = chosen
    arguments = {**params, **passed}
    check_fit(signature, arguments, own)
    setup = set_up_now()
    before = Captured() if setup is None else setup.capture()
    if check:
        _check_defined(fn, own, before.bound)
    captured = take_along(
        with_.split(",") if isinstance(with_, str) and with_ else with_, _variables()
    ).joined(before)
    settled = TrialOptions(**options)
    settled.check(chosen)
    blamed = [
        CargoPart(f"its function {own}", own, fn),
        *parts_of(arguments, "its parameter"),
        *parts_of(captured.variables),
    ]
    changes = packed(changes_here(_variables()), f"trial {unprofiled(chosen)!r}")
    shipped = {**captured.variables, FUNCTION: fn, PARAMETERS: arguments, **changes}
    cargo = ship(shipped, f"trial {unprofiled(chosen)!r}", parts=blamed)
    first = "" if setup is None else setup.source
    return TrialPlan(
        chosen,
        CALL,
        {**orders.to_arrive(cargo, captured), "setup": first},
        dict(params),
        settled,
        text=f"{first}\n\n{_text_of(fn)}" if first else _text_of(fn),
        naming=None if name else lambda given, _: trial_name(own, given),
        signature=signature,
        arguments=arguments,
    )


def _variables() -> dict[str, Any]:
    return vars(sys.modules["__main__"])


def _text_of(fn: Callable[..., Any]) -> str:
    """Return a function's code, where Python knows it."""
    try:
        return textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError):
        return ""


def _check_runs(fn: Callable[..., Any], own: str) -> None:
    """Refuse a function that only makes a generator or a coroutine when it is called: nothing of its code would run.

    Raises:
        TypeError: It is one of these.
    """
    called = fn if inspect.isroutine(fn) or isinstance(fn, functools.partial) else type(fn).__call__
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise TypeError(
            f"{own} is a generator (it has a yield), so calling it runs none of its code. Nothing was "
            f"started. Pass a function without yield, or one that iterates it: for _ in {own}(): pass."
        )
    if inspect.iscoroutinefunction(called):
        raise TypeError(
            f"{own} is an async function, so calling it runs none of its code. Nothing was started. Pass a "
            f"function that runs it: asyncio.run({own}())."
        )


def _check_defined(fn: Any, name: str, made_before: Iterable[str]) -> None:
    """Refuse a function of the notebook that reads, itself or through others, names that are not defined."""
    variables = _variables()
    missing: dict[str, None] = {}
    made = set(made_before)
    pending, seen = [fn], set()
    while pending:
        function = inspect.unwrap(pending.pop())
        if not isinstance(function, types.FunctionType) or function in seen:
            continue
        seen.add(function)
        if function.__globals__ is variables:
            reads = _globals_of(function.__code__)
            made |= _globals_of(function.__code__, "STORE_GLOBAL").keys()
            missing |= dict.fromkeys(n for n in reads if n not in variables and not hasattr(builtins, n))
            pending += [variables[n] for n in reads if n in variables]
    missing = {name: None for name in missing if name not in made}
    if missing:
        words = ", ".join(map(repr, missing))
        raise UndefinedNames(
            f"{name}() reads {words}, which {'is' if len(missing) == 1 else 'are'} not defined here. Nothing "
            "was started. Define it first, or pass check=False if tsnb cannot see the definition (exec)."
        )


def _globals_of(code: types.CodeType, step: str = "LOAD_GLOBAL") -> dict[str, None]:
    """Return the global names that code reads (or sets: "STORE_GLOBAL"), those of functions inside it too."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    names = dict.fromkeys(str(s.argval) for s in dis.get_instructions(code) if s.opname == step)
    return names | {name: None for c in inner for name in _globals_of(c, step)}


class TrialFunction:
    """A function that runs as a trial when it is called; `@tsnb.trial` makes it.

    Attributes:
        options: Keywords of `tsnb.run` that hold for all its trials.
        __wrapped__: The function itself, to be called here and now.
    """

    __wrapped__: Callable[..., Any]

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self.options = dict(options)
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Start a trial with these arguments and return it. Inside a trial the function itself is called."""
        if this_process.name is not None:  # a trial that calls it means the work, not another process
            return self.__wrapped__(*args, **kwargs)
        own = inspect.signature(self.__wrapped__).parameters
        options = {k: v for k, v in kwargs.items() if k not in own and (k in OPTION_NAMES | {"name", "wait"})}
        params = {k: v for k, v in kwargs.items() if k not in options}
        return run(self, **{**self._by_name(args), **params}, **options)

    def _by_name(self, args: tuple[Any, ...]) -> dict[str, Any]:
        """Return what was given by place under the parameters' names."""
        signature = inspect.signature(self.__wrapped__)
        try:
            return dict(signature.bind_partial(*args).arguments)
        except TypeError as error:
            raise TypeError(
                f"{self.__wrapped__.__name__}{signature}: {error}. Nothing was started."
            ) from None

    def __repr__(self) -> str:
        return f"<trial function {self.__wrapped__.__name__}{inspect.signature(self.__wrapped__)}>"


@overload
def trial(fn: Callable[..., Any], /) -> TrialFunction: ...


@overload
def trial(**options: Any) -> Callable[[Callable[..., Any]], TrialFunction]: ...


def trial(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function start a trial whenever it is called.

    `train.__wrapped__(lr=0.1)` still calls the function itself, here and now.

    Example:
        >>> train = tsnb.trial(train)  # or @tsnb.trial, @tsnb.trial(seed=1) above its def
        >>> train(lr=0.1).wait()

    Args:
        fn: Function to decorate. Defaults to None, for a decorator with options.
        **options: Options of `tsnb.run` for all its trials, such as stream, seed or threads.

    Raises:
        TypeError: If an option is not an option of `tsnb.run`.
    """
    unknown = [name for name in options if name not in OPTION_NAMES | {"name", "with_", "check"}]
    if unknown:
        raise TypeError(
            f"@tsnb.trial has no option {unknown[0]!r}. Options: {', '.join(sorted(OPTION_NAMES))}"
        )
    if fn is None:
        return lambda function: TrialFunction(function, options)
    return TrialFunction(fn, options)
