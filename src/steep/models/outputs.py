"""A classifier that answers for some of its classes only."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from steep.errors import InputError


def keep_outputs(model: nn.Module, outputs: Sequence[int], of: int) -> nn.Module:
    """Cut the last layer of a model with `of` classes down to the rows of some, in place.

    That gives the logits which a mask over all of them would leave, and a method sees no class that cannot come.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(4, 5))
    >>> x = torch.ones(2, 4)
    >>> logits = net(x)
    >>> torch.allclose(keep_outputs(net, [1, 4], of=5)(x), logits[:, [1, 4]])
    True
    """
    last = [
        layer
        for layer in model.modules()
        if isinstance(layer, (nn.Linear, nn.Conv2d)) and len(layer.weight) == of  # a 1 × 1 convolution in some models
    ]
    if len(last) != 1:
        raise InputError(
            f"model: expected one layer of {of:,} outputs, of which {len(outputs)} classes are kept, got {len(last)}"
        )
    rows = torch.as_tensor(outputs, device=last[0].weight.device)
    for name in ("weight", "bias"):
        if (values := getattr(last[0], name)) is not None:
            setattr(last[0], name, nn.Parameter(values.detach()[rows], requires_grad=values.requires_grad))
    setattr(last[0], "out_features" if isinstance(last[0], nn.Linear) else "out_channels", len(outputs))
    return model
