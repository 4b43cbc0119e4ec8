"""Write the results pages: `python -m tools.results_page results --docs docs`."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from steep.files import writing
from tools.results_page import evidence, explanations
from tools.results_page.plates import Plates
from tools.results_page.site import pages


def main(words: list[str] | None = None) -> int:
    """Write results.md, results/*.md and images/results/*.png into the folder of the documentation."""
    parser = argparse.ArgumentParser(prog="python -m tools.results_page", description=__doc__)
    parser.add_argument("rows", nargs="+", type=Path, help="folders or files of rows")
    parser.add_argument("--docs", type=Path, required=True, help="the folder of the documentation")
    parser.add_argument("--no-pictures", action="store_true", help="leave the pictures as they are: they take longest")
    options = parser.parse_args(words)
    files = [path / "explanations.toml" for path in options.rows if (path / "explanations.toml").is_file()]
    pictures = options.docs / "images" / "results"
    if not options.no_pictures:
        shutil.rmtree(pictures, ignore_errors=True)  # a picture whose rows are gone must go too
    texts = pages(
        evidence.read(options.rows),
        options.docs,
        reasons=[reason for file in files for reason in explanations.read(file)],
        plates=Plates(pictures, options.docs / "results", draw=not options.no_pictures),
    )
    for name, text in texts.items():
        with writing(options.docs / name) as file:
            file.write(text.encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
