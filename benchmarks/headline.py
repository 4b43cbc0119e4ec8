"""Write the README's headline table from the stored rows: python -m benchmarks.headline"""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean

from steep.bench.rows import read
from steep.report.formats import number
from steep.report.paper import SUBJECT
from steep.report.tables import build

HOME = Path(__file__).parent.parent
ROWS = HOME / "results" / "cifar10-c-40-epochs-h200.jsonl"  # a source model as accurate as the paper's
BETTER = HOME / "results" / "cifar10-c-severity-5.jsonl"  # one of the recipe's 104 epochs; ran alone, so it has speeds
FAST = "tea-fast"
BEGIN, END = "<!-- headline: made by `python -m benchmarks.headline` -->", "<!-- /headline -->"


def table() -> str:
    """The mean over the 15 corruptions of every method of the paper, best first, the paper's figure beside it."""
    (shown,), (better,) = build(read(ROWS)), build(read(BETTER))
    others = {line.name: line for line in better.lines}
    lines = [line for line in shown.lines if line.values["mean"].paper is not None]
    out = [
        "| method | accuracy | paper | mCE | paper | ECE | better source | images/s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for line in sorted(lines, key=lambda line: -line.values["mean"].ours.mean):
        mean, mce, other = line.values["mean"], line.values["mCE"], others[line.name].values
        cells = [mean.ours.mean, mean.paper, mce.ours.mean, mce.paper, line.values["ECE"].ours.mean]
        cells = [*map(number, cells), number(other["mean"].ours.mean), f"{other['images/s'].ours.mean:,.0f}"]
        out.append(f"| {' | '.join([line.name, *cells])} |")
    notes = [
        f"{what}: {'; '.join(built.notes)}. Rows: [results/{file.name}](results/{file.name})."
        for what, built, file in ((shown.title, shown, ROWS), ("Better source, and images/s", better, BETTER))
    ]
    return "\n".join([*out, "", *(f"<sub>{note}</sub>" for note in notes)])


def speed() -> str:
    """What the fast setting gives, in a sentence."""
    results = HOME / "results"
    rows = [json.loads(line) for line in (results / "speed-h200.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if (row["model"], row["batch"], row["mode"]) == ("wrn-28-10", 200, "compile+graph")]
    by_method = {(row["method"], row["commit"]): row for row in rows}
    (run,) = {row["commit"] for row in rows if row["method"] == FAST}  # its numbers are compared within one run
    fast, paper, tent = (by_method[name, run] for name in (FAST, SUBJECT, "tent"))
    ours = [row for row in read(results / "tea-fast-h200.jsonl") if row["spec"]["method"] == FAST]
    ours = [row for row in ours if row["spec"]["shift"] != "clean"]
    theirs = [row for row in read(BETTER) if row["spec"]["method"] == SUBJECT]
    accuracy = 100 * mean(row["accuracy"] for row in ours)
    seeds, theirs_seeds = (len({row["spec"]["seed"] for row in runs}) for runs in (ours, theirs))
    times, theirs_right = fast["over_plain"], 100 * mean(row["accuracy"] for row in theirs)
    return (
        f"On one {fast['device']} it adapts {fast['images_per_s']:,.0f} images/s, {times:.0f} times a plain TEA;\n"
        f"  the paper's setting {paper['images_per_s']:,.0f}, tent {tent['images_per_s']:,.0f} "
        f"({fast['model']}, batch {fast['batch']}). Over the 15 corruptions\n  it answers {accuracy:.2f} % right "
        f"(seeds: {seeds}), the paper's setting {theirs_right:.2f} % (seeds: {theirs_seeds})."
    )


def written(readme: str) -> str:
    """The README with its table and its sentence on speed made anew."""
    head, rest = readme.split(BEGIN)
    readme = head + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1]
    sentence = f"<!-- speed -->\n  {speed()}\n  <!-- /speed -->"
    return re.sub(r"<!-- speed -->.*?<!-- /speed -->", sentence, readme, flags=re.DOTALL)


if __name__ == "__main__":
    path = HOME / "README.md"
    path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
