"""Draw the pictures of the README and the docs: python docs/generate/pictures.py

`headline.png`, `compare.png` and `safety.png` from the stored rows, `protocols.png` from the streams themselves.
"""

from __future__ import annotations

import io
from pathlib import Path

import altair as alt
import numpy as np
from PIL import Image

import compare_table
import safety_table
from steep.bench.rows import read
from steep.data import PROTOCOLS, ImageSet, Shift, stream
from steep.methods import look_of

DOCS = Path(__file__).parents[1]
ROWS = DOCS.parent / "results" / "cifar10-c-40-epochs-h200.jsonl"
LEGEND = alt.Legend(orient="top", direction="horizontal", title=None, labelFontSize=14, symbolSize=140)
SHOWN = {"source": "as trained", "bn": "bn", "tent": "tent", "tea": "tea"}


def headline() -> alt.Chart:
    """Accuracy under each corruption: the model as trained, and adapted with three methods."""
    rows = [row for row in read(ROWS) if row["spec"]["method"] in SHOWN]
    points = [
        {
            "corruption": row["spec"]["shift"].replace("_", " "),
            "method": SHOWN[row["spec"]["method"]],
            "accuracy": 100 * row["accuracy"],
        }
        for row in rows
    ]
    lost = sorted((p for p in points if p["method"] == "as trained"), key=lambda p: p["accuracy"])
    y = alt.Y("corruption:N", sort=[p["corruption"] for p in lost], title=None)
    base = alt.Chart(alt.Data(values=points))
    lines = base.mark_rule(color="#d5dade", strokeWidth=3).encode(
        y=y,
        x=alt.X("min(accuracy):Q", title="accuracy, %", axis=alt.Axis(values=[*range(0, 101, 20)])),
        x2="max(accuracy):Q",
    )
    dots = base.mark_circle(size=140, opacity=1).encode(
        y=y,
        x=alt.X("accuracy:Q", scale=alt.Scale(domain=[0, 100])),
        color=alt.Color(
            "method:N",
            legend=LEGEND,
            scale=alt.Scale(domain=[*SHOWN.values()], range=[look_of(name).colour for name in SHOWN]),
        ),
    )
    severity, n = rows[0]["spec"]["severity"], rows[0]["n"]
    title = alt.Title(
        ["The same model, the same corrupted pictures,", "with and without adaptation"],
        subtitle=[
            f"CIFAR-10-C, severity {severity}, {rows[0]['spec']['model'].upper()},",
            f"{n:,} images per corruption",
        ],
    )
    return (lines + dots).properties(width=310, height=440, title=title)


def protocols() -> alt.Chart:
    """What each protocol shows an adapter: batch after batch, by kind of shift, and where it is reset."""
    kinds, classes = ("fog", "noise", "blur"), 4

    def made(kind: str, level: int, n: int) -> ImageSet:
        labels = np.random.default_rng(len(kind)).permutation(np.arange(n) % classes)
        images = np.full((n, 1, 1, 1), 10 * kinds.index(kind) + level, np.uint8)  # a picture says which set it is from
        names = tuple(map(str, range(classes)))
        return ImageSet(images=images, labels=labels, classes=names, name=kind, split="test", origin="", digest="")

    tiles = []
    for protocol in PROTOCOLS:
        levels, n = ((1, 2, 3), 2) if protocol == "gradual" else ((3,), 5 if protocol == "recurring" else 10)
        shifts = [Shift(kind, level, made(kind, level, n)) for kind in kinds for level in levels]
        pictures = [
            (round(255 * x.item()), y.item(), segment.reset and place == 0)
            for segment in stream(protocol, shifts, batch_size=1, rounds=2)
            for place, (x, y) in enumerate(segment.batches)
        ]
        for slot, (mark, label, reset) in enumerate(pictures):
            shown = {
                "shift": kinds[mark // 10],
                "strength": mark % 10,
                "class": label + 1,
                "reset": "▼" if reset else "",
            }
            tiles.append({"protocol": protocol, "slot": slot, **shown})
    base = alt.Chart(alt.Data(values=tiles)).encode(
        x=alt.X("slot:O", axis=None), y=alt.Y("protocol:N", sort=[*PROTOCOLS], title=None)
    )
    boxes = base.mark_rect(stroke="white", height=24).encode(
        color=alt.Color(
            "shift:N",
            sort=[*kinds],
            legend=LEGEND,
            scale=alt.Scale(range=["#7f9fb5", "#d98c5f", "#8d7bb8"]),
        ),
        opacity=alt.Opacity("strength:Q", scale=alt.Scale(domain=[0, 3], range=[0.1, 1]), legend=None),
    )
    numbers = base.mark_text(color="#1c1c1c", fontSize=14).encode(text="class:N")
    marks = base.mark_text(color="#b00020", dy=-19, fontSize=13).encode(text="reset:N")
    title = alt.Title(
        "What comes when",
        subtitle=[
            "time runs to the right; colour: shift, depth: severity,",
            "number: class, ▼: reset to the source model",
        ],
    )
    return (boxes + numbers + marks).properties(width=318, height=370, title=title)


def styled(chart: alt.Chart) -> alt.Chart:
    """Choose letters that are still read on a phone, where a picture is 360 pixels wide."""
    title = {"fontSize": 17, "subtitleFontSize": 14, "subtitleColor": "#555", "anchor": "start", "frame": "bounds"}
    axis = {"labelFontSize": 14, "titleFontSize": 14, "titleFontWeight": "normal", "labelLimit": 200}
    chart = chart.configure(font="DejaVu Sans", background="white").configure_axis(**axis, labelSeparation=6)
    return chart.configure_title(**title).configure_view(stroke=None)


def png(chart: alt.Chart, colours: int = 128) -> bytes:
    """Render a chart, with few enough colours that the file stays small."""
    raw = io.BytesIO()
    styled(chart).save(raw, format="png", scale_factor=1.6)
    small = io.BytesIO()
    Image.open(raw).convert("RGB").quantize(colours).save(small, "PNG", optimize=True)
    return small.getvalue()


if __name__ == "__main__":
    (DOCS / "headline.png").write_bytes(png(headline()))
    (DOCS / "protocols.png").write_bytes(png(protocols()))
    (DOCS / "images" / "compare.png").write_bytes(png(compare_table.picture()))
    (DOCS / "images" / "safety.png").write_bytes(png(safety_table.picture()))
