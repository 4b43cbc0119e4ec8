"""Streams on which adapting harms: is any method below the source model?

    python -m benchmarks.safety --root DATA --out results/safety.jsonl --methods tent,tea-fast --guards recover,skip

960 CIFAR-10 images as a camera sees them: clean, fog, snow, frost, brightness, clean, severity 4, 160 each. They come
one at a time and in batches of 4 to 200, sorted by class, one class first, images first that the model is wrongly sure
of, with black frames in between, in pairs, and at twenty times the learning rate. The model is the shipped WRN-40-2. A
row per stream, method and guard: accuracy in each sixth of the stream, and what the adapter reported.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import steep
from benchmarks.rows import append
from steep import provenance
from steep.data import load, to_device
from steep.training.weights import find_weights

WEATHER = ("clean", "fog", "snow", "frost", "brightness", "clean")
# To choose the guard on: no benchmark uses these.
HELD_OUT = ("clean", "speckle_noise", "gaussian_blur", "spatter", "saturate", "clean")
EACH = 160
RATE = 0.02


class Stream(NamedTuple):
    """Images in the order in which they come; labels of −1 do not count."""

    images: Tensor
    labels: Tensor
    batch: int
    hyper: dict[str, Any] = {}  # noqa: RUF012

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.images.split(self.batch), self.labels.split(self.batch), strict=True)


def camera(root: Path | None, device: str, each: int = EACH, held_out: bool = False) -> tuple[Tensor, Tensor]:
    parts = []
    for i, weather in enumerate(HELD_OUT if held_out else WEATHER):
        kind = {"corruption": weather, "severity": 3 if held_out else 4} if weather != "clean" else {}
        part = load("cifar10-c" if kind else "cifar10", root=root, limit=each * len(WEATHER), **kind)
        take = slice(each * i, each * (i + 1))
        parts.append((part.images[take].copy(), torch.from_numpy(part.labels[take].copy())))
    return torch.cat([to_device(x, device) for x, _ in parts]), torch.cat([y for _, y in parts]).to(device)


def streams(x: Tensor, y: Tensor, model: nn.Module) -> dict[str, Stream]:
    """Every stream by its name."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(x.device)
    mixed_x, mixed_y = x[order], y[order]
    with torch.no_grad():
        p = torch.cat([model(part) for part in mixed_x.split(100)]).softmax(dim=1)
    by_class = mixed_y.argsort(stable=True)
    one = (mixed_y == 3).nonzero().flatten()
    one_first = torch.cat([one.repeat(4)[:300], order.new_tensor(range(len(order)))])
    wrong = p.max(dim=1).values * (p.argmax(dim=1) != mixed_y)
    wrong = wrong.argsort(descending=True)[: int((wrong > 0).sum())]
    wrong_first = torch.cat([wrong.repeat(8)[:300], order.new_tensor(range(len(order)))])
    dark_x, dark_y = mixed_x.clone(), mixed_y.clone()
    dark_x[::2], dark_y[::2] = 0.0, -1

    def cut(index: Tensor, skip: int = 0) -> tuple[Tensor, Tensor]:
        labels = mixed_y[index].clone()
        labels[:skip] = -1  # they come to mislead
        return mixed_x[index], labels

    return {
        **{f"camera, batches of {n}": Stream(x, y, n) for n in (1, 4, 16, 64, 200)},
        "sorted by class, batches of 20": Stream(*cut(by_class), 20),
        "one class first, batches of 20": Stream(*cut(one_first, 300), 20),
        "confidently wrong first, batches of 20": Stream(*cut(wrong_first, 300), 20),
        "black frames between, batches of 20": Stream(dark_x, dark_y, 20),
        "weather in any order, batches of 2": Stream(mixed_x, mixed_y, 2),
        "high rate, batches of 10": Stream(mixed_x, mixed_y, 10, {"lr": RATE}),
    }


def run(stream: Stream, model: nn.Module, method: str, **options: Any) -> dict[str, Any]:
    """Take a method through a stream."""
    hyper = {name: value for name, value in stream.hyper.items() if name in steep.METHODS[method].__dataclass_fields__}
    adapter = steep.adapt(model, method, **hyper, **options)
    right, notes, start = [], Counter[str](), time.perf_counter()
    for x, y in stream.batches():
        right.append((adapter(x).argmax(dim=1) == y)[y >= 0])
        if adapter.last is not None and adapter.last.note:
            notes[adapter.last.note] += 1
    hits = torch.cat(right).float()
    return {
        "accuracy": round(float(hits.mean()), 4),
        "sixths": [round(float(part.mean()), 4) for part in hits.chunk(6)],
        "n": len(hits),
        "seconds": round(time.perf_counter() - start, 1),
        "notes": dict(notes.most_common(6)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="where CIFAR-10 lives (docs/data.md)")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--methods", default=",".join(steep.METHODS))
    parser.add_argument("--guards", default="recover")
    parser.add_argument("--only", default="", help="a part of the stream's name")
    parser.add_argument("--each", type=int, default=EACH, help="images of each weather")
    parser.add_argument("--held-out", action="store_true", help="corruptions that no benchmark uses, severity 3")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    model = steep.models.build("wrn-40-2", 10)
    steep.models.checkpoints.load(model, find_weights("cifar10-wrn-40-2", root=arguments.root))
    model = model.eval().to(arguments.device)
    x, y = camera(arguments.root, arguments.device, arguments.each, arguments.held_out)
    for name, stream in streams(x, y, model).items():
        if arguments.only not in name:
            continue
        for method in arguments.methods.split(","):
            for guard in arguments.guards.split(","):
                row = run(stream, model, method, guard=guard, precision=arguments.precision)
                about = {"stream": name, "batch": stream.batch, "method": method, "guard": guard}
                about |= {"precision": arguments.precision, **({"weather": HELD_OUT} if arguments.held_out else {})}
                append(arguments.out, {**about, **row, **provenance.stamp(arguments.device)})
                print(
                    f"{name:40} {method:9} {guard:8} {row['accuracy']:.4f} {row['seconds']} {row['notes']}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
