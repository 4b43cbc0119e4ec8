"""From a recipe to its cells: every name checked, every hyper-parameter resolved, nothing run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch

from steep import corruptions, recipes, user_code
from steep.bench import options
from steep.bench.adapters import PRECISIONS
from steep.bench.options import Many, check
from steep.bench.rows import file_of, read
from steep.bench.sources import UNTRAINED, find_weights, missing_weights, weights_sha256
from steep.bench.spec import CLEAN, SEQUENCE, Cell, as_hyper
from steep.core.constraints import TABLE, TEXT, Choice, Constraint, Real, Switch, Whole
from steep.core.settings import GUARDS
from steep.data import NAMES, PROTOCOLS
from steep.data.known import data_set
from steep.errors import InputError, UnknownNameError, unknown
from steep.methods import METHODS, find
from steep.models import build

Table: TypeAlias = Mapping[str, Any]
Pair: TypeAlias = tuple[str, int]  # (shift, severity)

_ONE_SHIFT = ("reset", "label-shift")  # protocols under which every shift is a cell of its own

# What decides how a cell runs; a recipe sets it for all methods, a method's table for one.
_RUN: dict[str, Constraint] = {
    "batch_size": options.BatchSize(),
    "steps": Whole(least=1),
    "episodic": Switch(),
    "predict": Choice("before", "after"),
    "guard": Choice(*GUARDS),
    "seeds": options.Seeds(),
    "settings": Many(Choice("paper", "tuned")),
}
# What a command may set besides, and what every cell of a recipe has in common.
_COMMON: dict[str, Constraint] = {
    "protocol": Choice(*PROTOCOLS),
    "delta": Real(above=0),
    "size": Whole(least=1),
    "channels": Whole(least=1),
    "limit": Whole(least=1),
    "precision": Choice(*PRECISIONS),
    "model": TEXT,
    "weights": TEXT,
    "shifts": Many(TEXT),
    "severities": Many(Whole(least=1, most=5)),
}
_KEYS = {
    **dict.fromkeys(("kind", "about", "data", "train"), TEXT),
    "demo": Many(TEXT),  # the methods of `steep demo`, the model without adaptation first
    **dict.fromkeys(("set", "sources", "methods"), TABLE),
    **_COMMON,
    **_RUN,
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A grid worked out: its cells in running order and the files of weights they need (None: there is none)."""

    name: str
    about: str
    cells: tuple[Cell, ...]
    files: Mapping[str, Path | None]
    train: Mapping[str, str]  # weights → the training recipe they come from

    @property
    def present(self) -> dict[str, Path]:
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
    weights: Path | None = None,
    root: Path | None = None,
    require: bool = True,
    own_domain: bool = False,
) -> Plan:
    """Work a recipe out.

    Args:
        recipe: the name of a packaged one, or the path of a .toml file.
        sets: `tea.lr=1e-4` for a hyper-parameter, `batch_size=64` for a key of the recipe.
        only: `method=tea,tent`, `shift=fog`, `severity=5`, `seed=0`, `setting=paper`, `source=photo`.
        seeds: `0..4` or `0,3`, instead of the recipe's, for every method.
        limit: only the first so many images of every set.
        weights: a file of weights, or a folder of such files.
        root: where data lives.
        require: whether weights that cannot be found are an error.
        own_domain: whether a model is also run on the domain it was trained on.

    >>> grid = plan("digits", only=["method=tent", "shift=fog"], require=False)
    >>> len(grid.cells), grid.cells[0].name
    (1, 'tent fog 5')
    """
    table = recipes.read(recipe)
    where = f"recipe {Path(recipe).stem}"
    if table["kind"] != "bench":
        raise InputError(f"{where}: expected kind = 'bench', got {table['kind']!r}. Run: steep train {recipe}")
    hyper: dict[str, Any] = {}
    commanded: dict[str, Any] = {} if limit is None else {"limit": limit}
    for text in sets:
        name, value = recipes.assignment(text, "NAME=VALUE such as tea.lr=1e-4")
        (hyper if "." in name else commanded)[name] = value
    recipes.check_keys("--set", commanded, [*_COMMON, *_RUN])
    table = check(where, {**table, **commanded}, _KEYS)
    for needed in ("data", "model", "weights", "methods"):
        if needed not in table:
            raise InputError(f"{where}: expected the key {needed!r}, got {', '.join(table)}")
    grid = _Grid(
        where=where,
        table=table,
        hyper={**table.get("set", {}), **hyper},
        commanded=commanded.keys(),
        seeds=None if seeds is None else check(where, {"seeds": seeds}, _RUN)["seeds"],
        chosen=options.choices(only),
        folder=Path(recipe).expanduser().parent,
        own_domain=own_domain,
    )
    cells = list(grid.cells())
    grid.refuse_unknown_choices()
    if not cells:
        raise InputError("the grid is empty: no cell has all that --only asks for")
    files = {name: find_weights(name, weights, root) for name in sorted({cell.weights for cell in cells} - {UNTRAINED})}
    train = {cell.weights: str(table.get("train", "")).replace("{source}", cell.source) for cell in cells}
    for name, file in files.items():
        if require and file is None:
            raise missing_weights(name, train[name], weights, root)
    digests = {name: weights_sha256(file) for name, file in files.items() if file is not None}
    cells = [replace(cell, weights_sha256=digests.get(cell.weights, "")) for cell in cells]
    return Plan(name=Path(recipe).stem, about=table.get("about", ""), cells=tuple(cells), files=files, train=train)


@dataclass(kw_only=True)
class _Grid:
    """Expands the tables of one recipe."""

    where: str  # begins every message of an error
    table: Table  # the recipe, with what the command sets
    hyper: Table  # hyper-parameters of the recipe and the command, as `tea.lr`
    commanded: Set[str]  # the keys that the command sets
    seeds: list[int] | None  # for every method; None: those of the tables
    chosen: Mapping[str, set[str]]  # what --only asks for
    folder: Path  # of the recipe, where the files of methods lie
    own_domain: bool  # whether a model is also run on the domain it was trained on
    known: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in options.CHOICES})

    def __post_init__(self) -> None:
        self.data, self.protocol = self.table["data"], self.table.get("protocol", "reset")
        if self.data.removesuffix("-c") not in NAMES:
            raise unknown(f"data of {self.where}", self.data, (*NAMES, *(f"{name}-c" for name in NAMES)))
        self.corrupted = self.data.endswith("-c")
        self.domains = () if self.corrupted else data_set(self.data).domains
        with torch.device("meta"):  # no memory: only to refuse a model that does not exist before anything runs
            build(self.table["model"], 2)

    def cells(self) -> Iterator[Cell]:
        """Yield every cell, cells on the same images one after the other and the source model first."""
        common = {name: self.table[name] for name in ("size", "channels", "limit", "precision") if name in self.table}
        delta = self.table.get("delta", 0.1) if self.protocol == "label-shift" else None
        for source, domain in self._sources():
            tables = self.table["methods"].items()
            lines = [line for label, table in tables for line in self._lines(label, table, domain)]
            weights = self.table["weights"].replace("{source}", source)
            for shift, severity, sequence in self._streams(source):
                for line, seeds in lines:
                    for seed in seeds:
                        yield Cell(
                            data=self.data,
                            shift=shift,
                            severity=severity,
                            sequence=sequence,
                            source=source,
                            model=self.table["model"],
                            weights=weights,
                            seed=seed,
                            protocol=self.protocol,
                            delta=delta,
                            **common,
                            **line,
                        )

    def refuse_unknown_choices(self) -> None:
        """Refuse a value of --only that nothing in the grid has: it is a slip, not a wish for less."""
        for what, values in self.chosen.items():
            for value in sorted(values - self.known[what]):
                raise unknown(f"{what} in --only", value, self.known[what])

    def _sources(self) -> list[tuple[str, Table]]:
        sources = self.table.get("sources", {})
        if sources and not self.domains:
            raise InputError(f"{self.where}: {self.data} has no domains, got sources {', '.join(sources)}")
        if self.domains and not sources:
            example = f"[sources.{self.domains[0]}]"
            raise InputError(f"{self.where}: {self.data} needs a table for each source domain, such as {example}")
        for name in sources:
            if name not in self.domains:
                raise unknown(f"source domain of {self.where}", name, self.domains)
        tables = {
            name: check(f"{self.where}, sources.{name}", table, {"set": TABLE, **_RUN})
            for name, table in sources.items()
        }
        return [item for item in tables.items() if self._admit("source", item[0])] if tables else [("", {})]

    def _streams(self, source: str) -> list[tuple[str, int, tuple[Pair, ...]]]:
        """List (shift, severity, sequence) of every stream of one source domain."""
        pairs = [pair for pair in self._pairs() if pair[0] != source or self.own_domain]
        admitted = [(self._admit("shift", name), self._admit("severity", str(level))) for name, level in pairs]
        pairs = [pair for pair, both in zip(pairs, admitted, strict=True) if all(both)]
        if self.protocol in _ONE_SHIFT:
            return [(name, severity, ()) for name, severity in pairs]
        return [(SEQUENCE, max(severity for _, severity in pairs), tuple(pairs))] if pairs else []

    def _pairs(self) -> list[Pair]:
        """List every shift with its severities."""
        if self.domains:
            targets = self.table.get("shifts", list(self.domains))
            for name in targets:
                if name not in self.domains:
                    raise unknown(f"target domain of {self.where}", name, self.domains)
            return [(name, 0) for name in targets]
        groups = {"benchmark": corruptions.BENCHMARK, "all": corruptions.CORRUPTIONS} if self.corrupted else {}
        known = {CLEAN, *groups.get("all", ())}
        shifts = self.table.get("shifts", ["benchmark" if self.corrupted else CLEAN])
        names = [name for shift in shifts for name in groups.get(shift, (shift,))]
        for name in names:
            if name not in known:
                raise unknown(f"shift of {self.where}", name, {*known, *groups})
        severities = self.table.get("severities", [5])
        return [(n, s) for n in names if n != CLEAN for s in severities] + [(n, 0) for n in names if n == CLEAN]

    def _lines(self, label: str, table: Any, domain: Table) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Yield what the cells of one line of a table have in common, and their seeds."""
        where = f"{self.where}, methods.{label}"
        if not isinstance(table, Mapping):
            raise InputError(f"{where}: expected a table such as {{}}, got {table!r}")
        run = check(where, _only(table, ("method", *_RUN)), {"method": TEXT, **_RUN})
        try:
            method = find(run.pop("method", label), self.folder)
        except (InputError, UnknownNameError) as error:
            raise type(error)(f"{where}: {error}") from error
        name = method.name
        label = name if user_code.split(label) else label
        if not self._admit("method", name, label):
            return
        # The nearest wins: the method's table, the source domain's, the recipe's. What the command sets comes before
        # all of them, but not where a line goes by another name: what it differs in would be undone.
        run = {**_only(self.table, _RUN), **_only(domain, _RUN), **run}
        run |= _only(self.table, _RUN.keys() & self.commanded) if label == name else {}
        assigned = self._assigned(name, label, {**domain.get("set", {}), **self.hyper})
        for setting in run.get("settings", ["paper"]):
            # What `tuned` is about is not the recipe's to undo; only an assignment by name does that.
            tuned = options.changed_by_tuning(name) if setting == "tuned" else set()
            settings = {key: value for key, value in table.items() if key not in (*tuned, *_RUN, "method")}
            hyper = options.hyper(where, name, setting, settings | assigned)
            if not self._admit("setting", setting) or (setting == "tuned" and not tuned):
                continue  # with nothing to tune it would be the same row twice
            seeds = run.get("seeds", [0]) if self.seeds is None else self.seeds
            line = {
                "method": name,
                "label": label,
                "setting": setting,
                "hyper": as_hyper(hyper),
                "batch_size": run.get("batch_size", 200),
                "steps": run.get("steps", 1),
                "episodic": run.get("episodic", False),
                "predict": run.get("predict", method.predicts),
                "guard": run.get("guard", "off"),
            }
            yield line, [seed for seed in seeds if self._admit("seed", str(seed))]

    def _assigned(self, name: str, label: str, assignments: Table) -> dict[str, Any]:
        """Pick the assignments (`tea.lr = 1e-4`) that are meant for one method."""
        pairs = {key: key.partition(".")[::2] for key in assignments}
        for target, _ in pairs.values():
            if target not in METHODS and target not in self.table["methods"]:
                raise unknown("method to set", target, (*METHODS, *self.table["methods"]))
        return {field: assignments[key] for key, (target, field) in pairs.items() if target in (name, label)}

    def _admit(self, what: str, *names: str) -> bool:
        """Note names that the grid has for one thing, and say whether --only wants it."""
        self.known[what] |= set(names)
        return what not in self.chosen or not self.chosen[what].isdisjoint(names)


def _only(table: Table, keys: Iterable[str]) -> dict[str, Any]:
    return {key: table[key] for key in keys if key in table}
