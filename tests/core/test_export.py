"""`adapter.merged()`: an ordinary module that answers as the adapter does, and leaves for torch.export and ONNX."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import steep
from nets import conv_net, images, net
from steep.errors import InputError, SteepWarning

HYPER = {"tea": {"sgld_steps": 2, "buffer_size": 64}, "eta": {"novelty": 2.0}}


def adapted(kind: str, method: str, **options) -> steep.Adapter:
    adapter = steep.adapt(net(kind), method, **HYPER.get(method, {}), **options)
    for seed in range(3):
        adapter(images(seed=seed))
    return adapter


def answer(adapter: steep.Adapter, x: torch.Tensor) -> torch.Tensor:
    """What the adapter answers with the model as it is now; the adapter itself is left alone."""
    if adapter.predict == "before":
        return copy.deepcopy(adapter)(x)
    with torch.no_grad():
        return adapter.model(x)


def ordinary(module: nn.Module, like: nn.Module) -> None:
    assert type(module) is type(like)
    assert module.state_dict().keys() == like.state_dict().keys()
    for ours, theirs in zip(module.modules(), like.modules(), strict=True):
        assert not ours.training
        assert not ours._forward_pre_hooks
        assert not ours._forward_hooks
        assert getattr(ours, "track_running_stats", None) == getattr(theirs, "track_running_stats", None)
    assert all(a.dtype == b.dtype for a, b in zip(module.parameters(), like.parameters(), strict=True))


@pytest.mark.parametrize("method", ["source", "pl", "tent", "eta", "sar", "shot", "tea"])
@pytest.mark.parametrize("kind", ["group", "layer"])
def test_without_batch_norm_it_answers_like_the_adapter_on_anything(kind, method):
    adapter = adapted(kind, method)
    module = adapter.merged()
    ordinary(module, net(kind))
    for n in (1, 7, 40):
        x = images(n, seed=n + 50)
        torch.testing.assert_close(module(x), answer(adapter, x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("method", "options"), [("source", {}), ("dua", {}), ("tent", {"statistics": "source"})])
def test_source_statistics_need_no_images(method, options):
    adapter = adapted("batch", method, **options)
    x = images(30, seed=8)
    expected = answer(adapter, x) if method != "dua" else adapter.model(x)
    torch.testing.assert_close(adapter.merged()(x), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("n", [40, 5])
@pytest.mark.parametrize("method", ["bn", "tent", "sar", "tea"])
def test_batch_statistics_are_those_of_the_images_given(method, n):
    adapter = adapted("batch", method)
    x = images(n, seed=9)
    with pytest.raises(InputError, match=r"merged: .*adapter.merged\(x\)"):
        adapter.merged()
    before = copy.deepcopy(adapter.state_dict())
    module = adapter.merged(x)
    ordinary(module, net("batch"))
    torch.testing.assert_close(module(x), answer(adapter, x), atol=1e-5, rtol=1e-5)
    # fixed from here on: an image is answered the same whatever its neighbours are
    torch.testing.assert_close(module(x)[:2], module(x[:2]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(adapter.state_dict()["state"], before["state"])


MORE = [("infuse", {}), ("roid", {}), ("lame", {}), ("t3a", {}), ("tent", {"views": "mirror"})]


@pytest.mark.parametrize(("method", "options"), MORE)
def test_who_answers_by_more_than_one_forward_of_the_model_says_so(method, options):
    adapter, x = adapted("batch", method, **options), images(40, seed=9)
    with pytest.warns(SteepWarning, match=rf"^merged: (views='mirror'|{method}) answers by more .*keep the adapter"):
        module = adapter.merged(x)
    assert not torch.allclose(module(x), copy.deepcopy(adapter)(x), atol=1e-3)


def test_several_batches_are_averaged_by_their_size():
    adapter = adapted("batch", "bn")
    parts = [images(40, seed=1), images(20, seed=2)]
    first = adapter.merged(parts)[1]
    with torch.no_grad():
        means = [net("batch")[0](x).mean(dim=(0, 2, 3)) for x in parts]
        spreads = [net("batch")[0](x).var(dim=(0, 2, 3), correction=0) for x in parts]
    torch.testing.assert_close(first.running_mean, (2 * means[0] + means[1]) / 3)
    torch.testing.assert_close(first.running_var, (2 * spreads[0] + spreads[1]) / 3)
    with pytest.raises(InputError, match="got none"):
        adapter.merged([])


def test_labels_beside_the_images_are_not_read():
    adapter = adapted("batch", "tent")
    x = torch.cat([images(20, seed=1), images(12, seed=2)])
    pairs = torch.utils.data.TensorDataset(x, torch.arange(32))
    module = adapter.merged(torch.utils.data.DataLoader(pairs, batch_size=20))
    expected = adapter.merged([x[:20], x[20:]]).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in module.state_dict().items())
    torch.testing.assert_close(adapter.merged([(x, None)])(x), answer(adapter, x), atol=1e-5, rtol=1e-5)


class Twice(nn.Module):
    """One BatchNorm after two convolutions, which give it features of quite different statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleDict({"first": nn.Conv2d(3, 4, 3), "second": nn.Conv2d(4, 4, 3), "bn": nn.BatchNorm2d(4)})
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body["bn"](self.body["first"](x)).relu()
        x = self.body["bn"](8 * self.body["second"](x) - 3).relu()
        return self.head(x.mean(dim=(2, 3)))


def test_a_layer_that_runs_twice_has_no_statistics_to_fix():
    x = images()
    adapter = steep.adapt(Twice().eval(), "tent")
    adapter(x)
    for batches in (x, x[:5], [x, x]):
        with pytest.raises(InputError, match=r"merged: body\.bn \(BatchNorm2d\) runs more than once .*Keep the"):
            adapter.merged(batches)
    fixed = steep.adapt(Twice().eval(), "tent", statistics="source")
    fixed(x)
    torch.testing.assert_close(fixed.merged()(x), answer(fixed, x))


HOOKS = {
    "before a BatchNorm": lambda model: model[1].register_forward_pre_hook(lambda layer, args: (2 * args[0] + 1,)),
    "after a BatchNorm": lambda model: model[1].register_forward_hook(lambda layer, args, out: 2 * out),
    "before the model": lambda model: model.register_forward_pre_hook(lambda layer, args: (0.5 * args[0],)),
    "after the model": lambda model: model.register_forward_hook(lambda layer, args, out: out + 1),
}


@pytest.mark.hostile
@pytest.mark.filterwarnings("ignore:images. their scale")
@pytest.mark.parametrize("n", [40, 5])
@pytest.mark.parametrize("method", ["source", "bn", "tent", "alpha-bn"])
@pytest.mark.parametrize("where", HOOKS)
def test_hooks_of_the_user_stay_and_count(where, method, n):
    model, x = net("batch"), images(n)
    HOOKS[where](model)
    adapter = steep.adapt(model, method)
    adapter(x)
    module = adapter.merged(x)
    torch.testing.assert_close(module(x), answer(adapter, x), atol=1e-4, rtol=1e-4)
    for ours, theirs in zip(module.modules(), model.modules(), strict=True):
        assert list(ours._forward_hooks.values()) == list(theirs._forward_hooks.values())
        assert list(ours._forward_pre_hooks.values()) == list(theirs._forward_pre_hooks.values())


@pytest.mark.hostile
def test_a_hook_that_only_looks_is_no_reason_to_refuse():
    model, seen = net("batch"), []
    model[1].register_forward_hook(lambda layer, args, out: seen.append(out.shape))
    adapter = steep.adapt(model, "tent")
    adapter(images(5))
    assert adapter.merged([images(5), images(7)])(images(5)).shape == (5, 5)


@pytest.mark.hostile
@pytest.mark.parametrize("kind", ["reads what comes in", "came later"])
def test_a_hook_that_would_answer_otherwise_in_an_ordinary_module_is_refused(kind):
    """Below 16 images the layer gets features in other units, and a hook of the user's would see these."""
    model, x = net("batch"), images(5)
    if kind == "reads what comes in":
        model[1].register_forward_hook(lambda layer, args, out: out + args[0])
    adapter = steep.adapt(model, "tent")
    if kind == "came later":
        adapter.model[1].register_forward_pre_hook(lambda layer, args: (2 * args[0] + 1,))
    adapter(x)
    with pytest.raises(InputError, match=r"merged: .* hook of 1 \(BatchNorm2d\)"):
        adapter.merged(x)


def test_no_memory_is_shared_with_the_adapter():
    adapter = adapted("batch", "tent")
    module = adapter.merged(images())
    theirs = {t.data_ptr() for t in (*adapter.model.parameters(), *adapter.model.buffers())}
    assert not theirs & {t.data_ptr() for t in (*module.parameters(), *module.buffers())}
    before = {k: v.clone() for k, v in module.state_dict().items()}
    adapter(images(seed=7))
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())


def test_half_precision_comes_back_in_float32_and_close():
    adapter = adapted("batch", "tent", precision="bfloat16")
    x = images()
    module = adapter.merged(x)
    ordinary(module, net("batch"))
    torch.testing.assert_close(module(x), answer(adapter, x), atol=0.1, rtol=0.05)
    assert {p.dtype for p in steep.adapt(net("batch").bfloat16(), "source").merged().parameters()} == {torch.float32}
    assert {p.dtype for p in steep.adapt(net("batch").double(), "source").merged().parameters()} == {torch.float64}


def test_a_batch_norm_that_never_had_statistics_stays_so():
    model = conv_net(lambda c: nn.BatchNorm2d(c, track_running_stats=False)).eval()
    adapter = steep.adapt(model, "tent")
    adapter(images())
    module, x = adapter.merged(), images(seed=3)
    torch.testing.assert_close(module(x), answer(adapter, x))


def exported(module: nn.Module, x: torch.Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=512)},))


@pytest.mark.parametrize(("kind", "method"), [("batch", "tea"), ("group", "tent"), ("layer", "tea")])
def test_torch_export_keeps_the_answers(kind, method):
    adapter = adapted(kind, method)
    x = images(20, seed=4)
    module = adapter.merged(x)
    program = exported(module, x).module()
    for batch in (x, images(3, seed=5)):
        torch.testing.assert_close(program(batch), module(batch), atol=1e-4, rtol=0)
    torch.testing.assert_close(program(x), answer(adapter, x), atol=1e-4, rtol=0)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # the exporter's own
@pytest.mark.parametrize(("kind", "method"), [("batch", "tea"), ("layer", "tent")])
def test_onnx_keeps_the_answers(kind, method, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    adapter = adapted(kind, method)
    x = images(20, seed=4)
    module = adapter.merged(x)
    if kind == "layer":  # with its normalisation before it, as most models come
        module = steep.models.Normalized(module, [0.5] * 3, [0.5] * 3).eval()
    shapes = ({0: torch.export.Dim("batch", min=1, max=512)},)
    torch.onnx.export(module, (x,), tmp_path / "net.onnx", dynamo=True, dynamic_shapes=shapes, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    for batch in (x, images(3, seed=5)):
        (result,) = session.run(None, {session.get_inputs()[0].name: batch.numpy()})
        torch.testing.assert_close(torch.from_numpy(result), module(batch), atol=1e-4, rtol=0)
    if kind == "batch":
        (result,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        torch.testing.assert_close(torch.from_numpy(result), answer(adapter, x), atol=1e-4, rtol=0)
