"""What trainers of other packages log arrives in tsnb: by a logger or callback each, with the packages themselves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import accelerate
import lightning
import pytest
import skorch
import torch
import transformers
from torch.utils.data import DataLoader

import tsnb
from tests.ecosystem.test_trainers import QUIET, Lit, Scored
from tests.ecosystem.training import BATCH, EPOCHS, Digits, Network, Rows, blocks, own_losses
from tests.experiments.conftest import notebook, nothing_goes_on
from tsnb.stream.this_process import this_process
from tsnb.telemetry.metrics import subscribe

__all__ = ["notebook", "nothing_goes_on"]

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*num_workers.*:UserWarning")]

PER_EPOCH = -(-50 // BATCH)


class Logged:
    """All that `tsnb.log` was given, in its order."""

    def __init__(self) -> None:
        self.rows: list[tuple[int | None, dict[str, float]]] = []
        self.end = subscribe(lambda step, numbers: self.rows.append((step, numbers)))

    def of(self, name: str) -> list[float]:
        """Return all values of one name."""
        return [numbers[name] for _, numbers in self.rows if name in numbers]

    def steps_of(self, name: str) -> list[int | None]:
        """Return the steps of these values."""
        return [step for step, numbers in self.rows if name in numbers]

    @property
    def names(self) -> set[str]:
        """The names of all values."""
        return {name for _, numbers in self.rows for name in numbers}


@pytest.fixture
def logged() -> Iterator[Logged]:
    found = Logged()
    yield found
    found.end()


class Telling(Lit):
    """The network as Lightning wants it, with numbers of training and validation."""

    def training_step(self, batch: Any, index: int) -> Any:
        """Return and log the loss."""
        loss = super().training_step(batch, index)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, _: int) -> None:
        """Log a number of validation."""
        self.log("val_loss", torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1]))


def test_lightnings_numbers_beside_another_logger(logged: Logged, tmp_path: Path) -> None:
    """Every step's loss, an epoch's validation; the other logger has what it has without."""
    csv = lightning.pytorch.loggers.CSVLogger(tmp_path)
    loader = DataLoader(Digits(), BATCH)

    class Quiet(lightning.Trainer):
        def __init__(self, logger: Any, **options: Any) -> None:
            super().__init__(**QUIET | {"logger": [logger, csv]} | options)

        def fit(self, model: Any, batches: Any) -> None:  # type: ignore[override]
            super().fit(model, batches, loader)

    served = SimpleNamespace(attach=lambda _: loader)
    names = {"lightning": SimpleNamespace(Trainer=Quiet), "tsnb": served, "model": Telling()}
    exec(blocks("lightning.md")[2], names)
    assert logged.of("loss") == pytest.approx(own_losses())
    assert logged.steps_of("loss") == list(range(EPOCHS * PER_EPOCH))
    assert len(logged.of("val_loss")) == EPOCHS
    assert logged.names == {"loss", "val_loss"}, "an epoch's number is tsnb's own"
    assert "val_loss" in (Path(csv.log_dir) / "metrics.csv").read_text()


def test_each_trials_checkpoints_have_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the trial's name and the number of its run; outside of a trial where Lightning puts them without a logger."""
    from tsnb.integrations.lightning import TsnbLogger

    def fit() -> None:
        quiet = QUIET | {"logger": TsnbLogger(), "enable_checkpointing": True}
        trainer = lightning.Trainer(max_epochs=1, default_root_dir=tmp_path, **quiet)
        trainer.fit(Lit(), DataLoader(Digits(), BATCH))

    fit()
    monkeypatch.setattr(this_process, "name", "cnn")
    monkeypatch.setattr(this_process, "run", 3)
    fit()
    found = {str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob("*.ckpt")}
    assert found == {"checkpoints", "cnn/version_3/checkpoints"}


def test_lightning_by_its_other_name() -> None:
    """`pytorch_lightning` is the same package under another name, whose classes are others."""
    code = """
        import pytorch_lightning, tsnb, sys
        from tsnb.integrations.lightning import TsnbLogger
        assert isinstance(TsnbLogger(), pytorch_lightning.loggers.Logger), TsnbLogger.__mro__
        """
    subprocess.run([sys.executable, "-c", "\n".join(map(str.strip, code.splitlines()))], check=True)


def test_fabrics_numbers(logged: Logged) -> None:
    from tsnb.integrations.lightning import TsnbLogger

    fabric = lightning.Fabric(accelerator="cpu", loggers=TsnbLogger())
    fabric.log("loss", torch.tensor(0.5), step=3)
    assert logged.rows == [(3, {"loss": 0.5})]


def test_hugging_faces_numbers_beside_a_tracker(logged: Logged, tmp_path: Path) -> None:
    """The loss of each update, the evaluation, and TensorBoard as `report_to` says."""
    arguments: Any = transformers.TrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=BATCH,
        num_train_epochs=EPOCHS,
        use_cpu=True,
        report_to=["tensorboard"],
        disable_tqdm=True,
        remove_unused_columns=False,
        logging_steps=1,
        eval_strategy="epoch",
        save_strategy="no",
        dataloader_pin_memory=False,
        label_names=["labels"],
    )
    rows: Any = Rows()
    names = {"transformers": transformers, "model": Scored(), "arguments": arguments, "rows": rows}
    exec(blocks("huggingface.md")[1], names)
    trainer: Any = names["trainer"]
    assert logged.steps_of("loss") == list(range(1, EPOCHS * PER_EPOCH + 1))
    assert logged.of("loss") == [said["loss"] for said in trainer.state.log_history if "loss" in said]
    assert len(logged.of("eval_loss")) == EPOCHS
    assert "epoch" not in logged.names
    assert [kind for kind in trainer.callback_handler.callback_list.splitlines() if "TensorBoard" in kind]
    assert list(tmp_path.rglob("events.out.tfevents*"))


def test_what_accelerate_is_told(logged: Logged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `accelerator.log`, beside a tracker of accelerate's own; without a trial the tracker has no run."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"accelerate": accelerate}
    exec(blocks("accelerate.md")[2], names)
    accelerator = names["accelerator"]
    assert accelerator.get_tracker("tsnb", unwrap=True) is None
    accelerator.end_training()
    assert logged.rows == [(1, {"loss": 0.5})]
    assert list(tmp_path.rglob("events.out.tfevents*"))


def test_skorchs_numbers(logged: Logged) -> None:
    """The loss of each training batch, and each epoch's scores."""
    inputs = torch.stack([Digits()[index][0] for index in range(50)])
    names: dict[str, Any] = {"skorch": skorch, "torch": torch, "Network": Network}
    names |= {"inputs": inputs, "labels": torch.arange(50) % 3}
    exec(blocks("skorch.md")[1], names)
    net = names["net"]
    batches = [
        batch["train_loss"] for epoch in net.history for batch in epoch["batches"] if batch.get("train_loss")
    ]
    assert logged.of("train_loss") == batches
    assert logged.of("valid_acc") == [epoch["valid_acc"] for epoch in net.history]
    assert logged.names == {"train_loss", "valid_loss", "valid_acc"}


class Learner:
    """Does with a callback what fastai's does: its events, in its order."""

    def __init__(self) -> None:
        self.training, self.loss = True, torch.tensor(0.0)
        self.recorder: Any = SimpleNamespace(
            metric_names=["epoch", "train_loss", "valid_loss", "accuracy", "time"]
        )

    def fit(self, epochs: int, cbs: Any) -> None:
        """Train on three batches an epoch."""
        cbs.learn = self
        for epoch in range(epochs):
            for self.training in (True, False):
                for batch in range(3):
                    self.loss = torch.tensor(float(batch), requires_grad=True)
                    for event in ("before_batch", "after_loss", "after_batch"):
                        cbs(event)
            self.recorder.log = [epoch, 1.0, 0.5, 0.75, "00:01"]
            cbs("after_epoch")


def test_fastais_numbers(logged: Logged) -> None:
    """As a Learner asks a callback: fastai itself pulls in torchvision, which does not go with our pins."""
    from tsnb.integrations.fastai import TsnbLearnerCallback

    exec(blocks("fastai.md")[0], {"learn": Learner()})
    assert TsnbLearnerCallback.order > 50, "behind the Recorder"
    assert logged.of("train_loss") == [0.0, 1.0, 2.0] * 2
    assert logged.of("valid_loss") == [0.5, 0.5] and logged.of("accuracy") == [0.75, 0.75]
    assert logged.names == {"train_loss", "valid_loss", "accuracy"}


TRAIN = """
def train(lr):
    import time, warnings, torch, lightning, tsnb
    from tests.ecosystem.test_trainers import QUIET, Lit
    from tsnb.integrations.lightning import TsnbLogger

    class Telling(Lit):
        def training_step(self, batch, index):
            loss = super().training_step(batch, index)
            self.log("loss", loss)
            time.sleep(0.03)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=lr)

    warnings.simplefilter("ignore")
    trainer = lightning.Trainer(
        max_epochs=20, log_every_n_steps=1, **QUIET | {"logger": TsnbLogger()}
    )
    trainer.fit(Telling(), tsnb.attach())
"""


def test_halving_stops_lightnings_trials(notebook: Any) -> None:
    """Their numbers are in the records by epoch and step, and the worse one is stopped by them."""
    train = notebook.run(TRAIN)["train"]
    with tsnb.serve(DataLoader(Digits(), BATCH), name="numbers"):
        rule = tsnb.search.halving("loss", every=26)
        sweep = tsnb.sweep(train, grid={"lr": [0.05, 100.0]}, seed=0, prune=rule, stream="numbers")
        sweep.wait()
        assert {name: trial.state for name, trial in sweep.items()} == {
            "train-lr0.05": "done",
            "train-lr100.0": "pruned",
        }
        rows = sweep["train-lr0.05"].metrics.rows
    assert len([row for row in rows if "loss" in row.numbers]) == 20 * PER_EPOCH
    assert {row.epoch for row in rows} == set(range(1, 21))
    found = tsnb.results()
    assert "loss" in str(found)
