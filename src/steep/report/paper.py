"""The paper's figures, found by what a table of ours is of."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection
from typing import Any

from steep import recipes


@functools.cache
def _blocks() -> tuple[dict[str, Any], ...]:
    return tuple(recipes.paper()["block"])


@functools.cache
def benchmark() -> tuple[str, ...]:
    """Name the 15 corruptions of the appendix table, in its order.

    >>> len(benchmark()), benchmark()[0]
    (15, 'gaussian_noise')
    """
    block = next(block for block in _blocks() if block["table"] == "Appendix table")
    return tuple(name for name in block["columns"] if name not in ("mean", "mce"))


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
