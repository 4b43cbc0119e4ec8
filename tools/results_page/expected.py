"""What recipes ask for, and how much of it rows answer: so that what was not run is listed.

Only what TEA's comparison asks for counts: the setting `paper`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from steep import recipes
from steep.bench.recipe import plan
from steep.bench.rows import Row
from steep.report.paper import blocks
from steep.report.tables import Table
from steep.report.words import declared, plain

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
Place: TypeAlias = tuple[str, str, int, str]  # source, shift, severity, label


@dataclass(frozen=True)
class Coverage:
    """How much of a recipe is there."""

    recipe: str
    about: str
    wanted: int
    here: int
    lacks: str = ""
    limits: tuple[int, ...] = ()  # where only the first images of each set were run, though the recipe says all

    @property
    def state(self) -> str:
        """Say it in a word or two."""
        if not self.here:
            return "not run"
        only = f", first {', '.join(f'{limit:,}' for limit in self.limits)} images of a set" if self.limits else ""
        return ("all of it" if self.here == self.wanted else f"{self.here:,} of {self.wanted:,} cells") + only


def coverage(rows: Sequence[Row], analyses: Sequence[Row]) -> list[Coverage]:
    """Go through the recipes of the paper's models and of sets that are fetched; others are for trying things out."""
    models = {block["model"] for block in blocks()}
    every = []
    for name, recipe in _recipes().items():
        known = declared(recipe["data"])
        if recipe["model"] not in models or known is None or not known.archives:
            continue
        if name.startswith("analyze-"):
            kind = name.removeprefix("analyze-")
            here = any(kind.startswith(str(row["analysis"])) and row.get("data") == recipe["data"] for row in analyses)
            every.append(Coverage(name, recipe["about"], 1, int(here)))
        else:
            every.append(_bench(name, recipe, rows))
    return every


def command(table: Table) -> str | None:
    """Give the command that makes a table's rows again, from the recipe that asks for least beyond them."""
    have = {place for row in table.rows if (place := _place(row)) is not None}
    labels = {str(row["spec"].get("label") or row["spec"]["method"]) for row in table.rows}
    fits = []
    for name, recipe in _recipes().items():
        if name.startswith("analyze-") or recipe.get("limit") not in (None, table.spec.get("limit")):
            continue  # a limit cannot be taken back
        if not _same(recipe, table.spec) or not labels <= set(recipe["methods"]):
            continue
        wanted = _wanted(name)
        if {p[:3] for p in have} <= {p[:3] for p in wanted}:
            fits.append((len(wanted), name, recipe, wanted))
    if not fits:
        return None
    _, name, recipe, wanted = min(fits, key=lambda fit: fit[:2])
    words = [f"steep bench {_path(name)}"]
    if {p[3] for p in wanted} != labels:
        words.append(f"--only method={','.join(sorted(labels))}")
    severities = sorted({p[2] for p in have})  # that of clean images is 0
    if any(severities) and {p[2] for p in wanted} != set(severities):
        words.append(f"--only severity={','.join(map(str, severities))}")
    if table.spec.get("source"):
        words.append(f"--only source={table.spec['source']}")
    settings = {str(row["spec"].get("setting", "paper")) for row in table.rows}
    if not settings >= set(recipe.get("settings", ["paper"])):
        words.append(f"--only setting={','.join(sorted(settings))}")
    seeds: dict[str, set[int]] = {}
    for row in table.rows:
        label = str(row["spec"].get("label") or row["spec"]["method"])
        seeds.setdefault(label, set()).add(row["spec"].get("seed", 0))
    asked = _seeds_of(recipe)
    if any(not numbers <= set(asked[label]) for label, numbers in seeds.items()):
        words.append(f"--seeds {','.join(map(str, sorted(set.union(*seeds.values()))))}")
    if table.spec.get("limit") != recipe.get("limit"):
        words.append(f"--limit {table.spec['limit']}" if table.spec.get("limit") else "")
    if table.spec.get("precision", "float32") != recipe.get("precision", "float32"):
        words.append(f"--set precision={table.spec['precision']}")
    return " ".join(word for word in words if word)


def _bench(name: str, recipe: Mapping[str, Any], rows: Sequence[Row]) -> Coverage:
    wanted = _wanted(name)
    trainings: dict[str, dict[str, dict[Place, set[int | None]]]] = {}  # by source domain and weights
    for row in rows:
        place = _place(row) if _same(recipe, row["spec"]) else None
        if place in wanted and place is not None:
            by_place = trainings.setdefault(place[0], {}).setdefault(str(row["spec"].get("weights_sha256")), {})
            by_place.setdefault(place, set()).add(row["spec"].get("limit"))
    # two halves by two source models are no whole: of each source domain that training counts which has most
    fullest = [max(by_weights.values(), key=_most) for by_weights in trainings.values()]
    here = {place: limits for by_place in fullest for place, limits in by_place.items()}
    limits = {min(seen, key=lambda limit: -(limit or 1 << 40)) for seen in here.values()} - {None, recipe.get("limit")}
    lacks = [f"{what} {', '.join(names)}" for what, names in _gone(wanted, wanted - set(here)).items() if names]
    lacks += ["some cells"] if not lacks and len(here) < len(wanted) else []
    lacks += _seeds(recipe, wanted, rows)
    partial = tuple(sorted(limit for limit in limits if limit))
    return Coverage(name, recipe["about"], len(wanted), len(here), "; ".join(lacks) if here else "", partial)


def _most(here: Mapping[Place, set[int | None]]) -> tuple[int, int]:
    """Rank by cells, then by those of whole sets."""
    return len(here), sum(None in limits for limits in here.values())


def _gone(wanted: frozenset[Place], missing: frozenset[Place]) -> dict[str, list[str]]:
    """Name what is missing altogether: methods, severities, shifts, source domains."""
    names = {}
    for what, index in (("methods", 3), ("severities", 2), ("shifts", 1), ("source domains", 0)):
        every = {place[index] for place in wanted}
        gone = {v for v in every if all(place in missing for place in wanted if place[index] == v)}
        names[what] = [plain(v) for v in sorted(gone, key=str) if v not in ("", 0)]
    return names


def _seeds(recipe: Mapping[str, Any], wanted: frozenset[Place], rows: Sequence[Row]) -> list[str]:
    """Say of which methods one training has fewer seeds than asked for, on whole sets where it ran on any."""
    seeds: dict[tuple[str, bool], dict[str, set[int]]] = {}  # by method and whether whole, then by weights
    for row in rows:
        spec = row["spec"]
        if _same(recipe, spec) and (place := _place(row)) in wanted and place is not None:
            whole = spec.get("limit") in (None, recipe.get("limit"))
            by_weights = seeds.setdefault((place[3], whole), {})
            by_weights.setdefault(str(spec.get("weights_sha256")), set()).add(spec.get("seed", 0))
    fewer = []
    for name, asked in _seeds_of(recipe).items():
        most, of_parts = (max(map(len, seeds.get((name, whole), {}).values()), default=0) for whole in (True, False))
        if 0 < (most or of_parts) < len(asked):
            on = " on whole sets" if 0 < most < of_parts else ""
            fewer.append(f"seeds of {name}: {most or of_parts} of {len(asked)}{on}")
    return fewer


def _seeds_of(recipe: Mapping[str, Any]) -> dict[str, list[int]]:
    return {name: list(entry.get("seeds", recipe.get("seeds", [0]))) for name, entry in recipe["methods"].items()}


def _place(row: Row) -> Place | None:
    spec = row["spec"]
    if spec.get("setting", "paper") != "paper":
        return None
    return (spec.get("source") or "", spec["shift"], spec["severity"], spec.get("label") or spec["method"])


def _same(recipe: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    """Tell whether a row could be of a recipe: what is the same for all its cells."""
    method = recipe["methods"].get(spec.get("label") or spec.get("method"), {})
    size = method.get("batch_size", recipe.get("batch_size"))
    size = 0 if size == "full" else size
    return (recipe["data"], recipe["model"], recipe.get("protocol", "reset"), size, recipe.get("size")) == tuple(
        spec.get(name) for name in ("data", "model", "protocol", "batch_size", "size")
    )


@functools.cache
def _recipes() -> dict[str, dict[str, Any]]:
    packaged = {name: recipes.read(name) for name in recipes.names("bench")}
    return packaged | {path.stem: recipes.read(str(path)) for path in sorted(EXPERIMENTS.glob("*.toml"))}


def _path(name: str) -> str:
    """Name a recipe as `steep bench` takes it."""
    file = EXPERIMENTS / f"{name}.toml"
    return f"{EXPERIMENTS.name}/{file.name}" if file.exists() else name


@functools.cache
def _wanted(name: str) -> frozenset[Place]:
    """Expand a recipe's grid, in the setting `paper`."""
    recipe = str(EXPERIMENTS / f"{name}.toml") if (EXPERIMENTS / f"{name}.toml").exists() else name
    cells = plan(recipe, only=["setting=paper"], require=False).cells
    return frozenset((cell.source, cell.shift, cell.severity, cell.label or cell.method) for cell in cells)
