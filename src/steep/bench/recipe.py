"""From a recipe to its cells: every name checked, every hyper-parameter resolved, nothing run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from steep import corruptions, recipes
from steep.bench import weights
from steep.bench.cell import PRECISIONS
from steep.bench.options import CHOICES, Kinds, check, choices, hyper, hyper_changed, parse_seeds
from steep.bench.rows import file_of, read
from steep.bench.sources import UNTRAINED
from steep.bench.spec import CLEAN, SEQUENCE, Cell, as_hyper
from steep.core.run.guard import MODES
from steep.data import NAMES, PROTOCOLS
from steep.data.known import data_set
from steep.errors import InputError, unknown
from steep.methods import METHODS, make
from steep.models import build

_ONE_SHIFT = ("reset", "label-shift")  # protocols under which every shift is a cell of its own

# What decides how a cell runs; a recipe sets it for all methods, a method's own table for one.
_RUN: dict[str, Kinds] = {
    "batch_size": (int, str),
    "steps": (int,),
    "episodic": (bool,),
    "predict": (str,),
    "guard": (str,),
    "seeds": (list, int, str),
    "settings": (list,),
}
_DATA: dict[str, Kinds] = {
    "protocol": (str,),
    "delta": (float, int),
    "size": (int,),
    "channels": (int,),
    "limit": (int,),
    "precision": (str,),
}
_KEYS: dict[str, Kinds] = {
    "kind": (str,),
    "about": (str,),
    "demo": (list,),  # the methods of `steep demo`, the model without adaptation first
    "data": (str,),
    "model": (str,),
    "weights": (str,),
    "train": (str,),
    "shifts": (list, str),
    "severities": (list,),
    "set": (dict,),
    "sources": (dict,),
    "methods": (dict,),
    **_DATA,
    **_RUN,
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A grid worked out: its cells in running order and the files of weights they need (None: not found)."""

    name: str
    about: str
    cells: tuple[Cell, ...]
    files: Mapping[str, Path | None]
    train: Mapping[str, str]  # weights → the training recipe they come from

    @property
    def found(self) -> dict[str, Path]:
        """The files that are there."""
        return {name: file for name, file in self.files.items() if file is not None}

    def left(self, store: Path) -> list[Cell]:
        """Give the cells that have no row in a store yet, which need not be there."""
        stored = {row["key"] for row in read(store)} if file_of(store).exists() else set()
        return [cell for cell in self.cells if cell.key() not in stored]


def plan(
    recipe: str,
    *,
    sets: Sequence[str] = (),
    only: Sequence[str] = (),
    seeds: str | None = None,
    limit: int | None = None,
    given: Path | None = None,
    root: Path | None = None,
    require: bool = True,
) -> Plan:
    """Work a recipe out.

    Args:
        recipe: the name of a packaged one, or the path of a .toml file.
        sets: `tea.lr=1e-4` for a hyper-parameter, `batch_size=64` for a key of the recipe.
        only: `method=tea,tent`, `shift=fog`, `severity=5`, `seed=0`, `setting=paper`, `source=photo`.
        seeds: `0..4` or `0,3`, instead of the recipe's, for every method.
        limit: only the first so many images of every set.
        given: a file of weights, or a folder of such files.
        root: where data lives.
        require: whether weights that cannot be found are an error.

    >>> grid = plan("digits", only=["method=tent", "shift=fog"], require=False)
    >>> len(grid.cells), grid.cells[0].name
    (1, 'tent fog 5')
    """
    table = recipes.read(recipe)
    where = f"recipe {Path(recipe).stem}"
    if table["kind"] != "bench":
        raise InputError(f"{where}: expected kind = 'bench', got {table['kind']!r}. Run: steep train {recipe}")
    table = {**table, **({"limit": limit} if limit is not None else {})}
    given_hyper = dict(table.get("set", {}))
    told: set[str] = set()
    for text in sets:
        name, value = recipes.assignment(text, "NAME=VALUE such as tea.lr=1e-4")
        if "." in name:
            given_hyper[name] = value
        else:
            recipes.check_keys("--set", {name: value}, [*_DATA, *_RUN, "model", "weights", "severities", "shifts"])
            table[name] = value
            told.add(name)
    check(where, table, _KEYS)
    for needed in ("data", "model", "weights", "methods"):
        if needed not in table:
            raise InputError(f"{where}: expected the key {needed!r}, got {', '.join(table)}")
    chosen = choices(only)
    builder = _Builder(where, {**table, "set": given_hyper}, chosen, seeds, told)
    cells = list(builder.cells())
    _refuse_strangers(chosen, cells, builder.everything)
    names = sorted({cell.weights for cell in cells} - {UNTRAINED})
    files = {name: weights.find(name, given, root) for name in names}
    train = {cell.weights: builder.train(cell.source) for cell in cells}
    for name, file in files.items():
        if require and (file is None or not file.is_file()):
            raise weights.missing(name, train[name], given, root)
    digests = {name: weights.sha256(file) for name, file in files.items() if file is not None and file.is_file()}
    cells = [replace(cell, weights_sha256=digests.get(cell.weights, "")) for cell in cells]
    return Plan(name=Path(recipe).stem, about=table.get("about", ""), cells=tuple(cells), files=files, train=train)


class _Builder:
    """Expands the tables of one recipe."""

    def __init__(
        self,
        where: str,
        table: Mapping[str, Any],
        chosen: Mapping[str, set[str]],
        seeds: str | None,
        told: set[str],
    ) -> None:
        self.where, self.table, self.chosen, self.seeds, self.told = where, table, chosen, seeds, told
        self.data = table["data"]
        base = self.data.removesuffix("-c")
        if base not in NAMES:
            raise unknown(f"data of {where}", self.data, (*NAMES, *(f"{name}-c" for name in NAMES)))
        self.domains = () if self.data.endswith("-c") else data_set(self.data).domains
        with torch.device("meta"):  # no memory: only to refuse a model that does not exist before anything runs
            build(table["model"], 2)
        self.protocol = table.get("protocol", "reset")
        if self.protocol not in PROTOCOLS:
            raise unknown(f"protocol of {where}", self.protocol, PROTOCOLS)
        if table.get("precision", "float32") not in PRECISIONS:
            raise unknown(f"precision of {where}", table["precision"], PRECISIONS)
        self.everything: dict[str, set[str]] = {name: set() for name in CHOICES}

    def train(self, source: str) -> str:
        """Name the training recipe of the weights for one source domain."""
        return str(self.table.get("train", "")).replace("{source}", source)

    def cells(self) -> Iterator[Cell]:
        """Yield every cell, cells on the same images one after the other and the source model first."""
        for source, own in self._sources():
            for shift, severity, sequence in self._streams(source):
                for label, given in self.table["methods"].items():
                    yield from self._method(label, given, source, own, shift, severity, sequence)

    def _sources(self) -> list[tuple[str, Mapping[str, Any]]]:
        found = self.table.get("sources", {})
        if self.domains:
            for name, own in found.items():
                if name not in self.domains:
                    raise unknown(f"source domain of {self.where}", name, self.domains)
                check(f"{self.where}, sources.{name}", own, {"set": (dict,), **_RUN})
            if not found:
                example = f"[sources.{self.domains[0]}]"
                raise InputError(f"{self.where}: {self.data} needs a table for each source domain, such as {example}")
        elif found:
            raise InputError(f"{self.where}: {self.data} has no domains, got sources {', '.join(found)}")
        self.everything["source"] |= set(found)
        if not found:
            return [("", {})]
        return [(name, own) for name, own in found.items() if self._wanted("source", name)]

    def _streams(self, source: str) -> list[tuple[str, int, tuple[tuple[str, int], ...]]]:
        pairs = [pair for pair in self._pairs() if pair[0] != source]
        self.everything["shift"] |= {name for name, _ in pairs}
        self.everything["severity"] |= {str(level) for _, level in pairs}
        pairs = [p for p in pairs if self._wanted("shift", p[0]) and self._wanted("severity", str(p[1]))]
        if self.protocol in _ONE_SHIFT:
            return [(name, severity, ()) for name, severity in pairs]
        return [(SEQUENCE, max(severity for _, severity in pairs), tuple(pairs))] if pairs else []

    def _pairs(self) -> list[tuple[str, int]]:
        if self.domains:
            targets = self.table.get("shifts", list(self.domains))
            for name in targets:
                if name not in self.domains:
                    raise unknown(f"target domain of {self.where}", name, self.domains)
            return [(name, 0) for name in targets]
        corrupted = self.data.endswith("-c")
        named = self.table.get("shifts", "benchmark" if corrupted else [CLEAN])
        groups = {"benchmark": corruptions.BENCHMARK, "all": corruptions.CORRUPTIONS} if corrupted else {}
        names = [one for name in ([named] if isinstance(named, str) else named) for one in groups.get(name, (name,))]
        for name in names:
            if name != CLEAN and (not corrupted or name not in corruptions.CORRUPTIONS):
                known = (CLEAN, *groups, *(corruptions.CORRUPTIONS if corrupted else ()))
                raise unknown(f"shift of {self.where}", str(name), known)
        severities = self.table.get("severities", [5])
        if not severities or any(type(s) is not int or not 1 <= s <= 5 for s in severities):  # True and 5.0 are none
            raise InputError(f"{self.where}: severities: expected some of 1, 2, 3, 4, 5, got {severities}")
        return [(n, s) for n in names if n != CLEAN for s in severities] + [(n, 0) for n in names if n == CLEAN]

    def _method(
        self,
        label: str,
        given: Any,
        source: str,
        own: Mapping[str, Any],
        shift: str,
        severity: int,
        sequence: tuple[tuple[str, int], ...],
    ) -> Iterator[Cell]:
        where = f"{self.where}, methods.{label}"
        if not isinstance(given, dict):
            raise InputError(f"{where}: expected a table such as {{}}, got {given!r}")
        name = given.get("method", label)
        if name not in METHODS:
            raise unknown(f"method of {self.where}", name, METHODS)
        self.everything["method"] |= {name, label}
        self.everything["setting"] |= set(given.get("settings", self.table.get("settings", ["paper"])))
        if not (self._wanted("method", name) or self._wanted("method", label)):
            return
        check(where, {k: v for k, v in given.items() if k in _RUN}, _RUN)
        # The nearest wins: the method's own table, the source domain's, the recipe's. What --set says comes before all
        # of them, but not where a line goes by another name: what it differs in would be undone.
        run = {**_only(self.table, _RUN), **_only(own, _RUN), **_only(given, _RUN)}
        run |= _only(self.table, _RUN.keys() & self.told) if label == name else {}
        table = {k: v for k, v in given.items() if k not in _RUN and k != "method"}
        said = self._assigned(name, label, {**own.get("set", {}), **self.table["set"]})
        for setting in run.get("settings", ["paper"]):
            if setting == "tuned" and make(name, "tuned") == make(name):
                continue  # nothing to tune: it would be the same row twice
            # What `tuned` is about is not the recipe's to undo; only an assignment by name does that.
            tuned = hyper_changed(name) if setting == "tuned" else ()
            resolved = hyper(where, name, setting, {k: v for k, v in table.items() if k not in tuned} | said)
            for seed in parse_seeds(self.seeds if self.seeds is not None else run.get("seeds", [0])):
                self.everything["seed"].add(str(seed))
                if self._wanted("setting", setting) and self._wanted("seed", str(seed)):
                    yield Cell(
                        data=self.data,
                        shift=shift,
                        severity=severity,
                        sequence=sequence,
                        source=source,
                        model=self.table["model"],
                        weights=self.table["weights"].replace("{source}", source),
                        method=name,
                        setting=setting,
                        hyper=as_hyper(resolved),
                        seed=seed,
                        protocol=self.protocol,
                        delta=self._delta() if self.protocol == "label-shift" else None,
                        batch_size=_batch_size(where, run.get("batch_size", 200)),
                        steps=_at_least(where, "steps", run.get("steps", 1), 1),
                        episodic=run.get("episodic", False),
                        predict=_predict(where, run.get("predict", METHODS[name].predicts)),
                        guard=_guard(where, run.get("guard", "off")),
                        size=self.table.get("size"),
                        channels=self.table.get("channels"),
                        limit=self.table.get("limit"),
                        precision=self.table.get("precision", "float32"),
                        label=label,
                    )

    def _assigned(self, name: str, label: str, assignments: Mapping[str, Any]) -> dict[str, Any]:
        """Pick the assignments (`tea.lr = 1e-4`) that are meant for one method."""
        found = {}
        for key, value in assignments.items():
            target, _, parameter = key.partition(".")
            if target not in METHODS and target not in self.table["methods"]:
                raise unknown("method to set", target, (*METHODS, *self.table["methods"]))
            if target in (name, label):
                found[parameter] = value
        return found

    def _delta(self) -> float:
        delta = float(self.table.get("delta", 0.1))
        if not 0 < delta < math.inf:  # nan is neither
            raise InputError(f"{self.where}: delta: expected a finite number more than 0, got {delta}")
        return delta

    def _wanted(self, what: str, value: str) -> bool:
        return what not in self.chosen or value in self.chosen[what]


def _refuse_strangers(chosen: Mapping[str, set[str]], cells: Sequence[Cell], known: Mapping[str, set[str]]) -> None:
    """A value of --only that nothing in the grid has is a slip, not a wish for less."""
    for what, values in chosen.items():
        for value in sorted(values - known[what]):
            raise unknown(f"{what} in --only", value, known[what])
    if not cells:
        raise InputError("the grid is empty: no cell has all that --only asks for")


def _only(table: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: table[key] for key in keys if key in table}


def _batch_size(where: str, value: Any) -> int:
    return 0 if value == "full" else _at_least(where, "batch_size", value, 1)


def _at_least(where: str, name: str, value: Any, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{where}: {name}: expected a whole number of {least} or more, got {value!r}")
    return value


def _guard(where: str, value: str) -> str:
    if value not in MODES:
        raise unknown(f"guard of {where}", value, MODES)
    return value


def _predict(where: str, value: str) -> str:
    if value not in ("before", "after"):
        raise InputError(f"{where}: predict: expected 'before' or 'after' (the update), got {value!r}")
    return value
