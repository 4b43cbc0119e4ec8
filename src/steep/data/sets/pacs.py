"""PACS (Li et al., ICCV 2017): seven classes in four domains, in picture folders."""

from __future__ import annotations

from steep.data.declaration import DataSet, Layout, Part
from steep.data.picture_files import from_class_folders

_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
_SIDE = 227

PACS = DataSet(
    name="pacs",
    title="PACS",
    shape=(_SIDE, _SIDE, 3),
    classes=_CLASSES,
    class_count=7,
    parts={
        "photo": Part(count=1_670),
        "art_painting": Part(count=2_048),
        "cartoon": Part(count=2_344),
        "sketch": Part(count=3_929),
    },
    splits=dict.fromkeys(("train", "val", "test"), "the domain"),  # test is the whole domain
    domains=("photo", "art_painting", "cartoon", "sketch"),
    paper_size=32,
    layouts=(
        Layout(
            "picture folders",
            ("PACS", "{name}", "PACS/kfold", "{name}/kfold", "kfold", "PACS/PACS", "."),
            lambda part: (f"{part}/dog", f"{part}/person"),
            lambda folder, part: from_class_folders(folder / part, _SIDE, _CLASSES),
        ),
    ),
    archives=("PACS.zip", "pacs.zip", "PACS.tar.gz"),
    by_hand="PACS has no address a program may use: put PACS.zip or the folder PACS/<domain>/<class>/ there yourself",
)
