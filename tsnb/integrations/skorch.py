"""The numbers of a skorch net in tsnb: its history stands in results, plots and panels.

from tsnb.integrations.skorch import TsnbNetCallback

net = skorch.NeuralNetClassifier(Network, callbacks=[TsnbNetCallback()])
"""

from __future__ import annotations

from typing import Any

from tsnb.errors import ExtraMissing
from tsnb.telemetry.metrics import log

try:
    from skorch.callbacks import Callback
except ImportError:
    raise ExtraMissing("skorch is not installed here. Install it: pip install skorch") from None

__all__ = ["TsnbNetCallback"]

OF_AN_EPOCH = {"epoch", "dur", "train_batch_count", "valid_batch_count", "train_loss"}
"""Numbers of an epoch that tsnb counts itself, or has of each batch."""


class TsnbNetCallback(Callback):  # type: ignore[misc] # skorch has no types
    """Log the loss of each training batch as `train_loss`, and the scores of each epoch under their own names.

    Example:
        net = skorch.NeuralNetClassifier(Network, callbacks=[TsnbNetCallback()])
    """

    def on_batch_end(self, net: Any, batch: Any = None, training: Any = None, **kwargs: Any) -> None:
        """Log the loss of a training batch. skorch calls it."""
        if training:
            log(train_loss=net.history[-1, "batches", -1, "train_loss"])

    def on_epoch_end(
        self, net: Any, dataset_train: Any = None, dataset_valid: Any = None, **kwargs: Any
    ) -> None:
        """Log an epoch's scores. skorch calls it."""
        scores = {
            name: value
            for name, value in net.history[-1].items()
            if name not in OF_AN_EPOCH and name != "batches" and not name.endswith("_best")
        }
        log(scores)
