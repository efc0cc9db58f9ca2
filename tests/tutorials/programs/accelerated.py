"""A loop in the shape of accelerate's examples: `prepare` takes the loader, and gradients accumulate."""

import json

import torch
from blobs import blobs
from accelerate import Accelerator
from accelerate.utils import set_seed
from seen import Seen
from torch import nn
from torch.utils.data import DataLoader

seen = Seen()


def make_loader():
    random = torch.Generator().manual_seed(0)
    return DataLoader(blobs(630), batch_size=32, shuffle=True, generator=random)


def train(lr):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(0)
    loader = make_loader()
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3 * len(loader) // 2)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for epoch in range(3):
        model.train()
        total = 0.0
        for images, labels in loader:
            seen([images, labels])
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(images), labels)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            total += accelerator.gather_for_metrics(loss.detach()).mean().item()
        accelerator.print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    return {"loss": total / len(loader), "seen": seen.digest()}


if __name__ == "__main__":
    for lr in (0.01, 0.0025):
        print(json.dumps({"lr": lr, **train(lr)}))
