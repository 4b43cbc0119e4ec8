"""TEA: Test-time Energy Adaptation (Yuan et al., CVPR 2024)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steep.core.batch import gather, mean, size
from steep.core.constraints import Choice, Interval, Layers, Real, Whole, hyper
from steep.core.langevin import ReplayBuffer, langevin
from steep.core.losses import energy
from steep.core.method import Look, Method, Need, Params, SourceModel, Step
from steep.core.optim import DescentState, adam, backward, update


@dataclass
class TeaState(DescentState):
    """The model, its optimiser, the chains and the random stream that moves them."""

    buffer: ReplayBuffer
    generator: torch.Generator


@dataclass(frozen=True, kw_only=True)
class TEA(Method[TeaState]):
    """Contrastive divergence: lower the energy of the test images, raise that of samples drawn from the model."""

    name = "tea"
    paper = "Yuan et al., TEA: Test-time Energy Adaptation, 2024, arXiv:2311.14402"
    predicts = "after"
    memory_advice = "`chains` or `buffer_size`"
    needs = frozenset({Need.SAMPLES})
    look = Look("#D55E00", "circle")
    equation = """
        E(x) = −log Σ_k exp f(x)_k
        θ ← θ − β ∇ [ mean E(x_test) − mean E(x̃) ]
        x̃ ← x̃ − rate · ∂E/∂x̃ + noise · ε,   ε ∼ N(0, I),   T times, from the buffer or from p0
    """

    lr: float = hyper(1e-3, Real(above=0))  # β in Algorithm 1
    params: Params = hyper("norm", Layers())
    statistics: str = hyper("batch", Choice("batch", "source"))
    sgld_steps: int = hyper(20, Whole(least=0))  # T
    sgld_rate: float = hyper(0.1, Real(least=0))  # on ∂E/∂x; the paper's α/2
    sgld_noise: float = hyper(0.01, Real(least=0))  # standard deviation of ε; the paper's α
    chains: int | None = hyper(None, Whole(least=1, optional=True))  # samples per update; None: as many as test images
    buffer_size: int | None = hyper(None, Whole(least=1, optional=True))  # chains that wait; None: 10,000 or 512 MiB
    restart: float = hyper(0.05, Real(least=0, most=1))  # share of chains that begin anew, from p0
    start: tuple[float, float] = hyper((-1.0, 1.0), Interval())  # p0 = U(low, high)
    clamp: tuple[float, float] | None = hyper(None, Interval(optional=True))  # limits of a sample's values
    grad_clip: float | None = hyper(None, Real(above=0, optional=True))  # greatest length of a sample's step

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

    def passes(self, batch_size: int, images: int) -> float:
        """One gradient of the images, one of the samples, and before it one by each sample for each Langevin step."""
        share = (self.chains or batch_size) / batch_size
        return (1 + share) * super().passes(batch_size, images) + share * 2 * self.sgld_steps
