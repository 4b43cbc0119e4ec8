"""The pages of analyses, and of source models, files and what was not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from steep.bench.rows import Row
from steep.report.charts import CHARTS
from steep.report.figures import analysed
from steep.report.formats import in_markdown
from steep.report.summary import facts
from steep.report.words import counted, number, plain, short, signed
from tools.results_page.blocks import link, text_table
from tools.results_page.evidence import Evidence
from tools.results_page.expected import coverage
from tools.results_page.plates import Plates
from tools.results_page.trainings import decisive

_ABOUT = ("data", "model", "methods", "device")  # of an analysis


def analyses_page(rows: Sequence[Row], plates: Plates | None) -> str:
    """Show the charts of `steep analyze`, and its samples."""
    blocks = ["# Analyses", "Made from stored rows of `steep analyze`."]
    for name in CHARTS:
        own_rows = [row for row in rows if row["analysis"] == name]
        if not own_rows:
            continue
        known = facts((), own_rows)
        files = ", ".join(dict.fromkeys(plain(row.get("run", "")) for row in own_rows))
        images = sorted({int(r["n"]) for r in own_rows if isinstance(r.get("n"), int) and r.get("part") != "bin"})
        about = [f"{len(own_rows):,} rows", f"n = {counted(images)}", *(known.get(what, "") for what in _ABOUT)]
        about += [f"commit {known['commit']}" if "commit" in known else "", f"files: {files}"]
        blocks.append(f"## {in_markdown(name)}")
        blocks.append(in_markdown("; ".join(word for word in about if word)) + f"; `steep analyze {plain(name)}`")
        if plates is not None:
            blocks += [plates.figure(figure, f"analysis {figure.name}") for figure in analysed(own_rows)]
            blocks += plates.samples(own_rows) if name == "samples" else []
    return "\n\n".join(blocks) + "\n"


def sources_page(evidence: Evidence, home: Path) -> str:
    """List source models, the kept buffer, recipes that have not run, and every file."""
    blocks = ["# Source models, files, and what was not run"]
    blocks += _trainings(evidence.trainings, evidence.runs.rows)
    blocks += _buffers(evidence.buffers)
    left = [c for c in coverage(evidence.runs.rows, evidence.runs.analyses) if c.here < c.wanted or c.lacks or c.limits]
    if left:
        body = [[one.recipe, one.about, one.state, one.lacks] for one in left]
        blocks += ["## Recipes that have not run, or not all of them"]
        blocks.append(text_table([["recipe", "what", "here", "missing"], *body]))
    blocks += _files(evidence, home)
    blocks.append("\n".join(f"- {in_markdown(note)}" for note in evidence.runs.notes))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _trainings(trainings: Sequence[Row], rows: Sequence[Row]) -> Iterator[str]:
    """Say how the source models were made: what they are decides most of every number."""
    if not trainings:
        return
    yield "## The source models"
    head = ["data", "model", "pixels", "epochs", "batch", "border", "seed", "accuracy", "on", "weights", "device"]
    body = [
        [
            *(plain(row[name]) for name in ("data", "architecture")),
            plain(row["image_shape"][0]),
            plain(row["epochs"]),
            *(plain(decisive(row).get(name, "")) for name in ("batch_size", "border")),
            plain(row["seed"]),
            number(100 * float(row["accuracy"])),
            f"{int(row['test_images']):,}",
            plain(row.get("weights_sha256") or "")[:12],
            plain(row["device"]),
            short(row.get("commit") or ""),
            plain(row["run"]),
        ]
        for row in trainings
    ]
    stored = {row.get("weights_sha256") for row in trainings}
    lost = {spec["weights_sha256"]: spec for row in rows if (spec := row["spec"]).get("weights_sha256") not in stored}
    for digest, spec in lost.items():
        data = plain(spec["data"]).removesuffix("-c") + (f"/{plain(spec['source'])}" if spec.get("source") else "")
        row = [data, plain(spec["model"]), *[""] * 7, plain(digest or "")[:12]]
        body.append([*row, "", "", "its training has no row"])
    yield text_table([[*head, "commit", "file"], *body])


def _buffers(rows: Sequence[Row]) -> Iterator[str]:
    """Set TEA with new chains for each corruption beside TEA with those of the corruption before."""
    if not rows:
        return
    yield "## The buffer: reset, or kept as in the published code"
    named = ("data", "model", "severity", "method", "order", "seed")
    pairs: dict[tuple[str, ...], dict[bool, Row]] = {}
    for row in rows:  # other images, batches, devices or commits are another pair
        words = (row.get(name) for name in (*named, "n", "batch", "device", "commit", "run"))
        about = tuple("" if word is None else plain(word) for word in words)
        pairs.setdefault(about, {})[bool(row["kept"])] = row
    body = []
    for about, pair in pairs.items():
        reset, kept = (100 * float(pair[k]["mean"]) if k in pair else None for k in (False, True))
        away = None if reset is None or kept is None else kept - reset
        n, _, device, commit, run = about[len(named) :]
        numbers = [number(reset), number(kept), signed(away)]
        body.append([*about[: len(named)], *numbers, f"{int(n):,}", device, short(commit), run])
    head = ["data", "model", "severity", "method", "order of corruptions", "seed", "reset", "kept", "kept less reset"]
    yield text_table([[*head, "answers", "device", "commit", "file"], *body])


def _files(evidence: Evidence, home: Path) -> Iterator[str]:
    """Link every file of rows, with its digest, when it was made, on what and from which commit."""
    files: list[tuple[str, int, str, Path | None, dict[str, str]]] = []
    for source in evidence.runs.sources:
        known = facts(source.rows, source.analyses)
        count = len(source.rows) + len(source.analyses)
        files.append((source.name, count, source.sha256, source.file, known))
    files += [(*other, {}) for other in evidence.others]
    if not files:
        return
    yield "## Where the numbers come from"
    folders = dict.fromkeys(file.parent for *_, file, _ in files if file is not None)
    for folder in folders:
        if (folder / "README.md").is_file():
            yield f"How each file was made: [README]({link(folder / 'README.md', home)})."
    lines = text_table([["file", "rows", "sha256", "when", "device", "commit"], *(
        [name, str(count), digest[:16], *(known.get(what, "") for what in ("when", "device", "commit"))]
        for name, count, digest, _, known in files
    )]).split("\n")  # fmt: skip
    for index, (name, _, _, file, _) in enumerate(files, 2):
        if file is not None:
            text = in_markdown(name)
            lines[index] = lines[index].replace(f"| {text} |", f"| [{text}]({link(file, home)}) |", 1)
    yield "\n".join(lines)
