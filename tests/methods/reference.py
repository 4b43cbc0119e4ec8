"""A small classifier and its twin in plain numpy, derived by hand: forward, backward, Adam, SGD.

The derivation tests replay every method with this twin. It shares no line with steep and does not use autograd;
`test_derivations_reference.py` checks its backward pass by finite differences.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor, nn

Array = np.ndarray
Arrays = dict[str, Array]

EPS = 1e-5  # of BatchNorm
FULL_BATCH = 16  # images from which on a batch is normalised by its own statistics alone
NORM = ("bn1.weight", "bn1.bias", "bn2.weight", "bn2.bias")


class SmallNet(nn.Module):
    """(B, 3, H, W) → conv, BatchNorm, ReLU, conv, BatchNorm, ReLU, mean, linear → (B, classes)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 6, 3)
        self.bn2 = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x)).relu()
        x = self.bn2(self.conv2(x)).relu()
        return self.fc(x.mean(dim=(2, 3)))


def make_net(seed: int = 0, *, classes: int = 5, sharpness: float = 3.0) -> SmallNet:
    """Float64, with weights, affine parameters and running statistics that are all random and all different."""
    generator = torch.Generator().manual_seed(seed)

    def normal(t: Tensor, mean: float, std: float) -> None:
        t.copy_(mean + std * torch.randn(t.shape, generator=generator, dtype=t.dtype))

    net = SmallNet(classes).double().eval()
    with torch.no_grad():
        for name, p in net.named_parameters():
            normal(p, *((1.0, 0.2) if name in ("bn1.weight", "bn2.weight") else (0.0, 0.3)))
        net.fc.weight *= sharpness / 0.3
        for bn in (net.bn1, net.bn2):
            normal(bn.running_mean, 0.1, 0.3)
            bn.running_var.uniform_(0.3, 1.5, generator=generator)
    return net


def make_images(seed: int, n: int = 20, *, side: int = 6, low: float = 0.0, high: float = 1.0) -> Tensor:
    """(n, 3, side, side) in float64, uniform in [low, high], each image with a brightness of its own."""
    generator = torch.Generator().manual_seed(1000 + seed)
    x = torch.rand(n, 3, side, side, generator=generator, dtype=torch.float64)
    shade = torch.rand(n, 3, 1, 1, generator=generator, dtype=torch.float64)
    return low + (high - low) * 0.5 * (x + shade)


class Hand:
    """SmallNet in numpy.

    `statistics` to normalise by: "source" the running ones, "train" those of the batch, "batch" those of the batch
    mixed with the running ones below FULL_BATCH images.
    """

    def __init__(self, net: nn.Module, statistics: str = "batch") -> None:
        self.params: Arrays = {n: p.detach().numpy().copy() for n, p in net.named_parameters()}
        self.running: Arrays = {n: b.numpy().copy() for n, b in net.named_buffers() if b.is_floating_point()}
        self.statistics = statistics
        self.seen: dict[str, tuple[Array, Array]] = {}  # of the last forward: batch mean and biased variance

    def logits(self, x: Tensor | Array) -> Array:
        return self._forward(np.asarray(x))[0]

    def backward(self, x: Tensor | Array, slope: Array) -> tuple[Arrays, Array]:
        """Gradients wrt every parameter and wrt the images, of a loss whose gradient wrt the logits is `slope`."""
        x = np.asarray(x)
        _, (c1, r1, c2, r2, pooled) = self._forward(x)
        p, grads = self.params, {}
        grads["fc.weight"], grads["fc.bias"] = slope.T @ pooled, slope.sum(axis=0)
        d = np.broadcast_to((slope @ p["fc.weight"])[:, :, None, None], r2.shape) / (r2.shape[2] * r2.shape[3])
        d = self._bn_backward("bn2", c2, d * (r2 > 0), grads)
        d = self._conv_backward("conv2", r1, d, 0, grads)
        d = self._bn_backward("bn1", c1, d * (r1 > 0), grads)
        return grads, self._conv_backward("conv1", x, d, 1, grads)

    def _forward(self, x: Array) -> tuple[Array, tuple[Array, ...]]:
        p = self.params
        c1 = self._conv("conv1", x, 1)
        r1 = np.maximum(self._bn("bn1", c1), 0)
        c2 = self._conv("conv2", r1, 0)
        r2 = np.maximum(self._bn("bn2", c2), 0)
        pooled = r2.mean(axis=(2, 3))
        return pooled @ p["fc.weight"].T + p["fc.bias"], (c1, r1, c2, r2, pooled)

    def _conv(self, name: str, x: Array, pad: int) -> Array:
        y = np.einsum("bchwij,ocij->bohw", _windows(x, pad), self.params[f"{name}.weight"], optimize=True)
        return y + _wide(self.params[f"{name}.bias"])

    def _conv_backward(self, name: str, x: Array, d: Array, pad: int, grads: Arrays) -> Array:
        weight = self.params[f"{name}.weight"]
        grads[f"{name}.weight"] = np.einsum("bchwij,bohw->ocij", _windows(x, pad), d, optimize=True)
        grads[f"{name}.bias"] = d.sum(axis=(0, 2, 3))
        # y[h] = Σ_i w[i] x[h + i − pad], so dx[h] = Σ_i w[i] d[h − i + pad]: a correlation with the turned kernel
        turned = weight[:, :, ::-1, ::-1]
        return np.einsum("bohwij,ocij->bchw", _windows(d, 2 - pad), turned, optimize=True)

    def _moments(self, name: str, x: Array) -> tuple[Array, Array, Array, float]:
        """Mean and variance to normalise by, the batch's own mean, and the share w of the batch in the mixture."""
        mean, var = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
        self.seen[name] = mean, var
        w = {"source": 0.0, "train": 1.0, "batch": min(1.0, len(x) / FULL_BATCH)}[self.statistics]
        source_mean, source_var = self.running[f"{name}.running_mean"], self.running[f"{name}.running_var"]
        return w * mean + (1 - w) * source_mean, w * var + (1 - w) * source_var, mean, w

    def _bn(self, name: str, x: Array) -> Array:
        mean, var, _, _ = self._moments(name, x)
        x = (x - _wide(mean)) / np.sqrt(_wide(var) + EPS)
        return x * _wide(self.params[f"{name}.weight"]) + _wide(self.params[f"{name}.bias"])

    def _bn_backward(self, name: str, x: Array, d: Array, grads: Arrays) -> Array:
        mean, var, own_mean, w = self._moments(name, x)
        scale = 1 / np.sqrt(_wide(var) + EPS)
        centred = x - _wide(mean)
        axes, n = (0, 2, 3), x[:, 0].size
        grads[f"{name}.weight"], grads[f"{name}.bias"] = (d * centred * scale).sum(axis=axes), d.sum(axis=axes)
        d = d * _wide(self.params[f"{name}.weight"])
        d_mean = -(d * scale).sum(axis=axes, keepdims=True)
        d_var = (d * centred * -0.5 * scale**3).sum(axis=axes, keepdims=True)
        return d * scale + w * (d_mean + 2 * d_var * (x - _wide(own_mean))) / n


def _windows(x: Array, pad: int) -> Array:
    """(B, C, H, W) → every 3 × 3 window of it, (B, C, H', W', 3, 3)."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    return sliding_window_view(x, (3, 3), axis=(2, 3))


def _wide(v: Array) -> Array:
    return v[None, :, None, None]


def softmax(z: Array) -> Array:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def entropy(z: Array) -> Array:
    """H = −Σ p ln p of each row."""
    p = softmax(z)
    return -(p * np.log(p)).sum(axis=1)


def entropy_slope(z: Array) -> Array:
    """∂H_i/∂z_ik = −p_ik (ln p_ik + H_i)."""
    p = softmax(z)
    return -p * (np.log(p) + entropy(z)[:, None])


def cross_entropy(z: Array, labels: Array) -> Array:
    return -np.log(softmax(z)[np.arange(len(z)), labels])


def cross_entropy_slope(z: Array, labels: Array) -> Array:
    """∂CE_i/∂z_ik = p_ik − [k = y_i]."""
    return softmax(z) - np.eye(z.shape[1])[labels]


def energy(z: Array) -> Array:
    """E = −ln Σ exp z of each row; ∂E_i/∂z_ik = −p_ik."""
    return -np.log(np.exp(z).sum(axis=1))


class Adam:
    """Kingma & Ba, Algorithm 1, with the usual constants."""

    def __init__(self, lr: float) -> None:
        self.lr, self.t = lr, 0
        self.m: Arrays = {}
        self.v: Arrays = {}

    def step(self, params: Arrays, grads: Mapping[str, Array]) -> None:
        self.t += 1
        for name, g in grads.items():
            self.m[name] = 0.9 * self.m.get(name, 0.0) + 0.1 * g
            self.v[name] = 0.999 * self.v.get(name, 0.0) + 0.001 * g**2
            m, v = self.m[name] / (1 - 0.9**self.t), self.v[name] / (1 - 0.999**self.t)
            params[name] = params[name] - self.lr * m / (np.sqrt(v) + 1e-8)


class Momentum:
    """SGD with heavy-ball momentum as in PyTorch: v ← 0.9 v + g, θ ← θ − lr v."""

    def __init__(self, lr: float) -> None:
        self.lr = lr
        self.v: Arrays = {}

    def step(self, params: Arrays, grads: Mapping[str, Array]) -> None:
        for name, g in grads.items():
            self.v[name] = 0.9 * self.v.get(name, 0.0) + g
            params[name] = params[name] - self.lr * self.v[name]


def only(grads: Arrays, names: tuple[str, ...] = NORM) -> Arrays:
    """The gradients of the parameters that adapt."""
    return {name: grads[name] for name in names}


def assert_params(model: nn.Module, hand: Hand, moved: tuple[str, ...] = NORM, *, tol: float = 1e-10) -> None:
    """Every parameter that may move is where the derivation puts it; all others and all statistics are bit for bit."""
    for name, p in model.named_parameters():
        limit = tol if name in moved else 0.0
        np.testing.assert_allclose(p.detach().numpy(), hand.params[name], rtol=limit, atol=limit, err_msg=name)
    for name, b in model.named_buffers():
        if name in hand.running:
            np.testing.assert_array_equal(b.numpy(), hand.running[name], err_msg=name)


def assert_close(actual: Tensor | Array | float, expected: Array | float, tol: float = 1e-10) -> None:
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=tol, atol=tol)


def at_rest(state: dict) -> bool:
    """Whether a saved optimiser has taken no step: every moment, momentum and counter is zero."""
    kept = [t for p in state["optimizer"]["state"].values() for t in p.values()]
    return bool(kept) and all(not t.any() for t in kept)
