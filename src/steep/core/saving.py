"""Adapter state as one file: tensors in safetensors, the rest as JSON in its header, a checksum over both.

No pickle is written or read. A file that is torn, changed or of a newer version is refused as a whole.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steep.errors import CheckpointError
from steep.files import writing

KIND = "steep adapter state"
VERSION = 1


def save(tree: dict[str, Any], path: Path) -> None:
    """Write nested plain data with tensors, whole or not at all."""
    from safetensors.torch import save as to_bytes

    tensors: dict[str, Tensor] = {}
    text = json.dumps(_encoded(tree, tensors))
    header = {"kind": KIND, "version": str(VERSION), "tree": text, "sha256": _digest(text, tensors)}
    payload = to_bytes(tensors, header)
    with writing(path) as file:
        file.write(payload)


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote, after its checksum has been found right."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("kind") != KIND:
                raise CheckpointError(f"{path}: expected {KIND}, got another safetensors file")
            if int(header["version"]) > VERSION:
                raise CheckpointError(f"{path}: expected version ≤ {VERSION}, got {header['version']}: upgrade steep")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header["sha256"] != _digest(header["tree"], tensors):
            raise CheckpointError(f"{path}: damaged or changed, its checksum does not match. Use an older copy.")
        tree: dict[str, Any] = _decoded(json.loads(header["tree"]), tensors)
    except (SafetensorError, OSError, KeyError, ValueError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path}: not a file of adapter state, or cut short ({error})") from error
    return tree


def _digest(text: str, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _encoded(value: Any, tensors: dict[str, Tensor]) -> Any:
    """JSON has neither tensors nor tuples nor keys that are numbers: each becomes a list that begins with its kind."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous().clone()
        return ["tensor", name]
    if isinstance(value, dict):
        return ["dict", *([key, _encoded(v, tensors)] for key, v in value.items())]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *(_encoded(v, tensors) for v in value)]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise CheckpointError(f"state: expected tensors and plain data, got {type(value).__name__}")


def _decoded(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, list):
        return value
    kind, *items = value
    if kind == "tensor":
        return tensors[items[0]]
    if kind == "dict":
        return {key: _decoded(v, tensors) for key, v in items}
    decoded = [_decoded(v, tensors) for v in items]
    return tuple(decoded) if kind == "tuple" else decoded
