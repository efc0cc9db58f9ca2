"""The process that consumers live in: what it chose for them, and what it does at their steps.

A stream knows no trial. A process that is more than a script (a trial's kernel, a task of Ray Tune) fills in
`this_process`. A script leaves it as it is, and nothing is called.

| call | when | how often |
|---|---|---|
| `attached(consumer)` | a consumer has attached, and has taken nothing yet | for each consumer |
| `first_batch()` | a consumer has asked for the first epoch of this process | once |
| `gate(stall_timeout_s)` | after that, before the first batch is taken | once |
| `between(consumer, loop)` | before the next batch is asked for: the step before is over | for each batch |
| `boundary()` | before the next batch is taken | once for each time that it is set |
| `standing(on)` | a consumer begins to stand still because it is paused, and when it does no more | for each pause |
| `ask_cluster(stream)` | `attach` finds no such stream on this machine | for each search |

`attached` and `ask_cluster` run in the thread that attaches, all others in the thread that takes batches. An exception
of any of them is the user's: it leaves `attach`, or the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ThisProcess", "this_process"]


@dataclass
class ThisProcess:
    """The process that consumers live in."""

    name: str | None = None
    """The name of a consumer that is given none: a trial's own. None: this process is no trial."""
    stream: str | None = None
    """The stream to attach to where none is named."""
    batch_size: int | None = None
    """Samples in a batch; None: the loader's own batches."""
    device: str | None = None
    """Where batches are delivered, as torch spells it in this process; None: where the loader left them."""
    outside: str | None = None
    """What that device is called outside, where this process was put on it and sees no other GPU."""
    rotation: tuple[str, int, int] | None = None
    """The name that all who take turns say, the batches of a turn, and how many have theirs at once; None: no turns."""
    in_turn: bool = False
    """Whether a sweep or a plan started it when it had its turn: that one knows who shares its batches."""
    threads_fixed: bool = False
    """Whether the user has chosen the number of threads."""
    run: int = 0
    """Which run of its name the trial is, from 1; 0: this process is not a trial, or a clone that has no number yet."""
    epochs: int = 0
    """Epochs that loops of this process take in all, for estimates of what is left; 0: not known. May be changed while
    they run: the streams are told at the next step."""
    paused: bool = False
    """Whether its next consumer begins paused: it was when the process before this one died."""
    extensions: list[Callable[[], Any]] = field(default_factory=list)
    """What makes each consumer's halves of extensions (`protocol.extension`)."""
    device_access: Any = None
    """What consumers do with memory for devices (`stream.consumer.batches.device.DeviceAccess`)."""
    attached: Callable[[Any], None] | None = None
    """Is given the consumer."""
    first_batch: Callable[[], None] | None = None
    """Says that this process is about to take its first batch."""
    gate: Callable[[float], None] | None = None
    """Waits for the trials that start together with this one, so that all begin with the same batch. It is given the
    stream's stall timeout, in seconds."""
    between: Callable[[Any, Any], None] | None = None
    """Is given the consumer and its loop: the training's state may be kept here."""
    boundary: Callable[[], None] | None = None
    """Does what somebody wished for: clone the trial, say, or give its device's memory back."""
    standing: Callable[[bool], None] | None = None
    """Is given whether it stands still now."""
    ask_cluster: Callable[[str | None], str | None] | None = None
    """Has a stream of the cluster served here, and returns its name; with None it returns the name of the only one. It
    is `engines.stream_of_cluster`, or in a trial on another machine a question to its actor."""


this_process = ThisProcess()
