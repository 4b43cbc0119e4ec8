"""The adapter: a private copy of the caller's model that adapts on every batch it answers."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from steep.core.batch import alone, spread
from steep.core.classifier import FAR, Classifier, SourceModel
from steep.core.dist import agreement
from steep.core.dist.group import Group, join, within
from steep.core.io import arguments, export, images, saving
from steep.core.io.feed import blank
from steep.core.method import Method, State
from steep.core.report import Outcome, Report
from steep.core.run.contexts import fresh_casts, grads, kernels
from steep.core.run.recompute import blocks
from steep.core.run.runner import Runner
from steep.core.settings import Behaviour, Execution
from steep.errors import CheckpointError, InputError, SteepWarning

Callback = Callable[["Adapter", Tensor], None]
"""Called with the adapter and its logits after each answered batch: to log, draw or stop."""

FORMAT = 4  # of state_dict(); raised when an older reader could no longer understand it


class Adapter:
    """Adapts on each batch, then answers. Made by `steep.adapt`; the caller's model is never touched.

    Calls from several threads wait for each other. A batch is adapted on and answered as a whole: if a call raises,
    Ctrl-C included, the model and `last` are as before it (with `guard="off"`, `last` alone). Only a step that
    `guard="raise"` refuses is counted in `last.undone`.

    >>> import torch, steep
    >>> model = steep.models.build("wrn-10-1", 10)
    >>> adapter = steep.adapt(model, "tent")
    >>> logits = adapter(torch.rand(64, 3, 32, 32))
    >>> logits.shape, adapter.last.used
    (torch.Size([64, 10]), 64)
    >>> adapter.reset()                        # back to the source model
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method[Any],
        behaviour: Behaviour | None = None,
        execution: Execution | None = None,
        *,
        source: Iterable[Any] | None = None,
        callbacks: Iterable[Callback] = (),
    ) -> None:
        self.method = method
        self.behaviour = (behaviour or Behaviour()).for_method(method)
        self.predict, self.seed = self.behaviour.predict, self.behaviour.seed
        how = execution or Execution()
        arguments.check_batches("source", source)
        # not saved: a resumed adapter has none
        self.callbacks = arguments.check_functions("callbacks", callbacks)
        self._fast = how.compile or how.graph
        self._group = join(how.distributed)
        model = arguments.check_model(model)
        if how.recompute and not blocks(model):
            message = "recompute=True: this model has no blocks in a row, nothing is saved"
            warnings.warn(message, SteepWarning, stacklevel=3)
        with grads(), kernels(self._fast, self.behaviour.deterministic):
            net = model if how.inplace else arguments.copy_model(model)
            with arguments.restored_if_refused(net) if how.inplace else nullcontext():
                classifier = arguments.move_model(Classifier(net), how.device)
                classifier.compile_forward, classifier.recompute = how.compile, how.recompute
                self._state: State = method.init(SourceModel(classifier, self.seed, self.behaviour.precision, source))
                self._runner = Runner(method, self._state, self.behaviour, graph=how.graph, alone=self._group is None)
        self._same = False  # whether the ranks of the group are known to have the same state
        self._shapes: set[torch.Size] = set()  # of images that the model is known to take
        self._lock = threading.RLock()

    @property
    def model(self) -> nn.Module:
        """The adapted model: of the caller's own class, in the adapter's own memory.

        With precision="bfloat16" its frozen weights are in bfloat16: call it under `torch.autocast`.
        """
        with self._lock:
            self._runner.settle()
            return self._state.model.net

    @property
    def device(self) -> torch.device:
        """Where the model lives and the logits come back."""
        return self._state.model.anchor().device

    def __call__(self, x: Any) -> Tensor:
        """Adapt on the images x (B, C, H, W), RGB in [0, 1], and answer with detached logits (B, K).

        Bytes, channels last, arrays and a loader's (images, labels) will do where they have one reading.
        """
        with self._lock, grads(), fresh_casts(), kernels(self._fast, self.behaviour.deterministic):
            logits = self._answer(x) if self._group is None else self._answer_together(x, self._group)
            answer = logits.clone()  # the caller may write to it, and `last` must not change
            for callback in self.callbacks:
                callback(self, answer)
            return answer

    def peek(self, x: Any, view: Callable[[Tensor], Tensor] | None = None, *, plain: bool = False) -> Tensor:
        """Answer images, or a view of them, without adapting: model and `last` stay. Alone, not in a group.

        With `plain` the model answers by one forward, also where the method's own answer takes many.
        """
        with self._lock, grads(), fresh_casts(), kernels(self._fast, self.behaviour.deterministic):
            images, good = self._state.model.check_images(x, **{**self._keep, "keep_bad": False})
            images = images if view is None else view(images)
            if good is None:
                return self._runner.peek(images, plain=plain).clone()
            logits = self._answer_blank(images, good)
            if good.any():
                logits[good] = self._runner.peek(images[good], plain=plain)
            return logits

    def _answer(self, x: Tensor) -> Tensor:
        """Adapt on the good images of a batch and answer them; bad ones get NaN."""
        x, good = self._state.model.check_images(x, **self._keep)
        if good is None:
            return self._run(x).logits
        logits = self._answer_blank(x, good)
        outcome = self._run(x[good]) if good.any() else self._answer_none(x)
        return _filled(logits, outcome.logits, good)

    def _answer_blank(self, x: Tensor, good: Tensor) -> Tensor:
        """Answer blank images without adapting; those that are neither blank nor good get NaN, the good ones wait.

        They teach nothing, and batch statistics of them would spoil the answers to the others.
        """
        where = ~good & blank(x) & (x.abs() <= FAR).flatten(1).all(dim=1)
        with alone(), images.explain_forward_error(x):
            chosen = self._runner.peek(x[where])
        return spread(chosen, where) if len(chosen) < len(x) else chosen.clone()

    def _run(self, x: Tensor) -> Outcome:
        try:
            if x.shape[1:] not in self._shapes:
                images.probe_forward(x, self._state.model)
                self._shapes.add(x.shape[1:])
            return self._runner.run(x)
        except torch.cuda.OutOfMemoryError:
            if not self._answers_in_pieces:
                raise
        return self._answer_in_pieces(x)  # out here, where the error no longer keeps the step's memory

    def _answer_together(self, x: Tensor, group: Group) -> Tensor:
        """Answer this rank's part of a batch, adapting on all of it. Nothing happens before all ranks agree."""
        with group.in_step():
            part = agreement.reach(
                group,
                x,
                self._state.model,
                self._shapes,
                0 if self._same else self._fingerprint(),
                self._answer_blank,
                pieces=self._answers_in_pieces,
                **self._keep,
            )
            self._same = True
            if not part.fits:
                outcome = self._answer_in_pieces(part.x)
            elif not any(part.scope.counts):
                outcome = self._answer_none(part.x)
            else:
                with within(part.scope):
                    outcome = self._runner.run(part.x)
            return outcome.logits if part.others is None else _filled(part.others, outcome.logits, part.good)

    def _answer_none(self, x: Tensor) -> Outcome:
        with images.explain_forward_error(x):  # only the model knows the number of classes
            return self._runner.answer(x[:0], "no good image in the batch")

    def _answer_in_pieces(self, x: Tensor) -> Outcome:
        advice = f"{self.method.memory_advice}, " if self.method.memory_advice else ""
        note = (
            "out of GPU memory: the batch was answered in pieces without adapting. Lower the batch size, "
            f"{advice}or use precision='bfloat16'"
        )
        return self._runner.answer(x, note, pieces=2)

    @property
    def _keep(self) -> dict[str, bool]:
        """Which images of a batch are left out of it, and which refuse it."""
        return {"keep_bad": self.behaviour.bad_images == "nan", "leave_out_blank": self._runner.compares_with_source}

    @property
    def _answers_in_pieces(self) -> bool:
        return self.behaviour.guard not in ("off", "raise")

    @property
    def raw(self) -> Outcome:
        """What `last` is read from: tensors on the device, for callbacks that must not wait for it."""
        if self._runner.outcome is None:
            raise InputError("raw: expected at least one batch before, got none")
        return self._runner.outcome

    @property
    def last(self) -> Report | None:
        """What the last batch did; None before the first. Reading it waits for the device; not reading is free."""
        with self._lock:
            outcome = self._runner.outcome
            if outcome is None:
                return None
            # a verdict that the host had not read in time
            harmful = self._runner.why_undone() if outcome.steps[-1].moved else None
            return outcome.report(answered_after=self.predict == "after", harmful=harmful)

    def reset(self) -> None:
        """Go back to the source model and to the first random number: from here everything replays exactly."""
        with self._lock, grads():
            self._runner.reset()
            self._look_again()

    def state_dict(self) -> dict[str, Any]:
        """Everything that moves, as plain data for `torch.save`; the frozen weights stay with the model."""
        with self._lock:
            return {"format": FORMAT, **self._identity(), **self._runner.state_dict()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue where `state_dict()` was taken, with identical results; refuse what does not fit."""
        if not isinstance(saved, Mapping) or "format" not in saved:
            raise CheckpointError("state: expected what Adapter.state_dict() gave, got something else")
        if saved["format"] != FORMAT:
            raise CheckpointError(f"state: expected format {FORMAT}, got {saved['format']}, of another steep")
        with self._lock, grads():
            saved = saving.filled(saved, hyper=type(self.method), options=Behaviour)
            saving.refuse_other(saved, self._identity(), self._runner.initial["model"])
            try:
                self._runner.load_state_dict(saved)
            except CheckpointError:
                raise
            except Exception as error:
                raise CheckpointError(f"state: incomplete or damaged ({error!r})") from error
            self._look_again()

    def options(self) -> dict[str, Any]:
        """How this adapter behaves, besides its model and method."""
        return asdict(self.behaviour)

    def _identity(self) -> dict[str, Any]:
        """What a saved state must have in common with this adapter."""
        return {
            "method": self.method.name,
            "hyper": asdict(self.method),
            "options": self.options(),
            "source": self._state.model.fingerprint(),
        }

    def _fingerprint(self) -> int:
        return agreement.fingerprint(self._state, self.method, self.options())

    def _look_again(self) -> None:
        """Check the next stream like the first."""
        self._same = False
        self._shapes.clear()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the adaptation to a file, whole or not at all; `steep.resume(path, model)` continues from it."""
        saving.save(self.state_dict(), Path(path))

    def merged(self, images: Tensor | Iterable[Any] | None = None) -> nn.Module:
        """Give the adapted model as an ordinary module: of the caller's class, in eval mode, without our hooks.

        Methods that normalise each batch by its own statistics (bn, tent, tea, …) need `images`, a batch or several,
        to fix the statistics of BatchNorm layers by: on that batch the module then answers as the adapter does. A
        loader of (images, labels) will do.
        """
        with self._lock, grads():
            self._runner.settle()
            export.warn_if_inexact(self.method, self.behaviour.views)
            return export.merged(self._state.model, images, **self._keep)

    def train(self, mode: bool = True) -> Self:
        """Do nothing: an adapter is always ready to adapt, and its copy of the model stays as configured."""
        return self

    def eval(self) -> Self:
        """Do nothing, like `train`."""
        return self

    def __repr__(self) -> str:
        return (
            f"Adapter({self.method}, model={type(self.model).__name__}, steps={self.behaviour.steps}, "
            f"episodic={self.behaviour.episodic}, predict={self.predict!r}, seed={self.seed}, device={self.device})"
        )

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            self._runner.settle()
            # copied here: pickle reads it when the lock is open again, and another thread may adapt meanwhile
            return arguments.deepcopy({name: value for name, value in vars(self).items() if name != "_lock"})

    def __setstate__(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved)
        self._lock = threading.RLock()


def _filled(logits: Tensor, chosen: Tensor, good: Tensor) -> Tensor:
    """Put the answers to the good images in their places, beside those to the others."""
    logits[good] = chosen
    return logits
