"""A character language model, in the shape of minGPT: an endless sampler, and a loop that counts its own steps."""

import json

import torch
from seen import Seen
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

TEXT = "a stream is what one producer serves; a trial is a training run that reads it. " * 20
seen = Seen()


class Characters(Dataset):
    """Sample i: 32 characters from place i on, and the ones that follow each of them."""

    def __init__(self):
        self.vocabulary = sorted(set(TEXT))
        self.codes = torch.tensor([self.vocabulary.index(character) for character in TEXT])

    def __len__(self):
        return len(self.codes) - 32

    def __getitem__(self, index):
        piece = self.codes[index : index + 33]
        return piece[:-1], piece[1:]


class Endless(Sampler):
    """Places in the text, without end."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        random = torch.Generator().manual_seed(0)
        while True:
            yield int(torch.randint(self.length, (), generator=random))


def make_loader():
    text = Characters()
    return DataLoader(text, batch_size=16, sampler=Endless(len(text)))


def train(lr):
    torch.manual_seed(0)
    loader = make_loader()
    size = len(loader.dataset.vocabulary)
    model = nn.Sequential(nn.Embedding(size, 32), nn.GRU(32, 32, batch_first=True))
    head = nn.Linear(32, size)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=lr)
    batches = iter(loader)
    for step in range(120):
        x, y = seen(next(batches))
        logits = head(model(x)[0])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step}: loss {loss.item():.4f}")
    return {"loss": loss.item(), "seen": seen.digest()}


if __name__ == "__main__":
    for lr in (0.01, 0.0025):
        print(json.dumps({"lr": lr, **train(lr)}))
