"""The pictures of a results page, as files beside it: charts of tables and analyses, and grids of samples."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from steep.bench.rows import Row
from steep.files import write_bytes
from steep.methods import SOURCE
from steep.report.charts.samples import is_png, place_of, where_of
from steep.report.charts.style import titled
from steep.report.export import file_name, free, render
from steep.report.figures import Figure, of
from steep.report.formats import in_markdown, pipes
from steep.report.paper import SUBJECT
from steep.report.tables import Table
from steep.report.words import number, slug

_LABELS = ("real", SOURCE, "tent", SUBJECT)


class Plates:
    """Writes pictures into a folder and gives the Markdown that shows them."""

    def __init__(self, folder: Path, page: Path, draw: bool = True) -> None:
        """Take the folder of the pictures, the folder the pages will lie in, and whether to draw: it takes longest."""
        self.folder, self.draw = folder, draw
        self._link = Path(*_relative(folder, page)).as_posix()
        self._taken: set[str] = set()

    def of_table(self, table: Table) -> list[str]:
        """Draw what a ranking does not say: how accuracy falls with severity, and what energy has to do with it."""
        where = slug(table.spec, table.severities)
        wanted = [made for made in of(table) if made.name == "severity"]
        if len(table.severities) == 1:  # of TEA, which the claim is about; others only hide it
            few = replace(table, lines=tuple(line for line in table.lines if line.name in (SOURCE, SUBJECT)))
            wanted += [made for made in of(few) if made.name == "energy-gain"]
        return [self.figure(made, f"{where} {made.name}", table.title) for made in wanted]

    def figure(self, made: Figure, name: str, where: str = "") -> str:
        """Draw a figure, and give its place in the page."""
        content = b""
        if self.draw:
            content = small(render("png")(titled(made.spec(), made.title, where)))
        return self._show(name, content, f"{made.title}. {made.caption}")

    def samples(self, rows: Sequence[Row]) -> list[str]:
        """Lay out, for each set, test images beside samples of every model, with their distances below."""
        places: dict[tuple[Any, ...], dict[str, Row]] = {}
        for row in rows:
            text = row.get("png")
            wanted = row.get("part") == "picture" and row.get("kind") in ("real", "samples")
            if wanted and isinstance(text, str) and is_png(text):
                places.setdefault(place_of(row), {}).setdefault(str(row.get("label")), row)
        by_label = {(place_of(row), str(row.get("label"))): row for row in rows if row.get("part") == "distance"}
        shown = []
        for place, pictures in places.items():
            labels = sorted(pictures, key=lambda label: _LABELS.index(label) if label in _LABELS else len(_LABELS))
            where = where_of(*place[:-1], run=None)
            images = [
                self._show(f"samples {where} {label}", base64.b64decode(pictures[label]["png"]), f"{where}: {label}")
                for label in labels
            ]
            distances = [by_label.get((place, label)) for label in labels]
            below = ["" if row is None else f"mean {number(row['mean_distance'], 3)}, covariance "
                     f"{number(row['covariance_distance'], 4)}" for row in distances]  # fmt: skip
            head, rule, distance = pipes([labels, below], "---|").split("\n")
            shown.append(f"**{in_markdown(where)}**")
            shown.append("\n".join([head, rule, "| " + " | ".join(images) + " |", distance]))
        return shown

    def _show(self, name: str, content: bytes, alt: str) -> str:
        file = free(file_name(name), self._taken) + ".png"
        if self.draw:
            write_bytes(self.folder / file, content)
        return f"![{in_markdown(alt)}]({self._link}/{file})"


def small(content: bytes) -> bytes:
    """Write a chart in 128 colours, which it hardly has: a third of the bytes."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(io.BytesIO(content)).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(
        out, "PNG", optimize=True
    )
    return out.getvalue()


def _relative(folder: Path, page: Path) -> tuple[str, ...]:
    """Say how to get from the page to the pictures."""
    return Path(os.path.relpath(folder.resolve(), page.resolve())).parts
