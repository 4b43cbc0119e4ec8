"""How every chart looks: one colour for each method, one theme, one way to be titled and described."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from steep.errors import InputError, install_extra
from steep.methods import METHODS, look_of
from steep.report.words import short

COLOURS = {name: look_of(name).colour for name in METHODS}
"""The colour of each method in every chart, as its class declares it: colour-blind readers tell them apart."""

BLUE, AMBER, RED, GREEN, GREY = "#0072B2", "#E69F00", "#D55E00", "#009E73", "#707070"
"""Of what is no method, such as energies and losses; Okabe and Ito's, which colour-blind readers tell apart."""

REAL = "#222222"
"""Of real images, and of means over methods."""

FAMILIES = {
    "clean": ("clean",),
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
    "weather": ("snow", "frost", "fog", "brightness", "spatter"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression", "saturate"),
}
FAMILY_COLOURS = {
    "clean": "#222222",
    "noise": "#D55E00",
    "blur": "#0072B2",
    "weather": "#009E73",
    "digital": "#CC79A7",
    "other": "#E69F00",
}
FAMILY_SHAPES = {
    "clean": "diamond",
    "noise": "circle",
    "blur": "square",
    "weather": "triangle-up",
    "digital": "cross",
    "other": "triangle-down",
}


def family(shift: str) -> str:
    """Name the family of a corruption.

    >>> family("fog"), family("sketch")
    ('weather', 'other')
    """
    return next((name for name, members in FAMILIES.items() if shift in members), "other")


def spoken(name: str) -> str:
    """Write a name the way people do.

    >>> spoken("jpeg_compression"), spoken("sgld_rate"), spoken("fog")
    ('JPEG compression', 'SGLD rate', 'Fog')
    """
    words = name.replace("_", " ").replace("jpeg", "JPEG").replace("sgld", "SGLD")
    return {"lr": "Adaptation rate"}.get(name, words[:1].upper() + words[1:])


def altair() -> Any:
    """Import Altair, or say what to install."""
    try:
        import altair as alt
    except ImportError as error:
        raise InputError(f"charts: expected altair to be installed. {install_extra('report')}") from error
    return alt


def theme() -> dict[str, Any]:
    """Give Vega-Lite's config: text a reader sees at report width, quiet axes, a white ground."""
    ink, quiet = "#1b1f24", "#57606a"
    font = "system-ui, 'Liberation Sans', 'DejaVu Sans', Helvetica, Arial, sans-serif"
    return {
        "background": "white",
        "font": font,
        "view": {"stroke": None, "continuousWidth": 280, "continuousHeight": 220},
        "title": {"anchor": "start", "fontSize": 13, "color": ink, "fontWeight": 600, "offset": 8, "frame": "group"},
        "axis": {
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelColor": ink,
            "titleColor": ink,
            "gridColor": "#e5e8eb",
            "domainColor": "#8c959f",
            "tickColor": "#8c959f",
            "labelOverlap": True,
        },
        "legend": {
            "labelFontSize": 12,
            "titleFontSize": 12,
            "labelColor": ink,
            "titleColor": quiet,
            "symbolSize": 90,
        },
        "header": {"labelFontSize": 12, "titleFontSize": 12, "labelColor": ink, "labelFontWeight": 600},
        "line": {"strokeWidth": 2},
        "point": {"size": 60, "filled": True},
    }


def colour(label: str) -> str:
    """Find the colour of a line: its method's, or black for real images.

    >>> colour("tea (tuned)") == colour("tea-after") == METHODS["tea"].look.colour, colour("real") == REAL
    (True, True)
    """
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


def coloured(alt: Any, labels: Iterable[str], **options: Any) -> Any:
    """Colour by the field `label`, each method as everywhere, in the order given."""
    every = list(dict.fromkeys(labels))
    scale = alt.Scale(domain=every, range=shades(every))
    legend = alt.Legend(title=options.pop("title", "method"), symbolOpacity=1)
    return alt.Color("label:N", scale=scale, legend=legend, **options)


def shaped(alt: Any, labels: Iterable[str], **options: Any) -> Any:
    """Shape by the field `label`, so that a print without colours can be read."""
    every = list(dict.fromkeys(labels))
    shapes = [look_of(_method(label)).marker for label in every]
    return alt.Shape("label:N", title=options.pop("title", "method"), scale=alt.Scale(domain=every, range=shapes))


def finish(chart: Any, rows: Sequence[dict[str, Any]], title: str, notes: Sequence[str], description: str) -> Any:
    """Title a chart with what it shows, on what it was measured and what is missing; describe it in words."""
    first = rows[0]
    what = [str(first[name]) for name in ("data", "model") if first.get(name)]
    if first.get("source"):
        what[0] += f" trained on {first['source']}"
    commit = f"commit {short(first['commit'])}" if first.get("commit") else ""
    made = [f"steep {first['steep']}" if first.get("steep") else "", commit]
    on = [f"on {first['device']}" if first.get("device") else "", (first.get("when") or "")[:10]]
    few = f"first {first['limit']} images of each set" if first.get("limit") else ""
    run = f"run {first['run']}" if first.get("run") else ""
    line = " · ".join(word for word in (run, ", ".join(what), few, *on, *made) if word)
    head = {"text": title, "subtitle": [*notes, line], "frame": "bounds", "fontSize": 16}
    head |= {"subtitleColor": "#57606a", "subtitleFontSize": 11}
    return chart.properties(title=head, description=f"{title}. {description}")
