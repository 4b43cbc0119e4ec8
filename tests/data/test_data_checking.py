"""`check` passes another draw of the same corruption and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_sets import sha

from steep.corruptions import corrupt, parameters
from steep.data import ImageSet, check, write
from steep.errors import DataError


def scene(count: int = 60) -> ImageSet:
    """Smooth pictures, as photographs are."""
    draw = np.random.default_rng(1)
    coarse = draw.integers(30, 226, (count, 4, 4, 3)).astype(np.uint8)
    images = coarse.repeat(8, axis=1).repeat(8, axis=2)
    return ImageSet(
        images=images,
        labels=np.arange(count) % 3,
        classes=("a", "b", "c"),
        name="arrays",
        split="test",
        origin="",
        digest=sha(images),
    )


def naive_noise(images: np.ndarray, std: float) -> np.ndarray:
    """Gaussian noise as the benchmark defines it, from numpy's own generator."""
    draw = np.random.default_rng(99)
    return (np.clip(images / 255 + draw.normal(0, std, images.shape), 0, 1) * 255).astype(np.uint8)


def theirs(folder: Path, stds: tuple[float, ...]) -> None:
    np.save(folder / "gaussian_noise.npy", np.concatenate([naive_noise(scene().images, std) for std in stds]))
    np.save(folder / "labels.npy", np.tile(scene().labels, 5))


def test_another_draw_of_the_published_parameters_is_the_same(tmp_path: Path) -> None:
    theirs(tmp_path, (0.04, 0.06, 0.08, 0.09, 0.10))
    rows = check(tmp_path, scene(), sample=60)
    assert [(row.corruption, row.severity, row.verdict) for row in rows] == [
        ("gaussian_noise", level, "same") for level in (1, 2, 3, 4, 5)
    ]
    assert rows[0].distance[0] < rows[4].distance[0]


def test_another_parameter_differs(tmp_path: Path) -> None:
    theirs(tmp_path, (0.04, 0.08, 0.08, 0.09, 0.18))
    assert [row.verdict for row in check(tmp_path, scene(), sample=60)] == [
        "same",
        "differs",
        "same",
        "same",
        "differs",
    ]


def test_our_own_files_are_identical(tmp_path: Path) -> None:
    write(scene(), tmp_path, only=["brightness", "shot_noise"], severities=(1, 5), seed=3)
    rows = check(tmp_path, scene(), seed=3, severities=(1, 5), sample=20)
    assert {row.verdict for row in rows} == {"identical"}
    assert len(rows) == 4
    other = check(tmp_path, scene(), only=["shot_noise"], severities=(5,), seed=4, sample=60)
    assert [row.verdict for row in other] == ["same"]


def test_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no corruption in a published layout"):
        check(tmp_path, scene())
    theirs(tmp_path, (0.04, 0.06, 0.08, 0.09, 0.10))
    with pytest.raises(DataError, match="holds no fog of severity 1"):
        check(tmp_path, scene(), only=["fog"])


def save(folder: Path, name: str, images: np.ndarray) -> None:
    np.save(folder / f"{name}.npy", images)
    np.save(folder / "labels.npy", np.tile(scene().labels, 5))


@pytest.mark.parametrize(
    ("name", "values"),
    [("contrast", (0.41,)), ("zoom_blur", (1.15, 0.01)), ("jpeg_compression", (57,)), ("gaussian_blur", (0.72,))],
)
def test_a_parameter_slightly_off_is_found_by_its_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, values: tuple[float, ...]
) -> None:
    """Mean, spread and distance to clean of these are all within half a grey level of the right ones."""
    save(tmp_path, name, np.concatenate([corrupt(scene().images, name, level) for level in range(1, 6)]))
    assert [row.verdict for row in check(tmp_path, scene(), only=name, sample=60)] == ["identical"] * 5
    row = parameters.PUBLISHED["cifar"][name]
    with monkeypatch.context() as patch:
        patch.setitem(parameters.PUBLISHED["cifar"], name, (*row[:2], values, *row[3:]))
        wrong = [corrupt(scene().images, name, level) for level in range(1, 6)]
    save(tmp_path, name, np.concatenate(wrong))
    rows = check(tmp_path, scene(), only=name, sample=60)
    assert [row.verdict for row in rows] == ["identical", "identical", "differs", "identical", "identical"]
    for theirs, ours in (rows[2].mean, rows[2].std, rows[2].distance):
        assert abs(theirs - ours) < 0.6
    assert rows[2].within is not None
    assert rows[2].within < 0.999


def test_one_level_of_rounding_is_the_same(tmp_path: Path) -> None:
    images = np.concatenate([corrupt(scene().images, "contrast", level) for level in range(1, 6)])
    images[:, ::9, ::9] += 1  # another library truncates a sum the other way
    save(tmp_path, "contrast", images)
    rows = check(tmp_path, scene(), only="contrast", sample=60)
    assert [(row.verdict, row.within) for row in rows] == [("same", 1.0)] * 5


def test_the_frost_of_both_sides_is_named(tmp_path: Path, stub: list[tuple[str, int, int]]) -> None:
    write(scene(), tmp_path / "ours", only="frost", severities=(1,))
    assert check(tmp_path / "ours", scene(), only="frost", severities=(1,))[0].frost == ("procedural", "procedural")
    save(tmp_path, "frost", np.tile(scene().images, (5, 1, 1, 1)))
    assert check(tmp_path, scene(), only="frost", severities=(1,))[0].frost == ("published", "procedural")
