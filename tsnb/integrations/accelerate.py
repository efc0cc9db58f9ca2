"""Accelerate's numbers in tsnb: what a script logs with `accelerator.log` stands in results, plots and panels.

from tsnb.integrations.accelerate import TsnbTracker

accelerator = accelerate.Accelerator(log_with=[TsnbTracker()])
accelerator.init_trackers("project")
"""

from __future__ import annotations

from typing import Any

from tsnb.errors import ExtraMissing
from tsnb.stream.this_process import this_process
from tsnb.telemetry.metrics import log

try:
    from accelerate.tracking import GeneralTracker
except ImportError:
    raise ExtraMissing("accelerate is not installed here. Install it: pip install accelerate") from None

__all__ = ["TsnbTracker"]


class TsnbTracker(GeneralTracker):  # type: ignore[misc] # accelerate has no types
    """Hand what `accelerator.log` is given to `tsnb.log`. It goes beside other trackers.

    Example:
        accelerator = accelerate.Accelerator(log_with=[TsnbTracker(), "tensorboard"], project_dir="logs")
    """

    name = "tsnb"
    requires_logging_directory = False

    @property
    def tracker(self) -> str | None:
        """The trial's name; None outside of a trial."""
        return this_process.name

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Hand on numbers.

        Args:
            values: The numbers by name.
            step: The training step.
            **kwargs: Options for other trackers.
        """
        log(values, step=step)
