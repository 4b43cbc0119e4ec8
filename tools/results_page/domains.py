"""Tables of several source domains as one: what a method gains depends on what its model was trained on."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from steep.report.formats import bold, in_markdown, pipes
from steep.report.tables import MEAN, Table
from steep.report.words import data_title, number, plain

_ALIKE = ("data", "model", "protocol", "batch_size", "size", "limit", "precision")


def summaries(tables: Sequence[Table]) -> Iterator[str]:
    """Give a table of methods × source domains for each run that has several: the mean over the target domains."""
    runs: dict[tuple[str, ...], list[Table]] = {}
    trained: Counter[tuple[str, ...]] = Counter()
    for table in tables:
        if table.spec.get("source") and MEAN in table.columns:
            alike = tuple(str(table.spec.get(name)) for name in _ALIKE)
            again = trained[*alike, table.spec["source"]]  # a domain that was trained on again is of the next table
            trained[*alike, table.spec["source"]] += 1
            runs.setdefault((*alike, str(again)), []).append(table)
    for of_one_run in runs.values():
        if len(of_one_run) > 1:
            yield in_markdown(_title(of_one_run))
            yield _table(of_one_run)


def _title(tables: Sequence[Table]) -> str:
    spec = tables[0].spec
    size = f" at {spec['size']} pixels" if spec.get("size") else ""
    files = ", ".join(dict.fromkeys(plain(row.get("run", "")) for table in tables for row in table.rows))
    return f"{data_title(spec['data'])}{size} by source domain, mean over the others ({files}):"


def _table(tables: Sequence[Table]) -> str:
    """Rank the methods that have a mean in every domain."""
    means: dict[str, list[float]] = {}
    for table in tables:
        for line in table.lines:
            if (mean := line.mean(MEAN)) is not None:
                means.setdefault(line.name, []).append(mean)
    whole = {name: [*values, statistics.fmean(values)] for name, values in means.items() if len(values) == len(tables)}
    best = [max(column) for column in zip(*whole.values(), strict=True)]
    body = [
        [name, *(bold(number(v)) if v == top else number(v) for v, top in zip(values, best, strict=True))]
        for name, values in sorted(whole.items(), key=lambda pair: -pair[1][-1])
    ]
    return pipes([["method", *(f"from {table.spec['source']}" for table in tables), MEAN], *body])
