"""Images as loaders, arrays and cameras give them: taken, or refused with the line to write."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import steep
from nets import net
from steep.errors import InputError

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 8, 10, 3), dtype=np.uint8)  # as a camera gives them
X = torch.from_numpy(np.ascontiguousarray(PIXELS.transpose(0, 3, 1, 2)) / np.float32(255))  # as a model takes them
LABELS = torch.arange(20) % 5


class Backwards(np.ndarray):
    """An array of a class of its own."""


FEEDS = {
    "bytes, channels last": PIXELS,
    "bytes, channels second": PIXELS.transpose(0, 3, 1, 2),
    "a tensor of bytes": torch.from_numpy(PIXELS),
    "a tensor of bytes, channels second": torch.from_numpy(PIXELS).permute(0, 3, 1, 2),
    "floats, channels last": PIXELS / np.float32(255),
    "an array of floats": X.numpy(),
    "an array run backwards": X.numpy()[::-1].copy()[::-1],
    "a class of its own": PIXELS.view(Backwards),
    "images and labels": (X, LABELS),
    "as a loader gives them": next(iter(DataLoader(TensorDataset(X, LABELS), batch_size=20))),
    "a loader without labels": [X],
    "labels first": (LABELS, X),
    "by name": {"pixel_values": X, "labels": LABELS},
    "bytes and labels": (PIXELS, LABELS.numpy()),
}


@pytest.mark.parametrize("kind", FEEDS)
def test_what_has_one_reading_is_adapted_on_as_the_plain_tensor_is(kind):
    adapter, twin = (steep.adapt(net(), "tent") for _ in range(2))
    for _ in range(2):
        assert torch.equal(adapter(FEEDS[kind]), twin(X))
    assert adapter.last == twin.last


def test_a_read_only_array_is_taken_and_left_as_it_is():
    frozen = PIXELS.copy()
    frozen.setflags(write=False)
    assert torch.equal(steep.adapt(net(), "bn")(frozen), steep.adapt(net(), "bn")(X))
    assert (frozen == PIXELS).all()


class Posed(nn.Module):
    """Takes channels last itself, as some ported models do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.permute(0, 3, 1, 2))


def test_floats_in_a_tensor_are_never_turned():
    x = X.permute(0, 2, 3, 1)
    assert torch.equal(steep.adapt(Posed(), "source")(x), steep.adapt(net(), "source")(X))
    with pytest.raises(InputError, match=r"shape \(20, 8, 10, 3\) .*Channels last\? x\.permute\(0, 3, 1, 2\)"):
        steep.adapt(net(), "source")(x)
    assert torch.equal(steep.adapt(net(), "source")(x.permute(0, 3, 1, 2)), steep.adapt(net(), "source")(X))


def test_where_both_lengths_fit_the_channels_are_second():
    narrow = torch.from_numpy(PIXELS[:, :, :3].transpose(0, 3, 1, 2).copy())  # (20, 3, 8, 3)
    assert torch.equal(steep.adapt(net(), "source")(narrow), steep.adapt(net(), "source")(X[..., :3]))


def linear() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.LayerNorm(240), nn.Linear(240, 5))


REFUSED = {
    "a model that tells no channels": (linear, PIXELS, r"If they are last: x\.permute\(0, 3, 1, 2\)"),
    "two batches": (net, (X, X), r"got a tuple with 2 batches.*adapter\(batch\[0\]\)"),
    "two by name": (net, {"a": X, "b": X}, r"adapter\(batch\['a'\]\)"),
    "images in a list": (net, list(X), r"adapter\(torch\.stack\(batch\)\)"),
    "arrays in a list": (
        net,
        list(PIXELS),
        r"adapter\(numpy\.stack\(\[numpy\.asarray\(image\) for image in batch\]\)\)",
    ),
    "one image and its label": (net, (X[0], 3), r"adapter\(batch\[0\]\[None\]\)"),
    "one image": (net, PIXELS[0], r"x\[None\].*x\[:, None\]"),
    "grey pixels for a colour model": (net, PIXELS[..., :1], r"cannot take a batch of shape \(20, 8, 10, 1\)"),
    "words": (net, np.array([["a"]]), "expected numbers, got an array of <U1"),
    "no image": (net, PIXELS[:0], "at least one"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_has_two_readings_is_refused_with_the_line_that_decides(kind):
    make, batch, message = REFUSED[kind]
    adapter = steep.adapt(make(), "tent")
    with pytest.raises(InputError, match=f"^images: .*{message}"):
        adapter(batch)
    assert adapter.last is None


def test_the_lines_that_refusals_name_work():
    batch: list = list(PIXELS)
    adapter = steep.adapt(net(), "source")
    assert torch.equal(adapter(np.stack([np.asarray(image) for image in batch])), adapter(X))
    batch = list(X)
    assert torch.equal(adapter(torch.stack(batch)), adapter(X))
    turned = steep.adapt(linear(), "source")(torch.from_numpy(PIXELS).permute(0, 3, 1, 2))
    assert turned.shape == (20, 5)


def test_corrupt_and_adapt_compose():
    clean = np.repeat(np.repeat(PIXELS, 2, axis=1), 2, axis=2)
    foggy = steep.corrupt(clean, "fog", 3)
    plain = torch.from_numpy(np.ascontiguousarray(foggy.transpose(0, 3, 1, 2))) / 255
    as_models_take_them = torch.from_numpy(np.ascontiguousarray(clean.transpose(0, 3, 1, 2))) / 255
    for batch in (foggy, steep.corrupt(as_models_take_them, "fog", 3)):
        assert torch.equal(steep.adapt(net(), "tent")(batch), steep.adapt(net(), "tent")(plain))


def test_arrays_and_loaders_measure_the_statistics_of_merged():
    adapter = steep.adapt(net(), "bn")
    expected = adapter.merged(X)(X)
    for images in (PIXELS, [PIXELS], DataLoader(TensorDataset(X, LABELS), batch_size=20)):
        assert torch.equal(adapter.merged(images)(X), expected)
