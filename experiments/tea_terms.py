"""TEA with what stands in its published code as an option or as a comment (yuanyige/tea, commit 025f493).

The recipes `explain-*-again.toml` name these methods: lines for where the paper's figures may come from, no part of the
package. On one process only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from steep.core.batch import mean
from steep.core.constraints import Real, hyper
from steep.core.langevin import langevin
from steep.core.losses import energy
from steep.core.method import Look, Step
from steep.core.optim import backward, update
from steep.methods.tea import TEA, TeaState


@dataclass(frozen=True, kw_only=True)
class Diverse(TEA):
    """The terms of SHOT added to the loss: the lines stand there, commented out, with the weights below."""

    name = "tea-diverse"
    look = Look("#8C510A", "square")

    diversity: float = hyper(0.95, Real(least=0))  # 1 − λ, λ = 0.05
    label_weight: float = hyper(0.3, Real(least=0))
    threshold: float = hyper(0.9, Real(least=0, most=1))

    def step(self, state: TeaState, x: Tensor) -> Step:
        """Energy of images and samples − diversity of the answers + weight × confident pseudo-label loss."""
        samples = self.draw(state, x)
        logits = state.model(x)
        p = logits.softmax(dim=1)
        average = mean(p)
        uniform = (average * (average + 1e-5).log()).sum()
        sure, labels = p.detach().max(dim=1)
        labelled = mean(cross_entropy(logits, labels, reduction="none"), where=sure > self.threshold)
        loss = mean(energy(logits)) + self.diversity * uniform + self.label_weight * labelled
        backward(loss)
        energy_samples = mean(energy(state.model(samples)))
        backward(-energy_samples)
        update(state.optimizer)
        return Step(logits, (loss - energy_samples).detach(), energy_samples=energy_samples.detach())


@dataclass(frozen=True, kw_only=True)
class OfClasses(TEA):
    """Each chain follows the logit of a class that is drawn for it: the option `cond` there."""

    name = "tea-of-classes"
    look = Look("#BF812D", "square")

    def draw(self, state: TeaState, x: Tensor) -> Tensor:
        """Take chains out of the buffer, walk each towards its class, put them back."""
        start, where = state.buffer.draw(self.chains or len(x), x, state.generator)
        drawn = torch.rand(len(start), generator=state.generator, device=x.device)

        def towards(samples: Tensor) -> Tensor:
            logits = state.model(samples)
            return energy(logits, (drawn * logits.shape[1]).long().clamp_max(logits.shape[1] - 1))

        with state.model.frozen():
            chains = langevin(
                towards, start, steps=self.sgld_steps, rate=self.sgld_rate, noise=self.sgld_noise,
                generator=state.generator,
            )  # fmt: skip
        state.buffer.put(where, chains)
        return chains


@dataclass(frozen=True, kw_only=True)
class FromImages(TEA):
    """Chains that begin at the test images: `init_sample = x` stands there, commented out."""

    name = "tea-from-images"
    look = Look("#DFC27D", "square")

    def draw(self, state: TeaState, x: Tensor) -> Tensor:
        """Walk from the images of the batch, or from the first of them; nothing waits in the buffer."""
        with state.model.frozen():
            return langevin(
                lambda samples: energy(state.model(samples)), x[: self.chains or len(x)],
                steps=self.sgld_steps, rate=self.sgld_rate, noise=self.sgld_noise, generator=state.generator,
            )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Together(TEA):
    """Images and samples in one pass, normalised by the statistics of both; the published code takes two passes."""

    name = "tea-together"
    look = Look("#80CDC1", "square")

    def step(self, state: TeaState, x: Tensor) -> Step:
        """The loss of TEA from one pass."""
        samples = self.draw(state, x)
        logits = state.model(torch.cat([x, samples]))
        energy_images, energy_samples = mean(energy(logits[: len(x)])), mean(energy(logits[len(x) :]))
        loss = energy_images - energy_samples
        backward(loss)
        update(state.optimizer)
        return Step(logits[: len(x)], loss.detach(), energy_samples=energy_samples.detach())
