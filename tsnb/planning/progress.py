"""What planning says while it measures, on one line each: about how long it takes, and who keeps it waiting.

The seconds are those that were asked for, and what starts take on an ordinary machine. How long the user's own code
takes before its first batch, and for some 20 of them, nobody knows yet; so each line says that it may take longer.

    the loader       4 measurements with their starts, and half of one more of two loaders at once
    a plan           with each setting: each trial alone, the first for longer, and all of them together
    a planned sweep  with each setting: the first trial alone, then as many together as will run at once
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tsnb.kernels.output.outlets import outlet_here
from tsnb.planners.strategies import Strategy

__all__ = [
    "LONGER",
    "about",
    "loader_s",
    "profiled_s",
    "say",
    "settings_text",
    "trials_text",
    "waves_s",
]

START_S = 1.0
"""From asking for a trial to its first batch, where its own code costs nothing."""
SERVED_S = 1.0
"""Beginning and ending the streams on which the loader is measured."""
LOOK_S = 0.5
"""Some 20 batches that take no time."""


LONGER = "longer if a trial starts slowly or its batches take long"
"""What is behind each time."""


def say(line: str) -> None:
    """Show a line under the running cell, or in the terminal.

    Args:
        line: Without an end.
    """
    outlet_here("profile").publish("stream", {"name": "stdout", "text": f"{line}\n"})


def loader_s(seconds: float, workers: int, *, cold: bool) -> float:
    """Return about how many seconds it takes to measure a loader for a plan.

    Args:
        seconds: Of each measurement.
        workers: Of the loader: without any, two of it at once are not tried.
        cold: Whether the disk is measured, too.
    """
    return SERVED_S + seconds * (4.0 + (1.5 if workers else 0.0) + (1.0 if cold else 0.0))


def profiled_s(trials: int, settings: int, seconds: float) -> float:
    """Return about how many seconds it takes to profile trials for a plan.

    Args:
        trials: So many.
        settings: So many strategies, each with which they are profiled.
        seconds: Each is watched for so long.
    """
    each_s = START_S + max(LOOK_S, seconds)
    return settings * (each_s if trials == 1 else 2 * each_s + (trials - 1) * (START_S + LOOK_S))


def waves_s(trials: int, settings: int, at_once: int) -> float:
    """Return about how many seconds it takes to profile the trials of a planned sweep.

    Args:
        trials: So many are profiled.
        settings: So many strategies, each with which they are profiled.
        at_once: So many of them together.
    """
    waves = 1 if trials == 1 else 1 + math.ceil(trials / max(1, at_once))
    return settings * waves * (START_S + LOOK_S)


def about(seconds: float) -> str:
    """Return a time that nobody knows well: "5 s", "25 s", "3 min".

    Args:
        seconds: The time.
    """
    if seconds < 90:
        return f"about {max(5, 5 * round(seconds / 5))} s"
    return f"about {round(seconds / 60)} min"


def trials_text(number: int) -> str:
    """Return a number of trials in words: "1 trial", "3 trials"."""
    return f"{number} trial{'s' * (number != 1)}"


def settings_text(strategies: Sequence[Strategy]) -> str:
    """Return with what each trial is profiled, to stand behind their number; empty where there is no choice.

    Args:
        strategies: With which they are profiled.
    """
    return f", each with {' and with '.join(map(str, strategies))}" if len(strategies) > 1 else ""
