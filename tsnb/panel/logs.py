"""What only the notebook knows of trials, on its way to the panel: logs for its pane, facts for a trial's drawer.

Only those that a page watches: logs in parts, a few times a second; facts whole, when they have changed.

Where logs come from is handed in (`LogSource`): the panel itself knows readings only. A page says which log it
watches and how far it has it, and says so again every now and then; a page that went away silently is
forgotten after `FORGET_S`. While no page watches there is no thread and no work.

```
page    {"op": "log", "name": "cnn", "run": "17", "at": 812}     give me this log from here on; name "": any
        {"op": "log off"}                                        the pane was closed
        {"op": "log", "name", "run", "at", "tail": true}         the same for a drawer: the pane is not open
        {"op": "trial", "name": "cnn"}                           the facts of this one; name "": the drawer was closed
        {"op": "params"}                                         those of all trials, once
panel   {"op": "log", "name", "run", "start", "text", "open"}    text from position `start`, then what may change
        ... "cut": true                                          what was before `start` is kept no longer
        ... "trials": [["cnn", "running"], ...]                  only when it has changed
        ... "missing": true                                      there is no such log here
        {"op": "trial", "name", "params": [["lr", "0.1"]],       what it was started with
         "live": [["lr", "0.05"]],                               `tsnb.live`, as it is
         "bounds": {"lr": [0.001, 1]},                           between which numbers one lies, where that is known
         "changes": [{"name", "value", "before", "epoch",        in their order
                      "batch", "time_s"}],
         "artifacts": [["net.pt", 1234]], "where": ".tsnb/...",  name and bytes (null: a folder), and where they lie
         "figures": [["net.png", "net.png 812 1790",           the newest of them that are pictures: name, mark, bytes
                      "data:image/png;base64,..."]],            ("" where the page says, "has": [mark], it has it)
         "cannot": {"clone": "is done: ...", "extend": "",       why it cannot be cloned or extended now, give GPU
                    "release": "it uses no GPU ...",             memory back while it is paused, or be run again;
                    "rerun": "is running. ..."},                 empty: it can
         "verdict": "rank 3 of 4 at step 120",                   why it was stopped for others that were better
         "lineage": [["cnn", 0, "", "running"], ["cnn-2", 1,     its family of clones, a parent before its clones: name,
                     "batch 120 of epoch 1", "done"]]}           depth, where it branched off, state
        ... "missing": true                                      this notebook knows nothing of it
        {"op": "params", "trials": {"cnn": [["lr", "0.1"]]},     answers at once
         "verdicts": {"mlp": "rank 3 of 4 at step 120"},
         "changes": {"cnn": [[1790000000.5, "lr 0.1 → 0.05"]]},  when which live value was set to what
         "sweeps": {"cnn": "s"},                                 of those that are of a sweep its name
         "rules": {"s": "accuracy"},                             by what the rule of a sweep decides, if it has one
         "beside": [{"name", "state", "started_s", "duration_s",      trials that take batches of no stream
                     "error", "metrics": {"loss": 0.5}}],
         "duels": [{"duel", "verdict", "said", ...}]}            duels, as `DuelVerdict.told` has them
```

A position counts the characters that have settled since the run began. Parts may come twice (two pages, one asked
anew): a page cuts off what it has.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tsnb.errors import TsnbError

__all__ = ["PANE_CHARACTERS", "LogFeed", "LogPart", "LogSource"]

PANE_CHARACTERS = 200_000
"""What a pane shows of a log: its end, some 3,000 lines; the full log is on disk."""

EVERY_S = 0.25
"""As often as a stream's readings."""

FORGET_S = 60.0
"""Pages ask again every 15 s."""

_log = logging.getLogger(__name__)


class LogPart(NamedTuple):
    """A part of a trial's log."""

    run: str
    """Which run of the trial it is of: another text means another log, from its start."""
    start: int
    """Where `text` starts; later than what was asked for if that is kept no longer."""
    text: str
    """Text that has settled."""
    open: str
    """The last lines, which may still change."""


class LogSource(Protocol):
    """Gives logs and facts. Called on the panel's log thread; must not block for long."""

    def trials(self) -> list[tuple[str, str]]:
        """Return name and state of each trial that has a log."""

    def read(self, name: str, run: str, position: int, most: int) -> LogPart | None:
        """Return what a log has from a position of a run on, `most` characters at most; None: no such log."""

    def facts(self, name: str) -> dict[str, Any] | None:
        """Return what is known of a trial, as the module says, for JSON; None: nothing is."""

    def params(self) -> dict[str, list[list[str]]]:
        """Return the parameters of all trials, as text, by name."""

    def changes(self) -> dict[str, list[list[Any]]]:
        """Return when live values were set (seconds since 1970) and to what, by the trial's name."""

    def verdicts(self) -> dict[str, str]:
        """Return why trials were stopped for others that were better, by name."""

    def sweeps(self) -> dict[str, str]:
        """Return the sweep of each trial that is of one, by the trial's name."""

    def rules(self) -> dict[str, str]:
        """Return the metric by which the rule of each sweep decides that has one, by the sweep's name."""

    def beside(self) -> list[dict[str, Any]]:
        """Return the trials that take batches of no stream, as the module says, for JSON."""

    def duels(self) -> list[dict[str, Any]]:
        """Return the duels, as the module says, for JSON."""

    def steer(self, verb: str, name: str, content: Mapping[str, Any]) -> None:
        """Do to a trial what its drawer asks for. Called on a thread of its own, and may wait.

        Args:
            verb: One of `VERBS` that the drawer has.
            name: The trial.
            content: What the page sent; its texts are not read yet.

        Raises:
            TsnbError: The trial is not here, or that cannot be done to it.
            ValueError: A value or the name will not do.
        """


@dataclass
class _Watch:
    """How far one log has been sent."""

    run: str
    position: int
    until_s: float
    open: str | None = None  # None: a page that has just asked gets an answer, even without news
    missing: bool = False


@dataclass
class _Drawer:
    """What was sent of one trial's facts."""

    until_s: float
    told: dict[str, Any] | None = None
    has: set[str] = field(default_factory=set)
    """Marks of the figures that pages have."""


class LogFeed:
    """Sends the logs and the facts that are watched.

    Attributes:
        source: Where they come from; None: there are no logs.

    Args:
        send: Sends one message to the pages. Called on this feed's thread.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self.source: LogSource | None = None
        self._send = send
        self._changed = threading.Condition()
        self._watched: dict[str, _Watch] = {}
        self._drawers: dict[str, _Drawer] = {}
        self._told: list[tuple[str, str]] | None = None
        self._chosen = ""
        self._is_open = False
        self._running = False

    def scene(self) -> dict[str, Any]:
        """Return what a page that loads must know to show the pane as it was: a page that reloads goes on."""
        here = self.source.trials() if self.source is not None else []
        return {"name": self._chosen, "shown": self._is_open, "trials": here, "can": self.source is not None}

    def known(self) -> dict[str, Any]:
        """Return what the notebook knows of all its trials: parameters, verdicts, sweeps, duels and more."""
        here = self.source
        if here is None:
            return {
                "trials": {},
                "verdicts": {},
                "changes": {},
                "sweeps": {},
                "rules": {},
                "beside": [],
                "duels": [],
            }
        told = {"trials": here.params(), "verdicts": here.verdicts(), "changes": here.changes()}
        more = {"sweeps": here.sweeps(), "rules": here.rules(), "beside": here.beside()}
        return {**told, **more, "duels": here.duels()}

    def watch(self, name: str, run: str = "", position: int = 0, *, pane: bool = True) -> None:
        """Send a log from a position of its run on. Called on the kernel's (sub)shell thread.

        Args:
            name: The trial's.
            run: The run that the page has the beginning of.
            position: How far it has it.
            pane: Whether the pane is open; else it is for a drawer.
        """
        with self._changed:
            self._is_open, self._told = pane, None
            if pane:
                self._chosen = name
            self._watched[name] = _Watch(run, position, time.monotonic() + FORGET_S)
            self._begin()

    def show(self, name: str, has: Iterable[str] = ()) -> None:
        """Send the facts of a trial, and again when they change; name "": a drawer was closed, and others ask again.

        Args:
            name: The trial's.
            has: Marks of the figures that the page has, and is not sent again.
        """
        with self._changed:
            if not name:
                self._drawers.clear()
                return
            # a page that asks gets them, known or not
            self._drawers[name] = _Drawer(time.monotonic() + FORGET_S, has=set(has))
            self._begin()

    def steer(self, op: str, trial: str, content: dict[str, Any]) -> None:
        """Do what only the notebook that has a trial can do: set, clone, extend, release or rerun it.

        Raises:
            TsnbError: There is no such notebook behind the panel; else as `LogSource`.
        """
        source = self.source
        if source is None:
            raise TsnbError(
                f"this panel has no trials of its own, so it cannot {op} {trial}. Use the notebook that "
                "started it"
            )
        source.steer(op, trial, content)

    def rest(self) -> None:
        """Send no logs any more: the pane was closed. Another page's that is still open asks again."""
        with self._changed:
            self._is_open = False
            self._watched.clear()
            self._changed.notify()

    def close(self) -> None:
        """Send nothing any more."""
        self.show("")
        self.rest()

    def _begin(self) -> None:
        """Have the thread look; the lock is held."""
        self._changed.notify()
        if not self._running:
            self._running = True
            threading.Thread(target=self._run, name="tsnb-panel-log", daemon=True).start()

    def _run(self) -> None:
        while self._any_watched():
            try:
                for message in self._news():
                    self._send(message)
            except Exception:  # noqa: BLE001 (the kernel is going down, or a source of logs is broken: the panel goes on)
                _log.debug("the log pane could not be updated", exc_info=True)
            with self._changed:
                self._changed.wait(EVERY_S)

    def _any_watched(self) -> bool:
        """Forget pages that have gone; False, under the lock, ends the thread."""
        with self._changed:
            now_s = time.monotonic()
            self._watched = {name: w for name, w in self._watched.items() if w.until_s > now_s}
            self._drawers = {name: d for name, d in self._drawers.items() if d.until_s > now_s}
            self._running = bool(self._watched or self._drawers)
            return self._running

    def _news(self) -> list[dict[str, Any]]:
        with self._changed:
            source, here = self.source, self.source.trials() if self.source is not None else []
            messages = [self._part(source, name, watch) for name, watch in self._watched.items()]
            messages += [self._facts(source, name, drawer) for name, drawer in self._drawers.items()]
            if here != self._told:
                self._told = here
                messages.append({"op": "log", "trials": here})
        return [message for message in messages if message]

    def _facts(self, source: LogSource | None, name: str, drawer: _Drawer) -> dict[str, Any]:
        """Return the facts of one trial; empty if nothing is new."""
        facts = (source.facts(name) if source else None) or {"missing": True}
        if facts == drawer.told:
            return {}
        drawer.told = facts
        if "figures" in facts:  # they are the larger part, and change seldom
            shown = [
                [word, mark, "" if mark in drawer.has else data] for word, mark, data in facts["figures"]
            ]
            drawer.has = {mark for _, mark, _ in shown}
            facts = {**facts, "figures": shown}
        return {"op": "trial", "name": name, **facts}

    def _part(self, source: LogSource | None, name: str, watch: _Watch) -> dict[str, Any]:
        """Return the new part of one log; empty if there is none."""
        part = source.read(name, watch.run, watch.position, PANE_CHARACTERS) if source and name else None
        if part is None:
            told, watch.missing = watch.missing, True
            return {} if told or not name else {"op": "log", "name": name, "missing": True}
        if not part.text and part.open == watch.open and part.run == watch.run:
            return {}
        cut = part.start > (watch.position if part.run == watch.run else 0)
        watch.run, watch.position, watch.open = part.run, part.start + len(part.text), part.open
        return {"op": "log", "name": name, **part._asdict(), **({"cut": True} if cut else {})}
