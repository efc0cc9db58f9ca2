"""What the panel shows of this notebook's trials and may have done to them: logs, facts, live values, clones."""

from __future__ import annotations

import ast
import base64
import contextlib
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsnb.errors import TsnbError
from tsnb.experiments.overview.board import trials
from tsnb.experiments.running.trial_life import SURE_S
from tsnb.experiments.trial import ENDED, Trial
from tsnb.experiments.verbs import VERBS
from tsnb.panel.logs import LogPart
from tsnb.private.files import read_foreign
from tsnb.records.project import own_place
from tsnb.text.foreign import as_json
from tsnb.text.masks import masked_text
from tsnb.text.words import short

if TYPE_CHECKING:
    from tsnb.sweeps.sweep import Sweep

__all__ = ["TrialLogs"]

MOST = 200
"""Parameters, changes and artifacts of a trial that its drawer shows."""


SHOWN = 200
"""Characters of each."""


MOST_NUMBERS = 40
"""Logged numbers that the row of a trial without a stream has."""


_PICTURES = {
    ".png": "png",
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".gif": "gif",
    ".webp": "webp",
    ".svg": "svg+xml",
}
"""Files that a page can show as they are, by what their names end in."""


FIGURES, FIGURE_BYTES = 4, 300_000
"""So many of a trial's newest pictures are shown in its drawer, and none that is larger."""


_figures: dict[tuple[Path, int, int], str] = {}
"""Pictures as pages take them, by file, size and time; the newest of those that were asked for."""


class TrialLogs:
    """Gives the panel the logs and the facts of the trials on this notebook's board."""

    def trials(self) -> list[tuple[str, str]]:
        """Return name and state of each trial, and what it waits for, in the order of their first start."""
        return [(trial.name, trial.state_text) for trial in trials.values()]

    def read(self, name: str, run: str, position: int, most: int) -> LogPart | None:
        """Return what a trial's log has from a position on, from its start if that was another run's."""
        trial = trials.get(name)
        if trial is None:
            return None
        this = f"{trial.started_s:.6f}"
        start, text, still_open = trial.log_since(position if run == this else 0, most)
        return LogPart(this, start, text, still_open)

    def facts(self, name: str) -> dict[str, Any] | None:
        """Return a trial's parameters, live values with their changes, artifacts and family of clones."""
        trial = trials.get(name)
        from tsnb.sweeps.sweep import params_waiting, waiting_in

        if (sweep := waiting_in(name)) is not None:
            waits = f"is {sweep.queued()[name]}"
            cannot = dict.fromkeys(("clone", "extend", "release", "rerun"), waits)
            return {"params": _texts(params_waiting().get(name, {})), "live": [], "cannot": cannot}
        if trial is None:
            return None
        where = trial.life.artifacts_path
        own = _is_own_place(where)
        return {
            "params": _params(trial),
            "live": [[key, _short(value)] for key, value in list(trial.live.items())[:MOST]],
            "bounds": _bounds(trial),
            "changes": _changes(trial),
            "artifacts": _files(where) if own else [],
            "figures": _pictures(where) if own else [],
            "where": str(where),
            "cannot": {
                "clone": trial.why_not_cloned,
                "extend": trial.why_not_extended,
                "release": trial.why_not_released,
                "rerun": trial.why_not_rerun,
            },
            "verdict": _verdict(name),
            "lineage": _lineage(trial),
        }

    def params(self) -> dict[str, list[list[str]]]:
        """Return the parameters of all trials, as text, by name; also of those that wait in a sweep."""
        from tsnb.sweeps.sweep import params_waiting

        waiting = {name: _texts(params) for name, params in params_waiting().items()}
        return {name: _params(trial) for name, trial in trials.items()} | waiting

    def verdicts(self) -> dict[str, str]:
        """Return why trials of sweeps were stopped for others that were better, by name."""
        return {name: said for name in trials if (said := _verdict(name))}

    def sweeps(self) -> dict[str, str]:
        """Return the sweep of each trial that is of one, also of those that wait for a place, by the trial's name."""
        from tsnb.sweeps.sweep import known

        return {name: sweep.name for sweep in known() for name in sweep.params if _is_of(sweep, name)}

    def rules(self) -> dict[str, str]:
        """Return the metric by which the rule of each sweep decides that has one, by the sweep's name."""
        from tsnb.sweeps.sweep import rules

        return rules()

    def beside(self) -> list[dict[str, Any]]:
        """Return the trials that take batches of no stream: state, seconds and last numbers of each."""
        return [_row(trial) for trial in trials.values() if _has_no_stream(trial)]

    def duels(self) -> list[dict[str, Any]]:
        """Return the newest duels of this notebook."""
        result = sys.modules.get("tsnb.duels.result")  # else no duel has been started
        return [] if result is None else [duel.told() for duel in result.shown()]

    def states_of_duels(self) -> list[tuple[str, str, int]]:
        """Return name, state and number of seeds of each of them."""
        result = sys.modules.get("tsnb.duels.result")
        duels = [] if result is None else result.shown()
        return [
            (duel.name, duel.verdict.word if duel.over else "", len(duel.verdict.blocks)) for duel in duels
        ]

    def states_beside(self) -> list[tuple[str, str]]:
        """Return name and state of each trial that takes batches of no stream."""
        return [(trial.name, trial.state) for trial in trials.values() if _has_no_stream(trial)]

    def changes(self) -> dict[str, list[list[Any]]]:
        """Return when live values of trials were set, and to what, by name."""
        found = {}
        for name, trial in trials.items():
            made = _changes(trial)
            if made:
                found[name] = [[change["time_s"], _set_text(change)] for change in made]
        return found

    def steer(self, verb: str, name: str, content: Mapping[str, Any]) -> None:
        """Do to a trial of this notebook what its drawer asks for, as `LogSource` says.

        A text means for a live value a number, True or False, or one of its choices. A clone's output goes where its
        trial's does.

        Raises:
            TsnbError: The trial is not here, or that cannot be done to it.
            ValueError: A value or the name will not do.
        """
        trial = trials.get(name)
        if trial is None:
            raise TsnbError(f"{name} was started by another notebook. {VERBS[verb].there}")
        if verb == "rerun" and (why := trial.why_not_rerun):
            raise TsnbError(f"{name} {why}")
        asked = (
            [(content.get("value", ""), content.get("text", ""))]
            if verb == "set"
            else content.get("changes", ())
        )
        changes = {str(value): _read(trial, str(value), str(text)) for value, text in asked}
        again = {"name": name} if verb == "rerun" else {}  # under its name
        VERBS[verb].do(trial, {**content, "new": str(content.get("as", "")), "changes": {**changes, **again}})


def _read(trial: Trial, value: str, text: str) -> Any:
    """Return what a text means for a live value: a number, True or False, or one of its choices."""
    if not isinstance(trial.live.get(value), str):
        with contextlib.suppress(ValueError, SyntaxError):
            return ast.literal_eval(text)
    return text


def _has_no_stream(trial: Trial) -> bool:
    """Return whether a trial takes batches of no stream: it has ended without, or runs for long enough to be sure."""
    if trial.attached or trial.report.get("stream") or trial.state in ("queued", "starting"):
        return False
    return trial.state in ENDED or time.time() - trial.life.began_s > SURE_S


def _row(trial: Trial) -> dict[str, Any]:
    numbers = list(trial.metrics.items())[:MOST_NUMBERS]
    return {
        "name": trial.name,
        "state": trial.state,
        "duration_s": round(trial.duration_s, 1),
        "started_s": trial.started_s,
        "error": trial.life.failure.partition("\n")[0][:SHOWN],
        "metrics": {name: as_json(value) for name, value in numbers},
    }


def _params(trial: Trial) -> list[list[str]]:
    return _texts(trial.params)


def _texts(params: Mapping[str, Any]) -> list[list[str]]:
    return [[key, _short(value)] for key, value in list(params.items())[:MOST]]


def _changes(trial: Trial) -> list[dict[str, Any]]:
    """Return a trial's changes of live values, the newest of them, each with what was before."""
    now: dict[str, str] = {}
    made = []
    for change in trial.changes:
        this = change._asdict() | {"value": _short(change.value), "before": now.get(change.name, "")}
        now[change.name] = this["value"]
        made.append(this)
    return made[-MOST:]


def _set_text(change: dict[str, Any]) -> str:
    before = f"{change['before']} → " if change["before"] else ""
    return f"{change['name']} {before}{change['value']}"


def _bounds(trial: Trial) -> dict[str, list[float]]:
    """Return between which numbers a live value lies: its own bounds, else the values of its sweep."""
    from tsnb.sweeps.sweep import known

    own = [sweep for sweep in known() if trial.name in sweep and _is_of(sweep, trial.name)]
    tried = {
        name: {params[name] for params in own[-1].params.values() if _is_number(params.get(name))}
        if own
        else set()
        for name in trial.live
    }
    swept = {name: [min(values), max(values)] for name, values in tried.items() if len(values) > 1}
    return {**swept, **{name: list(each) for name, each in trial.life.bounds.items()}}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _verdict(name: str) -> str:
    """Return why a trial was stopped for others that were better; of this one alone, for its drawer asks often."""
    from tsnb.sweeps.sweep import known

    for sweep in reversed(known()):
        if name in sweep and _is_of(sweep, name) and (cut := sweep.stopped_early.get(name)) is not None:
            return f"{cut.why} at step {cut.step}"
    return ""


def _is_of(sweep: Sweep, name: str) -> bool:
    """Whether the trial of a name is the sweep's own, started or not: one run later may have the name of another."""
    now = trials.get(name)
    return now is None or name not in sweep or sweep[name] is now


def _lineage(trial: Trial) -> list[list[Any]]:
    """Return a trial's family of clones: name, depth, where it branched off and state of each; empty if it has none.

    A parent stands before its clones. One whose parent's name another trial has by now begins a family.
    """
    here = dict(trials.items())
    clones: dict[str, list[Trial]] = {}
    for one in here.values():
        if (parent := _parent(one, here)) is not None:
            clones.setdefault(parent.name, []).append(one)
    root, seen = trial, {trial.name}
    while (parent := _parent(root, here)) is not None and parent.name not in seen:
        seen.add(parent.name)
        root = parent
    found: list[list[Any]] = []
    waiting = [(root, 0)]
    while waiting and len(found) < MOST:
        one, depth = waiting.pop()
        found.append([one.name, depth, one.parent.place if one.parent is not None else "", one.state_text])
        waiting += [(clone, depth + 1) for clone in reversed(clones.get(one.name, []))]
    return found if len(found) > 1 or trial.parent is not None else []


def _parent(trial: Trial, here: dict[str, Trial]) -> Trial | None:
    """Return the trial that one is a clone of, if it is still the one of that name."""
    origin = trial.parent
    parent = here.get(origin.name) if origin is not None else None
    return parent if parent is not None and origin is not None and parent.number == origin.number else None


def _short(value: Any) -> str:
    return short(masked_text(value if isinstance(value, str) else repr(value)), SHOWN)


def _is_own_place(where: Path) -> bool:
    """Tell whether a run has a folder of artifacts that no link leads to."""
    try:
        own_place(where.parent.parent, where.parent.name, where.name, make=False)
    except OSError:
        return False
    return True


def _is_own_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _files(where: Path) -> list[list[Any]]:
    """Return name and bytes of what lies there, the first `MOST` by name; of a folder without its bytes."""
    try:
        found = sorted(where.iterdir())[:MOST]
        return [[one.name, one.stat().st_size if _is_own_file(one) else None] for one in found]
    except OSError:  # none yet, or one was taken away meanwhile
        return []


def _pictures(where: Path) -> list[list[str]]:
    """Return the newest pictures that lie there, oldest first: name, a mark of what is in it, bytes as an address."""
    try:
        files = [
            (one, one.stat())
            for one in where.iterdir()
            if one.suffix.lower() in _PICTURES and _is_own_file(one)
        ]
    except OSError:
        return []
    files = [(one, stat) for one, stat in files if 0 < stat.st_size <= FIGURE_BYTES]
    newest = sorted(files, key=lambda file: (file[1].st_mtime_ns, file[0].name))[-FIGURES:]
    found = []
    for one, stat in newest:
        key = (one, stat.st_size, stat.st_mtime_ns)
        if key not in _figures:
            try:
                text = base64.b64encode(read_foreign(one, FIGURE_BYTES, follow=False)).decode()
            except OSError:  # taken away meanwhile
                continue
            while len(_figures) >= 4 * FIGURES:
                del _figures[next(iter(_figures))]
            _figures[key] = f"data:image/{_PICTURES[one.suffix.lower()]};base64,{text}"
        found.append([one.name, f"{one.name} {stat.st_size} {stat.st_mtime_ns}", _figures[key]])
    return found
