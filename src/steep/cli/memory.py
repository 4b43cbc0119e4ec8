"""Keep memory that was freed, for the next batch: glibc gives large blocks back at once, and fetches them again."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # mallopt(3)


def keep_freed_memory() -> bool:
    """Let large tensors of this process lie on the heap; say whether the C library could be asked for that.

    Otherwise every one of more than 32 MB is new memory, which the system fills with zeros first. At 224 pixels that
    takes as long as the convolutions (docs/speed.md).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return mallopt is not None and bool(mallopt(MMAP_MAX, 0)) and bool(mallopt(TRIM_THRESHOLD, -1))
