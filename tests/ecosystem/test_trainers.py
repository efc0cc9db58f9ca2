"""Trainers of other packages fed by a consumer, by the lines of docs/frameworks: the losses of their own loader."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import accelerate
import lightning
import optuna
import pytest
import skorch
import torch
import torchdata.nodes
import transformers
from torch.utils.data import DataLoader
from tqdm import tqdm

from tests.ecosystem.training import (
    BATCH,
    EPOCHS,
    HELD,
    Digits,
    Network,
    Rows,
    Shared,
    Steps,
    blocks,
    own_losses,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::tsnb.errors.SharedBatchWarning"),  # the watch hoards, on purpose
    pytest.mark.filterwarnings("ignore:.*num_workers.*:UserWarning"),
]
SOON_S = 20.0
"""Tells a wait for the stall timeout, 30 s each time, from a busy machine."""
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
}


@pytest.fixture
def shared() -> Iterator[Shared]:
    """Serve the loader."""
    with Shared() as serving:
        yield serving


# -- plain PyTorch, tqdm, torchdata, Optuna --------------------------------------------------------------------


@pytest.mark.parametrize("block", [0, 1], ids=["tqdm", "torchdata"])
def test_a_plain_loop(shared: Shared, block: int) -> None:
    """With a progress bar that knows its end, and with the consumer as a torchdata node."""
    step = Steps()
    exec(
        blocks("pytorch.md")[block], {"tsnb": shared.tsnb, "tqdm": tqdm, "torchdata": torchdata, "step": step}
    )
    assert step.losses == own_losses()


def test_an_optuna_objective(shared: Shared) -> None:
    """Each trial gets a whole epoch."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    step = Steps()
    exec(blocks("pytorch.md")[2], {"tsnb": shared.tsnb, "study": study, "step": step})
    assert step.losses == own_losses()


def test_gradients_accumulated_over_batches_that_are_all_held(shared: Shared) -> None:
    """Four steps of four batches, all kept until their update: as with a loader of one's own."""

    def train(loader: Any) -> list[float]:
        step, held, losses = Steps(), [], []
        for _ in range(EPOCHS):
            for batch in loader:
                held.append(batch)
                if len(held) == HELD:
                    losses += [step(images, labels) for images, labels in reversed(held)]
                    held.clear()
        return losses

    assert train(shared.tsnb.attach("held")) == train(DataLoader(Digits(), BATCH))


# -- Lightning -------------------------------------------------------------------------------------------------


class Lit(lightning.LightningModule):
    """The network as Lightning wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Network()
        self.losses: list[float] = []

    def training_step(self, batch: Any, _: int) -> Any:
        """Return and note the loss."""
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.network(images), labels)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> Any:
        """Return plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.05)


def test_the_lightning_trainer(shared: Shared) -> None:
    """The block of the page, and its losses with a loader of its own."""
    ours, own = Lit(), Lit()
    quiet = SimpleNamespace(Trainer=partial(lightning.Trainer, **QUIET))
    exec(blocks("lightning.md")[0], {"tsnb": shared.tsnb, "lightning": quiet, "model": ours})
    lightning.Trainer(max_epochs=EPOCHS, **QUIET).fit(own, DataLoader(Digits(), BATCH))
    assert ours.losses == own.losses == own_losses()


def test_lightning_goes_on_in_the_middle_of_an_epoch(shared: Shared, tmp_path: Path) -> None:
    """From a checkpoint after 18 of 26 batches, with another consumer: together they are one whole training."""
    quiet = QUIET | {"enable_checkpointing": True, "default_root_dir": tmp_path}
    keep = lightning.pytorch.callbacks.ModelCheckpoint(
        dirpath=tmp_path, every_n_train_steps=18, save_top_k=-1
    )
    first = Lit()
    trainer = lightning.Trainer(max_steps=18, callbacks=[keep], **quiet)
    trainer.fit(first, shared.tsnb.attach("before"))
    (checkpoint,) = tmp_path.glob("*.ckpt")
    second = Lit()
    trainer = lightning.Trainer(max_epochs=EPOCHS, **quiet)
    trainer.fit(second, shared.tsnb.attach("after"), ckpt_path=checkpoint, weights_only=False)
    assert first.losses + second.losses == own_losses()


def test_lightning_validates_on_the_fold_that_is_held_out(shared: Shared) -> None:
    """After each epoch, and before the first: no loop is asked past its last batch, and none waits for that."""

    class Whole(Lit):
        def validation_step(self, batch: Any, _: int) -> None:
            self.seen += len(batch[1])

        seen = 0

    train, held_out = (
        shared.tsnb.attach("fold", fold=(0, 5)),
        shared.tsnb.attach("held", fold=(0, 5), held_out=True),
    )
    model = Whole()
    lightning.Trainer(max_epochs=EPOCHS, **QUIET).fit(model, train, held_out)
    assert len(model.losses) == EPOCHS * len(train)
    assert (train.stats().epochs, held_out.stats().epochs) == (EPOCHS, EPOCHS)
    assert train.stats().waited_s + held_out.stats().waited_s < SOON_S


@pytest.mark.parametrize("plain", [False, True])
def test_lightning_predicts_validates_and_overfits(shared: Shared, plain: bool) -> None:
    """Lightning makes a `DataLoader` again for each of these, with arguments that it reads of it."""

    class Whole(Lit):
        def validation_step(self, batch: Any, index: int) -> Any:
            return self.training_step(batch, index)

        def predict_step(self, batch: Any) -> Any:
            return self.network(batch[0]).detach()

    consumer, own = shared.tsnb.attach("lightning"), DataLoader(Digits(), BATCH)
    loader = consumer if plain else consumer.as_dataloader()

    def losses_and_scores(fed: Any) -> tuple[list[float], list[Any]]:
        model = Whole()
        scores: Any = lightning.Trainer(**QUIET).predict(model, fed)
        lightning.Trainer(**QUIET).validate(model, fed, verbose=False)
        lightning.Trainer(overfit_batches=2, max_epochs=2, **QUIET).fit(model, fed, fed)
        return model.losses, [score.tolist() for score in scores]

    assert losses_and_scores(loader) == losses_and_scores(own)


def test_lightning_fabric(shared: Shared) -> None:
    """It takes the consumer as a DataLoader."""
    step = Steps()
    names = {"tsnb": shared.tsnb, "lightning": lightning, "step": step}
    exec(blocks("lightning.md")[1], names | {"network": step.network, "optimizer": step.optimizer})
    assert step.losses == own_losses()


# -- Hugging Face and accelerate -------------------------------------------------------------------------------


class Scored(Network):
    """The network as the Hugging Face trainer wants it, noting its losses."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> Any:  # type: ignore[override]
        """Return the loss and the scores."""
        scores = self.layers(images)
        loss = torch.nn.functional.cross_entropy(scores, labels)
        self.losses.append(loss.item())
        return {"loss": loss, "logits": scores}


def hugging(
    model: Any, directory: Path, serving: Shared | None, checkpoint: Any = None, **options: Any
) -> Any:
    """Train with accumulation over four batches: by the page's block, or with the trainer's own loader."""
    make: Any = transformers.TrainingArguments
    arguments = make(
        str(directory),
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=4,
        num_train_epochs=EPOCHS,
        learning_rate=0.05,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        logging_strategy="no",
        dataloader_pin_memory=False,
        **{"save_strategy": "no"} | options,
    )
    if serving is None:

        class Own(transformers.Trainer):
            def get_train_dataloader(self) -> Any:
                return self.accelerator.prepare(DataLoader(Rows(), BATCH))

        Own(model, arguments, train_dataset=Rows()).train(resume_from_checkpoint=checkpoint)
        return
    names = {"tsnb": serving.tsnb, "transformers": transformers, "model": model, "arguments": arguments}
    exec(blocks("huggingface.md")[0], names | {"rows": Rows(), "checkpoint": checkpoint})


def test_the_hugging_face_trainer_accumulates_over_four_batches(tmp_path: Path) -> None:
    """It keeps eight batches at a time, and its losses are those with its own loader."""
    own, ours = Scored(), Scored()
    hugging(own, tmp_path, None)
    with Shared(Rows()) as serving:
        hugging(ours, tmp_path, serving)
        assert serving.watch.batches == len(own.losses)
    assert ours.losses == own.losses


def test_the_hugging_face_trainer_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    """After six updates, in the second epoch: the trainer passes over what was trained on."""
    own, before, after = Scored(), Scored(), Scored()
    hugging(own, tmp_path / "own", None)
    with Shared(Rows()) as serving:
        saving = {"save_strategy": "steps", "save_steps": 6}
        hugging(before, tmp_path, serving, **saving)
    with Shared(Rows()) as serving:
        hugging(after, tmp_path, serving, tmp_path / "checkpoint-6")
    assert after.losses == own.losses[13 + 8 :], "two updates of four batches lie behind in the second epoch"


def test_the_hugging_face_trainer_evaluates_on_the_fold_that_is_held_out(tmp_path: Path) -> None:
    """After each epoch of training, whose loop it leaves behind its last batch."""
    with Shared(Rows()) as serving:
        train, held_out = (
            serving.tsnb.attach("fold", fold=(0, 5)),
            serving.tsnb.attach("held", fold=(0, 5), held_out=True),
        )

        class Fed(transformers.Trainer):
            def get_train_dataloader(self) -> Any:
                return train.as_dataloader()

            def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
                return held_out.as_dataloader()

        make: Any = transformers.TrainingArguments
        arguments = make(
            str(tmp_path), num_train_epochs=EPOCHS, use_cpu=True, report_to=[], disable_tqdm=True,
            remove_unused_columns=False, dataloader_pin_memory=False, save_strategy="no", eval_strategy="epoch",
            label_names=["labels"],
        )  # fmt: skip
        Fed(Scored(), arguments, train_dataset=Rows(), eval_dataset=Rows()).train()
        assert (train.stats().epochs, held_out.stats().epochs) == (EPOCHS, EPOCHS)
        assert train.stats().waited_s + held_out.stats().waited_s < SOON_S


@pytest.mark.parametrize("trainer", ["lightning", "hugging face"])
def test_a_stream_without_a_length(trainer: str, tmp_path: Path) -> None:
    """Lightning takes whole epochs of it; the Hugging Face trainer asks for a number of steps, and takes those."""
    kind: Any = Digits if trainer == "lightning" else Rows
    with Shared(make_epoch=lambda epoch: iter(DataLoader(kind(), BATCH))) as serving:
        if trainer == "lightning":
            model = Lit()
            lightning.Trainer(max_epochs=EPOCHS, **QUIET).fit(model, serving.tsnb.attach("none"))
            assert model.losses == own_losses()
        else:
            with pytest.raises(ValueError, match="max_steps"):
                hugging(Scored(), tmp_path, serving)
            scored = Scored()
            hugging(scored, tmp_path, serving, max_steps=3)
            assert len(scored.losses) == 3 * 4


def test_accelerate(shared: Shared) -> None:
    """`prepare` takes the consumer as a DataLoader."""
    step = Steps()
    names: dict[str, Any] = {"tsnb": shared.tsnb, "accelerate": accelerate, "step": step}
    names |= {"network": step.network, "optimizer": step.optimizer}
    exec(blocks("accelerate.md")[0], names)
    assert step.losses == own_losses()


def test_accelerate_goes_on_in_the_middle_of_an_epoch(shared: Shared) -> None:
    """By the consumer's own state, after five batches, with another consumer."""
    step, accelerator = Steps(), accelerate.Accelerator(cpu=True)
    before = shared.tsnb.attach("before")
    for images, labels in islice(before, 5):
        step(images, labels)
    names: dict[str, Any] = {"tsnb": shared.tsnb, "accelerator": accelerator, "state": before.state_dict()}
    before.close()
    names |= {"network": step.network, "optimizer": step.optimizer, "step": step}
    exec(blocks("accelerate.md")[1], names)
    assert step.losses == own_losses(epochs=1)


def test_accelerate_skips_first_batches(shared: Shared) -> None:
    """What it skips is taken and dropped; the epoch after is whole."""
    accelerator = accelerate.Accelerator(cpu=True)
    batches = accelerator.prepare(shared.tsnb.attach("skip").as_dataloader())
    rest = [labels for _, labels in accelerator.skip_first_batches(batches, 10)]
    want = [labels for _, labels in DataLoader(Digits(), BATCH)]
    assert [x.tolist() for x in rest] == [x.tolist() for x in want[10:]]
    assert [x.tolist() for _, x in batches] == [x.tolist() for x in want]


# -- skorch ----------------------------------------------------------------------------------------------------


def test_skorch(shared: Shared) -> None:
    """The net's own iterator is the consumer."""
    names: dict[str, Any] = {"tsnb": shared.tsnb, "skorch": skorch, "torch": torch, "Network": Network}
    names["rows"] = Digits()
    exec(blocks("skorch.md")[0], names)
    assert [
        batch["train_loss"] for epoch in names["net"].history for batch in epoch["batches"]
    ] == own_losses()
