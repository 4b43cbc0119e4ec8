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

LABEL, GAP, HEADER = 190, 4, 40
LETTERS = 26  # tall enough for a phone, which shows the sheet at less than half its size


def picture(side: int) -> np.ndarray:
    """Return the blossom, shrunk to side x side."""
    photo = Image.fromarray(load_sample_image("flower.jpg"))
    return np.array(photo.crop((120, 20, 500, 400)).resize((side, side), Image.Resampling.LANCZOS))


def sheet(side: int, zoom: int, seed: int) -> Image.Image:
    """Draw the sheet: one row a corruption, one column a severity, pixels enlarged by repetition."""
    clean = picture(side)
    cell = side * zoom + GAP
    names = [*CORRUPTIONS, "clean"]
    canvas = Image.new("RGB", (LABEL + 5 * cell, HEADER + len(names) * cell), "white")
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(LETTERS)

    def paste(image: np.ndarray, left: int, top: int) -> None:
        large = Image.fromarray(image).resize((side * zoom,) * 2, Image.Resampling.NEAREST)
        canvas.paste(large, (left, top))

    for index, name in enumerate(names):
        top = HEADER + index * cell
        label = name.replace("_", "\n")
        if name == "frost" and frost_source() == "procedural":
            label += "\n(procedural)"
        draw.multiline_text((8, top + cell // 2), label, "black", font, anchor="lm")
        if name == "clean":
            paste(clean, LABEL, top)
            continue
        for severity in range(1, 6):
            # The severity-th image of its set, so that the five windows of frost or angles of motion differ.
            out = corrupt(clean[None], name, severity, seed, first=severity)[0]
            paste(out, LABEL + (severity - 1) * cell, top)
    for severity in range(1, 6):
        x = LABEL + (severity - 1) * cell + side * zoom // 2
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
