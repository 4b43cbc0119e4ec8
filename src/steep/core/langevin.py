"""Samples of p(x) ∝ exp(−E(x)) by stochastic gradient Langevin dynamics, with a replay buffer of chains.

The step is the decoupled form of JEM and of TEA's published code, x ← x − rate · ∂E/∂x + noise · ε, not the
paper's x − α/2 · ∂E/∂x + α · ε; `docs/deviations.md` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from steep.core.batch import rank_slice
from steep.core.classifier import as_logits, like_images
from steep.core.losses import energy
from steep.errors import CheckpointError, InputError


def langevin(
    energy_of: Callable[[Tensor], Tensor],  # (n, ...) → (n,)
    start: Tensor,  # (n, ...)
    *,
    steps: int,
    rate: float,
    noise: float,
    generator: torch.Generator | None = None,
    clamp: tuple[float, float] | None = None,
    grad_clip: float | None = None,
) -> Tensor:
    """Walk n chains down the energy with noise. Parameters of the model keep their gradients untouched.

    `clamp` keeps values in a range after each step; `grad_clip` bounds each chain's gradient norm. Of several ranks
    that work together each walks its part of the chains, and gives that.
    """
    part = rank_slice(len(start))
    x = start.detach()[part]
    for _ in range(steps):
        x = x.requires_grad_(True)
        with torch.enable_grad():
            total = energy_of(x).sum()
            if not total.requires_grad:
                raise InputError(
                    "model: its answer does not depend on the images. Does its forward run under no_grad or detach?"
                )
            (slope,) = torch.autograd.grad(total, x)
        if grad_clip is not None:
            size = slope.flatten(1).norm(dim=1).clamp_min(1e-12)
            slope = slope * (grad_clip / size).clamp_max(1).view(-1, *[1] * (x.ndim - 1))
        with torch.no_grad():
            x = x.detach() - rate * slope
            if noise:
                # drawn for all chains, so that each has the same noise however many ranks there are
                drawn = torch.randn(start.shape, generator=generator, device=x.device, dtype=x.dtype)
                x += noise * drawn[part]
            if clamp is not None:
                x.clamp_(*clamp)
    return x.detach()


class ReplayBuffer:
    """Where chains wait for their next batch: a fixed number of images, first drawn from U(low, high).

    The memory is taken at the first draw, when the size of the images is known. Without a size it holds PUBLISHED
    chains, or what fits into MOST_BYTES if that is less, but never less than the first draw.
    """

    PUBLISHED = 10_000  # 0.12 GB of 32 × 32 pictures, but 6 GB of 224 × 224
    MOST_BYTES = 1 << 29

    def __init__(self, size: int | None, start: tuple[float, float] = (-1.0, 1.0), restart: float = 0.05) -> None:
        self.size, self.start, self.restart = size, start, restart
        self.images: Tensor | None = None  # (size, C, H, W)
        # (images, places, chains there before) of each write since a snapshot was taken, far less than a copy of all
        self.journal: list[tuple[Tensor, Tensor, Tensor]] | None = None

    def draw(self, n: int, like: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Take n chains shaped like the images given, a share `restart` of them fresh; and where they wait."""
        shape = like.shape[1:]
        size = self._size(n, like) if self.images is None else len(self.images)
        if n > size and self.size is not None:
            raise InputError(
                f"chains: expected at most the buffer's {size}, got {n}. Raise buffer_size or lower chains."
            )
        if self.images is None:
            self.images = self._fresh(size, like, generator)
        elif self.images.shape[1:] != shape:
            raise InputError(
                f"images: expected {tuple(self.images.shape[1:])} as in this stream so far, got {tuple(shape)}. "
                "The replay buffer holds images of one size: call reset() before another stream."
            )
        # distinct places: writing two chains to one place is undefined on a GPU, and would lose one
        self.images = self.images.to(like)  # chains may have come from a file
        where = torch.randperm(size, generator=generator, device=like.device)[:n]
        fresh = torch.rand(n, generator=generator, device=like.device) < self.restart
        noise = self._fresh(n, like, generator)
        waiting = self.images[where]
        if n > size:
            waiting = torch.cat([waiting, noise[size:]])  # the chains that find no place begin anew
        return torch.where(fresh.view(-1, *[1] * len(shape)), noise, waiting), where

    def put(self, where: Tensor, chains: Tensor) -> None:
        """Let the chains wait where they came from; those beyond the buffer's size have no place."""
        if self.images is None:
            raise InputError("buffer: expected a draw before chains are put back")
        if self.journal is not None:
            self.journal.append((self.images, where, self.images[where]))
        self.images[where] = chains[: len(where)]

    def _size(self, n: int, like: Tensor) -> int:
        if self.size is not None:
            return self.size
        return max(n, min(self.PUBLISHED, self.MOST_BYTES // (like.shape[1:].numel() * like.element_size())))

    def _fresh(self, n: int, like: Tensor, generator: torch.Generator) -> Tensor:
        low, high = self.start
        images = torch.empty((n, *like.shape[1:]), device=like.device, dtype=like.dtype)
        return images.uniform_(low, high, generator=generator)

    def snapshot(self) -> dict[str, Any]:
        """Copy the chains."""
        return {"images": None if self.images is None else self.images.clone()}

    def check_saved(self, where: str, saved: Any) -> None:
        """Refuse what are not as many chains as this buffer holds."""
        images = saved.get("images", ()) if isinstance(saved, Mapping) else ()
        if images is None:
            return
        if not (isinstance(images, Tensor) and images.ndim > 2 and images.is_floating_point() and images.numel()):
            raise CheckpointError(f"state: {where}: expected chains of images, got something else")
        if self.size is not None and len(images) != self.size:
            raise CheckpointError(f"state: {where}: expected {self.size} chains, got {len(images)}")

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Bring copied chains back, or none."""
        images = saved["images"]
        self.images = None if images is None else images.clone()  # not in place: then this is undone by reference

    def tensors(self) -> list[Tensor | None]:
        """List the tensors in use: a recorded graph must notice when one is replaced."""
        return [self.images]


def sample(
    model: nn.Module,
    shape: Sequence[int],
    *,
    labels: Tensor | None = None,
    start: Tensor | None = None,
    steps: int = 20,
    rate: float = 0.1,
    noise: float = 0.01,
    low: float = -1.0,
    high: float = 1.0,
    clamp: tuple[float, float] | None = None,
    grad_clip: float | None = None,
    seed: int = 0,
) -> Tensor:
    """Draw Langevin samples of the density p(x) ∝ Σ exp f(x) that a classifier holds.

    `shape` is (n, C, H, W). With `labels` (n,) the samples follow p(x | y), as in the paper's pictures. Chains
    begin at `start`, or at U(low, high). The model's parameters, statistics, gradients and mode stay as they are.

    >>> import torch, steep
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 10))
    >>> steep.sample(model, (4, 3, 8, 8), labels=torch.tensor([0, 1, 2, 3]), steps=5).shape
    torch.Size([4, 3, 8, 8])
    """
    like = like_images(model)
    generator = torch.Generator(like.device).manual_seed(seed)
    with torch.inference_mode(False):
        if start is None:
            start = torch.empty(tuple(shape), device=like.device, dtype=like.dtype)
            start.uniform_(low, high, generator=generator)
        elif tuple(start.shape) != tuple(shape):
            raise InputError(f"start: expected the shape {tuple(shape)}, got {tuple(start.shape)}")
        start = start.to(like.device, like.dtype).clone()
        if labels is not None:
            if not isinstance(labels, Tensor) or labels.shape != (len(start),) or labels.is_floating_point():
                got = f"{labels.dtype} {tuple(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
                raise InputError(f"labels: expected a tensor of {len(start)} integers, got {got}")
            labels = labels.to(like.device)
        modes = {module: module.training for module in model.modules()}
        model.eval()
        try:
            return langevin(
                lambda x: energy(as_logits(model(x.clone())), labels),  # it may write into them
                start,
                steps=steps,
                rate=rate,
                noise=noise,
                generator=generator,
                clamp=clamp,
                grad_clip=grad_clip,
            )
        finally:
            for module, mode in modes.items():
                module.training = mode
