"""The numbers of Hugging Face's Trainer in tsnb: what it logs stands in results, plots and panels.

    from tsnb.integrations.transformers import TsnbCallback

    trainer = transformers.Trainer(model, arguments, callbacks=[TsnbCallback()])

The trainer logs as `logging_steps` says; halving and race need `logging_steps=1`. Trackers that `report_to` names get
what they get without it.
"""

from __future__ import annotations

from typing import Any

from tsnb.errors import ExtraMissing
from tsnb.telemetry.metrics import log

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError:
    raise ExtraMissing("transformers is not installed here. Install it: pip install transformers") from None

__all__ = ["TsnbCallback"]


class TsnbCallback(TrainerCallback):
    """Hand what the Trainer logs to `tsnb.log`, under the Trainer's names and steps.

    Example:
        trainer = transformers.Trainer(model, arguments, callbacks=[TsnbCallback()])
    """

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Hand on what was logged. The Trainer calls it.

        Args:
            args: The training's arguments.
            state: Where the training is.
            control: What the Trainer does next.
            logs: The numbers by name. "epoch" is left out, as tsnb counts epochs itself.
            **kwargs: The model and what belongs to it.
        """
        if state.is_world_process_zero:
            numbers = {name: value for name, value in (logs or {}).items() if name != "epoch"}
            log(numbers, step=state.global_step)
