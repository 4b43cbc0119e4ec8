"""Ordinary models with something unusual about them: each adapts, or is refused by name, and is left as it was."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import steep
from nets import Counting, images, net
from steep.errors import InputError

pytestmark = pytest.mark.hostile


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


class KeepsFeatures(nn.Module):
    """Keeps the features of its last forward, in several ways."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x: Tensor) -> Tensor:
        self.features = self.net[:-1](x)
        self.kept = {"all": [self.features, (self.features.mean(),)]}
        return self.net[-1](self.features)


class RanBefore(KeepsFeatures):
    def __init__(self) -> None:
        super().__init__()
        self(images())


ORDINARY = [TrainReturnsNothing, ExpandedBuffer, KeepsFeatures, RanBefore]


@pytest.mark.parametrize("kind", ORDINARY)
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
    adapter = steep.adapt(net(), "tent", guard="skip")
    adapter(images())

    class Between(pickle.Pickler):
        met = 0

        def reducer_override(self, thing: object) -> object:
            self.met += isinstance(thing, torch.Tensor)
            if self.met == 3:  # some tensors are written, others are not yet
                self.met += 1
                thread = threading.Thread(target=adapter, args=(images(seed=1),))
                thread.start()
                thread.join()
            return NotImplemented

    before, out = adapter.state_dict()["state"], io.BytesIO()
    Between(out, protocol=4).dump(adapter)
    after = pickle.loads(out.getvalue()).state_dict()["state"]
    now = adapter.state_dict()["state"]
    assert not all(torch.equal(before["model"][name], value) for name, value in now["model"].items())  # it did adapt
    assert all(torch.equal(before["model"][name], value) for name, value in after["model"].items())
    steps = [entry["step"] for entry in after["optimizer"]["state"].values()]
    assert all(torch.equal(step, before["optimizer"]["state"][0]["step"]) for step in steps)


def spectral(layer: nn.Module) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)  # it draws a vector to begin from
        return nn.utils.spectral_norm(layer)


def new_spectral(layer: nn.Module) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return parametrizations.spectral_norm(layer)


def old_weight(layer: nn.Module) -> nn.Module:
    with pytest.warns(FutureWarning, match="weight_norm"):  # as torch says; many a model is still made so
        return nn.utils.weight_norm(layer)


NORMED = {
    "old spectral_norm": spectral,
    "old weight_norm": old_weight,
    "spectral_norm": new_spectral,
    "weight_norm": parametrizations.weight_norm,
}


def normed(how: Callable[[nn.Module], nn.Module], *, ran: bool) -> nn.Module:
    model = net()
    how(model[0])
    how(model[4])
    if ran:
        model(images())
    return model


@pytest.mark.filterwarnings("ignore:images. their scale")  # the statistics are those of the weights before
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("params", ["norm", "all"])
@pytest.mark.parametrize("ran", [False, True])
@pytest.mark.parametrize("how", NORMED)
def test_weights_that_a_hook_or_parametrisation_computes(how: str, ran: bool, params: str, precision: str) -> None:
    """A twin whose weights are what the hook computed answers the same, as long as these do not adapt."""
    model, x = normed(NORMED[how], ran=ran), images()
    plain = net()
    with torch.no_grad():
        model(x)
        for layer in (0, 4):
            plain[layer].weight.copy_(model[layer].weight)
    adapter = steep.adapt(normed(NORMED[how], ran=ran), "tent", params=params, precision=precision, lr=1e-2)
    first, second = adapter(x), adapter(images(seed=1))
    assert not torch.equal(adapter.model(x) if precision == "float32" else second, first)
    expected = steep.adapt(plain, "tent", params=params, precision=precision, lr=1e-2)
    loose = {"atol": 0.5, "rtol": 0.1} if precision == "bfloat16" else {"atol": 1e-4, "rtol": 1e-4}
    torch.testing.assert_close(first, expected(x), **loose)
    if params == "norm":
        torch.testing.assert_close(second, expected(images(seed=1)), **loose)
    adapter.reset()
    assert torch.equal(adapter(x), first)


@pytest.mark.parametrize("how", NORMED)
def test_they_can_be_merged_pickled_and_resumed(how: str, tmp_path: Path) -> None:
    adapter = steep.adapt(normed(NORMED[how], ran=True), "tent", params="all")
    adapter(images())
    adapter.save(tmp_path / "state")
    if how.startswith("old"):  # torch pickles no parametrised module
        assert torch.equal(pickle.loads(pickle.dumps(adapter))(images()), copy.deepcopy(adapter)(images()))
    module = adapter.merged(images())
    resumed = steep.resume(tmp_path / "state", normed(NORMED[how], ran=False))
    answer = adapter(images())
    assert torch.equal(resumed(images()), answer)
    torch.testing.assert_close(module(images()), answer, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", [KeepsFeatures, RanBefore])
def test_a_model_that_keeps_its_features_is_merged_copied_and_pickled(kind: type[nn.Module]) -> None:
    model = kind()
    adapter = steep.adapt(model, "tent")
    adapter(images())
    module, copies = adapter.merged(images()), [copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter))]
    answer = adapter(images())
    assert all(torch.equal(each(images()), answer) for each in copies)
    torch.testing.assert_close(module(images()), answer, atol=1e-4, rtol=1e-4)
    assert kind is KeepsFeatures or model.features.requires_grad  # the caller's are as they were


def volumes() -> Tensor:
    return torch.rand(16, 3, 6, 6, 6, generator=torch.Generator().manual_seed(0))


class Volumes(nn.Module):
    """Convolutions in three dimensions, and in two on the mean over depth."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.deep = nn.Sequential(nn.Conv3d(3, 8, 3), nn.BatchNorm3d(8), nn.ReLU(), nn.AdaptiveAvgPool3d(1))
            self.flat = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
            self.head = nn.Linear(8, 5)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.deep(x).flatten(1) + self.flat(x.mean(dim=2)).flatten(1))


@pytest.mark.parametrize("precision", ["bfloat16", "auto"])
@pytest.mark.parametrize("method", ["source", "tent", "tea"])
def test_a_model_of_volumes_in_half_precision(method: str, precision: str) -> None:
    adapter, wide = (steep.adapt(Volumes(), method, precision=each) for each in (precision, "float32"))
    torch.testing.assert_close(adapter(volumes()), wide(volumes()), atol=0.03, rtol=0.03)
    assert adapter.last.skipped is None
    torch.testing.assert_close(adapter.merged(volumes())(volumes()), adapter(volumes()), atol=0.03, rtol=0.03)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("how", [torch.jit.script, lambda layer: torch.jit.trace(layer, torch.rand(1, 3, 8, 8))])
def test_a_torchscript_part_is_refused_by_its_name(how: Callable[[nn.Module], nn.Module]) -> None:
    model = nn.Sequential(net())
    model[0][0] = how(model[0][0])
    with pytest.raises(InputError, match=r"model: 0\.0 .*TorchScript.*Give the nn\.Module it was made from"):
        steep.adapt(model, "tent")


class LateBuffer(nn.Module):
    """Counts its calls in a buffer that the first one makes."""

    def __init__(self, declared: bool, persistent: bool) -> None:
        super().__init__()
        self.net, self.persistent = net(), persistent
        if declared:
            self.register_buffer("calls", None, persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        if getattr(self, "calls", None) is None:
            self.register_buffer("calls", torch.zeros(()), persistent=self.persistent)
        self.calls = self.calls + 1
        return self.net(x) + torch.arange(5) * self.calls


@pytest.mark.parametrize("method", ["source", "tent", "tea"])
@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("declared", [True, False])
def test_a_buffer_made_by_the_first_forward(declared: bool, persistent: bool, method: str, tmp_path: Path) -> None:
    adapter = steep.adapt(LateBuffer(declared, persistent), method)
    first = adapter(images())
    adapter(images())
    adapter.save(tmp_path / "state")
    third = adapter(images())
    assert not torch.allclose(first, third, atol=0.5)
    assert torch.equal(steep.resume(tmp_path / "state", LateBuffer(declared, persistent))(images()), third)
    adapter.reset()
    assert hasattr(adapter.model, "calls") is declared
    assert torch.equal(adapter(images()), first)
    episodic = steep.adapt(LateBuffer(declared, persistent), method, episodic=True)
    assert torch.equal(episodic(images()), episodic(images()))


@pytest.mark.parametrize("declared", [True, False])
def test_a_step_that_is_undone_takes_the_buffer_back_that_it_made(declared: bool) -> None:
    adapter = steep.adapt(LateBuffer(declared, True), "tent")
    before = adapter.state_dict()["state"]["model"]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    hook = adapter.model.net[-1].register_full_backward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        adapter(images())
    hook.remove()
    after = adapter.state_dict()["state"]["model"]
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], value) for name, value in after.items())
    assert torch.equal(adapter(images()), steep.adapt(LateBuffer(declared, True), "tent")(images()))


def test_eata_resumes_on_a_model_that_counts_its_calls(tmp_path: Path) -> None:
    """The Fisher pass runs the model before the stream begins, and a resumed adapter does not."""
    adapter = steep.adapt(Counting(), "eata", source=[images(seed=7)] * 2)
    assert adapter.model.calls == 0
    adapter(images())
    adapter.save(tmp_path / "state")
    assert torch.equal(steep.resume(tmp_path / "state", Counting())(images()), adapter(images()))
