"""What answers show without labels, and how they are corrected."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from steep.core.batch import count, mean, size, total
from steep.core.losses import entropy, widen


def uncertainty(logits: Tensor) -> Tensor:
    """Mean entropy, in nats, of the answers to a batch."""
    return mean(entropy(logits))


def variety(logits: Tensor) -> Tensor:
    """Entropy of the mean answer to a batch: log K where all classes are answered alike, 0 where one class is."""
    shares = mean(widen(logits).softmax(dim=1))
    return -(shares * shares.clamp_min(1e-12).log()).sum()  # a class that is ruled out adds 0, and has no gradient


def variety_of(images: int, classes: int) -> float:
    """Say how much variety so few images show although all classes are equally frequent, in nats.

    The expected sum of the squared class shares is 1 / K + (1 − 1 / K) / B; this is the entropy with that sum.
    """
    return math.log(classes / (1 + (classes - 1) / images))


def confidence(logits: Tensor) -> Tensor:
    """Mean probability of the class that is answered."""
    return mean(widen(logits).softmax(dim=1).amax(dim=1))


def agreement(one: Tensor, other: Tensor) -> Tensor:
    """Share of the images that get the same class from both."""
    return mean((one.argmax(dim=1) == other.argmax(dim=1)).float())


def sure_and_same(one: Tensor, other: Tensor, sure: float = 0.9) -> Tensor:
    """Count the images that both are sure of, and those of them that get the same class from both."""
    mask = torch.minimum(widen(one).softmax(dim=1).amax(dim=1), widen(other).softmax(dim=1).amax(dim=1)) > sure
    return torch.stack([count(mask), count(mask & (one.argmax(dim=1) == other.argmax(dim=1)))])


def for_uneven_classes(logits: Tensor, pseudo: float = 1.0, rounds: int = 20) -> Tensor:
    """Correct answers for a batch in which some classes are more frequent than they were in training.

    Expectation–maximisation of the batch's class shares π (Saerens et al., 2002): p(k | x) ∝ p_source(k | x) π_k, and
    π_k is the mean of that. `pseudo` images of each class are added, so that no class is ruled out.
    """
    logits = widen(logits)
    log_p = logits.log_softmax(dim=1)
    shares = torch.full_like(log_p[0], 1 / log_p.shape[1])
    corrected = log_p
    for _ in range(rounds):
        corrected = (log_p + shares.log()).log_softmax(dim=1)
        shares = (total(corrected.exp().sum(dim=0)) + pseudo) / (size(log_p) + pseudo * log_p.shape[1])
    return corrected + logits.logsumexp(dim=1, keepdim=True)
