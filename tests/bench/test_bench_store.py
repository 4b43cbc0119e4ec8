"""What a store survives: torn lines, newer versions, damage, a full disk, dead owners of cells."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from steep.bench.rows import SCHEMA, StoreError, encode, read
from steep.bench.store import Store
from steep.errors import DataError

SRC = Path(__file__).parents[2] / "src"
KEYS = [f"{i:02x}" * 32 for i in range(1, 6)]


def row(key: str, **more: object) -> dict[str, object]:
    return {"schema": SCHEMA, "key": key, "spec": {}, "accuracy": 0.5, **more}


def filled(path: Path, count: int = 3) -> Path:
    with Store(path) as store:
        for key in KEYS[:count]:
            store.append(row(key))
    return path / "rows.jsonl"


def test_rows_come_back_in_order_and_by_key(tmp_path: Path) -> None:
    file = filled(tmp_path)
    assert [r["key"] for r in read(tmp_path)] == KEYS[:3]
    assert [r["key"] for r in read(file)] == KEYS[:3]
    with Store(file) as store:
        assert len(store) == 3
        assert KEYS[1] in store
        assert KEYS[4] not in store
        assert store[KEYS[0]]["accuracy"] == 0.5


def test_who_is_interrupted_after_the_write_knows_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    with Store(tmp_path) as store:
        monkeypatch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.append(row(KEYS[0]))
        assert KEYS[0] in store
    assert [r["key"] for r in read(tmp_path)] == KEYS[:1]


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_is_moved_aside_and_nothing_else_is_lost(tmp_path: Path, cut: int) -> None:
    file = filled(tmp_path)
    with file.open("ab") as out:
        out.write(encode(row(KEYS[3]))[:cut])
    assert len(read(tmp_path)) == 3  # a reader passes it over
    with Store(tmp_path) as store:
        assert len(store) == 3
        assert "torn" in store.notes[0]
        assert "rows.jsonl.torn" in store.notes[0]
        store.append(row(KEYS[3]))
    assert [r["key"] for r in read(tmp_path)] == KEYS[:4]
    assert (tmp_path / "rows.jsonl.torn").read_bytes() == encode(row(KEYS[3]))[:cut] + b"\n"


def test_a_whole_row_without_its_end_of_line_is_kept(tmp_path: Path) -> None:
    file = filled(tmp_path)
    file.write_bytes(file.read_bytes()[:-1])
    with Store(tmp_path) as store:
        assert len(store) == 3
        assert store.notes == []
        store.append(row(KEYS[3]))
    assert len(read(tmp_path)) == 4


def test_a_line_torn_by_another_process_while_open_is_repaired_before_the_next_row(tmp_path: Path) -> None:
    file = filled(tmp_path)
    with Store(tmp_path) as store:
        with file.open("ab") as out:
            out.write(b'{"schema":1,"ke')
        store.append(row(KEYS[3]))
        assert KEYS[3] in store
    assert [r["key"] for r in read(tmp_path)] == KEYS[:4]


def test_a_store_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = filled(tmp_path)
    with file.open("ab") as out:
        out.write(encode(row(KEYS[3], schema=SCHEMA + 1)))
    before = file.read_bytes()
    for use in (Store, read):
        with pytest.raises(StoreError, match=rf"line 4 was written by a newer steep \(schema {SCHEMA + 1}.*Upgrade"):
            use(tmp_path)
    assert file.read_bytes() == before


def test_damage_in_the_middle_is_refused_with_its_line(tmp_path: Path) -> None:
    file = filled(tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + b'{"oops\n' + lines[2])
    with pytest.raises(StoreError, match=r"line 2 is damaged .* its cell will run again"):
        read(tmp_path)
    with pytest.raises(StoreError, match="line 2"):
        Store(tmp_path)


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = filled(tmp_path)
    before = file.read_bytes()
    real = os.write
    with Store(tmp_path) as store:
        monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:10]))  # half a row fits
        with pytest.raises(StoreError, match="could not be written"):
            store.append(row(KEYS[3]))
        monkeypatch.setattr(os, "write", real)
        assert file.read_bytes() == before
        monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
        with pytest.raises(StoreError, match="Input/output error"):
            store.append(row(KEYS[3]))
    assert file.read_bytes() == before


def test_where_nothing_can_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="expected to write there"):
        Store(tmp_path / "file" / "below")
    with pytest.raises(StoreError, match=r"no such store.*steep bench"):
        read(tmp_path / "nowhere")


def test_a_claim_excludes_others_and_dies_with_its_owner(tmp_path: Path) -> None:
    program = (
        "import sys, time; from steep.bench.store import Store; s = Store(sys.argv[1]); "
        f"print(s.claim({KEYS[0]!r}), flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline().strip() == "True"
        with Store(tmp_path) as store:
            assert not store.claim(KEYS[0])
            assert store.claim(KEYS[1])
            store.append(row(KEYS[1]))  # writing is not held up by claims
            owner.send_signal(signal.SIGKILL)
            owner.wait()
            assert store.claim(KEYS[0])
            store.release(KEYS[0])


def test_rows_of_two_writers_arrive_whole(tmp_path: Path) -> None:
    program = (
        "import sys; from steep.bench.store import Store; s = Store(sys.argv[1]); "
        "[s.append({'schema': 1, 'key': f'{sys.argv[2]}{i:063x}', 'spec': {}, 'pad': 'x' * 3000}) for i in range(60)]"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    both = [subprocess.Popen([*command, name], env={**os.environ, "PYTHONPATH": str(SRC)}) for name in "ab"]
    assert [process.wait() for process in both] == [0, 0]
    assert len({r["key"] for r in read(tmp_path)}) == 120


def test_where_files_cannot_be_locked_a_store_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(StoreError, match="Use WSL"):
        Store(tmp_path)
    assert list(tmp_path.iterdir()) == []


def shares(path: Path) -> list[object]:
    return [r.get("grid") for r in read(path)]


def test_a_row_says_how_much_of_its_grid_there_is_until_that_is_whole(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.begin(KEYS[:3])
        assert shares(tmp_path) == []
        store.append(row(KEYS[0]))
        assert shares(tmp_path) == [(1, 3)]  # while it runs
    assert shares(tmp_path) == [(1, 3)]  # and after it was stopped
    with Store(tmp_path) as store:
        store.begin([*KEYS[1:3], KEYS[0]])  # the same, in another order
        for key in KEYS[1:3]:
            store.append(row(key))
        assert shares(tmp_path) == [None] * 3
    assert [path.name for path in tmp_path.glob("*.grids")] == []
    assert all(b"grid" not in line for line in (tmp_path / "rows.jsonl").read_bytes().splitlines())


def test_a_grid_is_whole_whoever_made_its_rows(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.begin(KEYS)
        store.append(row(KEYS[4]))
        store.append(row("f" * 64))  # of no grid
    for key in KEYS[:4]:
        with Store(tmp_path) as store:
            store.begin([key])  # a part of it, wanted by itself
            store.append(row(key))
        here = KEYS.index(key) + 2
        assert shares(tmp_path) == ([(here, 5), None, *[(here, 5)] * (here - 1)] if here < 5 else [None] * 6)
    assert not (tmp_path / "rows.jsonl.grids").exists()


def test_a_damaged_file_of_grids_is_named(tmp_path: Path) -> None:
    filled(tmp_path)
    for content in ("[", "{}", "[1]", "[[1]]"):
        (tmp_path / "rows.jsonl.grids").write_text(content, encoding="utf-8")
        with pytest.raises(DataError, match=r"rows\.jsonl\.grids: .*Delete it"):
            read(tmp_path)
    (tmp_path / "rows.jsonl.grids").unlink()
    (tmp_path / "rows.jsonl").write_bytes(encode(row(KEYS[0], grid="a stranger's")))
    assert shares(tmp_path) == [None]
