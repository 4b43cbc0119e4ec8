"""DUA: dynamic unsupervised adaptation of running statistics (Mirza et al., CVPR 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from steep.core.batch import first
from steep.core.classifier import SourceModel
from steep.core.layers import batch_norms
from steep.core.method import Method, Moment, State, Step


@dataclass
class DuaState(State):
    """The model, the number of images it has learnt from and the stream its augmentations come from."""

    generator: torch.Generator
    seen: int = 0


@dataclass(frozen=True, kw_only=True)
class Dua(Method[DuaState]):
    """Move the running statistics with the first few images, less with each; then keep them. Labels are unknown."""

    name: ClassVar = "dua"
    paper: ClassVar = "Mirza et al., The norm must go on, 2022"
    predicts: ClassVar[Moment] = "after"

    momentum: float = 0.1  # ρ_0
    decay: float = 0.94  # ρ_k = decay · ρ_{k−1}
    floor: float = 0.005  # added to every ρ_k
    images: int = 80  # how many images move the statistics
    copies: int = 64  # augmented copies of an image that make its batch
    shift: float = 1 / 8  # greatest shift of a copy, as a share of the side

    def init(self, source: SourceModel) -> DuaState:
        """Running statistics, which move."""
        batch_norms(source.model, for_method="dua", running=True)
        return DuaState(source.prepare(params=None, statistics="source"), source.generator())

    @torch.no_grad()
    def step(self, state: DuaState, x: Tensor) -> Step:
        """For image k: running ← (1 − m) running + m · statistics of its copies, m = ρ_k + floor."""
        logits = state.model(x)
        new = first(x, self.images - state.seen)
        layers = batch_norms(state.model, running=True)
        momenta = [layer.momentum for layer in layers]
        try:
            for image in new:
                state.seen += 1
                copies = self.augment(image, state.generator)
                for layer in layers:
                    layer.training, layer.momentum = True, self.momentum * self.decay**state.seen + self.floor
                with state.model.uncompiled():  # a program would hold the momentum of one image
                    state.model(copies)
        finally:
            for layer, momentum in zip(layers, momenta, strict=True):
                layer.training, layer.momentum = False, momentum
        return Step(logits, used=len(new), moved=len(new) > 0)

    def repeats(self, state: DuaState) -> bool:
        """Once the statistics stand still."""
        return state.seen >= self.images

    def augment(self, image: Tensor, generator: torch.Generator) -> Tensor:
        """(C, H, W) → (copies, C, H, W), each shifted, perhaps mirrored, and turned by a multiple of 90°."""
        height, width = image.shape[-2:]
        margins = round(self.shift * height), round(self.shift * width)
        padded = pad(image, (margins[1], margins[1], margins[0], margins[0]))

        def draw(high: int) -> Tensor:
            return torch.randint(high, (self.copies,), generator=generator, device=image.device)

        tops, lefts = draw(2 * margins[0] + 1).tolist(), draw(2 * margins[1] + 1).tolist()
        crops = [padded[..., t : t + height, s : s + width] for t, s in zip(tops, lefts, strict=True)]
        views = torch.stack(crops)
        each = (-1, *[1] * image.ndim)
        mirrored, turns = draw(2).view(each), draw(4).view(each)
        views = torch.where(mirrored == 1, views.flip(-1), views)
        if height != width:  # a quarter turn would not fit: half turns only
            turns = turns // 2 * 2
        for turn in (1, 2, 3) if height == width else (2,):
            views = torch.where(turns == turn, views.rot90(turn, (-2, -1)), views)
        return views
