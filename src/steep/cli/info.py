"""`steep info`: what a bug report needs, and nothing that says who or where you are."""

from __future__ import annotations

import json
import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Annotated

import torch
import typer

from steep.core.run.precision import half_precision
from steep.provenance import commit, device_name
from steep.version import __version__

_NOT_FOR_USERS = ("dev", "docs")


def info(as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False) -> None:
    """Show versions, device and capabilities, for a bug report. No path, no host and no user name is in it.

    Example: steep info

    Example: steep info --json
    """
    report = gather()
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    for title, entries in report.items():
        typer.echo(title)
        for name, value in entries.items():
            typer.echo(f"  {name:<18} {value}")


def gather() -> dict[str, dict[str, str]]:
    """Collect it all, by section, as text.

    >>> sorted(gather())
    ['device', 'extras', 'libraries', 'steep']
    """
    requirements = _requirements()
    return {
        "steep": {
            "version": __version__,
            "commit": commit() or "not from a checkout",
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "system": f"{platform.system()} {platform.machine()}",
        },
        "libraries": {name: _version(name) for name in requirements.pop("", [])},
        "extras": {
            extra: ", ".join(f"{name} {_version(name)}" for name in names)
            for extra, names in requirements.items()
            if extra not in _NOT_FOR_USERS
        },
        "device": _device(),
    }


def _requirements() -> dict[str, list[str]]:
    """Read what steep asks for from its own metadata, by extra; those without one are under the empty name."""
    try:
        lines = requires("steep") or []
    except PackageNotFoundError:  # a bare copy of the sources
        lines = []
    names: dict[str, list[str]] = {}
    for line in lines:
        extra = re.search(r"extra == ['\"]([^'\"]+)", line)
        names.setdefault(extra[1] if extra else "", []).append(re.split(r"[^\w.-]", line, maxsplit=1)[0])
    return names


def _device() -> dict[str, str]:

    def faster(where: torch.device) -> str:
        faster = half_precision("auto", torch.empty(0, device=where)) is not None  # measured on a CPU
        return "faster, so precision='auto' takes it" if faster else "not faster"

    cpu = torch.device("cpu")
    devices = {"cpu": device_name(cpu), "bfloat16 on cpu": f"{faster(cpu)} (measured now)"}
    if not torch.cuda.is_available():
        return {**devices, "cuda": "absent"}
    for index in range(torch.cuda.device_count()):
        about, gpu = torch.cuda.get_device_properties(index), torch.device("cuda", index)
        devices[f"cuda:{index}"] = (
            f"{device_name(gpu)}, {about.total_memory / 2**30:.0f} GiB, capability {about.major}.{about.minor}, "
            f"bfloat16 {faster(gpu)}"
        )
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return {**devices, "cuda": str(torch.version.cuda), "cudnn": str(cudnn)}


def _version(name: str) -> str:

    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
