"""Pictures streamed from disk: how fast, compared with the decoder alone, and in how much memory?

    python -m benchmarks.picture_stream --pictures 50000 --out results/picture-stream.jsonl

JPEG files are generated in a temporary folder. The stream is read in windows, one after the other. Before each window
the same files are opened, resized and cropped by Pillow alone, in as many processes as there are cores, and dropped:
the ratio of the two is taken window by window, so a busy machine slows both. `cpu_ratio` is the same for the seconds of
a core that a picture takes, which others on the machine change less. Resident memory is sampled after each window.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.rows import append
from steep import provenance
from steep.data import batches, load, to_device
from steep.data.streamed import threads

DIFFERENT = 200  # pictures; each is written to many files


def write(folder: Path, pictures: int, width: int, height: int) -> list[Path]:
    """Write noise over colours, about as many bytes as a photograph, into ten class folders."""
    draw = np.random.default_rng(0)
    encoded = []
    for _ in range(min(DIFFERENT, pictures)):
        few = Image.fromarray(draw.integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8))
        pixels = np.asarray(few.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
        noisy = (pixels + draw.integers(-12, 13, pixels.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / "one.jpg", quality=90)
        encoded.append((folder / "one.jpg").read_bytes())
    (folder / "one.jpg").unlink()
    files = []
    for number in range(pictures):
        file = folder / "pictures" / f"class{number % 10}" / f"{number:06}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encoded[number % len(encoded)])
        files.append(file)
    return sorted(files)  # class by class, as a set lies


def decode(files: list[Path]) -> float:
    """What everyone writes: open, resize the short side to 256, cut 224 out of the middle. Return seconds of a core."""
    begun = time.process_time()
    for file in files:
        with Image.open(file) as opened:
            picture = opened.convert("RGB")
        scale = 256 / min(picture.size)
        picture = picture.resize((int(picture.width * scale), int(picture.height * scale)), Image.Resampling.BILINEAR)
        left, top = (picture.width - 224) // 2, (picture.height - 224) // 2
        np.asarray(picture.crop((left, top, left + 224, top + 224)))
    return time.process_time() - begun


def memory() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def run(pictures: int, batch: int, window: int, width: int, height: int, floats: bool) -> dict:
    with tempfile.TemporaryDirectory() as place:
        files = write(Path(place), pictures, width, height)
        data = load("folder", root=Path(place) / "pictures", size=224, crop=0.875, stream=True)
        rates, ratios, cpu, memories = [], [], [], []
        cores = threads()
        with multiprocessing.get_context("spawn").Pool(cores) as pool:
            pool.map(decode, [files[:20]] * cores)
            for start in range(0, pictures, window):
                some = files[start : start + window]
                begun = time.perf_counter()
                shares = [some[first : first + 16] for first in range(0, len(some), 16)]  # whoever is free takes one
                busy = sum(pool.map(decode, shares, chunksize=1)) / len(some)
                alone = len(some) / (time.perf_counter() - begun)
                count, begun, begun_cpu = 0, time.perf_counter(), time.process_time()
                order = np.arange(start, start + len(some))  # begins and ends with nothing decoded ahead
                for pixels, _ in batches(data, batch, order=order).pixels():
                    count += len(to_device(pixels) if floats else pixels)
                rates.append(count / (time.perf_counter() - begun))
                ratios.append(rates[-1] / alone)
                cpu.append(busy * count / (time.process_time() - begun_cpu))
                memories.append(memory())
                print(
                    f"{start + count:7,} {rates[-1]:7.0f}/s {ratios[-1]:6.1%} of Pillow alone "
                    f"{memories[-1] / 1e6:7.0f} MB"
                )
    return {
        "benchmark": "picture-stream",
        "pictures": pictures,
        "batch": batch,
        "shape": [height, width],
        "floats": floats,
        "cores": cores,
        "pictures_per_s": [round(rate, 1) for rate in rates],
        "ratio": round(statistics.median(ratios), 4),
        "cpu_ratio": round(statistics.median(cpu), 4),
        "ratios": [round(ratio, 4) for ratio in ratios],
        "bytes": memories,
        "load_average": os.getloadavg()[0],
        **provenance.stamp("cpu"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--window", type=int, default=20, help="batches")
    parser.add_argument("--width", type=int, default=500)
    parser.add_argument("--height", type=int, default=375)
    parser.add_argument("--floats", action="store_true", help="also make floats of them, on the CPU")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    row = run(asked.pictures, asked.batch, asked.window * asked.batch, asked.width, asked.height, asked.floats)
    first, last = row["bytes"][0] / 1e6, row["bytes"][-1] / 1e6
    print(
        f"median {row['ratio']:.1%} of Pillow alone, {row['cpu_ratio']:.1%} by core; memory {first:.0f} → {last:.0f} MB"
    )
    append(asked.out, row)


if __name__ == "__main__":
    main()
