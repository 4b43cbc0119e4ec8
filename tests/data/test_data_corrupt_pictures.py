"""Picture files corrupted as ImageNet-C is: cut to 224, its layout, JPEG quality 85, its own numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny_sets import everything, stubbed

from steep.cli import main
from steep.corruptions import corrupt
from steep.data import check, corrupted, layout, load, write
from steep.errors import DataError

Calls = list[tuple[str, int, int]]
NAMES = {"cat": ("b_2.jpeg", "a_10.JPG"), "dog": ("c.png",), "eel": ()}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three smooth pictures of different sizes in class folders; one class has none."""
    random = np.random.default_rng(0)
    for name, files in NAMES.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for file in files:
            coarse = Image.fromarray(random.integers(0, 256, (6, 6, 3), dtype=np.uint8))
            coarse.resize((int(random.integers(260, 400)), 256)).save(tmp_path / "photos" / name / file)
    return tmp_path / "photos"


def clean(photos: Path, **options: Any) -> Any:
    return load("folder", root=photos, **{"size": 224, "crop": 0.875, "stream": True, **options})


def cut(file: Path) -> np.ndarray:
    """The pictures are 256 high already: only the middle is cut out."""
    pixels = np.asarray(Image.open(file))
    left = round((pixels.shape[1] - 224) / 2)
    return pixels[16:240, left : left + 224]


def test_layout_names_pixels_and_manifest_are_those_of_imagenet_c(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["corrupt", "folder", "--root", str(photos), "--size", "224", "--crop", "0.875", "--out", str(out)]
    assert main([*command, "--only", "contrast,pixelate", "--severity", "2", "--severity", "5", "--seed", "4"]) == 0
    files = ["cat/a_10.JPG", "cat/b_2.jpeg", "dog/c.png.JPEG"]
    pictures = [
        path.relative_to(out).as_posix()
        for path in sorted(out.rglob("*.*"))
        if path.suffix.lower() in (".jpg", ".jpeg")
    ]
    assert pictures == [
        f"{name}/{level}/{file}" for name in ("contrast", "pixelate") for level in (2, 5) for file in files
    ]
    assert (out / "contrast" / "2" / "eel").is_dir()  # or labels after it would move
    for index, file in enumerate(files):
        original = cut(photos / file.removesuffix(".JPEG"))
        expected = corrupt(original[None], "contrast", 5, seed=4, first=index, table="imagenet")[0]
        Image.fromarray(expected).save(tmp_path / "one.jpg", quality=85, optimize=True)
        assert (out / "contrast" / "5" / file).read_bytes() == (tmp_path / "one.jpg").read_bytes()
    manifest = json.loads((out / "steep-corruptions.json").read_text())
    assert (manifest["table"], manifest["layout"], manifest["seed"]) == ("imagenet", "folders", 4)
    assert not [name for name in everything(out) if "decoded" in name or "pieces" in name]


def test_files_on_disk_and_made_on_the_fly_are_the_same(photos: Path) -> None:
    options: dict[str, Any] = {"root": photos, "size": 224, "crop": 0.875, "corruption": "fog", "severity": 3}
    fly = load("folder-c", **options)
    assert "seed 0, imagenet table" in fly.origin
    write(clean(photos), photos / "folder-c", only="fog", severities=[3])
    disk = load("folder-c", **options)
    assert disk.origin.startswith("disk: folder-c")
    np.testing.assert_array_equal(disk.images, fly.images)
    assert disk.labels.tolist() == fly.labels.tolist() == [0, 0, 1]
    assert disk.classes == fly.classes == tuple(NAMES)
    assert load("folder-c", **{**options, "crop": 1.0}).origin.startswith("made")  # other pictures


def test_small_pictures_stay_arrays_without_loss(photos: Path, tmp_path: Path) -> None:
    write(clean(photos, size=32), tmp_path / "c", only="contrast", severities=[1])
    small = np.asarray(load("folder", root=photos, size=32, crop=0.875).images)
    np.testing.assert_array_equal(np.load(tmp_path / "c" / "contrast_s1.npy"), corrupt(small, "contrast", 1))
    assert json.loads((tmp_path / "c" / "steep-corruptions.json").read_text())["table"] == "cifar"


@pytest.mark.parametrize("stop_at", [1, 2, 4])
def test_a_stopped_run_goes_on_and_ends_alike(
    stub: Calls, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    monkeypatch.setattr(corrupted, "_CHUNK", 1)  # one picture a piece
    options: dict[str, Any] = {"only": ["fog", "snow"], "severities": [1]}
    write(clean(photos), tmp_path / "whole", **options)
    keep, left = layout._keep_piece, [stop_at]

    def stop(*arguments: Any) -> Path:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return keep(*arguments)

    monkeypatch.setattr(layout, "_keep_piece", stop)
    with pytest.raises(KeyboardInterrupt):
        write(clean(photos), tmp_path / "parts", **options)
    assert not (tmp_path / "parts" / "snow").exists()
    calls = len(stub)
    monkeypatch.setattr(layout, "_keep_piece", keep)
    monkeypatch.setattr(layout, "write_header", None)  # what was decoded is not decoded again
    write(clean(photos), tmp_path / "parts", **options)
    assert len(stub) - calls == 6 - stop_at
    assert {**everything(tmp_path / "parts")} == {**everything(tmp_path / "whole")}
    assert write(clean(photos), tmp_path / "parts", **options).made == ()
    np.testing.assert_allclose(
        np.asarray(Image.open(tmp_path / "parts/fog/1/dog/c.png.JPEG")).mean(),
        stubbed(cut(photos / "dog/c.png")[None], "fog", 1, 0, 2).mean(),
        atol=2,
    )


def test_a_picture_that_cannot_be_read_is_named_and_nothing_is_left_in_its_place(
    stub: Calls, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "dog" / "c.png").write_bytes(b"no picture")
    command = [
        "corrupt",
        "folder",
        "--root",
        str(photos),
        "--size",
        "224",
        "--out",
        str(tmp_path / "c"),
        "--only",
        "fog",
    ]
    assert main(command) == 2
    assert "dog/c.png" in capsys.readouterr().err
    assert not (tmp_path / "c" / "fog").exists()
    (photos / "dog" / "c.png").unlink()
    assert main(command) == 0


def test_two_pictures_of_one_name_are_refused(stub: Calls, photos: Path, tmp_path: Path) -> None:
    data = clean(photos)
    data.images.names[1] = data.images.names[0]
    with pytest.raises(DataError, match=r"cat/a_10\.JPG: expected a name of its own"):
        write(data, tmp_path / "c", only="fog")
    assert not (tmp_path / "c").exists()


def test_check_compares_the_pictures_by_name(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "c"
    write(clean(photos), out, only=["contrast", "fog"], severities=[5], seed=1)
    rows = check(out, clean(photos), severities=[5], seed=1)
    assert [(row.corruption, row.verdict) for row in rows] == [("fog", "identical"), ("contrast", "identical")]
    Image.fromarray(cut(photos / "dog" / "c.png")).save(out / "contrast" / "5" / "dog" / "c.png.JPEG")
    (row,) = check(out, clean(photos), only="contrast", severities=[5])
    assert row.verdict != "identical"
    (out / "fog" / "5" / "dog" / "c.png.JPEG").unlink()
    with pytest.raises(DataError, match=r"c\.png\.JPEG"):
        check(out, clean(photos), only="fog", severities=[5])


def test_imagenet_is_written_by_its_name(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "synsets.txt").write_text("".join(f"n{1440764 + i:08}\n" for i in range(1000)))
    val = tmp_path / "val" / "n01440764"
    val.mkdir(parents=True)
    (photos / "cat" / "b_2.jpeg").rename(val / "ILSVRC2012_val_00000293.JPEG")
    out = tmp_path / "ImageNet-C"
    assert (
        main(["corrupt", "imagenet", "--root", str(tmp_path), "--out", str(out), "--only", "fog", "--severity", "3"])
        == 0
    )
    file = out / "fog" / "3" / "n01440764" / "ILSVRC2012_val_00000293.JPEG"
    expected = corrupt(cut(val / file.name)[None], "fog", 3)[0]
    assert abs(np.asarray(Image.open(file)).astype(int) - expected).mean() < 3  # but for the JPEG
    loaded = load("imagenet-c", root=tmp_path, corruption="fog", severity=3)
    assert (loaded.images.shape, loaded.labels.tolist()) == ((1, 224, 224, 3), [0])
