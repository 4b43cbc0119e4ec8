"""Sealed files (adapter state, training checkpoints) that are replaced while they are read."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from steep import sealed
from steep.core.io import saving
from steep.errors import CheckpointError

pytestmark = pytest.mark.hostile


@pytest.mark.parametrize("where", ["opened", "mapped"])
def test_a_file_replaced_while_it_is_read_is_read_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Replaced right after it is opened, or before a reader that parsed its header maps the rest of it by name."""
    file, other = tmp_path / "state", tmp_path / "other"
    saving.save({"count": 1, "weights": torch.ones(8)}, file)
    saving.save({"count": 2, "other": torch.zeros(99), "weights": torch.full((4,), 2.0)}, other)
    content = other.read_bytes()

    def replace() -> None:
        other.write_bytes(content)
        other.replace(file)

    if where == "opened":
        opened = type(file).open

        def open_and_replace(self: Path, *args: object, **options: object) -> object:
            handle = opened(self, *args, **options)  # type: ignore[call-overload]
            if self == file:
                replace()
            return handle

        monkeypatch.setattr(type(file), "open", open_and_replace)
    else:
        from_file = torch.UntypedStorage.from_file

        def replace_and_map(*args: object, **options: object) -> object:
            replace()
            return from_file(*args, **options)

        monkeypatch.setattr(torch.UntypedStorage, "from_file", replace_and_map)
    state = saving.load(file)
    assert (state["count"], state["weights"].tolist()) == (1, [1.0] * 8)


def test_a_reader_beside_a_writer_never_finds_a_damaged_file(tmp_path: Path) -> None:
    file, stop = tmp_path / "state", threading.Event()

    def write(number: int) -> None:
        sealed.write(file, "a test", {"weight": torch.full((16 * number,), float(number))}, {"number": number})

    def writes() -> None:
        while not stop.is_set():
            write(1)
            write(2)

    write(1)
    thread = threading.Thread(target=writes)
    thread.start()
    try:
        for _ in range(100):
            tensors, facts = sealed.read(file, "a test")
            assert tensors["weight"].tolist() == [float(facts["number"])] * (16 * facts["number"])
    finally:
        stop.set()
        thread.join()


def test_a_folder_and_a_missing_file_are_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(CheckpointError, match=path.name):
            sealed.read(path, "a test")
