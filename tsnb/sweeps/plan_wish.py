"""What a sweep leaves to its plan: by when all are done, with how many threads, on which device, with which value."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from tsnb.machine.placement import known_devices
from tsnb.planners.strategies import Strategy
from tsnb.sweeps.spaces import require_no_name

if TYPE_CHECKING:
    from tsnb.planning.wishes import Choices

__all__ = ["PlanWish", "read_deadline", "read_threads"]

LISTS = (list, tuple, set, range)
"""What several values of an option are given as."""


@dataclass(frozen=True)
class PlanWish:
    """That a sweep is planned."""

    end_s: float = math.inf
    """By when all must be done, in seconds since 1970."""
    threads: tuple[int, ...] = ()
    """Numbers of torch threads of which each trial has one, the fewest first; empty: there is no choice."""
    devices: tuple[str, ...] = ()
    """Devices of which each trial has one; empty: there is no choice."""
    choose: Choices = ()
    """Parameters, and the values of which each trial has one: the preferred one first."""

    @classmethod
    def of(
        cls,
        plan: bool,
        deadline: str | datetime | None,
        *,
        threads: Any = None,
        device: Any = None,
        choose: Mapping[str, Sequence[Any]] | None = None,
        swept: Collection[str] = (),
        given: Collection[str] = (),
    ) -> PlanWish | None:
        """Return what `tsnb.sweep` was asked for; None: no plan.

        Args:
            plan: Its argument.
            deadline: Its option; where it is given, a plan is made anyhow.
            threads: Its option; several numbers are a choice.
            device: Its option; several devices are a choice.
            choose: Its argument: the values of each parameter, by name.
            swept: The parameters that each trial has for itself.
            given: Those that are the same in all trials.

        Raises:
            ValueError: `deadline` is not a time, or has passed; or what is to be chosen is invalid, given without a
                plan, or beside values of it that are swept over.
        """
        several = read_threads(threads) if isinstance(threads, LISTS) else ()
        on = _read_devices(device) if isinstance(device, LISTS) else ()
        require_no_name(choose or {})
        taken = {**dict.fromkeys(given, "given for all trials"), **dict.fromkeys(swept, "swept over")}
        chosen: Choices = ()
        if choose:
            from tsnb.planning.wishes import read_choices  # needs torch

            chosen = read_choices(choose, taken, _instead)
        for name, asked, values in (("threads", threads, several), ("device", device, on)):
            if values and deadline is None and not plan:
                what = "numbers" if name == "threads" else "devices"
                raise ValueError(
                    f"{name}={asked!r} is invalid, because only a plan picks from several {what}. Add "
                    "plan=True (--plan), or pass one."
                )
            if values and name in swept:
                verb = "are" if name == "threads" else "is"
                raise ValueError(
                    f"{name}={asked!r} is invalid, because {name} {verb} a sweep parameter and each trial has "
                    f"its own value. Remove {name}=, or take {name} out of the grid."
                )
        if chosen and deadline is None and not plan:
            raise ValueError(
                f"choose={choose!r} is invalid, because only a plan picks from several values. Add plan=True "
                "(--plan), or sweep over them with grid=."
            )
        if deadline is None:
            return cls(math.inf, several, on, chosen) if plan else None
        return cls(read_deadline(deadline, datetime.now().astimezone()), several, on, chosen)

    @property
    def chooses(self) -> bool:
        """Whether the plan has anything to choose for a trial."""
        return bool(self.threads or self.devices or self.choose)

    @property
    def options(self) -> dict[str, Any]:
        """Those options of a trial that the plan chooses, as they are preferred."""
        threads = {"threads": self.threads[0]} if self.threads else {}
        return {**threads, **({"device": self.devices[0]} if self.devices else {})}

    @property
    def params(self) -> dict[str, Any]:
        """Those parameters of a trial that the plan chooses, as they are preferred."""
        return {name: values[0] for name, values in self.choose}

    def strategies(self, threads: int) -> list[Strategy]:
        """Return all strategies, the preferred one first: other values count less than more threads.

        Args:
            threads: Torch threads of a trial, where the plan does not choose them.
        """
        from tsnb.planning.wishes import strategies  # needs torch

        return strategies(self.choose, self.threads, threads)


def read_threads(numbers: Iterable[Any]) -> tuple[int, ...]:
    """Return several numbers of torch threads, each once, the fewest first.

    Args:
        numbers: What was given.

    Raises:
        ValueError: One is not a whole number from 1 on, or there is none.
    """
    given = list(numbers)
    try:
        found = tuple(sorted({operator.index(number) for number in given if not isinstance(number, bool)}))
    except TypeError:
        found = ()
    if not found or found[0] < 1 or any(isinstance(number, bool) for number in given):
        raise ValueError(
            f"threads={numbers!r} is invalid. Pass a number, 1 or more, or several: threads=(1, 2)."
        )
    return found


def _read_devices(devices: Iterable[Any]) -> tuple[str, ...]:
    """Return several devices, each once.

    Raises:
        ValueError: One does not exist, the CPU is among GPUs, or there is none.
    """
    if not (found := known_devices(devices)):
        raise ValueError('device=() is invalid. Pass a device, or several: device=("cuda:0", "cuda:1").')
    return found


def _instead(name: str) -> str:
    """Say what to do with an option that cannot be left to a plan as a parameter."""
    return (
        f"Pass it as its own argument: {name}=(...)."
        if name in ("threads", "device")
        else "Sweep over it with grid=."
    )


_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
"""A time of the day here: of "18.30" Python reads the hour alone, and "18:00Z" may be another."""


def read_deadline(deadline: str | datetime, now: datetime) -> float:
    """Return by when a sweep is to be done, in seconds since 1970.

    Args:
        deadline: "18:00", the next time that it is so late; "2026-11-24 08:00"; or a datetime.
        now: The time now, with its time zone.

    Raises:
        ValueError: It is not a time, or has passed.
    """
    found = deadline
    if isinstance(found, str):
        try:
            if len(found) <= len("18:00:00"):
                if not _CLOCK.fullmatch(found):
                    raise ValueError
                at = time.fromisoformat(found.zfill(len("18:00")))
                found = datetime.combine(now.date(), at, now.tzinfo)
                found = found if found > now else found + timedelta(days=1)
            else:
                found = datetime.fromisoformat(found)
        except ValueError:
            raise ValueError(
                f'deadline={deadline!r} is not a time. Pass "18:00", "2026-11-24 08:00" or a datetime'
            ) from None
    if not isinstance(found, datetime):
        raise ValueError(
            f'deadline={deadline!r} is not a time. Pass "18:00", "2026-11-24 08:00" or a datetime'
        )
    found = found if found.tzinfo is not None else found.replace(tzinfo=now.tzinfo)
    if found <= now:
        raise ValueError(
            f"deadline={deadline!r} has already passed: it is {now:%Y-%m-%d %H:%M}. Pass a later time"
        )
    return found.timestamp()
