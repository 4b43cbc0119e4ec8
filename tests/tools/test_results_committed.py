"""docs/results.md is what the rows in results/ give; `make docs` makes it anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from steep.report.runs import read
from tools.results_page import explanations
from tools.results_page.page import docs
from tools.results_page.plates import Plates

HOME = Path(__file__).parents[2]


def test_the_committed_page_is_what_the_rows_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HOME)
    monkeypatch.setattr("tools.results_page.plates.render", lambda form: lambda spec: b"")
    monkeypatch.setattr("tools.results_page.plates._small", bytes)
    monkeypatch.setattr("tools.results_page.plates.put", lambda path, content: path)  # drawing takes longest
    made = docs(
        read([Path("results")]),
        reasons=explanations.read(Path("results/explanations.toml")),
        plates=Plates(Path("docs/images/results"), Path("docs")),
        home=Path("docs"),
    )
    committed = (HOME / "docs" / "results.md").read_text(encoding="utf-8")
    assert made == committed, "rows or explanations have changed. Run: make docs"


def test_numbers_typed_from_the_rows_of_borders_are_theirs() -> None:
    rows = [json.loads(line) for line in (HOME / "results" / "borders-cpu.jsonl").read_text().splitlines()]
    trained = {
        row["weights_sha256"]: row["spec"]["border"]
        for row in map(json.loads, (HOME / "results" / "training-cpu.jsonl").read_text().splitlines())
    }
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        of = trained.get(row["weights_sha256"], row["model"])
        found.setdefault((of, row["statistics"]), []).append(100 * row["accuracy"])
    shown = {place: [f"{value:.1f}" for value in values] for place, values in found.items()}
    own, zeros, mirrored = (shown["wrn-28-10", name] for name in ("batch", "zeros", "reflect"))
    names = ("clean images", "Gaussian noise", "contrast", "pixelate")
    pairs = [f"{z} instead of {b} on {name}" for z, b, name in zip(zeros, own, names, strict=True)]
    black, reflected, crops = shown["zeros", "batch"], shown["reflect", "batch"], shown["zeros", "zeros"]
    lost = found["zeros", "source"][0] - found["zeros", "batch"][0]
    (said,) = (
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
        assert words in said
    assert shown["reflect", "source"][0] == reflected[0]
