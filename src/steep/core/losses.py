"""Scores of a batch of logits: (B, K) → (B,)."""

from __future__ import annotations

import math

import torch
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
    return -(log_p.exp() * _finite(log_p)).sum(dim=1)


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy −Σ_k q_k log p_k of each image's prediction p to the prediction q that other logits make."""
    log_p = widen(logits).log_softmax(dim=1)
    return -(widen(targets).softmax(dim=1) * _finite(log_p)).sum(dim=1)


def _finite(log_p: Tensor) -> Tensor:
    return log_p.masked_fill(log_p.isneginf(), 0)  # a class ruled out, by a logit of −inf, adds 0 · log 0 = 0


def symmetric_cross_entropy(logits: Tensor, others: Tensor) -> Tensor:
    """Half the cross-entropy each way: gradients flow into both."""
    return (soft_cross_entropy(logits, others) + soft_cross_entropy(others, logits)) / 2


def soft_likelihood_ratio(logits: Tensor) -> Tensor:
    """Score −Σ_k p_k log (p_k / (1 − p_k)), whose gradient does not vanish for sure predictions as entropy's does.

    Probabilities are cut at 0.99, where the gradient ends.
    """
    p = widen(logits).softmax(dim=1).clamp_max(0.99)
    return -(p * (p / (1 - p) + 1e-5).log()).sum(dim=1)


def widen(logits: Tensor) -> Tensor:
    """Half precision becomes float32: sums of exponentials need the digits. Float64 stays."""
    return logits.float() if logits.element_size() < 4 else logits


def opinion_entropy(logits: Tensor) -> Tensor:
    """Entropy of an opinion: beliefs b_k = exp f_k / S, doubt u = K / S, S = Σ exp f + K (COME, arXiv:2410.10894).

    That is a softmax with one more logit, ln K. The gradient turns the logits but does not lengthen them: their length
    ‖f‖ is held, so no image can be made certain by scaling it up.
    """
    logits = widen(logits)
    ruled_out = logits.isneginf()  # a class that the model never answers with
    finite = logits.masked_fill(ruled_out, 0)
    length = finite.norm(dim=1, keepdim=True).clamp_min(torch.finfo(logits.dtype).tiny)
    turned = (finite * (length.detach() / length)).masked_fill(ruled_out, -math.inf)
    return entropy(torch.cat([turned, turned.new_full((len(turned), 1), math.log(turned.shape[1]))], dim=1))


LOSSES = {"entropy": entropy, "come": opinion_entropy}
"""What a method that minimises entropy may minimise instead, by name."""
