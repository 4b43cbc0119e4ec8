"""The command line: `python -m tools.results_page results --explanations results/explanations.toml --out ...`."""

from __future__ import annotations

import argparse
from pathlib import Path

from steep.files import writing
from steep.report.runs import read
from tools.results_page import explanations
from tools.results_page.page import docs
from tools.results_page.plates import Plates


def main(words: list[str] | None = None) -> int:
    """Write the page and its pictures."""
    parser = argparse.ArgumentParser(prog="python -m tools.results_page", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders or files of rows")
    parser.add_argument("--explanations", type=Path, help="a .toml file that says why numbers differ from the paper's")
    parser.add_argument("--figures", type=Path, help="a folder for the pictures; without it there are none")
    parser.add_argument("--out", type=Path, required=True, help="the page to write")
    parser.add_argument("--title", default="Results")
    options = parser.parse_args(words)
    home = options.out.parent
    text = docs(
        read(options.runs),
        options.title,
        reasons=explanations.read(options.explanations) if options.explanations else (),
        plates=Plates(options.figures, home) if options.figures else None,
        home=home,
    )
    with writing(options.out) as file:
        file.write(text.encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
