"""A script as one types it: arguments, data, a loop, and no main guard anywhere."""

import argparse
import json

import torch
import tsnb
from curves import Curves
from seen import Seen
from torch import nn
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser(description="Fit a small network to noisy curves.")
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--workers", type=int, default=2)
args = parser.parse_args()

torch.manual_seed(0)
seen = Seen()
loader = DataLoader(Curves(), args.batch_size, num_workers=args.workers)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

for epoch in range(args.epochs):
    for points, height in tsnb.attach():
        seen([points, height])
        loss = nn.functional.mse_loss(model(points).squeeze(1), height)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tsnb.log(loss=loss)

print(json.dumps({"lr": args.lr, "loss": loss.item(), "seen": seen.digest()}))
