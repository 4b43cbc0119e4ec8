"""Ordinary models with something unusual about them: each adapts, or is refused by name, and is left as it was."""

from __future__ import annotations

import io
import pickle
import threading

import pytest
import torch
from torch import Tensor, nn

import steep
from nets import images, net
from steep.errors import InputError


class TrainReturnsNothing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def train(self, mode: bool = True) -> None:
        super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class ExpandedBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = net()
        self.register_buffer("scale", torch.ones(1).expand(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * self.scale


class CopiesItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def __deepcopy__(self, memo: object) -> CopiesItself:
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


@pytest.mark.parametrize("kind", [TrainReturnsNothing, ExpandedBuffer])
@pytest.mark.parametrize("method", ["source", "tent", "tea"])
def test_it_adapts_as_the_plain_model_and_resets(kind: type[nn.Module], method: str) -> None:
    model = kind()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    adapter, plain = steep.adapt(model, method), steep.adapt(model.net, method)
    first = [adapter(images(seed=seed)) for seed in range(2)]
    assert all(torch.allclose(answer, plain(images(seed=seed))) for seed, answer in enumerate(first))
    adapter.reset()
    assert torch.equal(adapter(images(seed=0)), first[0])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_model_whose_copy_is_itself_is_refused_and_adapts_in_place() -> None:
    model = CopiesItself()
    with pytest.raises(InputError, match="deepcopy"):
        steep.adapt(model, "tent")
    assert steep.adapt(model, "tent", inplace=True)(images()).shape == (len(images()), 5)


def test_pickling_while_another_thread_adapts_is_not_torn() -> None:
    """The bytes are written when the lock is open again: they must be of one moment."""
    adapter = steep.adapt(net(), "tent")
    adapter(images())

    class Between(io.BytesIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            thread = threading.Thread(target=adapter, args=(images(seed=1),))
            thread.start()
            thread.join()
            return super().write(data)

    before = adapter.state_dict()["state"]
    out = Between()
    pickle.Pickler(out, protocol=4).dump(adapter)
    after = pickle.loads(out.getvalue()).state_dict()["state"]
    assert all(torch.equal(before["model"][name], value) for name, value in after["model"].items())
    steps = [entry["step"] for entry in after["optimizer"]["state"].values()]
    assert all(torch.equal(step, before["optimizer"]["state"][0]["step"]) for step in steps)
