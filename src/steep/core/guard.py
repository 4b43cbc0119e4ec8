"""The guard: a step that would harm the model is undone, exactly, and the stream goes on.

A step is harmful when its loss, logits or the parameters it leads to are not finite, when its update is out of
proportion to the recent ones, or when it raises half-way. On a GPU the host does not wait for the verdict: parameters
are put right on the device at once, and what lives on the host when the next batch comes or somebody looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from steep.core.mark import Mark
from steep.core.method import Method, State, Step
from steep.errors import GuardError, InputError

MODES = ("skip", "recover", "raise", "off")
PROPORTION = 10.0  # times the usual length of an update ...
LEAST = 1e-3  # ... and that at least this share of the length of the parameters: quiet data must not freeze the model
PATIENCE = 5  # updates in a row that are out of proportion to the old ones: then they are the new usual
WARMUP = 10  # healthy updates before "usual" means anything: an optimiser's first ones are unlike the later

REASONS = (
    "the loss is not finite",
    "the logits are not finite",
    "the parameters are not finite",
    "the update is out of proportion",
)


class Guard:
    """Runs the steps of one adapter. Its memory is one mark of the state, and a few numbers."""

    asynchronous = ("cuda",)  # devices on which the host does not wait for a verdict

    def __init__(self, mode: str) -> None:
        if mode not in MODES:
            raise InputError(f"guard: expected one of {', '.join(MODES)}, got {mode!r}")
        self.mode = mode
        self._undone = 0
        self._usual: Tensor | None = None  # (3,): mean length of healthy updates, their number, leaps in a row
        self._pending: tuple[State, Mark, Tensor] | None = None  # a verdict the host has not read yet
        self._last: str | None = None  # why the last step was undone

    def step(self, method: Method[Any], state: State, x: Tensor) -> Step:
        """Do one step of the method, or none: a harmful one leaves no trace but its report."""
        self.settle()
        self._last = None
        mark = None if self.mode == "off" else Mark(state)
        try:
            step = method.step(state, x)
        except BaseException:
            if mark is None:
                state.model.forget_gradients()
            else:
                mark.revert(state)
            raise
        if mark is None or not step.moved:
            return step
        verdict = self._judge(step, state, mark)
        later = verdict.device.type in self.asynchronous and self.mode != "raise"
        later = later and mark.revert_where(verdict.any(), state)
        self._pending = state, mark, verdict
        reason = None if later else self.reason
        if reason is None:
            return step
        if self.mode == "raise":
            raise GuardError(f"step undone: {reason}. The model is as before; guard='skip' goes on by itself.")
        return step._replace(moved=False, used=0, note=reason)

    def settle(self) -> None:
        """Read the verdict of the last step, and finish undoing it."""
        if self._pending is None:
            return
        (state, mark, verdict), self._pending = self._pending, None
        faults = verdict.tolist()
        if any(faults):
            mark.revert(state)
            self._undone += 1
            self._last = ", ".join(reason for fault, reason in zip(faults, REASONS, strict=True) if fault)

    @property
    def undone(self) -> int:
        """How many steps were undone since the start or the last reset."""
        self.settle()
        return self._undone

    @property
    def reason(self) -> str | None:
        """Why the last step was undone, if it was."""
        self.settle()
        return self._last

    @torch.no_grad()
    def _judge(self, step: Step, state: State, mark: Mark) -> Tensor:
        """Weigh a step on the device: a flag for each of REASONS."""
        length, whole = mark.moved(state)
        usual = length.new_zeros(3) if self._usual is None else self._usual.to(length.device)
        mean, count, row = usual
        loss = length.new_zeros(()) if step.loss is None else step.loss.double()
        # a sum is finite only if all its terms are; in double precision it cannot overflow by itself
        finite = torch.stack([loss, step.logits.sum(dtype=torch.float64), length]).isfinite()
        far = (count >= WARMUP) & (length > PROPORTION * torch.maximum(mean, LEAST * whole)) & (not step.leap)
        settled = far & (row >= PATIENCE)  # not a leap any more
        faults = torch.cat([~finite, (far & ~settled)[None]])
        if not step.leap:
            pace = (1 / (count + 1)).clamp_min(0.1)
            healthy = torch.stack([mean + pace * (length - mean), count + 1, torch.zeros_like(row)])
            anew = torch.stack([length, torch.full_like(count, WARMUP), torch.zeros_like(row)])
            refused = torch.stack([mean, count, row + far])
            self._usual = torch.where(faults.any(), refused, torch.where(settled, anew, healthy))
        return faults

    def snapshot(self) -> dict[str, Any]:
        """Copy what the guard knows."""
        self.settle()
        return {"undone": self._undone, "usual": None if self._usual is None else self._usual.cpu()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Bring back what the guard knew."""
        self._pending, self._last = None, None
        self._undone, self._usual = saved["undone"], saved["usual"]
