"""The README's numbers are those of the stored rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path

HOME = Path(__file__).parents[2]
sys.path.insert(0, str(HOME))

from benchmarks import headline  # noqa: E402


def test_the_readme_shows_the_stored_rows():
    readme = (HOME / "README.md").read_text(encoding="utf-8")
    assert headline.written(readme) == readme


def test_its_means_are_those_of_the_rows_by_hand():
    rows = [json.loads(line) for line in headline.ROWS.read_text(encoding="utf-8").splitlines()]
    for method in ("source", "tent", "tea"):
        accuracies = [row["accuracy"] for row in rows if row["spec"]["method"] == method]
        assert len(accuracies) == 15
        assert f"| {method} | {100 * sum(accuracies) / 15:.2f} |" in headline.table()


def test_the_four_lines_the_paper_stands_on_are_within_a_point_and_a_half_of_it():
    paper = {"source": 56.47, "bn": 79.56, "tent": 81.41, "tea": 83.34}  # TEA, Table 1
    shown = {
        cells[0]: cells for line in headline.table().splitlines() if len(cells := line.strip("| ").split(" | ")) == 8
    }
    for method, figure in paper.items():
        assert float(shown[method][2]) == figure
        assert abs(float(shown[method][1]) - figure) < 1.5
    assert max(list(shown)[1:], key=lambda name: float(shown[name][1])) == "tea"
    assert min(list(shown)[1:], key=lambda name: float(shown[name][3])) == "tea"
