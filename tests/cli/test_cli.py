"""The command line: what it prints, its exit codes, and that nothing but a message reaches the user."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import steep
from steep import cli
from steep.cli import main
from steep.errors import DataError


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    images = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), dtype=np.uint8)
    np.savez(tmp_path / "set.npz", images=images, labels=np.arange(6) % 2)
    return tmp_path / "set.npz"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"steep {steep.__version__}\n"


def test_python_m_steep() -> None:
    done = subprocess.run([sys.executable, "-m", "steep", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"steep {steep.__version__}\n")


@pytest.mark.parametrize("command", [["data", "list"], ["data", "fetch"], ["data", "verify"], ["corrupt"]])
def test_every_command_has_an_example(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    assert f"Example: steep {' '.join(command)}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["corrupt"], ["data", "fetch"], ["corrupt", "digits", "--seed", "x"]]
)
def test_a_wrong_call_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["corrupt", "digits"], "error: steep corrupt: nothing to do. Give --out DIR"),
        (["corrupt", "digitz", "--out", "x"], "error: unknown data set 'digitz': did you mean 'digits'"),
        (["corrupt", "digits", "--out", "x", "--only", "fogg"], "error: unknown corruption 'fogg': did you mean 'fog'"),
        (
            ["corrupt", "digits", "--out", "x", "--severity", "6"],
            "error: severity: expected a whole number from 1 to 5, got 6",
        ),
        (["data", "fetch", "cifar"], "error: unknown data set 'cifar': did you mean 'cifar10'"),
        (["data", "verify", "cifar10"], "error: cifar10 (train) is not below"),
        (["corrupt", "cifar10", "--out", "x"], "Run: steep data fetch cifar10"),
    ],
)
def test_an_error_is_one_line_with_the_fix(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STEEP_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_debug_anywhere_shows_the_trace(tmp_path: Path) -> None:
    for arguments in (["--debug", "corrupt", "digits"], ["corrupt", "digits", "--debug"]):
        with pytest.raises(steep.errors.SteepError, match="nothing to do"):
            main(arguments)


def test_brackets_in_a_message_are_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise DataError("a [bold]file[/bold] named [x]")

    monkeypatch.setattr(cli, "app", fail)
    assert main([]) == 2
    assert capsys.readouterr().err == "error: a [bold]file[/bold] named [x]\n"


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch, npz: Path, tmp_path: Path) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("steep.corruptions.corrupt", stop)
    assert main(["corrupt", "arrays", "--root", str(npz), "--out", str(tmp_path / "c"), "--only", "fog"]) == 130


def test_write_then_check(npz: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c"
    common = ["corrupt", "arrays", "--root", str(npz), "--only", "contrast,pixelate"]
    assert main([*common, "--out", str(out), "--severity", "1", "--severity", "5", "--seed", "3"]) == 0
    assert "2 made, 0 already there" in capsys.readouterr().err
    assert np.load(out / "contrast_s1_s5.npy").shape == (12, 16, 16, 3)
    assert json.loads((out / "steep-corruptions.json").read_text())["seed"] == 3
    assert main([*common, "--check", str(out), "--severity", "5", "--seed", "3"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("identical") == 2
    changed = np.load(out / "contrast_s1_s5.npy") // 2
    other = tmp_path / "other"
    other.mkdir()
    np.save(other / "contrast.npy", np.tile(changed[:6], (5, 1, 1, 1)))
    np.save(other / "labels.npy", np.tile(np.arange(6) % 2, 5))
    assert main(["corrupt", "arrays", "--root", str(npz), "--check", str(other)]) == 1
    assert "differs" in capsys.readouterr().out


def test_all_means_nineteen(npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steep.corruptions.corrupt", lambda images, *_, **__: images)
    monkeypatch.setattr("steep.corruptions.frost_source", lambda: "procedural")
    out = tmp_path / "c"
    assert main(["corrupt", "arrays", "--root", str(npz), "--out", str(out), "--only", "all", "--severity", "1"]) == 0
    assert len(list(out.glob("*_s1.npy"))) == 19


def test_data_list_names_every_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list", "--root", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for name in ("cifar10", "cifar100", "tiny-imagenet", "pacs", "art_painting", "mnist"):
        assert f" {name} " in printed  # whole, though a pipe has no width
    assert printed.count("missing") == 12


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")


def in_colour(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.usefixtures("narrow")
def test_names_are_whole_in_80_columns(tmp_path: Path, npz: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "cifar-10-python.tar.gz").write_bytes(b"")
    assert main(["data", "list", "--root", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "\x1b[" in printed  # as in a terminal
    for name in ("tiny-imagenet", "art_painting", "files found"):
        assert f" {name}" in printed or f"m{name}" in printed
    common = ["corrupt", "arrays", "--root", str(npz), "--only", "elastic_transform,jpeg_compression"]
    assert main([*common, "--severity", "5", "--out", str(tmp_path / "c")]) == 0
    assert main([*common, "--severity", "5", "--check", str(tmp_path / "c")]) == 0
    checked = capsys.readouterr().out
    assert "elastic_transform 5" in checked
    for text in (printed, checked):
        assert "…" not in text
        assert max(len(line) for line in in_colour(text).splitlines()) <= 80


@pytest.mark.usefixtures("narrow")
def test_long_says_where_data_came_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "cifar-10-python.tar.gz").write_bytes(b"")
    assert main(["data", "list", "--root", str(tmp_path), "--long"]) == 0
    assert "cifar10 test: cifar10/cifar-10-python.tar.gz" in in_colour(capsys.readouterr().out)


def test_damaged_data_are_explained_by_the_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "steep-data.json").write_text("[]")
    assert main(["data", "list", "--root", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "damaged" in printed
    assert "expected a JSON object" in printed


def test_every_command_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name in ("data", *(command.__name__ for command in cli.COMMANDS)):
        assert f" {name} " in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits", "--out", "x", "--device", "cuda:99"], "device: expected one that works here"),
        (["digits", "--out", "x", "--device", "nonsense"], "got 'nonsense' ("),
        (["digits", "--out", "x", "--size", "4"], "sides of at least 8 pixels, got 4x4"),
        (["cifar10-c", "--out", "x"], "give the clean set instead: steep corrupt cifar10"),
        (["pacs", "--out", "x"], "give --domain, one of photo, art_painting, cartoon, sketch"),
    ],
)
def test_a_wrong_corrupt_leaves_no_folder(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEEP_DATA", str(tmp_path))
    assert main(["corrupt", *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_brackets_in_names_are_text(npz: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = tmp_path / "[bold]" / "c[/]"
    common = ["corrupt", "arrays", "--root", str(npz), "--only", "contrast", "--severity", "1"]
    assert main([*common, "--out", str(odd)]) == 0
    assert main([*common, "--check", str(odd)]) == 0
    assert "c[/]" in capsys.readouterr().out
    assert main(["data", "list", "--root", str(odd)]) == 0
    assert "c[/]" in capsys.readouterr().out
    assert main(["data", "fetch", "pacs", "--root", str(odd)]) == 2  # nothing there, and nowhere else to look
    assert "PACS could not be fetched" in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from steep.corruptions import frost

    monkeypatch.setenv("STEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STEEP_OFFLINE", "1")
    frost._pictures.cache_clear()
    frost.atlas.cache_clear()
    arguments = ["corrupt", "arrays", "--root", str(npz), "--only", "frost", "--severity", "1"]
    try:
        assert main([*arguments, "--out", str(tmp_path / "c")]) == 0
        first, last = capsys.readouterr().err.strip().splitlines()
        assert first.startswith("warning: frost: using a procedural texture")
        assert "1 made" in last
        assert main([*arguments, "--check", str(tmp_path / "c")]) == 0
        assert "theirs procedural, ours procedural" in capsys.readouterr().out
    finally:
        frost._pictures.cache_clear()
        frost.atlas.cache_clear()


@pytest.mark.parametrize(("name", "near"), [("tae", "tea"), ("tea-fst", "tea-fast"), ("test-time", None), ("x", None)])
def test_only_a_near_name_is_offered(name: str, near: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", name]) == 2
    err = capsys.readouterr().err
    assert (f"'{near}'?" in err) == (near is not None)
    assert ("did you mean" in err) == (near is not None)


def test_an_unknown_recipe_does_not_list_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "digts"]) == 2
    err = capsys.readouterr().err
    assert "'digits'" in err
    assert "steep recipes" in err
    assert len(err) < 200
