"""The paper's claims one by one, checked against everything that was measured."""

from tools.results_page.claims.across import across

__all__ = ["across"]
