"""Where and by what a row was made: versions, commit, device, memory."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steep.version import __version__


def versions() -> dict[str, str]:
    """Give the versions a number may depend on."""
    libraries = {
        "steep": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    return {**libraries, "cuda": torch.version.cuda} if torch.version.cuda else libraries


@functools.cache
def commit() -> str | None:
    """Give the commit of the checkout steep runs from: `STEEP_COMMIT` where set, else git's answer, else None."""
    if name := os.environ.get("STEEP_COMMIT"):
        return name
    folder = Path(__file__).parent
    try:
        # Only where steep itself is tracked: an environment inside another project's checkout is not it.
        for words in ("ls-files --error-unmatch __init__.py", "describe --always --dirty --abbrev=40 --exclude=*"):
            command = ["git", *words.split()]
            answer = subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=10, text=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.strip() or None


def device_name(device: torch.device) -> str:
    """Name a device the way people do."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.machine()}, {torch.get_num_threads()} threads)"


def stamp(device: torch.device | str) -> dict[str, Any]:
    """Say by what a row was made: device, versions, commit."""
    return {"device": device_name(torch.device(device)), "versions": versions(), "commit": commit()}


def peak_memory(device: torch.device) -> dict[str, int | str]:
    """Give the most memory held: by tensors on a GPU since its counter was reset, else by the process so far."""
    if device.type == "cuda":
        return {"bytes": torch.cuda.max_memory_allocated(device), "of": "tensors on the device"}
    if sys.platform == "win32":
        return {"bytes": 0, "of": "nothing: this system does not say"}
    import resource

    unit = 1 if platform.system() == "Darwin" else 1024
    return {"bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "of": "the process, so far"}
