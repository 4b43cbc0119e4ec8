"""The paper's figures, found by what a table of ours is of."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping
from typing import Any

from steep import recipes

_AT_32 = ("pacs", "tiny-imagenet-c")  # larger sets, resized in the published comparison


@functools.cache
def _blocks() -> tuple[dict[str, Any], ...]:
    return tuple(recipes.paper()["block"])


@functools.cache
def _hyper() -> dict[str, Any]:
    found: dict[str, Any] = recipes.paper()["hyper"]
    return found


@functools.cache
def benchmark() -> tuple[str, ...]:
    """Name the 15 corruptions of the appendix table, in its order.

    >>> len(benchmark()), benchmark()[0]
    (15, 'gaussian_noise')
    """
    block = next(block for block in _blocks() if block["table"] == "Appendix table")
    return tuple(name for name in block["columns"] if name not in ("mean", "mce"))


def as_in_paper(spec: Mapping[str, Any]) -> bool:
    """Tell whether a run is one the paper's figures are of: its batch, steps, picture size and, of TEA, its rates.

    What a spec does not say is taken to be as in the paper; so is what the paper says nothing about.

    >>> as_in_paper({"data": "cifar10-c", "batch_size": 200}), as_in_paper({"data": "cifar10-c", "batch_size": 1})
    (True, False)
    """
    if spec.get("guard", "off") != "off" or spec.get("episodic") or spec.get("protocol", "reset") != "reset":
        return False
    said = _hyper().get(spec["data"], {})
    said = said.get(spec.get("source") or "", said)
    run = {"batch_size": said.get("batch_size"), "steps": said.get("steps")}
    if run["batch_size"] == "full":
        run["batch_size"] = 0
    if spec["data"] in _AT_32:
        run["size"] = 32
    if spec.get("method") == "tea":
        hyper = spec.get("hyper") or {}
        run |= {name: said.get(name) for name in ("lr", "sgld_steps", "sgld_rate", "sgld_noise")}
        spec = {**spec, **{name: hyper.get(name) for name in hyper if name in run}}
    if spec.get("method") == "source":
        del run["steps"]  # it takes none
    return all(spec.get(name) in (None, value) for name, value in run.items() if value is not None)


def figure(
    method: str,
    column: str,
    *,
    data: str,
    model: str,
    source: str = "",
    severities: Collection[int] = (5,),
) -> float | None:
    """Look up a figure, in percent; None where the paper gives none. Where two tables give it, the first counts.

    Args:
        method: a name of steep.
        column: a corruption, a target domain, `clean`, `mean` or `mce`.
        data: such as cifar10-c.
        model: such as wrn-28-10.
        source: the domain trained on, of pacs.
        severities: over which the figure is.

    >>> figure("tea", "mean", data="cifar10-c", model="wrn-28-10", severities=[5])
    83.34
    >>> figure("tea", "fog", data="cifar10-c", model="wrn-28-10")
    87.61
    """
    for block in _blocks():
        if (block["data"], block["model"], block.get("source", "")) != (data, model, source):
            continue
        wanted = {0} if column == "clean" else set(severities)
        if set(block["severities"]) != wanted or column not in block["columns"] or method not in block["methods"]:
            continue
        found = float(block["methods"][method][block["columns"].index(column)])
        if not math.isnan(found):
            return found
    return None
