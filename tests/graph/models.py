"""Modules of a user's own, for tests of `shardscope export FILE.py:FUNCTION`. Each function returns (module, inputs[, loss])."""
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Mixed(nn.Module):
    """A frozen table that is the head's weight too, a block that runs twice, a buffer that training changes, two losses."""

    def __init__(self, vocab=48, dim=16):
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
        self.frozen = nn.Linear(dim, dim)
        self.frozen.requires_grad_(False)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(2))
        self.again = Block(dim)
        self.norm = nn.BatchNorm1d(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.table.weight
        self.score = nn.Linear(dim, 1)

    def forward(self, ids, wanted):
        x = self.frozen(self.table(ids))
        for block in self.blocks:
            x = block(x)
        x = self.again(self.again(x))
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return self.head(x), self.score(x).squeeze(-1)


def mixed(batch=2, seq=8):
    torch.manual_seed(3)
    ids = torch.arange(batch * seq).reshape(batch, seq) * 5 % 48

    def loss(output, ids, wanted):
        logits, score = output
        return F.cross_entropy(logits.flatten(0, 1), ids.flatten()) + 0.5 * F.mse_loss(score, wanted)

    return Mixed(), (ids, torch.linspace(-1, 1, batch * seq).reshape(batch, seq)), loss


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = F.dropout(torch.tanh(layer(x)), 0.25, training=self.training)
        return x.square().mean()


def dropping(batch=2):
    torch.manual_seed(4)
    return Dropping(), torch.zeros(batch, 16)


class Reached(nn.Module):
    """`inner` is never called: the outer module reads its weight."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.outer = nn.Linear(8, 8)

    def forward(self, x):
        return F.linear(self.outer(x), self.inner.weight).square().mean()


def reached(batch=2):
    torch.manual_seed(5)
    return Reached(), torch.zeros(batch, 8)


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        if x.sum() > 0:
            return self.layer(x).sum()
        return x.sum()


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Branching()

    def forward(self, x):
        return self.part(x)


def branching(batch=2):
    return Outer(), torch.zeros(batch, 8)


def no_loss(batch=2):
    return nn.Linear(8, 8), torch.zeros(batch, 8)


def resnet(batch=2):
    """A residual network of convolutions and batch norms."""
    torch.manual_seed(6)
    return Residual(), (torch.zeros(batch, 3, 16, 16), torch.arange(batch) % 10), lambda logits, images, labels: F.cross_entropy(logits, labels)


class Residual(nn.Module):
    class Part(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.one, self.two = nn.Conv2d(n, n, 3, padding=1, bias=False), nn.Conv2d(n, n, 3, padding=1, bias=False)
            self.norm_one, self.norm_two = nn.BatchNorm2d(n), nn.BatchNorm2d(n)

        def forward(self, x):
            y = F.relu(self.norm_one(self.one(x)))
            return F.relu(x + self.norm_two(self.two(y)))

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.parts = nn.Sequential(*(Residual.Part(8) for _ in range(2)))
        self.head = nn.Linear(8, 10)

    def forward(self, images, labels):
        return self.head(self.parts(F.max_pool2d(self.stem(images), 2)).mean((2, 3)))
