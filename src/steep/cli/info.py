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
    extras: dict[str, dict[str, str]] = {}  # what steep asks for, by extra; those without one under the empty name
    for line in _requirements():
        extra = re.search(r"extra == ['\"]([^'\"]+)", line)
        name = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        extras.setdefault(extra[1] if extra else "", {})[name] = _version(name)
    return {
        "steep": {
            "version": __version__,
            "commit": commit() or "not from a checkout",
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "system": f"{platform.system()} {platform.machine()}",
        },
        "libraries": extras.pop("", {}),
        "extras": {
            extra: ", ".join(f"{name} {number}" for name, number in names.items())
            for extra, names in extras.items()
            if extra not in _NOT_FOR_USERS
        },
        "device": _devices(),
    }


def _requirements() -> list[str]:
    try:
        return requires("steep") or []
    except PackageNotFoundError:  # a bare copy of the sources
        return []


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _devices() -> dict[str, str]:
    cpu = torch.device("cpu")
    devices = {"cpu": device_name(cpu), "bfloat16 on cpu": f"{_bfloat16(cpu)} (measured now)"}
    if not torch.cuda.is_available():
        return {**devices, "cuda": "absent"}
    for index in range(torch.cuda.device_count()):
        about, gpu = torch.cuda.get_device_properties(index), torch.device("cuda", index)
        memory = f"{about.total_memory / 2**30:.0f} GiB, capability {about.major}.{about.minor}"
        devices[f"cuda:{index}"] = f"{device_name(gpu)}, {memory}, bfloat16 {_bfloat16(gpu)}"
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return {**devices, "cuda": str(torch.version.cuda), "cudnn": str(cudnn)}


def _bfloat16(device: torch.device) -> str:
    faster = half_precision("auto", torch.empty(0, device=device)) is not None  # measured on a CPU
    return "faster, so precision='auto' takes it" if faster else "not faster"
