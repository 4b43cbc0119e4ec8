"""What TEA's samples do to the energies, and how far the parameters go with and without them (docs/samples.md).

    python -m benchmarks.samples --root DATA --out results/samples-energies-cpu.jsonl
    python -m benchmarks.samples --data digits-c --model resnet-18-gn --options '{"width": 16, "groups": 4}' \\
        --weights WEIGHTS --methods source shot tent energy tea-fast tea --batch 20 --precision float32 --out ...

CIFAR-10-C at severity 5 and the shipped WRN-40-2, where nothing else is said; guard off. Each method meets the
corruptions in turn, once reset before each and once never. A row for each of them: accuracy, ECE, which images were
right; the mean energy, under the source parameters (normalised as the method does) and under the adapted ones, of the
test images, of uniform noise, of Langevin samples of the source model, and of samples of the model itself; and how far
the adapted parameters have gone, as a share of their length.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import steep
from benchmarks.rows import append
from steep import provenance
from steep.bench.rows import packed
from steep.bench.sources import weights_sha256
from steep.core.classifier import Classifier
from steep.core.langevin import langevin
from steep.data import batches, load, to_device
from steep.training.weights import weights_file

SHIFTS = {
    "cifar10-c": ("gaussian_noise", "fog", "defocus_blur", "contrast", "jpeg_compression"),
    "digits-c": ("gaussian_noise", "impulse_noise", "contrast", "fog", "pixelate"),
}
PROTOCOLS = ("reset", "continual")
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ("source", "bn", "shot", "tent")},
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
    if not then:
        return 0.0
    way = sum(float((value - then[name]).detach().square().sum()) for name, value in adapted.adapted().items())
    return float((way / sum(float(value.detach().square().sum()) for value in then.values())) ** 0.5)


def rows(model: torch.nn.Module, variant: str, protocol: str, sets: dict[str, Any], asked: argparse.Namespace):
    """Adapt to each set in turn; a row for each."""
    method, hyper = VARIANTS[variant]
    chosen = {"seed": asked.seed, "device": asked.device, "precision": asked.precision, "guard": "off"}
    adapter = steep.adapt(model, method, **chosen, **hyper)
    adapted: Classifier = adapter._state.model
    source: Classifier = steep.adapt(model, method, **chosen, **hyper)._state.model  # meets no image
    one = to_device(next(iter(sets.values())).images[:1].copy(), "cpu")
    noise = torch.empty(asked.chains, *one.shape[1:]).uniform_(*START, generator=torch.Generator().manual_seed(0))
    noise = noise.to(adapter.device)
    source_samples = samples(source, noise)
    for name, data in sets.items():
        if protocol == "reset":
            adapter.reset()
        answers, labels = zip(
            *((adapter(x), y) for x, y in batches(data, asked.batch, device=adapter.device)), strict=True
        )
        logits, truth = torch.cat(answers), torch.cat(labels)
        right, bars = logits.argmax(dim=1) == truth, steep.metrics.reliability(logits, truth)
        seen = {
            "images": to_device(data.images.copy(), adapter.device),
            "noise": noise,
            "source_samples": source_samples,
        }
        yield {
            "benchmark": "samples", "data": asked.data, "model": asked.model, "options": asked.options,
            "weights_sha256": weights_sha256(weights_file(asked.weights)), "severity": asked.severity,
            "method": variant, "hyper": hyper, "protocol": protocol, "shift": name, "n": len(data),
            "batch": asked.batch, "seed": asked.seed, "precision": asked.precision, "chains": asked.chains,
            "accuracy": round(float(right.float().mean()), 6), "right": packed(right.cpu().numpy()),
            "ece": round(bars.ece, 6), "calibration": {
                "counts": bars.counts, "confidence": bars.confidence, "accuracy": bars.accuracy
            },
            "source": energies(source, {**seen, "samples": source_samples}, asked.batch),
            "adapted": energies(adapted, {**seen, "samples": samples(adapted, noise)}, asked.batch),
            "drift": round(drift(adapted, source), 6),
            **provenance.stamp(asked.device),
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10-c", choices=list(SHIFTS))
    parser.add_argument("--model", default="wrn-40-2")
    parser.add_argument("--options", type=json.loads, default={}, help='of the model, such as {"width": 16}')
    parser.add_argument(
        "--weights", default="cifar10-wrn-40-2", help="a file, or the name of weights that come with steep"
    )
    parser.add_argument("--root", type=Path, help="where data lives")
    parser.add_argument("--methods", nargs="+", default=["tent", "energy", "tea-fast", "tea"], choices=list(VARIANTS))
    parser.add_argument("--protocols", nargs="+", default=list(PROTOCOLS), choices=PROTOCOLS)
    parser.add_argument("--severity", type=int, default=5)
    parser.add_argument("--limit", type=int, default=1000, help="only the first so many images of a set")
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--chains", type=int, default=50, help="samples that are measured")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    sets = {
        name: load(asked.data, root=asked.root, corruption=name, severity=asked.severity, limit=asked.limit)
        for name in SHIFTS[asked.data]
    }
    first = next(iter(sets.values()))
    model = steep.models.build(asked.model, len(first.classes), in_channels=first.images.shape[-1], **asked.options)
    steep.models.checkpoints.load(model, weights_file(asked.weights))
    for variant in asked.methods:
        for protocol in asked.protocols:
            for row in rows(model.eval(), variant, protocol, sets, asked):
                print(
                    f"{variant:12} {protocol:10} {row['shift']:18} {row['accuracy']:6.1%} drift {row['drift']:.4f} "
                    f"images {row['source']['images']:.2f} → {row['adapted']['images']:.2f} "
                    f"samples {row['source']['samples']:.2f} → {row['adapted']['samples']:.2f}",
                    flush=True,
                )
                append(asked.out, row)


if __name__ == "__main__":
    main()
