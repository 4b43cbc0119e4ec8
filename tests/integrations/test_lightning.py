"""Trainer.test and Trainer.predict with the callback: adapted while they run, as before afterwards."""

from __future__ import annotations

import logging

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import steep
from nets import images, net
from steep.errors import InputError

lightning = pytest.importorskip("lightning.pytorch")
from steep.integrations.lightning import AdaptCallback  # noqa: E402 — needs lightning

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:lightning"),
]
STREAM = [images(20, seed=s) for s in range(3)]


class Module(lightning.LightningModule):
    def __init__(self, inner: bool = False, breaks: bool = False) -> None:
        super().__init__()
        self.net, self.inner, self.breaks = net("batch"), inner, breaks
        self.seen: list[torch.Tensor] = []

    def forward(self, x):
        return self.net(x)

    def test_step(self, batch):
        if self.breaks:
            raise RuntimeError("broken")
        logits = self.net(batch[0]) if self.inner else self(batch[0])
        self.seen.append(logits)
        self.log("accuracy", (logits.argmax(1) == batch[1]).float().mean())

    def predict_step(self, batch):
        return self(batch[0])


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    monkeypatch.setattr(logging.getLogger("lightning.pytorch"), "level", logging.ERROR)

    def make(callback):
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        return lightning.Trainer(
            accelerator="cpu",
            devices=1,
            default_root_dir=tmp_path,
            callbacks=[callback],
            enable_checkpointing=False,
            **quiet,
        )

    return make


def loader() -> DataLoader:
    return DataLoader(TensorDataset(torch.cat(STREAM), torch.zeros(60, dtype=torch.long)), batch_size=20)


def expected() -> list[torch.Tensor]:
    adapter = steep.adapt(net("batch"), "tent", lr=0.01)
    return [adapter(x) for x in STREAM]


@pytest.mark.parametrize(("part", "inner"), [("", False), ("net", True)])
def test_a_test_adapts_and_gives_the_module_back(trainer, part, inner):
    module = Module(inner)
    before = {k: v.clone() for k, v in module.state_dict().items()}
    callback = AdaptCallback("tent", module=part, lr=0.01)
    trainer(callback).test(module, loader(), verbose=False)
    for answer, wanted in zip(module.seen, expected(), strict=True):
        torch.testing.assert_close(answer, wanted)
    assert callback.adapter.last.used == 20
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    with torch.no_grad():
        torch.testing.assert_close(module.eval()(STREAM[0]), net("batch")(STREAM[0]))
    assert "forward" not in vars(module)
    assert "forward" not in vars(module.net)


def test_a_prediction_adapts_and_every_run_starts_anew(trainer):
    module, callback = Module(), AdaptCallback("tent", lr=0.01)
    runner = trainer(callback)
    for _ in range(2):
        for answer, wanted in zip(runner.predict(module, loader()), expected(), strict=True):
            torch.testing.assert_close(answer, wanted)


def test_a_run_that_fails_gives_the_module_back_too(trainer):
    module = Module(breaks=True)
    with pytest.raises(RuntimeError, match="broken"):
        trainer(AdaptCallback("tent")).test(module, loader(), verbose=False)
    assert "forward" not in vars(module)


def test_a_part_that_is_not_there(trainer):
    with pytest.raises(InputError, match=r"module: expected a part of Module \(net\)"):
        trainer(AdaptCallback("tent", module="nett")).test(Module(), loader(), verbose=False)


def test_a_forward_of_the_modules_own_is_given_back():
    module = Module(True)
    module.net.forward = forward = lambda x: x.flatten(1)[:, :3]
    callback = AdaptCallback("source", module="net")
    callback.on_test_start(None, module)
    assert module.net.forward is not forward
    callback.on_test_end(None, module)
    assert module.net.forward is forward
