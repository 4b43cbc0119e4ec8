"""Tiny-ImageNet (Stanford CS231N): 200 classes of ImageNet at 64 × 64 pixels, in picture folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from steep.data.declaration import DataSet, Decoded, Download, Layout, Part
from steep.data.picture_files import class_names, from_class_folders, pictures
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
    return Decoded(pictures([here / "images" / row[0] for row in rows]), labels, classes)


TINY_IMAGENET = DataSet(
    name="tiny-imagenet",
    title="Tiny-ImageNet",
    shape=(64, 64, 3),
    class_count=200,  # their names are read from the files: the wnids, sorted
    parts={"train": Part(count=100_000), "val": Part(count=10_000)},
    splits={"train": "train", "val": "val", "test": "val"},  # the real test labels were never published
    layouts=(
        Layout(
            "picture folders",
            ("tiny-imagenet-200", "{name}/tiny-imagenet-200", "{name}", "."),
            lambda part: ("train/n*", f"{part}/*"),
            _tiny_imagenet,
        ),
    ),
    archives=("tiny-imagenet-200.zip",),
    official=(
        Download(
            url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            checksum="md5:90528d7ca1a48142e341f4ef8d21d0de",
            file="tiny-imagenet-200.zip",
        ),
    ),
    table="tiny-imagenet",
    corrupted_folders=("Tiny-ImageNet-C", "tiny-imagenet-c", "TinyImageNet-C"),
    corrupted_as_jpeg=True,
    paper_size=32,
    by_hand="put tiny-imagenet-200.zip or the folder tiny-imagenet-200 there yourself",
)
