"""Whose answers to trust: the adapted model's by the statistics of the batch, by those of the stream, or the source's.

Each is right where the others fail. The batch's statistics need many images of all classes. The stream's, averaged over
what came before, bear small and one-sided batches. The source model is the better one where nothing has shifted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steep.core.answers import agreement, uncertainty, variety
from steep.core.batch import first, mean, rank_slice, size
from steep.core.classifier import Classifier
from steep.core.optim import DescentState
from steep.core.statistics import fixed_statistics, parameters_at, remembered, source_statistics

FIRST = 4  # batches that are all looked at
PRIOR = 0.5  # batches that the source's statistics count for in those of the stream
UNEVEN = 0.25  # nats by which the stream's statistics must show less variety than the batch's
SMALL = 16  # views of a batch that weigh as much as the stream's statistics, where both are mixed
MOSTLY = 0.75  # share of images on which the source model must agree with an answer by the batch's statistics
# The stream's statistics lag behind where a batch has few classes: there the source model need not be surer, nor agree
# as much. Both chosen as is said in core/run/watched.py.
SURER_THAN_STREAM, AGREES_WITH_STREAM = 1.1, 0.5


@dataclass
class TrustState(DescentState):
    """Model and optimiser, the source parameters, the stream's statistics, and what the last look showed."""

    origin: list[Tensor]
    mean: list[Tensor]
    var: list[Tensor]
    batches: Tensor  # that these are averaged over, PRIOR included
    trusted: str  # "batch", "stream" or "source"
    uneven: bool  # whether a batch holds too few classes to be normalised by itself
    waiting: list[Tensor]  # small batches that are not yet enough to learn from

    @staticmethod
    def begin(model: Classifier) -> tuple[Any, ...]:
        """Give all fields but model and optimiser as they are before the first batch."""
        origin = [p.detach().clone() for p in model.adapted().values()]
        batches = torch.full((), PRIOR, device=origin[0].device)
        return origin, *source_statistics(model), batches, "batch", False, []

    def gather(self, x: Tensor, answer: Tensor, enough: int) -> bool:
        """Let a small batch wait for the next ones; say whether there are enough images now."""
        self.waiting = waiting_with(self.waiting, x, answer)
        return sum(map(len, self.waiting)) >= enough

    def gathered(self) -> Tensor:
        """Give all images that wait, or this rank's part of them; none waits any more."""
        images, self.waiting = torch.cat(self.waiting), []
        return images[rank_slice(len(images))]

    def forward(self, x: Tensor, newest: float) -> Tensor:
        """Answer by the batch's statistics, and take them into the stream's with at least this share."""
        self.batches += 1
        with remembered(self.model, self.mean, self.var, (1 / self.batches).clamp_min(newest)):
            logits: Tensor = self.model(x)
        return logits

    @torch.no_grad()
    def answer(self, x: Tensor, by: str) -> Tensor:
        """Answer by statistics of the "batch", of the "stream" or of "both" mixed, or as the "source" model does."""
        if by == "batch":
            logits: Tensor = self.model(x)
        elif by in ("stream", "both"):
            with fixed_statistics(self.model, self.mean, self.var, prior=SMALL if by == "both" else None):
                logits = self.model(x)
        else:
            with fixed_statistics(self.model), parameters_at(self.model, self.origin):
                logits = self.model(x)
        return logits

    @torch.no_grad()
    def look(self, x: Tensor, by_batch: Tensor) -> None:
        """Decide anew whom to trust, by the answers of all three to the same images. This waits for the device.

        Normalised by itself, a batch of few classes seems to hold all of them, and the answers are unsure. By the
        stream's statistics it shows its few classes, and the answers are surer. The source model is trusted where it is
        surer still and mostly agrees: a model that is lost may be sure, but it is not of the same opinion.
        """
        by_stream, by_source = self.answer(x, "stream"), self.answer(x, "source")
        answers = by_batch, by_stream, by_source
        numbers = [uncertainty(a) for a in answers] + [variety(a) for a in answers[:2]]
        numbers += [agreement(by_source, by_batch), agreement(by_source, by_stream)]
        batch, stream, source, all_classes, few_classes, with_batch, with_stream = torch.stack(numbers).tolist()
        self.uneven = stream < batch and all_classes - few_classes > UNEVEN
        if self.uneven:
            sure = source < SURER_THAN_STREAM * stream and with_stream >= AGREES_WITH_STREAM
        else:
            sure = source < batch and with_batch >= MOSTLY
        self.trusted = "source" if sure else "stream" if self.uneven else "batch"


def waiting_with(waiting: list[Tensor], x: Tensor, answer: Tensor) -> list[Tensor]:
    """Give the small batches that wait to be learned from, this one among them.

    A batch whose answer is not finite does not wait: it would spoil the others. This waits for the device.
    """
    if not bool(mean(answer.amax(dim=1)).isfinite()):
        return waiting
    alike = [batch for batch in waiting if batch.shape[1:] == x.shape[1:]]  # a stream may change its size
    return [*alike, first(x, size(x)).clone()]
