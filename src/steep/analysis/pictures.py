"""Grids of small images as PNG: files for people, small ones for a page."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from steep.bench.sources import Sources
from steep.bench.spec import CLEAN, Cell
from steep.data import to_device
from steep.errors import DataError
from steep.files import write_bytes
from steep.pictures import open_picture

if TYPE_CHECKING:
    from PIL.Image import Image

GAP = 2  # pixels between images
LEAST = 32  # smaller images are enlarged, whole pixels, to at least this side
INLINE = 5  # columns of a picture inside a row
SHADES = 64  # colours of a picture inside a row


def grid(images: Tensor, columns: int) -> Image:
    """Lay images (n, C, H, W), values in [0, 1], out in rows of so many columns.

    >>> import torch
    >>> grid(torch.zeros(6, 1, 8, 8), 3).size
    (100, 66)
    """
    from PIL import Image

    pixels = (images.detach().float().cpu().nan_to_num(0.0).clamp(0, 1) * 255).round().byte()
    pixels = pixels.permute(0, 2, 3, 1)  # (n, H, W, C)
    if pixels.shape[3] == 1:
        pixels = pixels.expand(-1, -1, -1, 3)
    times = max(1, -(-LEAST // pixels.shape[1]))
    pixels = pixels.repeat_interleave(times, 1).repeat_interleave(times, 2)
    count, height, width, _ = pixels.shape
    lines = -(-count // columns)
    sheet = np.full((lines * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3), 255, np.uint8)
    for index, tile in enumerate(pixels.numpy()):
        top, left = index // columns * (height + GAP), index % columns * (width + GAP)
        sheet[top : top + height, left : left + width] = tile
    return Image.fromarray(sheet)


def save(image: Image, path: Path) -> None:
    """Write a PNG, whole or not at all."""
    write_bytes(path, _png(image))


def file_name(*words: object) -> str:
    """Name a picture by what it shows; a word from a recipe stays inside the folder.

    >>> file_name("samples", "fog", None, "../tea")
    'samples-fog-tea.png'
    """
    return re.sub(r"[^A-Za-z0-9_]+", "-", "-".join(str(word) for word in words if word)) + ".png"


def inline(images: Tensor, columns: int) -> str:
    """Give a few columns of a grid as a small PNG in base64, in few colours."""
    lines = len(images) // columns
    chosen = np.linspace(0, columns - 1, min(INLINE, columns)).round().astype(int).tolist()  # the last one too
    kept = images.reshape(lines, columns, *images.shape[1:])[:, chosen].flatten(0, 1)
    return _base64(grid(kept, min(INLINE, columns)).quantize(SHADES))


def strips(cells: Sequence[Cell], sources: Sources, count: int = 10) -> list[tuple[str, str]]:
    """Show what the shifts of a grid do: (name, a row of the same few images as PNG in base64), clean ones first.

    Empty where the data is not here, as when all rows were stored before.
    """
    rows = []
    for name, severity in dict.fromkeys([(CLEAN, 0), *(shift for cell in cells for shift in cell.shifts)]):
        try:
            images = sources.images(cells[0], name, severity).images[:count]
        except DataError:
            return []
        title = name.replace("_", " ") + (f", severity {severity}" if severity else "")
        rows.append((title, _base64(grid(to_device(np.array(images)), count))))
    return rows


def panel(parts: Sequence[tuple[str, str, Path]], title: str) -> Image:
    """Put pictures side by side, each under its name and over a line of numbers."""
    from PIL import Image, ImageDraw, ImageFont

    pictures = []
    for _, _, path in parts:
        with open_picture(path) as picture:
            pictures.append(picture.convert("RGB"))
    big, small = ImageFont.load_default(20), ImageFont.load_default(15)
    words = [max(big.getlength(name), small.getlength(note)) for name, note, _ in parts]
    widths = [max(each.width, int(length) + 1) for each, length in zip(pictures, words, strict=True)]
    tall = max(each.height for each in pictures)
    space, head = 24, 78
    sheet = Image.new("RGB", (sum(widths) + space * (len(parts) + 1), head + tall + 44), "white")
    pen = ImageDraw.Draw(sheet)
    pen.text((space, 12), title, fill="black", font=ImageFont.load_default(22))
    left = space
    for (name, note, _), picture, width in zip(parts, pictures, widths, strict=True):
        pen.text((left, 46), name, fill="black", font=big)
        sheet.paste(picture, (left, head))
        pen.text((left, head + picture.height + 8), note, fill="#444444", font=small)
        left += width + space
    return sheet


def _png(image: Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()


def _base64(image: Image) -> str:
    return base64.b64encode(_png(image)).decode()
