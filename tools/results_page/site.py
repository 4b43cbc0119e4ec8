"""All pages of results as text, by the name of their file below the folder of the documentation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tools.results_page.chapters import PAGES, TUNED, VARIANTS, Part, sort
from tools.results_page.claims import across
from tools.results_page.claims.placed import Claim
from tools.results_page.claims_page import claims_page
from tools.results_page.evidence import Evidence
from tools.results_page.explanations import Explanation
from tools.results_page.front_page import front_page
from tools.results_page.other_pages import analyses_page, sources_page
from tools.results_page.plates import Plates
from tools.results_page.set_page import SetPage
from tools.results_page.trainings import UNRECORDED, named


def pages(
    evidence: Evidence, docs: Path, *, reasons: Sequence[Explanation] = (), plates: Plates | None = None
) -> dict[str, str]:
    """Write every page.

    Args:
        evidence: as `evidence.read` gives it.
        docs: the folder of the documentation, for links to files of rows.
        reasons: why numbers differ from the paper's, as `explanations.read` gives them.
        plates: draws pictures, where they are wanted.
    """
    trained = named(row for row in evidence.trainings if row.get("weights_sha256"))
    parts = sort(evidence.runs.rows, trained)
    checked = _claims(parts, evidence, trained)
    by_digest = {str(row["weights_sha256"]): row for row in evidence.trainings if row.get("weights_sha256")}
    texts = {}
    for name, group in itertools.groupby(parts, key=lambda part: part.page):
        texts[f"results/{name}.md"] = SetPage(name, reasons, by_digest, plates).write(list(group))
    sets = [Path(name).stem for name in texts]
    texts["results/claims.md"] = claims_page(checked)
    texts["results/analyses.md"] = analyses_page(evidence.runs.analyses, plates)
    texts["results/sources.md"] = sources_page(evidence, docs / "results")
    return {"results.md": front_page(parts, checked, sets), **texts}


def _claims(parts: Sequence[Part], evidence: Evidence, trained: dict[str, str]) -> list[Claim]:
    """Check the paper's claims, where anything of the paper's was run."""
    tables = [part.table for part in parts if part.chapter not in (VARIANTS, TUNED)]
    tuned = [part.table for part in parts if part.chapter == TUNED]
    if not evidence.runs.analyses and not any(part.page in PAGES for part in parts):
        return []
    checked = across(tables, evidence.runs.analyses, tuned)
    names = {claim.weights: trained.get(claim.weights, UNRECORDED) for claim in checked if claim.weights}
    return [replace(claim, weights=names.get(claim.weights, "")) for claim in checked]
