"""Residual networks (He et al., "Deep Residual Learning for Image Recognition", CVPR 2016) for small images.

The stem is one 3×3 convolution without pooling, so that a 32×32 image keeps its resolution up to `layer2`.
BatchNorm (Ioffe & Szegedy, 2015) or GroupNorm (Wu & He, 2018). Attribute names are those of torchvision and
timm (`layer1.0.conv1`, `downsample.0`, ...; `bn1` whichever the norm).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from steep.errors import InputError

Norm = Literal["batch", "group"]
_MakeNorm = Callable[[int], nn.Module]


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def _shortcut(inputs: int, outputs: int, stride: int, norm: _MakeNorm) -> nn.Module | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(_conv(inputs, outputs, 1, stride), norm(outputs))


class _Basic(nn.Module):
    """Two 3×3 convolutions beside a shortcut (ResNet-18 and -34)."""

    expansion = 1

    def __init__(self, inputs: int, channels: int, stride: int, norm: _MakeNorm) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv(inputs, channels, 3, stride), norm(channels)
        self.conv2, self.bn2 = _conv(channels, channels, 3), norm(channels)
        self.downsample = _shortcut(inputs, channels, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(shortcut + self.bn2(self.conv2(out)))


class _Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions, four times wider at the end (ResNet-50 and -101)."""

    expansion = 4

    def __init__(self, inputs: int, channels: int, stride: int, norm: _MakeNorm) -> None:
        super().__init__()
        outputs = channels * self.expansion
        self.conv1, self.bn1 = _conv(inputs, channels, 1), norm(channels)
        # The stride sits on the 3×3 as in torchvision: on the 1×1 it would skip three pixels of four unread.
        self.conv2, self.bn2 = _conv(channels, channels, 3, stride), norm(channels)
        self.conv3, self.bn3 = _conv(channels, outputs, 1), norm(outputs)
        self.downsample = _shortcut(inputs, outputs, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        return F.relu(shortcut + self.bn3(self.conv3(out)))


_Block = type[_Basic] | type[_Bottleneck]
DEPTHS: dict[int, tuple[_Block, tuple[int, int, int, int]]] = {
    18: (_Basic, (2, 2, 2, 2)),
    34: (_Basic, (3, 4, 6, 3)),
    50: (_Bottleneck, (3, 4, 6, 3)),
    101: (_Bottleneck, (3, 4, 23, 3)),
}


class ResNet(nn.Module):
    """ResNet-18, -34, -50 or -101 in its 32×32 form; other image sizes pass too.

    `width` is the number of channels of the stem and of the first stage; `groups`, of each GroupNorm, has to divide it.
    """

    def __init__(
        self,
        depth: int,
        num_classes: int,
        *,
        in_channels: int = 3,
        norm: Norm = "batch",
        groups: int = 32,
        width: int = 64,
    ) -> None:
        super().__init__()
        if depth not in DEPTHS:
            raise InputError(f"depth: expected one of {', '.join(map(str, DEPTHS))}, got {depth}")
        check_sizes(width=width, num_classes=num_classes, in_channels=in_channels)
        make = _norm_maker(norm, groups, width)
        block, counts = DEPTHS[depth]
        self.conv1, self.bn1 = _conv(in_channels, width, 3), make(width)
        inputs, stages = width, []
        for index, count in enumerate(counts):
            channels = width * 2**index
            blocks: list[nn.Module] = []
            for position in range(count):
                stride = 2 if index > 0 and position == 0 else 1
                blocks.append(block(inputs, channels, stride, make))
                inputs = channels * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(inputs, num_classes)
        init_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, in_channels, H, W) to logits (B, num_classes)."""
        x = F.relu(self.bn1(self.conv1(x)))  # (B, width, H, W)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))  # (B, 8·width·expansion, H/8, W/8)
        # A plain mean takes any image size and, unlike adaptive pooling, is deterministic on CUDA.
        return self.fc(x.mean(dim=(2, 3)))  # type: ignore[no-any-return]


def check_sizes(**sizes: object) -> None:
    """Refuse what is no whole number of at least 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InputError(f"{name}: expected a whole number of at least 1, got {size!r}")


def init_convolutions(model: nn.Module) -> None:
    """Draw the weights of every convolution (He et al., ICCV 2015)."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def _norm_maker(norm: str, groups: int, width: int) -> _MakeNorm:
    if norm == "batch":
        return nn.BatchNorm2d
    if norm != "group":
        raise InputError(f'norm: expected "batch" or "group", got {norm!r}')
    # Every layer's channels are a multiple of `width`, so one check covers them all.
    if groups < 1 or width % groups:
        raise InputError(f"groups: expected a divisor of width {width}, got {groups}")
    return lambda channels: nn.GroupNorm(groups, channels)
