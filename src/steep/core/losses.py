"""Scores of a batch of logits: (B, K) → (B,)."""

from __future__ import annotations

from torch import Tensor


def energy(logits: Tensor, labels: Tensor | None = None) -> Tensor:
    """Energy of each image: E(x) = −logsumexp f(x), or E(x, y) = −f(x)[y] where labels are given.

    Low energy means that the model finds the image likely. Half-precision logits are read in float32.

    >>> import torch, steep
    >>> steep.energy(torch.tensor([[0.0, 0.0], [5.0, 0.0]]))
    tensor([-0.6931, -5.0067])
    """
    logits = widen(logits)
    if labels is None:
        return -logits.logsumexp(dim=1)
    return -logits.gather(1, labels[:, None]).squeeze(1)


def entropy(logits: Tensor) -> Tensor:
    """Shannon entropy, in nats, of each image's softmax prediction."""
    log_p = widen(logits).log_softmax(dim=1)
    finite = log_p.masked_fill(log_p.isneginf(), 0)  # a class ruled out, by a logit of −inf, adds 0 · log 0 = 0
    return -(log_p.exp() * finite).sum(dim=1)


def widen(logits: Tensor) -> Tensor:
    """Half precision becomes float32: sums of exponentials need the digits. Float64 stays."""
    return logits.float() if logits.element_size() < 4 else logits
