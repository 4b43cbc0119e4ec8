"""Small nets with every kind of normalisation, peaked enough that confidence filters let something through."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Tokens(nn.Module):
    """A ViT in miniature: patches, a normalisation over channels, a mean over tokens."""

    def __init__(self, norm: type[nn.Module], classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.norm1 = norm(16)
        self.mlp = nn.Linear(16, 16)
        self.norm2 = norm(16)
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm1(self.patches(x).flatten(2).transpose(1, 2))
        tokens = tokens + self.mlp(tokens).relu()
        return self.head(self.norm2(tokens).mean(dim=1))


def conv_net(norm: object, classes: int = 5, channels: int = 3) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1, bias=False),
        norm(8),
        nn.ReLU(),
        nn.Dropout(0.5),  # must stay off: it would draw from the global random stream
        nn.Conv2d(8, 8, 3, padding=1, bias=False),
        norm(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, classes),
    )


NETS = {
    "batch": lambda: conv_net(nn.BatchNorm2d),
    "group": lambda: conv_net(lambda c: nn.GroupNorm(2, c)),
    "layer": lambda: Tokens(nn.LayerNorm, 5),
}


def net(kind: str = "batch", seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = NETS[kind]()
        head = [m for m in model.modules() if isinstance(m, nn.Linear)][-1]
        with torch.no_grad():
            head.weight.mul_(12)
            for m in model.modules():
                if isinstance(m, nn.BatchNorm2d):
                    m.running_mean.uniform_(-0.2, 0.2)
                    m.running_var.uniform_(0.3, 1.5)
                    m.weight.uniform_(0.5, 1.5)
                    m.bias.uniform_(-0.3, 0.3)
    return model.eval()


def images(n: int = 20, seed: int = 0, size: int = 8, channels: int = 3) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.rand(n, channels, size, size, generator=g)


def few(method: str, n: int = 20) -> int:
    """Say how many images a batch should have: n, or 4 for a method that takes a step for each image."""
    return 4 if method == "memo" else n


class Counting(nn.Module):
    """Counts its calls in buffers: a forward writes to one in place and replaces the other."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("replaced", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.replaced = self.replaced + 1
        return self.net(x) + 0.1 * self.calls + 0.1 * self.replaced


class Counted(nn.Module):
    """Counts images that pass forward, and backward: one to all weights costs two."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.forwards = self.backwards = 0.0

    def forward(self, x: Tensor) -> Tensor:
        self.forwards += len(x)
        logits = self.net(x)
        weights = [m.weight for m in self.net.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
        cost = 2 if all(w.requires_grad for w in weights) else 1
        if logits.requires_grad:
            logits.register_hook(lambda grad: self._count(cost * len(grad)))
        return logits

    def _count(self, images: int) -> None:
        self.backwards += images
