"""Tensors that are no batch of images or no logits: refused by name at once, or taken as the ordinary ones are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import steep
from nets import images, net
from steep.errors import InputError

pytestmark = pytest.mark.hostile

METHODS = ["source", "tent", "tea"]
X = images()

NO_IMAGES: dict[str, tuple[Callable[[], object], str]] = {
    "whole numbers": (lambda: (X * 255).long(), r"got torch\.int64\. Convert first: x\.float\(\) / 255"),
    "booleans": (lambda: X > 0.5, r"got torch\.bool"),
    "complex": (lambda: X.to(torch.complex64), r"got torch\.complex64\. .*x\.real"),
    "float8_e4m3fn": (lambda: X.to(torch.float8_e4m3fn), r"got torch\.float8_e4m3fn\. .*x\.float\(\)"),
    "float8_e5m2": (lambda: X.to(torch.float8_e5m2), r"got torch\.float8_e5m2\. .*x\.float\(\)"),
    "quantised": (lambda: torch.quantize_per_tensor(X, 0.01, 0, torch.quint8), r"got torch\.quint8"),
    "nested": (lambda: torch.nested.nested_tensor([X[0], X[1, :, :5]]), "dense tensor with values, got a nested"),
    "jagged": (lambda: torch.nested.nested_tensor([X[0], X[1]], layout=torch.jagged), "dense tensor with values"),
    "sparse": (X.to_sparse, "dense tensor with values"),
    "sparse rows": (lambda: X.reshape(20, -1).to_sparse_csr(), "dense tensor with values"),
    "without values": (lambda: X.to("meta"), "dense tensor with values"),
    "nothing": (lambda: None, r"expected a tensor or array \(B, C, H, W\), got NoneType"),
    "one image": (lambda: X[0], r"x\[None\]"),
    "a number": (lambda: torch.tensor(0.5), r"expected \(B, C, H, W\), got \(\)"),
    "six dimensions": (lambda: X[None, None], r"expected \(B, C, H, W\)"),
    "no image": (lambda: X[:0], "at least one"),
    "no pixel": (lambda: X[..., :0], "at least one"),
    "NaN": (lambda: torch.full_like(X, torch.nan), "NaN, Inf or more in 20 of 20"),
    "far out of range": (lambda: 1e6 * X, "NaN, Inf or more"),
    "other channels": (lambda: X[:, :1], r"cannot take a batch of shape \(20, 1, 8, 8\)"),
}


@pytest.mark.filterwarnings("ignore:.*(beta state|quantize|prototype):UserWarning")
@pytest.mark.filterwarnings("ignore:.*quantiz:DeprecationWarning")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", NO_IMAGES)
def test_what_is_no_batch_of_images_is_refused_and_changes_nothing(kind: str, method: str) -> None:
    make, message = NO_IMAGES[kind]
    adapter = steep.adapt(net(), method)
    with pytest.raises(InputError, match=f"^images: .*{message}"):
        adapter(make())  # type: ignore[arg-type]
    assert adapter.last is None
    assert torch.equal(adapter(X), steep.adapt(net(), method)(X))


IMAGES: dict[str, Callable[[], Tensor]] = {
    "a parameter": lambda: nn.Parameter(X),
    "computed": lambda: nn.Parameter(X) * 1,
    "channels last": lambda: X.contiguous(memory_format=torch.channels_last),
    "transposed": lambda: X.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1),
    "negated lazily": lambda: torch._neg_view(-X),
    "double": X.double,
    "a subclass": lambda: X.as_subclass(type("Mine", (Tensor,), {})),
    "read backwards": lambda: X.flip(0).flip(0),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", IMAGES)
def test_ordinary_images_in_unusual_tensors(kind: str, method: str) -> None:
    adapter = steep.adapt(net(), method)
    torch.testing.assert_close(adapter(IMAGES[kind]()), steep.adapt(net(), method)(X))
    assert adapter.last.skipped is None


def test_images_made_under_inference_mode() -> None:
    with torch.inference_mode():
        x = X.clone()
    assert torch.equal(steep.adapt(net(), "tea")(x), steep.adapt(net(), "tea")(X))


class Answers(nn.Module):
    def __init__(self, change: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.net, self.change = net(), change

    def forward(self, x: Tensor) -> object:
        return self.change(self.net(x))


NO_LOGITS: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "whole numbers": (lambda t: (100 * t).long(), r"got .*torch\.int64"),
    "booleans": (lambda t: t > 0, r"got .*torch\.bool"),
    "complex": (lambda t: t.to(torch.complex64), r"got .*torch\.complex64"),
    "sparse": (lambda t: t.to_sparse(), "got a torch.sparse_coo one"),
    "nested": (lambda t: torch.nested.nested_tensor(list(t)), "got a nested one"),
    "labels": (lambda t: t.argmax(dim=1), r"got .*torch\.int64"),
    "one number": (lambda t: t.mean(dim=1), r"got \(20,\)"),
    "one logit": (lambda t: t[:, :1], "give it two logits"),
    "nothing": (lambda t: None, "got NoneType"),
    "numbers": (lambda t: t.detach().numpy(), "got ndarray"),
    "too few": (lambda t: t[:3], "one row of logits per image, got 3 for 20"),
}


@pytest.mark.filterwarnings("ignore:.*(beta state|prototype):UserWarning")
@pytest.mark.parametrize("method", ["source", "bn", "tent", "tea"])
@pytest.mark.parametrize("kind", NO_LOGITS)
def test_what_are_no_logits_is_refused_at_the_first_batch(kind: str, method: str) -> None:
    change, message = NO_LOGITS[kind]
    with pytest.raises(InputError, match=f"^model output: .*{message}"):
        steep.adapt(Answers(change), method)(X)


@pytest.mark.parametrize("method", ["eata", "tent"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_model_that_cannot_give_gradients_is_refused_by_name(mode: Callable[[], object], method: str) -> None:
    class WithoutGradients(Answers):
        def forward(self, x: Tensor) -> object:
            with mode():  # type: ignore[attr-defined]
                return super().forward(x)

    model = WithoutGradients(lambda t: t)
    with pytest.raises(InputError, match="model: its answer does not depend on what adapts"):
        steep.adapt(model, method, source=[X], guard="raise")(X)
