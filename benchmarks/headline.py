"""Write the README's headline table from the stored rows: python -m benchmarks.headline"""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean

from steep.bench.rows import read
from steep.report.formats import number
from steep.report.tables import build

HOME = Path(__file__).parent.parent
ROWS = HOME / "results" / "cifar10-c-severity-5.jsonl"
BEGIN, END = "<!-- headline: made by `python -m benchmarks.headline` -->", "<!-- /headline -->"


def table() -> str:
    """The mean over the 15 corruptions of every method, best first, the paper's figure beside it."""
    (found,) = build(read(ROWS))
    lines = sorted(found.lines, key=lambda line: -line.values["mean"].ours.mean)
    out = [
        "| method | accuracy | paper | mCE | ECE | images/s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for line in lines:
        value = {name: line.values[name] for name in ("mean", "mCE", "ECE", "images/s")}
        out.append(
            f"| {line.name} | {number(value['mean'].ours.mean)} | {number(value['mean'].paper)} "
            f"| {number(value['mCE'].ours.mean)} | {number(value['ECE'].ours.mean)} "
            f"| {value['images/s'].ours.mean:,.0f} |"
        )
    notes = "; ".join(found.notes)
    return "\n".join(
        [*out, "", f"<sub>{found.title}; {notes}. Rows: [results/{ROWS.name}](results/{ROWS.name}).</sub>"]
    )


def speed() -> str:
    """What tea-fast gives, in a sentence."""
    results = HOME / "results"
    rows = [json.loads(line) for line in (results / "speed-h200.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if (row["model"], row["batch"], row["mode"]) == ("wrn-28-10", 200, "compile+graph")]
    found = {row["method"]: row for row in rows}
    fast, paper, tent = found["tea-fast"], found["tea"], found["tent"]
    ours = [row for row in read(results / "tea-fast-h200.jsonl") if row["spec"]["method"] == "tea-fast"]
    ours = [row for row in ours if row["spec"]["shift"] != "clean"]
    theirs = [row for row in read(ROWS) if row["spec"]["method"] == "tea"]
    accuracy = 100 * mean(row["accuracy"] for row in ours)
    seeds, theirs_seeds = (len({row["spec"]["seed"] for row in own}) for own in (ours, theirs))
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
