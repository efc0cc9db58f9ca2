"""Lightning's numbers in tsnb: what a module logs with `self.log` stands in results, plots and panels.

    from tsnb.integrations.lightning import TsnbLogger

    trainer = lightning.Trainer(logger=TsnbLogger(), log_every_n_steps=1)

Halving and race compare single steps, so they need `log_every_n_steps=1`: Lightning logs every 50th by itself.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tsnb.errors import ExtraMissing
from tsnb.stream.this_process import this_process
from tsnb.telemetry.metrics import log

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger
    from lightning.pytorch.utilities import rank_zero_only
else:
    try:
        if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
            raise ImportError  # one package under two names: the other one is in use here
        from lightning.pytorch.loggers import Logger
        from lightning.pytorch.utilities import rank_zero_only
    except ImportError:
        try:
            from pytorch_lightning.loggers import Logger
            from pytorch_lightning.utilities import rank_zero_only
        except ImportError:
            raise ExtraMissing("Lightning is not installed here. Install it: pip install lightning") from None

__all__ = ["TsnbLogger"]


class TsnbLogger(Logger):
    """Hand what Lightning logs to `tsnb.log`, under Lightning's names and steps.

    It goes beside other loggers (`logger=[TsnbLogger(), CSVLogger("logs")]`). Where it is the first or only one, each
    trial's checkpoints get a folder of their own, `TRIAL/version_RUN`.

    Example:
        trainer = lightning.Trainer(logger=TsnbLogger(), log_every_n_steps=1)
    """

    @property
    def name(self) -> str:
        """The trial's name; empty outside of a trial."""
        return this_process.name or ""

    @property
    def version(self) -> int | str:
        """The number of the trial's run; empty outside of a trial."""
        return this_process.run or ""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Hand on the numbers of one step.

        Args:
            metrics: The numbers by name. Lightning's own "epoch" is left out, as tsnb counts epochs itself.
            step: The training step.
        """
        log({name: value for name, value in metrics.items() if name != "epoch"}, step=step)

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the parameters of a trial are those that it was started with."""
