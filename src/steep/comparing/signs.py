"""What answers show without labels: four signs of how right a model is, over a whole stream."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from steep.core.answers import agreement, uncertainty, variety
from steep.core.losses import widen

NAMES = ("doubt", "steadiness", "variety", "batch_variety")


class Signs:
    """Adds up over a stream, batch by batch; each sign is between 0 and 1 whatever the number of classes.

    >>> signs = Signs()
    >>> signs.add(torch.tensor([[9.0, -9.0]]), torch.tensor([[5.0, 0.0]]))
    >>> signs.add(torch.tensor([[-9.0, 9.0]]), torch.tensor([[5.0, 0.0]]))
    >>> {name: round(value, 3) for name, value in signs.read().items()}
    {'doubt': 0.0, 'steadiness': 0.5, 'variety': 1.0, 'batch_variety': 0.0}
    """

    def __init__(self) -> None:
        self.images = 0
        self._sums: Tensor | float = 0.0  # of doubt, steadiness and variety of a batch, on the device
        self._shares: Tensor | float = 0.0  # of each class in the answers, added up

    @torch.no_grad()
    def add(self, logits: Tensor, view: Tensor) -> None:
        """Take in the answers to a batch and to another view of the same images."""
        n = len(logits)
        now = torch.stack([uncertainty(logits), agreement(logits, view), variety(logits)])
        self._sums = self._sums + n * now.double()
        self._shares = self._shares + widen(logits).softmax(dim=1).double().sum(dim=0)
        self.images += n

    def read(self) -> dict[str, float]:
        """Give the mean of each sign: entropies as a share of the largest there can be.

        Doubt is the entropy of an answer, steadiness the share of images whose other view gets the same class, variety
        the entropy of the mean answer, over the whole stream and within a batch: classes that come one after the other
        show in the first alone, a model that has forgotten classes in both.
        """
        sums, shares = torch.as_tensor(self._sums) / self.images, torch.as_tensor(self._shares) / self.images
        most = math.log(len(shares))
        doubt, steadiness, within = sums.tolist()
        whole = float(torch.special.entr(shares).sum())
        return dict(zip(NAMES, (doubt / most, steadiness, whole / most, within / most), strict=True))
