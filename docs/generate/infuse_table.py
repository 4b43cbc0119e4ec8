"""Infuse beside its nearest rivals: every situation, and differences image by image, from stored rows."""

from __future__ import annotations

from typing import Any

import leaderboard
import samples_table

OURS = "infuse"
BESIDE = ("source", "bn", "tent", "roid", "tea", "energy", "energy mirrored", OURS)
MORE: dict[str, dict[str, Any]] = {
    "clean, 10,000": leaderboard.MODEL | {"severity": 0, "limit": None},
    "mixed and label-shifted": leaderboard.MODEL | {"protocol": "mixed-label-shift", "limit": 1000},
    "limited time": leaderboard.MODEL | {"protocol": "limited-time", "limit": 1000},
}
RIVALS = {  # situation → who is compared with infuse there
    "clean, 10,000": ("source", "source mirrored"),
    "reset, 10,000": ("energy", "energy mirrored"),
    "reset": ("tea", "tea mirrored", "energy mirrored"),
    "continual, 10,000": ("bn", "bn mirrored", "energy mirrored", "roid", "roid mirrored"),
    "mixed": ("bn", "energy mirrored"),
    "label shift": ("bn", "energy mirrored"),
    "limited time": ("energy", "energy mirrored"),
}


def rows(situation: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of a situation by label, of the methods as published, that say which images were right."""
    by_line = leaderboard.cells({**leaderboard.SITUATIONS, **MORE}[situation])
    return {
        label: [row for row in by_shift.values() if row.get("right")]
        for (label, setting), by_shift in by_line.items()
        if setting == "paper"
    }


def table() -> str:
    """A line for each situation: mean accuracy of a few methods."""
    lines = ["| situation | " + " | ".join(BESIDE) + " |", "|---|" + "---:|" * len(BESIDE)]
    board = leaderboard.accuracies()
    for name in ("clean, 10,000", *board, "mixed and label-shifted", "limited time"):
        if name in board:
            values = {label: value for (label, setting), value in board[name].items() if setting == "paper"}
        else:
            by_label = rows(name)
            most = max(map(len, by_label.values()))
            values = {k: samples_table.accuracy(v).value for k, v in by_label.items() if len(v) == most}
        best = max(value for label, value in values.items() if label in BESIDE)
        cells = [f"{values[label]:.1f}" if label in values else "–" for label in BESIDE]
        cells = [
            f"**{cell}**" if values.get(label) == best else cell for label, cell in zip(BESIDE, cells, strict=True)
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def differences() -> str:
    """A line for each rival: points that infuse has more, image by image, with an interval of 95 %."""
    lines = ["| situation | infuse | beside | points more |", "|---|---:|---|---|"]
    for situation, rivals in RIVALS.items():
        by_label = rows(situation)
        ours = samples_table.accuracy(by_label[OURS])
        for rival in rivals:
            theirs = by_label.get(rival, [])
            if len(theirs) == len(by_label[OURS]):
                more = samples_table.interval(ours - samples_table.accuracy(theirs))
                lines.append(f"| {situation} | {ours.value:.1f} | {rival} | {more} |")
    return "\n".join(lines)
