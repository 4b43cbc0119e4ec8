"""The page of the paper's claims: each with what the rows say, and those that nothing decides."""

from __future__ import annotations

from collections.abc import Sequence

from steep.report.claims import UNKNOWN, VERDICTS
from steep.report.formats import bold
from tools.results_page.blocks import text_table
from tools.results_page.claims.placed import Claim

_HOW = (
    "A difference has its interval of 95 %: two standard errors, the larger of that over seeds and that of so many "
    "images. Methods are compared image by image where rows say which were right, and else as if each answer were "
    "independent. A difference whose interval holds zero is not significant. p is how often a shuffled pairing "
    "correlates as much. mCE is the mean corruption error; what the paper calls MCE is written out: the maximum "
    "calibration error."
)


def claims_page(checked: Sequence[Claim]) -> str:
    """Write the page."""
    counts = [f"{word}: {sum(claim.verdict == word for claim in checked)}" for word in VERDICTS]
    about = f"{len(checked)} claims, each on one data set and source model. {' · '.join(counts)}."
    blocks = ["# The paper's claims", about]
    decided = [
        [claim.text, claim.on, claim.here, bold(claim.verdict), claim.origin]
        for claim in checked
        if claim.verdict != UNKNOWN
    ]
    if decided:
        blocks.append(text_table([["claim", "on", "here", "verdict", "from"], *decided]))
    blocks.append(_HOW)
    unknown: dict[tuple[str, str], list[str]] = {}
    for claim in checked:
        if claim.verdict == UNKNOWN:
            unknown.setdefault((claim.text, claim.here), []).append(claim.on)
    if unknown:
        body = [[text, "; ".join(filter(None, where)), why] for (text, why), where in unknown.items()]
        blocks += ["## Not measured", text_table([["claim", "on", "why"], *body])]
    return "\n\n".join(blocks) + "\n"
