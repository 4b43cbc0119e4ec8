"""How every chart looks: one colour for each method, one theme, one way to be titled and described."""

from __future__ import annotations

import json
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeAlias

from steep.errors import InputError, optional
from steep.methods import METHODS, look_of
from steep.report.charts.rows import Rows, figures
from steep.report.words import short

Parts: TypeAlias = defaultdict[str | None, Rows]  # rows of an analysis by their part
Drawing: TypeAlias = tuple[Any, str, Sequence[str], str]  # the chart, its title, its notes and what it shows in words

COLOURS = {name: look_of(name).colour for name in METHODS}
"""The colour of each method in every chart, as its class declares it: colour-blind readers tell them apart."""

BLUE, AMBER, RED, GREEN, GREY = "#0072B2", "#E69F00", "#D55E00", "#009E73", "#707070"
"""Of what is no method, such as energies and losses; Okabe and Ito's, which colour-blind readers tell apart."""

WIDTH = 400
"""Of a whole figure, in its own pixels. A phone shows it at nine tenths, and labels of 12 pixels can still be read."""

REAL = "#222222"
"""Of real images, and of means over methods."""

FAMILIES = {
    "clean": ("#222222", "diamond", ("clean",)),
    "noise": ("#D55E00", "circle", ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise")),
    "blur": ("#0072B2", "square", ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur")),
    "weather": ("#009E73", "triangle-up", ("snow", "frost", "fog", "brightness", "spatter")),
    "digital": ("#CC79A7", "cross", ("contrast", "elastic_transform", "pixelate", "jpeg_compression", "saturate")),
    "other": ("#E69F00", "triangle-down", ()),
}
"""Of each family of corruptions its colour, its shape and its members."""


def family(shift: str) -> str:
    """Name the family of a corruption."""
    return next((name for name, (_, _, members) in FAMILIES.items() if shift in members), "other")


def by_family(records: Rows, title: str) -> tuple[Any, Any]:
    """Colour and shape by the field `family`, of those that are there."""
    alt = altair()
    there = [name for name in FAMILIES if any(record["family"] == name for record in records)]
    colours, shapes = (alt.Scale(domain=there, range=[str(FAMILIES[name][i]) for name in there]) for i in (0, 1))
    below = legend(there, title, room=0.6)  # another legend may stand beside it
    return alt.Color("family:N", scale=colours, legend=below), alt.Shape("family:N", scale=shapes, legend=below)


def spoken(name: str) -> str:
    """Write a name the way people do."""
    words = name.replace("_", " ").replace("jpeg", "JPEG").replace("sgld", "SGLD")
    return {"lr": "Adaptation rate"}.get(name, words[:1].upper() + words[1:])


def altair() -> Any:
    """Import Altair, or say what to install."""
    return optional("altair", "report")


def theme() -> dict[str, Any]:
    """Give Vega-Lite's config: text a reader sees at report width, quiet axes, a white ground."""
    config: dict[str, Any] = json.loads((resources.files("steep.report") / "assets" / "theme.json").read_bytes())
    return config


def colour(label: str) -> str:
    """Find the colour of a line: its method's, or black for real images."""
    return REAL if label == "real" else look_of(_method(label)).colour


def _method(label: str) -> str:
    """Find the method of a line such as `tea (tuned)`; a line of no known method stands for itself."""
    fits = [name for name in METHODS if label == name or label.startswith((f"{name} ", f"{name}-"))]
    return max(fits, key=len, default=label.removesuffix(" (tuned)"))


def shades(names: Sequence[str]) -> list[str]:
    """Give each line its method's colour; the second and later lines of one method get lighter shades of it.

    >>> tea, tuned = shades(["tea", "tea (tuned)"])
    >>> tea == colour("tea"), all(int(tuned[i : i + 2], 16) >= int(tea[i : i + 2], 16) for i in (1, 3, 5))
    (True, True)
    """
    seen: dict[str, int] = {}
    chosen = []
    for name in names:
        base = colour(name)
        share = 1 - 0.6 ** seen.get(base, 0)  # of white
        seen[base] = seen.get(base, 0) + 1
        parts = (int(base[i : i + 2], 16) for i in (1, 3, 5))
        chosen.append("#" + "".join(f"{round(part + share * (255 - part)):02X}" for part in parts))
    return chosen


def legend(names: Iterable[str], title: str | None = None, room: float = 0.8) -> Any:
    """Put the names below a chart, in as many columns as there is room for: a share of the width."""
    longest = max((len(name) for name in names), default=1)
    columns = max(1, int(room * WIDTH) // (30 + 7 * longest))
    return altair().Legend(orient="bottom", columns=columns, title=title, symbolOpacity=1, labelLimit=300)


def titled(spec: dict[str, Any], title: str, subtitle: str = "") -> dict[str, Any]:
    """Give a chart a title, unless it has one of its own, in lines that are no wider than the chart."""
    whole = {"text": title, "subtitle": subtitle, "anchor": "start", "frame": "bounds", **spec.get("title", {})}
    for name, letter in (("text", 9.5), ("subtitle", 5.7)):  # the width of a letter, on average
        parts = [whole[name]] if isinstance(whole[name], str) else whole[name]
        lines = [line for part in parts for line in textwrap.wrap(part, int(WIDTH / letter))]
        whole[name] = lines if len(lines) > 1 else "".join(lines)
    return {**spec, "title": whole}


def by_label(labels: Iterable[str], title: str = "method") -> tuple[Any, Any]:
    """Colour and shape by the field `label`, each method as everywhere; a print without colours can be read too."""
    alt, every = altair(), list(dict.fromkeys(labels))
    colours = alt.Scale(domain=every, range=shades(every))
    shapes = alt.Scale(domain=every, range=[look_of(_method(label)).marker for label in every])
    below = legend(every, title)
    return alt.Color("label:N", scale=colours, legend=below), alt.Shape("label:N", scale=shapes, legend=below)


def plot(mark: str, records: Rows | None, look: dict[str, Any] | None = None, tip: str = "", **channels: Any) -> Any:
    """Draw records (None: those of the chart around it) as marks that look so.

    `tip` has the fields that pointing at a mark shows, each with the format and the title it needs.

    >>> chart = plot("bar", [{"gain": 1.5}], {"color": BLUE}, "gain:Q .2f", y="gain:Q")
    >>> chart.to_dict()["mark"]["type"], chart.to_dict()["encoding"]["tooltip"][0]["format"]
    ('bar', '.2f')
    """
    alt = altair()
    base = alt.Chart() if records is None else alt.Chart({"values": records})
    chart = getattr(base, f"mark_{mark}")(**(look or {})).encode(**channels)
    tips = [
        alt.Tooltip(field, **dict(zip(("format", "title"), more, strict=False)))
        for field, *more in (part.split(" ", 2) for part in tip.split(", ") if part)
    ]
    return chart.encode(tooltip=tips) if tips else chart


@dataclass(frozen=True)
class Chart:
    """The chart of one analysis: from rows, by their part, to tables, and from both to a drawing."""

    analysis: str
    main: str  # the part without which there is no chart; its rows say what was run
    collect: Callable[[Parts], dict[str, Rows]]
    draw: Callable[[Parts, dict[str, Rows]], Drawing]

    def tables(self, rows: Rows) -> dict[str, Rows]:
        """Give the numbers behind the chart, as tables by name."""
        return self.collect(self._parts(rows))

    def __call__(self, rows: Rows) -> Any:
        """Draw rows with Altair, several figures one below the other."""
        drawn = [self._drawn(self._parts(group)) for group in list(figures(rows).values()) or [rows]]
        if len(drawn) == 1:
            return drawn[0].configure(**theme())
        whole = altair().vconcat(*drawn, spacing=48)
        return whole.resolve_scale(color="independent", shape="independent").configure(**theme())

    def _parts(self, rows: Rows) -> Parts:
        """Part the rows, a severity that is none as 0; refuse those of another analysis, and rows that are too few."""
        parts, name = Parts(list), self.analysis
        for row in rows:
            if row.get("analysis") != name:
                raise InputError(f"chart {name}: expected rows of {name}, got some of {row.get('analysis')}")
            parts[row.get("part")].append({**row, "severity": row.get("severity") or 0})
        if not parts[self.main]:
            raise InputError(f"chart {name}: expected at least one row, got none. Run: steep analyze {name}")
        return parts

    def _drawn(self, parts: Parts) -> Any:
        """Title a drawing with what it shows, on what it was measured and what is missing; describe it in words."""
        chart, title, notes, description = self.draw(parts, self.collect(parts))
        first = parts[self.main][0]
        what = [str(first[name]) for name in ("data", "model") if first.get(name)]
        if first.get("source"):
            what[0] += f" trained on {first['source']}"
        known = (
            ("run {}", first.get("run")),
            ("{}", ", ".join(what)),
            ("first {} images of each set", first.get("limit")),
            ("on {}", first.get("device")),
            ("{}", (first.get("when") or "")[:10]),
            ("steep {}", first.get("steep")),
            ("commit {}", first.get("commit") and short(first["commit"])),
        )
        line = " · ".join(form.format(value) for form, value in known if value)
        head = {"text": title, "subtitle": [*filter(None, notes), line], "frame": "bounds", "fontSize": 16}
        return chart.properties(title=head, description=f"{title}. {description}")


def cut(what: str) -> str:
    """Note which axes do not begin at zero: where a zero means nothing, or nothing could be seen from it.

    >>> cut("energy")
    'the axes of energy do not begin at zero'
    """
    return f"the axes of {what} do not begin at zero"


def not_drawn(count: int, what: str = "values") -> str:
    """Note how many of what is not a number; nothing where all are."""
    return f"{count} {what} are not finite and not drawn" if count else ""
