"""The front page: who leads where, by how much and how sure; how many of the paper's claims hold; where the rest is."""

from __future__ import annotations

from collections.abc import Sequence

from steep.report import claims
from steep.report.formats import bold, in_markdown
from steep.report.paper import SUBJECT
from steep.report.summary import ahead
from steep.report.tables import MEAN, Table
from steep.report.words import data_title, number
from tools.results_page.blocks import text_table
from tools.results_page.chapters import OTHER_PAGE, TUNED, VARIANTS, Part
from tools.results_page.claims.placed import Claim

_MEASURED = ("data", "model", "stream and source model")


def front_page(parts: Sequence[Part], checked: Sequence[Claim], pages: Sequence[str]) -> str:
    """Write the page."""
    shown = [part for part in parts if not part.folded and part.chapter not in (VARIANTS, TUNED)]
    rows = [_row(part.table) for part in shown if part.table.ranked()[0].mean(MEAN) is not None]
    blocks = ["# Results", "Made from the rows in `results/` by `python -m tools.results_page`; no number was typed."]
    if rows:
        blocks += [
            "## Who leads where",
            "Mean accuracy in percent over all shifts. A lead is what the first has more than the second, with its "
            "interval of 95 %: from the answers to each image where rows hold them, and from seeds where there are "
            "several. Each table in full is on the page of its data set.",
            text_table([[*_MEASURED, "first", "accuracy", "its lead over the second", f"place of {SUBJECT}"], *rows]),
        ]
    if checked:
        counts = [f"{word}: {sum(claim.verdict == word for claim in checked)}" for word in claims.VERDICTS]
        blocks += [
            "## The paper's claims",
            f"{len(checked)} claims, each on one data set and source model. {' · '.join(counts)}. "
            "[Every claim](results/claims.md) with what the rows say.",
        ]
    names = {page: "Other data" if page == OTHER_PAGE else data_title(page) for page in pages}
    links = [f"- [{in_markdown(name)}](results/{page}.md)" for page, name in names.items()]
    links += ["- [Claims](results/claims.md)", "- [Analyses](results/analyses.md)"]
    links += ["- [Source models, files, and what was not run](results/sources.md)"]
    return "\n\n".join([*blocks, "## Everything", "\n".join(links)]) + "\n"


def _row(table: Table) -> list[str]:
    first, *others = table.ranked()
    places = [f"{place} of {len(table.lines)}" for place, line in enumerate(table.ranked(), 1) if line.name == SUBJECT]
    data, model, *how = table.title.split(" · ")
    words = ahead(table, first, others[0]) if others else ""
    lead = f"{others[0].name}: {words}" if words else ""
    return [data, model, ", ".join(how), bold(first.name), number(first.mean(MEAN)), lead, "".join(places)]
