"""Fill the tables and the figure of docs/speed.md from the stored rows: python -m benchmarks.speed_page"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.speed import passes
from steep.report.charts import theme
from steep.report.export import render
from steep.report.formats import without_empty
from tools.results_page.plates import small

HOME = Path(__file__).parent.parent
PAGE = HOME / "docs" / "speed.md"
FIGURE = HOME / "docs" / "images" / "tea-fast.png"
BLOCK = re.compile(r"(<!-- rows: (\w+) -->\n).*?(<!-- /rows -->)", re.DOTALL)

Row = dict[str, Any]


def read(name: str) -> list[Row]:
    path = HOME / "results" / name
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def table(head: list[str], lines: list[list[str]]) -> str:
    head, *lines = without_empty([head, *lines])
    rule = ["---" if i < 2 else "---:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines]) + "\n"


def speed(name: str) -> str:
    """Images/s and the rest: a table for each model and batch size of a speed run."""
    head = ["method", "how", "images/s", "× plain", "ms a batch", "GiB", "TFLOP/s", "of ceiling"]
    groups: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in read(name):
        groups[row["model"], row["batch"]].append(row)
    out = []
    for (model, batch), rows in groups.items():
        lines = []
        for row in rows:
            held = f"{row['gib']:.2f}" if "device" in row["memory_of"] else "–"  # a process's peak is of all its cells
            numbers = [f"{row['images_per_s']:,.0f}", f"{row['over_plain']:.2f}", f"{row['ms']:,.1f}", held]
            lines.append([row["method"], row["mode"], *numbers, f"{row['tflops']:.1f}", f"{row['of_ceiling']:.0%}"])
        row = rows[0]
        out.append(
            f"{table(head, lines)}\n<sub>{model}, batches of {batch}, {row['size']} × {row['size']} pixels, "
            f"{row['device']}, torch {row['versions']['torch']}, one run at commit {str(row['commit'])[:7]}; "
            f"`results/{name}`.</sub>\n"
        )
    return "\n".join(out)


def settings() -> list[Row]:
    """The settings of the search: what each costs, counted, and its mean accuracy over the four corruptions."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in read("search-tea-fast.jsonl"):
        found[row["spec"]["label"]].append(row)
    out = []
    for label, rows in found.items():
        spec = rows[0]["spec"]
        cost = passes(spec["method"], _known(spec["hyper"]), spec["batch_size"]) / spec["batch_size"]
        out.append({"label": label, "cost": cost, "accuracy": 100 * mean(r["accuracy"] for r in rows), "n": len(rows)})
    return out


def _known(hyper: Row) -> Row:
    return {name: value for name, value in hyper.items() if name in ("sgld_steps", "chains")}


def front(found: list[Row]) -> list[Row]:
    """The settings than which none is both cheaper and better."""
    best: list[Row] = []
    for row in sorted(found, key=lambda row: (row["cost"], -row["accuracy"])):
        if not best or row["accuracy"] > best[-1]["accuracy"]:
            best.append(row)
    return best


def search() -> str:
    """The front, and where the paper's setting and Tent lie."""
    found = [row for row in settings() if row["label"] != "source"]
    shown = {row["label"]: row for row in front(found)}
    shown |= {row["label"]: row for row in found if row["label"] in ("tent", "tea")}
    lines = [
        [row["label"], "front" if row in front(found) else "", f"{row['cost']:.2f}", f"{row['accuracy']:.2f}"]
        for row in sorted(shown.values(), key=lambda row: row["cost"])
    ]
    return table(["setting", "", "passes an image", "accuracy"], lines)


def accuracy() -> str:
    """tea-fast and the paper's setting on the benchmark, which the search never saw."""
    found: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name in ("cifar10-c-severity-5.jsonl", "tea-fast-h200.jsonl"):
        for row in read(name):
            spec = row["spec"]
            if spec["method"] in ("source", "tent", "tea", "tea-fast"):
                where = "clean" if spec["shift"] == "clean" else "severity 5"
                found[spec["method"], where][spec["seed"]].append(100 * row["accuracy"])
    lines = []
    for (method, where), seeds in sorted(found.items(), key=lambda item: (item[0][1], item[0][0])):
        means = [mean(values) for values in seeds.values()]
        each = ", ".join(f"{m:.2f}" for m in means)
        lines.append([method, where, f"{mean(means):.2f}", each, str(len(next(iter(seeds.values()))))])
    return table(["method", "data", "accuracy", "each seed", "sets"], lines)


def precisions() -> str:
    """The same sets in bfloat16 and in more: means, and the largest difference on one set."""
    found: dict[tuple[str, ...], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for name in ("cifar10-c-2000-h200.jsonl", "cifar10-c-tf32-2000-h200.jsonl", "wrn-40-2-cpu.jsonl"):
        for row in read(name):
            spec, env = row["spec"], row["env"]
            if (spec["severity"], spec["label"], spec["setting"], spec["seed"]) == (5, spec["method"], "paper", 0):
                device, images = env["device"].split(" (")[0], f"{row['n']:,}"
                where = spec["method"], spec["model"], device, images, spec["weights_sha256"]
                found[where][env["precision"]][spec["shift"]] = 100 * row["accuracy"]
    lines = []
    for (method, model, device, images, _), by in found.items():
        half = by.get("bfloat16", {})
        for precision in ("float32", "tf32"):
            full = by.get(precision, {})
            if full and half.keys() >= full.keys():
                most = max(abs(half[shift] - full[shift]) for shift in full)
                means = (mean(half[shift] for shift in full), mean(full.values()))
                away = f"{means[0] - means[1]:+.2f}".replace("-", "−")
                told = [f"{means[0]:.2f}", f"{precision} {means[1]:.2f}", away, f"{most:.2f}"]
                lines.append([method, model, device, *told, f"{len(full)} × {images}"])
    head = ["method", "model", "device", "bfloat16", "instead", "difference", "largest on one set", "images"]
    return table(head, lines)


MAKE = {
    "gpu": lambda: speed("speed-h200.jsonl"),
    "cpu": lambda: speed("speed-cpu.jsonl"),
    "search": search,
    "accuracy": accuracy,
    "precisions": precisions,
}


def written(page: str) -> str:
    """The page with its tables made anew."""
    return BLOCK.sub(lambda found: found[1] + MAKE[found[2]]() + found[3], page)


def draw(path: Path = FIGURE) -> None:
    """Accuracy against cost, every setting of the search a point, the front a line."""
    import altair as alt

    found = [row for row in settings() if row["label"] != "source"]
    named = {"tea": "the paper's", "tent": "Tent", "steps-3-rate-0.7-chains-25": "tea-fast"}
    for row in found:
        row["name"] = named.get(row["label"], "")
    x = alt.X("cost:Q", title="passes through the model per test image", scale=alt.Scale(type="log", domain=[1.8, 100]))
    y = alt.Y("accuracy:Q", title="mean accuracy, %", scale=alt.Scale(zero=False))
    points = alt.Chart(alt.Data(values=found)).mark_circle(size=60, opacity=0.75, color="#0f766e").encode(x, y)
    line = alt.Chart(alt.Data(values=front(found))).mark_line(interpolate="step-after", color="#0f766e").encode(x, y)
    text = alt.Chart(alt.Data(values=[row for row in found if row["name"]]))
    names = text.mark_text(dy=-14).encode(x, y, text="name:N")
    rings = text.mark_point(size=140, filled=False, color="#b45309", strokeWidth=2).encode(x, y)
    path.parent.mkdir(exist_ok=True)
    title = alt.Title("Every setting of the search", subtitle="mean over the four extra corruptions")
    chart = (points + line + rings + names).properties(width=340, height=300, title=title)
    path.write_bytes(small(render("png")(chart.configure(**theme()).to_dict())))


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    draw()
