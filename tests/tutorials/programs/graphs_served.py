"""A graph network of PyTorch Geometric, in the shape of its introduction: its own loader joins graphs into a batch."""

import json

import torch
import tsnb
from seen import Seen
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

seen = Seen()


class Rings(torch.utils.data.Dataset):
    """Rings and paths of some nodes: which of the two is a graph?"""

    num_node_features, num_classes = 4, 2

    def __len__(self):
        return 120

    def __getitem__(self, index):
        random = torch.Generator().manual_seed(index)
        nodes = int(torch.randint(4, 10, (), generator=random))
        edges = torch.stack([torch.arange(nodes), (torch.arange(nodes) + 1) % nodes])[:, : nodes - index % 2]
        features = torch.rand(nodes, 4, generator=random)
        return Data(x=features, edge_index=torch.cat([edges, edges.flip(0)], 1), y=torch.tensor([index % 2]))


def make_loader():
    return DataLoader(Rings(), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(0))


class GCN(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.conv1, self.conv2 = GCNConv(features, 16), GCNConv(16, 16)
        self.lin = nn.Linear(16, classes)

    def forward(self, x, edge_index, batch):
        x = self.conv2(self.conv1(x, edge_index).relu(), edge_index)
        return self.lin(global_mean_pool(x, batch))


def train(lr):
    torch.manual_seed(0)
    loader = tsnb.attach()
    model = GCN(Rings.num_node_features, Rings.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for epoch in range(3):
        correct = total = 0
        for data in loader:
            seen(data)
            out = model(data.x, data.edge_index, data.batch)
            loss = nn.functional.cross_entropy(out, data.y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            correct += int((out.argmax(dim=1) == data.y).sum())
            total += loss.item() * data.num_graphs
        accuracy = correct / len(loader.dataset)
        tsnb.log(loss=total / len(loader.dataset), accuracy=accuracy)
    return {"loss": total / len(loader.dataset), "accuracy": accuracy, "seen": seen.digest()}


if __name__ == "__main__":
    for lr in (0.01, 0.0025):
        print(json.dumps({"lr": lr, **train(lr)}))
