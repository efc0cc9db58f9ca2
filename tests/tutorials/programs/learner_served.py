"""A learner in the shape of fastai's book: the notebook gives the library's class more methods by a decorator."""

import json

import torch
import tsnb
from blobs import blobs
from minilearn import Learner, patch
from seen import Seen
from torch import nn
from torch.utils.data import DataLoader

seen = Seen()


def make_loader():
    random = torch.Generator().manual_seed(0)
    return DataLoader(blobs(640), batch_size=32, shuffle=True, generator=random)


@patch
def fit_one_cycle(self: Learner, epochs):
    """Raise the learning rate for the first third of the steps, and lower it after that."""
    steps = epochs * len(self.dls)
    self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, max_lr=self.lr, total_steps=steps)
    self.fit(epochs)


@patch
def one_batch(self: Learner, xb, yb):
    """Train on a batch, with a step of the schedule after it."""
    seen([xb, yb])
    self.loss = self.loss_func(self.model(xb), yb)
    self.loss.backward()
    self.opt.step()
    self.sched.step()
    self.opt.zero_grad()
    self.losses.append(self.loss.item())


@patch
def after_epoch(self: Learner, epoch):
    """Tell how the epoch went."""
    loss = sum(self.losses[-len(self.dls) :]) / len(self.dls)
    tsnb.log(loss=loss)


def train(lr):
    torch.manual_seed(0)
    dls = tsnb.attach()
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    learn = Learner(dls, model, nn.functional.cross_entropy, lr=lr)
    learn.fit_one_cycle(3)
    return {"loss": learn.losses[-1], "steps": len(learn.losses), "seen": seen.digest()}


if __name__ == "__main__":
    for lr in (0.5, 0.125):
        print(json.dumps({"lr": lr, **train(lr)}))
