"""The one shape every set has in memory."""

from __future__ import annotations

from dataclasses import dataclass

from steep.data.arrays import Images, Labels


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSet:
    """Pictures with their labels.

    `images` are uint8 (N, H, W, C), possibly memory-mapped and read-only; they become floats only on the device
    (see `steep.data.batches`). `origin` says where the bytes came from and `digest` is the sha256 of `images`.
    """

    images: Images
    labels: Labels  # (N,)
    classes: tuple[str, ...]
    name: str
    split: str
    origin: str
    digest: str

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.images.shape))
        return f"ImageSet({self.name}/{self.split}, {shape}, {len(self.classes)} classes, {self.origin})"
