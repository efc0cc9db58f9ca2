"""The numbers of a fastai Learner in tsnb: losses and metrics stand in results, plots and panels.

    from tsnb.integrations.fastai import TsnbLearnerCallback

    learn.fit_one_cycle(3, cbs=TsnbLearnerCallback())

fastai is not imported: a Learner asks no more of a callback than what stands here.
"""

from __future__ import annotations

from typing import Any

from tsnb.telemetry.metrics import log

__all__ = ["TsnbLearnerCallback"]

COUNTED = {"epoch", "time", "train_loss"}
"""Columns of fastai's table that tsnb counts itself, or has of each batch."""


class TsnbLearnerCallback:
    """Log the loss of each training batch as `train_loss`, and an epoch's metrics under their own names.

    Example:
        learn.fit_one_cycle(3, cbs=TsnbLearnerCallback())

    Attributes:
        name: What the Learner calls it.
        order: Where it stands among the Learner's callbacks: behind the Recorder, which has order 50.
        learn: The Learner that it belongs to; None: to none.
    """

    name = "tsnb"
    order = 70

    def __init__(self) -> None:
        self.learn: Any = None

    def __call__(self, event_name: str) -> None:
        """Log what there is to log at an event of the training. The Learner calls it."""
        if event_name == "after_batch" and self.learn.training:
            log(train_loss=self.learn.loss)
        elif event_name == "after_epoch":
            recorder = getattr(self.learn, "recorder", None)
            values = zip(getattr(recorder, "metric_names", ()), getattr(recorder, "log", ()), strict=False)
            log({name: value for name, value in values if name not in COUNTED})
