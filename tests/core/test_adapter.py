"""The adapter's own promises: options, reports, outputs of many forms, bad input, saving."""

from __future__ import annotations

import copy
import io
import math
import pickle
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import steep
from contract import identical
from nets import Counting, few, images, net
from steep.errors import CheckpointError, InputError, SteepWarning, UnknownNameError

TEA = {"sgld_steps": 2, "buffer_size": 64}


class Shaped(nn.Module):
    """Returns its logits in the form asked for."""

    def __init__(self, form) -> None:
        super().__init__()
        self.net = net()
        self.form = form

    def forward(self, x):
        return self.form(self.net(x))


def as_tuple(logits):
    return logits, "features"


def as_dict(logits):
    return {"logits": logits, "loss": None}


def as_object(logits):
    return SimpleNamespace(logits=logits)


@pytest.mark.parametrize("form", [as_tuple, as_dict, as_object])
def test_model_outputs_of_many_forms(form):
    x = images()
    expected = steep.adapt(net(), "tent")(x)
    assert torch.equal(steep.adapt(Shaped(form), "tent")(x), expected)


def test_report_says_what_happened():
    adapter = steep.adapt(net(), "tea", **TEA)
    assert adapter.last is None
    x = images()
    start = copy.deepcopy(adapter.model)
    logits = adapter(x)
    report = adapter.last
    assert report.energy_before == pytest.approx(-start(x).logsumexp(1).mean().item(), abs=1e-5)
    assert report.energy_after == pytest.approx(-logits.logsumexp(1).mean().item(), abs=1e-5)
    assert report.loss == pytest.approx(report.energy_before - report.energy_samples, abs=1e-4)
    assert (report.used, report.skipped) == (20, None)
    with pytest.raises(AttributeError):
        report.loss = 0.0
    tent = steep.adapt(net(), "tent")
    tent(x)
    assert tent.last.energy_after is None
    strict = steep.adapt(net(), "pl", threshold=1.0)
    strict(x)
    assert strict.last.used == 0
    assert strict.last.skipped == "no prediction above 1.0"


def test_steps_repeat_on_the_same_batch_and_episodic_forgets():
    x, y = images(seed=1), images(seed=2)
    twice = steep.adapt(net(), "tent", steps=2)
    once = steep.adapt(net(), "tent")
    once(x)
    assert torch.equal(twice(x), once(x))
    episodic = steep.adapt(net(), "tea", episodic=True, **TEA)
    first = episodic(x)
    episodic(y)
    assert torch.equal(episodic(x), first)


def test_seeds_matter_only_where_there_is_noise():
    x = images()
    run = lambda method, seed, **h: steep.adapt(net(), method, seed=seed, **h)(x)  # noqa: E731
    assert not torch.equal(run("tea", 0, **TEA), run("tea", 1, **TEA))
    assert torch.equal(run("tent", 0), run("tent", 1))


def test_train_eval_deepcopy_and_pickle_are_harmless():
    adapter = steep.adapt(net(), "tea", **TEA)
    adapter(images(seed=1))
    others = [copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter)), copy.deepcopy(adapter).train().eval()]
    expected = [adapter(images(seed=s)) for s in (2, 3)]
    for other in others:
        assert all(torch.equal(other(images(seed=s)), e) for s, e in zip((2, 3), expected, strict=True))


def test_a_half_precision_batch_is_read_and_a_double_model_stays_double():
    adapter = steep.adapt(net(), "tent")
    assert adapter(images().half()).dtype == torch.float32
    assert steep.adapt(net().double(), "tea", **TEA)(images()).dtype == torch.float64


def test_eata_says_when_it_has_no_source_images():
    with pytest.warns(SteepWarning, match=r"acts as eta.*source=batches"):
        alone = steep.adapt(net(), "eata", novelty=2.0)
    eta = steep.adapt(net(), "eta", novelty=2.0)
    assert all(torch.equal(alone(images(seed=s)), eta(images(seed=s))) for s in range(3))
    with pytest.raises(InputError, match="got none"):
        steep.adapt(net(), "eata", source=[])


def test_settings():
    adapter = steep.adapt(net(), "sar", setting="tuned")
    assert adapter.method.margin_classes is None
    assert steep.adapt(net(), "sar").method.margin_classes == 1000
    assert steep.adapt(net(), steep.METHODS["tent"](lr=5e-4), params="all").method.lr == 5e-4
    # on 5 classes the paper's threshold lets everything through, the tuned one does not
    x = images(64)
    entropies = -(net()(x).softmax(1) * net()(x).log_softmax(1)).sum(1)
    assert (entropies < 0.4 * math.log(1000)).all()
    assert not (entropies < 0.4 * math.log(5)).all()


BAD_BATCHES = {
    "rank": (images()[0], r"expected \(B, C, H, W\), got \(3, 8, 8\).*x\[None\]"),
    "flat": (images().flatten(1), r"expected \(B, C, H, W\), got \(20, 192\)"),
    "channels": (images(channels=1), r"cannot take a batch of shape \(20, 1, 8, 8\)"),
    "integers": ((images() * 255).long(), r"floating point in \[0, 1\], got torch.int64.*/ 255"),
    "empty": (images()[:0], r"at least one, got the shape \(0, 3, 8, 8\)"),
    "nan": (images().index_fill(0, torch.tensor([3, 4]), math.nan), "NaN, Inf or more in 2 of 20 images"),
    "inf": (images().index_fill(0, torch.tensor([0]), math.inf), "NaN, Inf or more in 1 of 20 images"),
    "a list": (list(images()), r"adapter\(torch.stack\(batch\)\)"),
}


@pytest.mark.parametrize("method", steep.METHODS)
@pytest.mark.parametrize("fault", BAD_BATCHES)
@pytest.mark.parametrize("fresh", [True, False])
def test_bad_batches_are_refused_with_nothing_changed(method, fault, fresh):
    hyper = TEA if method == "tea" else {"images": 30, "copies": 4} if method == "dua" else {}
    adapter = steep.adapt(net(), method, source=[images()], **hyper)
    if not fresh:
        adapter(images(seed=1))
    before, last = adapter.state_dict(), adapter.last
    batch, message = BAD_BATCHES[fault]
    with pytest.raises(InputError, match=message):
        adapter(batch)
    assert identical(adapter.state_dict(), before)
    assert adapter.last == last


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (nn.Linear(8, 1), r"K ≥ 2 classes, got \(20, 1\)"),
        (nn.Identity(), None),
        (nn.Unflatten(1, (2, 4)), r"K ≥ 2 classes, got \(20, 2, 4\)"),
    ],
)
def test_logits_of_the_wrong_shape(head, message):
    model = nn.Sequential(*list(net())[:-1], head)
    adapter = steep.adapt(model, "tea", **TEA)
    if message is None:
        assert adapter(images()).shape == (20, 8)
        return
    before = adapter.state_dict()
    with pytest.raises(InputError, match=message):
        adapter(images())
    assert identical(adapter.state_dict(), before)


def test_other_outputs_and_options_are_refused():
    with pytest.raises(InputError, match=r"an object with \.logits, got str"):
        steep.adapt(Shaped(lambda _: "cat"), "source")(images())
    with pytest.raises(UnknownNameError, match="unknown method 'tnet': did you mean 'tent'"):
        steep.adapt(net(), "tnet")
    with pytest.raises(UnknownNameError, match="hyper-parameter of tea 'sgld_step': did you mean 'sgld_steps'"):
        steep.adapt(net(), "tea", sgld_step=3)
    for options, message in [
        ({"steps": 0}, "steps: expected"),
        ({"predict": "later"}, "predict: expected 'before' or 'after'"),
        ({"setting": "best"}, "setting: expected 'paper' or 'tuned'"),
        ({"statistics": "mine"}, "statistics: expected 'batch' or 'source'"),
    ]:
        with pytest.raises(InputError, match=message):
            steep.adapt(net(), "tent", **options)


def test_another_image_size_is_refused_before_the_buffer_is_touched():
    adapter = steep.adapt(net(), "tea", **TEA)
    adapter(images())
    before = adapter.state_dict()
    with pytest.raises(InputError, match=r"expected \(3, 8, 8\).*reset\(\)"):
        adapter(images(size=12))
    assert identical(adapter.state_dict(), before)
    adapter.reset()
    assert adapter(images(size=12)).shape == (20, 5)


def test_state_of_another_model_method_or_format_is_refused_and_loses_nothing():
    adapter = steep.adapt(net(), "tea", **TEA)
    adapter(images())
    before = adapter.state_dict()
    torn = copy.deepcopy(before)
    del torn["state"]["generator"]
    shorter = copy.deepcopy(before)
    shorter["state"]["model"].pop("1.weight")
    foreign = steep.adapt(net(seed=1), "tea", **TEA).state_dict()
    for bad, message in [
        ({}, "expected what Adapter.state_dict"),
        ({**before, "format": 99}, "expected format 4, got 99"),
        (steep.adapt(net(), "tent").state_dict(), "expected the method tea, got tent"),
        (steep.adapt(net(), "tea", **{**TEA, "lr": 0.5}).state_dict(), "expected the hyper"),
        (foreign, "its frozen weights are not those given"),
        (torn, "expected the fields"),
        (shorter, "1.weight"),
    ]:
        with pytest.raises(CheckpointError, match=message):
            adapter.load_state_dict(bad)
        assert identical(adapter.state_dict(), before)


@settings(max_examples=25, deadline=None)
@given(
    method=st.sampled_from(sorted(steep.METHODS)),
    stop=st.integers(0, 4),
    sizes=st.lists(st.integers(1, 12), min_size=5, max_size=5),
    seed=st.integers(0, 2**31),
    steps=st.integers(1, 2),
)
def test_stopping_anywhere_and_resuming_equals_never_having_stopped(method, stop, sizes, seed, steps):
    few_copies = {"dua": {"images": 9, "copies": 3}, "cotta": {"copies": 2}, "memo": {"copies": 2}}
    hyper = {"tea": TEA, **few_copies}.get(method, {})
    make = lambda: steep.adapt(net(), method, seed=seed, steps=steps, source=[images()], **hyper)  # noqa: E731
    stream = [images(n, seed=i) for i, n in enumerate(sizes)]
    straight = make()
    expected = [straight(x) for x in stream]
    first = make()
    for x in stream[:stop]:
        first(x)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = make()
    second.load_state_dict(torch.load(file, weights_only=True))
    assert all(torch.equal(second(x), e) for x, e in zip(stream[stop:], expected[stop:], strict=True))
    straight.reset()
    assert all(torch.equal(straight(x), e) for x, e in zip(stream, expected, strict=True))


def test_buffers_that_a_forward_writes_or_replaces_are_saved_and_reset():
    make = lambda: steep.adapt(Counting(), "tent")  # noqa: E731
    adapter = make()
    first = [adapter(images(seed=s)) for s in range(4)]
    assert float(adapter.model.calls) == float(adapter.model.replaced) == 4
    adapter.reset()
    assert [torch.equal(adapter(images(seed=s)), first[s]) for s in range(2)] == [True, True]
    resumed = make()
    resumed.load_state_dict(adapter.state_dict())
    assert all(torch.equal(resumed(images(seed=s)), first[s]) for s in (2, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_precision_model_really_adapts(dtype):
    adapter, twin = steep.adapt(net().to(dtype), "tent"), steep.adapt(net(), "tent")
    for s in range(30):
        adapter(images(seed=s))
        twin(images(seed=s))
    assert adapter.last.undone == 0
    moved = adapter.model[1].weight
    assert moved.dtype == torch.float32
    assert (moved - twin.model[1].weight).norm() < 0.5 * (net()[1].weight - twin.model[1].weight).norm()


def test_an_adapted_model_can_be_adapted_again():
    adapted = steep.adapt(net(), "tent").model
    for method in ("source", "bn", "dua", "tent"):
        again, fresh = (steep.adapt(m, method) for m in (adapted, net()))
        assert torch.equal(again(images()), fresh(images())), method
        assert torch.equal(again(images(4)), fresh(images(4))), method


def test_source_images_are_checked_like_any_others():
    for bad, message in [
        (images(), r"got one tensor.*\[x\]"),
        (images().numpy(), r"got one tensor.*\[x\]"),
        ([(images() * 255).to(torch.int64)], "got torch.int64"),
        ([images().fill_(math.nan)], "NaN, Inf or more in 20"),
        ([{"image": images(), "mask": images()}], r"adapter\(batch\['image'\]\)"),
    ]:
        with pytest.raises(InputError, match=message):
            steep.adapt(net(), "eata", source=bad)
    model = Shaped(as_tuple)
    model.unused = nn.BatchNorm2d(3)
    assert steep.adapt(model, "eata", source=[images()]).last is None


def test_models_that_cannot_be_adapted_say_why():
    with pytest.raises(InputError, match=r"expected a torch.nn.Module, got function"):
        steep.adapt(lambda x: x, "tent")
    with pytest.raises(InputError, match="no shape yet"):
        steep.adapt(nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), "tent")
    with pytest.raises(InputError, match="meta device"):
        steep.adapt(net().to("meta"), "tent")
    frozen = Shaped(lambda logits: logits.detach())
    with pytest.raises(InputError, match="no_grad or detach"):
        steep.adapt(frozen, "tent")(images())
    with pytest.raises(InputError, match="one row of logits per image, got 40 for 20"):
        steep.adapt(Shaped(lambda logits: torch.cat([logits, logits])), "tent")(images())
    with pytest.raises(InputError, match="method: expected a name or a Method, got int"):
        steep.adapt(net(), 5)
    with pytest.raises(InputError, match="made by hand"):
        steep.adapt(net(), steep.METHODS["sar"](), setting="tuned")
    assert steep.adapt(net(), "TENT").method.name == "tent"


def test_damaged_state_is_refused_with_nothing_changed():
    adapter = steep.adapt(net(), "tea", **TEA)
    adapter(images())
    before = adapter.state_dict()
    other = steep.adapt(net(), "tea", steps=3, **TEA).state_dict()
    for bad, message in [
        ({**before, "guard": {}}, "incomplete or damaged"),
        ({**before, "initial": {}}, "expected the fields"),
        ({k: v for k, v in before.items() if k != "state"}, "incomplete or damaged"),
        (other, "expected the options"),
    ]:
        with pytest.raises(CheckpointError, match=message):
            adapter.load_state_dict(bad)
        assert identical(adapter.state_dict(), before)


class InPlace(nn.Module):
    """Normalises the images where they lie, as many models do."""

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.net, self.layout = net(), layout

    def forward(self, x):
        return self.net(x.mul_(1.1).sub_(0.05) if self.layout == "in place" else x.mul(1.1).sub(0.05))


@pytest.mark.parametrize("method", steep.METHODS)
def test_a_model_may_write_into_its_images(method):
    hyper = {"tea": TEA, "tea-fast": TEA, "cotta": {"copies": 2}, "memo": {"copies": 2}}.get(method, {})
    answers, number = {}, few(method)
    for layout in ("in place", "apart"):
        batches = [images(number, seed=s) for s in range(3)]
        adapter = steep.adapt(
            InPlace(layout), method, source=[images(seed=9)], steps=2, guard="recover", seed=1, **hyper
        )
        answers[layout] = [adapter(x) for x in batches]
        assert all(torch.equal(x, images(number, seed=s)) for s, x in enumerate(batches))
        assert adapter.last.undone == 0
    assert all(torch.equal(a, b) for a, b in zip(*answers.values(), strict=True))


def test_images_take_the_type_of_the_layers_that_see_them():
    class Tempered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.temperature = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))  # comes first
            self.net = net()

        def forward(self, x):
            return self.net(x) / self.temperature.float()

    model = Tempered()
    expected = model.eval()(images())
    assert torch.equal(steep.adapt(model, "source")(images()), expected.detach())
    assert steep.sample(model, (2, 3, 8, 8), steps=1).dtype == torch.float32


class Residual(nn.Module):
    """A block that begins by writing into what it is given."""

    def __init__(self, inplace: bool) -> None:
        super().__init__()
        self.before = nn.ReLU(inplace)
        self.one, self.norm, self.two = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        x = self.before(x)
        return x + self.two(self.norm(self.one(x)))


def test_blocks_that_are_computed_again_may_write_into_their_input():
    answers = []
    for inplace in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(Residual(inplace), Residual(inplace), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        adapter = steep.adapt(model, "tent", recompute=True, guard="raise")
        answers.append([adapter(images(seed=seed)) for seed in range(3)])
    assert all(torch.equal(a, b) for a, b in zip(*answers, strict=True))


def test_layers_without_a_weight_of_their_own_are_taken():
    class Packed(nn.Linear):
        """In the manner of quantised layers: the weight is held in another form."""

        def __init__(self, *sizes: int) -> None:
            super().__init__(*sizes)
            self.packed = nn.Parameter(self.weight.detach().clone())
            del self.weight

        def forward(self, x):
            return nn.functional.linear(x, self.packed, self.bias)

    model = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), Packed(192, 5))
    assert steep.adapt(model, "tent")(images()).shape == (20, 5)
