"""What does the adapted model take the test images to be? Langevin samples of it, class by class, beside real images.

Every method's model is sampled alike: the same noise to begin with, the same steps, rate and noise on E(x, y). The
distance of the samples' mean and covariance to the test set's says what the eye should see; that of as many real
images says what is the least to expect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from steep.analysis import pictures
from steep.analysis.cells import MeasuringAnalysis, Run
from steep.bench.rows import Row, grouped
from steep.core.classifier import as_logits
from steep.core.constraints import Real, Whole
from steep.core.langevin import langevin
from steep.core.losses import energy
from steep.data.streams import to_device
from steep.errors import InputError

LOOKS = 6  # at the buffer, from the first batch to the last
STRIP = 4  # chains of the film strip, and of the buffer's
SIDE = 32  # pixels: larger images are averaged down first, since a covariance has pixels × pixels entries
MOST = 2_000  # images a covariance is estimated from; more cost minutes and change its third digit

Moments: TypeAlias = tuple[Tensor, Tensor]
"""Mean (D,) and covariance (D, D) of images, their values in [0, 1], D pixels and channels."""


def moments(images: Tensor) -> Moments:
    """Estimate both from images (n, C, H, W); values outside [0, 1] are shown, and count, as the nearest inside."""
    images = images[:MOST].detach().float().clamp(0, 1)
    height, width = images.shape[2:]
    if max(height, width) > SIDE:
        images = F.adaptive_avg_pool2d(images, (min(height, SIDE), min(width, SIDE)))
    flat = images.flatten(1)  # (n, D)
    mean = flat.mean(dim=0)
    around = flat - mean
    return mean, around.T @ around / max(1, len(flat) - 1)


def distance(reference: Moments, images: Tensor) -> dict[str, float]:
    """Root mean square, over pixels and over pairs of pixels, of the difference in mean and in covariance.

    >>> dark, bright = torch.zeros(4, 1, 2, 2), torch.ones(4, 1, 2, 2)
    >>> distance(moments(dark), bright)
    {'mean_distance': 1.0, 'covariance_distance': 0.0}
    """
    differences = (ours - theirs for ours, theirs in zip(reference, moments(images), strict=True))
    mean, covariance = (float(values.double().square().mean().sqrt()) for values in differences)
    return {"mean_distance": mean, "covariance_distance": covariance}


@dataclass(frozen=True)
class RealImages:
    """What samples are held against: moments of test images, and other test images, class by class."""

    moments: Moments
    images: Tensor  # (classes · per_class, C, H, W)
    labels: Tensor  # (classes · per_class,), what the samples are conditioned on


class Samples(MeasuringAnalysis):
    """Langevin samples by class beside real images, a chain's film strip, the buffer's drift, distances."""

    name = "samples"
    recipe = "analyze-samples-cifar10"
    own_domain = True
    options: ClassVar = {
        "per_class": (10, Whole(least=1)),
        "classes": (10, Whole(least=1)),
        "steps": (100, Whole(least=0)),
        "rate": (0.1, Real(least=0)),  # as TEA's, on ∂E/∂x
        "noise": (0.01, Real(least=0)),  # the same
        "low": (-1.0, Real()),  # as TEA's p0 = U(low, high)
        "high": (1.0, Real()),
    }

    def measure(self, run: Run) -> dict[str, Any]:
        """Adapt over the stream, looking at the buffer on the way; then sample, and compare with the test images."""
        if run.cell.precision not in ("float32", "tf32"):
            raise InputError(
                f"samples: expected precision float32 or tf32, got {run.cell.precision!r}. --set precision=tf32"
            )
        real = _real(run)
        accuracy, buffer, strip = _adapt(run, real)
        frames = _chains(run, real)
        samples, columns = frames[-1][1], run.options["per_class"]
        drawn = {"real": (real.images, columns), "samples": (samples, columns)}
        drawn["chain"] = _film([x[::columns][:STRIP] for _, x, _ in frames])
        if strip:
            drawn["buffer"] = _film(strip)
        answers = as_logits(run.adapter.model(samples)).detach().argmax(1)
        return {
            "accuracy": accuracy,
            "n": len(run.images),
            "samples": len(real.labels),
            "recognised": float((answers == real.labels).float().mean()),
            "distance": distance(real.moments, samples),
            "distance_real": distance(real.moments, real.images),
            "chain": [{"step": step, "energy": mean, **distance(real.moments, x)} for step, x, mean in frames],
            "buffer": buffer,
            "pictures": [_save(kind, *what, run) for kind, what in drawn.items()],
        }

    def rows(self, stored: Sequence[Row]) -> list[Row]:
        """Rows for the distances, the chain, the buffer and the pictures; real images once for each shift and seed."""
        flat_rows: list[Row] = []
        seen: set[tuple[Any, ...]] = set()
        for row in stored:
            real = {"label": "real", "method": "real", "setting": "", "of": "real"}
            where = tuple(row["spec"].get(name) for name in ("data", "source", "shift", "severity", "model", "seed"))
            first = where not in seen
            seen.add(where)
            parts: list[tuple[str, Mapping[str, Any]]] = []
            if first:
                parts.append(("distance", {**real, "n": row["samples"], **row["distance_real"]}))
            numbers = {"accuracy": row["accuracy"], "recognised": row["recognised"]}
            parts.append(("distance", {"of": "samples", "n": row["samples"], **row["distance"], **numbers}))
            parts += [(part, point) for part in ("chain", "buffer") for point in row[part]]
            for picture in row["pictures"]:
                if picture["kind"] != "real" or first:
                    parts.append(("picture", {**(real if picture["kind"] == "real" else {}), **picture}))
            flat_rows += [self.flat(row, part=part, **values) for part, values in parts]
        return flat_rows

    def summary(self, rows: Sequence[Row]) -> list[str]:
        """Print the distances of each shift."""
        several = len({row["seed"] for row in rows}) > 1
        sentences = []
        for row in (row for row in rows if row["part"] == "distance"):
            where = f"{row['source']} → {row['shift']}" if row["source"] else f"{row['data']} {row['shift']}"
            where += f", seed {row['seed']}" if several else ""
            known = "" if row["of"] == "real" else f", {row['recognised']:.0%} taken for their class"
            sentences.append(
                f"{where}, {row['label']}: mean {row['mean_distance']:.4f}, covariance "
                f"{row['covariance_distance']:.5f} from the test set's, {row['n']} images{known}"
            )
        return sentences

    def draw(self, rows: Sequence[Row], folder: Path) -> list[Path]:
        """Write, for each shift, real images and the samples of every method side by side."""
        written = []
        shifts = grouped(rows, lambda row: (row["data"], row["source"], row["shift"], row["severity"], row["seed"]))
        for (data, source, shift, severity, seed), shown in shifts.items():
            notes = {
                row["label"]: f"mean {row['mean_distance']:.3f} · covariance {row['covariance_distance']:.4f}"
                for row in shown
                if row["part"] == "distance"
            }
            parts = [
                (row["label"], notes.get(row["label"], ""), folder / row["file"])
                for row in shown
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


def _real(run: Run) -> RealImages:
    """Take some images of each class for the eye, and others for the moments."""
    labels = torch.from_numpy(run.images.labels.copy()).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))  # sets lie class by class
    count = run.options["per_class"]
    shown = []
    for label in sorted(set(labels.tolist()))[: run.options["classes"]]:
        places = order[labels[order] == label][:count]
        shown.append(places.repeat(-(-count // len(places)))[:count])
    picked = torch.cat(shown)
    others = order[~torch.isin(order, picked)]
    if len(others) < 2:
        raise InputError(f"samples: expected more than {len(picked)} images to compare with, got {len(labels)}")
    compared, seen = (to_device(run.images.images[at.numpy()], run.device) for at in (others[:MOST], picked))
    return RealImages(moments(compared), seen, labels[picked].to(run.device))


def _adapt(run: Run, real: RealImages) -> tuple[float, list[dict[str, Any]], list[Tensor]]:
    """Adapt on every batch; the accuracy, and for a method with chains how they drifted."""
    source = run.stream()
    looks = set(torch.linspace(1, len(source), min(LOOKS, len(source))).round().int().tolist())
    right, drift, strip = 0, [], list[Tensor]()
    for index, (x, y) in enumerate(source, 1):
        right += int((run.adapter(x).argmax(1) == y).sum())
        buffer = run.adapter.state_dict()["state"].get("buffer") if index in looks else None
        if isinstance(buffer, Mapping) and buffer["images"] is not None:
            chains = buffer["images"]
            strip.append(chains)
            moved = (chains - strip[0]).flatten(1).square().mean(dim=1).sqrt()  # (size,), over pixels
            about = {"batch": index, "travelled": float(moved.mean()), "moved": float((moved > 0).float().mean())}
            drift.append({**about, **distance(real.moments, chains), "chains": len(chains)})
        run.tell(0.7 * index / len(source))
    if strip:  # follow those that have gone farthest
        far = (strip[-1] - strip[0]).flatten(1).norm(dim=1).topk(min(STRIP, len(strip[0]))).indices
        strip = [chains[far] for chains in strip]
    return right / len(run.images), drift, strip


def _chains(run: Run, real: RealImages) -> list[tuple[int, Tensor, float]]:
    """Walk chains down E(x, y) of the adapted model, from the same noise for every method; frames on the way."""
    model = run.adapter.model  # as configured: its BatchNorm may use the statistics of the chains
    generator = torch.Generator(run.device).manual_seed(run.cell.seed)
    x = torch.empty_like(real.images).uniform_(run.options["low"], run.options["high"], generator=generator)

    def energy_of(chains: Tensor) -> Tensor:
        return energy(as_logits(model(chains)), real.labels)

    frames: list[tuple[int, Tensor, float]] = []
    done, steps = 0, run.options["steps"]
    how = {"rate": run.options["rate"], "noise": run.options["noise"], "generator": generator}
    for step in _frame_steps(steps):
        x = langevin(energy_of, x, steps=step - done, **how)
        done = step
        with torch.no_grad():
            frames.append((step, x, float(energy_of(x).mean())))
        run.tell(0.7 + 0.3 * step / max(1, steps))
    return frames


def _frame_steps(steps: int) -> list[int]:
    """Choose the frames: 0, 1, 2, 5, 10, 20, 50, ... and the last.

    >>> _frame_steps(30)
    [0, 1, 2, 5, 10, 20, 30]
    """
    round_numbers = [n * 10**power for power in range(9) for n in (1, 2, 5)]
    return sorted({0, steps, *(n for n in round_numbers if n < steps)})


def _film(frames: Sequence[Tensor]) -> tuple[Tensor, int]:
    """A line for each chain, a column for each frame."""
    return torch.stack(list(frames), dim=1).flatten(0, 1), len(frames)


def _save(kind: str, images: Tensor, columns: int, run: Run) -> dict[str, Any]:
    cell = run.cell
    file = pictures.file_name(kind, cell.shift, cell.label or cell.method, cell.key()[:8])
    pictures.save(pictures.grid(images, columns), run.folder / file)
    return {"kind": kind, "file": file, "columns": columns, "png": pictures.inline(images, columns)}
