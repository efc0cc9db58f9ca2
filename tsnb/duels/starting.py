"""Starting a duel: of two functions (`tsnb.duel`), a cell against a trial (`%%trial --against`), or two files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tsnb.conducting.conductor import Conductor
from tsnb.config import check_name
from tsnb.discovery import registry
from tsnb.duels.blocks import Arms
from tsnb.duels.data import data_of
from tsnb.duels.grammar import Wish
from tsnb.duels.ledger import Ledger
from tsnb.duels.result import Duel
from tsnb.duels.result import enter as enter_duel
from tsnb.duels.seeds import ARMS, Rules
from tsnb.errors import ProducerNotFound, TsnbError
from tsnb.experiments.cells import plan_cell
from tsnb.experiments.functions import plan_function
from tsnb.experiments.plan import OPTION_NAMES, TrialOptions, TrialPlan, name_of
from tsnb.experiments.replanning import replanned
from tsnb.experiments.running.engine import engine_of
from tsnb.experiments.trial import Trial
from tsnb.kernels.cargo.unnamed_file import opened
from tsnb.kernels.output.outlets import outlet_here
from tsnb.options import runs_here
from tsnb.planners.queueing import Places
from tsnb.records.scores import direction_of
from tsnb.sweeps.sweep import Sweep, enter, find

__all__ = ["begin", "duel", "duel_cell", "duel_code", "title_of"]

MOST = 40
"""Seeds of a duel by default."""

LONGEST = 44
"""Characters of a duel's name: those of its trials are longer."""

Maker = Callable[[str, str], TrialPlan]
"""Makes the plan of an arm, of a trial's name and its sweep's."""


def duel(
    fn_a: Callable[..., Any],
    fn_b: Callable[..., Any],
    /,
    *,
    metric: str,
    mode: str | None = None,
    error: float = 0.05,
    seeds: int | None = None,
    budget_s: float | None = None,
    min_delta: float | None = None,
    equal: str | None = None,
    series: str | None = None,
    at_once: int | None = None,
    name: str | None = None,
    **options: Any,
) -> Duel:
    """Compare two training functions over seeds, as background trials.

    Returns at once. Each seed trains both functions on the same batches. More seeds start while the verdict is open.
    The verdict is about `fn_b`: better, worse, no difference found, or undecided. tsnb draws the seeds.

    Example:
        >>> duel = tsnb.duel(train, changed, metric="loss", seeds=2)
        >>> print(duel.wait())

    Args:
        fn_a: Function of the incumbent: today's training. It reads from `tsnb.attach()` and logs the metric.
        fn_b: Function of the candidate: the changed training.
        metric: Logged number to compare. The last value of each trial counts.
        mode: "min" or "max": which values are better. Defaults to `tsnb.records.direction`, else the metric's name.
        error: Chance of a verdict better or worse if the change makes no difference. Defaults to 0.05.
        seeds: Largest number of seeds. Defaults to 40.
        budget_s: Seconds after which the duel ends, undecided. Defaults to None, no limit.
        min_delta: Smallest difference that matters, in units of the metric. "No difference found" then says that the
            effect is smaller. Defaults to one standard deviation of a seed's difference.
        equal: "samples" or "time" to compare values at the same samples or seconds. Defaults to the last values.
        series: Name of a series of duels that share `error`, the wrong part of all that is kept (docs/duels.md).
            Defaults to none.
        at_once: Number of trials that run at once, 2 or more. Defaults to two per core.
        name: Name of the duel. A duel of this name and code that was interrupted continues. Defaults to the
            functions' names.
        **options: Options of `tsnb.run` (stream, batch_size, threads) and arguments of both functions.

    Returns:
        The duel, with `verdict`, `wait()`, `stop()` and `results()`.

    Raises:
        ValueError: If a number, the name or an option is invalid.
        TypeError: If an argument does not fit a function.
        UnknownDirection: If tsnb cannot tell whether a high or a low value is better.
        UndefinedNames: If a function reads names that are not defined.
        NotShippable: If a function or an argument cannot be pickled.
        ProducerNotFound: If no stream is running, or none of that name.
        TsnbError: If the ledger of duels cannot be written.
    """
    own = {key: value for key, value in options.items() if key not in OPTION_NAMES | {"with_", "check"}}
    ours = {key: value for key, value in options.items() if key not in own}
    return begin(
        title_of(name, name_of(fn_a), name_of(fn_b)),
        (partial(_plan, fn_a, own, ours), partial(_plan, fn_b, own, ours)),
        Wish(metric, mode, error, seeds, budget_s, min_delta, equal, series, at_once),
        options,
    )


def _plan(
    fn: Callable[..., Any], own: Mapping[str, Any], ours: Mapping[str, Any], name: str, title: str
) -> TrialPlan:
    return plan_function(fn, own, name=name, **{**ours, "sweep": title})


def title_of(name: str | None, incumbent: str, candidate: str) -> str:
    """Return the name of a duel.

    Args:
        name: That which was given; None or empty: none was.
        incumbent: Name of the incumbent's code.
        candidate: Name of the candidate's.

    Raises:
        ValueError: It cannot name one.
    """
    made = name or f"{candidate}-against-{incumbent}"[:LONGEST].rstrip("-._")
    if len(made) > LONGEST:
        raise ValueError(f"name={made!r} is invalid. A duel's name has at most {LONGEST} characters.")
    return check_name(made, "duel")


def begin(
    title: str,
    makers: tuple[Maker, Maker],
    wish: Wish,
    options: Mapping[str, Any],
    *,
    says_verdict: bool = True,
) -> Duel:
    """Start a duel of two arms of any kind. Errors are those of `duel`.

    Args:
        title: Its name.
        makers: Make the plans of the incumbent and of the candidate.
        wish: What is asked.
        options: Of its trials, as they were given.
        says_verdict: As `Arms` has it.
    """
    wish.check(options)
    mode = direction_of(wish.metric, wish.mode)
    rules = Rules(wish.metric, mode, wish.error, wish.seeds or MOST, wish.min_delta, wish.equal or "")
    plans: list[TrialPlan] = []
    try:
        _require_stream(options)
        plans += [make(f"{title}-1-{arm}", title) for arm, make in zip(ARMS, makers, strict=True)]
        stream = _stream_of(plans)
        plans[:] = [_on(plan, stream) for plan in plans]
        former = find(title)
        if former is not None and not former.over:
            former.stop()
        engine = engine_of(plans[0])
        engine.join()
        most = wish.at_once or max(2, engine.places(plans[0], 2 * rules.most)[0])
        ledger = Ledger()
        data = data_of(stream if runs_here(plans[0].options.engine or "local") else "")
        asked, blocks = ledger.begin(title, _code(plans, rules), rules, wish.series or "", data=data)
        anew = "" if blocks else ledger.other_data(asked) or ledger.former(asked)
    except BaseException:
        for plan in plans:
            plan.discard()
        raise
    arms = Arms(title, (plans[0], plans[1]), asked.rules, ledger, (asked, blocks), most, outlet_here(title))
    conductor = Conductor(arms, Places(most, more=arms.more))
    arms.stop, arms.says_verdict = conductor.stop, says_verdict
    made = Sweep(title, arms.params, conductor, rules.metric, rules.mode)
    enter(made)
    told = Duel(title, arms, made, asked)
    enter_duel(told)
    arms.anew = anew
    if anew:
        arms.say(anew)
    if blocks:
        arms.say(f"continues with the {len(blocks)} seeds that it has")
    told.begin(wish.budget_s)
    return told


def _require_stream(options: Mapping[str, Any]) -> None:
    """Refuse a duel whose arms would find no stream. Where several are served, its code may name one.

    Args:
        options: Of its trials, as they were given.

    Raises:
        ProducerNotFound: There is none, or none of that name; says how to serve one.
    """
    name = options.get("stream")
    if not runs_here(options.get("engine") or "local") or registry.away(name) is not None:
        return
    try:
        registry.find(name)
    except ProducerNotFound:
        if name is not None or not registry.entries():
            raise


def _stream_of(plans: Sequence[TrialPlan]) -> str:
    """Return the stream of both arms: that which was named, else the only one; empty where their code names it.

    Args:
        plans: Of the arms. The candidate's name counts first: the incumbent may be a trial with options of its own.
    """
    named = next((plan.options.stream for plan in reversed(plans) if plan.options.stream), None)
    if named is not None or not runs_here(plans[0].options.engine or "local"):
        return named or ""
    try:
        return registry.away() or registry.find().name
    except ProducerNotFound:
        return ""


def _on(plan: TrialPlan, stream: str) -> TrialPlan:
    """Return a plan whose trial reads a stream, also if another one comes up or takes its place."""
    return replace(plan, options=replace(plan.options, stream=stream)) if stream else plan


def duel_code(
    title: str,
    arms: Sequence[tuple[str, str] | Callable[..., Any]],
    *,
    options: Mapping[str, Any],
    says_verdict: bool,
    **asked: Any,
) -> Duel:
    """Start a duel of two scripts or functions, for the command line.

    Args:
        title: Its name.
        arms: The incumbent and the candidate: a script's path and text, or a function.
        options: Of the trials, those that were given.
        says_verdict: Whether a line says it where the trials' output is.
        **asked: As `duel` takes it.

    Raises:
        Exception: As `duel` raises.
    """
    made = [
        partial(_plan, arm, {}, options) if callable(arm) else partial(_script, *arm, options) for arm in arms
    ]
    return begin(title, (made[0], made[1]), Wish(**asked), options, says_verdict=says_verdict)


def _script(path: str, text: str, options: Mapping[str, Any], name: str, title: str) -> TrialPlan:
    """Return the plan of a script: it runs as a cell does, and `__file__` is its path."""
    return plan_cell(name, text, {"__file__": path}, TrialOptions(**{**options, "sweep": title}))


def duel_cell(
    name: str,
    source: str,
    namespace: Mapping[str, Any],
    against: Trial,
    *,
    transform: Callable[[str], str],
    also: Iterable[str],
    options: Mapping[str, Any],
    **asked: Any,
) -> Duel:
    """Start a duel of a cell, the candidate, against the code of a trial of this notebook.

    Args:
        name: Name of the cell.
        source: The cell.
        namespace: The notebook's variables.
        against: The trial. Its code runs with the variables that it had then.
        transform: IPython's `transform_cell`.
        also: Variables that the cell takes along whether it reads them or not.
        options: Of the cell's trials, those that were given.
        **asked: As `duel` takes it.

    Raises:
        TsnbError: The trial's code is not here any more.
        Exception: As `duel` raises.
    """
    if against.life.launch is None:
        raise TsnbError(
            f"Trial {against.name!r} was started by another notebook, which holds its code. Run its cell here first."
        )

    def incumbent(trial: str, title: str) -> TrialPlan:
        plan = replanned(against.life.plan, {"name": trial})
        again = replace(plan.options, sweep=title, after=None, needs=None, detach=False)
        return replace(plan, options=again, naming=None)

    def candidate(trial: str, title: str) -> TrialPlan:
        given = TrialOptions(**{**options, "sweep": title})
        return plan_cell(trial, source, namespace, given, transform=transform, also=also)

    title = title_of(None, against.name, name)
    return begin(title, (incumbent, candidate), Wish(**asked), options)


def _code(plans: Sequence[TrialPlan], rules: Rules) -> str:
    """Return a hash of both arms' code, variables and options, and of what was asked but the number of seeds.

    The stream is compared for itself, with its data.
    """
    wished = replace(rules, most=0)
    told = [(plan.text, replace(plan.options, stream=None)) for plan in plans]
    found = hashlib.sha256(repr((wished, told)).encode())
    for plan in plans:
        with opened(plan.arrival["cargo"]) as file:
            while part := file.read(1 << 20):
                found.update(part)
    return found.hexdigest()
