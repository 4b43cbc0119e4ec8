"""The committed results pages: every number in a table is the one that the rows in results/ give."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest

from tools.results_page import evidence, explanations
from tools.results_page.plates import Plates
from tools.results_page.site import pages

HOME = Path(__file__).parents[2]
DOCS, RESULTS = HOME / "docs", HOME / "results"
NUMBER = re.compile(r"[+−]?\d[\d,]*(?:\.\d+)?")


def numbers(text: str) -> dict[str, list[list[str]]]:
    """The numbers of every line of every table of a page, by the page's heading they stand below."""
    by_heading: dict[str, list[list[str]]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.strip("# ")
        elif line.startswith("| "):
            by_heading.setdefault(heading, []).append(NUMBER.findall(line))
    return by_heading


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    reasons = explanations.read(RESULTS / "explanations.toml")
    plates = Plates(DOCS / "images" / "results", DOCS / "results", draw=False)
    return pages(evidence.read([RESULTS]), DOCS, reasons=reasons, plates=plates)


def test_every_page_is_committed_and_no_other(made: dict[str, str]) -> None:
    committed = {f"results/{file.name}" for file in (DOCS / "results").glob("*.md")} | {"results.md"}
    assert committed == set(made), "Run: make docs"


def test_every_number_in_a_committed_table_is_the_rows(made: dict[str, str]) -> None:
    for name, text in made.items():
        committed = numbers((DOCS / name).read_text(encoding="utf-8"))
        assert committed == numbers(text), f"{name}: rows have changed. Run: make docs"
        assert any(committed.values()) or name == "results/analyses.md"


def test_means_by_hand() -> None:
    """Straight from the lines of a file: nothing of the report's is asked."""
    rows = [json.loads(line) for line in (RESULTS / "cifar10-c-40-epochs-h200.jsonl").read_text().splitlines()]
    page = (DOCS / "results" / "cifar10-c.md").read_text(encoding="utf-8")
    section = next(part for part in page.split("\n### ") if "severity 5 " in part[:40] and "40 epochs" in part[:200])
    section = section.partition("<details")[0]
    shown = {cells[0]: cells for line in section.splitlines() if len(cells := line.strip("| ").split(" | ")) > 5}
    for method in ("source", "bn", "tent", "tea"):
        right = [row["accuracy"] for row in rows if row["spec"]["method"] == method]
        assert len(right) == 15
        assert shown[method][1].strip("*") == f"{100 * statistics.fmean(right):.2f}"


def test_pictures_that_a_page_shows_are_there() -> None:
    for page in (DOCS / "results").glob("*.md"):
        for link in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).is_file(), link


def test_a_changed_number_is_seen() -> None:
    page = "# A\n\n| tea | 85.00 |\n"
    assert numbers(page) != numbers(page.replace("85.00", "85.01"))
    assert numbers(page) == numbers(page.replace("tea", "TEA"))


def test_numbers_typed_from_the_rows_of_borders_are_theirs() -> None:
    rows = [json.loads(line) for line in (HOME / "results" / "borders-cpu.jsonl").read_text().splitlines()]
    trained = {
        row["weights_sha256"]: row["spec"]["border"]
        for row in map(json.loads, (HOME / "results" / "training-cpu.jsonl").read_text().splitlines())
    }
    accuracies: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        of = trained.get(row["weights_sha256"], row["model"])
        accuracies.setdefault((of, row["statistics"]), []).append(100 * row["accuracy"])
    shown = {place: [f"{value:.1f}" for value in values] for place, values in accuracies.items()}
    by_batch, zeros, mirrored = (shown["wrn-28-10", name] for name in ("batch", "zeros", "reflect"))
    names = ("clean images", "Gaussian noise", "contrast", "pixelate")
    pairs = [f"{z} instead of {b} on {name}" for z, b, name in zip(zeros, by_batch, names, strict=True)]
    black, reflected, crops = shown["zeros", "batch"], shown["reflect", "batch"], shown["zeros", "zeros"]
    lost = accuracies["zeros", "source"][0] - accuracies["zeros", "batch"][0]
    (text,) = (
        one.text
        for one in explanations.read(HOME / "results" / "explanations.toml")
        if one.evidence == "borders-cpu.jsonl"
    )
    for words in (
        f"{', '.join(pairs[:3])} and {pairs[3]}",
        f"mirrored crops do nothing ({', '.join(mirrored)})",
        f"with black ones bn has {black[0]} on clean images, {lost:.1f} below the source model, and {black[1]}, ",
        f", {black[2]} and {black[3]} on those corruptions",
        f"with mirrored ones {reflected[0]}, as the source model, and {', '.join(reflected[1:3])} and {reflected[3]}",
        f"without bn too ({shown['reflect', 'source'][0]} against {shown['zeros', 'source'][0]})",
        f"bring the other to {crops[0]} on clean images, but to {', '.join(crops[1:3])} and {crops[3]} on the corrupt",
    ):
        assert words in text
    assert shown["reflect", "source"][0] == reflected[0]
