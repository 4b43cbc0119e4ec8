"""The same promises on a CUDA device: close to the CPU's answers, exact replay, steps undone without waiting."""

from __future__ import annotations

import os
from contextlib import nullcontext

import pytest
import torch
from test_guard import MOVING, QUICK, Brittle

import steep
from contract import identical
from nets import images, net
from steep.core.method import Need
from steep.errors import SteepWarning
from steep.predicting.batch_size import fitting

pytestmark = pytest.mark.gpu
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic matrix products want


def adapter_for(method: str, device: str = "cuda", **options) -> steep.Adapter:
    model = options.pop("model", None) or net().double()
    return steep.adapt(model, method, device=device, source=[images()], **QUICK.get(method, {}), **options)


@pytest.mark.parametrize(
    "method", [name for name, method in steep.METHODS.items() if not method.needs & {Need.VIEWS, Need.SAMPLES}]
)  # the others draw random numbers
def test_answers_are_those_of_the_cpu(method):
    here, there = adapter_for(method, "cpu"), adapter_for(method, "cuda")
    for s in range(5):
        torch.testing.assert_close(there(images(seed=s)).cpu(), here(images(seed=s)), rtol=1e-6, atol=1e-6)


def test_bytes_become_the_same_floats_on_the_device_and_a_batch_of_them_fits():
    pixels = torch.arange(256, dtype=torch.uint8).repeat(15).view(20, 8, 8, 3)  # channels last
    x = (pixels.permute(0, 3, 1, 2).float() / 255).contiguous()
    plain = adapter_for("source", model=net())(x)
    for batch in (pixels, pixels.numpy(), pixels.cuda(), (pixels, torch.arange(20))):
        assert torch.equal(adapter_for("source", model=net())(batch), plain)
    assert fitting(net().cuda(), x[:1].cuda()) == 200


@pytest.mark.parametrize("method", steep.METHODS)
def test_reset_replays_and_saved_state_goes_on(method, tmp_path):
    adapter = adapter_for(method, model=net(), deterministic=True)
    first = [adapter(images(seed=s)) for s in range(6)]
    adapter.reset()
    again = [adapter(images(seed=s)) for s in range(3)]
    assert all(map(torch.equal, again, first))
    adapter.save(tmp_path / "state")
    resumed = steep.resume(tmp_path / "state", net(), device="cuda")
    assert all(torch.equal(resumed(images(seed=s)), first[s]) for s in range(3, 6))


def test_what_the_watch_knows_follows_the_model_to_the_gpu(tmp_path):
    adapter = adapter_for("tent", "cpu", model=net(), guard="recover")
    for s in range(3):
        adapter(images(seed=s))
    adapter.save(tmp_path / "state")
    resumed = steep.resume(tmp_path / "state", net(), device="cuda")
    assert resumed(images(seed=3)).isfinite().all()


@pytest.mark.parametrize("method", MOVING)
def test_a_harmful_step_is_undone_and_the_good_ones_never_notice(method):
    make = lambda: adapter_for(method, model=Brittle(), deterministic=True)  # noqa: E731
    undisturbed, disturbed = make(), make()
    for s in range(6):
        assert torch.equal(disturbed(images(seed=s)), undisturbed(images(seed=s)))
        if s in (1, 3):
            before = disturbed.state_dict()["state"]
            with pytest.warns(SteepWarning, match="not finite") if s == 1 else nullcontext():  # once is enough
                disturbed(images(seed=s) + 10)
                assert identical(disturbed.state_dict()["state"], before)
                assert "not finite" in disturbed.last.skipped
    assert disturbed.last.undone == 2


def test_the_answer_to_a_harmful_step_is_the_last_good_model(monkeypatch):
    """With predict="after" the answer is made before the host knows the verdict: the device must have put it right."""
    from steep.methods.tea import TEA

    adapter = adapter_for("tea", model=net(), deterministic=True)
    for s in range(3):
        adapter(images(seed=s))
    x = images(seed=9)
    with torch.no_grad():
        expected = adapter.model(x.cuda())
    step = TEA.step

    def poisoned(self, state, x):
        done = step(self, state, x)
        with torch.no_grad():
            next(iter(state.model.adapted().values())).fill_(float("nan"))
        return done

    monkeypatch.setattr(TEA, "step", poisoned)
    torch.testing.assert_close(adapter(x), expected)
    with pytest.warns(SteepWarning, match="not finite"):  # now that the host reads the verdict
        report = adapter.last
    assert report.skipped == "the parameters are not finite"


def test_state_moves_between_devices(tmp_path):
    adapter = adapter_for("tea", model=net())
    adapter(images())
    adapter.save(tmp_path / "state")
    assert torch.isfinite(steep.resume(tmp_path / "state", net(), device="cpu")(images(seed=1))).all()
