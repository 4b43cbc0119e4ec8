"""Write the README's headline table from the stored rows: python -m benchmarks.headline"""

from __future__ import annotations

from pathlib import Path

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


def written(readme: str) -> str:
    """The README with its table made anew."""
    head, rest = readme.split(BEGIN)
    return head + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    path = HOME / "README.md"
    path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
