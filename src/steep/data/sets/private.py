"""Pictures of the user: a folder of picture files, or arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steep.corruptions.parameters import LARGE
from steep.data.arrays import as_images, as_labels, read_npy
from steep.data.declaration import DataSet, Decoded
from steep.data.picture_files import class_names, from_class_folders
from steep.data.transform import Transform
from steep.errors import DataError
from steep.files import open_regular

_SPLITS = ("train", "val", "test")


def _read_folder(split: str, root: Path, how: Transform) -> Decoded:
    if not root.is_dir():
        raise DataError(f"{root}: not a folder. Give root= the directory with one folder of pictures per class")
    splits = [below for below in _SPLITS if class_names(root / below)]  # a class may be called train: it has no folders
    here = root
    if splits:
        other = {"test": ("test", "val"), "val": ("val", "test")}.get(split, (split,))
        chosen = next((below for below in other if below in splits), None)
        if chosen is None:
            raise DataError(f"{root}: holds {', '.join(splits)} but no {split}. Give split={splits[0]!r}")
        here = root / chosen
    data = from_class_folders(here, how, class_names(*(root / below for below in splits)))
    return data._replace(origin=f"folder: {here.name}")


def _read_arrays(split: str, root: Path, how: Transform) -> Decoded:
    if root.suffix == ".npz":
        pixels, numbers = _from_npz(root)
    else:
        stems = (f"{split}-", "")
        pair = [(root / f"{stem}images.npy", root / f"{stem}labels.npy") for stem in stems]
        chosen = next((files for files in pair if all(file.exists() for file in files)), None)
        if chosen is None:
            raise DataError(
                f"{root}: expected an .npz, or a folder with images.npy and labels.npy "
                f"(or {split}-images.npy and {split}-labels.npy)"
            )
        pixels, numbers = read_npy(chosen[0]), read_npy(chosen[1])
    images = as_images(pixels, str(root))
    labels = as_labels(numbers, len(images), str(root))
    classes = tuple(map(str, range(int(labels.max()) + 1)))
    return Decoded(images, labels, classes, f"arrays: {root.name}")


def _from_npz(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    try:
        with open_regular(path) as file, np.load(file, allow_pickle=False) as bundle:
            for pair in (("images", "labels"), ("x", "y"), ("arr_0", "arr_1")):
                if all(key in bundle for key in pair):
                    images, labels = (bundle[key] for key in pair)
                    if isinstance(images, np.ndarray) and isinstance(labels, np.ndarray):
                        return images, labels
                    raise ValueError("a member is no array")
            raise DataError(f"{path}: expected arrays named images and labels, found {sorted(bundle)}")
    except DataError:
        raise
    except Exception as error:  # a hostile header can raise anything
        raise DataError(f"{path}: not a whole .npz of plain numbers ({error})") from error


_EVERY_SPLIT = {split: split for split in _SPLITS}
FOLDER = DataSet(
    name="folder",
    title="A folder of pictures",
    splits=_EVERY_SPLIT,
    read=_read_folder,
    transform=Transform(),
    jpeg_from=LARGE,
)
ARRAYS = DataSet(name="arrays", title="Your arrays", splits=_EVERY_SPLIT, read=_read_arrays)
