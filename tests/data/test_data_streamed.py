"""Pictures that stay in their files: the same numbers as in memory, in every order, and bad ones left out by name."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_sets import png

from steep.bench import cell as one
from steep.bench.sources import Sources
from steep.bench.spec import Cell
from steep.data import ImageSet, Shift, batches, datasets, load, stream, streamed
from steep.errors import DataError, SteepWarning

CLASSES = ("ant", "bee", "cat")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve pictures of noise in three classes."""
    draw = np.random.default_rng(0)
    for number in range(12):
        place = tmp_path / CLASSES[number % 3]
        place.mkdir(exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(place / f"{number}.png")
    return tmp_path


def both(folder: Path, **options: object) -> tuple[ImageSet, ImageSet]:
    lazy = load("folder", root=folder, size=8, stream=True, **options)  # type: ignore[arg-type]
    return lazy, load("folder", root=folder, size=8, stream=False, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"mix": True}, {"limit": 5}, {"mix": True, "limit": 7, "crop": 0.8}])
def test_a_stream_gives_what_memory_gives(folder: Path, options: dict[str, object]) -> None:
    lazy, kept = both(folder, **options)
    assert streamed.streamed(lazy.images) is not None
    assert streamed.streamed(kept.images) is None
    assert lazy.images.shape == kept.images.shape
    assert np.array_equal(np.asarray(lazy.images), kept.images)
    assert np.array_equal(lazy.labels, kept.labels)


@pytest.mark.parametrize("protocol", ["reset", "continual", "mixed", "label-shift"])
def test_every_protocol_orders_a_stream_by_index(folder: Path, protocol: str) -> None:
    passes = []
    for data in both(folder):
        segments = stream(protocol, [Shift("a", 0, data), Shift("b", 0, data)], 5, seed=3)
        passes.append([pair for segment in segments for pair in segment.batches])
    assert len(passes[0]) == len(passes[1]) > 2
    assert all(torch.equal(a, b) and torch.equal(y, z) for (a, y), (b, z) in zip(*passes, strict=True))


def test_shuffled_and_sorted(folder: Path) -> None:
    lazy, kept = both(folder)
    order = np.argsort(-kept.labels, kind="stable")
    for how in ({"shuffle": 4}, {"order": order}):
        pairs = zip(batches(lazy, 5, **how), batches(kept, 5, **how), strict=True)  # type: ignore[arg-type]
        assert all(torch.equal(x, a) and torch.equal(y, b) for (x, y), (a, b) in pairs)


def test_corrupted_on_the_way(folder: Path) -> None:
    options = {"corruption": "gaussian_noise", "severity": 3, "seed": 7, "mix": True}
    lazy, kept = (
        load("folder-c", root=folder, size=32, stream=stream, **options)  # type: ignore[arg-type]
        for stream in (True, False)
    )
    assert np.array_equal(np.asarray(lazy.images), kept.images)


def test_large_sets_are_streamed_and_small_ones_are_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert streamed.streamed(load("folder", root=folder, size=8).images) is None
    monkeypatch.setattr(datasets, "STREAM_ABOVE", 12 * 8 * 8 * 3 - 1)
    assert streamed.streamed(load("folder", root=folder, size=8).images) is not None
    assert streamed.streamed(load("folder", root=folder, size=8, limit=11).images) is None


def test_no_more_is_decoded_than_a_few_batches_ahead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "threads", lambda: 1)
    lazy, _ = both(folder)
    files = streamed.streamed(lazy.images)
    assert files is not None
    decoded: list[int] = []
    seen = threading.Event()

    def read(number: int, read: streamed.Read = files.read) -> streamed.Picture:
        decoded.append(number)
        if len(decoded) == 6:
            seen.set()
        return read(number)

    object.__setattr__(files, "read", read)
    walk = iter(batches(lazy, 2))
    next(walk)
    assert seen.wait(10)  # two batches are decoded while the first is looked at
    next(walk)
    walk.close()  # type: ignore[attr-defined]
    assert len(decoded) <= 10  # and never all 12


def test_the_digest_knows_files_order_and_transform(folder: Path) -> None:
    def digest(**options: object) -> str:
        return load("folder", root=folder, stream=True, **{"size": 8, **options}).digest  # type: ignore[arg-type]

    first = digest()
    assert first == digest()
    assert len({first, digest(size=9), digest(crop=0.5), digest(mix=True), digest(limit=3)}) == 5
    (folder / "ant" / "0.png").write_bytes(b"other")
    assert digest() != first


def bad_pictures(folder: Path) -> dict[str, tuple[int, int, int] | None]:
    """Save pictures of every odd kind; return the colour that each must have, None for those that cannot be read."""
    blue = (10, 20, 200)
    whole = io.BytesIO()
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(whole, "JPEG")
    for name, content in {
        "broken.jpg": whole.getvalue()[:400],
        "bomb.png": png(20_000, 20_000),
        "empty.png": b"",
        "page.jpg": b"%!PS-Adobe-3.0 EPSF-3.0\nshowpage",
    }.items():
        (folder / name).write_bytes(content)
    Image.new("F", (20, 20), 0.5).save(folder / "floats.tiff")
    Image.new("RGB", (1, 400_000), blue).save(folder / "line.png")
    Image.new("CMYK", (20, 20), (255, 0, 0, 0)).save(folder / "cmyk.jpg", quality=95)
    Image.new("L", (20, 20), 77).save(folder / "grey.png")
    Image.fromarray(np.full((20, 20), 77 * 256 + 5, np.uint16)).save(folder / "deep.png")
    Image.new("RGB", (20, 20), blue).convert("P").save(folder / "palette.png", transparency=0)
    frames = [Image.new("RGB", (20, 20), colour) for colour in (blue, (250, 0, 0))]
    frames[0].save(folder / "animated.webp", save_all=True, append_images=frames[1:], lossless=True)
    turned = Image.new("RGB", (40, 20), blue)
    turned.paste((200, 20, 10), (20, 0, 40, 20))  # red on the right
    exif = Image.Exif()
    exif[0x0112] = 8  # was held so that right is up
    turned.save(folder / "turned.png", exif=exif)
    unreadable = dict.fromkeys(("broken.jpg", "bomb.png", "empty.png", "page.jpg", "floats.tiff", "line.png"))
    fine = {"cmyk.jpg": (0, 255, 255), "grey.png": (77, 77, 77), "deep.png": (77, 77, 77), "animated.webp": blue}
    return {**unreadable, **fine, "palette.png": blue, "turned.png": (200, 20, 10)}


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("lazily", [True, False])
def test_odd_pictures_are_right_or_left_out_by_name(
    tmp_path: Path, lazily: bool, recwarn: pytest.WarningsRecorder
) -> None:
    (tmp_path / "cat").mkdir()
    colours = bad_pictures(tmp_path / "cat")
    data = load("folder", root=tmp_path, size=10, crop=0.9, stream=lazily)
    pixels = torch.cat([x for x, _ in batches(data, 4)])
    assert data.left_out.keys() == {f"cat/{name}" for name, colour in colours.items() if colour is None}
    assert all(why and str(tmp_path) not in why for why in data.left_out.values())
    names = [name for name in sorted(colours) if colours[name] is not None]
    assert len(pixels) == len(names) == 6
    for name, picture in zip(names, pixels, strict=True):  # the corner: where "turned" is red
        assert np.abs(picture[:, 0, 0].numpy() * 255 - np.array(colours[name])).max() < 12, name
    assert any(isinstance(warning.message, SteepWarning) for warning in recwarn) is not lazily


@pytest.mark.filterwarnings("ignore::steep.errors.SteepWarning")
@pytest.mark.parametrize("protocol", ["reset", "mixed"])
@pytest.mark.parametrize("above", [0, 1 << 30])
def test_a_bench_names_them_in_its_row(
    folder: Path, monkeypatch: pytest.MonkeyPatch, above: int, protocol: str
) -> None:
    (folder / "bee" / "1.png").write_bytes(b"broken")
    monkeypatch.setattr(datasets, "STREAM_ABOVE", above)
    sequence = (("clean", 0), ("clean", 0)) if protocol == "mixed" else ()
    cell = Cell(
        data="folder",
        shift="sequence" if sequence else "clean",
        sequence=sequence,
        protocol=protocol,
        model="wrn-10-1",
        weights="untrained",
        method="tent",
        batch_size=5,
        size=16,
    )
    row = one.run(cell, Sources(folder))
    assert row["n"] == (22 if sequence else 11)
    assert row["per_class"]["count"] == ([8, 6, 8] if sequence else [4, 3, 4])
    assert [segment["n"] for segment in row["segments"]] == ([11, 11] if sequence else [])
    about = row["data"][0]
    assert (about["images"], about["left_out"]) == (11, 1)
    assert list(about["unreadable"]) == ["bee/1.png"]


def test_a_folder_of_nothing_but_bad_pictures_says_so(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "a.png").write_bytes(b"broken")
    for lazily in (True, False):
        with pytest.raises(DataError, match=r"cat/a\.png: not a readable picture"):
            list(batches(load("folder", root=tmp_path, size=8, stream=lazily), 2))


def test_classes_that_count_are_in_the_row_and_no_others_are_answered(tmp_path: Path) -> None:
    wnids = [f"n{10_000_000 + number:08}" for number in range(1_000)]
    (tmp_path / "synsets.txt").write_text("\n".join(wnids))
    for place in (700, 5, 44):
        (tmp_path / "imagenet-r" / wnids[place]).mkdir(parents=True)
        Image.new("RGB", (20, 20), (place % 256, 0, 0)).save(tmp_path / "imagenet-r" / wnids[place] / "a.png")
    cell = Cell(data="imagenet-r", shift="clean", model="wrn-10-1", weights="untrained", method="source", size=16)
    row = one.run(cell, Sources(tmp_path))
    about = row["data"][0]
    assert (about["classes"], about["of_classes"]) == ([wnids[5], wnids[44], wnids[700]], 1_000)
    assert len(row["per_class"]["count"]) == 3
    images = load("imagenet-r", root=tmp_path, size=16)
    whole = Sources()._load_model(cell, load("imagenet-v2", root=_numbered(tmp_path), size=16))  # of all 1,000
    kept = Sources().model(cell, images)
    x, _ = next(iter(batches(images, 3)))
    torch.testing.assert_close(kept(x), whole(x)[:, [5, 44, 700]])


def _numbered(folder: Path) -> Path:
    (folder / "imagenet-v2" / "0").mkdir(parents=True)
    Image.new("RGB", (20, 20)).save(folder / "imagenet-v2" / "0" / "a.jpeg")
    return folder
