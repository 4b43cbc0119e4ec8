"""TEA as one would write it down from the paper: float32, eager, nothing else. The baseline of every speed ratio.

It shares no code with the library, so that no improvement there moves the baseline.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PlainTEA:
    """Adapts the BatchNorm parameters of a model; call it with a batch."""

    def __init__(self, model: nn.Module, *, lr: float = 1e-3, steps: int = 20, rate: float = 0.1, noise: float = 0.01):
        self.model, self.steps, self.rate, self.noise = model.train(), steps, rate, noise
        model.requires_grad_(False)
        params = []
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
                params += list(layer.requires_grad_(True).parameters())
        self.optimizer = torch.optim.Adam(params, lr=lr)
        self.buffer: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        if self.buffer is None:
            self.buffer = torch.empty(10_000, *x.shape[1:], device=x.device).uniform_(-1, 1)
        where = torch.randint(len(self.buffer), (len(x),), device=x.device)
        fresh = (torch.rand(len(x), device=x.device) < 0.05).float()[:, None, None, None]
        samples = fresh * torch.empty_like(x).uniform_(-1, 1) + (1 - fresh) * self.buffer[where]
        for _ in range(self.steps):
            samples = samples.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.model(samples).logsumexp(1).sum(), samples)
            samples = samples.detach() + self.rate * slope + self.noise * torch.randn_like(samples)
        samples = samples.detach()
        self.buffer[where] = samples
        loss = self.model(samples).logsumexp(1).mean() - self.model(x).logsumexp(1).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            return self.model(x)
