"""The training row as a file header takes it."""

from __future__ import annotations

import json
from typing import Any


def flat(row: dict[str, Any]) -> dict[str, str]:
    """Turn a row into the strings a safetensors header takes: text as it is, everything else as JSON.

    >>> flat({"data": "digits", "epochs": 3, "commit": None})
    {'data': 'digits', 'epochs': '3'}
    """
    return {k: v if isinstance(v, str) else json.dumps(v, sort_keys=True) for k, v in row.items() if v is not None}
