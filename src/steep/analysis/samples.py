"""What does the adapted model take the test images to be? Langevin samples of it, class by class, beside real images.

Every method's model is sampled alike: the same noise to begin with, the same steps, rate and noise on E(x, y). The
distance of the samples' mean and covariance to the test set's says what the eye should see; that of as many real
images says what is the least to expect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steep.analysis import pictures
from steep.analysis.cells import stream
from steep.analysis.moments import MOST, Moments
from steep.analysis.spec import Analysis, Tell, flat
from steep.bench.rows import Row
from steep.bench.spec import Cell
from steep.core.adapter import Adapter
from steep.core.classifier import as_logits
from steep.core.constraints import Real, Whole
from steep.core.langevin import langevin
from steep.core.losses import energy
from steep.data import ImageSet
from steep.data.streams import to_device
from steep.errors import InputError

LOOKS = 6  # at the buffer, from the first batch to the last
STRIP = 4  # chains of the film strip, and of the buffer's


@dataclass(frozen=True)
class RealImages:
    """What samples are held against: moments of test images, and other test images, class by class."""

    moments: Moments
    images: Tensor  # (classes · per_class, C, H, W)
    labels: Tensor  # (classes · per_class,), what the samples are conditioned on


def measure(
    adapter: Adapter,
    cell: Cell,
    images: ImageSet,
    device: torch.device,
    *,
    folder: Path,
    options: Mapping[str, Any],
    tell: Tell,
) -> dict[str, Any]:
    """Adapt over the stream, looking at the buffer on the way; then sample, and compare with the test images."""
    if cell.precision not in ("float32", "tf32"):
        raise InputError(f"samples: expected precision float32 or tf32, got {cell.precision!r}. --set precision=tf32")
    real = _real(images, options, device)
    accuracy, buffer, strip = _adapt(adapter, cell, images, device, real, lambda share: tell(0.7 * share))
    frames = _chains(adapter, cell, real, options, lambda share: tell(0.7 + 0.3 * share))
    chain = [{"step": step, "energy": mean, **real.moments.distance(x)} for step, x, mean in frames]
    recognised = float((_logits(adapter, frames[-1][1]).argmax(1) == real.labels).float().mean())
    columns = options["per_class"]
    drawn = {"real": (real.images, columns), "samples": (frames[-1][1], columns)}
    drawn["chain"] = _film([x[::columns][:STRIP] for _, x, _ in frames])
    if strip:
        drawn["buffer"] = _film(strip)
    return {
        "accuracy": accuracy,
        "n": len(images),
        "samples": len(real.labels),
        "recognised": recognised,
        "distance": real.moments.distance(frames[-1][1]),
        "distance_real": real.moments.distance(real.images),
        "chain": chain,
        "buffer": buffer,
        "pictures": [_kept(kind, *what, cell, folder) for kind, what in drawn.items()],
    }


def _real(images: ImageSet, options: Mapping[str, Any], device: torch.device) -> RealImages:
    """Take some images of each class for the eye, and others for the moments."""
    labels = torch.from_numpy(images.labels.copy()).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))  # sets lie class by class
    classes = sorted(set(labels.tolist()))[: options["classes"]]
    shown = []
    for label in classes:
        own = order[labels[order] == label][: options["per_class"]]
        shown.append(own.repeat(-(-options["per_class"] // len(own)))[: options["per_class"]])
    picked = torch.cat(shown)
    others = order[~torch.isin(order, picked)]
    if len(others) < 2:
        raise InputError(f"samples: expected more than {len(picked)} images to compare with, got {len(labels)}")
    moments = Moments.of(_pixels(images, others[:MOST], device))
    return RealImages(moments, _pixels(images, picked, device), labels[picked].to(device))


def _pixels(images: ImageSet, places: Tensor, device: torch.device) -> Tensor:
    return to_device(images.images[places.numpy()], device)


def _adapt(
    adapter: Adapter, cell: Cell, images: ImageSet, device: torch.device, real: RealImages, tell: Tell
) -> tuple[float, list[dict[str, Any]], list[Tensor]]:
    """Adapt on every batch; the accuracy, and for a method with chains how they drifted."""
    source = stream(cell, images, device)
    looks = set(torch.linspace(1, len(source), min(LOOKS, len(source))).round().int().tolist())
    right, drift, strip, first = 0, [], [], None
    for index, (x, y) in enumerate(source, 1):
        right += int((adapter(x).argmax(1) == y).sum())
        chains = _buffer(adapter) if index in looks else None
        if chains is not None:
            first = chains if first is None else first
            moved = (chains - first).flatten(1).square().mean(dim=1).sqrt()  # (size,), over pixels
            about = {"batch": index, "travelled": float(moved.mean()), "moved": float((moved > 0).float().mean())}
            drift.append({**about, **real.moments.distance(chains), "chains": len(chains)})
            strip.append(chains)
        tell(index / len(source))
    if strip:  # follow those that have gone farthest
        far = (strip[-1] - strip[0]).flatten(1).norm(dim=1).topk(min(STRIP, len(strip[0]))).indices
        strip = [chains[far] for chains in strip]
    return right / len(images), drift, strip


def _buffer(adapter: Adapter) -> Tensor | None:
    held = adapter.state_dict()["state"].get("buffer")
    return held["images"] if isinstance(held, Mapping) else None


def _logits(adapter: Adapter, x: Tensor) -> Tensor:
    return as_logits(adapter.model(x)).detach()


def _chains(
    adapter: Adapter, cell: Cell, real: RealImages, options: Mapping[str, Any], tell: Tell
) -> list[tuple[int, Tensor, float]]:
    """Walk chains down E(x, y) of the adapted model, from the same noise for every method; frames on the way."""
    model = adapter.model  # as configured: its BatchNorm may use the statistics of the chains
    device = real.images.device
    generator = torch.Generator(device).manual_seed(cell.seed)
    x = torch.empty_like(real.images).uniform_(options["low"], options["high"], generator=generator)

    def energy_of(chains: Tensor) -> Tensor:
        return energy(as_logits(model(chains)), real.labels)

    frames: list[tuple[int, Tensor, float]] = []
    done = 0
    for step in _moments(options["steps"]):
        x = langevin(
            energy_of,
            x,
            steps=step - done,
            rate=options["rate"],
            noise=options["noise"],
            generator=generator,
        )
        done = step
        with torch.no_grad():
            frames.append((step, x, float(energy_of(x).mean())))
        tell(step / max(1, options["steps"]))
    return frames


def _moments(steps: int) -> list[int]:
    """Choose the frames: 0, 1, 2, 5, 10, 20, 50, ... and the last.

    >>> _moments(30)
    [0, 1, 2, 5, 10, 20, 30]
    """
    round_numbers = [n * 10**power for power in range(9) for n in (1, 2, 5)]
    return sorted({0, steps, *(n for n in round_numbers if n < steps)})


def _film(frames: Sequence[Tensor]) -> tuple[Tensor, int]:
    """A line for each chain, a column for each frame."""
    return torch.stack(list(frames), dim=1).flatten(0, 1), len(frames)


def _kept(kind: str, images: Tensor, columns: int, cell: Cell, folder: Path) -> dict[str, Any]:
    file = pictures.file_name(kind, cell.shift, cell.label or cell.method, cell.key()[:8])
    pictures.save(pictures.grid(images, columns), folder / file)
    return {"kind": kind, "file": file, "columns": columns, "png": pictures.inline(images, columns)}


def rows(stored: Sequence[Row]) -> list[Row]:
    """Rows for the distances, the chain, the buffer and the pictures; real images once for each shift and seed."""
    found: list[Row] = []
    seen: set[tuple[Any, ...]] = set()
    for row in stored:
        spec = row["spec"]

        def one(part: str, row: Row = row, **values: Any) -> None:
            found.append(flat("samples", row, part=part, **values))

        real = {"label": "real", "method": "real", "setting": "", "of": "real"}
        where = tuple(spec.get(name) for name in ("data", "source", "shift", "severity", "model", "seed"))
        if first := where not in seen:
            seen.add(where)
            one("distance", **{**real, "n": row["samples"], **row["distance_real"]})
        more = {"accuracy": row["accuracy"], "recognised": row["recognised"]}
        one("distance", of="samples", n=row["samples"], **row["distance"], **more)
        for point in row["chain"]:
            one("chain", **point)
        for point in row["buffer"]:
            one("buffer", **point)
        for picture in row["pictures"]:
            if picture["kind"] != "real":
                one("picture", **picture)
            elif first:
                one("picture", **{**real, **picture})
    return found


def summary(found: Sequence[Row]) -> list[str]:
    """Print the distances of each shift."""
    lines = []
    several = len({row["seed"] for row in found}) > 1
    for row in found:
        if row["part"] == "distance":
            where = f"{row['source']} → {row['shift']}" if row["source"] else f"{row['data']} {row['shift']}"
            where += f", seed {row['seed']}" if several else ""
            known = "" if row["of"] == "real" else f", {row['recognised']:.0%} taken for their class"
            lines.append(
                f"{where}, {row['label']}: mean {row['mean_distance']:.4f}, covariance "
                f"{row['covariance_distance']:.5f} from the test set's, {row['n']} images{known}"
            )
    return lines


def panels(found: Sequence[Row], folder: Path) -> list[Path]:
    """Write, for each shift, real images and the samples of every method side by side."""
    shifts: dict[tuple[Any, ...], list[Row]] = {}
    for row in found:
        shifts.setdefault((row["data"], row["source"], row["shift"], row["severity"], row["seed"]), []).append(row)
    written = []
    for (data, source, shift, severity, seed), own in shifts.items():
        numbers = {row["label"]: row for row in own if row["part"] == "distance"}
        parts = [
            (row["label"], _note(numbers.get(row["label"])), folder / row["file"])
            for row in own
            if row["part"] == "picture" and row["kind"] in ("real", "samples") and (folder / row["file"]).is_file()
        ]
        if not parts:
            continue
        where = f"{source} → {shift}" if source else f"{data}, {shift}" + (f" {severity}" if severity else "")
        where += f", seed {seed}" if seed else ""
        path = folder / pictures.file_name("samples", data, source, shift, severity, f"seed{seed}" if seed else "")
        pictures.save(pictures.panel(parts, f"Test images, and samples of each model: {where}"), path)
        written.append(path)
    return written


def _note(row: Row | None) -> str:
    return "" if row is None else f"mean {row['mean_distance']:.3f} · covariance {row['covariance_distance']:.4f}"


ANALYSIS = Analysis(
    name="samples",
    about="Langevin samples by class beside real images, a chain's film strip, the buffer's drift, distances",
    recipe="analyze-samples-cifar10",
    measure=measure,
    rows=rows,
    summary=summary,
    own_domain=True,
    options={
        "per_class": (10, Whole(least=1)),
        "classes": (10, Whole(least=1)),
        "steps": (100, Whole(least=0)),
        "rate": (0.1, Real(least=0)),  # as TEA's, on ∂E/∂x
        "noise": (0.01, Real(least=0)),  # the same
        "low": (-1.0, Real()),  # as TEA's p0 = U(low, high)
        "high": (1.0, Real()),
    },
)
