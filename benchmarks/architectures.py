"""Do other libraries' architectures adapt? Random weights, a few batches each, one row per architecture and method.

    python -m benchmarks.architectures --device cuda --out results/architectures-h200.jsonl
    python -m benchmarks.architectures --only hf --side 64          # no timm, no torchvision, a CPU
    python -m benchmarks.architectures --table results/architectures-h200.jsonl     # the table of docs/models.md

A row is `ok` where all logits are finite, norm parameters moved and nothing else did. Whether the first step of TEA
lowered the energy of its images stands beside it: on random weights the contrast with the samples may be served by
raising both energies. A model without norm layers is to be refused, with the reason. timm's and torchvision's models
get the normalisation that their library says of them. Exits with 1 where a row is not ok.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import steep
from benchmarks.rows import append
from steep import provenance
from steep.core.layers import is_norm
from steep.errors import NothingToAdaptError

TIMM = (
    "resnet18",
    "resnet50_gn",
    "resnetv2_50",  # BatchNormAct2d
    "resnetv2_50x1_bit",  # GroupNormAct
    "densenet121",
    "efficientnet_b0",
    "mobilenetv3_small_100",
    "regnety_008",
    "convnext_tiny",
    "vit_small_patch16_224",
    "swin_tiny_patch4_window7_224",
    "mixer_s16_224",
    "nf_resnet26",  # no norm layer
)
TORCHVISION = (
    "resnet18",
    "convnext_tiny",
    "vit_b_16",
    "swin_t",
    "efficientnet_b0",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "densenet121",
    "shufflenet_v2_x0_5",
    "mnasnet0_5",
    "alexnet",  # no norm layer
)
HF = ("ResNet", "ConvNext", "ViT", "Swin")
REFUSED = {"timm:nf_resnet26", "torchvision:alexnet"}
LR = 5e-3  # five times the usual: the fall of an untrained model's energy must show above bfloat16's rounding
METHODS: dict[str, dict[str, Any]] = {
    "tea": {"lr": LR, "sgld_steps": 3, "chains": 16, "buffer_size": 64},
    "tent": {"lr": LR},
}


def _timm(name: str, classes: int, _: int) -> nn.Module:
    model = importlib.import_module("timm").create_model(name, pretrained=False, num_classes=classes)
    return steep.models.normalized(model)


def _torchvision(name: str, classes: int, _: int) -> nn.Module:
    zoo = importlib.import_module("torchvision.models")
    model = zoo.get_model(name, weights=None, num_classes=classes)
    return steep.models.normalized(model, zoo.get_model_weights(name).DEFAULT)


def _huggingface(name: str, classes: int, side: int) -> nn.Module:
    hub = importlib.import_module("transformers")
    size = {"image_size": side} if name in ("ViT", "Swin") else {}
    return getattr(hub, f"{name}ForImageClassification")(getattr(hub, f"{name}Config")(num_labels=classes, **size))


MAKERS: dict[str, tuple[tuple[str, ...], Callable[[str, int, int], nn.Module]]] = {
    "timm": (TIMM, _timm),
    "torchvision": (TORCHVISION, _torchvision),
    "hf": (HF, _huggingface),
}


def built(library: str, name: str, classes: int, side: int) -> nn.Module:
    """Random weights, with a last layer that makes the answers differ: some libraries start it at zero."""
    torch.manual_seed(0)
    model = MAKERS[library][1](name, classes, side).eval()
    heads = [m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == classes]
    if heads:
        nn.init.normal_(heads[-1].weight, std=3 * heads[-1].in_features ** -0.5)
    return model


def pictures(n: int, side: int, seed: int, device: str) -> Tensor:
    """Smooth coloured pictures in [0, 1]."""
    coarse = torch.rand(n, 3, 7, 7, generator=torch.Generator().manual_seed(seed))
    return nn.functional.interpolate(coarse, size=(side, side), mode="bilinear").to(device)


def tried(model: nn.Module, method: str, args: argparse.Namespace) -> dict[str, Any]:
    """Adapt for a few batches and say what happened."""
    norms = {
        f"{path}.{leaf}"
        for path, module in model.named_modules()
        if is_norm(module)
        for leaf, _ in module.named_parameters(recurse=False)
    }
    kinds = sorted({type(m).__name__ for m in model.modules() if is_norm(m)})
    outcome: dict[str, Any] = {"norm_layers": kinds, "norm_parameters": len(norms)}
    try:
        adapter = steep.adapt(model, method, precision=args.precision, **METHODS[method])
    except NothingToAdaptError as error:
        return {**outcome, "refused": str(error), "ok": False}
    before = {name: p.detach().clone() for name, p in adapter.model.named_parameters()}
    finite, energies = True, []
    start = time.perf_counter()
    for seed in range(args.batches):
        finite &= bool(adapter(pictures(args.batch, args.side, seed, args.device)).isfinite().all())
        report = adapter.last
        energies.append((report.energy_before, report.energy_after))
    seconds = time.perf_counter() - start
    moved = {name for name, p in adapter.model.named_parameters() if not torch.equal(p, before[name])}
    fell = energies[0][1] is None or energies[0][1] < energies[0][0]
    return {
        **outcome,
        "moved": len(moved),
        "finite": finite,
        "energy": [[None if e is None else round(e, 5) for e in pair] for pair in energies],
        "energy_fell": fell,
        "undone": adapter.last.undone,
        "seconds": round(seconds, 3),
        "ok": finite and bool(moved) and moved <= norms,
    }


def table(path: Path) -> str:
    """Stored rows as a Markdown table, a line per architecture; `ok` is left out, its meaning has changed."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    heads = ["architecture", "norm layers", *(f"{m}: moved" for m in methods), "finite", "energy fell under tea"]
    lines = ["| " + " | ".join(heads) + " |", "|---|---|" + "---:|" * len(methods) + "---|---|"]
    for name in dict.fromkeys(row["architecture"] for row in rows):
        by_method = {row["method"]: row for row in rows if row["architecture"] == name}
        moved = [_moved(by_method[m]) if m in by_method else "" for m in methods]
        adapted = [row for row in by_method.values() if "finite" in row]
        finite = ("yes" if all(row["finite"] for row in adapted) else "**no**") if adapted else "–"
        tea = by_method.get("tea", {})
        fell = ("yes" if tea["energy_fell"] else "no") if "energy_fell" in tea else "–"
        kinds = ", ".join(next(iter(by_method.values()))["norm_layers"]) or "none"
        lines.append(f"| `{name}` | {kinds} | {' | '.join(moved)} | {finite} | {fell} |")
    return "\n".join(lines)


def _moved(row: dict[str, Any]) -> str:
    if "error" in row:
        return "**failed**"
    return "refused" if "refused" in row else f"{row['moved']} of {row['norm_parameters']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", help="default: bfloat16 on a GPU, else float32")
    parser.add_argument("--only", nargs="+", choices=MAKERS, default=list(MAKERS))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, metavar="ROWS", help="print stored rows and measure nothing")
    args = parser.parse_args()
    if args.table:
        print(table(args.table))
        return
    args.precision = args.precision or ("bfloat16" if args.device.startswith("cuda") else "float32")
    wrong = 0
    for library in args.only:
        package = {"hf": "transformers"}.get(library, library)
        version = importlib.import_module(package).__version__
        for name in MAKERS[library][0]:
            model = built(library, name, args.classes, args.side).to(args.device)
            for method in METHODS:
                full = f"{library}:{name}"
                try:
                    outcome = tried(model, method, args)
                except Exception as error:  # the row says so; the other architectures are still of interest
                    outcome = {"error": f"{type(error).__name__}: {error}", "ok": False}
                if full in REFUSED:
                    outcome["ok"] = "refused" in outcome
                wrong += not outcome["ok"]
                words = outcome.get("refused") or outcome.get("error")
                words = words or f"{outcome['moved']} moved, energy {outcome['energy'][0]}"
                print(f"{'ok  ' if outcome['ok'] else 'FAIL'} {full:45} {method:5} {words[:110]}", flush=True)
                row = {
                    "benchmark": "architectures",
                    "architecture": full,
                    "method": method,
                    "hyper": METHODS[method],
                    **outcome,
                    "parameters": sum(p.numel() for p in model.parameters()),
                    "batch": args.batch,
                    "batches": args.batches,
                    "side": args.side,
                    "precision": args.precision,
                    "device": provenance.device_name(torch.device(args.device)),
                    "versions": {**provenance.versions(), package: version},
                    "commit": provenance.commit(),
                }
                append(args.out, row)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
