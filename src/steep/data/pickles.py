"""Read the pickled CIFAR batches without letting a pickle run anything.

A pickle is a program. The batches need only dictionaries, lists, numbers, strings and one uint8 array, so every
name a pickle may ask for is answered by a stand-in of this file, never by the real function; any other name
refuses the file. Nothing of numpy or of Python runs on a pickle's behalf.
"""

from __future__ import annotations

import io
import pickle  # nosec B403
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from steep.data.arrays import Images
from steep.errors import DataError


class _StandIn:
    """Stands in for numpy's arrays and types: remembers what it is made of and does nothing."""

    arguments: tuple[object, ...] = ()
    state: Any = None

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments

    def __setstate__(self, state: object) -> None:
        self.state = state


def _encode(text: object, encoding: object = "latin1") -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("only latin1 text may be encoded")
    return text.encode("latin-1")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _StandIn,
    ("numpy", "dtype"): _StandIn,
    ("numpy.core.multiarray", "_reconstruct"): _StandIn,
    ("numpy._core.multiarray", "_reconstruct"): _StandIn,
    ("_codecs", "encode"): _encode,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no data file needs") from None

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("it asks for an outside object")


def read_batch(path: Path) -> dict[str, Any]:
    """Read one pickled batch: a dictionary whose arrays are plain uint8 ones."""
    try:
        batch = _Reader(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # a hostile pickle can raise anything; all of it means the same
        raise DataError(f"{path}: refused, not a plain CIFAR batch ({error})") from error
    if not isinstance(batch, dict):
        raise DataError(f"{path}: expected a dictionary, got {type(batch).__name__}")
    names = {key.decode("latin-1") if isinstance(key, bytes) else str(key): value for key, value in batch.items()}
    return {key: _array(value, path) if isinstance(value, _StandIn) else value for key, value in names.items()}


def _array(stored: _StandIn, path: Path) -> Images:
    """Make the array that a stand-in remembers."""
    try:
        _, shape, dtype, fortran, data = stored.state
        if isinstance(data, str):  # Python-2 strings read as latin-1
            data = data.encode("latin-1")
        if not isinstance(dtype, _StandIn) or dtype.arguments[:1] not in (("u1",), (b"u1",)) or fortran:
            raise ValueError("expected a C-order uint8 array")
        return np.frombuffer(data, np.uint8).reshape(tuple(int(side) for side in shape))
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: its array is not the plain uint8 one a CIFAR batch holds ({error})") from error
