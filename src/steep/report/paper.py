"""The paper's figures, looked up by what a table of ours is of."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from steep import recipes
from steep.methods import is_baseline
from steep.report.words import declared

CLEAN = "clean"

printed = functools.cache(recipes.paper)  # every row asks for it
"""The file of the paper's figures, read once."""

SUBJECT: str = printed()["method"]
"""The method the paper is about: every claim is about it, and its rates are those of the paper's table."""


def blocks() -> list[dict[str, Any]]:
    """Give the paper's tables, one block for each data set, model and view of severities."""
    every: list[dict[str, Any]] = printed()["block"]
    return every


@functools.cache
def benchmark() -> tuple[str, ...]:
    """Name the 15 corruptions of the appendix table, in its order.

    >>> len(benchmark()), benchmark()[0]
    (15, 'gaussian_noise')
    """
    block = next(block for block in blocks() if block["table"] == "Appendix table")
    return tuple(name for name in block["columns"] if name not in ("mean", "mce"))


@functools.cache
def methods() -> frozenset[str]:
    """Name the methods that the paper compares, its own included."""
    return frozenset(name for block in blocks() for name in block["methods"])


def in_order(shifts: Iterable[str], domains: Sequence[str] = ()) -> list[str]:
    """Sort shifts, each once, as the paper does: corruptions, then domains of a set, then others by name.

    >>> in_order(["mine", "fog", "snow", "fog"])
    ['snow', 'fog', 'mine']
    """
    place = {name: index for index, name in enumerate((*benchmark(), *domains))}
    return sorted(set(shifts), key=lambda name: (place.get(name, len(place)), name))


def has_every_shift(data: str, shifts: Collection[str]) -> bool:
    """Tell whether these are the shifts of the paper's averages: all corruptions, or all domains but the source's.

    >>> has_every_shift("cifar10-c", benchmark()), has_every_shift("pacs", ["photo", "sketch"])
    (True, False)
    """
    known = declared(data)
    if known is not None and known.domains:
        return len(shifts) == len(known.domains) - 1
    return set(shifts) == set(benchmark())


def as_in_paper(spec: Mapping[str, Any]) -> bool:
    """Tell whether a run is one the paper's figures are of: its batch, steps, picture size and, of TEA, its rates.

    What a spec does not say is taken to be as in the paper; so is what the paper says nothing about.

    >>> as_in_paper({"data": "cifar10-c", "batch_size": 200}), as_in_paper({"data": "cifar10-c", "batch_size": 1})
    (True, False)
    """
    plain = spec.get("guard", "off") == "off" and spec.get("protocol", "reset") == "reset"
    if not plain or spec.get("episodic") or spec.get("views"):
        return False
    hyper = printed()["hyper"].get(spec["data"], {})
    hyper = hyper.get(spec.get("source") or "", hyper)
    expected = {"batch_size": hyper.get("batch_size"), "steps": hyper.get("steps")}
    if expected["batch_size"] == "full":
        expected["batch_size"] = 0
    known = declared(spec["data"])
    if known is not None and known.paper_size:
        expected["size"] = known.paper_size
    if spec.get("method") == SUBJECT:
        expected |= {name: hyper.get(name) for name in ("lr", "sgld_steps", "sgld_rate", "sgld_noise")}
        spec = {**spec, **{name: value for name, value in (spec.get("hyper") or {}).items() if name in expected}}
    if is_baseline(spec.get("method")):
        del expected["steps"]  # it takes none
    return all(spec.get(name) in (None, value) for name, value in expected.items() if value is not None)


def figure(
    method: str, column: str, *, data: str, model: str, source: str = "", severities: Collection[int] = (5,)
) -> float | None:
    """Look up a figure, in percent; None where the paper gives none. Where two tables give it, the first counts.

    A column is a corruption, a target domain, `clean`, `mean` or `mce`; `source` is the domain that was trained on.

    >>> figure("tea", "mean", data="cifar10-c", model="wrn-28-10", severities=[5])
    83.34
    >>> figure("tea", "fog", data="cifar10-c", model="wrn-28-10")
    87.61
    """
    wanted = {0} if column == CLEAN else set(severities)
    for block in blocks():
        if (block["data"], block["model"], block.get("source", "")) != (data, model, source):
            continue
        if set(block["severities"]) != wanted or column not in block["columns"] or method not in block["methods"]:
            continue
        value = float(block["methods"][method][block["columns"].index(column)])
        if not math.isnan(value):
            return value
    return None
