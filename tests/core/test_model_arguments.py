"""The model given: its copy has nothing to do with it, and one refused in place is as it was."""

from __future__ import annotations

import copy
import functools
import types

import pytest
import torch
from torch import nn

import steep
from nets import Counting, images, net
from steep.errors import InputError, SteepError, SteepWarning


def logged(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)

    return inner


class Holding(nn.Module):
    """Has a function of its own, made from itself by `make`."""

    def __init__(self, make) -> None:
        super().__init__()
        self.net = net()
        self.head = make(self)

    def forward(self, x):
        return self.head(self.net(x))


def replaced(wrap, part: str = "") -> nn.Module:
    model = nn.Sequential(net())
    owner = model.get_submodule(part)
    owner.forward = wrap(owner.forward)
    return model


SCRIPT = "own = model.forward\ndef forward(x): return own(x)\nmodel.forward = forward"  # names of a script are globals


def scripted() -> nn.Module:
    model = net()
    exec(SCRIPT, {"model": model})
    return model


RUN_THE_ORIGINAL = {
    "compiled": (lambda: replaced(lambda f: torch.compile(f, backend="eager")), "model: forward "),
    "autocast": (lambda: replaced(torch.autocast("cpu", torch.bfloat16)), "model: forward "),
    "wrapped": (lambda: replaced(logged), "model: forward "),
    "twice": (lambda: replaced(lambda f: functools.partial(logged(logged(f)))), "model: forward "),
    "inside": (lambda: replaced(logged, "0.1"), r"model: 0\.1\.forward "),
    "lambda": (lambda: Holding(lambda model: lambda y: y + 0 * model.net[9].weight.sum()), "model: head "),
    "default": (lambda: Holding(lambda model: lambda y, net=model.net: y), "model: head "),
    "list": (lambda: Holding(lambda model: [lambda y: model.net(y)]), "model: head "),
    "script": (scripted, "model: forward "),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")  # torch's compiler, on import
@pytest.mark.parametrize("how", RUN_THE_ORIGINAL)
def test_a_function_that_would_run_the_original_in_the_copy_is_refused(how):
    make, message = RUN_THE_ORIGINAL[how]
    with pytest.raises(InputError, match=message + ".*inplace=True"):
        steep.adapt(make(), "tent")


def test_in_place_a_replaced_forward_adapts_but_cannot_be_merged():
    mine = replaced(logged)
    adapter, twin = steep.adapt(mine, "tent", inplace=True), steep.adapt(net(), "tent")
    for s in range(2):
        assert torch.equal(adapter(images(seed=s)), twin(images(seed=s)))
    with pytest.raises(InputError, match=r"model: net\.forward "):
        adapter.merged(images())


def as_accelerate_does(model: nn.Module) -> nn.Module:
    def forward(module, *args):
        return module._old_forward(*args)

    model._old_forward = model.forward
    model.forward = functools.update_wrapper(functools.partial(forward, model), model._old_forward)
    return model


def with_a_method(model: nn.Module) -> nn.Module:
    forward = type(model).forward
    model.forward = types.MethodType(lambda self, x: forward(self, x), model)
    return model


def with_its_own(model: nn.Module) -> nn.Module:
    model.forward = model.forward
    return model


def with_a_note(model: nn.Module) -> nn.Module:
    notes: list[torch.Size] = []
    model[0].register_forward_hook(lambda layer, args, out: notes.append(out.shape))
    return model


def compiled(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def of_plain_functions(model: nn.Module) -> nn.Module:
    model.act, model.layer, teacher = torch.relu, functools.partial(nn.BatchNorm2d, eps=1e-3), net(seed=1)
    model.distance = lambda y: (y - teacher(y)).norm()
    return model


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")  # torch's compiler, on import
@pytest.mark.parametrize(
    "change", [as_accelerate_does, with_a_method, with_its_own, with_a_note, compiled, of_plain_functions]
)
def test_what_is_copied_with_the_model_is_not_refused(change):
    model = change(net())
    before = copy.deepcopy(model.state_dict())
    adapter, twin = steep.adapt(model, "tent"), steep.adapt(net(), "tent")
    for s in range(2):
        assert torch.equal(adapter(images(seed=s)), twin(images(seed=s)))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_a_hook_that_reaches_into_the_original_is_warned_about():
    model = net()
    model[9].register_forward_pre_hook(lambda layer, args: (args[0] + 0 * model[4].weight.sum(),))
    with pytest.warns(SteepWarning, match="a hook of 9"):
        steep.adapt(model, "tent")


class Interrupted:
    """Source images that somebody does not want to wait for."""

    def __iter__(self):
        yield images()
        raise KeyboardInterrupt


REFUSED = {
    "precision": ("tent", {"precision": "fp16"}, SteepError),
    "params": ("tent", {"params": "nothing of this name", "precision": "bfloat16"}, SteepError),
    "no source": ("eata", {"source": []}, SteepError),
    "bad source": ("eata", {"source": [images(), images() * torch.nan], "precision": "bfloat16"}, SteepError),
    "interrupt": ("eata", {"source": Interrupted(), "precision": "bfloat16"}, KeyboardInterrupt),
    "no group": ("tent", {"distributed": True, "precision": "bfloat16"}, SteepError),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("cause", REFUSED)
def test_a_model_refused_in_place_is_exactly_as_it_was(cause, training):
    method, options, error = REFUSED[cause]
    mine = Counting().train(training)
    mine.net[9].bias.requires_grad_(False)
    mine.net[9].weight.grad = torch.ones_like(mine.net[9].weight)
    handle = mine.net[1].register_forward_pre_hook(lambda layer, args: (args[0] * 2,))
    twin, tensors = copy.deepcopy(mine), [*mine.parameters(), *mine.buffers()]
    with pytest.raises(error):
        steep.adapt(mine, method, inplace=True, **options)
    assert all(a is b for a, b in zip([*mine.parameters(), *mine.buffers()], tensors, strict=True))
    for a, b in zip([*mine.parameters(), *mine.buffers()], [*twin.parameters(), *twin.buffers()], strict=True):
        assert (a.dtype, a.requires_grad) == (b.dtype, b.requires_grad)
        assert torch.equal(a, b)
    gradients = {name: p.grad for name, p in mine.named_parameters() if p.grad is not None}
    assert list(gradients) == ["net.9.weight"]
    assert torch.equal(gradients["net.9.weight"], torch.ones(5, 8))
    for a, b in zip(mine.modules(), twin.modules(), strict=True):
        assert a.training == b.training
        assert getattr(a, "track_running_stats", None) == getattr(b, "track_running_stats", None)
        assert list(a._forward_pre_hooks) == list(b._forward_pre_hooks)
    handle.remove()  # finds its table
    assert not mine.net[1]._forward_pre_hooks
    twin.net[1]._forward_pre_hooks.clear()
    for mode in (training, not training):
        answers = []
        for model in (mine, twin):
            torch.manual_seed(0)  # of the dropout
            answers.append(model.train(mode)(images()))
        assert torch.equal(*answers)
