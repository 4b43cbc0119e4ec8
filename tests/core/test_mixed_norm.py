"""Normalising by mixed statistics: its gradient, its precision, what it keeps, where it works."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from steep.core import layers

LAYERS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
MIXINGS = {
    "a share": lambda: layers.Mixing(share=0.3),
    "a share on the device": lambda: layers.Mixing(share=torch.tensor(0.3, dtype=torch.float64)),
    "all of the batch": lambda: layers.Mixing(share=1.0),
    "a share of the biased variance": lambda: layers.Mixing(share=0.3, unbiased=False),
    "a prior": lambda: layers.Mixing(prior=4),
    "a small batch": layers.Mixing,
}
SHAPES = [(5, 3), (1, 3), (2, 3, 4), (3, 3, 2, 2), (1, 3, 2, 2), (1, 3, 1, 1), (2, 3, 2, 1, 2)]
LAYOUTS = {
    "in rows": lambda x: x,
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(2, 3),
    "every second image": lambda x: x.repeat_interleave(2, 0)[::2],
}


def layer_for(x, mixing=None):
    """Give a layer whose statistics and weights are unlike those of the features, and the hook by which it mixes."""
    layer = LAYERS[x.ndim](x.shape[1], dtype=torch.promote_types(x.dtype, torch.float32)).to(x.device)
    generator = torch.Generator().manual_seed(1)
    for tensor, low, high in zip(
        (layer.running_mean, layer.running_var, layer.weight, layer.bias), (-1, 0.5, 0.5, -1), (1, 2, 2, 1), strict=True
    ):
        tensor.data.copy_(torch.rand(len(tensor), generator=generator) * (high - low) + low)
    hook = mixing or layers.Mixing(share=0.3)
    layers.use_batch_statistics(layer, hook)
    return layer, hook


def features(shape, dtype=torch.float32, seed=0):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 + 1).to(dtype)


def by_operations(x, g, mixing):
    """Answer and gradient as torch finds them from one operation after the other."""
    layer, hook = layer_for(x, mixing)
    return answer_and_gradient(lambda x: hook._by_operations(layer, x), x, g)


def by_kernels(x, g, mixing):
    layer, hook = layer_for(x, mixing)
    return answer_and_gradient(lambda x: hook(layer, (x,)), x, g)


def answer_and_gradient(give, x, g):
    x = x.detach().requires_grad_()
    y = give(x)
    return y.detach(), *torch.autograd.grad(y, x, g)


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_gradient_is_that_of_what_it_computes(mixing, shape):
    x = features(shape, torch.float64).requires_grad_()
    layer, _ = layer_for(x, MIXINGS[mixing]())
    assert torch.autograd.gradcheck(layer, x)
    assert not layer.training  # it did mix


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_what_its_operations_give_one_by_one(mixing, shape):
    x, g = features(shape), features(shape, seed=1)
    fast, plain = (how(x, g, MIXINGS[mixing]()) for how in (by_kernels, by_operations))
    # one value alone has no spread: it is divided by √ε, and all of it cancels out
    near = 1e-4 if mixing == "all of the batch" and x[:, 0].numel() == 1 else 2e-6
    torch.testing.assert_close(fast, plain, rtol=2e-6, atol=near)


@pytest.mark.parametrize("of_x", LAYOUTS)
@pytest.mark.parametrize("of_g", LAYOUTS)
def test_it_does_not_matter_how_features_lie_in_memory(of_x, of_g):
    x, g = LAYOUTS[of_x](features((12, 5, 7, 7))), LAYOUTS[of_g](features((12, 5, 7, 7), seed=1))
    fast, plain = (how(x, g, layers.Mixing(share=0.3)) for how in (by_kernels, by_operations))
    torch.testing.assert_close(fast, plain, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("far", [0, 20])  # how far channels lie from zero: then little is left of half precision
def test_in_half_precision_it_is_as_precise_as_its_operations(dtype, layout, far):
    x, g = ((LAYOUTS[layout](features((12, 32, 7, 7), seed=s)) + far).to(dtype) for s in (0, 1))
    fast, plain = (how(x, g, layers.Mixing(share=0.3)) for how in (by_kernels, by_operations))
    exact = by_operations(x.double(), g.double(), layers.Mixing(share=0.3))
    for ours, other, wanted in zip(fast, plain, exact, strict=True):
        assert ours.dtype == dtype
        assert (ours - wanted).square().mean() <= 1.01 * (other - wanted).square().mean()


def test_a_model_in_half_precision_mixes_too():
    x = features((8, 4, 5, 5), torch.bfloat16)
    layer, hook = layer_for(x)
    exact = hook._by_operations(layer, x.float())
    layer.bfloat16()
    with layers.mixtures(layer) as seen:
        y = hook(layer, (x,))
        layer(x.requires_grad_()).sum().backward()
    assert y.dtype == x.grad.dtype == torch.bfloat16
    assert {t.dtype for _, *both in seen for t in both} == {torch.float32}
    torch.testing.assert_close(y.float(), exact, rtol=2e-2, atol=2e-2)


def test_statistics_may_be_constants_to_the_gradient():
    hook = layers.Mixing(share=0.3)
    hook.constant = True
    x, g = features((6, 4, 3, 3)), features((6, 4, 3, 3), seed=1)
    fast = by_kernels(x, g, hook)
    torch.testing.assert_close(fast, by_operations(x, g, hook), rtol=2e-6, atol=2e-6)
    hook.constant = False
    assert not torch.allclose(by_kernels(x, g, hook)[1], fast[1])


def test_a_second_derivative_is_refused_and_never_wrong():
    x = features((4, 3, 2, 2)).requires_grad_()
    layer, _ = layer_for(x)
    (once,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        once.square().sum().backward()


def test_it_works_without_gradients_and_under_the_transforms_of_torch():
    x, g = features((6, 3, 2, 2)), features((6, 3, 2, 2), seed=1)
    layer, _ = layer_for(x)
    y, gradient = answer_and_gradient(layer, x, g)
    with torch.no_grad():
        assert torch.equal(layer(x), y)
    with torch.inference_mode():
        assert torch.equal(layer(x), y)
    assert torch.equal(torch.func.functional_call(layer, dict(layer.named_parameters()), (x,)), y)
    torch.testing.assert_close(torch.func.grad(lambda x: (layer(x) * g).sum())(x), gradient)


def test_a_compiled_layer_gives_the_same():
    x, g = features((6, 3, 2, 2)), features((6, 3, 2, 2), seed=1)
    layer, _ = layer_for(x)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(answer_and_gradient(compiled, x, g), answer_and_gradient(layer, x, g))


def test_no_image_is_nothing_to_normalise():
    x = torch.zeros(0, 3, 2, 2, requires_grad=True)
    layer, _ = layer_for(x)
    layer(x).sum().backward()
    assert x.grad.shape == (0, 3, 2, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("constant", [False, True])
def test_what_is_kept_for_the_gradient_is_what_came_in_and_what_the_layer_gets(dtype, constant):
    """Both in the type in which they came; where statistics are constants, only what the layer gets."""
    x = features((8, 4, 16, 16), dtype).requires_grad_()
    layer, hook = layer_for(x)
    hook.constant = constant
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(x)
    large = [size for size in kept.values() if size >= 8 * 4 * 16]
    assert large == [x.numel() * dtype.itemsize] * (1 if constant else 2)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("shape", [*SHAPES, (8, 40, 30, 30)])
def test_a_gpu_answers_as_float64_on_the_processor(dtype, mixing, shape):
    check_on_gpu(features(shape, dtype), features(shape, dtype, seed=1), MIXINGS[mixing])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("of_x", LAYOUTS)
@pytest.mark.parametrize("of_g", LAYOUTS)
def test_on_a_gpu_it_does_not_matter_how_features_lie_in_memory(dtype, of_x, of_g):
    x, g = LAYOUTS[of_x](features((8, 40, 14, 14), dtype)), LAYOUTS[of_g](features((8, 40, 14, 14), dtype, seed=1))
    check_on_gpu(x, g, MIXINGS["a share"])


def check_on_gpu(x, g, mixing):
    ours, exact = by_kernels(x.cuda(), g.cuda(), mixing()), by_operations(x.double(), g.double(), mixing())
    rounding = torch.finfo(x.dtype).eps
    alone = 10 if mixing().share == 1 and x[:, 0].numel() == 1 else 1  # as above
    for answer, wanted in zip(ours, exact, strict=True):
        assert answer.dtype == x.dtype
        near = 100 * alone * torch.finfo(torch.promote_types(x.dtype, torch.float32)).eps + rounding
        torch.testing.assert_close(answer.cpu().double(), wanted, rtol=2 * rounding, atol=near)
