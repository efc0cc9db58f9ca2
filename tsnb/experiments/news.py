"""What a trial's kernel tells the process that started it: a type for each, used on both ends.

| news | when | taken by |
|---|---|---|
| `Begun` | its code begins | `attempt` |
| `Logged` | a few times a second, if `tsnb.log` was called | `trial_life` |
| `Consumed` | once a second, if its consumers have moved on | `trial_life` |
| `Attaching` | it has asked for its first epoch | `trial_life` |
| `Directions` | it has called `tsnb.records.direction` | `trial_life` |
| `Declared` | it has made a live value | `trial_life` |
| `Requested`, `Changed` | changes of live values were asked for; changes hold | `trial_life` |
| `StandsStill` | its consumer stands still because it is paused, or does no more | `trial_life` |
| `Releasable` | whether its GPU memory can be given back while it is paused has changed | `trial_life` |
| `WentBack` | it goes on from a checkpoint: what came after that is to be forgotten | `trial_life` |
| `Branched`, `NotBranched` | it has been cloned at a batch, or cannot be | `branches` |
| `KeptForClone` | it could not be forked, and has written its state for the clone | `branches` |
| `Wrote` | once a second, if its code has written files | `trial_life` |
| `Artifact` | it has called `tsnb.log_artifact`, on a machine of a cluster | `cluster.remote_attempt` |
| `Ended` | its code has ended | `attempt` |

Each travels as a message of a kind of our own on the kernel's output channel, which no front end shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tsnb.config import limit_met
from tsnb.errors import StopRequested, StreamStopped, TsnbError
from tsnb.experiments.live_values import NoSuchLiveValue
from tsnb.records.writes import LiveChange, LoggedRow
from tsnb.text.foreign import as_json
from tsnb.text.printable import block, uncoloured

__all__ = [
    "BRANCH",
    "FORGET_BRANCH",
    "GO_ON",
    "RELEASE",
    "SET",
    "Artifact",
    "Attaching",
    "Begun",
    "Branched",
    "Changed",
    "Consumed",
    "Declared",
    "Directions",
    "Ended",
    "KeptForClone",
    "Logged",
    "News",
    "NotBranched",
    "Releasable",
    "Requested",
    "StandsStill",
    "WentBack",
    "Wrote",
    "as_message",
    "error_of",
    "how_it_ended",
    "interrupt_behind",
    "news_in",
    "raised",
    "was_asked_for",
]

SET = "tsnb_set"
"""A request to a kernel in the middle of its code: change live values, by name."""

RELEASE = "tsnb_release"
"""Another: give the GPU memory of what is kept back when the trial is paused, or not after all."""

BRANCH = "tsnb_branch"
"""Another: clone the trial at its next batch; `Branched` or `NotBranched` follows."""
FORGET_BRANCH = "tsnb_forget_branch"
"""Another: do not clone it any more. The answer says whether that came in time."""
GO_ON = "tsnb_go_on"
"""A request to a clone that stands at its place: train on, as this run."""

BY_STREAM = "by another notebook or a command"
"""Who stopped a trial that was asked to stop over its stream."""

WITH_STREAM = "with its stream"
"""Who stopped a trial whose stream was stopped on purpose."""

STOPPED = {
    "CancelledError": "",
    "KeyboardInterrupt": "",
    StopRequested.__name__: BY_STREAM,
    StreamStopped.__name__: WITH_STREAM,
}
"""The errors, by class, that end code which was asked to end; and who asked, where that shows it."""


class Begun(NamedTuple):
    """The trial's code begins; a detached trial needs its notebook no more."""

    versions: dict[str, str]
    """Of Python, tsnb, torch and numpy there."""


class Logged(NamedTuple):
    """Numbers that were logged since the last time."""

    rows: list[LoggedRow]
    """In the order in which they were logged."""


class Consumed(NamedTuple):
    """What the trial's consumers did so far."""

    report: dict[str, Any]
    """As `Trial.report` has it."""


class Wrote(NamedTuple):
    """Its code has opened files to write them."""

    paths: list[str]
    """Those that are new since the last time."""


class Attaching(NamedTuple):
    """The trial has asked for its first epoch; it may be waiting at its gate."""


class Directions(NamedTuple):
    """Which way metrics are good, as the trial has said."""

    by_metric: dict[str, str]
    """"min" or "max"."""


class Declared(NamedTuple):
    """The trial has made a live value (`tsnb.live`)."""

    values: dict[str, Any]
    """All of its live values, as they are."""
    bounds: dict[str, tuple[float, float]]
    """The lowest and the highest number that each of them may be, of those that have such bounds."""


class Requested(NamedTuple):
    """Changes of live values have been asked for, and hold from the trial's next batch."""

    changes: list[LiveChange]
    """Each with the samples from which on it may hold."""


class Changed(NamedTuple):
    """Changes of live values hold from here on."""

    changes: list[LiveChange]
    """In their order."""


class StandsStill(NamedTuple):
    """The trial stands still because it is paused, or goes on."""

    on: bool
    """Stands still; else goes on."""


class Releasable(NamedTuple):
    """Whether the trial's GPU memory can be given back while it is paused has changed."""

    why: str
    """Why it cannot, and what to do; empty: it can."""


class WentBack(NamedTuple):
    """The trial goes on from a state that it has kept, and repeats what came after that."""

    rows: int
    """Rows that it had logged then, without those of a parent that it is a clone of."""
    samples: int
    """Samples that it had taken then."""


class Branched(NamedTuple):
    """A clone of the trial stands where it stands: it has a process, and its place in the streams."""

    pid: int
    """The clone's process."""
    epoch: int | None
    """The trial's epoch, from 1."""
    batch: int | None
    """Loader batches taken of it: the clone's next one is this one's next."""
    samples: int
    """Samples taken in all."""


class NotBranched(NamedTuple):
    """The trial cannot be cloned here."""

    why: str
    """And what to do about it."""


class KeptForClone(NamedTuple):
    """The trial's state has been written for a clone, which begins with it in a new process."""

    path: str
    """The file."""
    why: str
    """Why the trial was not forked."""
    epoch: int | None
    """The trial's epoch, from 1."""
    batch: int | None
    """Loader batches taken of it."""
    samples: int
    """Samples taken in all."""


class Artifact(NamedTuple):
    """A copy of a file or folder waits on the machine of the cluster that the trial runs on."""

    path: str
    """Where it lies there; to be fetched and removed."""
    name: str
    """As it is called among the run's artifacts."""


class Ended(NamedTuple):
    """How the trial's code ended."""

    state: str
    """"done", "failed" or "stopped"."""
    failure: str = ""
    """What was raised: one line, then the traceback."""
    took_s: float | None = None
    """Seconds from when it was asked for, as its record has them; None: it writes none."""


News = (
    Begun
    | Logged
    | Consumed
    | Attaching
    | Directions
    | Declared
    | Requested
    | Changed
    | StandsStill
    | Releasable
    | WentBack
    | Wrote
    | Branched
    | NotBranched
    | KeptForClone
    | Artifact
    | Ended
)

_KINDS: dict[str, Any] = {
    f"tsnb_{kind.__name__.lower()}": kind
    for kind in (
        Begun,
        Logged,
        Consumed,
        Attaching,
        Directions,
        Declared,
        Requested,
        Changed,
        StandsStill,
        Releasable,
        WentBack,
        Wrote,
        Branched,
        NotBranched,
        KeptForClone,
        Artifact,
        Ended,
    )
}


def as_message(news: News) -> tuple[str, dict[str, Any]]:
    """Return news as a message: its kind and its content, which JSON can hold (nan and inf as text)."""
    content = news._asdict()
    if isinstance(news, Logged):
        content["rows"] = [
            [*row[:5], {name: as_json(value) for name, value in row.numbers.items()}, row.stream_epoch]
            for row in news.rows
        ]
    return f"tsnb_{type(news).__name__.lower()}", content


def news_in(kind: str, content: dict[str, Any]) -> News | None:
    """Return the news that a message of a kernel holds; None if it is one of Jupyter's own.

    Args:
        kind: Its kind.
        content: Its content.
    """
    if kind not in _KINDS:
        return None
    if kind == "tsnb_logged":
        told = [
            LoggedRow._make([*place, {name: float(value) for name, value in numbers.items()}, stream_epoch])
            for *place, numbers, stream_epoch in content["rows"]
        ]
        return Logged(told)
    if "changes" in content:
        content = {"changes": [LiveChange(*change) for change in content["changes"]]}
    news: News = _KINDS[kind](**content)
    return news


def how_it_ended(raised: str, first: str = "", traceback: Sequence[str] = ()) -> Ended:
    """Return how code ended, wherever that is seen: in its kernel, or in the kernel's reply.

    Args:
        raised: The name of the error's class; "" if nothing was raised.
        first: What the error says, in one line.
        traceback: Its lines, as IPython has them.
    """
    if not raised:
        return Ended("done")
    if raised in STOPPED:
        return Ended("stopped", STOPPED[raised])
    return Ended("failed", block(f"{first}{limit_met(first)}\n\n{uncoloured(traceback)}".rstrip()))


def was_asked_for(error: Mapping[str, Any], stopping: bool) -> bool:
    """Return whether an error only ends its code as somebody wished: the trial's last line says all of that.

    Args:
        error: Jupyter's message of it.
        stopping: Whether the trial was asked to stop.
    """
    kind = error.get("ename")
    return bool(STOPPED.get(kind or "")) or (stopping and kind == KeyboardInterrupt.__name__)


def error_of(result: Any) -> BaseException | None:
    """Return what a cell raised.

    Args:
        result: IPython's ExecutionResult of the cell. None if IPython did not get that far.
    """
    if result is None:
        return None
    # this order: IPython 7 fails when it shows a SystemExit that has a context, and adds its own error as the other
    error: BaseException | None = result.error_in_exec or result.error_before_exec
    return error


def interrupt_behind(error: BaseException | None) -> BaseException | None:
    """Return the interrupt that a cell answered by exiting, as Lightning does, or else the error itself."""
    if isinstance(error, SystemExit) and isinstance(error.__context__, KeyboardInterrupt | StopRequested):
        return error.__context__
    return error


def raised(reply: Mapping[str, Any], name: str) -> Exception:
    """Return the error that a kernel's reply to a request stands for.

    Args:
        reply: Its content.
        name: The trial's.
    """
    kinds: dict[str, type[Exception]] = {"NoSuchLiveValue": NoSuchLiveValue, "ValueError": ValueError}
    return kinds.get(reply["ename"], TsnbError)(f"trial {name!r}: {block(reply['evalue'])}")
