"""The paper's claims, checked on the rows of one table: what the paper says, what the rows say, whether it holds."""

from steep.report.claims.table import of
from steep.report.claims.verdict import FAILS, HOLDS, NOISE, UNKNOWN, VERDICTS, Claim

__all__ = ["FAILS", "HOLDS", "NOISE", "UNKNOWN", "VERDICTS", "Claim", "of"]
