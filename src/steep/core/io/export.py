"""The adapted model as an ordinary module: no adapter, no hooks but the caller's, ready for export or a file.

What a method moved is kept as it is: parameters, and with dua the running statistics. Batch statistics are another
matter. Under bn, tent, tea and most others a BatchNorm answers by the batch it sees, and an ordinary module in eval
mode cannot: it has one fixed mean and variance. The source model's would be wrong, since what was adapted was adapted
to the batch's. So they are measured, on images that the caller gives.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from steep.core.classifier import Classifier, as_logits
from steep.core.io.arguments import copy_model
from steep.core.io.images import explain_forward_error
from steep.core.layers import batch_norms, mixing_of, mixtures, running_statistics, use_source_statistics
from steep.core.losses import widen
from steep.core.method import Method
from steep.core.run import precision
from steep.errors import InputError, SteepWarning

_HALF = (torch.float16, torch.bfloat16)


@torch.no_grad()
def merged(model: Classifier, images: Tensor | Iterable[Any] | None, **keep: bool) -> nn.Module:
    """Copy the adapted model into an ordinary module of the caller's class, in eval mode and without gradients.

    `images` is a batch, or several, alone or as (images, labels) pairs; labels are not read. The rest is as for
    `Classifier.check_images`.
    """
    twin = copy_model(model)
    layers = [layer for layer in batch_norms(twin.net) if mixing_of(layer) and layer.running_mean is not None]
    answers = _measure(twin, layers, images, keep) if layers else []
    net = twin.net
    use_source_statistics(net)
    for module in net.modules():
        for key, hook in list(module._forward_pre_hooks.items()):
            if hook is precision._contiguous_on_cpu:
                del module._forward_pre_hooks[key]
    # Frozen weights that were held in half precision come back in float32, and so does a model that came in half
    # precision itself: an update of a thousandth of a weight has no digits in bfloat16, and rounding would undo it.
    for tensor in (*net.parameters(), *net.buffers()):
        if tensor.dtype in _HALF:
            tensor.data = tensor.data.float()
    if model.layout is torch.channels_last:
        net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    net.requires_grad_(False).eval()
    hooked = [layer for layer in layers if layer._forward_hooks or layer._forward_pre_hooks]  # by the caller
    if hooked and len(answers) == 1 and model.low is None:
        _check_hooks(net, hooked, *answers[0])
    return net


def warn_if_inexact(method: Method[Any], views: str | None) -> None:
    """Warn of answers that no ordinary module gives: those made of more than one forward of the adapted model."""
    if views or type(method).predict is not Method.predict:
        warnings.warn(
            f"merged: {f'views={views!r}' if views else method.name} answers by more than one forward of the adapted "
            "model, and an ordinary module makes only that: it answers differently. Compare both on your images, or "
            "keep the adapter (adapter.save(path), steep.resume)",
            SteepWarning,
            stacklevel=3,
        )


def _measure(
    model: Classifier, layers: list[_BatchNorm], images: Tensor | Iterable[Any] | None, keep: Mapping[str, bool]
) -> list[tuple[Tensor, Tensor]]:
    """Put into the running statistics what the layers normalise these images by; give the first batches and answers.

    One forward tells it for all layers, since each sees what the ones before it made of the same batch. Several
    batches are averaged by their number of images. A layer that runs twice in one forward normalises by other
    statistics each time, and is refused.
    """
    if images is None:
        raise InputError(
            "merged: this method normalises each batch by its own statistics, and an ordinary module needs fixed ones. "
            "Give it images to measure them on, as many as you can and like those it will meet: adapter.merged(x)"
        )
    sums = {layer: [torch.zeros_like(t) for t in running_statistics(layer)] for layer in layers}
    seen: dict[nn.Module, int] = dict.fromkeys(layers, 0)
    answers: list[tuple[Tensor, Tensor]] = []
    model.compile_forward = False  # a compiled forward tells nothing
    for batch in [images] if isinstance(images, (Tensor, np.ndarray)) else images:
        x, good = model.check_images(batch, **keep)
        x = x if good is None else x[good]
        if not len(x):
            continue
        with explain_forward_error(x), mixtures(model.net) as statistics:
            answers = [*answers[:1], (x, model(x))]
        for layer, *measured in statistics:
            if sum(each is layer for each, *_ in statistics) > 1:
                raise InputError(_shared(model.net, layer))
            seen[layer] += len(x)
            for total, value in zip(sums[layer], measured, strict=True):
                total += len(x) * value
    if not any(seen.values()):
        raise InputError("merged: expected images to measure statistics on, got none")
    for layer in layers:
        if seen[layer]:  # a layer that no image reaches keeps what it has
            for running, total in zip(running_statistics(layer), sums[layer], strict=True):
                running.copy_(total / seen[layer])
    return answers


def _check_hooks(net: nn.Module, hooked: list[_BatchNorm], x: Tensor, answer: Tensor) -> None:
    """Refuse hooks of the caller's that see other features in an adapter, and so change the answer in another way."""
    scale = float(answer.abs().max())
    if not torch.allclose(widen(as_logits(net(x))), answer, rtol=1e-2, atol=1e-2 * scale, equal_nan=True):
        name = next(name for name, module in net.named_modules() if module is hooked[0])
        raise InputError(
            f"merged: with the hook of {name} ({type(hooked[0]).__name__}) an ordinary module answers differently from "
            "the adapter, which gives that layer its features in other units where it mixes statistics. Remove the "
            "hook, or keep the adapter (adapter.save(path), steep.resume)"
        )


def _shared(net: nn.Module, layer: nn.Module) -> str:
    name = next(name for name, module in net.named_modules() if module is layer)
    return (
        f"merged: {name} ({type(layer).__name__}) runs more than once in a forward, each time by the statistics of "
        "what it then sees, and an ordinary module has one mean and variance for it. Keep the adapter "
        "(adapter.save(path), steep.resume), give each call a layer of its own, or adapt with source statistics "
        "(tent, tea and most others: statistics='source')"
    )
