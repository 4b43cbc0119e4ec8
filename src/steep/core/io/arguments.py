"""Validate, copy and place the caller's model, and validate arguments that would fail late."""

from __future__ import annotations

import copy
import dis
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import CellType, FunctionType, MethodType, NoneType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from steep.errors import InputError, SteepWarning

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))  # its tables of parameters, parts and hooks, and its mode
M = TypeVar("M", bound=nn.Module)
T = TypeVar("T")
_EMPTY = CellType()  # of a name that is not bound yet


def check_batches(name: str, batches: Any) -> None:
    """Refuse what cannot be iterated over. It is not iterated here, since that may start workers."""
    if batches is not None and not (hasattr(batches, "__iter__") or hasattr(batches, "__getitem__")):
        raise InputError(
            f"{name}: expected batches of images, got {type(batches).__name__}. Give a list or a DataLoader"
        )


def check_functions(name: str, functions: Iterable[Any]) -> list[Callable[..., None]]:
    """Refuse what is not a list of functions."""
    every = list(functions) if isinstance(functions, Iterable) else [None]
    if not all(map(callable, every)):
        raise InputError(f"{name}: expected a list of functions, got {functions!r}. Give one as [function]")
    return every


def check_model(model: nn.Module) -> nn.Module:
    """Refuse what is no model, or has no weights yet."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            what = f"{name} is a TorchScript module, whose layers" if name else "the layers of a TorchScript model"
            raise InputError(f"model: {what} cannot adapt. Give the nn.Module it was made from")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if nn.parameter.is_lazy(tensor):
            raise InputError(f"model: {name} has no shape yet. Run a batch through the model once, before adapting it")
        if tensor.is_meta:
            raise InputError(f"model: {name} is on the meta device and has no values. Load its weights first")
    return model


def check_device(name: str, device: str) -> str:
    """Refuse a device that does not work here."""
    try:
        torch.zeros(1, device=device).cpu()
    except Exception as error:  # every backend refuses in its own way
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{name}: expected one that works here, such as cpu, got {device!r} ({why})") from error
    return device


def move_model(model: M, device: torch.device | str | None) -> M:
    """Bring a model to a device, or say why it cannot be there."""
    try:
        if not isinstance(device, (torch.device, str, int, NoneType)):  # torch takes 3.5 for something else
            raise TypeError("expected a device, its name or its number")
        return model.to(device)
    except (AssertionError, RuntimeError, TypeError) as error:  # torch's words for no GPU, no such one, no device
        if isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        why = str(error).strip().split("\n")[0]
        raise InputError(f"device: the model cannot be brought to {device} ({why})") from error


@contextmanager
def restored_if_refused(model: nn.Module) -> Iterator[None]:
    """Restore a model that cannot be adapted in place: its layers, hooks, dtypes, devices and values.

    Setting up puts other tensors in the place of the weights and never writes to them, so the weights are kept by
    reference: there may be no room for a second model. Buffers, which a forward may write to, are copied.
    """
    settings = [(vars(module), dict(vars(module))) for module in model.modules()]
    # in their place, too: a hook's handle finds its table by identity
    tables = [(table, dict(table)) for _, each in settings for table in each.values() if isinstance(table, dict)]
    weights = [(p, p.data, p.requires_grad, p.grad) for p in model.parameters()]
    gradients = [(p.grad, p.grad.data) for p in model.parameters() if p.grad is not None]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        yield
    except BaseException:
        for table, entries in (*settings, *tables):
            table.clear()
            table.update(entries)
        for gradient, values in gradients:
            gradient.data = values
        for parameter, values, wanted, gradient_or_none in weights:
            parameter.data = values
            parameter.requires_grad_(wanted)
            parameter.grad = gradient_or_none
        with torch.no_grad():
            for buffer, values in buffers:
                if not torch.equal(buffer, values):
                    buffer.copy_(values)
        raise


class _ComputedTensors(TorchFunctionMode):
    """Inside, `deepcopy` copies computed tensors, which torch refuses: kept features, weights of an old weight_norm."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__deepcopy__ and not args[0].is_leaf:
            tensor, memo = args
            return memo.setdefault(id(tensor), tensor.detach().clone())
        return func(*args, **(kwargs or {}))


def deepcopy(value: T) -> T:
    """Copy a model, or what holds one, with the tensors that its last forward left behind."""
    with _ComputedTensors():
        return copy.deepcopy(value)


def copy_model(model: M) -> M:
    """Make the private copy, or say why there can be none."""
    try:
        twin = deepcopy(model)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise InputError(
            f"model: cannot be copied ({error}). Remove what copy.deepcopy cannot copy, or adapt it as it is, with "
            "inplace=True"
        ) from error
    originals = {id(part) for part in (*model.modules(), *model.parameters(), *model.buffers())}
    if any(id(part) in originals for part in (*twin.modules(), *twin.parameters(), *twin.buffers())):
        raise InputError(
            "model: copy.deepcopy gives the model itself, or parts of it, so the caller's would adapt. Remove its "
            "__deepcopy__, or adapt it as it is, with inplace=True"
        )
    _check_apart(twin, {id(module) for module in model.modules()})
    return twin


def _check_apart(twin: nn.Module, originals: set[int]) -> None:
    """Refuse a copy that would run the layers of the original, which then learn in the place of its own.

    A function is not copied with what it closes over: after `net.forward = torch.compile(net.forward)`, the forward
    of every copy is that of `net`. Bound methods and partials are copied, and safe. Whether a hook runs layers or
    only takes notes cannot be told beforehand, so that is a warning.
    """
    for path, module in twin.named_modules():
        for name, value in vars(module).items():
            if name not in _OF_EVERY_MODULE and _reaches(value, originals):
                raise InputError(
                    f"model: {f'{path}.{name}' if path else name} is a function that refers to your model, so in a "
                    "copy it would run the layers of the original. Give the model without it (for torch.compile and "
                    "torch.autocast there are compile=True and precision='bfloat16'), or adapt it as it is, with "
                    "inplace=True"
                )
        hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
        if _reaches(hooks, originals):
            warnings.warn(
                f"model: a hook of {path or 'the model'} reaches into your model, not into the copy that adapts. "
                "Layers that it runs do not adapt. Remove it before, or use inplace=True",
                SteepWarning,
                stacklevel=4,
            )


def _reaches(start: Any, originals: set[int]) -> bool:
    """Whether one of these modules, or a module around one, is held by a function or by what it holds in turn."""
    todo, seen = [start], {}
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, nn.Module):
            if any(id(module) in originals for module in value.modules()):
                return True
        else:
            todo += _contents(value)
    return False


def _contents(value: Any) -> Iterable[Any]:
    """What a function, or a container of functions, has at hand when it is called."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return value if len(value) < 1000 else ()  # so many are data
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, MethodType):
        return value.__self__, value.__func__
    if isinstance(value, partial):
        return value.func, value.args, value.keywords, vars(value)
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != _EMPTY]
        return *cells, *_globals(value), value.__defaults__, value.__kwdefaults__, vars(value)
    if callable(value) and not isinstance(value, type):
        return (getattr(value, "__dict__", None),)
    return ()


def _globals(function: FunctionType) -> list[Any]:
    """The models, and methods of models, that a function of a script or a notebook finds there by name."""
    names = {step.argval for step in dis.get_instructions(function) if step.opname == "LOAD_GLOBAL"}
    values = [function.__globals__.get(name) for name in names]
    return [value for value in values if isinstance(value, (nn.Module, MethodType))]
