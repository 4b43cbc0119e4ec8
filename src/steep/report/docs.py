"""A results page in Markdown, for the documentation: generated from rows, so that no number in it was typed."""

from __future__ import annotations

from collections.abc import Sequence

from steep.report import claims
from steep.report.figures import memory
from steep.report.formats import bold, entry, grid, in_markdown, number, pipes, signed
from steep.report.runs import Source
from steep.report.summary import facts, headline, ranked
from steep.report.tables import CLEAN, ECE, MCE, MEAN, SPEED, Table, plain


def docs(
    tables: Sequence[Table], title: str = "Results", *, sources: Sequence[Source] = (), notes: Sequence[str] = ()
) -> str:
    """Write the page: for each thing measured a headline, the ranking beside the paper's, the claims, every number.

    >>> print(docs([], "Results").splitlines()[0])
    # Results
    """
    parts = [
        f"# {in_markdown(plain(title))}",
        "Made from stored rows by `steep report --format docs`; nothing here was typed.",
    ]
    parts += [f"- {in_markdown(note)}" for note in notes]
    for table in tables:
        parts += [f"## {in_markdown(table.title)}", in_markdown(headline(table))]
        parts.append("\n".join(f"- {in_markdown(note)}" for note in table.notes))
        parts += [_ranking(table), *_claims(table)]
        parts.append(f"<details markdown><summary>Every number</summary>\n\n{pipes(grid(table, bold))}\n\n</details>")
    parts += _provenance(sources)
    return "\n\n".join(part for part in parts if part) + "\n"


def _ranking(table: Table) -> str:
    columns = [c for c in (MEAN, MCE, ECE, CLEAN) if c in table.columns]
    head = ["method"]
    for column in columns:
        head += [column, *(["paper", "Δ"] if _paper(table, column) else [])]
    head += [SPEED, "GiB", "seeds"]
    rows = [head]
    for line in ranked(table):
        row = [line.name]
        for column in columns:
            value = line.values[column]
            text = entry(line, column)
            row.append(bold(text) if line.name in table.best(column) else text)
            if _paper(table, column):
                away = value.difference
                row += [number(value.paper), number(None) if away is None else signed(away)]
        rows.append([*row, entry(line, SPEED), number(memory(line)[0]), str(line.seeds)])
    return pipes(rows)


def _claims(table: Table) -> list[str]:
    found = claims.of(table)
    if not found:
        return []
    rows = [[claim.text, claim.here, "holds" if claim.holds else "does not hold"] for claim in found]
    return ["### The paper's claims, on these rows", pipes([["claim", "here", ""], *rows], "---|")]


def _provenance(sources: Sequence[Source]) -> list[str]:
    rows = [
        [source.name, str(len(source.rows)), source.sha256[:16],
         *(facts(source.rows).get(name, "") if source.rows else "" for name in ("when", "device", "commit"))]
        for source in sources
    ]  # fmt: skip
    head = ["file", "rows", "sha256", "when", "device", "commit"]
    return ["## Where the numbers come from", pipes([head, *rows], "---|")] if rows else []


def _paper(table: Table, column: str) -> bool:
    return any(line.values[column].paper is not None for line in table.lines)
