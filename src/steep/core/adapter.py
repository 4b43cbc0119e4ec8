"""The adapter: a private copy of the caller's model that adapts on every batch it answers."""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, get_args

import torch
from torch import Tensor, nn

from steep.core.batch import mean, size, spread
from steep.core.classifier import Classifier, SourceModel, copied
from steep.core.dist import agreement
from steep.core.dist.group import SCOPE, Distributed, Group, join, within
from steep.core.io import arguments, export, images, saving
from steep.core.losses import energy
from steep.core.method import Method, Moment, State, Step
from steep.core.run.collapse import RESTING, CollapseMonitor
from steep.core.run.contexts import fresh_casts, grads, kernels
from steep.core.run.graph import Graphs
from steep.core.run.guard import Guard, Raw
from steep.core.run.recompute import blocks
from steep.errors import CheckpointError, InputError, SteepWarning

Callback = Callable[["Adapter", Tensor], None]
"""Called with the adapter and its logits after each answered batch: to log, draw or stop."""

FORMAT = 4  # of state_dict(); raised when an older reader could no longer understand it


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
    undone: int  # steps the guard has undone since the start or the last reset


class Adapter:
    """Adapts on each batch, then answers. Made by `steep.adapt`; the caller's model is never touched.

    Calls from several threads wait for each other: a batch is adapted on and answered as a whole.

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
        guard: str = "skip",
        bad_images: str = "raise",
        deterministic: bool = False,
        compile: bool = False,
        graph: bool = False,
        recompute: bool = False,
        inplace: bool = False,
        distributed: Distributed = False,
        source: Iterable[Any] | None = None,
        callbacks: Iterable[Callback] = (),
    ) -> None:
        seed, steps = arguments.seed(seed), arguments.whole("steps", steps)
        if steps < 1:
            raise InputError(f"steps: expected ≥ 1 per batch, got {steps}")
        if predict is not None and predict not in get_args(Moment):
            raise InputError(f"predict: expected 'before' or 'after' (the update), got {predict!r}")
        if distributed and (compile or graph):
            raise InputError("distributed: ranks wait for each other inside a step. Leave compile and graph out")
        if bad_images not in ("raise", "nan"):
            raise InputError(f"bad_images: expected 'raise' or 'nan', got {bad_images!r}")
        arguments.check_switches(episodic=episodic, deterministic=deterministic, inplace=inplace)
        arguments.check_switches(compile=compile, graph=graph, recompute=recompute)
        arguments.check_batches("source", source)
        self.method = method
        self.steps = steps
        self.episodic = bool(episodic)
        self.predict: Moment = predict or method.predicts
        self.seed = seed
        self.precision = precision
        self.bad_images = bad_images
        self.deterministic = bool(deterministic)
        self.callbacks = arguments.functions("callbacks", callbacks)  # no state: a resumed adapter begins with none
        self._watch = CollapseMonitor()
        self._graphs = Graphs(graph)
        self._fast = compile or graph
        self._group = join(distributed)
        model = arguments.checked(model)
        if recompute and not blocks(model):
            warnings.warn(
                "recompute=True: this model has no blocks in a row, nothing is saved", SteepWarning, stacklevel=3
            )
        with grads(), kernels(self._fast, deterministic):
            self._guard = Guard(guard)
            net = model if inplace else arguments.copy_of(model)
            with arguments.left_alone_if_refused(net) if inplace else nullcontext():
                classifier = arguments.placed(Classifier(net), device)
                classifier.compile_forward, classifier.recompute = compile, recompute
                self._state: State = method.init(SourceModel(classifier, self.seed, precision, source))
                self._initial = self._state.snapshot()
        self._same = False  # whether the ranks of the group are known to hold the same
        self._shapes: set[torch.Size] = set()  # image shapes the model has been seen to take
        self._lock = threading.RLock()
        self._steps: list[Step] = []
        self._logits: Tensor | None = None
        self._event: str | None = None  # what the watch did
        self._overall: tuple[int, Tensor, Tensor] | None = None  # of the whole batch, where ranks share it

    @property
    def model(self) -> nn.Module:
        """The adapted model: of the caller's own class, in the adapter's own memory.

        With precision="bfloat16" its frozen weights are in bfloat16: call it under `torch.autocast`.
        """
        with self._lock:
            self._guard.settle()
            return self._state.model.net

    @property
    def device(self) -> torch.device:
        """Where the model lives and the logits come back."""
        return self._state.model.anchor().device

    def __call__(self, x: Tensor) -> Tensor:
        """Adapt on the images x (B, C, H, W), RGB in [0, 1], and answer with detached logits (B, K)."""
        with self._lock, grads(), fresh_casts(), kernels(self._fast, self.deterministic):
            if self._group is not None:
                logits = self._answer_together(x, self._group)
            else:
                x, good = images.checked(x, self._state.model.anchor(), keep_bad=self.bad_images == "nan")
                logits = self._answer(x) if good is None else self._answer_good(x, good)
            answer = logits.clone()  # the caller's own: what is done to it must not change what `last` says
            for callback in self.callbacks:
                callback(self, answer)
            return answer

    def _answer_together(self, x: Tensor, group: Group) -> Tensor:
        """Answer this rank's part of a batch, adapting on all of it. Nothing happens before all ranks agree."""
        with group.in_step():
            watched = {"batches": self._watch.batches, "rest": self._watch.rest}
            same = 0 if self._same else agreement.fingerprint(self._state, self.method, self.options() | watched)
            keep_bad, pieces = self.bad_images == "nan", self._guard.mode not in ("off", "raise")
            part = agreement.reach(group, x, self._state.model, self._shapes, same, keep_bad=keep_bad, pieces=pieces)
            self._same, self._overall = True, None
            if not part.fits:
                answers = self._answer_in_pieces(part.x)
            elif any(part.scope.counts):
                with within(part.scope):
                    answers = self._adapt_and_answer(part.x)
            else:
                return self._answer_none(part.x, part.good)
        return spread(answers, part.good)

    def _answer(self, x: Tensor) -> Tensor:
        try:
            if x.shape[1:] not in self._shapes:
                images.probe_forward(x, self._state.model)
                self._shapes.add(x.shape[1:])
            return self._adapt_and_answer(x)
        except torch.cuda.OutOfMemoryError:
            if self._guard.mode in ("off", "raise"):
                raise
            return self._answer_in_pieces(x)

    def _adapt_and_answer(self, x: Tensor) -> Tensor:
        self._event = None
        self._state.model.batches += 1
        if self.episodic:
            self._guard.settle()
            self._state.restore(self._initial)
        steps = [self._at_rest(x)] if self._watch.consume_rest_batch() else [self._step(x) for _ in range(self.steps)]
        logits = steps[-1].logits
        if self.predict == "after" and steps[-1].moved:
            predict = functools.partial(self.method.predict, self._state)
            logits = self._graphs.run("predict", self.method, self._state, predict, x).clone()
        self._steps, self._logits = steps, logits
        if self._guard.mode == "recover" and steps[-1].moved:
            self._watch.ask(self.method, self._state, self._initial, x)
            self._event = self._watch.look(
                self._state, self._initial, self._logits, _gap(self._steps[-1]), self._guard.settle
            )
        if SCOPE.get() is not None:
            self._overall = _overall(steps[0].logits, logits)
        return self._logits

    def _at_rest(self, x: Tensor) -> Step:
        self._guard.begin()
        return Step(self.method.predict(self._state, x), used=0, moved=False, note=RESTING)

    def _step(self, x: Tensor) -> Step:
        """One guarded step; its tensors are the caller's to keep."""
        run = functools.partial(self._graphs.run, "step", self.method, self._state)
        step = self._guard.step(self.method, self._state, x, run)
        if self._graphs.recordings:  # the next replay overwrites them
            kept: dict[str, Any] = {k: v.clone() for k, v in step._asdict().items() if isinstance(v, Tensor)}
            step = step._replace(**kept)
        return step

    def _answer_good(self, x: Tensor, good: Tensor) -> Tensor:
        """Adapt on and answer for the good images; the others get NaN."""
        return spread(self._answer(x[good]), good) if good.any() else self._answer_none(x, good)

    @torch.no_grad()
    def _answer_none(self, x: Tensor, good: Tensor) -> Tensor:
        """Answer a batch that has no good image."""
        with images.explain_forward_error(x):
            logits = spread(self._state.model(x[:0]), good)  # only the model knows the number of classes
        self._steps = [Step(logits, used=0, moved=False, note="no good image in the batch")]
        self._logits, self._event = logits, None
        return logits

    @torch.no_grad()
    def _answer_in_pieces(self, x: Tensor) -> Tensor:
        """Answer without adapting, in ever smaller pieces until one fits."""
        pieces = 2
        while True:
            torch.cuda.empty_cache()
            try:
                logits = torch.cat([self._state.model(piece) for piece in x.chunk(pieces)])
                break
            except torch.cuda.OutOfMemoryError:
                if pieces >= len(x):
                    raise  # not even one image fits
                pieces *= 2
        self._steps = [Step(logits, used=0, moved=False, note=_out_of_memory(self.method))]
        self._logits, self._event = logits, None
        return logits

    @property
    def raw(self) -> Raw:
        """What the last batch did, as tensors on the device, for callbacks that must not wait for it; see `last`."""
        return self._guard.raw(self._steps, self._event)

    @property
    def last(self) -> Report | None:
        """What the last batch did; None before the first. Reading it waits for the device; not reading is free."""
        with self._lock:
            if self._logits is None:
                return None
            first, final = self._steps[0], self._steps[-1]
            harmful = self._guard.reason if final.moved else None  # a verdict that the host had not read in time
            count, before, after = self._overall or _overall(first.logits, self._logits)
            used = count if final.used is None else int(final.used)
            moved = final.moved and harmful is None and used > 0
            answered_after = self.predict == "after" or not moved
            return Report(
                energy_before=float(before),
                energy_after=float(after) if answered_after else None,
                energy_samples=None if final.energy_samples is None else float(final.energy_samples),
                loss=None if final.loss is None or not used else float(final.loss),
                used=used if harmful is None else 0,
                skipped=None if moved else harmful or (final.reason_if_unused if final.moved else final.note),
                note=self._event or (final.note if moved and _happened(final) else None),
                undone=self._guard.undone,
            )

    def reset(self) -> None:
        """Go back to the source model and to the first random number: from here everything replays exactly."""
        with self._lock, grads():
            self._state.restore(self._initial)
            self._guard.forget()
            self._watch.forget()
            self._forget()

    def state_dict(self) -> dict[str, Any]:
        """Everything that moves, as plain data for `torch.save`; the frozen weights stay with the model."""
        with self._lock:
            return {
                "format": FORMAT,
                "method": self.method.name,
                "hyper": asdict(self.method),
                "options": self.options(),
                "source": self._state.model.fingerprint(),
                "guard": self._guard.snapshot(),  # settles first: what follows is the state after the verdict
                "watch": copied(self._watch.snapshot()),
                "initial": copied(self._initial),
                "state": self._state.snapshot(),
            }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue where `state_dict()` was taken, with identical results; refuse what does not fit."""
        if not isinstance(saved, Mapping) or "format" not in saved:
            raise CheckpointError("state: expected what Adapter.state_dict() gave, got something else")
        if saved["format"] != FORMAT:
            raise CheckpointError(f"state: expected format {FORMAT}, got {saved['format']}, of another steep")
        mine = {
            "method": self.method.name,
            "hyper": asdict(self.method),
            "options": self.options(),
            "source": self._state.model.fingerprint(),
        }
        saving.refuse_other(saved, mine, self._initial["model"])
        with self._lock, grads():
            self._guard.settle()
            before = self._state.snapshot(), self._guard.snapshot(), self._watch.snapshot()
            try:
                self._state.restore(saved["initial"])  # shows that a later reset() will find what it needs
                self._state.restore(saved["state"])
                self._guard.restore(saved["guard"])
                self._watch.restore(saved["watch"])
            except Exception as error:
                self._state.restore(before[0])
                self._guard.restore(before[1])
                self._watch.restore(before[2])
                if isinstance(error, CheckpointError):
                    raise
                raise CheckpointError(f"state: incomplete or damaged ({error!r})") from error
            self._initial = copied(dict(saved["initial"]))
            self._forget()

    def options(self) -> dict[str, Any]:
        """How this adapter was made, besides its model and method."""
        names = ("steps", "episodic", "predict", "seed", "precision", "bad_images", "deterministic")
        return {**{name: getattr(self, name) for name in names}, "guard": self._guard.mode}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the adaptation to a file, whole or not at all; `steep.resume(path, model)` continues from it."""
        saving.save(self.state_dict(), Path(path))

    def merged(self, images: Tensor | Iterable[Any] | None = None) -> nn.Module:
        """Give the adapted model as an ordinary module: a copy of the caller's class, in eval mode, without hooks.

        Methods that normalise each batch by its own statistics (bn, tent, tea, …) need `images`, a batch or several,
        to fix the statistics of BatchNorm layers by: on that batch the module then answers as the adapter does. A
        loader of (images, labels) will do.
        """
        with self._lock, grads():
            self._guard.settle()
            return export.merged(self._state.model, images, keep_bad=self.bad_images == "nan")

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

    def __getstate__(self) -> dict[str, Any]:
        self._guard.settle()
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved)
        self._lock = threading.RLock()

    def _forget(self) -> None:
        self._steps, self._logits, self._event, self._overall, self._same = [], None, None, None, False
        self._shapes.clear()  # the next stream is looked at like the first


def _gap(step: Step) -> Tensor | None:
    """How far the energy of the samples lies from that of the test images."""
    return None if step.energy_samples is None else mean(energy(step.logits)) - step.energy_samples


def _overall(first: Tensor, last: Tensor) -> tuple[int, Tensor, Tensor]:
    """How many images there were, and their mean energy in the first logits and in the last."""
    before, after = mean(torch.stack([energy(first), energy(last)], dim=1))
    return size(last), before, after


def _happened(step: Step) -> bool:
    """Whether a step's note applies: one about a leap that was decided on the device is told by its flag."""
    return bool(step.leap) if isinstance(step.leap, Tensor) else True


def _out_of_memory(method: Method[Any]) -> str:
    advice = f"{method.memory_advice}, " if method.memory_advice else ""
    return (
        "out of GPU memory: the batch was answered in pieces without adapting. Lower the batch size, "
        f"{advice}or use precision='bfloat16'"
    )
