"""Tiny-ImageNet in picture folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from steep.data.declaration import Decoded, declared
from steep.data.picture_files import class_names, file_images, from_class_folders
from steep.errors import DataError


def _tiny_imagenet(folder: Path, part: str) -> Decoded:
    here = folder / part
    listing = here / "val_annotations.txt"
    classes = class_names(folder / "train")
    if part == "train" or not listing.exists():
        return from_class_folders(here, classes=classes)  # val as some tools rearrange it
    index = {wnid: label for label, wnid in enumerate(classes)}
    rows = [line.split("\t") for line in listing.read_text().splitlines() if line.strip()]
    try:
        labels = np.asarray([index[row[1]] for row in rows], np.int64)
    except (KeyError, IndexError) as error:
        raise DataError(f"{listing}: a line does not name a class of train/ ({error})") from error
    return Decoded(file_images([here / "images" / row[0] for row in rows], here), labels, classes)


TINY_IMAGENET = declared("tiny-imagenet", {"picture folders": _tiny_imagenet})
