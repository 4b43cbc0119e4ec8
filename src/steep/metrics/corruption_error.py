"""Error of a corruption benchmark, by itself and against the source model (TEA paper, appendix).

CE_c = Σ_s E(c, s; model) / Σ_s E(c, s; source) and mCE = 1/C Σ_c CE_c (Hendrycks & Dietterich, ICLR 2019). Both are
ratios: 1 is as good as the source, less is better. The paper's tables print them in percent (the source is 100.00).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from steep.errors import InputError

ErrorTable = Mapping[str, Mapping[int, float]]
"""Top-1 error rates in [0, 1]: corruption → severity → error over the whole test set."""


def average_accuracy(errors: ErrorTable) -> float:
    """Accuracy averaged over all corruptions and severities, as in the appendix of the TEA paper.

    AverAcc = 1 − 1/(C·S) Σ_c Σ_s E(c, s), where E is the top-1 error over the whole test set.

    >>> average_accuracy({"fog": {1: 0.25, 5: 0.75}, "snow": {1: 0.0, 5: 0.5}})
    0.625
    """
    rows = check_errors("errors", errors)
    return 1 - statistics.fmean(error for row in rows.values() for error in row)


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


def check_errors(name: str, errors: ErrorTable) -> dict[str, list[float]]:
    """Return corruption → errors in order of severity, or say why the table is not a full C × S grid.

    >>> check_errors("errors", {"fog": {5: 0.2, 1: 0.1}})
    {'fog': [0.1, 0.2]}
    >>> check_errors("errors", {"fog": {5: 20.0}})
    Traceback (most recent call last):
    steep.errors.InputError: errors['fog'][5]: expected an error rate in [0, 1], got 20.0; divide percent by 100
    """
    if not isinstance(errors, Mapping) or not all(isinstance(row, Mapping) for row in errors.values()):
        raise InputError(
            f"{name}: expected corruption → severity → error, such as {{'fog': {{5: 0.2}}}}, got {errors!r}"
        )
    if not errors or not all(errors.values()):
        raise InputError(f"{name}: expected at least one corruption with at least one severity, got {dict(errors)}")
    first = next(iter(errors))
    severities = sorted(errors[first])
    for corruption, row in errors.items():
        # The paper's mean is over a full grid; a missing cell would silently weigh the others more.
        if sorted(row) != severities:
            raise InputError(
                f"{name}[{corruption!r}]: expected severities {severities} as for {first!r}, got {sorted(row)}"
            )
        for severity, error in row.items():
            number = float(error) if hasattr(error, "__float__") else math.nan
            if not 0 <= number <= 1:
                hint = "; divide percent by 100" if 1 < number <= 100 else ""
                where = f"{name}[{corruption!r}][{severity}]"
                raise InputError(f"{where}: expected an error rate in [0, 1], got {error!r}{hint}")
    return {corruption: [float(row[s]) for s in severities] for corruption, row in errors.items()}
