"""Checkpoints: exact round trips, the wrappers people save in, and files that are wrong in every way."""

import argparse
import io
import os
import pickle
import threading
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save as to_safetensors
from safetensors.torch import save_file
from torch import nn

from steep.errors import CheckpointError, InputError
from steep.models import Normalized, build, checkpoints
from steep.predicting import load_model

FORMATS = [".safetensors", ".pt", ".pth"]


def tiny(seed=0, classes=4):
    torch.manual_seed(seed)
    return build("wrn-10-1", classes)


def snapshot(model):
    return {key: value.clone() for key, value in model.state_dict().items()}


def same(model, state):
    ours = model.state_dict()
    return ours.keys() == state.keys() and all(torch.equal(ours[key], state[key]) for key in ours)


def refused(model, path, match=None):
    """Loading fails with the named error and leaves the model bit for bit as it was."""
    before = snapshot(model)
    with pytest.raises(CheckpointError, match=match) as caught:
        checkpoints.load(model, path)
    assert same(model, before)
    return str(caught.value)


# Round trips


@pytest.mark.parametrize("suffix", FORMATS)
def test_round_trip_is_bit_exact(tmp_path, suffix):
    source, target = tiny(0), tiny(1)
    source(torch.rand(4, 3, 8, 8))  # running statistics and counters that are not the defaults
    file = checkpoints.save(source, tmp_path / f"net{suffix}", metadata={"data": "none", "seed": "0"})
    assert not same(target, snapshot(source))
    assert checkpoints.load(target, file) == {"data": "none", "seed": "0"}
    assert same(target, snapshot(source))
    assert os.listdir(tmp_path) == [f"net{suffix}"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_odd_tensors_survive(tmp_path, suffix):
    class Odd(nn.Module):
        def __init__(self, fill):
            super().__init__()
            self.empty = nn.Parameter(torch.zeros(0, 3))
            self.scalar = nn.Parameter(torch.tensor(fill))
            self.strided = nn.Parameter(torch.full((2, 4, 3, 3), fill).to(memory_format=torch.channels_last))
            self.tied = self.strided
            self.register_buffer("flags", torch.tensor([fill > 0.5]))
            self.register_buffer("weird", torch.tensor([float("nan"), float("inf"), -0.0]))

    source, target = Odd(1.0), Odd(0.0)
    checkpoints.load(target, checkpoints.save(source, tmp_path / f"odd{suffix}"))
    for key, value in source.state_dict().items():
        torch.testing.assert_close(target.state_dict()[key], value, rtol=0, atol=0, equal_nan=True)
    assert target.tied is target.strided


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_file_in_another_precision_loads_into_the_model_s(tmp_path, dtype):
    source, target = tiny(0), tiny(1)
    file = checkpoints.save(source, tmp_path / "net.safetensors", dtype=dtype)
    assert checkpoints.read(file).tensors["fc.weight"].dtype == dtype
    assert checkpoints.read(file).tensors["bn1.num_batches_tracked"].dtype == torch.int64
    checkpoints.load(target, file)
    assert {p.dtype for p in target.parameters()} == {torch.float32}
    assert torch.equal(target.fc.weight, source.fc.weight.to(dtype).float())


def test_loaded_weights_do_not_follow_the_file(tmp_path):
    file = checkpoints.save(tiny(0), tmp_path / "net.safetensors")
    net = tiny(1)
    checkpoints.load(net, file)
    tensors = checkpoints.read(file).tensors
    kept, values = snapshot(net), {key: value.clone() for key, value in tensors.items()}
    with file.open("r+b") as handle:
        handle.seek(-4096, os.SEEK_END)
        handle.write(b"\xff" * 4096)
    assert same(net, kept)
    assert all(torch.equal(tensors[key], values[key]) for key in values)


def test_training_can_go_on_after_loading(tmp_path):
    file = checkpoints.save(tiny(0), tmp_path / "net.pt")
    net = tiny(1)
    checkpoints.load(net, file)
    net(torch.rand(2, 3, 8, 8)).sum().backward()
    assert all(p.requires_grad and p.grad is not None for p in net.parameters())


# The wrappers people save in

WRAPPED = {
    "bare": lambda s: s,
    "data parallel": lambda s: {f"module.{k}": v for k, v in s.items()},
    "compiled": lambda s: {f"_orig_mod.{k}": v for k, v in s.items()},
    "state_dict": lambda s: {"state_dict": s, "epoch": 3, "optimizer": {"lr": 0.1}},
    "model": lambda s: {"model": s, "args": {"lr": 0.1}},
    "lightning": lambda s: {"state_dict": {f"model.{k}": v for k, v in s.items()}, "global_step": 7},
    "lightning over data parallel": lambda s: {"state_dict": {f"model.module.{k}": v for k, v in s.items()}},
    "nested": lambda s: {"model": {"state_dict": s}},
    "unknown prefix": lambda s: {f"encoder.backbone.{k}": v for k, v in s.items()},
    "parameters": lambda s: OrderedDict((k, nn.Parameter(v, requires_grad=False)) for k, v in s.items()),
    "no counters": lambda s: {k: v for k, v in s.items() if not k.endswith("num_batches_tracked")},
    "counters as floats": lambda s: {k: v.float() for k, v in s.items()},
}


@pytest.mark.parametrize("wrapper", WRAPPED)
def test_wrapped_weights_load(tmp_path, wrapper):
    source, target = tiny(0), tiny(1)
    torch.save(WRAPPED[wrapper](source.state_dict()), tmp_path / "net.pth")
    checkpoints.load(target, tmp_path / "net.pth")
    assert same(target, snapshot(source))


def test_prefix_in_safetensors(tmp_path):
    source, target = tiny(0), tiny(1)
    save_file({f"module.{k}": v for k, v in source.state_dict().items()}, tmp_path / "net.safetensors")
    checkpoints.load(target, tmp_path / "net.safetensors")
    assert same(target, snapshot(source))


def compiled(model):
    """What `torch.compile` makes of the names, without starting a compiler."""
    return nn.Sequential(OrderedDict(_orig_mod=model))


@pytest.mark.parametrize("wrap", [nn.DataParallel, compiled, lambda model: nn.DataParallel(compiled(model))])
def test_model_in_a_shell_loads_bare_weights(tmp_path, wrap):
    source, target = tiny(0), tiny(1)
    file = checkpoints.save(source, tmp_path / "net.safetensors")
    checkpoints.load(wrap(target), file)
    assert same(target, snapshot(source))


def test_old_legacy_format_and_any_suffix(tmp_path):
    source, target = tiny(0), tiny(1)
    torch.save(source.state_dict(), tmp_path / "net.ckpt", _use_new_zipfile_serialization=False)
    checkpoints.load(target, tmp_path / "net.ckpt")
    assert same(target, snapshot(source))


def test_model_whose_own_names_share_a_prefix(tmp_path):
    def make(seed):
        return nn.Sequential(OrderedDict(model=tiny(seed)))

    source, target = make(0), make(1)
    checkpoints.load(target, checkpoints.save(source, tmp_path / "net.safetensors"))
    assert same(target, snapshot(source))


def test_prefix_is_taken_off_only_if_every_name_has_it(tmp_path):
    state = tiny(0).state_dict()
    mixed = {(f"module.{k}" if k.startswith("block") else k): v for k, v in state.items()}
    torch.save(mixed, tmp_path / "net.pt")
    message = refused(tiny(1), tmp_path / "net.pt")
    assert "unexpected in the file: module.block1" in message


def test_two_prefixes_of_one_length_are_not_taken_for_one(tmp_path):
    state = tiny(0).state_dict()
    mixed = {(f"gamma.{k}" if k.startswith("fc") else f"alpha.{k}"): v for k, v in state.items()}
    torch.save(mixed, tmp_path / "net.pt")
    refused(tiny(1), tmp_path / "net.pt", r"unexpected in the file: alpha\.")


def test_extra_weights_beside_the_model_are_not_dropped_silently(tmp_path):
    state = {f"model.{k}": v for k, v in tiny(0).state_dict().items()}
    torch.save({"state_dict": {**state, "model_ema.fc.bias": torch.zeros(4)}}, tmp_path / "net.pt")
    refused(tiny(1), tmp_path / "net.pt", "unexpected in the file")


# A mismatch says what differs


def test_missing_unexpected_shape_and_kind_are_all_named(tmp_path):
    state = dict(tiny(0, classes=10).state_dict())
    del state["bn1.weight"]
    state["head.bias"] = torch.zeros(3)
    state["conv1.weight"] = state["conv1.weight"].to(torch.int32)
    save_file(state, tmp_path / "net.safetensors")
    message = refused(tiny(1), tmp_path / "net.safetensors", "does not fit WideResNet")
    assert "1 missing from the file: bn1.weight" in message
    assert "1 unexpected in the file: head.bias" in message
    assert "2 of another shape, file for model: fc.weight (10, 64) for (4, 64), fc.bias (10,) for (4,)" in message
    assert "1 of another kind, file for model: conv1.weight torch.int32 for torch.float32" in message


def test_prefix_is_understood_before_differences_are_listed(tmp_path):
    state = {f"module.{k}": v for k, v in tiny(0).state_dict().items() if k != "fc.bias"}
    torch.save({"state_dict": state}, tmp_path / "net.pt")
    message = refused(tiny(1), tmp_path / "net.pt")
    assert message.splitlines()[1:] == ["  1 missing from the file: fc.bias"]


def test_long_lists_are_cut_after_eight(tmp_path):
    save_file({f"x{i}.w": torch.zeros(1) for i in range(11)}, tmp_path / "net.safetensors")
    message = refused(tiny(1), tmp_path / "net.safetensors")
    shown = "x0.w, x1.w, x10.w, x2.w, x3.w, x4.w, x5.w, x6.w and 3 more"
    assert message.splitlines()[-1] == f"  11 unexpected in the file: {shown}"


def test_bare_weights_for_a_wrapped_model_get_the_hint(tmp_path):
    file = checkpoints.save(tiny(0), tmp_path / "net.safetensors")
    wrapped = Normalized(tiny(1), [0.5] * 3, [0.5] * 3)
    refused(wrapped, file, r"It fits the model's \.model: load it there")
    checkpoints.load(wrapped.model, file)


def test_models_and_children_without_state(tmp_path):
    file = checkpoints.save(tiny(0), tmp_path / "net.safetensors")
    refused(nn.ReLU(), file, "unexpected in the file")
    refused(nn.Sequential(nn.ReLU(), nn.Linear(2, 1)), file, "unexpected in the file")


# Files that are no checkpoint


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def hostile_files(folder, trap):
    bomb = Bomb(trap)
    (folder / "bare.pkl").write_bytes(pickle.dumps(bomb))
    (folder / "dict.pt").write_bytes(pickle.dumps({"state_dict": {"fc.weight": bomb}}))
    torch.save({"fc.weight": bomb}, folder / "zip.pt")
    torch.save({"fc.weight": bomb}, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(tiny(), folder / "whole_model.pt")  # not hostile, but cannot be read without running code
    protocol_zero = f"cbuiltins\nopen\n(V{trap}\nVw\ntR."
    (folder / "text.pkl").write_text(protocol_zero)
    return sorted(folder.iterdir())


def test_pickled_code_is_never_run(tmp_path):
    trap = tmp_path / "trap"
    folder = tmp_path / "files"
    folder.mkdir()
    files = hostile_files(folder, trap)
    assert len(files) == 6
    pickle.loads((folder / "bare.pkl").read_bytes()).close()  # the bomb does go off in the wrong hands
    trap.unlink()
    for file in files:
        refused(tiny(), file)
        assert not trap.exists()


def zipped(name, content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


NOT_CHECKPOINTS = {
    "empty": b"",
    "one byte": b"\x80",
    "text": b"accuracy,loss\n0.9,0.1\n",
    "image": b"\x89PNG\r\n\x1a\n" + bytes(64),
    "zip of something else": zipped("notes.txt", "hello"),
    "zip cut short": zipped("archive/data.pkl", "hello")[:30],
    "safetensors header of impossible length": b"\xff\xff\xff\xff\xff\xff\xff\x7f{",
    "safetensors header of garbage": (16).to_bytes(8, "little") + b"{not json at all",
    "safetensors without tensors": to_safetensors({}),
    "recursive header": (4000).to_bytes(8, "little") + b'{"a":' * 800,
}


@pytest.mark.parametrize("kind", NOT_CHECKPOINTS)
def test_not_a_checkpoint(tmp_path, kind):
    for name in ("net.safetensors", "net.pt"):
        (tmp_path / name).write_bytes(NOT_CHECKPOINTS[kind])
        refused(tiny(), tmp_path / name, r"net\.\w+: expected .*, got ")


@pytest.mark.parametrize(
    "content",
    [[1, 2], torch.zeros(3), {}, {"state_dict": {}}, {"epoch": 1}, {1: torch.zeros(1)}, {"a": torch.zeros(1), "b": 2}],
    ids=["list", "tensor", "empty", "empty state", "no weights", "number as key", "mixed"],
)
def test_pytorch_file_without_weights(tmp_path, content):
    torch.save(content, tmp_path / "net.pt")
    refused(tiny(), tmp_path / "net.pt", "expected names and tensors, got ")


def test_sparse_tensors_are_refused(tmp_path):
    torch.save({"fc.bias": torch.eye(3).to_sparse()}, tmp_path / "net.pt")
    refused(tiny(), tmp_path / "net.pt", "expected names and tensors, got ")


def test_missing_file_and_folder(tmp_path):
    refused(tiny(), tmp_path / "none.safetensors", "expected a file of weights, got No such file")
    refused(tiny(), tmp_path, "expected a file of weights, got Is a directory")


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_truncation_is_noticed(tmp_path, suffix):
    whole = checkpoints.save(tiny(0), tmp_path / f"net{suffix}").read_bytes()
    net = tiny(1)
    for keep in (0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 100, len(whole) - 1):
        (tmp_path / f"cut{suffix}").write_bytes(whole[:keep])
        refused(net, tmp_path / f"cut{suffix}")


class Small(nn.Module):
    def __init__(self, fill):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.bn = nn.BatchNorm1d(2)
        nn.init.constant_(self.fc.weight, fill)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.filterwarnings("ignore")  # a damaged pickle may trip any deprecation on its way to the error
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_bytes_load_whole_or_not_at_all(tmp_path, suffix, data):
    whole = bytearray(checkpoints.save(Small(1.0), tmp_path / f"net{suffix}").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / f"bad{suffix}").write_bytes(whole)
    net = Small(0.5)
    before = snapshot(net)
    try:
        checkpoints.load(net, tmp_path / f"bad{suffix}")
    except CheckpointError:
        assert same(net, before)


# Files that change, and files that ask for too much


def test_a_file_replaced_while_it_is_read_gives_one_of_the_two_models(tmp_path, monkeypatch):
    """Between any two looks at the path another model may lie there; what is loaded is the first or the second."""
    first, second, file = Small(1.0), Small(2.0), tmp_path / "net.safetensors"
    second.extra = nn.Linear(5, 5)  # another header, so that every offset differs
    checkpoints.save(first, file)
    opened = type(file).open

    def replaced(self, *args, **kwargs):
        handle = opened(self, *args, **kwargs)
        if self == file:
            checkpoints.save(second, tmp_path / "other.safetensors").replace(file)
        return handle

    monkeypatch.setattr(type(file), "open", replaced)
    net = Small(0.0)
    checkpoints.load(net, file)
    assert net.fc.weight.unique().tolist() == [1.0]


def test_two_models_saved_in_turn_while_they_are_loaded(tmp_path):
    file, stop = tmp_path / "net.safetensors", threading.Event()

    def saves():
        payloads = [to_safetensors({"fc": torch.full((64 * fill,), float(fill))}) for fill in (1, 2)]
        turn = 0
        while not stop.is_set():
            (tmp_path / "new").write_bytes(payloads[turn % 2])
            (tmp_path / "new").replace(file)
            turn += 1

    file.write_bytes(to_safetensors({"fc": torch.ones(64)}))
    thread = threading.Thread(target=saves)
    thread.start()
    try:
        for _ in range(300):
            tensor = checkpoints.read(file).tensors["fc"]
            assert tensor.unique().tolist() == [len(tensor) / 64]
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("count", [32 * 10**9, 10**8])
def test_a_small_file_does_not_ask_for_a_large_memory(tmp_path, count):
    torch.save({"fc.weight": torch.zeros(1).expand(count)}, tmp_path / "net.pt")
    assert (tmp_path / "net.pt").stat().st_size < 4_000
    with pytest.raises(CheckpointError, match=r"fc\.weight"):
        checkpoints.read(tmp_path / "net.pt")


@pytest.mark.parametrize("weight", [torch.zeros(10**9, 0), torch.zeros(1, 1).expand(10**7, 1)])
def test_the_number_of_classes_is_not_taken_from_a_tensor_the_file_does_not_hold(tmp_path, weight):
    state = tiny().state_dict() | {"fc.weight": weight}
    torch.save(state, tmp_path / "net.pt")
    with pytest.raises(CheckpointError, match=r"fc\.weight"):
        load_model("wrn-10-1", weights=tmp_path / "net.pt")


def test_sizes_are_compared_before_the_model_gets_memory(tmp_path, monkeypatch):
    """A real column of four million values would mean a matrix of 64 times as many."""
    torch.save(tiny().state_dict() | {"fc.weight": torch.zeros(4_000_000, 1)}, tmp_path / "net.pt")
    built = []
    monkeypatch.setattr(nn.Linear, "reset_parameters", lambda self: built.append(self.weight.device.type))
    with pytest.raises(CheckpointError, match=r"fc\.weight \(4000000, 1\) for \(4000000, 64\)"):
        load_model("wrn-10-1", weights=tmp_path / "net.pt")
    assert set(built) == {"meta"}


@pytest.mark.parametrize("legacy", [False, True])
def test_numpy_values_beside_the_weights_do_not_matter(tmp_path, legacy):
    source, target = tiny(0), tiny(1)
    content = {
        "state_dict": source.state_dict(),
        "best_accuracy": np.float64(0.93),
        "epoch": np.int64(7),
        "losses": np.arange(3.0),
        "names": {"mean": [np.float32(0.5), np.bool_(True)]},
    }
    torch.save(content, tmp_path / "net.pth", _use_new_zipfile_serialization=not legacy)
    checkpoints.load(target, tmp_path / "net.pth")
    assert same(target, snapshot(source))


def test_a_numpy_array_among_the_weights_is_named(tmp_path):
    torch.save({"fc.weight": torch.zeros(2), "fc.bias": np.zeros(2)}, tmp_path / "net.pt")
    refused(tiny(), tmp_path / "net.pt", r"fc\.bias")


def test_a_type_that_only_code_can_read_is_named_with_the_way_to_convert_it(tmp_path):
    torch.save({"state_dict": tiny().state_dict(), "args": argparse.Namespace(lr=0.1)}, tmp_path / "net.pt")
    message = refused(tiny(), tmp_path / "net.pt", "argparse.Namespace")
    assert "weights_only=False" in message
    assert "torch.save(" in message


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_and_8_bit_tensors_are_named(tmp_path):
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    torch.save(tiny().state_dict() | {"fc.bias": nested}, tmp_path / "net.pt")
    refused(tiny(), tmp_path / "net.pt", r"fc\.bias")
    with pytest.raises(InputError, match="dtype"):
        checkpoints.save(tiny(), tmp_path / "small.safetensors", dtype=torch.float8_e4m3fn)


def test_a_pipe_is_not_a_file_of_weights(tmp_path):
    os.mkfifo(tmp_path / "net.pt")
    holder = os.open(tmp_path / "net.pt", os.O_RDWR)  # so that opening it does not wait
    refused(tiny(), tmp_path / "net.pt", "regular file")
    os.close(holder)
