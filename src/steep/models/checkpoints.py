"""Weights in files: safetensors, and PyTorch's `.pt`/`.pth` read without running anything inside them.

A file is read and compared with the model completely before the first weight is copied: whatever is wrong with
it, the model stays as it was. Saving writes a new file beside the old one and then swaps them, so that a
reader never meets half a file.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle  # nosec B403 (for the name of its error)
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steep import sealed
from steep.errors import CheckpointError, InputError
from steep.files import read_bytes, write_bytes

# Where training scripts keep the weights inside a larger file, most specific first.
_WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
# What DataParallel and torch.compile put before the names of the model they hold.
_SHELLS = ("module.", "_orig_mod.")
# Updates BatchNorm has seen. Files older than PyTorch 0.4.1 lack it and no prediction depends on it.
_COUNTER = "num_batches_tracked"
_SHOWN = 8
_DTYPES = (None, torch.float16, torch.bfloat16, torch.float32, torch.float64)
_REPEATED = 1 << 26  # bytes a tensor may have beyond what the file holds of it (`expand`)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What a file holds: tensors by name (on the CPU, as stored) and the metadata saved with them."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]
    name: str = "checkpoint"  # what errors call it: the path it was read from


def read(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a file of weights, whichever of the known formats its content is in; no code in it is run.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = save(nn.Linear(2, 1), f"{folder}/tiny.safetensors", metadata={"data": "none"})
    ...     checkpoint = read(file)
    >>> sorted(checkpoint.tensors), checkpoint.metadata
    (['bias', 'weight'], {'data': 'none'})
    """
    path = Path(path)
    try:
        payload = read_bytes(path)  # once: the file may be replaced while we parse
    except (OSError, MemoryError) as error:
        why = getattr(error, "strerror", None) or error
        raise CheckpointError(f"{path}: expected a file of weights, got {why}") from error
    try:
        if payload[8:9] == b"{":  # 8 bytes of length, then a JSON header
            tensors, metadata = sealed.parse(payload)
        elif payload.startswith((b"PK\x03\x04", b"\x80")):  # a zip archive, or a bare pickle of old
            tensors, metadata = _parse_torch(payload, path)
        else:
            raise CheckpointError(
                f"{path}: expected a safetensors or PyTorch file, got {len(payload)} bytes starting {payload[:4]!r}"
            )
    except CheckpointError:
        raise
    except Exception as error:  # damaged bytes make the two parsers raise nearly anything
        detail = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"{path}: expected tensors in safetensors or weights-only PyTorch format, got a file that cannot be "
            f"read as such ({type(error).__name__}: {detail}). A pickled model has to be saved again as "
            "its state_dict()"
        ) from error
    if not tensors:
        raise CheckpointError(f"{path}: expected names and tensors, got no tensor at all")
    _refuse_inflated(tensors, path)
    return Checkpoint(tensors=dict(sorted(tensors.items())), metadata=dict(sorted(metadata.items())), name=str(path))


def load(model: nn.Module, path: str | os.PathLike[str]) -> Mapping[str, str]:
    """Copy the weights in a file into the model, in the model's own precision and on its device.

    Every key has to match, in both directions, and every shape. A wrapper's prefix before all names of the
    file (`module.`, Lightning's `model.`, ...) is taken off when what remains is exactly the model's names.
    If anything is wrong, `CheckpointError` says what, and the model is unchanged.

    Returns the file's metadata.

    >>> import tempfile
    >>> source, target = nn.Linear(2, 1), nn.Linear(2, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = save(nn.DataParallel(source), f"{folder}/tiny.pt", metadata={"data": "none"})
    ...     metadata = load(target, file)
    >>> metadata, torch.equal(source.weight, target.weight)
    ({'data': 'none'}, True)
    """
    checkpoint = read(path)
    copy_weights(checkpoint, model)
    return checkpoint.metadata


def copy_weights(checkpoint: Checkpoint, model: nn.Module) -> None:
    """Copy weights that were read into the model, as `load` does."""
    state = _state(model)
    # Only counters can be missing after the comparison; they keep the model's own value.
    model.load_state_dict({**state, **check(checkpoint, model)})


def check(checkpoint: Checkpoint, model: nn.Module) -> dict[str, Tensor]:
    """Give the tensors under the model's names; `CheckpointError` where those or the shapes are not the model's.

    The model may be on the meta device.
    """
    expected = model.state_dict()
    tensors = _rename(checkpoint.tensors, expected)
    problems = _differences(tensors, expected)
    if problems:
        # The commonest slip: bare weights for a model that is wrapped, in `Normalized` for one.
        for name, child in model.named_children():
            inner = child.state_dict()
            if not _differences(_rename(checkpoint.tensors, inner), inner):
                problems.append(f"  It fits the model's .{name}: load it there")
        raise CheckpointError(f"{checkpoint.name} does not fit {type(model).__name__}:\n" + "\n".join(problems))
    return tensors


def digest(model: nn.Module) -> str:
    """Give the sha256 of a model's weights: of names, shapes, dtypes and bytes in order, whatever file has them."""
    total = hashlib.sha256()
    for name, value in sorted(_state(model).items()):
        total.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        total.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def save(
    model: nn.Module,
    path: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    *,
    dtype: torch.dtype | None = None,
) -> Path:
    """Write the model's weights to `.safetensors`, `.pt` or `.pth`, in one piece or not at all.

    Args:
        model: whose `state_dict()` is written.
        path: where; its folder is made if need be.
        metadata: names and values, both strings, kept in the file.
        dtype: store floating-point tensors in this precision (`torch.float16` halves the file).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(nn.Linear(2, 1), f"{folder}/half.safetensors", dtype=torch.float16).name
    'half.safetensors'
    """
    path = Path(path)
    metadata = dict(metadata or {})
    if dtype not in _DTYPES:
        raise InputError(f"dtype: expected one of {', '.join(map(str, _DTYPES))}, got {dtype}")
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InputError(f"metadata: expected strings, got {key!r}: {value!r} ({type(value).__name__})")
    # Contiguous copies: safetensors refuses tensors that share memory, and a live one could change under us.
    tensors = {key: _stored(key, value, dtype).cpu().contiguous().clone() for key, value in _state(model).items()}
    if path.suffix == ".safetensors":
        from safetensors.torch import save as to_bytes

        payload = _ordered(to_bytes(tensors, metadata))
    elif path.suffix in (".pt", ".pth"):
        buffer = io.BytesIO()
        torch.save({"state_dict": tensors, "metadata": metadata}, buffer)
        payload = buffer.getvalue()
    else:
        raise InputError(f"path: expected a name ending in .safetensors, .pt or .pth, got {path.name!r}")
    return write_bytes(path, payload)


class _Numpy:
    """Stands in for NumPy's scalars and arrays, which many training scripts save beside the weights.

    Nothing of them is read, and nothing of NumPy runs on a file's behalf.
    """

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


_NUMPY_NAMES = (
    "numpy.dtype",
    "numpy.ndarray",
    "numpy.core.multiarray.scalar",
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar",  # since NumPy 2
    "numpy._core.multiarray._reconstruct",
)


def _parse_torch(payload: bytes, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    # weights_only admits tensors and plain containers and nothing that runs; PyTorch 2.6 closed its last hole.
    try:
        with torch.serialization.safe_globals([(_Numpy, name) for name in _NUMPY_NAMES]):
            content = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if names := _foreign_types(payload):
            raise CheckpointError(
                f"{path}: expected tensors and plain data, got objects of {_some(names)}, which are read by running "
                "code. If you trust the file, convert it: content = torch.load(FILE, weights_only=False); "
                'torch.save(content["state_dict"], NEW), with the key under which it keeps the weights'
            ) from error
        raise
    metadata = content.get("metadata") if isinstance(content, Mapping) else None
    entries = metadata.items() if isinstance(metadata, Mapping) else ()
    strings = {key: value for key, value in entries if isinstance(key, str) and isinstance(value, str)}
    return _unwrap(content, path), strings


def _foreign_types(payload: bytes) -> list[str]:
    """Name the types in a PyTorch file that only its code could make; none where the file is too damaged to tell."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(payload))
    except Exception:  # old and damaged files
        return []
    return sorted(name for name in names if name not in _NUMPY_NAMES)


def _refuse_inflated(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse tensors that repeat a few stored values so often that a copy would fill the memory."""
    for name, tensor in tensors.items():
        if tensor.nbytes > max(tensor.untyped_storage().nbytes(), _REPEATED):
            raise CheckpointError(
                f"{path}: {name}: expected the {tensor.nbytes:,} bytes of shape {tuple(tensor.shape)}, got "
                f"{tensor.untyped_storage().nbytes():,} bytes that are repeated. Save it as tensor.contiguous()"
            )


def _unwrap(content: Any, path: Path) -> dict[str, Tensor]:
    """Find the mapping of names to tensors in what a training script saved."""
    for _ in range(3):  # {"model": {"state_dict": {...}}} is as deep as scripts go
        if not isinstance(content, Mapping):
            raise CheckpointError(f"{path}: expected names and tensors, got {type(content).__name__}")
        inner = next((content[w] for w in _WRAPPERS if isinstance(content.get(w), Mapping)), None)
        if inner is None:
            break
        content = inner
    others = [key for key, value in content.items() if not isinstance(key, str) or not _is_plain(value)]
    if others:
        raise CheckpointError(f"{path}: expected names and tensors, got other content under {_some(map(repr, others))}")
    return {key: value.detach() for key, value in content.items()}


def _is_plain(value: object) -> bool:
    return (
        isinstance(value, Tensor)
        and value.layout == torch.strided
        and not (value.is_quantized or value.is_meta or value.is_nested)
    )


def _state(model: nn.Module) -> dict[str, Tensor]:
    state = model.state_dict()
    others = [key for key, value in state.items() if not _is_plain(value)]
    if others:
        raise CheckpointError(f"model: expected a state of dense tensors with data, got others: {_some(others)}")
    return state


def _stored(key: str, value: Tensor, dtype: torch.dtype | None) -> Tensor:
    if dtype is None or not value.is_floating_point():
        return value.detach()
    cast = value.detach().to(dtype)
    if not torch.equal(cast.isfinite(), value.isfinite()):
        raise CheckpointError(f"{key}: expected values within the range of {dtype}, got up to {value.abs().max()}")
    return cast


def _rename(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give the file's tensors the model's names, as far as a wrapper's prefix explains the difference.

    A prefix is taken off only if every name in the file has it, and put on only if it is a known shell around
    the model. Of those readings the one that fits most names wins and the plainest among equals, so a file that
    does not fit is reported by its real differences.
    """
    name = next(iter(expected), "")  # "" for a model without state, which then has no shell
    shell = ""
    while inner := next((s for s in _SHELLS if name.startswith(shell + s)), ""):
        shell += inner
    if not all(name.startswith(shell) for name in expected):
        shell = ""
    first = next(iter(tensors))
    ends = [i + 1 for i, letter in enumerate(first) if letter == "."]
    cuts = [0] + [end for end in ends if all(name.startswith(first[:end]) for name in tensors)]
    readings = [{add + name[cut:]: tensors[name] for name in tensors} for add in ("", shell) for cut in cuts]
    return max(readings, key=lambda names: len(names.keys() & expected.keys()))


def _differences(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    """Say how the file and the model differ, one line for each kind."""
    missing = [key for key in expected if key not in tensors and key.rpartition(".")[2] != _COUNTER]
    unexpected = [key for key in tensors if key not in expected]
    both = [key for key in expected if key in tensors]
    shapes = [
        f"{key} {tuple(tensors[key].shape)} for {tuple(expected[key].shape)}"
        for key in both
        if tensors[key].shape != expected[key].shape
    ]
    kinds = [
        f"{key} {tensors[key].dtype} for {expected[key].dtype}"
        for key in both
        if tensors[key].is_floating_point() != expected[key].is_floating_point() and key.rpartition(".")[2] != _COUNTER
    ]
    labelled = (
        ("missing from the file", missing),
        ("unexpected in the file", unexpected),
        ("of another shape, file for model", shapes),
        ("of another kind, file for model", kinds),
    )
    return [f"  {len(keys)} {label}: {_some(keys)}" for label, keys in labelled if keys]


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _SHOWN
    return ", ".join(listed[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _ordered(payload: bytes) -> bytes:
    """Sort the header of a safetensors file: its writer shuffles metadata, and equal weights deserve equal bytes."""
    end = 8 + int.from_bytes(payload[:8], "little")
    header = json.dumps(json.loads(payload[8:end]), sort_keys=True, ensure_ascii=False).encode()
    header += b" " * (-len(header) % 8)  # tensors stay aligned to 8 bytes
    return len(header).to_bytes(8, "little") + header + payload[end:]
