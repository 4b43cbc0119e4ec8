"""What a user gets wrong is answered in their words, and what they do to an answer stays theirs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import steep
from steep.errors import CheckpointError, InputError, SteepWarning

pytestmark = pytest.mark.hostile


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5)).eval()


def ready(seed: int = 0) -> nn.Module:
    model = net(seed)
    model(torch.rand(1, 3, 8, 8))
    return model


X = torch.rand(16, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("method", ["pl", "tent"])
def test_a_state_is_of_the_model_it_began_with_however_much_of_it_adapts(method: str, tmp_path) -> None:
    first = ready()
    adapter = steep.adapt(first, method)
    adapter(X)
    adapter.save(tmp_path / "state.safetensors")
    retrained = ready()
    with torch.no_grad():
        retrained[1].weight.mul_(1.5)  # adapts under both, so no frozen weight tells them apart
    with pytest.raises(CheckpointError, match=r"of another model: .*weight is not that.*Give the model that"):
        steep.resume(tmp_path / "state.safetensors", retrained)
    assert torch.equal(steep.resume(tmp_path / "state.safetensors", ready())(X), adapter(X))


def test_a_state_of_other_frozen_weights_says_so(tmp_path) -> None:
    steep.adapt(ready(), "tent").save(tmp_path / "state.safetensors")
    with pytest.raises(CheckpointError, match="its frozen weights are not those given"):
        steep.resume(tmp_path / "state.safetensors", ready(seed=2))


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.LogSoftmax(1)])
def test_a_model_that_ends_in_a_softmax_is_warned_about(last: nn.Module) -> None:
    with pytest.warns(SteepWarning, match="without its last softmax"):
        steep.adapt(nn.Sequential(ready(), last), "tent")(X)


def test_ordinary_logits_are_not(recwarn: pytest.WarningsRecorder) -> None:
    steep.adapt(nn.Sequential(ready(), nn.ReLU()), "tent")(X)
    assert not [w for w in recwarn if "softmax" in str(w.message)]


@pytest.mark.parametrize("method", ["source", "tent", "bn"])
def test_what_is_done_to_an_answer_does_not_change_the_report(method: str) -> None:
    adapter = steep.adapt(ready(), method)
    energy = -adapter(X).logsumexp(dim=1).mean()
    adapter = steep.adapt(ready(), method)
    adapter(X).zero_()
    assert adapter.last.energy_before == pytest.approx(float(energy), abs=1e-5)


def test_merged_takes_what_the_adapter_took() -> None:
    bad = X.clone()
    bad[3] = torch.nan
    adapter = steep.adapt(ready(), "bn", bad_images="nan")
    adapter(bad)
    good = torch.arange(16) != 3
    torch.testing.assert_close(adapter.merged(bad)(X), adapter.merged(X[good])(X))
    with pytest.raises(InputError, match="got none"):
        adapter.merged(bad[3:4])
    with pytest.raises(InputError, match=r"cannot take a batch of shape \(16, 1, 8, 8\)"):
        adapter.merged(X[:, :1])
    with pytest.raises(InputError, match=r"cannot take a batch of shape \(16, 1, 8, 8\)"):
        adapter(torch.full_like(X[:, :1], torch.nan))


class Deaf(nn.Module):
    """Answers without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.net = ready()

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


def test_no_gradient_to_the_images() -> None:
    with pytest.raises(InputError, match="Does its forward run under no_grad"):
        steep.adapt(Deaf(), "tea", guard="raise")(X)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"lr": "1e-3"}, "lr: expected a finite number"),
        ({"lr": True}, "lr: expected a finite number"),
        ({"sgld_steps": 2.5}, "sgld_steps: expected a whole number"),
        ({"seed": "a"}, "seed: expected a whole number"),
        ({"device": "abacus"}, "device: the model cannot be brought to abacus"),
    ],
)
def test_a_value_of_another_kind(more: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        steep.adapt(ready(), "tea", **more)


def test_whole_numbers_are_numbers_and_none_where_it_may_be() -> None:
    assert steep.adapt(ready(), "tea", lr=1, chains=None, grad_clip=None).method.lr == 1


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # deprecated, and many a model is still kept so
def test_torchscript() -> None:
    with pytest.raises(InputError, match=r"Give the nn\.Module it was made from"):
        steep.adapt(torch.jit.trace(ready(), X), "tent")


class Follows(nn.Module):
    """Keeps an average that its state_dict leaves out, and answers by it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = ready()
        self.register_buffer("ema", torch.zeros(5), persistent=False)
        self.register_buffer("unknown", torch.full((2,), torch.nan))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.net(x)
        self.ema.mul_(0.5).add_(logits.detach().mean(dim=0))
        return logits + self.ema


def test_what_a_model_does_not_save_is_put_back_all_the_same(tmp_path) -> None:
    episodic = steep.adapt(Follows(), "tent", episodic=True)
    assert torch.equal(episodic(X), episodic(X))
    adapter = steep.adapt(Follows(), "tent")
    first = adapter(X)
    adapter.save(tmp_path / "state.safetensors")
    second = adapter(X)
    assert not torch.equal(first, second)
    assert torch.equal(steep.resume(tmp_path / "state.safetensors", Follows())(X), second)
    adapter.reset()
    assert torch.equal(adapter(X), first)


def test_numbers_of_numpy_are_numbers(tmp_path) -> None:
    adapter = steep.adapt(ready(), "tea", seed=np.int64(3), lr=np.float32(0.5), sgld_steps=np.int64(2))
    adapter.save(tmp_path / "state.safetensors")
    assert steep.resume(tmp_path / "state.safetensors", ready()).method == adapter.method
