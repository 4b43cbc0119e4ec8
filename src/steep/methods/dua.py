"""DUA: dynamic unsupervised adaptation of running statistics (Mirza et al., CVPR 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from steep.core.batch import first
from steep.core.constraints import Real, Whole, hyper
from steep.core.layers import batch_norms
from steep.core.method import Look, Method, Need, SourceModel, State, Step


@dataclass
class DuaState(State):
    """The model, the number of images it has learnt from and the stream its augmentations come from."""

    generator: torch.Generator
    seen: int = 0


@dataclass(frozen=True, kw_only=True)
class Dua(Method[DuaState]):
    """Move the running statistics with the first few images, less with each; then keep them."""

    name = "dua"
    paper = "Mirza et al., The norm must go on, 2022, arXiv:2112.00463"
    predicts = "after"
    enough = 1
    needs = frozenset({Need.BATCH_NORM, Need.VIEWS})
    look = Look("#999933", "triangle-left")
    equation = "μ ← (1 − m_k) μ + m_k mean(augmented copies of x_k),   σ² alike,   m_k = ρ_0 ω^k + ζ"

    momentum: float = hyper(0.1, Real(least=0, most=1))  # ρ_0
    decay: float = hyper(0.94, Real(least=0, most=1))  # ω
    floor: float = hyper(0.005, Real(least=0, most=1))  # ζ
    images: int = hyper(80, Whole(least=0))  # how many images move the statistics
    copies: int = hyper(64, Whole(least=1))  # augmented copies of an image that make its batch
    shift: float = hyper(1 / 8, Real(least=0, most=1))  # greatest shift of a copy, as a share of the side

    def init(self, source: SourceModel) -> DuaState:
        """Running statistics, which move."""
        batch_norms(source.model, for_method=self.name, running=True)
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
                for layer in layers:
                    layer.training, layer.momentum = True, self.momentum * self.decay**state.seen + self.floor
                with state.model.uncompiled():  # a program would hold the momentum of one image
                    state.model(self.augment(image, state.generator))
        finally:
            for layer, momentum in zip(layers, momenta, strict=True):
                layer.training, layer.momentum = False, momentum
        return Step(logits, used=len(new), moved=len(new) > 0)

    def passes(self, batch_size: int, images: int) -> float:
        """One forward for each image, and one for each copy of the first few."""
        return 1 + self.copies * min(self.images, images) / images

    def repeats(self, state: DuaState, x: Tensor) -> bool:
        """Once the statistics stand still."""
        return state.seen >= self.images

    def augment(self, image: Tensor, generator: torch.Generator) -> Tensor:
        """(C, H, W) → (copies, C, H, W), each shifted, perhaps mirrored, and turned by a multiple of 90°."""
        height, width = image.shape[-2:]
        margins = round(self.shift * height), round(self.shift * width)
        padded = pad(image, (margins[1], margins[1], margins[0], margins[0]))

        def draw(high: int) -> Tensor:
            return torch.randint(high, (self.copies,), generator=generator, device=image.device)

        corners = zip(*(draw(2 * margin + 1).tolist() for margin in margins), strict=True)
        views = torch.stack([padded[..., top : top + height, left : left + width] for top, left in corners])
        mirrored, turns = (draw(kinds).view(-1, *[1] * image.ndim) for kinds in (2, 4))
        views = torch.where(mirrored == 1, views.flip(-1), views)
        turns = turns if height == width else turns // 2 * 2  # a quarter turn would not fit: half turns only
        for turn in (1, 2, 3) if height == width else (2,):
            views = torch.where(turns == turn, views.rot90(turn, (-2, -1)), views)
        return views
