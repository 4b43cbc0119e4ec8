"""What the sets declare of themselves, held against the sets as they are loaded."""

from __future__ import annotations

import pytest

from steep.data import NAMES, load
from steep.data.known import KNOWN, data_set
from steep.errors import InputError, UnknownNameError


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_declared_shape_classes_and_counts_are_those_of_the_pictures(split: str) -> None:
    declared = data_set("digits")
    images = load("digits", split)
    assert (len(images), images.images.shape[1:], images.classes) == (
        declared.count(split),
        declared.shape,
        declared.classes,
    )
    assert declared.count("train") + declared.count("test") == 1_797


def test_every_set_is_declared_and_a_corrupted_one_is_declared_as_its_clean_one() -> None:
    assert tuple(KNOWN) == NAMES
    for name, declared in KNOWN.items():
        assert data_set(name) is data_set(f"{name}-c") is declared
        assert not declared.classes or len(declared.classes) == declared.class_count
        assert not declared.parts or set(declared.domains) <= set(declared.parts)  # folder sets declare no counts
    assert data_set("mnist-rotated").count("test") == data_set("mnist").count("test") == 10_000
    assert data_set("tiny-imagenet-c").count() == 10_000


def test_the_splits_of_a_domain_make_it_whole() -> None:
    pacs = data_set("pacs")
    for domain, part in pacs.parts.items():
        assert pacs.count("train", domain) + pacs.count("val", domain) == pacs.count("test", domain) == part.count
    assert pacs.count("train", "photo") == 1_503  # nine tenths of 1,670


def test_names_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="cifar10-c"):
        data_set("cifar-10-c")
    with pytest.raises(UnknownNameError, match="split"):
        data_set("cifar10").count("val")
    with pytest.raises(UnknownNameError, match="domain"):
        data_set("pacs").count("test")
    with pytest.raises(InputError, match="domain"):
        data_set("cifar10").count("test", "photo")
