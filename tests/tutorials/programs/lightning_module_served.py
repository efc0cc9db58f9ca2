"""A Lightning module that logs by `self.log`, trained on four folds of five and validated on the one held out."""

import json

import lightning
import torch
import tsnb.integrations.lightning
from blobs import blobs
from seen import Seen
from sklearn.model_selection import KFold
from torch import nn
from torch.utils.data import DataLoader, Subset

seen = Seen()


def make_loader(rows=None):
    digits = blobs(600)
    return DataLoader(digits if rows is None else Subset(digits, rows), batch_size=16)


class LitDigits(lightning.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def training_step(self, batch, batch_idx):
        images, labels = seen(batch)
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = seen(batch)
        scores = self.net(images)
        self.log("val_loss", nn.functional.cross_entropy(scores, labels), prog_bar=True)
        self.log("val_accuracy", (scores.argmax(1) == labels).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


def train(lr):
    lightning.seed_everything(1)
    rows, held_out = next(KFold(5, shuffle=True, random_state=0).split(range(600)))
    train_loader, val_loader = tsnb.attach(subset=rows), tsnb.attach(f"val-{lr}", subset=held_out)
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=tsnb.integrations.lightning.TsnbLogger(),
        log_every_n_steps=10,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(LitDigits(lr), train_loader, val_loader)
    numbers = {name: value.item() for name, value in trainer.callback_metrics.items()}
    return {**numbers, "steps": trainer.global_step, "seen": seen.digest()}


if __name__ == "__main__":
    for lr in (0.1, 0.025):
        print(json.dumps({"lr": lr, **train(lr)}))
