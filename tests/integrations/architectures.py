"""Real transformers models from a small configuration, random weights, nothing downloaded; and a net with RMSNorm."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CLASSES = 5
SIDE = 32


def resnet() -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=CLASSES
    )
    return ResNetForImageClassification(config)


def convnext() -> nn.Module:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    return ConvNextForImageClassification(
        ConvNextConfig(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2, num_labels=CLASSES)
    )


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return ViTForImageClassification(ViTConfig(image_size=SIDE, patch_size=8, num_labels=CLASSES, **shape))


def swin() -> nn.Module:
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(
        image_size=SIDE, patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4, num_labels=CLASSES
    )
    return SwinForImageClassification(config)


class RmsNet(nn.Module):
    """Patches, two blocks with torch's RMSNorm, a mean over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, stride=8)
        self.norms = nn.ModuleList(nn.RMSNorm(32) for _ in range(2))
        self.mlps = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        for norm, mlp in zip(self.norms, self.mlps, strict=True):
            tokens = tokens + mlp(norm(tokens)).relu()
        return self.head(tokens.mean(dim=1))


MAKE = {"resnet": resnet, "convnext": convnext, "vit": vit, "swin": swin, "rmsnorm": RmsNet}


def made(name: str) -> nn.Module:
    """Seeded, and sure enough of its answers that there is something to adapt."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MAKE[name]().eval()
        head = [m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == CLASSES][-1]
        nn.init.normal_(head.weight, std=0.5)
    return model


def pictures(n: int = 16, seed: int = 0) -> Tensor:
    """Smooth coloured pictures in [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(n, 3, 4, 4, generator=generator)
    return nn.functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear")
