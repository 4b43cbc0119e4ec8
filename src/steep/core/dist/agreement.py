"""Ranks that adapt together agree on a batch before anything changes: how many images, of which shape, any error.

An error of one rank is then raised by all of them, and no rank waits for one that has stopped.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from steep.core.io import images
from steep.core.dist.group import Group, Scope
from steep.core.run.snapshot import tensors
from steep.core.method import Method, State
from steep.core.classifier import Classifier
from steep.errors import InputError

FINE, REFUSED, NO_MEMORY = range(3)
_DIMENSIONS = 4  # of an image, at most


@dataclass(frozen=True)
class Part:
    """What a rank brings to a batch that all agree on."""

    x: Tensor  # its good images; none is fine too
    good: Tensor  # a mask of them among all its images
    others: Tensor | None  # the answers to the others, with places for theirs; None where there are no others
    scope: Scope
    fits: bool  # no rank has run out of memory so far


def reach(
    group: Group, x: Tensor, model: Classifier, shapes_tried: set[torch.Size], same: int,
    answer_others: Callable[[Tensor, Tensor], Tensor], *, pieces: bool, **keep: bool
) -> Part:
    """Check this rank's images and agree with the others. `same` must be the same number on all ranks.

    Images that take no part are answered first, by `answer_others(images, good)`: an error there is one of all ranks too.
    With `pieces`, running out of memory is no error: the batch can be answered in pieces. The rest is as for
    `Classifier.check_images`.
    """
    good: Tensor | None = None
    error: Exception | None = None
    shape: tuple[int, ...] = ()
    others: Tensor | None = None
    status = FINE
    try:
        x, good = _check(x, model, keep)
        shape = tuple(x.shape[1:]) if len(x) else ()
        others = None if good is None else answer_others(x, good)
        x = x if good is None else x[good]
        if len(x) and x.shape[1:] not in shapes_tried:
            images.probe_forward(x, model)
            shapes_tried.add(x.shape[1:])
    except torch.cuda.OutOfMemoryError as out:
        status, error = (NO_MEMORY, None) if pieces else (REFUSED, out)
    except Exception as refusal:
        status, error = REFUSED, refusal
    padding = [0] * (_DIMENSIONS - len(shape))
    count = len(x) if status != REFUSED else 0
    rows = group.exchange([status, same, count, len(shape), *shape, *padding])
    if any(row[0] == REFUSED for row in rows):
        _refuse(group, rows, error)
    if len({row[1] for row in rows}) > 1:
        raise InputError(
            "distributed: the ranks' adapters are not the same. All need one model with the same weights, one method "
            "with the same options, and the same reset() and load_state_dict() calls"
        )
    shapes = {tuple(row[4 : 4 + row[3]]) for row in rows if row[3]}
    if not shapes:
        raise InputError("images: expected at least one on some rank, got none on any")
    if len(shapes) > 1:
        raise InputError(f"images: expected one shape on all ranks, got {sorted(shapes)}")
    if not shape:
        x = x.new_empty((0, *shapes.pop()))
    counts = tuple(row[2] for row in rows)
    good = torch.ones(len(x), dtype=torch.bool, device=x.device) if good is None else good
    return Part(x, good, others, Scope(group, counts), all(row[0] == FINE for row in rows))


def fingerprint(state: State, method: Method[Any], options: Mapping[str, Any]) -> int:
    """Checksum of method, options, frozen weights and everything on the device that moves. Never 0."""
    words = method.name, asdict(method), dict(options), state.model.fingerprint()
    crc = zlib.crc32(repr(words).encode())
    for tensor in tensors(state):
        crc = zlib.crc32(tensor.detach().reshape(-1).cpu().view(torch.uint8).numpy().tobytes(), crc)
    return crc + 1


def _check(x: Tensor, model: Classifier, keep: Mapping[str, bool]) -> tuple[Tensor, Tensor | None]:
    if isinstance(x, Tensor) and x.ndim and len(x) == 0:  # a rank may have no image
        return model.anchor().new_empty(0), None
    return model.check_images(x, **keep)


def _refuse(group: Group, rows: list[list[int]], error: Exception | None) -> None:
    """Raise on all ranks: the error itself where it arose, its words on the others."""
    texts = group.exchange_text("" if error is None else f"{type(error).__name__}: {error}")
    if error is not None:
        raise error
    refused = [rank for rank, row in enumerate(rows) if row[0] == REFUSED]
    raise InputError(f"images: refused on rank {refused[0]}, so no rank adapts on this batch. {texts[refused[0]]}")
