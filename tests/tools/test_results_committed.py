"""The committed results pages: every number in a table is the one that the rows in results/ give."""

from __future__ import annotations

import json
import math
import re
import statistics
from pathlib import Path

import pytest

from steep.bench.rows import Row, unpacked
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


def test_numbers_typed_from_the_last_tries_for_tea_are_theirs() -> None:
    """Differences on the same images, with standard errors: no place in a sentence gives those."""
    texts = "\n".join(one.text for one in explanations.read(HOME / "results" / "explanations.toml"))

    def rows(name: str, source: str = "") -> dict[tuple[str, str], Row]:
        every = map(json.loads, (HOME / "results" / f"{name}.jsonl").read_text().splitlines())
        return {(row["spec"]["label"], row["spec"]["shift"]): row for row in every if row["spec"]["source"] == source}

    def away(of: dict[tuple[str, str], Row], label: str, other: str, *shifts: str) -> tuple[float, float]:
        means, variances = [], []
        for shift in shifts or [shift for one, shift in of if one == label and (other, shift) in of]:
            ours, theirs = (unpacked(of[name, shift]["right"], of[name, shift]["n"]) for name in (label, other))
            assert ours is not None
            assert theirs is not None
            change = 100 * (ours.astype(float) - theirs.astype(float))
            means.append(float(change.mean()))
            variances.append(float(change.var()) / len(change))
        return statistics.fmean(means), math.sqrt(sum(variances)) / len(variances)

    def in_words(pair: tuple[float, float], digits: int = 1) -> str:
        return f"{pair[0]:.{digits}f} ± {pair[1]:.{digits}f}".replace("-", "−").replace("−0.0 ", "0.0 ")

    def turned(pair: tuple[float, float]) -> tuple[float, float]:
        return -pair[0], pair[1]

    hundred, norm = rows("explain-cifar100-again-2000-h200"), rows("explain-gn-again-1000-h200")
    ways = ("old-chains", "200-chains", "of-classes", "from-images", "diverse", "together", "episodic")
    best = max(away(hundred, f"tea-{way}", "tea") for way in ways)
    together, episodic = (turned(away(hundred, f"tea-{way}", "tea")) for way in ("together", "episodic"))
    bright = [away(hundred, label, "bn", "brightness") for label in {label for label, _ in hundred} - {"source", "bn"}]
    assert all(-mean < 2 * error for mean, error in bright)
    assert {in_words(away(norm, label, "source")) for label in ("tea-diverse-5e-5", "tea-episodic")} == {"−0.1 ± 0.1"}
    art, cartoon, photo, sketch = (
        rows("explain-pacs-again-h200", source) for source in ("art_painting", "cartoon", "photo", "sketch")
    )
    twenty = ("tea-20-0001", "tea-20-0003", "tea-20-0010")
    gains = [in_words(away(domain, label, "bn")) for domain in (photo, sketch) for label in twenty]
    for words in (
        f"more than {in_words(best, 2)} points above tea",
        f"the last two are {in_words(together, 2)} and {in_words(episodic, 2)} below it",
        f"{-max(bright)[0]:.2f} to {-min(bright)[0]:.2f} points below it",
        f"tea gains {in_words(away(hundred, 'tea', 'bn'), 2)} points over bn here",
        f"{in_words(away(norm, 'shot', 'source'))} points more (± is",
        f"{in_words(turned(away(norm, 'tea-fast', 'source')))} less. SHOT's",
        f"still {in_words(turned(away(norm, 'tea-diverse', 'source')))} below the source model",
        f"on glass blur and snow only, {in_words(away(norm, 'tea-restart', 'source'))}.",
        f"That is {in_words(away(art, 'tea-20-0003', 'bn'))} points over bn",
        f"are {in_words(away(art, 'tea-20-0010', 'bn'))} over bn",
        f", {in_words(away(cartoon, 'tea-20-0003', 'bn', 'photo'))} points over bn",
        f", {in_words(away(cartoon, 'tea-20-0003', 'bn', 'art_painting'))} over bn",
        f"{in_words(away(cartoon, 'diverse-20-0003', 'bn'))} and "
        f"{in_words(away(cartoon, 'classes-20-0003', 'bn'))} over bn, the paper's tea 5.2",
        f"are {in_words(away(cartoon, 'tea-20-0010', 'bn'))} over bn in the mean, but "
        f"{in_words(away(cartoon, 'tea-20-0010', 'bn', 'photo'))} on photo and "
        f"{in_words(away(cartoon, 'tea-20-0010', 'bn', 'art_painting'))} on art painting",
        f"They are {gains[0]}, {gains[1]} and {gains[2]} points over bn",
        f"which are {gains[3]}, {gains[4]} and {gains[5]} points over bn",
        f"cartoon gains {in_words(away(photo, 'tea-20-0003', 'bn', 'cartoon'))}, art painting "
        f"{in_words(away(photo, 'tea-20-0003', 'bn', 'art_painting'))} and sketch "
        f"{in_words(away(photo, 'tea-20-0003', 'bn', 'sketch'))}, in the paper",
    ):
        assert words in texts
    for way, least, most in (("diverse", "−0.4", "0.1"), ("classes", "−0.3", "0.5")):
        every = [away(domain, f"{way}-20-0003", "tea-20-0003")[0] for domain in (art, cartoon, photo, sketch)]
        assert [f"{value:.1f}".replace("-", "−") for value in (min(every), max(every))] == [least, most]
