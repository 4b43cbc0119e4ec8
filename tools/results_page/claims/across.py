"""The paper's claims one by one, from everything that was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from steep.bench.rows import Row
from steep.report.claims import UNKNOWN
from steep.report.tables import Table
from tools.results_page.claims.calibrated import best_calibrated
from tools.results_page.claims.energy import correlates
from tools.results_page.claims.placed import Claim
from tools.results_page.claims.ranking import best, best_of_tuned
from tools.results_page.claims.samples import closer
from tools.results_page.claims.sensitivity import stable
from tools.results_page.claims.severity import grows, mild


def across(tables: Sequence[Table], analyses: Sequence[Row] = (), tuned: Sequence[Table] = ()) -> list[Claim]:
    """Check every claim of the paper.

    Args:
        tables: as `tables.build` makes them; of several of one training that fit a claim that of whole sets and most
            images counts; every training has its own verdict.
        analyses: flat rows of `steep analyze`.
        tuned: tables that have lines in the setting `tuned` beside the paper's.

    >>> {claim.verdict for claim in across([])}
    {'not measured'}
    """
    known = _several(tables)
    every = [
        *_of_each(tables, best(tables), best),
        *best_of_tuned(tuned),
        *_of_each(tables, best_calibrated(tables, analyses), lambda of_one: best_calibrated(of_one, ())),
        *_of_each(tables, correlates(tables, analyses), lambda of_one: correlates(of_one, ())),
        *_of_each(tables, grows(tables), grows),
        *stable(tables, analyses),
        *closer(analyses),
        *_of_each(tables, mild(tables), mild),
    ]
    return [claim if claim.weights in known else replace(claim, weights="") for claim in every]


def _of_each(
    tables: Sequence[Table], together: Iterable[Claim], claims: Callable[[Sequence[Table]], Iterable[Claim]]
) -> list[Claim]:
    """Hold claims against each training by itself: what is true of one source model need not be of another.

    Where none of them decides a claim, what all tables together say of it stays.
    """
    trainings: dict[str, list[Table]] = {}
    for table in tables:
        trainings.setdefault(_weights(table), []).append(table)
    by_claim: dict[tuple[str, str], list[Claim]] = {}
    for weights, of_training in trainings.items():
        for claim in claims(of_training):
            if claim.verdict != UNKNOWN:
                by_claim.setdefault((claim.text, claim.where), []).append(replace(claim, weights=weights))
    checked = [by_claim.pop((claim.text, claim.where), [claim]) for claim in together]
    return [claim for claims_of_one in (*checked, *by_claim.values()) for claim in claims_of_one]


def _several(tables: Iterable[Table]) -> set[str]:
    """Give the weights of models that were trained more than once for the same thing: theirs have to be named."""
    by_kind: dict[tuple[object, ...], set[str]] = {}
    for table in tables:
        kind = tuple(table.spec.get(name) for name in ("data", "model", "source", "size"))
        by_kind.setdefault(kind, set()).add(_weights(table))
    return {weights for digests in by_kind.values() if len(digests) > 1 for weights in digests}


def _weights(table: Table) -> str:
    return str(table.spec.get("weights_sha256"))[:12]
