"""Every Python block of README and docs runs, in the order of its page, in an empty folder with small made-up data."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import steep
from nets import net
from reading import PAGES, blocks, name

WITH_CODE = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]


def known_names() -> dict[str, object]:
    """What a block may call its own without making it: a model, unlabelled batches, pictures as bytes, an adapter."""
    model = net("batch")
    stream = [torch.rand(20, 3, 16, 16, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]
    pictures = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    return {"model": model, "stream": stream, "images": pictures, "adapter": steep.adapt(model, "tent"), "steep": steep}


def photos(folder: Path) -> None:
    """A folder of pictures for each of three classes."""
    draw = np.random.default_rng(1)
    for label in ("cat", "dog", "owl"):
        (folder / label).mkdir(parents=True)
        for index in range(4):
            pixels = draw.integers(0, 256, (40, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{index}.png")


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # the ONNX exporter's own
@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_the_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEEP_OFFLINE", "1")
    monkeypatch.setenv("STEEP_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    photos(tmp_path / "photos")
    module = types.ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look their module up
    vars(module).update(known_names())
    torch.manual_seed(0)
    for block in blocks(page):
        if block.language == "python":
            code = "\n" * (block.line - 1) + block.code  # an error names the line of the page
            exec(compile(code, str(page), "exec"), vars(module))


def test_there_is_code_to_run() -> None:
    assert {"README.md", "docs/start.md", "docs/own-model.md", "docs/streams.md"} <= {name(page) for page in WITH_CODE}
