"""Runs several trials: starts them as places come free, listens to them, stops those that are cut.

The decisions are made elsewhere, by `Places` and a `Rule`; this is their way to real trials. Everything here runs
on one thread, that of `run`; the trials' news come from the hub's thread through a queue.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tsnb.conducting.rule import Cut, Rule
from tsnb.errors import TrialFailed, TsnbError
from tsnb.experiments.news import WITH_STREAM
from tsnb.experiments.trial import ENDED, STOP_GRACE_S, Trial
from tsnb.kernels.gate import WAITING_S, Gate
from tsnb.kernels.hub import the_hub
from tsnb.planners.queueing import Places
from tsnb.records.writes import LoggedRow
from tsnb.text.masks import masked

__all__ = ["STREAMLESS", "Conductor", "TrialSource", "failed_by"]

STREAMLESS = ("ProducerGone", "ProducerNotFound", "StreamNotNamed", "StreamStopped")
"""Failures after which no other trial needs to be tried: there is nothing to attach to."""


def failed_by(trial: Trial, kinds: Collection[str]) -> bool:
    """Return whether the code of a trial raised an error of one of these classes."""
    return trial.state == "failed" and trial.life.failure.partition(":")[0] in kinds


LOOK_S = 5.0
"""How often gates are checked while trials wait there."""

NOTED_S = 10.0
"""How long the end of a trial may take to be noted everywhere, once it has been told of."""


class _TrialNews(NamedTuple):
    """What a trial had to tell, as it was at that moment."""

    trial: Trial
    state: str
    attached: bool
    rows: Sequence[LoggedRow]


class _Changed(NamedTuple):
    """Something beside the trials has changed: a clone of one of them, say."""


class TrialSource(ABC):
    """What a conductor takes its trials from, and tells what becomes of them. Called on the conductor's thread."""

    kind = "sweep"
    """What its trials are stopped with, in a word."""
    gives_up = True
    """Whether no more trials are started once one has ended for want of a stream."""
    meets = True
    """Whether trials that start together wait for each other, to begin with the same batch: they share a stream."""

    @abstractmethod
    def launch(self, name: str, gate: Path | None) -> Trial:
        """Start a trial.

        Args:
            name: Its name, one of those that wait for a place.
            gate: The gate at which it waits before its first batch; None: it does not wait.
        """

    def more(self, free: int) -> Iterable[str]:
        """Return the names of further trials, for so many places that are free: a list that was given has none."""
        return ()

    def params_of(self, name: str) -> Mapping[str, Any]:
        """Return the parameters that a trial which waits is to have."""
        return {}

    def logs(self, trial: Trial) -> None:  # noqa: B027 (most ask nothing of it)
        """Look at a trial that has logged for the first time."""

    def clone(self, parents: Sequence[Trial]) -> tuple[Trial, str]:
        """Start a clone of one of some trials that run; return it, and in words which and how it differs.

        Raises:
            TsnbError: It cannot be cloned; says why.
            ValueError: Its changes or its name are refused.
            TimeoutError: It does not come to a batch in time.
        """
        raise NotImplementedError

    def ended(self, trial: Trial) -> None:  # noqa: B027 (its state says it all)
        """Take note of a trial that has ended."""

    def over(self) -> None:  # noqa: B027 (there may be nothing to put in order)
        """Put things in order: the last trial has ended. Called once."""

    @abstractmethod
    def say(self, line: str) -> None:
        """Tell the user what was decided."""


class Conductor:
    """Runs several trials: those of a sweep, a study or a plan.

    Attributes:
        trials: Those that have been started, by name.
        cuts: Those that were stopped early, by name: where, and at which place.
        unpaired: Trials that were not waited for any more: they began with other batches than the others.
        over: Whether all have ended, and no more will be started.
        gave_up: Why the waiting trials were not started; empty if they were.

    Args:
        source: Starts the trials, and hears what becomes of them.
        places: Which trials wait, and how many run at once.
        rule: Says which trials to stop early; None: no trial.
    """

    def __init__(self, source: TrialSource, places: Places, rule: Rule | None = None) -> None:
        self.trials: dict[str, Trial] = {}
        self.cuts: dict[str, Cut] = {}
        self.over = False
        self.gave_up = ""
        self.unpaired: set[str] = set()
        self._source = source
        self._places = places
        self._rule = rule
        self._gates: dict[str, Gate] = {}
        self._attached: set[str] = set()
        self._ended: set[str] = set()
        self._mute: dict[str, Trial] = {}  # have logged nothing: no news tells how far they are
        self._stopping = threading.Event()
        self._news: queue.SimpleQueue[_TrialNews | _Changed | None] = queue.SimpleQueue()

    @property
    def _metric(self) -> str:
        return "" if self._rule is None else self._rule.metric

    @property
    def waiting(self) -> tuple[str, ...]:
        """Trials that have not started."""
        return self._places.waiting

    @property
    def refused(self) -> dict[str, str]:
        """Trials that were not started although nothing failed, and why, by name."""
        return self._places.refused

    def params_of(self, name: str) -> Mapping[str, Any]:
        """Return the parameters that a trial which waits is to have, as they may be shown."""
        return {word: masked(value, word) for word, value in self._source.params_of(name).items()}

    @property
    def late(self) -> Mapping[str, str]:
        """Trials that wait, and would be done too late as far as is known now, and when, by name."""
        return self._places.late

    def look_again(self) -> None:
        """Have it seen whether a trial may start now. From any thread; returns at once."""
        self._news.put(_Changed())

    def stop(self) -> None:
        """Have every trial stopped and none started any more. From any thread; returns at once."""
        self._stopping.set()
        self._news.put(None)

    def run(self) -> None:
        """Start trials and go on until the last has ended. Called once.

        An exception, an interrupt of this thread included, stops all trials before it goes on its way.
        """
        try:
            self.fill()
            while not self._places.over:
                self._step()
        except BaseException:
            self.abort()
            raise
        self._close()

    def abort(self) -> None:
        """End everything, and wait until it has. Called where something could not be done, on the sweep's thread."""
        self._places.clear()
        self._end(self.trials.values())
        try:
            for trial in self.trials.values():
                trial.stop()
        finally:
            self._close()

    def _close(self) -> None:
        self.over = True
        for gate in self._gates.values():
            gate.open()
        self._tell_that_none_was_compared()
        self._source.over()

    def _tell_that_none_was_compared(self) -> None:
        """Say why no trial could be stopped early: a misspelt metric, or steps that are epochs, would not show."""
        done = [trial for trial in self.trials.values() if trial.state == "done"]
        if self._rule is None or self._rule.reached or not done:
            return
        metric = self._rule.metric
        steps = [step for trial in done for step in trial.metrics.by_step(metric)]
        logged = ", ".join(dict.fromkeys(name for trial in done for name in trial.metrics)) or "nothing"
        why = (
            f"logged at step {max(steps)} the last time"
            if steps
            else f"never logged; the trials logged {logged}"
        )
        self._source.say(f"no trial could be stopped early: {self._rule.wanted}, and was {why}")

    def _step(self) -> None:
        """Take one piece of news, or open a gate whose time has come."""
        waits = [left for gate in set(self._gates.values()) if (left := gate.left_s()) is not None]
        waits += [LOOK_S] if waits else []
        look_s = self._places.look_s
        try:
            news = self._news.get(timeout=min([*waits, *([] if look_s is None else [look_s])], default=None))
        except queue.Empty:
            self._look_at_gates()
        else:
            if news is None:
                self._places.clear()
                self._end(self.trials.values())
                return
            if isinstance(news, _Changed):
                self._places.changed()
            else:
                self._take(news)
        self.fill()
        self._start_early()

    def _start_early(self) -> None:
        """Start those whose places will be free in a moment, where it is time to look for them."""
        if self._places.look_s == 0.0 and not (self._stopping.is_set() or the_hub().closing):
            self._launch(self._places.start_early())

    def _look_at_gates(self) -> None:
        """Name the missing trials, and go on without those that have been missing for very long."""
        for gate in set(self._gates.values()):
            if missing := gate.slow():
                have = "has" if len(missing) == 1 else "have"
                self._source.say(
                    f"waiting for {', '.join(missing)}, which {have} not requested a batch yet, so that all "
                    "start with the same batch"
                )
            if gate.left_s() == 0.0:
                late = gate.lapse()
                self.unpaired.update(late)
                self._source.say(
                    f"{', '.join(late)} requested no batch in {WAITING_S:.0f} s. The other trials start "
                    "without them, so comparisons with them use different batches"
                )

    def fill(self) -> None:
        """Start as many trials as there are places for, together.

        Raises:
            Exception: One could not be started; those started before it run (`abort`).
        """
        if self._stopping.is_set() or the_hub().closing:
            self._places.clear()
            return
        self._launch(self._places.start())

    def _launch(self, names: Sequence[str]) -> None:
        """Start trials together."""
        if not names:
            return
        gate = Gate(the_hub().new_path("gate"), names) if len(names) > 1 and self._source.meets else None
        if self._rule is not None:
            self._rule.start(names)
        for name in names:
            self._start(name, gate)

    def _start(self, name: str, gate: Gate | None) -> None:
        if gate is not None:
            self._gates[name] = gate
        trial = self._source.launch(name, None if gate is None else gate.path)
        # its stream was told of it while it waited for this place, and is until it attaches
        trial.life.was_queued |= bool(self._attached)
        self._take_in(trial)

    def _take_in(self, trial: Trial) -> None:
        """Follow a trial from now on."""
        self.trials[trial.name] = self._mute[trial.name] = trial
        trial.listen(self._hear)
        self._hear(trial, trial.metrics.rows)  # what came before anybody listened

    def _hear(self, trial: Trial, rows: Sequence[LoggedRow]) -> None:
        """Pass a trial's news on. Called on the hub's thread."""
        self._news.put(_TrialNews(trial, trial.state, trial.attached, list(rows)))

    def _take(self, news: _TrialNews) -> None:
        """Do what follows from one piece of news."""
        name, over = news.trial.name, news.state in ENDED
        if news.attached and name not in self._attached:
            self._attached.add(name)
            self._places.attached(name)
        if (gate := self._gates.get(name)) is not None:
            if news.attached:
                gate.arrived(name)
            if over:
                gate.gone(name)
            if not gate.shut:
                del self._gates[name]
        cuts = self._judged(news)
        for cut in cuts:
            at = f"{self._metric} {cut.value:.4g}, {cut.why}"
            self._source.say(f"{cut.name} stopped at step {cut.step}: {at}")
        if over and name not in self._ended:
            self._ended.add(name)
            self._places.end(name)
            self._source.ended(news.trial)
            self._give_up_after(news.trial)
        self.cuts.update({cut.name: cut for cut in cuts})
        self._places.leave(cut.name for cut in cuts)
        for cut in cuts:
            by = f"by its sweep at step {cut.step}: {self._metric} {cut.value:.4g}, {cut.why}"
            self._end([self.trials[cut.name]], "pruned", by)

    def _judged(self, news: _TrialNews) -> list[Cut]:
        """Return the trials to stop after this; a clone has taken the place of each that is replaced."""
        rule, name, cuts = self._rule, news.trial.name, []
        if rule is None:
            return []
        if news.rows or news.state in ENDED:
            first = self._mute.pop(name, None)
            if first is not None and news.rows:
                self._source.logs(first)
        for trial in (news.trial, *self._mute.values()):
            rule.learn(trial.name, trial.report)
        for row in news.rows:
            cuts += rule.take(name, row)
        for line in rule.remarks():
            self._source.say(line)
        if news.state in ENDED and name not in self._ended:
            cuts += rule.end(name, withdrawn=news.state != "done")
        found = [cut for cut in cuts if self.trials[cut.name].state not in ENDED]
        return [made for cut in found if (made := self._replaced(rule, cut) if cut.parents else cut)]

    def _replaced(self, rule: Rule, cut: Cut) -> Cut | None:
        """Have a clone take a trial's place; None: there is none, and that trial goes on."""
        why, able = "", [self.trials[name] for name in cut.parents if self.trials[name].state == "running"]
        try:
            if able:
                clone, said = self._source.clone(able)
            else:
                why = "the better trials have ended"
        except (TsnbError, ValueError, TimeoutError) as error:
            why = str(error)
        if why:
            rule.keep(cut.name)
            at = f"{self._metric} {cut.value:.4g}, {cut.why}"
            self._source.say(f"{cut.name} continues at step {cut.step}, {at}: {why}")
            return None
        assert clone.parent is not None
        rule.adopt(clone.name, clone.parent.name)
        self._places.leave([cut.name])
        self._places.join(clone.name)
        self._take_in(clone)
        return replace(cut, said=f"{cut.why}; {said}")

    def _give_up_after(self, trial: Trial) -> None:
        """Start no more trials once one has ended for want of a stream."""
        said = ""
        if trial.state == "stopped" and trial.life.failure == WITH_STREAM:
            said = f"trial {trial.name!r} was stopped {WITH_STREAM}"
        elif trial.state == "failed":
            try:
                trial.wait(NOTED_S)
            except TrialFailed as error:
                said = str(error).partition("\n")[0] if failed_by(trial, STREAMLESS) else ""
        if not said or not self._source.gives_up:
            return
        self.gave_up = self.gave_up or said
        if left := self._places.clear():
            what = "1 trial is" if len(left) == 1 else f"{len(left)} trials are"
            self._source.say(f"{what} not started, because there is no stream: {said}")

    def _end(self, some: Iterable[Trial], state: str = "stopped", by: str = "") -> None:
        """Have trials ended, all at once, on the hub's thread."""
        for trial in some:
            if trial.state not in ENDED:
                the_hub().post(trial.life.end(STOP_GRACE_S, state, by or f"with its {self._source.kind}"))
