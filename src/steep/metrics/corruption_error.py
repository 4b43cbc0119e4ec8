"""Corruption error against the source model (Hendrycks & Dietterich, ICLR 2019; TEA paper, appendix).

CE_c = Σ_s E(c, s; model) / Σ_s E(c, s; source) and mCE = 1/C Σ_c CE_c. Both are ratios: 1 is as good as the
source, less is better. The paper's tables print them in percent (the source is 100.00).
"""

from __future__ import annotations

import statistics

from steep.errors import InputError
from steep.metrics.inputs import ErrorTable, check_errors


def corruption_errors(errors: ErrorTable, source: ErrorTable) -> dict[str, float]:
    """Error on each corruption, summed over severities, as a multiple of the source model's.

    Args:
        errors: top-1 error rates of the adapted model, corruption → severity → error in [0, 1].
        source: the same of the model without adaptation, on the same corruptions and severities.

    >>> corruption_errors({"fog": {1: 0.125, 5: 0.25}}, source={"fog": {1: 0.25, 5: 0.5}})
    {'fog': 0.5}
    """
    ours, theirs = check_errors("errors", errors), check_errors("source", source)
    if ours.keys() != theirs.keys():
        odd = sorted(ours.keys() ^ theirs.keys())
        raise InputError(f"source: expected the corruptions of errors, got a difference in {', '.join(odd)}")
    # Full grids (checked above): one corruption's severities speak for all.
    expected, severities = (sorted(next(iter(table.values()))) for table in (errors, source))
    if severities != expected:
        raise InputError(f"source: expected severities {expected} as in errors, got {severities}")
    perfect = [name for name, row in theirs.items() if sum(row) == 0]
    if perfect:
        raise InputError(f"source: expected some error on every corruption, got none on {', '.join(perfect)}")
    return {name: sum(row) / sum(theirs[name]) for name, row in ours.items()}


def mean_corruption_error(errors: ErrorTable, source: ErrorTable) -> float:
    """Mean of `corruption_errors`: mCE as a ratio; times 100 is what the paper prints.

    >>> errors = {"fog": {5: 0.25}, "snow": {5: 0.25}}
    >>> mean_corruption_error(errors, source={"fog": {5: 0.5}, "snow": {5: 0.25}})
    0.75
    """
    return statistics.fmean(corruption_errors(errors, source).values())
