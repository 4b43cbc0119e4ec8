"""Make docs/corruptions.png: all corruptions at all severities on one picture.

    python docs/corruptions_sheet.py

The picture is a crop of `flower.jpg` from scikit-learn's sample images (Flickr photograph 6056698931 by vultilion,
CC BY 2.0).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_sample_image

from steep.corruptions import CORRUPTIONS, corrupt, frost_source

ROWS = 10  # per block; two blocks stand side by side
LABEL, GAP, HEADER = 140, 4, 24


def picture(side: int) -> np.ndarray:
    """Return the blossom, shrunk to side x side."""
    photo = Image.fromarray(load_sample_image("flower.jpg"))
    return np.array(photo.crop((120, 20, 500, 400)).resize((side, side), Image.Resampling.LANCZOS))


def sheet(side: int, zoom: int, seed: int) -> Image.Image:
    """Draw the sheet: one row a corruption, one column a severity, pixels enlarged by repetition."""
    clean = picture(side)
    cell = side * zoom + GAP
    block = LABEL + 5 * cell
    canvas = Image.new("RGB", (2 * block + GAP, HEADER + ROWS * cell), "white")
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(13)

    def paste(image: np.ndarray, left: int, top: int) -> None:
        large = Image.fromarray(image).resize((side * zoom,) * 2, Image.Resampling.NEAREST)
        canvas.paste(large, (left, top))

    for index, name in enumerate([*CORRUPTIONS, "clean"]):
        left, top = index // ROWS * block, HEADER + index % ROWS * cell
        label = name.replace("_", "\n")
        if name == "frost" and frost_source() == "procedural":
            label += "\n(procedural)"
        draw.multiline_text((left + 8, top + cell // 2 - 16), label, "black", font)
        if name == "clean":
            paste(clean, left + LABEL, top)
            continue
        for severity in range(1, 6):
            # The severity-th image of its set, so that the five windows of frost or angles of motion differ.
            out = corrupt(clean[None], name, severity, seed, first=severity)[0]
            paste(out, left + LABEL + (severity - 1) * cell, top)
    for block_index in range(2):
        for severity in range(1, 6):
            x = block_index * block + LABEL + (severity - 1) * cell + side * zoom // 2
            draw.text((x, HEADER // 2), str(severity), "black", font, anchor="mm")
    return canvas


def main() -> None:
    """Write the sheet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--zoom", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("corruptions.png"))
    args = parser.parse_args()
    sheet(args.side, args.zoom, args.seed).save(args.out, optimize=True)


if __name__ == "__main__":
    main()
