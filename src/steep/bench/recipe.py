"""From a recipe to its cells: every name checked, every hyper-parameter resolved, nothing run.

A grid is source domains × streams × lines of the table of methods × seeds, less what --only leaves out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch

from steep import corruptions, recipes, user_code
from steep.bench.options import COMMANDS, KEYS, RUN, admits, check, choices, names
from steep.bench.rows import file_of, read
from steep.bench.sources import Sources, weights_sha256
from steep.bench.spec import CLEAN, SEQUENCE, Cell, Hyper, as_hyper
from steep.core.constraints import TABLE, TEXT, added_later
from steep.core.method import Method
from steep.data import NAMES
from steep.data.known import data_set
from steep.data.streams import APART, knobs
from steep.errors import InputError, SteepError, UnknownNameError, check_known, unknown
from steep.methods import METHODS, find, make
from steep.models import build, checkpoints
from steep.models.loading import PRETRAINED, is_outside, short_name
from steep.training.weights import UNTRAINED, find_weights, missing_weights

Table: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A grid worked out: its cells in running order and the files of weights they need (None: there is none)."""

    name: str
    about: str
    cells: tuple[Cell, ...]
    files: Mapping[str, Path | None]
    train: Mapping[str, str]  # weights → the training recipe they come from
    code: Mapping[str, str]  # file.py:factory as cells name it → the same with its folder

    @property
    def present(self) -> dict[str, Path]:
        """The files that are there."""
        return {name: file for name, file in self.files.items() if file is not None}

    def sources(self, root: Path | None) -> Sources:
        """Give the models and images of the grid, from disk."""
        return Sources(root, self.present, self.code)

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
    model: str | None = None,
    weights: Path | None = None,
    root: Path | None = None,
    require: bool = True,
    own_domain: bool = False,
) -> Plan:
    """Work a recipe out: a packaged one by its name, or the path of a .toml file.

    All other arguments are what the options of `steep bench` say, as `sets=["tea.lr=1e-4", "batch_size=64"]`,
    `only=["method=tea,tent", "shift=fog"]`, `seeds="0..4"`; `weights` is a file, or a folder of such files. With
    `require`, weights that cannot be found are an error; with `own_domain`, a model is also run on the domain it was
    trained on.
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
    recipes.check_keys("--set", commanded, COMMANDS)
    if model is not None:
        commanded["model"] = model
        if weights is not None and weights.suffix:  # a file, not a folder of them
            commanded["weights"] = weights.stem
        elif is_outside(model):
            commanded["weights"] = PRETRAINED
    table = check(where, {**table, **commanded}, KEYS)
    for needed in ("data", "model", "weights", "methods"):
        if needed not in table:
            raise InputError(f"{where}: expected the key {needed!r}, got {', '.join(table)}")
    folder, reference = Path(recipe).expanduser().parent, table["model"]
    if (factory := user_code.split(reference)) and "model" not in commanded:  # it lies beside the recipe
        reference = f"{folder / factory[0]}:{factory[1]}"
    table["model"] = short_name(reference)
    if not is_outside(reference):
        with torch.device("meta"):  # no memory: only to refuse a model that does not exist before anything runs
            build(table["model"], 2)
    grid = _Grid(
        where=where,
        table=table,
        hyper={**table.get("set", {}), **hyper},
        commanded=commanded.keys(),
        seeds=None if seeds is None else check(where, {"seeds": seeds}, RUN)["seeds"],
        folder=folder,
    )
    cells = _choose(grid.cells(own_domain), choices(only))
    wanted = sorted({cell.weights for cell in cells} - {UNTRAINED, PRETRAINED})
    files = {name: find_weights(name, weights, root) for name in wanted}
    train = {cell.weights: str(table.get("train", "")).replace("{source}", cell.source) for cell in cells}
    for name, file in files.items():
        if require and file is None:
            raise missing_weights(name, train[name], weights, root)
    digests = {name: weights_sha256(file) for name, file in files.items() if file is not None}
    code, about = {table["model"]: reference}, table.get("about", "")
    grid_plan = Plan(name=Path(recipe).stem, about=about, cells=(), files=files, train=train, code=code)
    wants: dict[str, Any] = {}
    if is_outside(reference):
        with contextlib.nullcontext() if require else contextlib.suppress(SteepError):
            loaded = grid_plan.sources(root).load_model(table["model"], cells[0].weights)
            digests[PRETRAINED] = checkpoints.digest(loaded.model)
            wants = {name: getattr(loaded, name) for name in ("size", "crop", "interpolation")}
            if data_set(table["data"]).transform is None:  # its pictures are squares already
                wants = {"size": loaded.size}
    wants |= _only(table, wants)
    cells = [replace(c, weights_sha256=digests.get(c.weights, ""), **wants) for c in cells]
    return replace(grid_plan, cells=tuple(cells))


def _choose(cells: Iterable[Cell], chosen: Mapping[str, set[str]]) -> list[Cell]:
    """Keep what --only asks for, also inside a sequence; a value that nothing in the grid has is a slip."""
    known: dict[str, set[str]] = {choice: set() for choice in chosen}
    kept = []
    for cell in cells:
        pairs = []
        for shift, severity in cell.shifts:
            spec = {**vars(cell), "shift": shift, "severity": severity}
            for choice in chosen:
                known[choice] |= names(spec, choice)
            if admits(chosen, spec):
                pairs.append((shift, severity))
        if pairs and cell.sequence:
            cell = replace(cell, severity=max(severity for _, severity in pairs), sequence=tuple(pairs))
        kept += [cell] if pairs else []
    for choice, values in chosen.items():
        check_known(f"{choice} in --only", known[choice], *sorted(values))
    if not kept:
        raise InputError("the grid is empty: no cell has all that --only asks for")
    return kept


@dataclass(kw_only=True)
class _Grid:
    """Expands the tables of one recipe."""

    where: str  # begins every message of an error
    table: Table  # the recipe, with what the command sets
    hyper: Table  # hyper-parameters of the recipe and the command, as `tea.lr`
    commanded: Set[str]  # the keys that the command sets
    seeds: list[int] | None  # for every method; None: those of the tables
    folder: Path  # of the recipe, where the files of methods lie

    def __post_init__(self) -> None:
        self.data, self.protocol = self.table["data"], self.table.get("protocol", "reset")
        self.corrupted = self.data.endswith("-c")
        if self.data.removesuffix("-c") not in NAMES:
            raise unknown(f"data of {self.where}", self.data, (*NAMES, *(f"{name}-c" for name in NAMES)))
        self.domains = () if self.corrupted else data_set(self.data).domains

    def cells(self, own_domain: bool) -> Iterator[Cell]:
        """Yield every cell, cells on the same images one after the other and the source model first."""
        common = _only(self.table, ("size", "crop", "interpolation", "channels", "limit", "precision"))
        asked = {name: usual for name, usual in knobs(self.protocol).items() if name != "seed"}
        common |= {name: self.table.get(name, usual) for name, usual in asked.items()}
        for source, domain in self._sources():
            tables = self.table["methods"].items()
            lines = [line for label, table in tables for line in self._lines(label, table, domain)]
            about = {
                "data": self.data,
                "source": source,
                "model": self.table["model"],
                "weights": self.table["weights"].replace("{source}", source),
                "protocol": self.protocol,
                **common,
            }
            shifts = [pair for pair in self._shifts() if pair[0] != source or own_domain]
            for stream in self._streams(shifts):
                for line, seeds in lines:
                    for seed in seeds:
                        yield Cell(**about, **stream, **line, seed=seed)

    def _sources(self) -> list[tuple[str, Table]]:
        """List the domains that models were trained on, with their tables; where there are none, one without a name."""
        sources = self.table.get("sources", {})
        if sources and not self.domains:
            raise InputError(f"{self.where}: {self.data} has no domains, got sources {', '.join(sources)}")
        if self.domains and not sources:
            example = f"[sources.{self.domains[0]}]"
            raise InputError(f"{self.where}: {self.data} needs a table for each source domain, such as {example}")
        check_known(f"source domain of {self.where}", self.domains, *sources)
        known = {"set": TABLE, **RUN}
        tables = {name: check(f"{self.where}, sources.{name}", table, known) for name, table in sources.items()}
        return list(tables.items()) or [("", {})]

    def _shifts(self) -> list[tuple[str, int]]:
        """List every shift with its severities."""
        if self.domains:
            targets = self.table.get("shifts", list(self.domains))
            check_known(f"target domain of {self.where}", self.domains, *targets)
            return [(name, 0) for name in targets]
        groups = {"benchmark": corruptions.BENCHMARK, "all": corruptions.CORRUPTIONS} if self.corrupted else {}
        shifts = self.table.get("shifts", ["benchmark" if self.corrupted else CLEAN])
        names = [name for shift in shifts for name in groups.get(shift, (shift,))]
        check_known(f"shift of {self.where}", {CLEAN, *groups.get("all", ()), *groups}, *names)
        severities = self.table.get("severities", [5])
        return [(n, s) for n in names if n != CLEAN for s in severities] + [(n, 0) for n in names if n == CLEAN]

    def _streams(self, shifts: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
        """Make each shift a stream of its own, or all of them one, as the protocol wants it."""
        if self.protocol in APART:
            return [{"shift": name, "severity": severity} for name, severity in shifts]
        worst = max((severity for _, severity in shifts), default=0)
        return [{"shift": SEQUENCE, "severity": worst, "sequence": tuple(shifts)}] if shifts else []

    def _lines(self, label: str, table: Any, domain: Table) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Yield what the cells of one line of a table have in common, and their seeds."""
        where = f"{self.where}, methods.{label}"
        if not isinstance(table, Mapping):
            raise InputError(f"{where}: expected a table such as {{}}, got {table!r}")
        run = check(where, _only(table, ("method", *RUN)), {"method": TEXT, **RUN})
        with _named(where):
            method = find(run.pop("method", label), self.folder)
        name = method.name
        label = name if user_code.split(label) else label
        # The nearest wins: the method's table, the source domain's, the recipe's. What the command sets comes before
        # all of them, but not where a line goes by another name: what it differs in would be undone.
        run = {**_only(self.table, RUN), **_only(domain, RUN), **run}
        run |= _only(self.table, RUN.keys() & self.commanded) if label == name else {}
        seeds, settings = run.pop("seeds", [0]), run.pop("settings", ["paper"])
        assigned = self._assigned({**domain.get("set", {}), **self.hyper}, (name, label))
        paper, tuned = make(name), make(name, "tuned")
        differs = {field.name for field in fields(paper) if getattr(paper, field.name) != getattr(tuned, field.name)}
        for setting in settings:
            # What `tuned` is about is not the recipe's to undo; only an assignment by name does that.
            keep = differs if setting == "tuned" else ()
            hyper = {key: value for key, value in table.items() if key not in (*keep, *RUN, "method")}
            with _named(where):
                resolved = make(name, setting, **(hyper | assigned))
            if setting == "paper" or differs:  # with nothing to tune it would be the same row twice
                values = stored_hyper(resolved, tuned if setting == "tuned" else paper)
                line = {"method": name, "label": label, "setting": setting, "hyper": values}
                yield {"predict": method.predicts, **line, **run}, seeds if self.seeds is None else self.seeds

    def _assigned(self, assignments: Table, targets: tuple[str, str]) -> dict[str, Any]:
        """Pick the assignments (`tea.lr = 1e-4`) that are meant for one method or line."""
        pairs = {key: key.partition(".")[::2] for key in assignments}
        check_known("method to set", (*METHODS, *self.table["methods"]), *(target for target, _ in pairs.values()))
        return {field: assignments[key] for key, (target, field) in pairs.items() if target in targets}


def stored_hyper(method: Method[Any], usual: Method[Any]) -> Hyper:
    """Give every hyper-parameter of a method as a cell stores it.

    One that was added after rows were stored is left out where it is as it was before: they keep their keys.
    """
    values = {field.name: getattr(method, field.name) for field in fields(method)}
    as_before = {name for name in added_later(type(method)) if values[name] == getattr(usual, name)}
    return as_hyper({name: value for name, value in values.items() if name not in as_before})


@contextlib.contextmanager
def _named(where: str) -> Iterator[None]:
    """Say in an error of the block where it is from."""
    try:
        yield
    except (InputError, UnknownNameError) as error:
        raise type(error)(f"{where}: {error}") from error


def _only(table: Table, keys: Iterable[str]) -> dict[str, Any]:
    return {key: table[key] for key in keys if key in table}
