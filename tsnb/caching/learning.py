"""The dataset that a loader's workers see where samples are kept: the user's, measured, proven and remembered.

| phase | a sample is | and |
|---|---|---|
| learning | prepared | its digest, cost and size are noted |
| proving | prepared, in another epoch, so under another seed | its digest must be the same; a chosen one is kept |
| serving | taken where it is kept, else prepared | one that is to lie on another machine is proven and kept as before |

A batch always gets the sample as the user's own code has prepared it, or one that was proven to be the same: with the
cache on and off a stream is the same bit for bit.

A form of sample (whole, or cut) is given up for all samples as soon as one of them draws from a global generator,
differs from what it was before, or is not the same when it is taken once, which each has to be. It takes one sample
among all, in two epochs, so what draws seldom, or from a generator of its own, is found as well. `WHOLE` gives way to
`CUT` where the dataset can be cut, and that to none.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tsnb.caching.choice import LEAST_COST_S
from tsnb.caching.cut import Call, Unsplittable, cut_of, filled, template_of
from tsnb.caching.encoding import decode, digest, encode, join, part, worth
from tsnb.caching.lent import LentMemory
from tsnb.caching.memory import ASSIGNED, CHOSEN, CUT, GIVEN, LEARNING, OFF, SERVING, WHOLE, SampleMemory
from tsnb.draws import Draws, another_seed
from tsnb.machine.clocks import cost_clock
from tsnb.stream.loader.seams import StandIn, number_of, worker_row
from tsnb.text.printable import one_line

__all__ = ["KeptDataset"]

PROBES = 2
"""Samples of a worker that are prepared twice at once, so that what draws in a way of its own is found early."""


class KeptDataset(StandIn):
    """Stands in for the loader's dataset, in its workers.

    Args:
        dataset: The user's; may have been made fit to travel.
        memory: Where samples are kept.
    """

    def __init__(self, dataset: Any, memory: SampleMemory) -> None:
        super().__init__(dataset)
        self._memory = memory
        self._lent = LentMemory(memory)
        self._cut: Any = None
        self._looked = False
        self._probes = PROBES
        self._row = 0

    def __getitem__(self, index: Any) -> Any:
        memory = self._memory
        phase = memory.phase
        if phase == OFF:
            return self.dataset[index]
        number = number_of(index, memory.samples)
        if number is None:
            return self.dataset[index]
        if not self._looked:
            self._look()
        if phase == SERVING:
            here = memory.read(number)
            record = self._lent.read(number) if here is None else here
            if record is not None:
                saved_s = float(memory.cost_s[number])
                memory.count(self._row, hit=True, saved_s=saved_s, lent=here is None)
                return self._made(decode(record), memory.form)
            memory.count(self._row, hit=False)
            return (
                self._measured(index, number, phase) if self._lent.waits_for(number) else self.dataset[index]
            )
        memory.count(self._row, hit=False)
        return self._measured(index, number, phase)

    def _look(self) -> None:
        """Find out which worker this is."""
        self._row = worker_row()
        self._looked = True

    def _where(self) -> Any:
        """Return where it is cut, if it can be. Not before the first sample: `worker_init_fn` may change it."""
        if self._cut is None:
            self._cut = cut_of(self.dataset) or False
        return self._cut or None

    def _made(self, parts: Sequence[Any], form: int) -> Any:
        """Make a sample of what was kept of it."""
        if form == WHOLE:
            return parts[0]
        template, functions = parts[0]
        cut = self._where()
        return filled(
            template, [cut.call(name, *called) for name, called in zip(functions, parts[1:], strict=True)]
        )

    # -- the first two epochs ----------------------------------------------------------------------------

    def _measured(self, index: Any, number: int, phase: int) -> Any:
        form = self._memory.form
        before = Draws.now()
        if form == WHOLE:
            began = cost_clock()
            sample, calls = self.dataset[index], []
        else:
            cut = self._where()
            began = cost_clock()
            sample, calls = cut.fetch(index)
        cost_s = cost_clock() - began - sum(call.took_s for call in calls)
        after = Draws.now()
        try:
            record = self._record(sample, calls, form, before, after)
            self._note(number, record, max(0.0, cost_s), form, phase)
            if self._probes > 0 and phase == LEARNING:
                self._probes -= 1
                self._probe(index, record, form)
            state = self._memory.states[number]
            if state in (CHOSEN, ASSIGNED) and self._memory.forms[number] == form:
                self._prove(record, sample, form, before, after)
                if cost_s >= LEAST_COST_S:  # else the first time was a busy moment of the machine's
                    (self._memory if state == CHOSEN else self._lent).write(number, record)
                elif state == ASSIGNED:
                    self._memory.states[number] = GIVEN
        except _NotKept as error:
            after.restore()
            self._give_up(form, number, str(error))
            if form == WHOLE and self._memory.form == CUT:
                self._learn_again(index, number, before)
            after.restore()
        return sample

    def _record(self, sample: Any, calls: list[Call], form: int, before: Draws, after: Draws) -> bytes:
        """Return the part of a sample to keep.

        Raises:
            _NotKept: It drew, or cannot be kept.
        """
        drew = "draws random numbers"
        if form == WHOLE:
            if not before.same(after):
                raise _NotKept(drew)
            return _kept(lambda: encode(sample))
        for first, second in zip(
            [before, *(call.after for call in calls)],
            [*(call.before for call in calls), after],
            strict=True,
        ):
            if not first.same(second):
                raise _NotKept(f"{drew} outside of {_names(calls)}")
        for call in calls:
            if call.problem:
                raise _NotKept(f"cannot be cached ({call.problem})")
        try:
            template = template_of(sample, calls)
        except Unsplittable as error:
            raise _NotKept(f"cannot be split: {error}") from None
        functions = [call.function for call in calls]
        return _kept(lambda: join([part((template, functions)), *(call.arguments for call in calls)]))

    def _note(self, number: int, record: bytes, cost_s: float, form: int, phase: int) -> None:
        """Note what was measured; a second time it must be the same.

        Raises:
            _NotKept: It is not.
        """
        memory, found = self._memory, digest(record)
        known = memory.states[number] != 0 and memory.forms[number] == form
        if known and not memory.same(number, found):
            raise _NotKept("differs when it is prepared a second time")
        if not known or phase == LEARNING:
            memory.learn(number, found, cost_s, len(record), form, worth(record, cost_s))

    def _probe(self, index: Any, record: bytes, form: int) -> None:
        """Prepare a sample a second time at once, under another seed.

        Raises:
            _NotKept: It is another one.
        """
        with another_seed(int.from_bytes(os.urandom(4), "little")):
            before = Draws.now()
            try:
                sample, calls = (self.dataset[index], []) if form == WHOLE else self._where().fetch(index)
            except Exception as error:  # noqa: BLE001  # whatever the user's dataset raises
                raise _NotKept(f"raises {type(error).__name__} when it is prepared twice") from None
            again = self._record(sample, calls, form, before, Draws.now())
        if again != record:
            raise _NotKept("differs when it is prepared a second time")

    def _prove(self, record: bytes, sample: Any, form: int, before: Draws, after: Draws) -> None:
        """Take a sample from its record, as it would be later, and compare it with the one that was prepared.

        Raises:
            _NotKept: It is another one.
        """
        before.restore()
        try:
            made = self._made(decode(np.frombuffer(record, np.uint8).copy()), form)
            alike = Draws.now().same(after) and encode(made) == encode(sample)
        except Exception as error:  # noqa: BLE001  # whatever the user's classes raise
            raise _NotKept(f"cannot be rebuilt ({type(error).__name__}: {error})") from None
        finally:
            after.restore()
        if not alike:
            raise _NotKept(
                "differs when it is rebuilt"
                if form == WHOLE
                else "differs when `transform` is called on it alone"
            )

    def _learn_again(self, index: Any, number: int, before: Draws) -> None:
        """Measure a sample in the form that it has now, from the states that it was prepared from."""
        before.restore()
        try:
            cut = self._where()
            began = cost_clock()
            sample, calls = cut.fetch(index)
            cost_s = cost_clock() - began - sum(call.took_s for call in calls)
            record = self._record(sample, calls, CUT, before, Draws.now())
            cost_s = max(0.0, cost_s)
            self._memory.learn(number, digest(record), cost_s, len(record), CUT, worth(record, cost_s))
        except _NotKept as error:
            self._give_up(CUT, number, str(error))
        except Exception as error:  # noqa: BLE001  # whatever the user's dataset raises
            self._give_up(CUT, number, f"raises {type(error).__name__} when it is prepared twice")

    def _give_up(self, form: int, number: int, why: str) -> None:
        """Keep samples in another form from now on, or none."""
        memory = self._memory
        if memory.form != form or memory.phase == OFF:
            return  # another worker was first
        memory.why = one_line(f"sample {number:,} {why}", 400)
        if form == WHOLE and self._where() is not None:
            memory.form = CUT
            memory.phase = LEARNING
        else:
            memory.phase = OFF


class _NotKept(Exception):
    """A sample cannot be kept in a form; says why, as a sentence about it goes on."""


def _kept(encoded: Any) -> bytes:
    try:
        made: bytes = encoded()
    except Exception as error:  # noqa: BLE001  # whatever the user's classes raise
        raise _NotKept(f"cannot be cached ({type(error).__name__}: {error})") from None
    return made


def _names(calls: list[Call]) -> str:
    return " and ".join(dict.fromkeys(f"`{call.function}`" for call in calls)) or "any `transform`"
