"""Sets of several domains with the same classes: a folder for each domain, in it one for each class."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np

from steep.corruptions.parameters import LARGE
from steep.data.declaration import DataSet, Decoded, declared, facts_of
from steep.data.picture_files import class_names, file_images, from_class_folders, from_list
from steep.data.transform import Transform
from steep.errors import DataError


def _plain(name: str) -> str:
    """Compare names by their letters: Real World is real_world, Caltech10 is caltech."""
    return re.sub("[^a-z]", "", name.lower())


def _read(domain: str, root: Path, how: Transform, *, name: str, folders: tuple[str, ...], count: int) -> Decoded:
    """Read a domain. The classes are those of all domains that are there, so that a label means the same in each."""
    for top in (root / folder for folder in (*folders, name, ".")):
        domains = {_plain(below): top / below for below in class_names(top)}
        if (here := domains.get(_plain(domain))) is not None:
            break
    else:
        raise DataError(f"{root}: expected {name} with a folder {domain!r}, in one of {', '.join(folders)}; found none")
    known = {_plain(other) for other in DOMAINS[name].domains}
    inside = {plain: _inner(folder) for plain, folder in domains.items() if plain in known}
    if (listing := here / "image_list.txt").is_file() and DOMAINS[name].classes:
        paths, words = from_list(listing, here)
        if strange := [word for word in words if not (word.isdigit() and int(word) < count)]:
            raise DataError(f"{listing}: expected labels 0 to {count - 1}, got {strange[0]!r}")
        labels = np.asarray(list(map(int, words)), np.int64)
        return Decoded(file_images(paths, here, how), labels, origin=f"list: {here.name}/{listing.name}")
    classes = DOMAINS[name].classes or class_names(*inside.values())
    if len(classes) != count:
        some = f"{', '.join(classes[:5])}, …"
        raise DataError(f"{top}: expected the {count} classes of {name}, found {len(classes)} ({some})")
    return from_class_folders(inside[_plain(domain)], how, classes)._replace(origin=f"pictures: {here.name}")


def _inner(folder: Path) -> Path:
    return folder / "images" if class_names(folder) == ("images",) else folder


DOMAINS = {
    name: DataSet(
        name=name,
        shape=(224, 224, 3),
        splits=dict.fromkeys(("train", "val", "test"), "the domain"),  # test is the whole domain
        read=partial(_read, name=name, folders=facts.pop("folders"), count=facts["class_count"]),
        transform=Transform(size=224, crop=0.875),
        jpeg_from=LARGE,
        **facts,
    )
    for name, facts in facts_of("domains").items()
}

PACS: DataSet = declared(
    "pacs",
    {"picture folders": lambda folder, part: from_class_folders(folder / part, Transform(size=227), PACS.classes)},
)
