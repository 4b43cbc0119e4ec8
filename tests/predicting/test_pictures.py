"""Which pictures of a folder are found, and what their folders say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import steep
from steep.predicting import open_pictures, predict


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(("a", "b", "c")):
        (tmp_path / "set" / name).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(np.full((8, 8), 60 * number + i, np.uint8)).save(tmp_path / "set" / name / f"{i}.png")
    return tmp_path / "set"


def test_links_are_followed_and_never_round_in_circles(folder: Path, tmp_path: Path) -> None:
    behind = tmp_path / "behind"
    behind.mkdir()
    (behind / "x").symlink_to(folder / "a", target_is_directory=True)
    (behind / "back").symlink_to(behind, target_is_directory=True)
    (folder / "a" / "up").symlink_to(folder, target_is_directory=True)
    names = open_pictures(behind).names
    assert sorted(name for name in names if name.count("/") == 1) == [f"x/{i}.png" for i in range(4)]
    assert len(names) == 12  # a itself, and b and c over the link up; a not again


def test_what_cannot_be_read_has_a_row_that_says_so(folder: Path) -> None:
    (folder / "a" / "gone.png").symlink_to(folder / "nowhere.png")
    (folder / "b" / "phone.heic").write_bytes(b"not one Pillow reads")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "c" / "moving.gif")
    found = predict(
        steep.models.build("wrn-10-1", 3, in_channels=1), open_pictures(folder), "source", classes="abc", channels=1
    )
    rows = {row.file: row for row in found.rows}
    assert len(rows) == 15
    assert rows["c/moving.gif"].label is not None
    for name in ("a/gone.png", "b/phone.heic"):
        assert rows[name].skipped.startswith("unreadable")


def test_a_picture_beside_the_folders_leaves_the_rest_mixed(folder: Path) -> None:
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "stray.png")
    pictures = open_pictures(folder)
    order: list[int] = []

    def read(index: int, size: int | None, channels: int) -> NDArray[np.uint8]:
        order.append(index)
        return pictures.read(index, size, channels)

    model = steep.models.build("wrn-10-1", 3, in_channels=1)
    found = predict(model, type(pictures)(pictures.names, pictures.folders, read), "source", classes="abc", channels=1)
    assert sorted(order) == list(range(13))
    assert order != sorted(order)
    assert found.remark == "1 pictures lie in no folder of a class, such as stray.png: accuracy is without them"


def test_where_no_folder_is_no_accuracy_is_spoken_of(folder: Path) -> None:
    flat = open_pictures(folder / "a")
    assert flat.labels("abc", 3) == ([None] * 4, ("a", "b", "c"), None)


def test_a_link_takes_nothing_from_the_folder_it_leads_to(folder: Path) -> None:
    (folder / "A-link").symlink_to(folder / "c", target_is_directory=True)
    names = open_pictures(folder).names
    assert [name for name in names if name.startswith("c/")] == [f"c/{i}.png" for i in range(4)]
    assert [name for name in names if name.startswith("A-link/")] == [f"A-link/{i}.png" for i in range(4)]
