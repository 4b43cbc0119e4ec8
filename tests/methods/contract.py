"""The rules every method keeps, as functions that fail when a rule is broken.

`test_contract.py` runs them over all methods, nets and precisions, and `test_mutants.py` over methods with planted
faults, so that the suite itself is known to see them.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import io
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import steep
from nets import Counted, few, images, net
from steep.core.method import Method, Need
from steep.core.run.contexts import fresh_casts
from steep.errors import NothingToAdaptError

RULES: list[Callable[[Case], None]] = []


@dataclasses.dataclass(frozen=True)
class Case:
    """A method with its hyper-parameters, on a net, in a precision."""

    method: type[Method] | str
    model: nn.Module
    bfloat16: bool = False
    hyper: dict = dataclasses.field(default_factory=dict)

    @property
    def kind(self) -> type[Method]:
        return steep.METHODS[self.method] if isinstance(self.method, str) else self.method

    def adapter(self, **options) -> steep.Adapter:
        return steep.adapt(self.model, self.method, source=[images(20, seed=99)], **self.hyper, **options)

    def autocast(self):
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bfloat16)

    @property
    def batch(self) -> int:
        return few(self.kind.name)

    def run(self, adapter, seeds=range(2), n: int | None = None) -> list[torch.Tensor]:
        with self.autocast():
            return [adapter(images(n or self.batch, seed=s)) for s in seeds]


def rule(check):
    RULES.append(check)
    return check


def same(a, b) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def identical(a, b) -> bool:
    """Nested dicts and lists with equal tensors and values."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(identical(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(identical, a, b))
    return a == b


def contents(model: nn.Module) -> dict:
    """Everything a caller could notice about their model, in a form that compares."""
    return {
        "tensors": {k: v.clone() for k, v in model.state_dict().items()},
        "modes": [m.training for m in model.modules()],
        "grads": [(p.requires_grad, p.grad is None) for p in model.parameters()],
        "hooks": [len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()],
        "ids": [id(t) for t in (*model.parameters(), *model.buffers())],
        "tracking": [getattr(m, "track_running_stats", None) for m in model.modules()],
    }


def equal(a: dict, b: dict) -> bool:
    tensors = same(a["tensors"].values(), b["tensors"].values())
    return tensors and all(a[k] == b[k] for k in a if k != "tensors")


def answering(adapter: steep.Adapter) -> dict:
    """What of its state an adapter answers by: its model; if the method answers in another way, all but its draws."""
    state = adapter.state_dict()["state"]
    by_model = type(adapter.method).predict is Method.predict
    draws = [name for name, value in vars(adapter._state).items() if isinstance(value, torch.Generator)]
    return {name: value for name, value in state.items() if name == "model" or not (by_model or name in draws)}


@rule
def moves_something_and_leaves_the_callers_model(case: Case) -> None:
    case.model.train()  # a caller may have left it so
    before = contents(case.model)
    adapter = case.adapter()
    start = copy.deepcopy(answering(adapter))
    case.run(adapter)
    assert equal(before, contents(case.model)), "the caller's model was changed"
    moved = not identical(start, answering(adapter))
    assert moved == adapter.method.moves, "it moved and says it does not, or every other rule would hold for no reason"


@rule
def hyper_parameters_are_frozen(case: Case) -> None:
    adapter = case.adapter()
    before = dict(vars(adapter.method))
    for field in dataclasses.fields(adapter.method):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(adapter.method, field.name, None)
    case.run(adapter)
    assert vars(adapter.method) == before, "the method kept something for itself"


@rule
def resumes_mid_stream(case: Case) -> None:
    straight = case.adapter(seed=3)
    expected = case.run(straight, range(4))
    stopped = case.adapter(seed=3)
    case.run(stopped, range(2))
    file = io.BytesIO()
    torch.save(stopped.state_dict(), file)
    file.seek(0)
    resumed = case.adapter(seed=3)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert same(case.run(resumed, range(2, 4)), expected[2:]), "saving and resuming changed the stream"
    assert identical(resumed.state_dict(), straight.state_dict()), "saving and resuming changed the state"
    resumed.reset()
    assert same(case.run(resumed, range(2)), expected[:2]), "a resumed adapter does not reset to the source"


@rule
def reset_replays(case: Case) -> None:
    adapter = case.adapter()
    start = adapter.state_dict()
    first, end = case.run(adapter), adapter.state_dict()
    adapter.reset()
    assert adapter.last is None
    assert identical(adapter.state_dict(), start), "reset() left something behind"
    assert same(case.run(adapter), first), "after reset() the same stream gave other answers"
    assert identical(adapter.state_dict(), end), "after reset() the same stream led elsewhere"


@rule
def randomness_is_its_own(case: Case) -> None:
    def world():
        return torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()

    torch.manual_seed(1)
    before = world()
    first = case.run(case.adapter(seed=7))
    after = world()
    assert torch.equal(before[0], after[0]), "a global random stream was drawn from"
    assert before[1:] == after[1:], "a global random stream was drawn from"
    torch.manual_seed(2)
    assert same(case.run(case.adapter(seed=7)), first), "the answers depend on a global seed"


@rule
def works_under_no_grad_and_inference_mode(case: Case) -> None:
    expected = case.run(case.adapter())
    with torch.no_grad():
        assert same(case.run(case.adapter()), expected)
    with torch.inference_mode():
        assert same(case.run(case.adapter()), expected)


@rule
def takes_any_batch_size(case: Case) -> None:
    adapter = case.adapter()
    for n in (1, 2, 16, 33, 1):
        (logits,) = case.run(adapter, [n], n=n)
        assert logits.shape == (n, 5)
        assert torch.isfinite(logits).all()
    moved = adapter.state_dict()["state"]["model"].values()
    assert all(torch.isfinite(t).all() for t in moved), "parameters are no longer finite"


@rule
def answers_detached_in_float32(case: Case) -> None:
    for predict in ("before", "after"):
        for logits in case.run(case.adapter(predict=predict)):
            assert logits.dtype == torch.float32
            assert not logits.requires_grad
            assert logits.grad_fn is None
            assert not logits.is_inference()


@rule
def predicts_when_it_says(case: Case) -> None:
    x = images(case.batch)
    adapter = case.adapter()
    assert adapter.predict == adapter.method.predicts
    with case.autocast():
        after = case.adapter(predict="after")(x)
        assert torch.equal(after, answer(case, x, steps=1)), "'after' is not the answer after it"
        before = case.adapter(predict="before")(x)
        assert torch.equal(before, answer(case, x, steps=0)), "'before' is not the answer before the update"


@torch.no_grad()
def answer(case: Case, x: torch.Tensor, *, steps: int) -> torch.Tensor:
    """What the method answers after some steps: of one that has the state they led to, and has seen other images."""
    walks, answers = case.adapter(), case.adapter()
    case.run(answers, [5])
    with fresh_casts():
        with torch.enable_grad():
            for _ in range(steps):
                walks.method.step(walks._state, x)
        answers._state.restore(walks._state.snapshot())
        logits = answers.method.predict(answers._state, x).float()
        if case.kind.predict is Method.predict:
            assert torch.equal(logits, answers.model(x).float()), "it does not answer with its model"
    return logits


@rule
def needs_batch_norm_only_if_it_says_so(case: Case) -> None:
    needs_it = Need.BATCH_NORM in case.kind.needs
    for kind in ("group", "layer"):
        other = dataclasses.replace(case, model=net(kind))
        if needs_it:
            with pytest.raises(NothingToAdaptError, match={"group": "2 GroupNorm", "layer": "2 LayerNorm"}[kind]):
                other.adapter()
        else:
            other.adapter()


@rule
def costs_what_it_says(case: Case) -> None:
    batch, batches = case.batch, 3
    adapter = dataclasses.replace(case, model=Counted(case.model)).adapter()
    adapter.model.forwards = adapter.model.backwards = 0.0  # eata has looked at source images
    with case.autocast():
        for seed in range(batches):
            adapter.method.step(adapter._state, images(batch, seed=seed))
    total = batch * batches
    counts = (adapter.model.forwards + adapter.model.backwards) / total
    assert counts == pytest.approx(adapter.method.passes(batch, total)), "passes() is not what a step costs"


@rule
def fits_on_a_page(case: Case) -> None:
    lines = len(inspect.getsource(inspect.getmodule(case.kind)).splitlines())
    assert lines < 100, f"{lines} lines"
    assert case.kind.__doc__
    assert case.kind.paper
