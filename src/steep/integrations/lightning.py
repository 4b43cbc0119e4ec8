"""Lightning: adapt during `Trainer.test` and `Trainer.predict`, and give the model back as it was.

from steep.integrations.lightning import AdaptCallback

trainer = lightning.Trainer(callbacks=[AdaptCallback("tea", lr=1e-3)])
trainer.test(module, loader)
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from steep.core.adapter import Adapter
from steep.core.method import Method
from steep.errors import InputError, install_extra
from steep.methods import adapt

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as missing:
    raise InputError(f"steep.integrations.lightning needs lightning. {install_extra('lightning')}") from missing


class AdaptCallback(Callback):
    """From the start of a test or prediction to its end, the module's forward adapts and then answers with logits.

    The module itself is not changed: its weights, its mode and its forward are afterwards what they were, also when
    the run fails. Every run starts from the module as it is then. `adapter` stays, to read, save or merge.

    Args:
        method: how to adapt, as in `steep.adapt`.
        module: name of the part that maps images to logits, such as "net" or "model.backbone", where the steps call
            that part; "" for the LightningModule itself, where they call `self(x)`.
        **options: all other arguments of `steep.adapt`: steps, seed, precision, guard, callbacks, hyper-parameters …
    """

    def __init__(self, method: str | type[Method[Any]] | Method[Any] = "tea", *, module: str = "", **options: Any):
        super().__init__()
        self.method, self.module, self.options = method, module, options
        self.adapter: Adapter | None = None
        self._adapted: nn.Module | None = None  # the part whose forward is ours for now
        self._forward: Any = None  # of the part alone, beside that of its class

    def _begin(self, pl_module: LightningModule) -> None:
        try:
            part = pl_module.get_submodule(self.module)
        except AttributeError as error:
            known = ", ".join(name for name, _ in pl_module.named_children())
            raise InputError(f"module: expected a part of {type(pl_module).__name__} ({known}): {error}") from error
        self._end()
        adapter = adapt(part, self.method, **self.options)

        def forward(x: Tensor) -> Tensor:
            return adapter(x)

        self.adapter, self._adapted, self._forward = adapter, part, vars(part).get("forward")
        part.forward = forward

    def _end(self) -> None:
        if self._adapted is not None:
            del self._adapted.forward  # that of the class shows again
            if self._forward is not None:
                self._adapted.forward = self._forward
            self._adapted = self._forward = None

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to adapt."""
        self._begin(pl_module)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give the module back."""
        self._end()

    on_predict_start, on_predict_end = on_test_start, on_test_end

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Give the module back."""
        self._end()
