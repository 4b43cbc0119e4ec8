"""The adapted model as an ordinary module: no hooks, no adapter, ready for torch.export, ONNX or a file.

What a method moved is kept as it is: parameters, and with dua the running statistics. Batch statistics are another
matter. Under bn, tent, tea and most others a BatchNorm answers by the batch it sees, and an ordinary module in eval
mode cannot: it has one fixed mean and variance. The source model's would be wrong, since what was adapted was adapted
to the batch's. So they are measured, on images that the caller gives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from steep.core.classifier import Classifier
from steep.core.io.arguments import copy_model
from steep.core.io.images import explain_forward_error, images_of
from steep.core.layers import batch_norms, mixing_of, use_source_statistics
from steep.core.run import precision
from steep.errors import InputError

_HALF = (torch.float16, torch.bfloat16)


@torch.no_grad()
def merged(model: Classifier, images: Tensor | Iterable[Any] | None, *, keep_bad: bool = False) -> nn.Module:
    """Copy the adapted model into an ordinary module of the caller's class, in eval mode and without gradients.

    `images` is a batch, or several, images_of or as (images, labels) pairs; labels are not read.
    """
    twin = copy_model(model)
    layers = [layer for layer in batch_norms(twin.net) if mixing_of(layer) and layer.running_mean is not None]
    if layers:
        _measure(twin, layers, images, keep_bad)
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
    return net.requires_grad_(False).eval()


def _measure(
    model: Classifier, layers: list[_BatchNorm], images: Tensor | Iterable[Any] | None, keep_bad: bool
) -> None:
    """Put into the running statistics what the layers normalise these images by.

    One forward tells it for all layers, since each sees what the ones before it made of the same batch. Several
    batches are averaged by their number of images. A layer that runs twice in one forward normalises by other
    statistics each time, and is refused.
    """
    if images is None:
        raise InputError(
            "merged: this method normalises each batch by its own statistics, and an ordinary module needs fixed ones. "
            "Give it images to measure them on, as many as you can and like those it will meet: adapter.merged(x)"
        )
    sums = {layer: [torch.zeros_like(t) for t in _running(layer)] for layer in layers}
    seen: dict[nn.Module, int] = dict.fromkeys(layers, 0)
    ran: set[nn.Module] = set()  # in this forward

    def look(layer: Any, args: tuple[Tensor, ...]) -> None:
        if layer in ran:
            raise InputError(_shared(model.net, layer))
        ran.add(layer)
        seen[layer] += len(args[0])
        for total, measured in zip(sums[layer], mixing_of(layer).statistics(layer, args[0]), strict=True):  # type: ignore[union-attr]
            total += len(args[0]) * measured

    # before the hook that mixes statistics for small batches: it changes what the layer sees
    hooks = [layer.register_forward_pre_hook(look, prepend=True) for layer in layers]
    model.compile_forward = False  # a compiled forward would have to be compiled again for the hooks
    for batch in [images] if isinstance(images, Tensor) else images:
        x, good = model.check_images(images_of(batch), keep_bad=keep_bad)
        x = x if good is None else x[good]
        ran.clear()
        if len(x):
            with explain_forward_error(x):
                model(x)
    for hook in hooks:
        hook.remove()
    if not any(seen.values()):
        raise InputError("merged: expected images to measure statistics on, got none")
    for layer in layers:
        if seen[layer]:  # a layer that no image reaches keeps what it has
            for running, total in zip(_running(layer), sums[layer], strict=True):
                running.copy_(total / seen[layer])


def _shared(net: nn.Module, layer: nn.Module) -> str:
    name = next(name for name, module in net.named_modules() if module is layer)
    return (
        f"merged: {name} ({type(layer).__name__}) runs more than once in a forward, each time by the statistics of "
        "what it then sees, and an ordinary module has one mean and variance for it. Keep the adapter "
        "(adapter.save(path), steep.resume), give each call a layer of its own, or adapt with source statistics "
        "(tent, tea and most others: statistics='source')"
    )


def _running(layer: _BatchNorm) -> tuple[Tensor, Tensor]:
    mean, var = layer.running_mean, layer.running_var
    if mean is None or var is None:
        raise InputError("merged: expected a BatchNorm with running statistics")
    return mean, var
