"""How many workers a loader gets while its trials go on, and how far each works ahead: a guided climb. Pure.

Seeds by batch make both invisible in the data, and the grid is small, so no learning is needed:

    watch --the loader limits--> more workers --helped--> watch (from the new pace on)
      |                             +----------not------> back; halfway between is next
      |                          more ahead, once no number of workers helps any more: for samples of uneven cost
      +---the models limit-----> one fewer, then less ahead, kept while the pace stays; it saves CPU and memory

    on trial --clear-------------------------------------> kept, or back
      +------close--> measured on --close--> the former choice once more --> kept, or back

- The loader limits where the producer waits for its workers for more than `LIMITS` of the time; the models do where it
  waits for less than `IDLE`: the window is full, or no trial asks.
- A choice is measured for `probe_s`, after `settle_s`, and once the former workers have handed in what they had.
- What comes within `CLOSE` of its bound may be on the wrong side of it by noise alone: it is measured `ENOUGH` times,
  and so is what it is compared with. The two are nearly as fast then, so the time costs no pace.
- Workers are doubled while the gain so far promises more, and one climb has `MOST_PROBES`.
- A choice whose memory would go past the budget is not tried, that of the former workers included, which end a moment
  later; workers that have gone past it are made fewer at once. Workers that grow (they leak) are replaced by as many
  new ones while both still fit, with what leaks until the former ones have gone: as long as that took the last time.
- Where the system says that memory is short, workers become fewer at the next look, and none is added for `CALM_S`.
- Other programs on these cores make a pace smaller than the choice deserves. A measurement beside clearly more of them,
  or fewer, than the one before it is put aside and made again, `ASIDE` times in a row; then they are there to stay, or
  have left, and what was measured before says nothing: the choice on trial goes back, to be tried anew.
- A settled pace that changes by `CHANGED` in two measurements makes all that was tried worth trying again: other
  trials, other samples. So does another number of cores, at once; but where they are fewer, more that gave nothing
  before will give nothing now.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import NamedTuple

__all__ = ["Crew", "Probe", "Seen", "Tuner"]

LIMITS = 0.2
IDLE = 0.05
HELPED = 1.02
"""More that gives less is not worth its memory. It lies between nothing and the 5 % that must not be missed, so noise
makes one of the other as seldom as the reverse."""
STAYED = 0.98
"""Fewer may cost so much pace where the models limit: less than two measurements differ."""
SAVED = 0.99
"""The same where the loader limits, and each loss is one of the trials' pace."""
CLOSE = 0.06
"""A ratio of two paces that is nearer to its bound is in doubt: one measurement of 3 s is 3 to 5 % off."""
ENOUGH = 3
"""So many measurements of each of the two make it 2 to 3 %."""
RISES = 1.1
"""Doubled workers that gave less: by Amdahl's law the next doubling gives half of that, which noise hides."""
IN_PROPORTION = 0.9
"""Several workers more that give less than this share of what their number promises may be too many."""
MOST_PROBES = 8
"""Choices that one climb measures at most, the first included."""
CHANGED = 0.25
OTHERS = 0.08
"""Share of the cores by which other programs may differ between two measurements that are compared."""
ASIDE = 3
"""So many measurements in a row are put aside: 9 s of somebody's work pass, an hour of it does not stop a climb."""
LEAST = 10
"""Batches that a measurement has at least."""
MOST_AHEAD = 8
"""Batches that each worker prepares ahead at most: beyond it, samples of uneven cost are evened out."""
CALM_S = 30.0
WEIGHED_S = 1.0
"""The memory is weighed so often."""
GROWN = 1.5
"""Workers that have so many times the memory they began with leak."""


class Crew(NamedTuple):
    """What a loader is run with."""

    workers: int
    """Processes."""
    prefetch: int
    """Batches that each prepares ahead: torch's `prefetch_factor`."""


class Seen(NamedTuple):
    """A loader at one moment."""

    time_s: float
    """By a clock that only grows."""
    batches: int
    """Loaded so far."""
    loading_s: float
    """Seconds so far in which the producer waited for its workers."""
    workers: int
    """Now."""
    memory_bytes: float = 0.0
    """Of all workers, now."""
    budget_bytes: float = math.inf
    """What they may have, now."""
    prefetch: int = 2
    """Batches that each prepares ahead, now."""
    cores: int = 0
    """That the workers may use, now; 0: not known."""
    short: bool = False
    """Whether the system says that memory is short: processes stand still for want of it."""
    handing_over: bool = False
    """Whether workers from before a change still hand in what they had: both are there."""
    others_s: float = 0.0
    """CPU seconds so far that other programs had on these cores."""


class Probe(NamedTuple):
    """One choice, measured."""

    workers: int
    """Their number."""
    per_s: float
    """Batches a second."""
    waited: float
    """Share of the time in which the producer waited for them, 0 to 1."""
    kept: bool
    """Whether it stayed."""
    prefetch: int = 2
    """Batches that each prepared ahead."""


class Tuner:
    """Decides for one loader.

    Attributes:
        probes: What was measured, in order.
        resting: Whether nothing is left to try, until something changes.
        worker_bytes: The most that one of the workers had, on average over them, since they were changed; of the
            former ones while it is not known. 0: not known yet.

    Args:
        most: Workers at most; with the number of cores known, for each of them.
        probe_s: Seconds of a measurement.
        settle_s: Seconds after a change that do not count.
    """

    def __init__(self, most: int, probe_s: float = 3.0, settle_s: float = 1.0) -> None:
        self.probes: list[Probe] = []
        self.resting = False
        self.worker_bytes = 0.0
        self._most = most
        self._probe_s, self._settle_s = probe_s, settle_s
        self._start: Seen | None = None
        self._not_before_s = -math.inf
        self._before: Probe | None = None  # what a choice on trial is compared with
        self._doubted: Probe | None = None  # the choice on trial, while the former one is measured once more
        self._paces: dict[Crew, deque[float]] = {}  # batches a second of both, by measurement
        self._settled: float | None = None
        self._changed = 0
        # share of the cores that others had in the last measurement that counted
        self._others: float | None = None
        self._put_aside = 0
        self._tried: set[Crew] = set()
        self._vain: set[Crew] = set()  # those among them that were more, and no faster
        self._vain_ahead: set[int] = set()  # the same of working further ahead, with whatever number
        self._own_prefetch: int | None = None
        self._cores = 0
        self._fell = False  # whether there are fewer cores than the workers were chosen for
        self._catching_up = False  # whether the choice on trial is as many as are left
        self._between = 0  # a number that may do as well as the larger one that was kept last
        self._flat = False  # whether twice as many would give next to nothing
        self._climbed = 0  # probes of earlier climbs
        self._calm_until_s = -math.inf
        self._went_s: float | None = None  # when workers were changed last, until the former ones have gone
        self._hand_in_s = settle_s  # how long the last ones took to go
        # of these workers, since they settled: bytes at first, at most, and when that was; bytes that were weighed last
        self._fresh_bytes = self._most_bytes = self._weighed_bytes = 0.0
        self._settled_s = self._most_s = -math.inf
        self._grows_per_s = 0.0  # bytes

    def step(self, seen: Seen) -> Crew | None:
        """Look at the loader; return another choice, the same one to have its workers replaced, or None.

        Args:
            seen: Now; times never go back.
        """
        if self._own_prefetch is None:
            self._own_prefetch = seen.prefetch
        self._note_cores(seen)
        spared = self._spare(seen)
        if spared is not None:
            return spared
        settled = self._has_settled(seen)
        if self._start is None or _crew(self._start) != _crew(seen):
            if settled:
                self._start = seen
            return None
        lasted_s, batches = seen.time_s - self._start.time_s, seen.batches - self._start.batches
        if lasted_s < self._probe_s or batches < LEAST:
            return None
        others = (seen.others_s - self._start.others_s) / lasted_s / max(1, seen.cores)
        if self._others is not None and abs(others - self._others) > OTHERS:
            return self._put_it_aside(seen, others)
        self._others, self._put_aside = others, 0
        waited = min(1.0, (seen.loading_s - self._start.loading_s) / lasted_s)
        now = Probe(seen.workers, batches / lasted_s, waited, kept=True, prefetch=seen.prefetch)
        self._start = seen
        self._paces.setdefault(_crew(now), deque(maxlen=ENOUGH)).append(now.per_s)
        return self._watch(seen, now) if self._before is None else self._judge(seen, now, self._before)

    def _put_it_aside(self, seen: Seen, others: float) -> Crew | None:
        """Measure anew; where others have come to stay, or have left, forget what was measured before, too."""
        self._start = seen
        self._put_aside += 1
        if self._put_aside <= ASIDE:
            return None
        self._others, self._put_aside = others, 0
        self._paces.clear()
        before = self._before
        self._end_trial()
        return None if before is None or _crew(before) == _crew(seen) else self._go(seen, _crew(before))

    # -- what cannot wait for a measurement ----------------------------------------------------------------

    def _note_cores(self, seen: Seen) -> None:
        if seen.cores and seen.cores != self._cores:
            if self._cores:
                self._fell = seen.cores < self._cores
                if self._fell:  # more that gave nothing with more cores gives nothing with fewer
                    self._between = 0
                    self._tried = {vain for vain in self._vain if vain > _crew(seen)}
                else:
                    self._forget()
                self._start = self._settled = None
                self._paces.clear()
                self._end_trial()
                self.resting = False
            self._cores = seen.cores

    def _forget(self) -> None:
        """Have all that was tried worth trying again."""
        for each in (self._tried, self._vain, self._vain_ahead):
            each.clear()
        self._between, self._flat, self._climbed = 0, False, len(self.probes)

    def _end_trial(self) -> None:
        self._before = self._doubted = None

    def _spare(self, seen: Seen) -> Crew | None:
        """Return what memory asks for, without a measurement."""
        if seen.short and seen.time_s >= self._calm_until_s - CALM_S + self._settle_s:
            self._calm_until_s = seen.time_s + CALM_S
            fewer = Crew(max(1, seen.workers - 1), min(seen.prefetch, self._own_prefetch or 2))
            return self._back_off(seen, fewer) if fewer != _crew(seen) else None
        if not self._has_settled(seen):
            return None
        if seen.memory_bytes > seen.budget_bytes and seen.workers > 1:
            return self._back_off(seen, Crew(seen.workers - 1, seen.prefetch))
        self._note_memory(seen)
        soon_bytes = seen.memory_bytes + self._leaks_meanwhile() + self._fresh_bytes
        if soon_bytes > seen.budget_bytes and seen.memory_bytes > GROWN * self._fresh_bytes:
            self._end_trial()
            return self._go(seen, _crew(seen))
        return None

    def _has_settled(self, seen: Seen) -> bool:
        """Whether those that are seen are the workers of now alone."""
        if seen.time_s < self._not_before_s or seen.handing_over:
            return False
        if self._went_s is not None:
            self._hand_in_s = max(self._settle_s, seen.time_s - self._went_s)
            self._went_s = None
        return True

    def _note_memory(self, seen: Seen) -> None:
        """Note what the workers have, and how fast it grows.

        At an epoch's end they may be replaced, and those that have just begun have next to nothing: what they had at
        most is what they need, and only what is more than ever before has grown.
        """
        if self._settled_s == -math.inf:
            self._settled_s = self._most_s = seen.time_s
            self._most_bytes = seen.memory_bytes
        if (
            seen.memory_bytes != self._weighed_bytes
        ):  # weighed anew: that is done less often than it is looked
            self._weighed_bytes = seen.memory_bytes
            self._grows_per_s *= 0.8
        if seen.memory_bytes > self._most_bytes:
            lasted_s = max(WEIGHED_S, seen.time_s - self._most_s)
            grew_per_s = (seen.memory_bytes - self._most_bytes) / lasted_s
            self._grows_per_s = max(self._grows_per_s, grew_per_s)
            self._most_bytes, self._most_s = seen.memory_bytes, seen.time_s
        if seen.time_s <= self._settled_s + WEIGHED_S:
            self._fresh_bytes = self._most_bytes
        self.worker_bytes = self._most_bytes / max(1, seen.workers) or self.worker_bytes

    def _leaks_meanwhile(self) -> float:
        """Return what leaks until the memory is weighed twice more, and then while others take over, in bytes."""
        return self._grows_per_s * (2 * WEIGHED_S + self._hand_in_s)

    def _back_off(self, seen: Seen, fewer: Crew) -> Crew:
        self._tried.add(_crew(seen))
        self._end_trial()
        return self._go(seen, fewer)

    # -- what follows from one -----------------------------------------------------------------------------

    def _judge(self, seen: Seen, now: Probe, before: Probe) -> Crew | None:
        """Keep the choice on trial, or go back; where it is close, measure on first, and the former one once more."""
        tried, before = self._averaged(self._doubted or now), self._averaged(before)
        more = _crew(tried) > _crew(before)
        bound = HELPED if more else SAVED if self._in_earnest(before) else STAYED
        ratio = tried.per_s / before.per_s
        kept = ratio >= bound
        # fewer workers do not give clearly more: if one measurement says so, it is noise
        doubtful = abs(ratio - bound) < CLOSE or (kept and not more)
        if doubtful and self._may_look_again(seen, before):
            if len(self._paces[_crew(now)]) < ENOUGH:
                return None
            if self._doubted is None and len(self._paces[_crew(before)]) < ENOUGH:
                self._doubted = now
                return self._go(seen, _crew(before))
        kept = kept and (self._doubted is None or self._fits(seen, _crew(tried)))
        self._end_trial()
        self._note_outcome(tried._replace(kept=kept), before)
        stays = tried if kept else before
        return self._watch(seen, stays) if _crew(stays) == _crew(now) else self._go(seen, _crew(stays))

    def _in_earnest(self, before: Probe) -> bool:
        """Whether a loss is one of the trials' pace, and not of cores that have gone."""
        return before.waited > LIMITS and not self._catching_up

    def _may_look_again(self, seen: Seen, before: Probe) -> bool:
        """Whether a second look is worth it, and workers that grow meanwhile leave room for the former number."""
        grown_bytes = seen.memory_bytes + self._grows_per_s * self._probe_s + self._leaks_meanwhile()
        return (
            self._in_earnest(before) and grown_bytes + self.worker_bytes * before.workers <= seen.budget_bytes
        )

    def _averaged(self, of: Probe) -> Probe:
        """Return a choice with the mean of all that was measured of its pace in this trial."""
        return of._replace(per_s=statistics.fmean(self._paces[_crew(of)]))

    def _note_outcome(self, tried: Probe, before: Probe) -> None:
        """Note what a trial says of other choices, too."""
        self.probes.append(tried)
        kept, more = tried.kept, _crew(tried) > _crew(before)
        self._tried.add(_crew(before if kept else tried))
        same = tried.per_s > STAYED * before.per_s  # as fast: so is what lies between
        fewest, most = sorted((before.workers, tried.workers))
        between = {Crew(n, tried.prefetch) for n in range(fewest + 1, most)} if same else set()
        if kept != more:
            self._tried |= between
            if more or before.waited > LIMITS:  # else it is the models that need no more
                self._vain |= between | {_crew(tried if more else before)}
        if more and not kept and tried.workers == before.workers:
            self._vain_ahead.add(tried.prefetch)
        if kept and tried.workers >= 2 * before.workers:
            self._flat = tried.per_s < RISES * before.per_s
        if kept and tried.per_s < IN_PROPORTION * before.per_s * tried.workers / before.workers:
            self._between = (before.workers + tried.workers) // 2
        self._settled = None

    def _watch(self, seen: Seen, now: Probe) -> Crew | None:
        if not self.probes:
            self.probes.append(now)
        if self._settled is not None and abs(now.per_s / self._settled - 1) > CHANGED:
            self._changed += 1
            if self._changed < 2:
                self._paces.clear()
                return None
            self._forget()
        self._changed = 0
        self._settled = now.per_s
        wanted = self._next(seen, now)
        self.resting = wanted is None
        if wanted is None:
            return None
        self._before = now
        self._paces = {_crew(now): self._paces[_crew(now)]}
        return self._go(seen, wanted)

    def _next(self, seen: Seen, now: Probe) -> Crew | None:
        """Return what to try next; None: nothing."""
        fell, self._fell = self._fell, False
        tries: list[Crew] = []
        self._catching_up = fell and seen.workers > seen.cores
        if self._catching_up:
            tries.append(Crew(max(1, seen.cores), seen.prefetch))
        elif now.waited >= IDLE and len(self.probes) - self._climbed >= MOST_PROBES:
            return None
        if now.waited > LIMITS and not self._flat:
            tries += self._more_workers(seen)
        if now.waited >= IDLE:
            if 0 < self._between < seen.workers:
                tries.append(Crew(self._between, seen.prefetch))
            further = min(MOST_AHEAD, 2 * seen.prefetch)
            if further not in self._vain_ahead:
                tries.append(Crew(seen.workers, further))
        elif not tries:
            tries.append(Crew(seen.workers - 1, seen.prefetch))
            tries.append(Crew(seen.workers, max(self._own_prefetch or 2, seen.prefetch // 2)))
        return next((t for t in tries if t not in self._tried and self._fits(seen, t)), None)

    def _more_workers(self, seen: Seen) -> list[Crew]:
        """Return a larger number: twice as many, or halfway to one that did not help; none where none fits."""
        failed = [choice.workers for choice in self._tried if choice.workers > seen.workers]
        most = min([*failed, 1 + self._most_workers(seen), 1 + 2 * seen.workers])
        room = [n for n in range(seen.workers + 1, most) if self._fits(seen, Crew(n, seen.prefetch))]
        if not room:
            return []
        chosen = room[-1] if not failed else room[(len(room) - 1) // 2]
        return [Crew(chosen, seen.prefetch)]

    def _most_workers(self, seen: Seen) -> int:
        return self._most * max(1, seen.cores)

    def _fits(self, seen: Seen, choice: Crew) -> bool:
        """Whether a choice is within bounds, and its memory beside that of the workers of now within the budget."""
        if choice == _crew(seen) or not 1 <= choice.workers <= self._most_workers(seen):
            return False
        if choice > _crew(seen) and seen.time_s < self._calm_until_s:
            return False
        # new ones have as much as these at most; both are there until the former have handed in what they had
        foretold_bytes = self.worker_bytes * (seen.workers + choice.workers) + self._leaks_meanwhile()
        return foretold_bytes <= seen.budget_bytes

    def _go(self, seen: Seen, choice: Crew) -> Crew:
        self._start, self._not_before_s = None, seen.time_s + self._settle_s
        self._went_s = seen.time_s
        self._fresh_bytes = self._most_bytes = self._grows_per_s = 0.0
        self._settled_s = self._most_s = -math.inf
        self.resting = False
        return choice


def _crew(of: Seen | Probe) -> Crew:
    return Crew(of.workers, of.prefetch)
