"""A GAN that turns points of one kind into another, in the shape of CycleGAN's tutorials: two loaders, zipped."""

import json

import torch
import tsnb
from blobs import blobs
from seen import Seen
from torch import nn
from torch.utils.data import DataLoader

seen = Seen()


def make_photos():
    random = torch.Generator().manual_seed(0)
    return DataLoader(blobs(160), batch_size=16, shuffle=True, generator=random)


def make_paintings():
    return DataLoader(blobs(190, seed=1), batch_size=16)


def network(outputs):
    return nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, outputs))


def train(lr):
    torch.manual_seed(0)
    photos, paintings = tsnb.attach(stream="photos"), tsnb.attach(stream="paintings")
    generator, discriminator, loss_fn = network(64), network(1), nn.BCEWithLogitsLoss()
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=lr)
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=lr)
    for epoch in range(4):
        for (photo, _), (painting, _) in zip(photos, paintings):
            seen([photo, painting])
            real, false = torch.ones(len(painting), 1), torch.zeros(len(photo), 1)
            painted = generator(photo)
            loss_d = loss_fn(discriminator(painting), real) + loss_fn(discriminator(painted.detach()), false)
            optimizer_d.zero_grad()
            loss_d.backward()
            optimizer_d.step()
            loss_g = loss_fn(discriminator(painted), torch.ones(len(photo), 1))
            optimizer_g.zero_grad()
            loss_g.backward()
            optimizer_g.step()
        tsnb.log(discriminator=loss_d, generator=loss_g)
    return {"discriminator": loss_d.item(), "generator": loss_g.item(), "seen": seen.digest()}


if __name__ == "__main__":
    for lr in (0.002, 0.0005):
        print(json.dumps({"lr": lr, **train(lr)}))
