"""Samples, their pictures and the numbers beside them."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from grids import grid, stored
from PIL import Image

from steep.analysis.samples import Samples, distance, moments
from steep.data import load
from steep.errors import InputError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], Path]:
    folder = tmp_path_factory.mktemp("samples")
    cells = grid("analyze-samples-digits", "shift=clean", sets=("tea.restart=0.5",), limit=90)
    return Samples().rows(stored("samples", cells, folder, per_class=3, steps=12)), folder


def opened(path: Path) -> Image.Image:
    return Image.open(io.BytesIO(path.read_bytes()))


def tiles(path: Path, side: int, columns: int) -> np.ndarray:
    """The images of a sheet, in their own pixels."""
    sheet = np.asarray(opened(path).convert("L"))
    step = 32 + 2
    lines = (sheet.shape[0] + 2) // step
    cut = [sheet[i * step : i * step + 32, j * step : j * step + 32] for i in range(lines) for j in range(columns)]
    return np.stack(cut)[:, :: 32 // side, :: 32 // side]


def test_the_distances_are_those_of_numpy(made: tuple[list[dict[str, Any]], Path]) -> None:
    rows, folder = made
    data = load("digits", limit=90)
    every = data.images[..., 0].reshape(90, -1)
    (real,) = (row for row in rows if row["part"] == "picture" and row["kind"] == "real")
    shown = tiles(folder / real["file"], 8, 3).reshape(30, -1)
    places = [np.flatnonzero((every == tile).all(1))[0] for tile in shown]  # the real images, found again
    assert [int(data.labels[place]) for place in places] == [k for k in range(10) for _ in range(3)]
    others = np.delete(every, places, axis=0) / 255.0
    for row in (row for row in rows if row["part"] == "distance"):
        (picture,) = (
            r
            for r in rows
            if r["part"] == "picture" and r["kind"] in ("real", "samples") and r["label"] == row["label"]
        )
        drawn = tiles(folder / picture["file"], 8, 3).reshape(30, -1) / 255.0
        mean = np.sqrt(((others.mean(0) - drawn.mean(0)) ** 2).mean())
        covariance = np.sqrt(((np.cov(others.T) - np.cov(drawn.T)) ** 2).mean())
        assert row["mean_distance"] == pytest.approx(mean, abs=2e-3)  # the sheet has 256 shades
        assert row["covariance_distance"] == pytest.approx(covariance, abs=1e-3)
    assert [row["label"] for row in rows if row["part"] == "distance"] == ["real", "source", "tent", "tea"]


def test_chains_begin_alike_for_every_method_and_go_down_in_energy(made: tuple[list[dict[str, Any]], Path]) -> None:
    rows, _ = made
    chains = {
        label: [r for r in rows if r["part"] == "chain" and r["label"] == label] for label in ("source", "tent", "tea")
    }
    assert {tuple(row["step"] for row in chain) for chain in chains.values()} == {(0, 1, 2, 5, 10, 12)}
    assert len({chain[0]["mean_distance"] for chain in chains.values()}) == 1
    for chain in chains.values():
        assert chain[-1]["energy"] < chain[0]["energy"]


def test_the_buffer_drifts_under_tea_alone(made: tuple[list[dict[str, Any]], Path]) -> None:
    rows, _ = made
    drift = [row for row in rows if row["part"] == "buffer"]
    assert {row["label"] for row in drift} == {"tea"}
    assert [row["batch"] for row in drift] == [1, 2, 3]
    assert drift[0]["travelled"] == 0.0 < drift[1]["travelled"] < drift[2]["travelled"]
    assert 0 < drift[1]["moved"] <= 0.101  # ten of a hundred chains a batch


def test_pictures_are_files_and_small_ones_in_the_rows(made: tuple[list[dict[str, Any]], Path]) -> None:
    rows, folder = made
    pictures = [row for row in rows if row["part"] == "picture"]
    assert sorted(row["kind"] for row in pictures) == sorted(["real"] + ["samples", "chain"] * 3 + ["buffer"])
    for row in pictures:
        assert opened(folder / row["file"]).format == "PNG"
        inside = base64.b64decode(row["png"])
        assert Image.open(io.BytesIO(inside)).format == "PNG"
        assert len(inside) < 20_000
    (panel,) = Samples().draw(rows, folder)
    assert panel.name == "samples-digits-c-clean.png"
    assert opened(panel).width > 4 * 3 * 32
    for row in pictures:
        (folder / row["file"]).rename(folder / f"{row['file']}.away")
    assert Samples().draw(rows, folder) == []
    for row in pictures:
        (folder / f"{row['file']}.away").rename(folder / row["file"])


def test_every_seed_has_the_real_images_beside_it(tmp_path: Path) -> None:
    cells = grid("analyze-samples-digits", "shift=clean", "method=source", limit=90)
    both = (*cells, *(replace(cell, seed=1, label="../../so/urce") for cell in cells))
    rows = Samples().rows(stored("samples", both, tmp_path / "in", per_class=3, steps=1))
    real = [row for row in rows if row["label"] == "real" and row["part"] == "picture"]
    assert [row["seed"] for row in real] == [0, 1]
    assert real[0]["png"] == real[1]["png"]
    assert [path.name for path in Samples().draw(rows, tmp_path / "in")] == [
        "samples-digits-c-clean.png",
        "samples-digits-c-clean-seed1.png",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["in"]  # whatever a label says
    assert "seed 1" in Samples().summary(rows)[-1]


def test_moments_are_numpys_and_large_images_are_averaged_down() -> None:
    g = torch.Generator().manual_seed(0)
    a, b = torch.rand(20, 3, 64, 64, generator=g) * 2 - 0.5, torch.rand(15, 3, 64, 64, generator=g)
    small = [x.clamp(0, 1).reshape(len(x), 3, 32, 2, 32, 2).mean((3, 5)).flatten(1).double().numpy() for x in (a, b)]
    result = distance(moments(a), b)
    assert result["mean_distance"] == pytest.approx(
        np.sqrt(((small[0].mean(0) - small[1].mean(0)) ** 2).mean()), rel=1e-4
    )
    covariances = [np.cov(x.T) for x in small]
    assert result["covariance_distance"] == pytest.approx(
        np.sqrt(((covariances[0] - covariances[1]) ** 2).mean()), rel=1e-3
    )


def test_too_few_images_and_half_precision_are_refused(tmp_path: Path) -> None:
    cells = grid("analyze-samples-digits", "shift=clean", "method=source", limit=12)
    with pytest.raises(AssertionError, match="expected more than"):
        stored("samples", cells, tmp_path / "few", per_class=2)
    half = grid("analyze-samples-digits", "shift=clean", "method=source", sets=("precision=bfloat16",))
    with pytest.raises(AssertionError, match="expected precision float32 or tf32"):
        stored("samples", half, tmp_path / "half", per_class=1)
    with pytest.raises(InputError, match="per_class"):
        stored("samples", cells, tmp_path / "kind", per_class="many")
