"""How to run a table again: a recipe written from its rows' specs, and the command that runs it.

A row holds everything that decides its number, so the recipe needs nothing else; planned, it gives the same cells.
Where a recipe cannot say what the rows say (a stream whose pairs are no grid), there is none, and the page says so.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from steep.methods import METHODS
from steep.models.loading import PRETRAINED
from steep.report.tables import Line, Table
from steep.report.words import declared


def command(table: Table, number: int = 1) -> str:
    """Give the command line that runs the recipe."""
    nothing = [
        f"--set {shlex.quote(f'{_label(line)}.{name}=none')}"
        for line in table.lines
        for name, value in sorted((line.spec.get("hyper") or {}).items())
        if value is None and _default(line, name) is not None
    ]
    name, from_file = str(table.spec.get("weights")), table.spec.get("weights_sha256")
    weights = f"--weights {shlex.quote(name)}.safetensors" if from_file and name != PRETRAINED else ""
    words = ["steep bench", f"again-{number}.toml", f"--store runs/again-{number}", weights, *dict.fromkeys(nothing)]
    return " ".join(word for word in words if word)


def _default(line: Line, name: str) -> Any:
    """Give the default of a hyper-parameter. TOML has no word for none, so none where that is not it needs `--set`."""
    if line.method not in METHODS:
        return None
    kind = METHODS[line.method]
    return getattr(kind.tuned() if line.setting == "tuned" else kind(), name, None)


def recipe(table: Table) -> str | None:
    """Write the recipe; None where a recipe cannot say it.

    >>> from steep.report.tables import build
    >>> spec = {"data": "digits-c", "shift": "fog", "severity": 5, "method": "tent", "hyper": {"lr": 0.001}}
    >>> print(recipe(build([{"key": "k", "spec": spec, "accuracy": 0.5, "n": 10}])[0]).splitlines()[3])
    data = "digits-c"
    """
    shifts = _shifts(table)
    if shifts is None:
        return None
    spec = table.spec
    names, severities = shifts
    lines = ['kind = "bench"', f"about = {toml('again: ' + table.title)}", ""]
    top: dict[str, Any] = {name: spec.get(name) for name in ("data", "model", "weights", "protocol")}
    known = declared(spec.get("data"))
    top |= {"shifts": names, "severities": None if known is not None and known.domains else severities}
    how = ("delta", "rounds", "pace", "size", "crop", "interpolation", "channels", "limit", "precision")
    top |= {name: spec.get(name) for name in how}
    top["batch_size"] = "full" if spec.get("batch_size") == 0 else spec.get("batch_size")
    lines += _pairs(top)
    if source := spec.get("source"):
        lines += ["", f"[sources.{toml(str(source))}]"]
    for line in table.lines:
        lines += ["", f"[methods.{toml(_label(line))}]", *_pairs(_method(line))]
    return "\n".join(lines) + "\n"


def _method(line: Line) -> dict[str, Any]:
    run = {name: line.spec.get(name) for name in ("steps", "episodic", "predict", "guard", "views")}
    hyper = sorted((line.spec.get("hyper") or {}).items())
    return {"method": line.method, "settings": [line.setting], "seeds": line.seeds, **run, **dict(hyper)}


def _label(line: Line) -> str:
    return line.name.replace(".", ",")  # --set takes what stands before the first dot for the method


def _shifts(table: Table) -> tuple[list[str], list[int]] | None:
    """Give shifts and severities whose grid is what was run."""
    specs = [row["spec"] for row in table.rows]
    streams = {tuple(map(tuple, spec.get("sequence") or ())) for spec in specs}
    pairs = list(dict.fromkeys((s["shift"], s["severity"]) for s in specs))
    if streams != {()}:
        if len(streams) > 1:
            return None
        pairs = list(next(iter(streams)))
    names = list(dict.fromkeys(str(shift) for shift, _ in pairs))
    severities = list(dict.fromkeys(severity for _, severity in pairs if severity))
    full = [(n, s) for n in names if n != "clean" for s in severities or [0]] + [(n, 0) for n in names if n == "clean"]
    if streams != {()} and full != pairs:  # of a stream the order counts; of cells it does not, and gaps get filled
        return None
    return names, severities or [5]


def _pairs(table: Mapping[str, Any]) -> Iterable[str]:
    return [f"{name} = {toml(value)}" for name, value in table.items() if value is not None]


def toml(value: Any) -> str:
    """Write a value as TOML, which is JSON for text, one number and true or false."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
