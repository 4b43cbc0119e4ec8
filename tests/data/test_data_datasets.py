"""`load`: the bundled set, folders, arrays, and the options every set shares."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny_sets import Tiny, sha, stubbed, write_pickles

from steep.data import corrupted, load
from steep.errors import DataError, InputError, SteepWarning, UnknownNameError


def test_digits_split_is_fixed_and_whole() -> None:
    from sklearn.datasets import load_digits

    bundle = load_digits()
    train, test = load("digits", "train"), load("digits", "test")
    assert (len(train), len(test)) == (1297, 500)
    both = np.concatenate([train.images, test.images]).reshape(1797, -1)
    assert set(np.unique(both)) == {round(level * 255 / 16) for level in range(17)}
    counts = np.bincount(np.concatenate([train.labels, test.labels]))
    assert counts.tolist() == np.bincount(bundle.target).tolist()
    rows = {image.tobytes() for image in np.rint(bundle.images * 255 / 16).astype(np.uint8)}
    assert {image.tobytes() for image in test.images[..., 0]} <= rows
    assert np.bincount(test.labels).min() >= 30  # every class is tested
    assert test.labels[:10].tolist() == load("digits").labels[:10].tolist()
    assert test.digest == sha(test.images)


def test_size_channels_and_limit() -> None:
    big = load("digits", size=32, channels=3, limit=7)
    assert big.images.shape == (7, 32, 32, 3)
    assert len(big) == 7
    np.testing.assert_array_equal(big.images[..., 0], big.images[..., 2])
    small = load("digits", limit=1).images[0, ..., 0]
    expected = np.asarray(Image.fromarray(small).resize((32, 32), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(big.images[0, ..., 1], expected)
    assert big.digest == sha(np.ascontiguousarray(big.images))


@pytest.mark.parametrize(
    ("name", "options", "kind", "message"),
    [
        ("cifar11", {}, UnknownNameError, "did you mean 'cifar10'"),
        ("digits", {"split": "tset"}, UnknownNameError, "unknown split of digits 'tset': did you mean 'test'"),
        ("cifar10", {"split": "val"}, UnknownNameError, "unknown split of cifar10"),
        ("digits", {"domain": "photo"}, InputError, "no domains"),
        ("digits", {"corruption": "fog"}, InputError, "load 'digits-c'"),
        ("digits-c", {}, InputError, "needs corruption="),
        (
            "digits-c",
            {"corruption": "frog", "severity": 1},
            UnknownNameError,
            "did you mean 'fog'|did you mean 'frost'",
        ),
        ("digits-c", {"corruption": "fog", "severity": 0}, InputError, "got 0"),
        ("digits-c", {"corruption": "fog", "severity": 6}, InputError, "got 6"),
        ("digits-c", {"corruption": "fog", "severity": 5, "split": "train"}, InputError, "test split"),
        ("digits", {"limit": 0}, InputError, "limit: expected 1 or more"),
        ("digits", {"channels": 4}, InputError, "only 1 → 3"),
        ("pacs", {}, UnknownNameError, "unknown domain of pacs"),
    ],
)
def test_a_wrong_call_says_what_is_right(
    name: str, options: dict[str, Any], kind: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=message):
        load(name, root=tmp_path, **options)


def test_a_folder_per_class(tmp_path: Path) -> None:
    for kind, mode, colour in (("dog", "RGB", (10, 20, 30)), ("cat", "L", 99), ("ant", "RGBA", (1, 2, 3, 0))):
        (tmp_path / "test" / kind).mkdir(parents=True)
        Image.new(mode, (20, 10), colour).save(tmp_path / "test" / kind / "a.png")
    (tmp_path / "test" / "dog" / "notes.txt").write_text("not a picture")
    loaded = load("folder", root=tmp_path)
    assert loaded.classes == ("ant", "cat", "dog")
    assert loaded.images.shape == (3, 10, 20, 3)
    assert loaded.images[:, 0, 0].tolist() == [[1, 2, 3], [99, 99, 99], [10, 20, 30]]
    assert load("folder", root=tmp_path / "test", size=6).images.shape == (3, 6, 6, 3)
    Image.new("RGB", (5, 5)).save(tmp_path / "test" / "dog" / "b.png")
    with pytest.raises(DataError, match=r"b\.png: 5 × 5 pixels.*size="):
        load("folder", root=tmp_path)
    assert load("folder", root=tmp_path, size=8).images.shape == (4, 8, 8, 3)
    whole = (tmp_path / "test" / "dog" / "a.png").read_bytes()
    (tmp_path / "test" / "dog" / "a.png").write_bytes(whole[: len(whole) // 2])
    with pytest.warns(SteepWarning, match=r"1 of 4 .* dog/a\.png: not a readable picture"):
        assert load("folder", root=tmp_path, size=8).labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize("missing", ["nowhere", "."])
def test_a_folder_without_classes(tmp_path: Path, missing: str) -> None:
    with pytest.raises(DataError, match="folder"):
        load("folder", root=tmp_path / missing)


def test_arrays_as_npy_and_npz(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 9, 7, 3), dtype=np.uint8)
    labels = np.array([2, 0, 1, 2], np.int32)
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "labels.npy", labels)
    loaded = load("arrays", root=tmp_path)
    assert isinstance(loaded.images, np.memmap)
    np.testing.assert_array_equal(loaded.images, images)
    assert loaded.labels.dtype == np.int64
    assert loaded.classes == ("0", "1", "2")
    np.save(tmp_path / "train-images.npy", images[:2, ..., 0])
    np.save(tmp_path / "train-labels.npy", labels[:2])
    assert load("arrays", "train", tmp_path).images.shape == (2, 9, 7, 1)
    for keys in (("images", "labels"), ("x", "y")):
        np.savez_compressed(tmp_path / "a.npz", **dict(zip(keys, (images, labels), strict=True)))
        np.testing.assert_array_equal(load("arrays", root=tmp_path / "a.npz").images, images)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((2, 8, 8, 3), np.float32), np.zeros(2, int), "must be uint8"),
        (np.zeros((2, 3, 8, 8), np.uint8), np.zeros(2, int), "channels first"),
        (np.zeros((0, 8, 8, 3), np.uint8), np.zeros(0, int), "not empty"),
        (np.zeros((2, 8), np.uint8), np.zeros(2, int), r"\(N, H, W, C\)"),
        (np.zeros((2, 8, 8, 3), np.uint8), np.zeros(3, int), "one label for each of 2 images"),
        (np.zeros((2, 8, 8, 3), np.uint8), np.zeros(2), "whole numbers"),
        (np.zeros((2, 8, 8, 3), np.uint8), np.array([0, -1]), "0 or more"),
    ],
)
def test_arrays_that_are_no_pictures(tmp_path: Path, images: np.ndarray, labels: np.ndarray, message: str) -> None:
    np.savez(tmp_path / "a.npz", images=images, labels=labels)
    with pytest.raises(DataError, match=message):
        load("arrays", root=tmp_path / "a.npz")


def test_a_pickled_or_broken_npz_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.array([{}], object), labels=np.zeros(1, int), allow_pickle=True)
    with pytest.raises(DataError, match=r"a\.npz"):
        load("arrays", root=tmp_path / "a.npz")
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[:-30])
    with pytest.raises(DataError, match=r"a\.npz"):
        load("arrays", root=tmp_path / "a.npz")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        zipped.writestr("images.npy", b"nonsense")
        zipped.writestr("labels.npy", b"nonsense")
    (tmp_path / "a.npz").write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match=r"a\.npz"):
        load("arrays", root=tmp_path / "a.npz")
    with pytest.raises(DataError, match=r"expected an \.npz, or a folder"):
        load("arrays", root=tmp_path)


@pytest.mark.usefixtures("stub")
def test_corrupted_on_the_fly_is_the_corrupted_test_set(cifar10: Tiny, tmp_path: Path) -> None:
    write_pickles(cifar10, tmp_path)
    loaded = load("cifar10-c", root=tmp_path, corruption="fog", severity=3, seed=4)
    np.testing.assert_array_equal(loaded.images, stubbed(cifar10.test, "fog", 3, 4))
    assert loaded.labels.tolist() == cifar10.test_labels.tolist()
    assert loaded.name == "cifar10-c"
    assert loaded.split == "fog-3"
    first = load("cifar10-c", root=tmp_path, corruption="fog", severity=3, seed=4, limit=2)
    np.testing.assert_array_equal(first.images, loaded.images[:2])
    frost = load("cifar10-c", root=tmp_path, corruption="frost", severity=3)
    assert "procedural frost" in frost.origin


def test_the_real_corruptions_are_called_with_the_sets_table(cifar10: Tiny, tmp_path: Path) -> None:
    """Contrast 5 by hand: (x − mean) · 0.15 + mean per channel, truncated."""
    write_pickles(cifar10, tmp_path)
    loaded = load("cifar10-c", root=tmp_path, corruption="contrast", severity=5)
    clean = cifar10.test / 255.0
    mean = clean.mean(axis=(1, 2), keepdims=True)
    by_hand = np.clip((clean - mean) * 0.15 + mean, 0, 1) * 255
    assert np.abs(loaded.images - np.floor(by_hand)).max() <= 1
    assert (loaded.images == np.floor(by_hand)).mean() > 0.99


def coloured(path: Path, colour: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (colour, colour, colour)).save(path)


def test_classes_are_those_of_all_splits_together(tmp_path: Path) -> None:
    for number, kind in enumerate(("ant", "bee", "cat", "dog")):
        coloured(tmp_path / "train" / kind / "a.png", number)
    coloured(tmp_path / "test" / "bee" / "a.png", 1)
    coloured(tmp_path / "test" / "dog" / "a.png", 3)
    (tmp_path / "val" / "emu").mkdir(parents=True)  # empty, and only here
    (tmp_path / "train" / ".git").mkdir()
    train, test = load("folder", "train", tmp_path), load("folder", "test", tmp_path)
    assert train.classes == test.classes == ("ant", "bee", "cat", "dog", "emu")
    assert test.labels.tolist() == test.images[:, 0, 0, 0].tolist() == [1, 3]
    assert train.labels.tolist() == [0, 1, 2, 3]


def test_an_empty_class_folder_keeps_its_number(tmp_path: Path) -> None:
    (tmp_path / "ant").mkdir()
    coloured(tmp_path / "bee" / "a.png", 9)
    loaded = load("folder", root=tmp_path)
    assert (loaded.classes, loaded.labels.tolist()) == (("ant", "bee"), [1])


def test_a_split_that_is_not_there(tmp_path: Path) -> None:
    coloured(tmp_path / "train" / "bee" / "a.png", 9)
    with pytest.raises(DataError, match="holds train but no test"):
        load("folder", "test", tmp_path)
    for name in ("folder", "arrays"):
        with pytest.raises(UnknownNameError, match=f"unknown split of {name} 'tset': did you mean 'test'"):
            load(name, "tset", tmp_path)
    coloured(tmp_path / "classes" / "train" / "a.png", 1)  # a class that is called train
    coloured(tmp_path / "classes" / "bus" / "a.png", 2)
    assert load("folder", root=tmp_path / "classes").classes == ("bus", "train")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '|u1', 'fortran_order': False, 'shape': (" + "9" * 400 + ", 8, 8, 3), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (9999999999, 9999, 9999, 3), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 8, 8, 3), '''",
        "(" * 3000,
        "{'descr': [('a', [('b', '|u1')] * 2)], 'shape': -1}",
        "{'descr': 'O', 'fortran_order': False, 'shape': (2,), }",
    ],
)
def test_a_tampered_header_is_one_clear_error(tmp_path: Path, header: str) -> None:
    text = header.encode() + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(384)
    (tmp_path / "images.npy").write_bytes(content)
    np.save(tmp_path / "labels.npy", np.zeros(2, int))
    with pytest.raises(DataError, match=r"images\.npy: not a whole \.npy"):
        load("arrays", root=tmp_path)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as zipped:
        zipped.writestr("images.npy", content)
        zipped.write(tmp_path / "labels.npy", "labels.npy")
    with pytest.raises(DataError, match=r"a\.npz: not a whole \.npz"):
        load("arrays", root=tmp_path / "a.npz")


@pytest.mark.parametrize("label", [100_000, 2**40, 2**62])
def test_an_absurd_label_asks_for_no_memory(tmp_path: Path, label: int) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 8, 8, 3), np.uint8), labels=np.array([0, label]))
    with pytest.raises(DataError, match=f"below 100,000, got {label}.*np.unique"):
        load("arrays", root=tmp_path / "a.npz")


def test_a_gz_bomb_is_refused(mnist: Tiny, tmp_path: Path) -> None:
    import gzip

    (tmp_path / "mnist").mkdir()
    for stem in ("t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / "mnist" / f"{stem}-ubyte.gz").write_bytes(gzip.compress(bytes((64 << 20) + 1), 1))
    with pytest.raises(DataError, match=r"ubyte\.gz: refused, it unpacks to more than 67108864 bytes"):
        load("mnist", root=tmp_path)


@pytest.mark.usefixtures("stub")
def test_numpy_numbers_are_taken_and_bools_are_not() -> None:
    one = load("digits-c", corruption="fog", severity=np.int64(2), seed=np.int32(1), limit=2)  # type: ignore[arg-type]
    assert one.digest == load("digits-c", corruption="fog", severity=2, seed=1, limit=2).digest
    with pytest.raises(InputError, match="severity: expected a whole number from 1 to 5, got True"):
        load("digits-c", corruption="fog", severity=True)
    with pytest.raises(InputError, match="seed: expected a whole number, got True"):
        load("digits-c", corruption="fog", severity=1, seed=True)


def test_a_set_that_lies_class_by_class_is_mixed_on_demand(tmp_path: Path) -> None:
    images = np.tile(np.arange(40, dtype=np.uint8)[:, None, None, None], (1, 32, 32, 3))
    np.savez(tmp_path / "sorted.npz", images=images, labels=np.arange(40) // 10)
    plain = load("arrays", root=tmp_path / "sorted.npz")
    mixed = load("arrays", root=tmp_path / "sorted.npz", mix=True)
    assert (mixed.images[:, 0, 0, 0] // 10).tolist() == mixed.labels.tolist()  # every picture kept its label
    assert sorted(mixed.images[:, 0, 0, 0].tolist()) == list(range(40))
    assert len(set(mixed.labels[:10].tolist())) > 2
    assert mixed.origin.endswith("shuffled")
    assert mixed.digest != plain.digest
    few = load("arrays", root=tmp_path / "sorted.npz", mix=True, limit=10)
    assert few.images.tolist() == mixed.images[:10].tolist()
    foggy = load("arrays-c", root=tmp_path / "sorted.npz", mix=True, limit=10, corruption="brightness", severity=1)
    assert foggy.labels.tolist() == few.labels.tolist()


def test_mixing_corrupts_no_more_than_asked_for_where_classes_are_mixed_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = np.array([3, 8, 8, 0, 6] + [3, 0] * 10)  # the first five are of four classes, each in one stretch
    np.savez(tmp_path / "x.npz", images=np.zeros((25, 32, 32, 3), np.uint8), labels=labels)
    asked = []
    made = corrupted.made
    monkeypatch.setattr(corrupted, "made", lambda clean, *a, **k: asked.append(len(clean)) or made(clean, *a, **k))
    loaded = load("arrays-c", root=tmp_path / "x.npz", mix=True, limit=5, corruption="brightness", severity=1)
    assert loaded.labels.tolist() == [3, 8, 8, 0, 6]
    assert asked == [5]


def test_a_stream_keeps_its_order_when_others_are_mixed(tmp_path: Path) -> None:
    images = np.arange(6, dtype=np.uint8)[:, None, None, None].repeat(3, axis=3)
    np.savez(tmp_path / "stream.npz", images=images, labels=np.array([1, 0, 0, 1, 2, 2]))
    assert load("arrays", root=tmp_path / "stream.npz", mix=True).images.tolist() == images.tolist()


@pytest.mark.parametrize("labels", [[2, 2, 2, 0, 0, 0, 1, 1, 1], [2, 2, 2, 1, 1, 1, 0, 0, 0]])
def test_classes_may_come_in_any_order_to_be_mixed(tmp_path: Path, labels: list[int]) -> None:
    np.savez(tmp_path / "x.npz", images=np.zeros((9, 8, 8, 3), np.uint8), labels=np.array(labels))
    assert load("arrays", root=tmp_path / "x.npz", mix=True).labels.tolist() != labels
    assert load("arrays", root=tmp_path / "x.npz").labels.tolist() == labels


def test_mixed_pictures_are_the_same_from_files_and_on_the_fly(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "labels.npy", np.arange(40) // 10)
    options = {"root": tmp_path, "corruption": "gaussian_noise", "severity": 3, "mix": True}
    fly = {limit: load("arrays-c", limit=limit, **options) for limit in (None, 12)}
    where = ["--root", str(tmp_path), "--out", str(tmp_path / "arrays-c")]
    command = ["corrupt", "arrays", *where, "--only", "gaussian_noise", "--severity", "3"]
    subprocess.run([sys.executable, "-m", "steep", *command], check=True, capture_output=True)
    for limit, made in fly.items():
        read = load("arrays-c", limit=limit, **options)
        assert read.origin.startswith("disk")
        assert (read.images.tolist(), read.labels.tolist()) == (made.images.tolist(), made.labels.tolist())
    plain = load("arrays-c", **{**options, "mix": False})
    assert sorted(map(bytes, plain.images)) == sorted(map(bytes, fly[None].images))
