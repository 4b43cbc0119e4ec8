"""What TEA's samples do to the energies, and how far the parameters go with and without them (docs/samples.md).

    python -m benchmarks.samples --root DATA --out results/samples-energies-cpu.jsonl

CIFAR-10-C at severity 5, the shipped WRN-40-2, guard off. Each method meets five corruptions in turn, once reset before
each and once never. A row for each of them: the mean energy, under the source parameters (with batch statistics) and
under the adapted ones, of the test images, of uniform noise, of Langevin samples of the source model, and of samples of
the model itself; and how far the adapted parameters have gone, as a share of their length.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import steep
from benchmarks.rows import append
from steep import provenance
from steep.core.classifier import Classifier
from steep.core.langevin import langevin
from steep.data import batches, load, to_device
from steep.training.weights import weights_file

SHIFTS = ("gaussian_noise", "fog", "defocus_blur", "contrast", "jpeg_compression")
PROTOCOLS = ("reset", "continual")
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "tent": ("tent", {}),
    "energy": ("energy", {}),
    "tea-fast": ("tea-fast", {}),
    "tea-5-steps": ("tea", {"sgld_steps": 5}),
    "tea": ("tea", {}),
}
STEPS, RATE, NOISE, START = 20, 0.1, 0.01, (-1.0, 1.0)  # of the samples that are measured: TEA's, whatever the method's


def mean_energy(model: Classifier, images: Tensor, batch: int) -> float:
    """Mean energy of images, each batch normalised by itself, as the methods do it."""
    with torch.no_grad():
        return float(torch.cat([steep.energy(model(x)).float() for x in images.split(batch)]).mean())


def samples(model: Classifier, start: Tensor) -> Tensor:
    """Walk chains down the energy from where they start; with one seed, so that all models get the same noise."""
    generator = torch.Generator(start.device).manual_seed(0)
    with model.frozen():
        return langevin(
            lambda x: steep.energy(model(x)), start, steps=STEPS, rate=RATE, noise=NOISE, generator=generator
        )


def energies(model: Classifier, sets: dict[str, Tensor], batch: int) -> dict[str, float]:
    """Mean energy of each set of images."""
    return {name: round(mean_energy(model, images, batch), 4) for name, images in sets.items()}


def drift(adapted: Classifier, source: Classifier) -> float:
    """Length of the way the adapted parameters have gone, as a share of their length."""
    then = source.adapted()
    way = sum(float((value - then[name]).detach().square().sum()) for name, value in adapted.adapted().items())
    return float((way / sum(float(value.detach().square().sum()) for value in then.values())) ** 0.5)


def rows(model: torch.nn.Module, variant: str, protocol: str, sets: dict[str, Any], told: argparse.Namespace):
    """Adapt to each set in turn; a row for each."""
    method, hyper = VARIANTS[variant]
    chosen = {"seed": told.seed, "device": told.device, "precision": told.precision, "guard": "off"}
    adapter = steep.adapt(model, method, **chosen, **hyper)
    adapted: Classifier = adapter._state.model
    source: Classifier = steep.adapt(model, method, **chosen, **hyper)._state.model  # meets no image
    side = next(iter(sets.values())).images.shape[1:3]
    noise = torch.empty(told.chains, 3, *side).uniform_(*START, generator=torch.Generator().manual_seed(0))
    noise = noise.to(adapter.device)
    source_samples = samples(source, noise)
    for name, data in sets.items():
        if protocol == "reset":
            adapter.reset()
        right = torch.zeros((), device=adapter.device)
        for x, y in batches(data, told.batch, device=adapter.device):
            right += (adapter(x).argmax(dim=1) == y).sum()
        shown = {
            "images": to_device(data.images.copy(), adapter.device),
            "noise": noise,
            "source_samples": source_samples,
        }
        yield {
            "benchmark": "samples", "data": "cifar10-c", "model": "wrn-40-2", "severity": told.severity,
            "method": variant, "hyper": hyper, "protocol": protocol, "shift": name, "n": len(data),
            "batch": told.batch, "seed": told.seed, "precision": told.precision, "chains": told.chains,
            "accuracy": round(float(right) / len(data), 6),
            "source": energies(source, {**shown, "own_samples": source_samples}, told.batch),
            "adapted": energies(adapted, {**shown, "own_samples": samples(adapted, noise)}, told.batch),
            "drift": round(drift(adapted, source), 6),
            **provenance.stamp(told.device),
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="where data lives")
    parser.add_argument("--methods", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--protocols", nargs="+", default=list(PROTOCOLS), choices=PROTOCOLS)
    parser.add_argument("--shifts", nargs="+", default=list(SHIFTS))
    parser.add_argument("--severity", type=int, default=5)
    parser.add_argument("--limit", type=int, default=1000, help="only the first so many images of a set")
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--chains", type=int, default=50, help="samples that are measured")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    sets = {
        name: load("cifar10-c", root=told.root, corruption=name, severity=told.severity, limit=told.limit)
        for name in told.shifts
    }
    model = steep.models.build("wrn-40-2", 10)
    steep.models.checkpoints.load(model, weights_file("cifar10-wrn-40-2"))
    for variant in told.methods:
        for protocol in told.protocols:
            for row in rows(model.eval(), variant, protocol, sets, told):
                print(
                    f"{variant:12} {protocol:10} {row['shift']:18} {row['accuracy']:6.1%} drift {row['drift']:.4f} "
                    f"images {row['source']['images']:.2f} → {row['adapted']['images']:.2f} "
                    f"samples {row['source']['own_samples']:.2f} → {row['adapted']['own_samples']:.2f}",
                    flush=True,
                )
                append(told.out, row)


if __name__ == "__main__":
    main()
