"""Engines of ignite: one trains, one evaluates after each epoch, and handlers tell how it goes."""

import json

import torch
import tsnb
from blobs import blobs
from ignite.engine import Engine, Events, create_supervised_evaluator
from ignite.metrics import Accuracy, RunningAverage
from seen import Seen
from torch import nn
from torch.utils.data import DataLoader

seen = Seen()


def make_loader():
    random = torch.Generator().manual_seed(0)
    return DataLoader(blobs(640), batch_size=32, shuffle=True, generator=random)


def train(lr):
    torch.manual_seed(0)
    loader = tsnb.attach()
    val_loader = DataLoader(blobs(320, seed=1), batch_size=64)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    def update(engine, batch):
        images, labels = seen(batch)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    trainer = Engine(update)
    RunningAverage(output_transform=lambda loss: loss).attach(trainer, "loss")
    evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy()})

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(engine):
        accuracy = evaluator.run(val_loader).metrics["accuracy"]
        tsnb.log(loss=engine.state.metrics["loss"], accuracy=accuracy)

    done = trainer.run(loader, max_epochs=3)
    return {
        "loss": done.metrics["loss"],
        "accuracy": evaluator.state.metrics["accuracy"],
        "seen": seen.digest(),
    }


if __name__ == "__main__":
    for lr in (0.05, 0.0125):
        print(json.dumps({"lr": lr, **train(lr)}))
