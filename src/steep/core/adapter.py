"""The adapter: a private copy of the caller's model that adapts on every batch it answers."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Self, get_args

import torch
from torch import Tensor, nn

from steep.core.losses import energy
from steep.core.method import Method, Moment, State, Step
from steep.core.source import Classifier, Source
from steep.errors import CheckpointError, InputError

FORMAT = 1  # of state_dict(); raised when an older reader could no longer understand it


@contextmanager
def _fresh_casts() -> Iterator[None]:
    """Under a caller's autocast, torch keeps the half-precision copy of a weight until the context ends.

    An adapted weight would then be answered with as it was before the update.
    """
    enabled = torch.is_autocast_cache_enabled()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(enabled)


@dataclass(frozen=True)
class Report:
    """What the last batch did to the model. Energies are means over the batch."""

    energy_before: float
    energy_after: float | None  # None where no forward was made after the update (predict="before")
    energy_samples: float | None  # of the samples drawn from the model, for methods that draw some
    loss: float | None
    used: int  # images that took part in the last update
    skipped: str | None  # why nothing was adapted, if so
    note: str | None  # anything else worth a line in a log


class Adapter:
    """Adapts on each batch, then answers. Made by `steep.adapt`; the caller's model is never touched.

    >>> import torch, steep
    >>> model = steep.models.build("wrn-10-1", 10)
    >>> adapter = steep.adapt(model, "tent")
    >>> logits = adapter(torch.rand(16, 3, 32, 32))
    >>> logits.shape, adapter.last.used
    (torch.Size([16, 10]), 16)
    >>> adapter.reset()                        # back to the source model
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method[Any],
        *,
        steps: int = 1,
        episodic: bool = False,
        predict: Moment | None = None,
        seed: int = 0,
        device: torch.device | str | None = None,
        precision: str = "float32",
        source: Iterable[Any] | None = None,
    ) -> None:
        if steps < 1:
            raise InputError(f"steps: expected ≥ 1 per batch, got {steps}")
        if predict is not None and predict not in get_args(Moment):
            raise InputError(f"predict: expected 'before' or 'after' (the update), got {predict!r}")
        self.method = method
        self.steps = steps
        self.episodic = episodic
        self.predict: Moment = predict or method.predicts
        self.seed = seed
        with torch.inference_mode(False), torch.enable_grad():
            classifier = Classifier(copy.deepcopy(model)).to(device)
            self._state: State = method.init(Source(classifier, seed, precision, source))
            self._initial = self._state.snapshot()
        self._shapes: set[torch.Size] = set()  # image shapes the model has been seen to take
        self._steps: list[Step] = []
        self._answer: Tensor | None = None

    @property
    def model(self) -> nn.Module:
        """The adapted model: of the caller's own class, in the adapter's own memory.

        With precision="bfloat16" its frozen weights are in bfloat16: call it under `torch.autocast`.
        """
        return self._state.model.net

    @property
    def device(self) -> torch.device:
        """Where the model lives and the logits come back."""
        return self._state.model.anchor().device

    def __call__(self, x: Tensor) -> Tensor:
        """Adapt on the images x (B, C, H, W), RGB in [0, 1], and answer with detached logits (B, K)."""
        with torch.inference_mode(False), torch.enable_grad(), _fresh_casts():
            x = self._checked(x)
            if self.episodic:
                self.reset()
            self._steps = [self.method.step(self._state, x) for _ in range(self.steps)]
            logits = self._steps[-1].logits
            if self.predict == "after" and self._steps[-1].moved:
                logits = self.method.predict(self._state, x)
            self._answer = logits.detach()
            self._steps = [step._replace(logits=step.logits.detach()) for step in self._steps]
            return self._answer

    @property
    def last(self) -> Report | None:
        """What the last batch did; None before the first. Reading it waits for the device, not reading is free."""
        if self._answer is None:
            return None
        first, final = self._steps[0], self._steps[-1]
        answered_after = self.predict == "after" or not final.moved
        used = len(self._answer) if final.used is None else int(final.used)
        return Report(
            energy_before=float(energy(first.logits).mean()),
            energy_after=float(energy(self._answer).mean()) if answered_after else None,
            energy_samples=None if final.energy_samples is None else float(final.energy_samples),
            loss=None if final.loss is None else float(final.loss),
            used=used,
            skipped=final.note if not final.moved else None,
            note=final.note if final.moved else None,
        )

    def reset(self) -> None:
        """Go back to the source model and to the first random number: from here everything replays exactly."""
        self._state.restore(self._initial)
        self._forget()

    def state_dict(self) -> dict[str, Any]:
        """Everything that moves, as plain data for `torch.save`; the frozen weights stay with the model."""
        return {
            "format": FORMAT,
            "method": self.method.name,
            "hyper": asdict(self.method),
            "seed": self.seed,
            "source": self._state.model.fingerprint(),
            "initial": copy.deepcopy(self._initial),
            "state": self._state.snapshot(),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue where `state_dict()` was taken, with identical results; refuse what does not fit."""
        if not isinstance(saved, Mapping) or "format" not in saved:
            raise CheckpointError("state: expected what Adapter.state_dict() gave, got something else")
        if saved["format"] != FORMAT:
            raise CheckpointError(f"state: expected format {FORMAT}, got {saved['format']}: upgrade steep")
        mine = {
            "method": self.method.name,
            "hyper": asdict(self.method),
            "source": self._state.model.fingerprint(),
        }
        for what, expected in mine.items():
            if saved[what] != expected:
                raise CheckpointError(f"state: expected the {what} {expected}, got {saved[what]}")
        here = self._state.snapshot()
        try:
            self._state.restore(saved["state"])
        except Exception:
            self._state.restore(here)
            raise
        self._initial = copy.deepcopy(saved["initial"])
        self._forget()

    def train(self, mode: bool = True) -> Self:
        """Do nothing: an adapter is always ready to adapt, and its copy of the model stays as configured."""
        return self

    def eval(self) -> Self:
        """Do nothing, like `train`."""
        return self

    def __repr__(self) -> str:
        return (
            f"Adapter({self.method}, model={type(self.model).__name__}, steps={self.steps}, "
            f"episodic={self.episodic}, predict={self.predict!r}, seed={self.seed}, device={self.device})"
        )

    def _forget(self) -> None:
        self._steps, self._answer = [], None

    def _checked(self, x: Tensor) -> Tensor:
        """Refuse what cannot be adapted on, before anything has changed."""
        if not isinstance(x, Tensor):
            raise InputError(f"images: expected a torch.Tensor (B, C, H, W), got {type(x).__name__}")
        if x.ndim not in (4, 5):
            hint = " One image? Give it a batch of its own: x[None]." if x.ndim == 3 else ""
            raise InputError(f"images: expected (B, C, H, W), got {tuple(x.shape)}.{hint}")
        if not x.is_floating_point():
            raise InputError(
                f"images: expected floating point in [0, 1], got {x.dtype}. Convert first: x.float() / 255."
            )
        if x.numel() == 0:
            raise InputError(f"images: expected at least one, got the shape {tuple(x.shape)}")
        anchor = self._state.model.anchor()
        x = x.detach().to(anchor.device, anchor.dtype)
        if x.is_inference():
            x = x.clone()  # autograd cannot save a tensor that was made under inference_mode
        if not bool(torch.isfinite(x).all()):
            bad = (~torch.isfinite(x)).flatten(1).any(dim=1).sum()
            raise InputError(f"images: expected finite values, got NaN or Inf in {int(bad)} of {len(x)} images")
        if x.shape[1:] not in self._shapes:
            self._try(x)
            self._shapes.add(x.shape[1:])
        return x

    @torch.no_grad()
    def _try(self, x: Tensor) -> None:
        """Show the model a new image shape once, so that what it cannot take is refused with nothing changed."""
        try:
            self._state.model(x)
        except InputError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise InputError(
                f"images: the model cannot take a batch of shape {tuple(x.shape)} (B, C, H, W): {error}"
            ) from error
