"""The paper's claims one by one, from everything that was measured."""

from __future__ import annotations

from collections.abc import Sequence

from steep.bench.rows import Row
from steep.report.claims.calibrated import best_calibrated
from steep.report.claims.energy import correlates
from steep.report.claims.ranking import best, best_of_tuned
from steep.report.claims.samples import closer
from steep.report.claims.sensitivity import stable
from steep.report.claims.severity import grows, mild
from steep.report.claims.verdict import Claim
from steep.report.tables import Table


def across(tables: Sequence[Table], analyses: Sequence[Row] = (), tuned: Sequence[Table] = ()) -> list[Claim]:
    """Check every claim of the paper.

    Args:
        tables: as `tables.build` makes them; of several that fit a claim the one of whole sets and most images counts.
        analyses: flat rows of `steep analyze`.
        tuned: tables that have lines in the setting `tuned` beside the paper's.

    >>> {claim.verdict for claim in across([])}
    {'not measured'}
    """
    return [
        *best(tables),
        *best_of_tuned(tuned),
        *best_calibrated(tables, analyses),
        *correlates(tables, analyses),
        *grows(tables),
        *stable(tables, analyses),
        *closer(analyses),
        *mild(tables),
    ]
