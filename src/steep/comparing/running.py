"""The estimated gain of a deployed model over its source model, while the stream goes by."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import torch
from torch import Tensor

from steep.comparing.compare import VIEWS
from steep.comparing.estimate import Estimate, Signs, estimated_gain
from steep.core.adapter import Adapter
from steep.errors import check_known

HALF_LIFE = 500  # compared images, after which an answer counts half: a stream changes
LEAST = 64  # compared images, as of late: the estimate was fitted to no shorter stream


class RunningGain:
    """Compares an adapter with its source model at the batches that are asked about, and only there costs anything.

    That is three forward passes: the source model answers the batch and another view of it, the adapter that view (its
    methods of two views take two). The host waits for the device there.
    """

    def __init__(self) -> None:
        self._asked: tuple[Tensor, Callable[[Tensor], Tensor], Tensor, Tensor] | None = None
        # signs of the source model and of the adapted one, images of another class: one tuple, for other threads
        self._kept: tuple[Signs, Signs, Tensor | float] = Signs(), Signs(), 0.0

    @torch.no_grad()
    def ask(self, source: Callable[[Tensor], Tensor], x: Tensor, view: str = "mirror") -> Tensor:
        """Let the source model answer the batch that comes next, and a view of it; give the answers to the batch."""
        check_known("view", VIEWS, view)
        logits = source(x)
        self._asked = x, VIEWS[view], logits, source(VIEWS[view](x))
        return logits

    @torch.no_grad()
    def take(self, adapter: Adapter, logits: Tensor) -> bool:
        """Set the answers to that batch beside; say whether there is anything new."""
        asked, self._asked = self._asked, None
        if asked is None or len(asked[2]) != len(logits):  # the batch that was asked about has failed
            return False
        x, view, *answers = asked
        first, first_view = (each.to(logits.device) for each in answers)
        good = torch.cat([logits, first, first_view], dim=1).isfinite().all(dim=1)  # damaged images have no answer
        if not bool(good.any()):
            return False
        logits, first, first_view = logits[good], first[good], first_view[good]
        other_view = adapter.peek(x[good.to(x.device)], view)
        keep = 0.5 ** (len(logits) / HALF_LIFE)
        source, adapted, changed = copy(self._kept[0]), copy(self._kept[1]), self._kept[2]
        source.add(first, first_view, keep)
        adapted.add(logits, other_view, keep)
        self._kept = source, adapted, changed * keep + (logits.argmax(dim=1) != first.argmax(dim=1)).sum()
        return True

    def read(self) -> Estimate | None:
        """Give the gain of late in points, with its interval; None before there are enough images."""
        source, adapted, changed = self._kept
        if source.images < LEAST:
            return None
        return estimated_gain(source.read(), adapted.read(), float(changed) / source.images)

    def numbers(self) -> dict[str, Any] | None:
        """Give the same as plain data, with the verdict."""
        estimate = self.read()
        return None if estimate is None else {**estimate._asdict(), "verdict": estimate.verdict}
