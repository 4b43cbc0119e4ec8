"""The learning rate: a linear warm-up, then half a cosine down to zero (Loshchilov & Hutter, ICLR 2017)."""

from __future__ import annotations

import math


def learning_rate(step: int, *, total: int, warmup: int, peak: float) -> float:
    """Give the rate of one step out of `total`, the first being 0.

    The peak comes with the last step of the warm-up, so the very first step already moves.

    >>> [learning_rate(step, total=6, warmup=2, peak=0.4) for step in range(3)]
    [0.2, 0.4, 0.4]
    >>> round(learning_rate(4, total=6, warmup=2, peak=0.4), 3)
    0.2
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / (total - warmup)
    return peak * 0.5 * (1 + math.cos(math.pi * done))
