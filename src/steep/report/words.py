"""Numbers and names as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from steep.data.declaration import DataSet
from steep.data.known import KNOWN
from steep.metrics.differences import MISSING as MISSING
from steep.metrics.differences import number as number
from steep.metrics.differences import signed as signed

_PROTOCOLS = {
    "reset": "model reset before each {}",
    "continual": "one {} after the other, never reset",
    "gradual": "severity rises and falls, never reset",
    "mixed": "every {} mixed in each batch",
    "label-shift": "classes come in bursts",
    "mixed-label-shift": "every {} mixed in each batch, classes come in bursts",
    "recurring": "all come again and again, never reset",
    "limited-time": "model reset before each {}, the stream does not wait",
}


def counted(numbers: Sequence[int]) -> str:
    """Write sorted counts as one or as a range."""
    return " to ".join(f"{n:,}" for n in dict.fromkeys((numbers[0], numbers[-1]))) if numbers else "unknown"


def duration(seconds: float) -> str:
    """Write a time the way people say it.

    >>> duration(5), duration(185), duration(7400)
    ('5 s', '3 min', '2 h 3 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def plain(text: object, keep: str = "") -> str:
    """Give text from a row as one line without control characters: a store may come from a stranger."""
    return "".join(c if c.isprintable() or c in keep else "\N{REPLACEMENT CHARACTER}" for c in str(text))


def short(commit: object) -> str:
    """Shorten a commit; that its tree had changes stays."""
    text = plain(commit)
    return text[:12] + ("-dirty" if text.endswith("-dirty") else "")


def declared(data: object) -> DataSet | None:
    """Find the declaration of a data set, corrupted or not; None of a set that is not steep's."""
    return KNOWN.get(str(data).removesuffix("-c"))


def data_title(name: object) -> str:
    """Name a data set.

    >>> data_title("cifar10-c"), data_title("tiny-imagenet"), data_title("mine")
    ('CIFAR-10-C', 'Tiny-ImageNet', 'mine')
    """
    known = declared(name)
    if known is None:
        return plain(name)
    corrupted = ", corrupted" if " " in known.title else "-C"
    return known.title + (corrupted if str(name).endswith("-c") else "")


def model_title(name: object) -> str:
    """Name a model.

    >>> model_title("wrn-28-10"), model_title("resnet-50-gn"), model_title("net.py:Net")
    ('WRN-28-10', 'ResNet-50 with GroupNorm', 'net.py:Net')
    """
    text = plain(name)
    if resnet := re.fullmatch(r"resnet-(\d+)-(bn|gn)", text):
        return f"ResNet-{resnet[1]}" + (" with GroupNorm" if resnet[2] == "gn" else "")
    return text.upper() if re.fullmatch(r"wrn-\d+-\d+", text) else text


def severity_range(severities: Sequence[int]) -> str:
    """Write severities as one range where they are one."""
    whole = list(severities) == list(range(severities[0], severities[-1] + 1))
    return f"{severities[0]}–{severities[-1]}" if whole and len(severities) > 1 else ", ".join(map(str, severities))


def heading(spec: Mapping[str, Any], severities: Sequence[int] = ()) -> str:
    """Say what was measured, as a heading.

    >>> heading({"data": "cifar10-c", "model": "wrn-28-10", "protocol": "reset", "limit": 2000}, (5,))
    'CIFAR-10-C, severity 5 · WRN-28-10 · model reset before each corruption · first 2,000 images'
    """
    where = data_title(spec["data"]) + (f" from {str(spec['source']).replace('_', ' ')}" if spec.get("source") else "")
    where += f", severity {severity_range(severities)}" if any(severities) else ""
    where += f", {spec['size']} pixels" if spec.get("size") else ""
    known, protocol = declared(spec["data"]), str(spec.get("protocol"))
    what = "domain" if known is not None and known.domains else "corruption"
    how = _PROTOCOLS[protocol].format(what) if protocol in _PROTOCOLS else protocol
    first = f"first {spec['limit']:,} images" if spec.get("limit") else ""
    return plain(" · ".join(filter(None, (where, model_title(spec.get("model")), how, first))))


def slug(spec: Mapping[str, Any], severities: Sequence[int] = ()) -> str:
    """Say the same with the names that recipes use, for files.

    >>> slug({"data": "cifar10-c", "model": "wrn-28-10", "protocol": "reset", "source": ""}, (5,))
    'cifar10-c s5 wrn-28-10 reset'
    """
    levels = f"s{severity_range(severities)}" if any(severities) else ""
    words = (spec["data"], spec.get("source"), levels, spec.get("model"), spec.get("protocol"))
    return plain(" ".join(str(word) for word in words if word))
