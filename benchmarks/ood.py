"""Energy as an out-of-distribution score, before and after adapting: AUROC and FPR95 (docs/ood.md).

    python -m benchmarks.ood --root DATA --out results/ood-cpu.jsonl
    python -m benchmarks.ood --unknown cifar100 mnist noise --device cuda --images 10000 --out results/ood-h200.jsonl
    python -m benchmarks.ood --table results/ood-cpu.jsonl           # the Markdown table of docs/ood.md

Known: CIFAR-10's test images, corrupted or clean, to the shipped WRN-40-2. Unknown: another set, or uniform noise.
`mixed`: each batch is half known and half unknown, and the adapter adapts on all of it: what a stream with strangers in
it does. `merged`: it adapts on known images alone, `adapter.merged(x)` fixes it, and both kinds are then scored.
"""

from __future__ import annotations

import argparse
import json
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

import steep
from benchmarks.rows import append
from steep import provenance

HYPER = {"tea": {"sgld_steps": 3, "sgld_rate": 0.7, "chains": 50}}


def known_images(args: argparse.Namespace, shift: str) -> Tensor:
    pixels = steep.data.load("cifar10", "test", root=args.root, limit=args.images).images
    return _floats(pixels if shift == "clean" else steep.corrupt(pixels, shift, args.severity, seed=0))


def unknown_images(args: argparse.Namespace, name: str) -> Tensor:
    if name == "noise":
        return torch.rand(args.images, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return _floats(steep.data.load(name, "test", root=args.root, limit=args.images, size=32, channels=3).images)


def _floats(pixels) -> Tensor:
    return torch.from_numpy(pixels.copy()).permute(0, 3, 1, 2).float() / 255


def mixed(adapter: steep.Adapter, known: Tensor, unknown: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """Energies of both while the adapter meets them side by side."""
    parts: list[tuple[Tensor, Tensor]] = []
    for a, b in zip(known.split(batch // 2), unknown.split(batch // 2), strict=True):
        energies = steep.energy(adapter(torch.cat([a, b]))).cpu()
        parts.append((energies[: len(a)], energies[len(a) :]))
    return torch.cat([a for a, _ in parts]), torch.cat([b for _, b in parts])


@torch.no_grad()
def fixed(adapter: steep.Adapter, known: Tensor, unknown: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """Energies of both, of the model that the first half of the known images made; the other half is scored."""
    half = known[: len(known) // 2].split(batch)
    for x in half:
        adapter(x)
    module = adapter.merged(half)
    scores = [
        torch.cat([steep.energy(module(x)).cpu() for x in k.split(batch)]) for k in (known[len(known) // 2 :], unknown)
    ]
    return scores[0], scores[1]


def measure(args: argparse.Namespace) -> None:
    model = steep.models.build("wrn-40-2", 10)
    steep.models.checkpoints.load(model, Path(str(resources.files("steep") / "assets/cifar10-wrn-40-2.safetensors")))
    for shift in args.shift:
        known = known_images(args, shift).to(args.device)
        for name in args.unknown:
            unknown = unknown_images(args, name).to(args.device)[: len(known)]
            for method in args.method:
                for protocol, score in (("mixed", mixed), ("merged", fixed)):
                    hyper = HYPER.get(method, {})
                    adapter = steep.adapt(model, method, device=args.device, **hyper)
                    detected = steep.metrics.detection(*score(adapter, known, unknown, args.batch))
                    print(
                        f"{shift:15} {name:9} {method:7} {protocol:7} "
                        f"AUROC {detected.auroc:.3f} FPR95 {detected.fpr95:.3f}"
                    )
                    row = {
                        "benchmark": "ood",
                        "known": f"cifar10 {shift}" + ("" if shift == "clean" else f" {args.severity}"),
                        "unknown": name,
                        "method": method,
                        "hyper": hyper,
                        "protocol": protocol,
                        "auroc": round(detected.auroc, 4),
                        "fpr95": round(detected.fpr95, 4),
                        "n_known": detected.known,
                        "n_unknown": detected.unknown,
                        "batch": args.batch,
                        "model": "wrn-40-2",
                        **provenance.stamp(args.device),
                    }
                    append(args.out, row)


def table(path: Path) -> str:
    """Stored rows as a Markdown table: a line per pair of sets, AUROC / FPR95 in percent per method and protocol."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = ["| known | unknown | scored | " + " | ".join(methods) + " |", "|---|---|---|" + "---:|" * len(methods)]
    for where in dict.fromkeys((row["known"], row["unknown"], row["protocol"]) for row in rows):
        cells = {r["method"]: r for r in rows if (r["known"], r["unknown"], r["protocol"]) == where}
        known = [cells.get(method) for method in methods]
        numbers = ("" if row is None else f"{100 * row['auroc']:.1f} / {100 * row['fpr95']:.1f}" for row in known)
        lines.append(f"| {' | '.join((*where, *numbers))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--root", type=Path, help="where the data sets are; default: as for `steep data`")
    parser.add_argument("--images", type=int, default=600, help="of each kind")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--shift", nargs="+", default=["clean", "gaussian_noise"])
    parser.add_argument("--severity", type=int, default=5)
    parser.add_argument("--unknown", nargs="+", default=["mnist", "noise"])
    parser.add_argument("--method", nargs="+", default=["source", "bn", "tent", "tea"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, metavar="ROWS", help="print stored rows and measure nothing")
    args = parser.parse_args()
    if args.table:
        print(table(args.table))
    else:
        measure(args)


if __name__ == "__main__":
    main()
