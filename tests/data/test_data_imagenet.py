"""ImageNet, its relatives and the sets of domains, in their published layouts: tiny stand-ins, one colour a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from steep.data import ImageSet, load, write
from steep.data.picture_files import from_list
from steep.errors import DataError, InputError

WNIDS = [f"n{10_000_000 + 37 * number:08}" for number in range(1_000)]  # sorted: number = place


def save(path: Path, colour: int, size: tuple[int, int] = (40, 30)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (colour, 2 * colour, 255 - colour)).save(path, quality=95)


def colours(data: ImageSet) -> list[int]:
    """The colour each picture was saved with, give or take what JPEG does."""
    return [int(value) for value in np.asarray(data.images)[:, 8, 8, 0]]


def near(data: ImageSet, *expected: int) -> bool:
    return np.abs(np.subtract(colours(data), expected)).max() <= 2


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with the list of the 1,000 classes, in no order."""
    (tmp_path / "synsets.txt").write_text("\n".join(reversed(WNIDS)))
    return tmp_path


def test_a_folder_for_each_class(root: Path) -> None:
    save(root / "imagenet" / "val" / WNIDS[998] / "ILSVRC2012_val_00000002.JPEG", 20)
    save(root / "imagenet" / "val" / WNIDS[3] / "ILSVRC2012_val_00000001.JPEG", 10)
    data = load("imagenet", root=root)
    assert data.images.shape == (2, 224, 224, 3)
    assert (data.labels.tolist(), data.classes, data.subset) == ([3, 998], tuple(WNIDS), None)
    assert near(data, 10, 20)
    assert load("imagenet", root=root / "imagenet", size=16).labels.tolist() == [3, 998]


def test_all_thousand_folders_need_no_list(tmp_path: Path) -> None:
    for wnid in WNIDS:
        (tmp_path / "val" / wnid).mkdir(parents=True)
    save(tmp_path / "val" / WNIDS[500] / "a.JPEG", 50)
    assert load("imagenet", root=tmp_path, size=16).labels.tolist() == [500]


@pytest.mark.parametrize("meta", ["meta.mat", "map_clsloc.txt"])
def test_the_flat_folder_with_the_devkit(tmp_path: Path, meta: str) -> None:
    for number in (1, 2, 10):
        save(tmp_path / "val" / f"ILSVRC2012_val_{number:08}.JPEG", number)
    devkit = tmp_path / "ILSVRC2012_devkit_t12" / "data"
    devkit.mkdir(parents=True)
    (devkit / "ILSVRC2012_validation_ground_truth.txt").write_text("1000\n1\n990\n")
    of = {number: WNIDS[1_000 - number] for number in range(1, 1_001)}  # the devkit counts in another order
    if meta == "meta.mat":
        kind = np.dtype([("ILSVRC2012_ID", object), ("WNID", object), ("words", object)])
        groups = [(1_001, "n00000001", "what classes belong to")]
        rows = [(number, wnid, "words") for number, wnid in of.items()] + groups
        savemat(devkit / meta, {"synsets": np.array(rows, kind)[:, None]})
    else:
        (devkit / meta).write_text("".join(f"{wnid} {number} words\n" for number, wnid in of.items()))
    data = load("imagenet", root=tmp_path, size=16)
    assert data.labels.tolist() == [0, 999, 10]
    assert near(data, 1, 2, 10)
    (devkit / "ILSVRC2012_validation_ground_truth.txt").write_text("1000\n1\n")
    with pytest.raises(DataError, match="a label for each of 3 pictures, got 2"):
        load("imagenet", root=tmp_path)


@pytest.mark.parametrize("lines", ["b.JPEG 7\nsub dir/a.JPEG 0\n", f"./val/b.JPEG {WNIDS[7]}\nval/sub dir/a.JPEG 0\n"])
def test_a_list_of_paths_and_labels(root: Path, lines: str) -> None:
    save(root / "val" / "sub dir" / "a.JPEG", 10)
    save(root / "val" / "b.JPEG", 20)
    (root / "val.txt").write_text(lines)
    for place in (root, root / "val.txt"):
        if place.is_dir() or lines.startswith("./"):
            data = load("imagenet", root=place, size=16)
            assert data.labels.tolist() == [7, 0]
            assert near(data, 20, 10)
    (root / "val.txt").write_text("b.JPEG 1000\n")
    with pytest.raises(DataError, match=r"0 to 999, got '1000'"):
        load("imagenet", root=root)
    (root / "val.txt").write_text("b.JPEG\n")
    with pytest.raises(DataError, match="a path and a label"):
        load("imagenet", root=root)


@pytest.mark.parametrize("between", [" ", ",", ", ", " , ", "\t"])
def test_a_comma_or_a_space_stands_before_the_label(tmp_path: Path, between: str) -> None:
    names = ["a.JPEG", "sub dir/b c.JPEG", "one, two,3 4.JPEG", "x 1,5.JPEG"]
    file = tmp_path / "list.txt"
    file.write_text("".join(f"{name}{between}{label}\n" for label, name in enumerate(names)))
    assert from_list(file, tmp_path) == ([tmp_path / name for name in names], ["0", "1", "2", "3"])


@pytest.mark.parametrize("line", ["a.JPEG", "a.JPEG,", "a.JPEG,,7", ",7", "a.JPEG, ,7", ", 7"])
def test_a_line_without_one_reading_is_refused_and_shown(tmp_path: Path, line: str) -> None:
    file = tmp_path / "list.txt"
    file.write_text(f"b.JPEG 3\n{line}\n")
    with pytest.raises(DataError, match=f"a path and a label.*{line}"):
        from_list(file, tmp_path)


@pytest.mark.parametrize("name", ["imagenet-r", "imagenet-a"])
def test_of_some_classes_only_those_count(root: Path, name: str) -> None:
    for place, colour in ((700, 70), (5, 10), (44, 30)):
        save(root / name / WNIDS[place] / "art_0.jpg", colour)
    (root / name / "README.txt").write_text("about the set")
    data = load(name, root=root, size=16)
    assert data.subset == ((5, 44, 700), 1_000)
    assert (data.labels.tolist(), data.classes) == ([0, 1, 2], (WNIDS[5], WNIDS[44], WNIDS[700]))
    assert near(data, 10, 30, 70)
    save(root / "train" / WNIDS[6] / "a.JPEG", 60)  # what the source model was trained on
    assert near(load(name, "train", root=root, size=16), 60)
    (root / "synsets.txt").unlink()
    with pytest.raises(DataError, match=r"synsets\.txt"):
        load(name, root=root)
    (root / "synsets.txt").write_text("\n".join(WNIDS[:999]))
    with pytest.raises(DataError, match="1,000 classes, got 999"):
        load(name, root=root)


def test_v2_numbers_its_folders_and_needs_no_list(tmp_path: Path) -> None:
    for number in (10, 9, 999):
        save(tmp_path / "imagenetv2-matched-frequency-format-val" / str(number) / "x.jpeg", number % 100)
    data = load("imagenet-v2", root=tmp_path, size=16)
    assert (data.labels.tolist(), len(data.classes), data.subset) == ([9, 10, 999], 1_000, None)
    assert near(data, 9, 10, 99)


def test_sketch(root: Path) -> None:
    save(root / "sketch" / WNIDS[8] / "sketch_1.JPEG", 40)
    assert load("imagenet-sketch", root=root, size=16).labels.tolist() == [8]


def test_imagenet_c_as_published(root: Path) -> None:
    for number, place in ((12, 4), (3, 900)):
        name = f"ILSVRC2012_val_{number:08}.JPEG"
        save(root / "ImageNet-C" / "fog" / "5" / WNIDS[place] / name, number, (224, 224))
    data = load("imagenet-c", root=root, corruption="fog", severity=5)
    assert (data.labels.tolist(), len(data.classes)) == ([900, 4], 1_000)  # by number, not class by class
    assert near(data, 3, 12)
    assert "published files" in data.origin
    smaller = load("imagenet-c", root=root, corruption="fog", severity=5, size=16, limit=1)  # whole, not cropped again
    assert smaller.images.shape == (1, 16, 16, 3)
    (root / "ImageNet-C" / "fog" / "5" / "n99999999").mkdir()
    with pytest.raises(DataError, match="n99999999"):
        load("imagenet-c", root=root, corruption="fog", severity=5)


def test_imagenet_c_is_made_written_and_read_again(root: Path) -> None:
    draw = np.random.default_rng(0)
    for number in (2, 9):
        (root / "val" / WNIDS[number]).mkdir(parents=True)
        noise = Image.fromarray(draw.integers(0, 256, (230, 240, 3), dtype=np.uint8))
        noise.save(root / "val" / WNIDS[number] / f"ILSVRC2012_val_{number:08}.JPEG")
    asked = {"corruption": "brightness", "severity": 3}
    made = load("imagenet-c", root=root, **asked)  # type: ignore[arg-type]
    write(load("imagenet", root=root, stream=True), root / "ImageNet-C", only="brightness", severities=[3])
    again = load("imagenet-c", root=root, **asked)  # type: ignore[arg-type]
    assert again.origin.startswith("disk: ImageNet-C, steep")
    assert made.labels.tolist() == again.labels.tolist() == [2, 9]
    assert np.array_equal(made.images, again.images)


def test_where_there_is_nothing_the_error_says_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a folder for each class, val\.txt"):
        load("imagenet", root=tmp_path)
    with pytest.raises(DataError, match="art"):
        load("office-home", root=tmp_path, domain="art")


@pytest.mark.parametrize(
    ("name", "folder", "domain", "classes"),
    [
        ("office-home", "OfficeHomeDataset_10072016/Real World", "real_world", 65),
        ("office-caltech", "images/Caltech10", "caltech", 10),
        ("office-caltech", "office_caltech_10/amazon/images", "amazon", 10),
        ("domainnet", "DomainNet/quickdraw", "quickdraw", 345),
    ],
)
def test_domains_are_folders(tmp_path: Path, name: str, folder: str, domain: str, classes: int) -> None:
    for number in range(classes):
        (tmp_path / folder / f"class_{number:03}").mkdir(parents=True)
    save(tmp_path / folder / "class_007" / "1.jpg", 70)
    data = load(name, root=tmp_path, domain=domain, size=16)
    assert (data.labels.tolist(), len(data.classes), data.split) == ([7], classes, f"{domain}-test")
    (tmp_path / folder / "class_007" / "1.jpg").rename(tmp_path / folder / "class_000" / "1.jpg")
    (tmp_path / folder / "class_007").rmdir()
    with pytest.raises(DataError, match=f"the {classes} classes of {name}, found {classes - 1}"):
        load(name, root=tmp_path, domain=domain)


def test_visda_has_folders_and_a_list(tmp_path: Path) -> None:
    save(tmp_path / "visda-2017" / "validation" / "bus" / "1.jpg", 20)
    save(tmp_path / "visda-2017" / "test" / "trunk01" / "2.jpg", 30)
    (tmp_path / "visda-2017" / "test" / "image_list.txt").write_text("trunk01/2.jpg 11\n")
    assert load("visda", root=tmp_path, domain="validation", size=16).labels.tolist() == [2]
    data = load("visda", root=tmp_path, domain="test", size=16)
    assert (data.labels.tolist(), data.classes[11]) == ([11], "truck")


def test_resize_and_crop(root: Path) -> None:
    """A picture of stripes: what is cut out, and what is squeezed, shows in the columns."""
    stripes = np.zeros((100, 200, 3), np.uint8)
    stripes[:, 50:150] = 200  # the middle square is bright
    (root / "val" / WNIDS[0]).mkdir(parents=True)
    Image.fromarray(stripes).save(root / "val" / WNIDS[0] / "a.png")

    def bright(**how: object) -> float:
        return float((np.asarray(load("imagenet", root=root, size=100, **how).images)[0, :, :, 0] > 100).mean())  # type: ignore[arg-type]

    assert bright(crop=1.0) == 1
    assert bright() == bright(crop=0.875, interpolation="bilinear") == 1
    reference = Image.fromarray(stripes).resize((400, 200), Image.Resampling.BICUBIC).crop((150, 50, 250, 150))
    ours = load("imagenet", root=root, size=100, crop=0.5, interpolation="bicubic").images[0]
    assert np.array_equal(ours, np.asarray(reference))
    for wrong in ({"crop": 1.5}, {"crop": 0.0}, {"size": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            load("imagenet", root=root, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="crop"):
        load("digits", crop=0.5)
