"""What shows without labels, and what the labels say: rows to fit and to check the estimate of `steep.compare` on.

    python -m benchmarks.label_free --model wrn-40-2 --weights cifar10-wrn-40-2 --root DATA --out results/x.jsonl

A model goes through streams of two parts: "fit" is of four corruptions that no benchmark uses, "check" of the other 15.
Corruptions, severities, pictures, methods and one clean stream in ten are drawn; the seed decides them. A row for each
stream and method has the signs of `steep.comparing` and the true accuracies. A run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

import steep
from benchmarks.rows import append
from steep import provenance
from steep.comparing import Signs
from steep.comparing.compare import VIEWS
from steep.data import ImageSet, label_shift, load, to_device
from steep.methods import SOURCE
from steep.predicting import load_model

EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
PARTS = {"fit": EXTRA, "check": tuple(name for name in steep.CORRUPTIONS if name not in EXTRA)}
SEVERITIES = (1, 3, 5)
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        name: (name, {}) for name in ("bn", "alpha-bn", "tent", "energy", "infuse", "roid", "sar", "lame", "t3a", "dua")
    },
    **{name: (name, {}) for name in ("shot", "tea-fast")},
    "tent, rate 0.02": ("tent", {"lr": 0.02}),  # meant to do harm
    "energy, rate 0.01": ("energy", {"lr": 0.01}),
}
PROTOCOLS = {  # name → (images, batch size)
    "batches of 100": (400, 100),
    "batches of 16": (256, 16),
    "batches of 4": (160, 4),
    "batches of 1": (80, 1),
    "class by class": (300, 20),
    "label shift": (400, 50),
    "mixed": (400, 100),
    "continual": (600, 50),
    "one class first": (300, 20),
}


class Stream(NamedTuple):
    """Pictures in an order, and what they are."""

    shifts: list[tuple[str, int]]
    images: npt.NDArray[np.uint8]  # (N, H, W, C)
    labels: npt.NDArray[np.int64]


def drawn_stream(
    data: ImageSet, protocol: str, corruptions: tuple[str, ...], rng: np.random.Generator, share: float
) -> Stream:
    """Draw corruptions and pictures, and bring them into the order of a protocol."""
    n = round(PROTOCOLS[protocol][0] * share)
    kinds = 4 if protocol in ("mixed", "continual") else 1
    shifts = [(str(name), int(rng.choice(SEVERITIES))) for name in rng.choice(corruptions, kinds, replace=False)]
    if kinds == 1 and rng.random() < 0.1:
        shifts = [("clean", 0)]
    chosen = np.sort(rng.choice(len(data), min(n, len(data)), replace=False))
    pictures, labels = np.array(data.images[chosen]), np.array(data.labels[chosen])
    cut = np.array_split(rng.permutation(len(chosen)), kinds)
    for (name, severity), where in zip(shifts, cut, strict=True):
        if severity:
            pictures[where] = steep.corrupt(pictures[where], name, severity=severity, seed=int(rng.integers(1 << 30)))
    order = np.concatenate(cut)
    if protocol == "mixed":
        order = rng.permutation(order)
    elif protocol == "class by class":
        order = order[np.argsort(labels[order], kind="stable")]
    elif protocol == "label shift":
        order = label_shift(labels, 0.1, seed=int(rng.integers(1 << 30)))
    elif protocol == "one class first":
        one = labels[order] == rng.choice(labels)
        order = np.concatenate([order[one], order[~one]])
    return Stream(shifts, pictures[order], labels[order])


def measured(
    model: torch.nn.Module, stream: Stream, batch: int, methods: list[str], view: str, device: str
) -> Iterator[dict[str, Any]]:
    """Give the signs and the accuracy of the source model and of every method that can adapt the model."""
    adapters = {SOURCE: steep.adapt(model, SOURCE, device=device)}
    for label in methods:
        name, hyper = METHODS[label]
        try:
            adapters[label] = steep.adapt(model, name, device=device, **hyper)
        except steep.errors.NothingToAdaptError:
            continue  # without BatchNorm
    signs = {label: Signs() for label in adapters}
    classes: dict[str, list[torch.Tensor]] = {label: [] for label in adapters}
    for start in range(0, len(stream.images), batch):
        x = to_device(stream.images[start : start + batch], device)
        for label, adapter in adapters.items():
            logits = adapter(x)
            signs[label].add(logits, adapter.peek(x, VIEWS[view]))
            classes[label].append(logits.argmax(dim=1).cpu())
    answers = {label: torch.cat(parts).numpy() for label, parts in classes.items()}
    right = {label: float((answer == stream.labels).mean()) for label, answer in answers.items()}
    for label in list(adapters)[1:]:
        yield {
            "method": label,
            "accuracy_source": right[SOURCE],
            "accuracy": right[label],
            "changed": float((answers[label] != answers[SOURCE]).mean()),
            "signs_source": rounded(signs[SOURCE].read()),
            "signs": rounded(signs[label].read()),
        }


def rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in values.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--model", default="wrn-40-2")
    parser.add_argument("--options", type=json.loads, default={}, help='of the model, such as {"width": 16}')
    parser.add_argument("--weights", required=True, help="a file, or the name of weights that come with steep")
    parser.add_argument("--root", type=Path, help="where data lives")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--some", type=int, help="so many of the methods, drawn for each stream")
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=list(PROTOCOLS))
    parser.add_argument("--each", type=int, default=4, help="streams of each protocol and part")
    parser.add_argument("--share", type=float, default=1.0, help="of each protocol's images")
    parser.add_argument("--view", choices=VIEWS, default="mirror")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    data = load(asked.data, root=asked.root)
    if asked.options:
        model = steep.models.build(asked.model, len(data.classes), in_channels=data.images.shape[-1], **asked.options)
        steep.models.checkpoints.load(model, asked.weights)
    else:
        model = load_model(asked.model, weights=asked.weights).model
    model = model.eval().to(memory_format=torch.channels_last)
    base = {"benchmark": "label-free", "data": asked.data, "model": asked.model, "weights": Path(asked.weights).stem}
    lines = asked.out.read_text(encoding="utf-8").splitlines() if asked.out.exists() else []
    done = {tuple(json.loads(line)["stream"]) for line in lines}
    for number in range(asked.each):
        for index, protocol in enumerate(asked.protocols):
            for part, corruptions in PARTS.items():
                name = (asked.model, asked.seed, number, protocol, part)
                if name in done:
                    continue
                rng = np.random.default_rng([asked.seed, number, index, part == "fit"])
                stream, batch = drawn_stream(data, protocol, corruptions, rng, asked.share), PROTOCOLS[protocol][1]
                methods = asked.methods
                if asked.some is not None:
                    draw = np.random.default_rng([number * len(PROTOCOLS) + index, part == "fit"])
                    methods = [str(m) for m in draw.choice(methods, asked.some, replace=False)]
                about = {"stream": name, "part": part, "protocol": protocol, "shifts": stream.shifts, "batch": batch}
                about |= {"n": len(stream.labels), "classes": len(data.classes), "view": asked.view}
                for row in measured(model, stream, batch, methods, asked.view, asked.device):
                    gain = 100 * (row["accuracy"] - row["accuracy_source"])
                    print(f"{part:5} {protocol:15} {row['method']:18} {gain:+.1f}", flush=True)
                    append(asked.out, {**base, **about, **row, **provenance.stamp(asked.device)})


if __name__ == "__main__":
    main()
