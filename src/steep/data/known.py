"""Every data set by name. What depends on which set it is reads its declaration; nothing else asks for a name."""

from __future__ import annotations

from steep.data.declaration import DataSet
from steep.data.sets.cifar import CIFAR10, CIFAR100
from steep.data.sets.digits import DIGITS
from steep.data.sets.domains import DOMAINS, PACS
from steep.data.sets.imagenet import IMAGENET, RELATIVES
from steep.data.sets.mnist import MNIST, MNIST_ROTATED
from steep.data.sets.private import ARRAYS, FOLDER
from steep.data.sets.tiny_imagenet import TINY_IMAGENET
from steep.errors import unknown

KNOWN: dict[str, DataSet] = {
    data.name: data
    for data in (
        *(CIFAR10, CIFAR100, TINY_IMAGENET, IMAGENET, *RELATIVES, PACS, *DOMAINS.values()),
        *(MNIST, MNIST_ROTATED, DIGITS, FOLDER, ARRAYS),
    )
}
"""Every set by name. With `-c` at the end of its name, each can be had corrupted."""


def data_set(name: str) -> DataSet:
    """Look up the declaration of a set by name; a corrupted set has that of its clean one."""
    if name.removesuffix("-c") not in KNOWN:
        raise unknown("data set", name, (*KNOWN, *(f"{known}-c" for known in KNOWN)))
    return KNOWN[name.removesuffix("-c")]
