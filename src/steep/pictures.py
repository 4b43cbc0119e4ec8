"""Open picture files that somebody else made: a few formats, nothing that starts a program."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from steep.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

# Pillow decodes these itself. Left out on purpose: EPS starts Ghostscript; WMF, BUFR, GRIB, HDF5 and FITS hand the
# file to whatever another library has registered; IPTC, ICNS and ICO open a second picture inside, of any format.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF", "PPM", "JPEG2000", "AVIF", "HEIF")


@contextlib.contextmanager
def open_picture(file: Path | BinaryIO) -> Iterator[Image.Image]:
    """Open a picture for the block; whatever is wrong with it, also while it is decoded, is a `DataError`."""
    from PIL import Image

    name = file if isinstance(file, Path) else "the picture"
    try:
        if isinstance(file, Path) and not stat.S_ISREG(file.stat().st_mode):  # a pipe would never end
            raise DataError(f"{name}: expected a picture file, got a folder, pipe or device")
        Image.init()
        with Image.open(file, formats=[form for form in FORMATS if form in Image.OPEN]) as picture:
            yield picture
    except DataError:
        raise
    except Exception as error:  # damaged bytes make decoders raise nearly anything
        raise DataError(f"{name}: not a readable picture ({error})") from error
