"""A hash over all that a training loop was given: two loops that met the same batches have the same one."""

import hashlib
from collections.abc import Mapping

import numpy as np
import torch


class Seen:
    """Hashes what it is called with, and returns it."""

    def __init__(self):
        self.hash, self.batches = b"", 0

    def __call__(self, batch):
        self.batches += 1
        self.add(batch)
        return batch

    def add(self, part):
        """Take a part of a batch in: its type's name, and its values."""
        self.add_bytes(type(part).__name__.encode())
        if isinstance(part, torch.Tensor):
            part = part.detach().numpy()
        if isinstance(part, np.ndarray):
            self.add_bytes(f"{part.dtype}{part.shape}".encode() + part.tobytes())
        elif isinstance(part, Mapping):
            for key, value in part.items():
                self.add_bytes(str(key).encode())
                self.add(value)
        elif isinstance(part, (list, tuple)):
            for value in part:
                self.add(value)
        elif hasattr(part, "to_dict"):  # a graph
            self.add(part.to_dict())
        else:
            self.add_bytes(repr(part).encode())

    def add_bytes(self, more):
        """Take bytes in."""
        self.hash = hashlib.sha256(self.hash + more).digest()

    def digest(self):
        """Return how many batches there were, with their hash, and begin anew."""
        said = f"{self.batches} batches, {self.hash.hex()}"
        self.hash, self.batches = b"", 0
        return said
