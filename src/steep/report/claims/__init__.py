"""The paper's claims, held against rows: each says what the paper says, what is here, and whether it holds.

`of` takes one table and gives what its rows allow. `across` takes everything that was measured and gives the paper's
claims one by one; where rows are missing a claim is not measured, and never decided.
"""

from steep.report.claims.across import across
from steep.report.claims.table import of
from steep.report.claims.verdict import FAILS, HOLDS, NOISE, UNKNOWN, VERDICTS, Claim

__all__ = ["FAILS", "HOLDS", "NOISE", "UNKNOWN", "VERDICTS", "Claim", "across", "of"]
