"""Write the generated parts of the pages: python docs/generate/fill_pages.py

A generated part stands between `<!-- made: NAME -->` and `<!-- /made -->`. It is committed, so that readers of the
repository see it too. With `--check` nothing is written: the command names the pages that are out of date and fails.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import choosing_table
import compare_table
import corruptions_table
import example_page
import held_out_table
import infuse_table
import leaderboard
import method_page
import real_pictures_table
import regret_table
import safety_table
import samples_table
import serve_table
import stranger_table
import streams_table

DOCS = Path(__file__).parents[1]
PARTS = {
    "choosing": choosing_table.table,
    "compare-weights": compare_table.weights,
    "compare-protocols": compare_table.protocols,
    "compare-sources": compare_table.sources,
    "corruptions-224": corruptions_table.at_224,
    "held-out": held_out_table.table,
    "infuse-situations": infuse_table.table,
    "infuse-differences": infuse_table.differences,
    "leaderboard": leaderboard.table,
    "office": real_pictures_table.office,
    "office-pairs": real_pictures_table.office_pairs,
    "pacs": real_pictures_table.pacs,
    "pacs-pairs": real_pictures_table.pacs_pairs,
    "real-pictures": real_pictures_table.benchmark,
    "real-pictures-by-batch": real_pictures_table.by_batch,
    "real-pictures-guarded": real_pictures_table.guarded,
    "real-pictures-held-out": real_pictures_table.held_out,
    "methods": method_page.methods,
    "examples": example_page.examples,
    "auto-corruptions": regret_table.corruptions,
    "regret": regret_table.groups,
    "regret-methods": regret_table.methods,
    "safety": safety_table.table,
    "samples-answer": samples_table.answer,
    "samples-compared": samples_table.compared,
    "samples-energies": samples_table.energies,
    "samples-group-norm": samples_table.group_norm,
    "samples-long-stream": samples_table.long_stream,
    "samples-pictures": samples_table.pictures,
    "samples-steps": samples_table.steps,
    "serve": serve_table.table,
    "speed-224": real_pictures_table.speed,
    "chains-224": real_pictures_table.chains,
    "stranger": stranger_table.sentence,
    "streams": streams_table.table,
    "long-stream": choosing_table.long_stream,
}
_PART = re.compile(r"(<!-- made: ([\w-]+) -->\n).*?(^<!-- /made -->$)", re.M | re.S)


def filled(page: str) -> str:
    """Return the text of a page with its generated parts made anew."""
    return _PART.sub(lambda part: f"{part[1]}{PARTS[part[2]]().strip()}\n{part[3]}", page)


def main(check: bool) -> str | None:
    """Fill README and the pages of docs/ that have a generated part, or only name those that are out of date."""
    stale = []
    for page in [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        new = filled(text)
        if new != text:
            stale.append(page.name)
            if not check:
                page.write_text(new, encoding="utf-8")
    return f"out of date: {', '.join(stale)}. Run `make docs`" if check and stale else None


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
