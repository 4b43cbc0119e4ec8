"""Fill the tables and the figure of docs/speed.md from the stored rows: python -m benchmarks.speed_page"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.speed import passes
from steep.methods import METHODS, SOURCE, look_of
from steep.report.charts import theme
from steep.report.charts.style import GREY
from steep.report.export import render
from steep.report.formats import without_empty
from tools.results_page.plates import small

HOME = Path(__file__).parent.parent
PAGE = HOME / "docs" / "speed.md"
FIGURE = HOME / "docs" / "images" / "tea-fast.png"
SHOWN = (SOURCE, "tent", "tea", "tea-fast")
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
    groups: dict[tuple[str, int, str], list[Row]] = defaultdict(list)
    for row in read(name):
        groups[row["model"], row["batch"], str(row["commit"])].append(row)
    out = []
    for (model, batch, commit), rows in groups.items():
        lines = []
        for row in rows:
            gib = f"{row['gib']:.2f}" if "device" in row["memory_of"] else "–"  # a process's peak is of all its cells
            numbers = [f"{row['images_per_s']:,.0f}", f"{row['over_plain']:.2f}", f"{row['ms']:,.1f}", gib]
            lines.append([row["method"], row["mode"], *numbers, f"{row['tflops']:.1f}", f"{row['of_ceiling']:.0%}"])
        row = rows[0]
        out.append(
            f"{table(head, lines)}\n<sub>{model}, batches of {batch}, {row['size']} × {row['size']} pixels, "
            f"{row['device']}, torch {row['versions']['torch']}, one run at commit {commit[:7]}; "
            f"`results/{name}`.</sub>\n"
        )
    return "\n".join(out)


def settings() -> list[Row]:
    """The settings of the search: what each costs, counted, and its mean accuracy over the four corruptions."""
    by_label: dict[str, list[Row]] = defaultdict(list)
    for row in read("search-tea-fast.jsonl"):
        by_label[row["spec"]["label"]].append(row)
    out = []
    for label, rows in by_label.items():
        spec = rows[0]["spec"]
        if not METHODS[spec["method"]].moves:
            continue
        cost = passes(spec["method"], _known(spec["hyper"]), spec["batch_size"]) / spec["batch_size"]
        about = {"label": label, "method": spec["method"], "usual_of": _usual_of(spec), "n": len(rows)}
        out.append({**about, "cost": cost, "accuracy": 100 * mean(r["accuracy"] for r in rows)})
    return out


def _usual_of(spec: Row) -> str:
    """Name the method whose usual values a setting has: that of the row, or one made of it; nothing where none."""
    for name, method in METHODS.items():
        if issubclass(method, METHODS[spec["method"]]):
            usual = json.loads(json.dumps(asdict(method())))
            if all(usual[key] == value for key, value in spec["hyper"].items()):
                return name
    return ""


def _known(hyper: Row) -> Row:
    return {name: value for name, value in hyper.items() if name in ("sgld_steps", "chains")}


def front(every: list[Row]) -> list[Row]:
    """The settings than which none is both cheaper and better."""
    best: list[Row] = []
    for row in sorted(every, key=lambda row: (row["cost"], -row["accuracy"])):
        if not best or row["accuracy"] > best[-1]["accuracy"]:
            best.append(row)
    return best


def search() -> str:
    """The front, and where the paper's setting and Tent lie."""
    every = settings()
    best = front(every)
    lines = [
        [row["label"], "front" if row in best else "", f"{row['cost']:.2f}", f"{row['accuracy']:.2f}"]
        for row in sorted(every, key=lambda row: row["cost"])
        if row in best or row["label"] == row["usual_of"]
    ]
    return table(["setting", "", "passes an image", "accuracy"], lines)


def accuracy() -> str:
    """tea-fast and the paper's setting on the benchmark, which the search never saw."""
    accuracies: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name in ("cifar10-c-severity-5.jsonl", "tea-fast-h200.jsonl"):
        for row in read(name):
            spec = row["spec"]
            if spec["method"] in SHOWN:
                where = "clean" if spec["shift"] == "clean" else "severity 5"
                accuracies[spec["method"], where][spec["seed"]].append(100 * row["accuracy"])
    lines = []
    for (method, where), seeds in sorted(accuracies.items(), key=lambda item: (item[0][1], item[0][0])):
        means = [mean(values) for values in seeds.values()]
        each = ", ".join(f"{m:.2f}" for m in means)
        lines.append([method, where, f"{mean(means):.2f}", each, str(len(next(iter(seeds.values()))))])
    return table(["method", "data", "accuracy", "each seed", "sets"], lines)


def precisions() -> str:
    """The same sets in bfloat16 and in more: means, and the largest difference on one set."""
    by_precision: dict[tuple[str, ...], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for name in ("cifar10-c-2000-h200.jsonl", "cifar10-c-tf32-2000-h200.jsonl", "wrn-40-2-cpu.jsonl"):
        for row in read(name):
            spec, env = row["spec"], row["env"]
            if (spec["severity"], spec["label"], spec["setting"], spec["seed"]) == (5, spec["method"], "paper", 0):
                device, images = env["device"].split(" (")[0], f"{row['n']:,}"
                where = spec["method"], spec["model"], device, images, spec["weights_sha256"]
                by_precision[where][env["precision"]][spec["shift"]] = 100 * row["accuracy"]
    lines = []
    for (method, model, device, images, _), by in by_precision.items():
        half = by.get("bfloat16", {})
        for precision in ("float32", "tf32"):
            full = by.get(precision, {})
            if full and half.keys() >= full.keys():
                most = max(abs(half[shift] - full[shift]) for shift in full)
                means = (mean(half[shift] for shift in full), mean(full.values()))
                away = f"{means[0] - means[1]:+.2f}".replace("-", "−")
                numbers = [f"{means[0]:.2f}", f"{precision} {means[1]:.2f}", away, f"{most:.2f}"]
                lines.append([method, model, device, *numbers, f"{len(full)} × {images}"])
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
    return BLOCK.sub(lambda block: block[1] + MAKE[block[2]]() + block[3], page)


def draw(path: Path = FIGURE) -> None:
    """Accuracy against cost, every setting of the search a point in its method's colour, the front a line."""
    import altair as alt

    every = settings()
    usual = [row for row in every if row["usual_of"]]
    looks = [look_of(row["usual_of"]) for row in usual]
    x = alt.X("cost:Q", title="passes through the model per test image", scale=alt.Scale(type="log", domain=[1.6, 100]))
    y = alt.Y("accuracy:Q", title="mean accuracy, % (does not begin at 0)", scale=alt.Scale(zero=False))
    names = alt.Scale(domain=[row["usual_of"] for row in usual], range=[look.colour for look in looks])
    marks = alt.Scale(domain=names.domain, range=[look.marker for look in looks])
    colour, shape = alt.Color("usual_of:N", scale=names, legend=None), alt.Shape("usual_of:N", scale=marks, legend=None)
    others = alt.Chart(alt.Data(values=[row for row in every if not row["usual_of"]])).transform_calculate(
        usual_of="datum.method"
    )
    small_points = others.mark_circle(size=40, opacity=0.5).encode(x, y, color=colour)
    line = alt.Chart(alt.Data(values=front(every))).mark_line(interpolate="step-after", color=GREY).encode(x, y)
    text = alt.Chart(alt.Data(values=usual))
    points = text.mark_point(size=160, filled=True, opacity=1).encode(x, y, color=colour, shape=shape)
    labels = text.mark_text(dy=-16, fontWeight="bold").encode(x, y, text="usual_of:N", color=colour)
    path.parent.mkdir(exist_ok=True)
    title = alt.Title(
        "Every setting of the search",
        subtitle=[
            "mean over the four extra corruptions; small: other",
            "settings of tea; line: none is cheaper and better",
        ],
    )
    chart = (line + small_points + points + labels).properties(width=340, height=300, title=title)
    path.write_bytes(small(render("png")(chart.configure(**theme()).to_dict())))


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    draw()
