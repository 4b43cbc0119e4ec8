"""Numbers in a sentence are those of the rows, and one that names no rows is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from made_rows import grid
from steep.bench.rows import encode
from steep.errors import InputError
from tools.results_page.quoting import fill

ABOUT = {"data": "cifar10-c", "model": "wrn-28-10", "source": ""}


def rows(folder: Path, name: str, *cells: dict[str, object]) -> None:
    (folder / f"{name}.jsonl").write_bytes(b"".join(map(encode, cells)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    quoted = grid({"source": 0.5, "tea": 0.6})
    for row in quoted:
        predicted = [30, 10] if row["spec"]["method"] == "tea" else [20, 20]
        row["per_class"] = {"count": [20, 20], "correct": [10, 10], "predicted": predicted}
        row["energy_after"] = -7.0
        if row["spec"]["shift"] == "fog":
            row["energy_after"] = -9.24
            row["accuracy"] += 0.15
    clean = grid({"tea": 0.9}, (0,))[:1]
    clean[0]["spec"]["shift"] = "clean"
    rows(tmp_path, "here", *quoted, *clean, *grid({"tea": 0.1}, model="resnet-50-gn"))
    rows(tmp_path, "there", *grid({"tea": 0.7}, label="tea-odd"))
    begun = [row for row in grid({"tea": 0.8}) if row["spec"]["shift"] in ("fog", "snow")]
    rows(tmp_path, "begun", *[row for row in quoted if row["spec"]["method"] == "source"], *begun)
    stream = grid({"tea": 0.5}, protocol="continual")[:1]
    fog = {"name": "fog", "n": 900, "accuracy": 0.4, "error": 0.6}
    snow = {"name": "snow", "n": 100, "accuracy": 0.8, "error": 0.2}
    stream[0] |= {"segments": [fog, snow]}
    rows(tmp_path, "stream", *stream)
    rows(tmp_path, "levels", *grid({"tea": 0.7}, (1,)), *grid({"tea": 0.4, "bn": 0.3}, (5,)))
    (tmp_path / "flat.jsonl").write_text('{"benchmark": "speed", "method": "tea"}\n')
    rows(tmp_path, "twice", *grid({"tea": 0.7}, weights_sha256="a" * 64), *grid({"tea": 0.8}, weights_sha256="b" * 64))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no number", "no number"),
        ("tea {tea}, source {source}", "tea 61.0, source 51.0"),  # 14 of 60 and one of 75
        ("on fog {tea@fog}, clean {tea@clean}", "on fog 75.0, clean 90.0"),
        ("{there/tea-odd}; {share tea@fog} %", "70.0; 75 %"),
        ("{share tea} and {share source} %", "75 and 50 %"),
        ("{begun/tea@tea}, source {begun/source@tea}, {begun/source}", "80.0, source 57.5, 51.0"),  # fog 65, snow 50
        ("{energy tea@fog}", "−9.2"),
        ("{levels/tea:1}, {levels/tea:5}, {levels/tea:5@fog}", "70.0, 40.0, 40.0"),
        ("{stream/tea}", "60.0"),  # 40 and 80, whatever their images
    ],
)
def test_numbers_come_from_rows(folder: Path, text: str, message: str) -> None:
    assert fill(text, folder, "here.jsonl", ABOUT, "it") == message


@pytest.mark.parametrize(
    ("text", "evidence", "why"),
    [
        ("{bn}", "here.jsonl", "got none"),
        ("{tea@fogg}", "here.jsonl", "got none"),
        ("{tea}", "", "file of rows"),
        ("{nowhere/tea}", "here.jsonl", "file of rows"),
        ("{most tea}", "here.jsonl", "share, energy or nothing"),
        ("{twice/tea}", "here.jsonl", "got several"),
        ("{begun/tea}", "here.jsonl", "corruption of begun.jsonl, it lacks brightness, .*those it has: {tea@tea}"),
        ("{begun/tea@source}", "here.jsonl", "corruption of source, it lacks brightness, "),
        ("{levels/tea}", "here.jsonl", "got several"),
        ("{levels/bn:1}", "here.jsonl", "got none"),
        ("{levels/tea:0}", "here.jsonl", "such as"),
        ("{flat/tea}", "here.jsonl", "a file of cells"),
        ("{tea @fog}", "here.jsonl", r"got \{tea @fog\}"),
        ("{tea@fog,frost}", "here.jsonl", "such as"),
        ("{tea", "here.jsonl", "such as"),
    ],
)
def test_a_number_that_is_not_there_is_an_error(folder: Path, text: str, evidence: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        fill(text, folder, evidence, ABOUT, "explanation 1")
