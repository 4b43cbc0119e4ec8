"""The results pages: what belongs together stands together, what does not is never one mean, gaps are listed."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from made_rows import Rows, cell, grid, ten
from steep import recipes
from steep.bench.rows import encode
from steep.errors import InputError
from steep.report.runs import Runs, Source
from steep.report.tables import build
from steep.training import TrainingSpec, train
from tools.results_page import evidence
from tools.results_page.__main__ import main
from tools.results_page.chapters import OTHERS, STREAMS, TUNED, VARIANTS, sort
from tools.results_page.evidence import Evidence
from tools.results_page.expected import command, coverage
from tools.results_page.explanations import Explanation
from tools.results_page.site import pages
from tools.results_page.trainings import named, retrain

GN = "resnet-50-gn"
WRN, RESNET = "WRN-28-10", "ResNet-50 with GroupNorm"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def stream(protocol: str = "continual") -> Rows:
    row = cell("tea", "sequence", 0.7, protocol=protocol)
    row["segments"] = [{"name": "fog", "severity": 5, "n": 10, "error": 0.3}]
    return [row]


def site(rows: Rows, trainings: Rows | None = None, **more: Any) -> dict[str, str]:
    every = Evidence(Runs((Source("rows", "", tuple(rows), ()),)), tuple(trainings or ()))
    return pages(every, Path("docs"), **more)


def page(rows: Rows, trainings: Rows | None = None, **more: Any) -> str:
    """The page of CIFAR-10-C."""
    return site(rows, trainings, **more)["results/cifar10-c.md"]


def test_pages_and_chapters_by_what_was_run() -> None:
    rows = [
        *grid({"tea": 0.8}),
        *grid({"tea": 0.6}, data="cifar100-c"),
        *grid({"tea": 0.3}, data="tiny-imagenet-c", batch_size=1000, size=32),
        *grid({"tea": 0.8}, model=GN),
        *[cell("tea", "sketch", 0.4, 0, data="pacs", model="resnet-18-bn", source="photo", size=32, batch_size=0)],
        *stream(),
        *grid({"tea": 0.8}, batch_size=1, limit=1000),
        *grid({"tea": 0.8}, model="wrn-40-2"),
        *grid({"tea": 0.8}, batch_size=64),
        *grid({"tea": 0.8}, data="mine"),
    ]
    placed = [(part.page, part.chapter) for part in sort(rows, {})]
    assert sorted(placed) == sorted(
        [
            ("cifar10-c", WRN),
            ("cifar10-c", RESNET),
            ("cifar10-c", STREAMS),
            ("cifar10-c", STREAMS),
            ("cifar10-c", OTHERS),
            ("cifar10-c", OTHERS),
            ("cifar100-c", WRN),
            ("tiny-imagenet-c", WRN),
            ("pacs", "ResNet-18"),
            ("other", OTHERS),
        ]
    )
    made = site(rows)
    assert list(made)[:6] == [
        "results.md",
        "results/cifar10-c.md",
        "results/cifar100-c.md",
        "results/tiny-imagenet-c.md",
        "results/pacs.md",
        "results/other.md",
    ]
    assert re.findall(r"^## (.+)$", made["results/cifar10-c.md"], flags=re.M) == [WRN, RESNET, STREAMS, OTHERS]


def test_the_summary_says_who_leads_by_how_much_and_how_sure() -> None:
    rows = grid({"source": 0.5, "tent": 0.70, "tea": 0.80}) + grid({"source": 0.5, "bn": 0.701, "tea": 0.7}, model=GN)
    front = site(rows)["results.md"]
    lines = [line.strip("| ").split(" | ") for line in front.splitlines() if line.startswith("| CIFAR-10-C")]
    # a mean of 15 sets of 10,000 answers has the error √(p (1 − p) / 150,000)
    assert [line[0:2] + line[3:] for line in lines] == [
        ["CIFAR-10-C, severity 5", WRN, "**tea**", "80.00", "tent: +10.0 points (95 %: +9.7 to +10.3)", "1 of 3"],
        ["CIFAR-10-C, severity 5", RESNET, "**bn**", "70.10",
         "tea: +0.1 points (95 %: −0.2 to +0.4), not significant", "2 of 3"],
    ]  # fmt: skip
    assert re.search(r"holds: \d+ · does not hold: \d+ · not significant: \d+ · not measured: \d+", front)


@pytest.mark.parametrize(("other", "words"), [(0.7, "tent: tie"), (0.65, "tent: +5.0 points")])
def test_a_stream_that_does_not_say_how_sure_a_lead_is_has_ties_too(other: float, words: str) -> None:
    tea, tent = *stream(), cell("tent", "sequence", other, protocol="continual")
    tent["segments"] = [{**tea["segments"][0], "error": 1 - other}]
    assert f"| {words} |" in site([tea, tent])["results.md"]


def test_tables_of_one_title_say_what_they_differ_in() -> None:
    several = [
        *grid({"tea": 0.8}, weights_sha256="a" * 64),
        *grid({"tea": 0.7}, weights_sha256="b" * 64),
        *grid({"tea": 0.6}, weights_sha256="b" * 64, precision="tf32"),
    ]
    trainings = [
        {"data": "cifar10", "architecture": "wrn-28-10", "epochs": epochs, "weights_sha256": letter * 64}
        for epochs, letter in ((40, "a"), (104, "b"))
    ]
    names = {letter * 12: f"of {epochs} epochs" for epochs, letter in ((40, "a"), (104, "b"))}
    assert named(trainings) == names
    made = [part.table.title for part in sort(several, names)]
    usual = "CIFAR-10-C, severity 5 · WRN-28-10 · model reset before each corruption"
    assert made == [
        f"{usual} · float32 · source model of 40 epochs",
        f"{usual} · float32 · source model of 104 epochs",
        f"{usual} · tf32 · source model of 104 epochs",
    ]
    assert [part.table.title for part in sort(several[:15], {})] == [usual]


def test_every_table_names_its_training_where_there_were_several() -> None:
    several = [
        *grid({"tea": 0.8}, weights_sha256="a" * 64),
        *grid({"tea": 0.7}, weights_sha256="b" * 64, limit=2000, n=2000),
        *grid({"tea": 0.6}, weights_sha256="b" * 64, protocol="continual"),
    ]
    made = [part.table.title for part in sort(several, {"a" * 12: "of 40 epochs"})]
    assert ["40 epochs" in title for title in made] == [True, False, False]
    assert ["unrecorded" in title for title in made] == [False, True, False]


def test_a_part_of_a_set_is_folded_beside_the_whole_and_in_sight_alone() -> None:
    part = grid({"source": 0.4, "tea": 0.6}, limit=2000, n=2000)
    assert [one.folded for one in sort(part, {})] == [False]
    both = sort(part + grid({"source": 0.5, "tea": 0.8}), {})
    assert [(one.table.spec["limit"], one.folded) for one in both] == [(None, False), (2000, True)]
    assert "here after 10 batches of each set:" in page(part)


def test_variants_with_nothing_to_compare_with_are_folded() -> None:
    odd = grid({"tea": 0.7}, label="tea-odd", limit=5000, n=5000, model=GN)
    parts = sort(grid({"tea": 0.8}, model=GN) + odd, {})
    assert [(part.table.spec["limit"], part.folded) for part in parts] == [(None, False), (5000, True)]


def test_a_variant_without_a_mean_is_no_line_of_a_ranking() -> None:
    some = [row for row in grid({"tea": 0.5}, label="tea-some") if row["spec"]["shift"] == "fog"]
    made = page([*grid({"tea": 0.8}), *grid({"tea": 0.7}, label="tea-all"), *some])
    ranking = made.split(f"## {VARIANTS}")[1].partition("[^")[0]
    assert "| tea-all | 70.00 |" in ranking
    assert "tea-some" not in ranking
    lone = page([*grid({"tea": 0.8}), *some]).split("### ")[1].split("<details")[0]
    assert "| tea | **80.00** |" in lone
    assert "tea-some" not in lone


def test_source_domains_stand_side_by_side() -> None:
    domains = {"photo": 0.2, "sketch": 0.4}
    rows = [
        cell(method, target, level + more, data="pacs", model="resnet-18-bn", source=source, size=128, n=100)
        for source, level in domains.items()
        for target in ("cartoon", "art_painting", "other")
        for method, more in (("source", 0.0), ("tea", 0.1))
    ]
    lone = cell("bn", "cartoon", 0.9, data="pacs", model="resnet-18-bn", source="photo", size=128, n=100)
    again = [{**r, "spec": {**r["spec"], "weights_sha256": "b" * 64}, "key": r["key"] + "b"} for r in rows]
    assert site([*rows, *again])["results/pacs.md"].count("by source domain") == 2
    text = site([*rows, lone])["results/pacs.md"]
    lines = text.split("\n## ")[1].split("###")[0].split("<details")[0].strip().splitlines()[2:]
    assert lines[0].startswith("PACS at 128 pixels by source domain")
    assert lines[2] == "| method | from photo | from sketch | mean |"
    assert lines[4:] == ["| tea | **30.00** | **50.00** | **40.00** |", "| source | 20.00 | 40.00 | 30.00 |"]


def test_an_explanation_stands_in_full_once() -> None:
    rows = grid({"source": 0.5, "tea": 0.8}) + grid({"source": 0.4, "tea": 0.6}, precision="tf32")
    why = [Explanation("Another model. Tested by training one.", "cifar10-c")]
    made = page(rows, reasons=why)
    assert made.count("Another model. Tested by training one.") == 1
    assert made.count("Another model (in full above).") == 1


def test_a_variants_own_batch_is_no_missing_cell() -> None:
    rows = grid({"tea-fast": 0.7}, label="tea-fast-lower-5e-5", batch_size=600, model=GN)
    (one,) = [one for one in coverage(rows, []) if one.recipe == "explain-gn"]
    assert "tea-fast-lower-5e-5" not in one.lacks
    assert one.here == 15


def test_batches_tell_tables_apart_too() -> None:
    several = [*grid({"tea": 0.8}), *grid({"tea": 0.7}, batch_size=50)]
    assert {part.table.title.rsplit(" · ", 1)[1] for part in sort(several, {})} == {
        "adapted in batches of 200",
        "adapted in batches of 50",
    }


def test_a_table_of_few_shifts_is_folded_beside_one_of_all() -> None:
    few = [cell("tea", "fog", 0.6, limit=100, n=100), cell("source", "fog", 0.5, limit=100, n=100)]
    rows = [*grid({"tea": 0.8}, model=GN), *[{**r, "spec": {**r["spec"], "model": GN}} for r in few]]
    assert [(len(part.table.shifts), part.folded) for part in sort(rows, {})] == [(15, False), (1, True)]


@pytest.mark.parametrize("line", ['{"architecture": "wrn"', '{"schema": 1}', "3"])
def test_a_damaged_training_row_is_named(tmp_path: Path, line: str) -> None:
    row = {"architecture": "wrn", "data": "digits", "image_shape": [8, 8, 1], "epochs": 1, "seed": 0, "accuracy": 0.5,
           "test_images": 10, "device": "cpu", "history": []}  # fmt: skip
    (tmp_path / "t.jsonl").write_text(f"{json.dumps(row)}\n{line}\n")
    with pytest.raises(InputError, match="line 2 lacks"):
        evidence.read([tmp_path / "t.jsonl"])


def test_a_tree_with_changes_stays_one_on_the_page() -> None:
    rows = [{**row, "env": {"commit": "a" * 40 + "-dirty"}} for row in grid({"tea": 0.8})]
    assert "aaaaaaaaaaaa-dirty" in page(rows)


def test_weights_without_a_training_row_are_said(tmp_path: Path) -> None:
    row = {"architecture": "wrn-28-10", "data": "cifar10", "image_shape": [32, 32, 3], "epochs": 1, "seed": 0,
           "accuracy": 0.5, "test_images": 10, "device": "cpu", "history": [], "run": "t",
           "weights_sha256": "a" * 64}  # fmt: skip
    cells = tuple(grid({"tea": 0.8}, weights_sha256="b" * 64) + grid({"tea": 0.8}, weights_sha256="a" * 64))
    made = site(list(cells), [row])["results/sources.md"]
    lines = made.split("## The source models")[1].split("## ")[0].splitlines()
    assert [("b" * 12 in line, "no row" in line) for line in lines if "wrn-28-10" in line] == [
        (False, False),
        (True, True),
    ]


def test_two_trainings_do_not_add_up_to_a_recipe() -> None:
    every = grid(ten(0.9))
    halves = [{**row, "spec": {**row["spec"], "weights_sha256": "ab"[i < 90] * 64}} for i, row in enumerate(every)]
    counts = {c.recipe: (c.here, c.wanted) for c in coverage(every, [])}
    some = {c.recipe: c.here for c in coverage(halves, [])}
    here, wanted = counts["appendix-cifar10"]
    assert (here, wanted, some["appendix-cifar10"]) == (150, 165, 90)  # tea-fast is the eleventh


def test_a_training_that_was_kept_is_named_by_its_epochs(tmp_path: Path) -> None:
    shared = {"architecture": "wrn-28-10", "data": "cifar10", "seed": 0, "history": [], "device": "cpu"}
    more = {"accuracy": 0.9, "test_images": 100, "image_shape": [32, 32, 3]}
    kept = {**shared, **more, "epochs": 40, "weights_sha256": "a" * 64}
    (tmp_path / "training.jsonl").write_text(json.dumps(kept) + "\n")
    cells = [*grid(ten(0.9), weights_sha256="a" * 64), *grid(ten(0.6), weights_sha256="b" * 64)]
    (tmp_path / "rows.jsonl").write_bytes(b"".join(map(encode, cells)))
    made = pages(evidence.read([tmp_path]), tmp_path)
    first = re.findall(r"\| TEA has the highest mean accuracy and .* · (source model .+?) \|.*\*\*(.+)\*\*",
                       made["results/claims.md"])  # fmt: skip
    unrecorded = "source model of an unrecorded training"
    assert first == [("source model of 40 epochs", "holds"), (unrecorded, "does not hold")]
    titles = re.findall(r"^### .*(source model .*)$", made["results/cifar10-c.md"], re.MULTILINE)
    assert titles == ["source model of 40 epochs", unrecorded]


def test_trainings_of_as_many_epochs_are_told_apart_and_said_again() -> None:
    same = {"data": "cifar100", "architecture": "wrn-28-10", "epochs": 104, "recipe": "train-cifar100-wrn-28-10"}
    spec = {**recipes.read("train-cifar100-wrn-28-10"), "border": "reflect"}
    old = {key: value for key, value in spec.items() if key != "border"}  # of a time when all borders were black
    specs = {"a": spec, "b": {**old, "batch_size": 77, "evaluate_every": 3}, "c": {**spec, "batch_size": 77}, "d": None}
    rows = [{**same, "weights_sha256": digest * 64, "spec": spec} for digest, spec in specs.items()]
    usual = spec["batch_size"]
    assert named([*rows, {**rows[0], "epochs": 9, "weights_sha256": "e" * 64}]) == {
        "a" * 12: f"of 104 epochs (batches of {usual}, mirrored borders)",
        "b" * 12: "of 104 epochs (batches of 77, black borders)",
        "c" * 12: "of 104 epochs (batches of 77, mirrored borders)",
        "d" * 12: "of 104 epochs",
        "e" * 12: "of 9 epochs",
    }


@pytest.mark.parametrize("recipe", ["train-digits", "train-cifar100-wrn-28-10"])
def test_a_training_is_said_again_by_a_command_that_trains_the_same(recipe: str) -> None:
    changed = {"flip": True, "model_options.dropout": 0.3, "lr": 0.12345678, "size": 8, "seed": 3}
    for border, other in (
        ("zeros", changed),
        ("reflect", {**changed, "flip": False, "size": None, "threads": 2}),
        ("zeros", {}),
    ):
        spec = TrainingSpec.from_recipe(recipe, {"border": border, **other})
        row = json.loads(json.dumps({"recipe": recipe, "spec": dataclasses.asdict(spec)}))
        if border == "zeros":
            del row["spec"]["border"]  # as rows of a time when all borders were black
        words = str(retrain(row)).split()
        assert words[:3] == ["steep", "train", recipe]
        settings = dict(recipes.assignment(word) for word in words[4::2])
        assert TrainingSpec.from_recipe(recipe, settings).identity() == spec.identity()


def test_trainings_are_shown_as_they_were_kept(tmp_path: Path) -> None:
    spec = TrainingSpec.from_recipe("train-digits", {"epochs": 1, "warmup_epochs": 0, "limit": 128})
    row = train(spec, tmp_path / "digits.safetensors").row
    (tmp_path / "training.jsonl").write_text(json.dumps(row) + "\n")
    made = pages(evidence.read([tmp_path / "training.jsonl"]), tmp_path)["results/sources.md"]
    cells = made.split("## The source models")[1].split("\n")[4].strip("| ").split(" | ")
    assert cells[:7] == ["digits", row["architecture"], "8", "1", "64", "zeros", "0"]
    assert cells[7] == f"{100 * row['accuracy']:.2f}"
    assert cells[9] == hashlib.sha256((tmp_path / "digits.safetensors").read_bytes()).hexdigest()[:12]


def test_limited_rows_are_another_table() -> None:
    rows = grid({"source": 0.5, "tea": 0.8}) + grid({"source": 0.4, "tea": 0.6}, limit=2000, n=2000)
    made = page(rows)
    assert "| tea | **80.00** | 83.34 | −3.34¹ |" in made
    assert "first 2,000 images" in made
    assert "| tea | **60.00** |" in made
    assert "70.00" not in made  # what both in one mean would be


def test_seeds_and_severities_of_several_files_are_one_table(tmp_path: Path) -> None:
    files = {
        "one": grid({"source": 0.5, "tea": 0.80}),
        "two": grid({"tea": 0.84}, seed=1),
        "three": grid({"source": 0.7, "tea": 0.9}, (1, 2, 3, 4)),
    }
    for name, rows in files.items():
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(map(encode, rows)))
    (tmp_path / "speed.jsonl").write_text('{"benchmark": "speed", "ms": 1}\n', encoding="utf-8")
    (tmp_path / "look.jsonl").write_text('{"what": "clean source", "acc": 95.7}\n', encoding="utf-8")
    every = pages(evidence.read([tmp_path]), tmp_path)
    made = every["results/cifar10-c.md"]
    assert "| tea | **82.00 ± 2.83** | 83.34 | −1.34¹ |" in made  # deviation of 80 and 84
    assert "| tea | **88.00** | 87.88 | +0.12 |" in made  # seed 0 alone has severities 1 to 4: (4 × 90 + 80) / 5
    assert "files: one, three, two" in made or "files: one, two, three" in made
    assert "look, speed: measurements that are not of cells" in every["results/sources.md"]


def test_a_method_is_in_a_ranking_once() -> None:
    rows = grid({"source": 0.5, "tent": 0.70, "tea": 0.80})
    rows += grid({"tent": 0.72}, setting="tuned")
    rows += [cell("tea", s, 0.79, label="tea-before", predict="before") for s in {r["spec"]["shift"] for r in rows}]
    made = page(rows)
    ranking = made.partition("<details")[0]
    assert re.findall(r"^\| ([a-z-]+) \|", ranking, flags=re.M) == ["method", "tea", "tent", "source"]
    variants = made.partition(f"## {VARIANTS}")[2].partition("## ")[0]
    assert "| tea-before | 79.00 | −1.00 |" in made
    assert "tuned" not in variants
    tuned = made.partition(f"## {TUNED}")[2]
    assert "| tent (tuned) | 72.00 | +2.00 |" in tuned
    assert "| tea | 80.00 |  |" in tuned


def test_a_name_of_ones_own_is_no_variant_of_what_was_not_run() -> None:
    made = site([cell("tea", "fog", 0.8, label="mine", data="digits-c"), cell("source", "fog", 0.5, data="digits-c")])
    assert "| mine | **80.00** |" in made["results/other.md"]
    assert VARIANTS not in made["results/other.md"]
    assert "claims, each" not in made["results.md"]  # nothing of the paper's was run


def test_settings_of_one_method_lead_nowhere() -> None:
    """Tried for what they explain, they would look like the winners."""
    tried = [cell("tea", s, 0.9, label=f"tea-{rate}") for s in ("fog", "snow") for rate in ("low", "high")]
    alone = site([*tried, *(cell("source", s, 0.5) for s in ("fog", "snow"))])
    assert "tea-high" not in alone["results.md"]
    assert "tea-high" in alone["results/cifar10-c.md"].partition(f"## {VARIANTS}")[2]
    compared = [cell(m, s, right) for m, right in (("source", 0.5), ("tea", 0.7)) for s in ("fog", "snow")]
    assert "| **tea** | 70.00 |" in site([*tried, *compared])["results.md"]


def test_what_was_not_run_is_counted() -> None:
    every = {one.recipe: one for one in coverage(grid(ten(0.9), run="a")[:-1], [])}
    one = every["appendix-cifar10"]  # eleven methods with tea-fast, 15 corruptions; one cell of tea is not there
    assert (one.wanted, one.here) == (165, 149)
    assert one.lacks == "methods tea-fast; seeds of tea: 1 of 5"
    assert one.state == "149 of 165 cells"
    assert every["table-1-cifar10"].wanted == 11 * (15 * 5 + 1)
    assert every["table-1-cifar10"].lacks == "methods tea-fast; severities 1, 2, 3, 4; shifts clean"
    assert every["table-3-pacs"].wanted == 8 * 12
    assert every["continual"].wanted == 11
    assert {every[name].state for name in ("table-3-pacs", "continual", "analyze-calibration")} == {"not run"}
    assert not [name for name in every if "digits" in name]
    limited = {one.recipe: one for one in coverage(grid(ten(0.9), limit=500), [])}
    assert limited["appendix-cifar10"].state == "150 of 165 cells, first 500 images of a set"
    flat = [{"analysis": "samples", "data": "mnist"}]
    ran = {one.recipe for one in coverage([], flat) if one.here}
    assert ran == {"analyze-samples-mnist"}


@pytest.mark.parametrize(
    ("seeds", "more", "lacks"),
    [
        (range(1, 5), {}, ""),
        (range(1, 3), {}, "seeds of tea: 3 of 5"),
        (range(1, 5), {"limit": 500}, "seeds of tea: 1 of 5 on whole sets"),
        (range(1, 5), {"weights_sha256": "b" * 64}, "seeds of tea: 4 of 5"),  # of one training
    ],
)
def test_seeds_are_counted_on_whole_sets_of_one_training(seeds: range, more: dict[str, Any], lacks: str) -> None:
    rows = grid(ten(0.9)) + [row for seed in range(5) for row in grid({"tea-fast": 0.9}, seed=seed)]
    rows += [row for seed in seeds for row in grid({"tea": 0.9}, seed=seed, **more)]
    every = {one.recipe: one for one in coverage(rows, [])}
    assert every["appendix-cifar10"].lacks == lacks


def test_the_page_says_what_is_missing() -> None:
    made = site(grid(ten(0.9)))
    assert "| table-3-pacs | Table 3: PACS at 32 pixels" in made["results/sources.md"]
    unknown = made["results/claims.md"].partition("## Not measured")[2]
    assert "| works with GroupNorm: TEA has the highest mean accuracy and the lowest mCE | CIFAR-10-C" in unknown


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (grid({"source": 0.5}), "steep bench experiments/before-after.toml --only method=source"),
        (grid(ten(0.9)),
         "steep bench appendix-cifar10 --only method=" + ",".join(sorted(ten(0.9))) + " --only setting=paper"),
        (grid(ten(0.9)) + grid({"tent": 0.7}, setting="tuned") + grid({"tent": 0.7}, seed=3),
         "steep bench appendix-cifar10 --only method=" + ",".join(sorted(ten(0.9))) + " --seeds 0,3"),
        (grid({"source": 0.5}, (4, 5)),
         "steep bench table-1-cifar10 --only method=source --only severity=4,5 --only setting=paper"),
        (grid({"bn": 0.5}, limit=50, precision="bfloat16"),
         "steep bench experiments/before-after.toml --only method=bn --limit 50 --set precision=bfloat16"),
        (stream("mixed"), "steep bench mixed --only method=tea --only setting=paper"),
        (grid({"source": 0.5}, data="other"), None),
    ],
)  # fmt: skip
def test_the_command_that_makes_a_table_again(rows: Rows, expected: str | None) -> None:
    assert command(build(rows)[-1]) == expected


def test_the_buffer_kept_and_reset(tmp_path: Path) -> None:
    about = {"benchmark": "kept-buffer", "data": "cifar10-c", "model": "wrn-28-10", "severity": 5, "method": "tea"}
    rows = [{**about, "order": "forward", "seed": 0, "kept": kept, "n": 150_000, "mean": mean, "device": "NVIDIA H200"}
            for kept, mean in ((False, 0.85), (True, 0.8425))]  # fmt: skip
    (tmp_path / "kept.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    made = pages(evidence.read([tmp_path / "kept.jsonl"]), tmp_path)["results/sources.md"]
    assert "| tea | forward | 0 | 85.00 | 84.25 | −0.75 | 150,000 | NVIDIA H200 |" in made
    rows.append({**rows[1], "n": 30_000, "mean": 0.5})  # of fewer images: no pair with the others
    (tmp_path / "kept.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    made = pages(evidence.read([tmp_path / "kept.jsonl"]), tmp_path)["results/sources.md"]
    assert "| tea | forward | 0 | 85.00 | 84.25 | −0.75 | 150,000 | NVIDIA H200 |" in made
    assert "| tea | forward | 0 | – | 50.00 | – | 30,000 | NVIDIA H200 |" in made


def test_pictures_and_links_by_command(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    rows = grid({"source": 0.5, "tea": 0.8}, energy_before=-5.0, energy_after=-6.0)
    (results / "cifar.jsonl").write_bytes(b"".join(map(encode, rows)))
    (results / "README.md").write_text("# How\n", encoding="utf-8")
    flat = [
        {"analysis": "samples", "version": 1, "part": part_, "data": "mnist", "shift": "clean", "severity": 0,
         "seed": 0, "label": label, "kind": "real" if label == "real" else "samples", "model": "resnet-18-bn", "n": 10,
         "png": base64.b64encode(PIXEL).decode(), "mean_distance": 0.25, "covariance_distance": 0.125}
        for label in ("tea", "real")
        for part_ in ("picture", "distance")
    ]  # fmt: skip
    (results / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in flat), encoding="utf-8")
    docs = tmp_path / "docs"
    assert main([str(results), "--docs", str(docs)]) == 0
    for text in (file.read_text(encoding="utf-8") for file in docs.rglob("*.md")):
        assert str(tmp_path) not in text
    pages_ = {file.name: file.read_text(encoding="utf-8") for file in (docs / "results").glob("*.md")}
    links = {name: re.findall(r"\]\(([^)#]+)\)", text) for name, text in pages_.items()}
    assert all((docs / "results" / link).is_file() for each in links.values() for link in each)
    files = {f"../../results/{name}" for name in ("cifar.jsonl", "samples.jsonl", "README.md")}
    assert files <= set(links["sources.md"])
    pictures = docs / "images" / "results"
    assert (pictures / "samples-mnist-clean-real.png").read_bytes() == PIXEL
    chart = next(link for link in links["cifar10-c.md"] if "energy-gain" in link)
    assert (docs / "results" / chart).read_bytes().startswith(b"\x89PNG")
    assert "| real | tea |" in pages_["analyses.md"]
    assert "| mean 0.250, covariance 0.1250 | mean 0.250, covariance 0.1250 |" in pages_["analyses.md"]


def test_every_number_is_folded() -> None:
    made = page(grid(ten(0.9), (1, 2, 3, 4, 5)))
    open_ = re.sub(r"<details.*?</details>", "", made, flags=re.S)
    assert "gaussian" not in open_
    assert made.count("gaussian") > 1
