"""BatchNorm statistics with a memory: averaged over a stream, they can take the place of those of one batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from steep.core.batch import alone
from steep.core.classifier import Classifier
from steep.core.layers import batch_norms, mixing_of, mixings_of, mixtures
from steep.core.optim import DescentState


class MixingState(DescentState):
    """A state whose BatchNorm normalises by the batch, and by the source model too where no batch shows all classes."""

    met = False  # no field: what is known is the model's, and nothing to save, reset or undo

    def meet(self, x: Tensor) -> None:
        """Count the classes of the model, once, and leave no trace of the forward that this takes."""
        if self.met:
            return
        hooks = mixings_of(self.model)
        if hooks:
            before = self.model.snapshot()
            try:
                with torch.no_grad(), alone(), self.model.uncompiled():
                    classes = self.model(x).shape[1]
            finally:
                self.model.restore(before)
            for hook in hooks:
                hook.classes = classes
        self.met = True


def source_statistics(model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Copy the running mean and the running variance of every BatchNorm layer that has them."""
    layers = batch_norms(model, running=True)
    return [layer.running_mean.clone() for layer in layers], [layer.running_var.clone() for layer in layers]  # type: ignore[union-attr]


@contextmanager
def remembered(model: nn.Module, mean: Sequence[Tensor], var: Sequence[Tensor], share: Tensor) -> Iterator[None]:
    """Inside, what the layers normalise every batch by goes into averages over the stream, the newest with this share.

    The variance is that of all images together: what lies between the means of two batches belongs to it.
    """
    place = {layer: i for i, layer in enumerate(batch_norms(model, running=True))}
    with mixtures(model) as seen:
        yield
    with torch.no_grad():
        for layer, new_mean, new_var in seen:
            old_mean, old_var = mean[place[layer]], var[place[layer]]
            apart = (new_mean - old_mean).square() * (1 - share)
            old_var.lerp_((new_var + apart).to(old_var.dtype), share.to(old_var.dtype))
            old_mean.lerp_(new_mean.to(old_mean.dtype), share.to(old_mean.dtype))


@contextmanager
def fixed_statistics(
    model: nn.Module,
    mean: Sequence[Tensor] | None = None,
    var: Sequence[Tensor] | None = None,
    *,
    prior: int | None = None,
) -> Iterator[None]:
    """Inside, BatchNorm layers normalise by these statistics, or by the source model's, whatever the batch is.

    With a `prior`, a batch of n images counts too, with the weight n / (n + prior).
    """
    layers = batch_norms(model, running=True)
    hooks = [mixing_of(layer) for layer in layers]
    source = [(layer.running_mean, layer.running_var) for layer in layers]
    try:
        for i, (layer, hook) in enumerate(zip(layers, hooks, strict=True)):
            if hook is not None:
                hook.off, hook.helper = prior is None, prior
            if mean is not None and var is not None:
                layer._buffers.update(running_mean=mean[i], running_var=var[i])
        yield
    finally:
        for layer, hook, (source_mean, source_var) in zip(layers, hooks, source, strict=True):
            if hook is not None:
                hook.release()
            layer._buffers.update(running_mean=source_mean, running_var=source_var)


@contextmanager
def parameters_at(model: Classifier, values: Sequence[Tensor]) -> Iterator[None]:
    """Inside, the adapted parameters have other values. Nothing is copied, and a gradient that waits stays right.

    Other tensors take their places, which a snapshot knows: an interrupt in between can be undone.
    """
    other = dict(zip(map(id, model.adapted().values()), values, strict=True))
    slots = [slot for slot in model.slots() if id(slot[2]) in other]
    try:
        for tensors, name, tensor in slots:
            tensors[name] = nn.Parameter(other[id(tensor)], requires_grad=False)
        yield
    finally:
        for tensors, name, tensor in slots:
            tensors[name] = tensor
