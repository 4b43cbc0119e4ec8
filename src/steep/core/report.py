"""What a batch did to the model: as the runner leaves it on the device, and as a reader wants it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from steep.core.batch import mean, size
from steep.core.losses import energy
from steep.core.method import Step


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
    answered_by: str | None = None  # whose answer it is, where the guard has found a better one than the method's


class Outcome(NamedTuple):
    """One batch, adapted on and answered, as tensors on the device: only reading one makes the host wait."""

    steps: list[Step]
    logits: Tensor  # (B, K), the answer
    undone: Tensor  # steps undone since the start or the last reset, (); the next batch overwrites it
    verdict: Tensor | None = None  # of the last step, a flag for each of REASONS; None if there was nothing to judge
    totals: tuple[int, Tensor, Tensor] | None = None  # of the whole batch, where ranks share it

    def report(self, *, answered_after: bool, harmful: str | None) -> Report:
        """Read the numbers from the device. `harmful` says why the last step was undone there, if it was."""
        final = self.steps[-1]
        count, before, after = self.totals or totals(self.steps[0].logits, self.logits)
        used = count if final.used is None else int(final.used)
        moved = final.moved and harmful is None and used > 0
        happened = [step for step in self.steps[:-1] if step.moved] + [final] * moved
        # a note on a leap needs the leap
        notes = [step.note for step in happened if not isinstance(step.leap, Tensor) or bool(step.leap)]
        return Report(
            energy_before=float(before),
            energy_after=float(after) if answered_after or not moved else None,
            energy_samples=None if final.energy_samples is None else float(final.energy_samples),
            loss=None if final.loss is None or not used else float(final.loss),
            used=used if harmful is None else 0,
            skipped=None if moved else harmful or (final.reason_if_unused if final.moved else final.note),
            note=next(filter(None, reversed(notes)), None),
            undone=int(self.undone),
            answered_by=final.answered_by,
        )


def totals(first: Tensor, last: Tensor) -> tuple[int, Tensor, Tensor]:
    """Count the images of a batch, and give their mean energy in the first logits and in the last."""
    before, after = mean(torch.stack([energy(first), energy(last)], dim=1))
    return size(last), before, after
