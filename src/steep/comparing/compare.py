"""Several methods on the same stream in one pass of the data, beside the source model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from steep.comparing.estimate import HARMING, HELPING, UNSURE, Estimate, Signs, estimated_accuracy, estimated_gain
from steep.core.adapter import Adapter
from steep.core.method import Method
from steep.core.views import mirror, shift
from steep.errors import InputError, NothingToAdaptError, check_known
from steep.methods import SOURCE, adapt, make
from steep.metrics.differences import ERRORS, Measured, number, signed

METHODS = ("auto",)  # the one to begin with: each further one takes about half of its time again


def _shifted(x: Tensor) -> Tensor:
    by = max(1, round(x.shape[-1] / 32))
    return shift(x, by, by)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {"mirror": mirror, "shift": _shifted}
"""Name → the other view of the images, whose answers are compared with theirs."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method: accuracy in percent, and the gain over the source model in points with its interval."""

    method: str
    accuracy: float
    gain: float
    low: float
    high: float
    changed: float  # percent of the images that get another class than from the source model
    verdict: str  # "helping", "harming" or "cannot tell"; "" for the source model itself
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """What `compare` has seen; print it for the table and the verdict."""

    images: int
    labelled: int  # 0: all numbers are estimates
    table: tuple[Row, ...]  # the source model first
    refused: Mapping[str, str] = field(default_factory=dict)  # method → why it cannot adapt this model

    def rows(self) -> list[dict[str, Any]]:
        """Give the table as plain dictionaries."""
        return [asdict(row) for row in self.table]

    @property
    def verdict(self) -> str:
        """One sentence: what to do on images like these."""
        by_verdict: dict[str, list[Row]] = {HELPING: [], HARMING: [], UNSURE: []}
        for row in sorted(self.table[1:], key=lambda row: -row.gain):
            by_verdict[row.verdict].append(row)
        helping, harming, unsure = (", ".join(row.method for row in rows) for rows in by_verdict.values())
        if helping:
            best, *others = by_verdict[HELPING]
            others_too = f"; {', '.join(row.method for row in others)} would help too" if others else ""
            gain, low, high = (signed(value, 1) for value in (best.gain, best.low, best.high))
            how_sure = "95 %" if self.labelled else "estimated without labels, 90 %"
            return f"Adapt with {best.method}: {gain} points ({how_sure}: {low} to {high}){others_too}."
        if not unsure:
            return f"Do not adapt: {harming} would harm."
        needed = "more labels" if self.labelled else "the labels of a few hundred of these images"
        harm = f", and {harming} would harm" if harming else ""
        return f"Keep the model as it is: whether {unsure} would help cannot be told{harm}. Telling takes {needed}."

    def __str__(self) -> str:
        lines = [("method", "accuracy", "gain", "interval", "changed", "verdict")]
        for row in self.table:
            accuracy = f"{number(row.accuracy, 1)} %" if self.labelled else f"≈{row.accuracy:.0f} %"  # a rough guess
            changed = f"{number(row.changed, 1)} %"
            gain, low, high = (signed(value, 1) for value in (row.gain, row.low, row.high))
            rest = (gain, f"{low} to {high}", changed, row.verdict) if row.verdict else ("", "", "", "")
            lines.append((row.method, accuracy, *rest))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        form = "  ".join(f"{{:{side}{width}}}" for side, width in zip("<>>>><", widths, strict=True))
        text = [form.format(*line).rstrip() for line in lines]
        notes = [f"{row.method}: {row.note}" for row in self.table if row.note]
        notes += [f"{method} is left out: {why}" for method, why in self.refused.items()]
        about = f"measured by {self.labelled:,} labels" if self.labelled else "estimated without labels"
        return "\n".join([f"{self.images:,} images, {about}", *text, *notes, self.verdict])


@dataclass(eq=False)
class _Answers:
    """What one model answers, collected over the stream."""

    adapter: Adapter
    signs: Signs = field(default_factory=Signs)
    classes: list[Tensor] = field(default_factory=list)
    unadapted: int = 0  # batches

    def add(self, batch: Any, view: Callable[[Tensor], Tensor]) -> None:
        logits = self.adapter(batch)
        self.signs.add(logits, self.adapter.peek(batch, view))
        self.classes.append(logits.argmax(dim=1).cpu())
        self.unadapted += bool(self.adapter.last and self.adapter.last.skipped)

    @property
    def note(self) -> str:
        return f"{self.unadapted} of {len(self.classes)} batches answered without adapting" if self.unadapted else ""


def compare(
    model: nn.Module,
    loader: Iterable[Any],
    methods: str | Method[Any] | Sequence[str | Method[Any]] | Mapping[str, str | Method[Any]] = METHODS,
    *,
    labels: Any = None,
    batch_size: int = 200,
    view: str = "mirror",
    setting: str = "paper",
    seed: int = 0,
    precision: str = "float32",
    device: torch.device | str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Say which methods help on a stream: measured where labels are known, else estimated without any.

    Each batch goes to the source model and to every method, so the data are read once. The signs that the estimate
    reads cost each of them one more forward pass, of the images' other view.

    Args:
        model: as for `steep.adapt`; it is copied and left untouched.
        loader: batches of images, of (images, labels) or of a mapping with "labels"; or all images in one tensor.
        methods: names or `Method`s; a mapping gives them other names. One that cannot adapt this model is left out.
        labels: one for each image in order, where the batches have none; −1: not known.
        batch_size: of a tensor that holds all images.
        view: "mirror", or "shift" where a mirror changes the class, as with digits and text.
        setting: "paper" or "tuned", as in `steep.adapt`.
        seed: of every method's random stream.
        precision: of all of them, the source model too, as in `steep.adapt`.
        device: where to work; None for where the model is.
        progress: called with the number of images done.

    >>> import steep
    >>> model = steep.models.build("wrn-10-1", 10)
    >>> result = steep.compare(model, torch.rand(32, 3, 32, 32), ["bn"], batch_size=16)
    >>> [row["method"] for row in result.rows()], result.labelled
    (['source', 'bn'], 0)
    """
    check_known("view", VIEWS, view)
    every, refused = {SOURCE: _Answers(adapt(model, SOURCE, precision=precision, device=device))}, {}
    for name, method in _by_name(methods, setting).items():
        try:
            every[name] = _Answers(adapt(model, method, seed=seed, precision=precision, device=device))
        except NothingToAdaptError as error:
            refused[name] = str(error)
    if len(every) == 1:
        raise InputError("methods: none of them can adapt this model. " + " ".join(refused.values()))
    known: list[Tensor] = []
    for batch, its_labels in _batches(loader, batch_size):
        for answers in every.values():
            answers.add(batch, VIEWS[view])
        known += [] if its_labels is None else [torch.as_tensor(its_labels).cpu()]
        if progress is not None:
            progress(int(every[SOURCE].signs.images))
    images = sum(map(len, every[SOURCE].classes))
    if not images:
        raise InputError("loader: expected at least one batch of images, got none")
    truth = torch.cat(known) if known else torch.as_tensor([-1] * images if labels is None else labels).cpu()
    if truth.shape != (images,):
        raise InputError(f"labels: expected one for each of the {images} images, got the shape {tuple(truth.shape)}")
    rows = _judged(every, truth)
    return Comparison(images, int((truth >= 0).sum()), tuple(rows), refused)


def _judged(every: Mapping[str, _Answers], truth: Tensor) -> Iterator[Row]:
    """Compare each with the source model: image by image where labels are known, else by the signs."""
    source = every[SOURCE]
    first, known = torch.cat(source.classes), truth >= 0
    for name, answers in every.items():
        classes = torch.cat(answers.classes)
        changed = float((classes != first).double().mean())
        if known.any():
            after, before = (_accuracy(of[known] == truth[known]) for of in (classes, first))
            gain, accuracy = _measured(after - before), after.value
        else:
            gain = estimated_gain(source.signs.read(), answers.signs.read(), changed)
            accuracy = min(100.0, max(0.0, estimated_accuracy(source.signs.read()) + gain.gain))
        verdict = gain.verdict if answers is not source else ""
        rest = {**gain._asdict(), "changed": 100 * changed, "verdict": verdict, "note": answers.note}
        yield Row(method=name, accuracy=accuracy, **rest)


def _accuracy(right: Tensor) -> Measured:
    shares = 100 * right.double().numpy() / len(right)
    return Measured(float(shares.sum()), 0.0, images={(): shares})


def _measured(gain: Measured) -> Estimate:
    return Estimate(gain.value, gain.value - ERRORS * gain.error, gain.value + ERRORS * gain.error)


def _by_name(methods: Any, setting: str) -> dict[str, Method[Any]]:
    """Make the methods and give each a name."""
    if isinstance(methods, Mapping):
        return {name: make(method, setting) for name, method in methods.items()}
    made = [make(method, setting) for method in ([methods] if isinstance(methods, (str, Method)) else methods)]
    others = [method for method in made if method.name != SOURCE]  # which is always there
    by_name = {method.name: method for method in others}
    if len(by_name) < len(others) or not others:
        raise InputError(
            f"methods: expected at least one, and each once, got {[method.name for method in made]}. A mapping gives "
            "them other names: {'gentle': Tent(lr=1e-4), 'strong': Tent(lr=1e-2)}"
        )
    return by_name


def _batches(loader: Iterable[Any], batch_size: int) -> Iterator[tuple[Any, Any]]:
    """Read batches, with labels where they have some."""
    if hasattr(loader, "ndim"):  # a tensor or array
        images: Any = loader
        loader = (images[start : start + batch_size] for start in range(0, len(images), batch_size))
    for batch in loader:
        if isinstance(batch, Mapping):
            yield batch, batch.get("labels")
        else:
            pair = isinstance(batch, (tuple, list)) and hasattr(batch[-1], "ndim") and len(batch) == 2
            yield batch, batch[1] if pair else None
