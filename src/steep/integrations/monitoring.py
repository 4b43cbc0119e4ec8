"""Watch a deployment: one callback that gives Prometheus text and JSON lines."""

from __future__ import annotations

import bisect
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steep.comparing.running import RunningGain
from steep.core.adapter import Adapter
from steep.core.losses import entropy
from steep.integrations.loggers import append_line

HALF_LIFE = 500  # images, after which an answer counts half in what is said of late
MOST_REASONS = 8  # are told apart, since each is a time series; later ones are "other"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
SUMS = ("batches", "images", "answered", "compared", "disagreed", "undone", "unused", "entropy")
COUNTERS = ("batches", "images", "compared", "disagreed", "undone_steps", "skipped_batches", "guard_events")


class Monitor:
    """Adds up on the device what each batch did; only reading it, from any thread, waits for the device.

    So does a batch that `compare` was called for.

    Args:
        classes: their names in order; numbers otherwise.
        top: so many classes, the commonest of late, have a share of their own; the rest is "other".
        path: a file to append a JSON line to, at a batch that ends `seconds` or more after the last line.
    """

    def __init__(
        self, classes: Sequence[str] = (), *, top: int = 20, path: str | Path | None = None, seconds: float = 10.0
    ) -> None:
        self.classes, self.top, self.path, self.seconds = tuple(classes), top, path, seconds
        self._source: Tensor | None = None
        self._gain = RunningGain()
        # (SUMS + classes,) since the start; the same, the older the less; steps undone: one tuple, for other threads
        self._sums = torch.zeros(len(SUMS)), torch.zeros(len(SUMS)), torch.zeros(())
        self._skipped: dict[str, int] = {}  # by reason, where the host knows it
        self._events: dict[str, int] = {}
        self._latency, self._latency_sum, self._written = [0] * (len(BUCKETS) + 1), 0.0, time.monotonic()

    def reference(self, logits: Tensor) -> None:
        """Take the source model's logits of the next batch, to count where the two models disagree."""
        self._source = logits.detach()

    def compare(self, source: Callable[[Tensor], Tensor], x: Tensor, view: str = "mirror") -> None:
        """Let the source model answer the batch that comes next: as `reference`, and it estimates what adapting gains.

        That costs two forward passes of the source model and one of the adapted one, so do it at one batch in ten or
        so. `view` as in `steep.compare`.
        """
        self.reference(self._gain.ask(source, x, view))

    def took(self, seconds: float) -> None:
        """Take the time of one answer, by your clock; call it from the thread that adapts."""
        self._latency[bisect.bisect_left(BUCKETS, seconds)] += 1
        self._latency_sum += seconds

    @torch.no_grad()
    def __call__(self, adapter: Adapter, logits: Tensor) -> None:
        """Count a batch."""
        raw, source, self._source = adapter.raw, self._source, None
        step = raw.steps[-1]
        _count(self._skipped, None if step.moved else step.note)
        _count(self._events, step.note if step.moved and step.leap is True else None)  # a leap that the host knows of
        answer, good = logits.argmax(dim=1), logits.amax(dim=1).isfinite()  # damaged images are answered with NaN
        compared = good & (source is not None)
        other = answer if source is None else source.to(answer.device).argmax(dim=1)
        undone = raw.verdict.any() if step.moved and raw.verdict is not None else good.new_zeros(())
        used = step.used > 0 if isinstance(step.used, Tensor) else good.new_full((), step.used != 0)
        every, unused = torch.ones_like(good), ~used & ~undone & step.moved
        counts = (every.any(), every, good, compared, compared & (answer != other), undone, unused)
        wide = torch.float32 if logits.device.type == "mps" else torch.float64  # mps has no float64
        sums = [each.sum(dtype=wide) for each in (*counts, torch.where(good, entropy(logits), 0))]
        classes = good.new_zeros(logits.shape[1], dtype=wide).index_add_(0, answer, good.to(wide))
        now = torch.cat([torch.stack(sums), classes])
        total, recent, _ = self._sums if len(self._sums[0]) == len(now) else (0 * now, 0 * now, None)
        self._sums = total + now, recent * 0.5 ** (len(logits) / HALF_LIFE) + now, raw.undone
        self._gain.take(adapter, logits)
        if self.path is not None and time.monotonic() - self._written >= self.seconds:
            self._written = time.monotonic()
            append_line(Path(self.path), self.numbers())

    def numbers(self) -> dict[str, Any]:
        """Give plain data: counts since the start; entropy, disagreement, gain and class shares of late."""
        total, recent, (undone,) = (each.flatten().tolist() for each in self._sums)
        sums, late = dict(zip(SUMS, total, strict=False)), dict(zip(SUMS, recent, strict=False))
        skipped = self._skipped | {"step undone": int(sums.pop("undone")), "no image used": int(sums.pop("unused"))}
        return {
            "entropy_sum": sums.pop("entropy"),
            **{name: int(count) for name, count in sums.items()},
            "skipped_batches": {reason: count for reason, count in skipped.items() if count},
            "undone_steps": int(undone),
            "guard_events": self._events.copy(),
            "entropy": late["entropy"] / late["answered"] if late["answered"] else None,
            "source_disagreement": late["disagreed"] / late["compared"] if late["compared"] else None,
            "estimated_gain": self._gain.numbers(),
            "class_shares": self._shares(recent[len(SUMS) :]),
            "latency_s": self._latency_sum / sum(self._latency) if any(self._latency) else None,
        }

    def _shares(self, counts: Sequence[float]) -> dict[str, float]:
        first = sorted(range(len(counts)), key=lambda k: -counts[k])[: self.top]
        named = {self.classes[k] if k < len(self.classes) else str(k): counts[k] for k in first}
        named |= {"other": sum(counts) - sum(named.values())} if len(first) < len(counts) else {}
        return {name: count / (sum(counts) or 1.0) for name, count in named.items()}

    def prometheus(self) -> str:
        """Give the body for GET /metrics, in Prometheus' text format 0.0.4."""
        answers, numbers = [*itertools.accumulate(self._latency)], self.numbers()
        edges = zip([*BUCKETS, "+Inf"], answers, strict=True)
        latency = {f'_bucket{{le="{edge}"}}': float(count) for edge, count in edges}
        latency |= {"_sum": self._latency_sum, "_count": answers[-1]}
        entropies = {"_sum": numbers["entropy_sum"], "_count": numbers["answered"]}
        text = "".join(_family(f"{name}_total", "counter", numbers[name], "reason") for name in COUNTERS)
        text += _family("class_share", "gauge", numbers["class_shares"], "class")
        gain = {name: value for name, value in (numbers["estimated_gain"] or {}).items() if name != "verdict"}
        text += _family("estimated_gain_points", "gauge", gain, "value")
        return text + _family("entropy_nats", "summary", entropies) + _family("latency_seconds", "histogram", latency)


def _count(counts: dict[str, int], text: str | None) -> None:
    """Count a reason, by what stands before its details."""
    if text is not None:
        reason = text.partition(":")[0]
        reason = reason if reason in counts or len(counts) < MOST_REASONS else "other"
        counts[reason] = counts.get(reason, 0) + 1


def _family(name: str, kind: str, values: Mapping[str, float] | float, label: str = "") -> str:
    """Write one metric: a number, or one for each suffix, or one for each value of a label."""
    if not isinstance(values, Mapping):
        values, label = {"": values}, ""
    text = f"# TYPE steep_{name} {kind}\n"
    for key, value in values.items():
        escaped = key.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        text += f"steep_{name}" + (f'{{{label}="{escaped}"}}' if label else key) + f" {value:.15g}\n"
    return text
