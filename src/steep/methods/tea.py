"""TEA: Test-time Energy Adaptation (Yuan et al., CVPR 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steep.core.batch import gather, mean, size
from steep.core.classifier import SourceModel
from steep.core.langevin import ReplayBuffer, langevin
from steep.core.layers import Params
from steep.core.losses import energy
from steep.core.method import Method, Moment, Step
from steep.core.optim import DescentState, adam, backward, update


@dataclass
class TeaState(DescentState):
    """The model, its optimiser, the chains and the random stream that moves them."""

    buffer: ReplayBuffer
    generator: torch.Generator


@dataclass(frozen=True, kw_only=True)
class TEA(Method[TeaState]):
    """Contrastive divergence: lower the energy of the test images, raise that of the model's own samples."""

    name: ClassVar = "tea"
    paper: ClassVar = "Yuan et al., TEA: Test-time Energy Adaptation, 2024"
    predicts: ClassVar[Moment] = "after"
    memory_advice: ClassVar[str] = "`chains` or `buffer_size`"

    lr: float = 1e-3  # β in Algorithm 1
    params: Params = "norm"
    statistics: str = "batch"
    sgld_steps: int = 20  # T
    sgld_rate: float = 0.1  # on ∂E/∂x; the paper's α/2
    sgld_noise: float = 0.01  # standard deviation of ε; the paper's α
    chains: int | None = None  # samples per update; None: as many as test images
    buffer_size: int | None = None  # chains that wait for their turn; None: 10,000, fewer if they took over 512 MiB
    restart: float = 0.05  # share of chains that begin anew, from p0
    start: tuple[float, float] = (-1.0, 1.0)  # p0 = U(low, high)
    clamp: tuple[float, float] | None = None
    grad_clip: float | None = None

    def __post_init__(self) -> None:
        """Refuse what would silently mean something else."""
        super().__post_init__()
        chains, size = self.chains is None or self.chains >= 1, self.buffer_size is None or self.buffer_size >= 1
        self.require(chains=chains, buffer_size=size, sgld_steps=self.sgld_steps >= 0, restart=0 <= self.restart <= 1)
        self.require(start=self.start[0] < self.start[1], clamp=not self.clamp or self.clamp[0] < self.clamp[1])

    @staticmethod
    def fast() -> TEA:
        """TEA for the price of Tent: `steep.adapt(model, "tea-fast")`."""
        from steep.methods.tea_fast import TeaFast

        return TeaFast()

    def init(self, source: SourceModel) -> TeaState:
        """Batch statistics, Adam on the normalisation parameters, an empty buffer."""
        model = source.prepare(self.params, self.statistics)
        buffer = ReplayBuffer(self.buffer_size, self.start, self.restart)
        return TeaState(model, adam(model, self.lr), buffer, source.generator())

    def step(self, state: TeaState, x: Tensor) -> Step:
        """θ ← θ − β ∇ [ mean E(x_test) − mean E(x̃) ], x̃ ∼ p_θ by Langevin dynamics."""
        samples = self.draw(state, x)
        logits = state.model(x)  # test images and samples are normalised each by their own batch
        energy_images = mean(energy(logits))
        backward(energy_images)
        energy_samples = mean(energy(state.model(samples)))
        backward(-energy_samples)
        update(state.optimizer)
        return Step(logits, (energy_images - energy_samples).detach(), energy_samples=energy_samples.detach())

    def draw(self, state: TeaState, x: Tensor) -> Tensor:
        """Take chains out of the buffer, walk them down the energy, put them back."""
        start, where = state.buffer.draw(self.chains or size(x), x, state.generator)
        with state.model.frozen():
            chains = langevin(
                lambda x: energy(state.model(x)),
                start,
                steps=self.sgld_steps,
                rate=self.sgld_rate,
                noise=self.sgld_noise,
                generator=state.generator,
                clamp=self.clamp,
                grad_clip=self.grad_clip,
            )
        state.buffer.put(where, gather(chains, len(start)))
        return chains
