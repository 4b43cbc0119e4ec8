"""Sealed files: tensors in safetensors, plain facts as JSON in its header, one checksum over both.

No pickle is written or read. A file that is torn, changed, foreign or of a newer format is refused as a whole.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steep.errors import CheckpointError
from steep.files import read_bytes, write_bytes


class Sealed(NamedTuple):
    """What a sealed file holds."""

    tensors: dict[str, Tensor]
    facts: Any


def write(
    path: str | os.PathLike[str], kind: str, tensors: Mapping[str, Tensor], facts: Any, *, version: int = 1
) -> None:
    """Write in one piece: whoever reads finds the old file or the new one."""
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(facts)
    header = {"kind": kind, "version": str(version), "facts": text, "sha256": _digest(plain, text)}
    write_bytes(Path(path), save(plain, header))


def read(path: str | os.PathLike[str], kind: str, *, version: int = 1) -> Sealed:
    """Read a file of this kind and compare its checksum."""
    try:
        tensors, header = parse(read_bytes(Path(path)))  # once: the file may be replaced while we parse
    except Exception as error:  # damaged bytes make the parsers raise nearly anything
        raise CheckpointError(f"{path}: not a file of {kind}, or cut short ({error})") from error
    if header.get("kind") != kind:
        raise CheckpointError(f"{path}: expected {kind}, got a safetensors file of something else")
    if not header.get("version", "").isdecimal() or int(header["version"]) > version:
        raise CheckpointError(f"{path}: expected version ≤ {version}, got {header.get('version')}: upgrade steep")
    if header.get("sha256") != _digest(tensors, header.get("facts", "")):
        raise CheckpointError(f"{path}: damaged or changed, its checksum does not match. Use an older copy")
    return Sealed(tensors, json.loads(header["facts"]))


def parse(payload: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Take tensors and metadata out of the bytes of a safetensors file."""
    from safetensors.torch import load

    tensors = load(payload)  # which checks the header
    header = json.loads(payload[8 : 8 + int.from_bytes(payload[:8], "little")])
    return tensors, dict(header.get("__metadata__") or {})


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
