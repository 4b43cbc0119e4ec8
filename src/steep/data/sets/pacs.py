"""PACS in picture folders, one for each class of each domain."""

from __future__ import annotations

from steep.data.declaration import DataSet, Layout, declared
from steep.data.picture_files import from_class_folders
from steep.data.transform import Transform

PACS: DataSet = declared(
    "pacs",
    layouts=(
        Layout(
            "picture folders",
            ("PACS", "{name}", "PACS/kfold", "{name}/kfold", "kfold", "PACS/PACS", "."),
            lambda part: (f"{part}/dog", f"{part}/person"),
            lambda folder, part: from_class_folders(folder / part, Transform(size=227), PACS.classes),
        ),
    ),
)
