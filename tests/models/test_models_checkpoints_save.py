"""Saving checkpoints: whole or not at all, the same bytes for the same weights, and only what can be stored."""

import os

import pytest
import torch
from torch import nn

from steep.errors import CheckpointError, DataError, InputError
from steep.models import build, checkpoints

FORMATS = [".safetensors", ".pt", ".pth"]


def tiny(seed=0):
    torch.manual_seed(seed)
    return build("wrn-10-1", 4)


def constant(fill):
    layer = nn.Linear(3, 2)
    nn.init.constant_(layer.weight, fill)
    return nn.Sequential(layer)


def test_equal_weights_give_equal_bytes(tmp_path):
    many = {f"key {i}": "é" * i for i in range(12)}
    first = checkpoints.save(tiny(), tmp_path / "a.safetensors", metadata=many).read_bytes()
    second = checkpoints.save(tiny(), tmp_path / "b.safetensors", metadata=dict(reversed(many.items()))).read_bytes()
    assert first == second
    assert checkpoints.read(tmp_path / "a.safetensors").metadata == many
    # the header is padded so that the tensors stay aligned
    assert int.from_bytes(first[:8], "little") % 8 == 0


def test_overflow_is_not_written(tmp_path):
    net = nn.Linear(2, 1)
    net.weight.data.fill_(1e6)
    with pytest.raises(CheckpointError, match=r"weight: expected values within the range of torch.float16, got up to"):
        checkpoints.save(net, tmp_path / "net.safetensors", dtype=torch.float16)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("suffix", FORMATS)
def test_failed_save_leaves_the_old_file_and_no_debris(tmp_path, suffix, monkeypatch):
    file = checkpoints.save(tiny(0), tmp_path / f"net{suffix}")
    old = file.read_bytes()

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="the disk is full"):
        checkpoints.save(tiny(1), file)
    assert file.read_bytes() == old
    assert os.listdir(tmp_path) == [file.name]


def test_reader_of_the_old_file_keeps_the_old_file(tmp_path):
    file = checkpoints.save(constant(0.0), tmp_path / "net.safetensors")
    whole = file.read_bytes()
    with file.open("rb", buffering=0) as reader:
        half = reader.read(len(whole) // 2)
        checkpoints.save(constant(1.0), file)
        assert half + reader.read() == whole
    assert checkpoints.read(file).tensors["0.weight"].unique().tolist() == [1.0]


def test_a_folder_is_made_and_a_file_in_its_place_is_refused(tmp_path):
    assert checkpoints.save(tiny(), tmp_path / "new" / "net.safetensors").is_file()
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="file"):
        checkpoints.save(tiny(), tmp_path / "file" / "net.safetensors")


def test_new_file_has_ordinary_permissions(tmp_path):
    (tmp_path / "plain").touch()
    file = checkpoints.save(constant(0.0), tmp_path / "net.safetensors")
    assert file.stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("metadata", [{"accuracy": 95.7}, {1: "one"}, {"a": None}])
def test_metadata_are_strings(tmp_path, metadata):
    with pytest.raises(InputError, match="metadata: expected strings, got"):
        checkpoints.save(tiny(), tmp_path / "net.safetensors", metadata=metadata)


def test_unknown_suffix(tmp_path):
    with pytest.raises(InputError, match=r"expected a name ending in .safetensors, .pt or .pth, got 'net.bin'"):
        checkpoints.save(tiny(), tmp_path / "net.bin")


def test_model_without_data_is_refused(tmp_path):
    file = checkpoints.save(tiny(), tmp_path / "net.safetensors")
    with torch.device("meta"):
        net = tiny()
    with pytest.raises(CheckpointError, match="model: expected a state of dense tensors with data"):
        checkpoints.load(net, file)
