"""Tables of several source domains as one: what a method gains depends on what its model was trained on."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from steep.report.formats import bold, in_markdown, number, pipes
from steep.report.tables import MEAN, Table, plain

_ALIKE = ("data", "model", "protocol", "batch_size", "size", "limit", "precision")


def summaries(tables: Sequence[Table]) -> Iterator[str]:
    """Give a table of methods × source domains for each run that has several: the mean over the target domains."""
    found: dict[tuple[str, ...], list[Table]] = {}
    trained: Counter[tuple[str, ...]] = Counter()
    for table in tables:
        if table.spec.get("source") and MEAN in table.columns:
            alike = tuple(str(table.spec.get(name)) for name in _ALIKE)
            again = trained[*alike, table.spec["source"]]  # a domain that was trained on again is of the next table
            trained[*alike, table.spec["source"]] += 1
            found.setdefault((*alike, str(again)), []).append(table)
    for own in found.values():
        if len(own) > 1:
            yield in_markdown(_title(own))
            yield _table(own)


def _title(own: Sequence[Table]) -> str:
    size = f" at {own[0].spec['size']} pixels" if own[0].spec.get("size") else ""
    files = ", ".join(dict.fromkeys(plain(row.get("run", "")) for table in own for row in table.rows))
    return f"{own[0].spec['data']}{size} by source domain, mean over the others ({files}):"


def _table(own: Sequence[Table]) -> str:
    """Rank the methods that have a mean in every domain."""
    found: dict[str, list[float]] = {}
    for table in own:
        for line in table.lines:
            ours = line.values[MEAN].ours
            if ours is not None:
                found.setdefault(line.name, []).append(ours.mean)
    whole = {name: [*means, statistics.fmean(means)] for name, means in found.items() if len(means) == len(own)}
    best = [max(column) for column in zip(*whole.values(), strict=True)]
    body = [
        [name, *(bold(number(v)) if v == top else number(v) for v, top in zip(values, best, strict=True))]
        for name, values in sorted(whole.items(), key=lambda pair: -pair[1][-1])
    ]
    return pipes([["method", *(f"from {table.spec['source']}" for table in own), MEAN], *body])
