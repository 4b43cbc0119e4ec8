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
from torch.utils import _pytree as pytree

from steep.core.method import Method, State, Step
from steep.errors import GuardError, InputError

MODES = ("skip", "recover", "raise", "off")
PROPORTION = 10.0  # times the usual length of an update
WARMUP = 10  # healthy updates before "usual" means anything: an optimiser's first ones are unlike the later

REASONS = (
    "the loss is not finite",
    "the logits are not finite",
    "the parameters are not finite",
    "the update is out of proportion",
)


class Guard:
    """Runs the steps of one adapter. Its memory is one mark of the state, and a few numbers."""

    def __init__(self, mode: str) -> None:
        if mode not in MODES:
            raise InputError(f"guard: expected one of {', '.join(MODES)}, got {mode!r}")
        self.mode = mode
        self._undone = 0
        self._usual: Tensor | None = None  # (2,): mean length of healthy updates, and how many there were
        self._pending: tuple[State, dict[str, Any], Tensor] | None = None  # a verdict the host has not read yet
        self._last: str | None = None  # why the last step was undone

    def step(self, method: Method[Any], state: State, x: Tensor) -> Step:
        """Do one step of the method, or none: a harmful one leaves no trace but its report."""
        self.settle()
        self._last = None
        if self.mode == "off":
            return method.step(state, x)
        mark = state.mark()
        try:
            step = method.step(state, x)
        except BaseException:
            state.revert(mark)
            raise
        if not step.moved:
            return step
        verdict = self._judge(step, state, mark)
        if verdict.device.type == "cuda" and self.mode != "raise" and _revert_where(verdict != 0, state, mark):
            self._pending = state, mark, verdict
            return step
        self._pending = state, mark, verdict
        reason = self.reason
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
        faults = int(verdict)
        if faults:
            state.revert(mark)
            self._undone += 1
            self._last = ", ".join(reason for bit, reason in enumerate(REASONS) if faults >> bit & 1)

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
    def _judge(self, step: Step, state: State, mark: Mapping[str, Any]) -> Tensor:
        """Weigh a step on the device: a bit for each of REASONS, 0 for a healthy one."""
        before, after = mark["model"], state.model.moving()
        floating = [name for name in after if after[name].is_floating_point() and after[name].numel()]
        updates = torch._foreach_sub([after[n] for n in floating], [before[n] for n in floating])
        length = torch.stack(torch._foreach_norm(updates)).double().norm()
        usual = length.new_zeros(2) if self._usual is None else self._usual.to(length.device)
        mean, count = usual
        faults = [
            ~torch.isfinite(step.loss) if step.loss is not None else length < 0,
            ~torch.isfinite(step.logits).all(),
            ~torch.isfinite(length),
            (count >= WARMUP) & (length > PROPORTION * mean) & (not step.leap),
        ]
        verdict = torch.stack([fault.to(torch.uint8) << bit for bit, fault in enumerate(faults)]).sum()
        if not step.leap:
            pace = (1 / (count + 1)).clamp_min(0.1)
            healthier = torch.stack([mean + pace * (length - mean), count + 1])
            self._usual = torch.where(verdict == 0, healthier, usual)
        return verdict

    def snapshot(self) -> dict[str, Any]:
        """Copy what the guard knows."""
        self.settle()
        return {"undone": self._undone, "usual": None if self._usual is None else self._usual.cpu()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Bring back what the guard knew."""
        self._pending, self._last = None, None
        self._undone, self._usual = saved["undone"], saved["usual"]


@torch.no_grad()
def _revert_where(bad: Tensor, state: State, mark: Mapping[str, Any]) -> bool:
    """Undo a step on the device if a flag there says so; False if the state has changed its shape meanwhile."""
    live = state.live()
    now, shape = pytree.tree_flatten(live)
    then, old_shape = pytree.tree_flatten({name: mark[name] for name in live})
    if shape != old_shape:
        return False
    pairs = [(a, b) for a, b in zip(now, then, strict=True) if isinstance(a, Tensor) and a.is_cuda]
    for dtype in {a.dtype for a, _ in pairs}:
        here = [a for a, _ in pairs if a.dtype == dtype]
        kept = torch.cat([b.reshape(-1) for a, b in pairs if a.dtype == dtype])
        merged = torch.where(bad, kept, torch.cat([a.reshape(-1) for a in here]))
        pieces = merged.split_with_sizes([a.numel() for a in here])
        torch._foreach_copy_(here, [p.view(a.shape) for p, a in zip(pieces, here, strict=True)])
    for memory in state.large():
        memory.revert_where(bad)
    return True
