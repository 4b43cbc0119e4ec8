"""Wide residual networks (Zagoruyko & Komodakis, "Wide Residual Networks", BMVC 2016).

Attribute names (`block1.layer.0.bn1`, `convShortcut`, ...) follow the layout that WideResNet-PyTorch and
RobustBench checkpoints share, so that their files load key by key.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from steep.errors import InputError
from steep.models.resnet import check_sizes, init_convolutions


class WideBlock(nn.Module):
    """One pre-activation residual block: BN, ReLU, 3×3 convolution, twice, beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, *, stride: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.dropout = dropout
        # The camel case is the checkpoint's key. Where nothing changes shape the shortcut is the identity.
        self.convShortcut: nn.Conv2d | None = None
        if stride != 1 or inputs != outputs:
            self.convShortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, inputs, H, W) to (B, outputs, H/stride, W/stride)."""
        active = F.relu(self.bn1(x))
        # A projection reads the activated input, the identity the raw one: the paths differ on purpose.
        shortcut = x if self.convShortcut is None else self.convShortcut(active)
        out = F.relu(self.bn2(self.conv1(active)))
        if self.dropout > 0:
            out = F.dropout(out, self.dropout, self.training)
        return shortcut + self.conv2(out)  # type: ignore[no-any-return]


class _Stage(nn.Module):
    """Blocks of one width; exists so that the keys read `block1.layer.0`."""

    def __init__(self, count: int, inputs: int, outputs: int, *, stride: int, dropout: float) -> None:
        super().__init__()
        first = WideBlock(inputs, outputs, stride=stride, dropout=dropout)
        rest = [WideBlock(outputs, outputs, dropout=dropout) for _ in range(count - 1)]
        self.layer = nn.Sequential(first, *rest)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)  # type: ignore[no-any-return]


class WideResNet(nn.Module):
    """WRN-depth-width for small images of any size: 6n + 4 layers, n blocks in each of three stages.

    `width` says how many times wider it is than the thin network (16, 32, 64 channels). `dropout` is the probability of
    dropping a feature between the two convolutions of a block.
    """

    def __init__(self, depth: int, width: int, num_classes: int, *, in_channels: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise InputError(f"depth: expected 6n + 4 with n ≥ 1 (10, 16, 22, 28, 34, 40, ...), got {depth}")
        check_sizes(width=width, num_classes=num_classes, in_channels=in_channels)
        if not 0 <= dropout < 1:
            raise InputError(f"dropout: expected a probability in [0, 1), got {dropout}")
        count = (depth - 4) // 6
        w1, w2, w3 = 16 * width, 32 * width, 64 * width
        self.conv1 = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        self.block1 = _Stage(count, 16, w1, stride=1, dropout=dropout)
        self.block2 = _Stage(count, w1, w2, stride=2, dropout=dropout)
        self.block3 = _Stage(count, w2, w3, stride=2, dropout=dropout)
        self.bn1 = nn.BatchNorm2d(w3)
        self.fc = nn.Linear(w3, num_classes)
        init_convolutions(self)
        nn.init.zeros_(self.fc.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, in_channels, H, W) to logits (B, num_classes)."""
        x = self.conv1(x)  # (B, 16, H, W)
        x = self.block3(self.block2(self.block1(x)))  # (B, 64·width, H/4, W/4)
        x = F.relu(self.bn1(x))
        # A plain mean takes any image size and, unlike adaptive pooling, is deterministic on CUDA.
        return self.fc(x.mean(dim=(2, 3)))  # type: ignore[no-any-return]
