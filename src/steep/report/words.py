"""Numbers and names as people write them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from steep.data.declaration import DataSet
from steep.data.known import KNOWN

MISSING = "–"

_PROTOCOLS = {
    "reset": "model reset before each {}",
    "continual": "one {} after the other, never reset",
    "gradual": "severity rises and falls, never reset",
    "mixed": "every {} mixed in each batch",
    "label-shift": "classes come in bursts",
}


def number(value: float | None, digits: int = 2) -> str:
    """Write a number; what is missing is a dash, never a zero.

    >>> number(83.337), number(None), number(math.nan)
    ('83.34', '–', 'NaN')
    """
    if value is None:
        return MISSING
    return "NaN" if math.isnan(value) else f"{value:.{digits}f}".replace("-", "−")


def signed(value: float | None, digits: int = 2) -> str:
    """Write a difference with its sign.

    >>> signed(0.5), signed(-0.5), signed(-0.001), signed(None)
    ('+0.50', '−0.50', '0.00', '–')
    """
    if value is None or value != value:
        return number(value)
    value = round(value, digits) or 0.0  # no sign where no digit is left
    return ("+" if value > 0 else "") + number(value, digits)


def counted(numbers: Sequence[int]) -> str:
    """Write sorted counts as one or as a range.

    >>> counted([2000, 10000]), counted([10])
    ('2,000 to 10,000', '10')
    """
    return " to ".join(f"{n:,}" for n in dict.fromkeys((numbers[0], numbers[-1]))) if numbers else "unknown"


def plain(text: object) -> str:
    """Give text from a row as one line without control characters: a store may come from a stranger.

    >>> plain("tea\\n\\x1b[31m"), plain("Δ ± 0.5")
    ('tea��[31m', 'Δ ± 0.5')
    """
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(text))


def short(commit: object) -> str:
    """Shorten a commit; that its tree had changes stays.

    >>> short("1c0a1c726cc5e6faf4d63c410c3a95483c552f7e-dirty"), short("1c0a1c726cc5e6faf4d63c410c3a95483c552f7e")
    ('1c0a1c726cc5-dirty', '1c0a1c726cc5')
    """
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
    """Write severities as one range where they are one.

    >>> severity_range((1, 2, 3)), severity_range((1, 5)), severity_range((5,))
    ('1–3', '1, 5', '5')
    """
    whole = list(severities) == list(range(severities[0], severities[-1] + 1))
    return f"{severities[0]}–{severities[-1]}" if whole and len(severities) > 1 else ", ".join(map(str, severities))


def protocol_words(spec: Mapping[str, Any]) -> str:
    """Say how the stream ran."""
    known = declared(spec.get("data"))
    what = "domain" if known is not None and known.domains else "corruption"
    protocol = plain(spec.get("protocol"))
    return _PROTOCOLS.get(protocol, protocol).format(what)


def heading(spec: Mapping[str, Any], severities: Sequence[int] = ()) -> str:
    """Say what was measured, as a heading.

    >>> heading({"data": "cifar10-c", "model": "wrn-28-10", "protocol": "reset", "limit": 2000}, (5,))
    'CIFAR-10-C, severity 5 · WRN-28-10 · model reset before each corruption · first 2,000 images'
    """
    where = data_title(spec["data"]) + (f" from {str(spec['source']).replace('_', ' ')}" if spec.get("source") else "")
    where += f", severity {severity_range(severities)}" if any(severities) else ""
    where += f", {spec['size']} pixels" if spec.get("size") else ""
    first = f"first {spec['limit']:,} images" if spec.get("limit") else ""
    return plain(" · ".join(filter(None, (where, model_title(spec.get("model")), protocol_words(spec), first))))


def slug(spec: Mapping[str, Any], severities: Sequence[int] = ()) -> str:
    """Say the same with the names that recipes use, for files.

    >>> slug({"data": "cifar10-c", "model": "wrn-28-10", "protocol": "reset", "source": ""}, (5,))
    'cifar10-c s5 wrn-28-10 reset'
    """
    levels = f"s{severity_range(severities)}" if any(severities) else ""
    words = (spec["data"], spec.get("source"), levels, spec.get("model"), spec.get("protocol"))
    return plain(" ".join(str(word) for word in words if word))
