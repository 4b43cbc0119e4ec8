"""TEA has the best mean accuracy and mean corruption error: on each data set, PACS and with GroupNorm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from steep.report.claims import UNKNOWN, average, baselines, decide, first, line_of
from steep.report.paper import SUBJECT, blocks, methods
from steep.report.tables import MCE, MEAN, Table
from steep.report.words import number, signed
from tools.results_page.claims.choosing import MODEL, fitting, limited, named
from tools.results_page.claims.placed import Claim, missing, origin, viewed

GROUP_NORM = "resnet-50-gn"
SEVERE = [5]


def best(tables: Sequence[Table]) -> Iterator[Claim]:
    """Give a claim for each of the paper's tables that has a mean; it holds where both averages say so."""
    for block in _blocks():
        before = "works with GroupNorm: " if block["model"] == GROUP_NORM else ""
        claim = _claim(tables, block, before)
        yield claim
        if before and claim.verdict == UNKNOWN:  # what there is of it says something too
            severe = _claim(tables, {**block, "severities": SEVERE}, before, asked=True)
            if severe.verdict != UNKNOWN:
                yield severe


def best_of_tuned(tuned: Sequence[Table]) -> Iterator[Claim]:
    """Ask more than the paper does: TEA against every baseline in the setting that is fairer to it."""
    text = "TEA has the highest mean accuracy also against tuned baselines (ours to ask)"
    for table in tuned:
        leading = first(table, MEAN)
        lines = [line for line in table.lines if line.setting == "tuned" and line.method in methods() - {SUBJECT}]
        if leading is None or not lines or not fitting([table], table.spec["data"], MODEL, "", table.severities):
            continue
        known = [(value, line) for line in lines if (value := average(table, line, MEAN)) is not None]
        if len(known) == len(lines):
            best, line = max(known, key=lambda pair: pair[0].value)
            where = named(table.spec["data"], table.spec["model"], severities=table.severities)
            here = f"{number(leading[0].value)}; against {line.name}: {leading[0] - best}"
            rows = viewed(table, leading[2], line, *(tea for tea in [line_of(table, SUBJECT)] if tea))
            part, weights = limited(table.spec.get("limit")), str(table.spec.get("weights_sha256"))[:12]
            yield Claim(text, here, decide(leading[0] - best, leading[1]), where, origin(rows), part, weights)


def _claim(tables: Sequence[Table], block: dict[str, Any], before: str, *, asked: bool = False) -> Claim:
    """Hold a block of the paper against a table; `asked` is a view the paper has no figures for."""
    data, model, source = block["data"], block["model"], block.get("source", "")
    where = named(data, model, source, block["severities"])
    at = block["columns"].index("mean")
    figures = {name: row[at] for name, row in block["methods"].items() if not math.isnan(row[at])}
    rival = max((name for name in figures if name != SUBJECT), key=figures.__getitem__)
    theirs = figures[SUBJECT] - figures[rival]
    averages = "mean accuracy" + (" and the lowest mCE" if "mce" in block["columns"] else "")
    text = f"{before}TEA has the highest {averages}"
    if theirs < 0:
        text, averages = "TEA does not have the highest mean accuracy (the paper's own exception)", "mean accuracy"
    text += " (at this severity ours to ask)" if asked else ""
    paper = "" if asked else f"; paper {number(figures[SUBJECT])}, {signed(theirs)} against {rival}"
    chosen = fitting(tables, data, model, source, block["severities"])
    if not chosen:
        return missing(text, where, "no rows of this model on all shifts and severities")
    columns = (MEAN, MCE) if "mCE" in averages else (MEAN,)
    unfinished = []
    for table in chosen:
        lacking = sorted(set(figures) - {line.name for line in (*baselines(table), line_of(table, SUBJECT)) if line})
        leads = {column: first(table, column, frozenset(figures)) for column in columns}
        if not lacking and None not in leads.values():
            break
        some = limited(table.spec.get("limit"))
        unfinished.append(f"not finished: {', '.join(lacking) or 'some shifts'}" + (f" ({some})" if some else ""))
    else:
        return missing(text, where, "; ".join(unfinished))
    words, ahead = [], []
    for column, value in leads.items():
        if value is not None:
            ours, away, other = value
            word, shown = ("mCE ", -away) if column == MCE else ("", away)
            words.append(f"{word}{number(ours.value)}; against {other.name}: {shown}")
            ahead.append(-away if theirs < 0 else away)
    rows = viewed(table, *(line for line in table.lines if line.name in figures))
    part = limited(table.spec.get("limit"))
    return Claim(text, "; ".join(words) + paper, decide(*ahead), where, origin(rows), part)


def _blocks() -> list[dict[str, Any]]:
    """Give the paper's blocks with a mean, each thing once."""
    once: dict[tuple[Any, ...], dict[str, Any]] = {}
    for block in blocks():
        key = (block["data"], block["model"], block.get("source", ""), tuple(block["severities"]))
        if "mean" in block["columns"]:
            once.setdefault(key, block)
    return list(once.values())
