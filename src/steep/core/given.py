"""The model as the caller gave it: what is no model is refused, what cannot be adapted is given back as it came."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from steep.errors import InputError


def checked(model: nn.Module) -> nn.Module:
    """Refuse what is no model, or has no weights yet."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if nn.parameter.is_lazy(tensor):
            raise InputError(f"model: {name} has no shape yet. Run a batch through the model once, before adapting it")
        if tensor.is_meta:
            raise InputError(f"model: {name} is on the meta device and has no values. Load its weights first")
    return model


@contextmanager
def left_alone_if_refused(model: nn.Module) -> Iterator[None]:
    """Give a model that cannot be adapted in place back as it came."""
    modes = {module: module.training for module in model.modules()}
    wanted = {parameter: parameter.requires_grad for parameter in model.parameters()}
    try:
        yield
    except Exception:
        for module, mode in modes.items():
            module.training = mode
        for parameter, gradient in wanted.items():
            parameter.requires_grad_(gradient)
        raise


def copy_of(model: nn.Module) -> nn.Module:
    """Make the private copy, or say why there can be none."""
    try:
        return copy.deepcopy(model)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise InputError(
            f"model: cannot be copied ({error}). torch's old weight_norm and spectral_norm are a common cause: use "
            "those of torch.nn.utils.parametrizations, or remove them"
        ) from error
