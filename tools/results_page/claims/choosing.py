"""Which of our tables a claim of the paper is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from steep.methods import SOURCE
from steep.report.paper import as_in_paper, has_every_shift
from steep.report.tables import Line, Table
from steep.report.words import data_title, model_title, severity_range

CORRUPTED = ("cifar10-c", "cifar100-c", "tiny-imagenet-c")
MODEL = "wrn-28-10"
EVERY = (1, 2, 3, 4, 5)


def named(data: str, model: str = "", source: str = "", severities: Sequence[int] = ()) -> str:
    """Say on what a claim is.

    >>> named("cifar10-c", "wrn-28-10", severities=(1, 2, 3, 4, 5)), named("pacs", source="photo", severities=(0,))
    ('CIFAR-10-C, severity 1–5 · WRN-28-10', 'PACS from photo')
    """
    where = data_title(data) + (f" from {source.replace('_', ' ')}" if source else "")
    where += f", severity {severity_range(severities)}" if any(severities) else ""
    return f"{where} · {model_title(model)}" if model else where


def about(tables: Iterable[Table], data: str, model: str, source: str = "") -> list[Table]:
    """Give the tables of some data and model under the paper's protocol, batch and picture size."""
    return [
        table
        for table in tables
        if (table.spec.get("data"), table.spec.get("model"), table.spec.get("source") or "") == (data, model, source)
        and table.spec.get("protocol") == "reset"
        and as_in_paper({**table.spec, "method": SOURCE})
    ]


def fitting(
    tables: Iterable[Table], data: str, model: str, source: str = "", severities: Sequence[int] = ()
) -> list[Table]:
    """Give those of the paper's shifts and of just these severities: whole sets first, then the largest."""
    return sorted(
        (
            table
            for table in about(tables, data, model, source)
            if set(table.severities) == set(severities) and has_every_shift(data, table.shifts)
        ),
        key=lambda table: (table.spec.get("limit") is not None, -max(images(table.lines), default=0)),
    )


def images(lines: Iterable[Line]) -> list[int]:
    """How many images the sets of some lines have."""
    return sorted({int(row["n"]) for line in lines for row in line.rows})


def limited(limit: int | None) -> str:
    """Say where only some images of each set were run.

    >>> limited(2000), limited(None)
    ('first 2,000 images', '')
    """
    return f"first {limit:,} images" if limit else ""
