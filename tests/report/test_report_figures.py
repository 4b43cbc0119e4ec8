"""Figures as files, and the document's words."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest
from test_report_tables import NASTY

from made_rows import row
from steep.bench.rows import encode
from steep.cli import main
from steep.errors import InputError
from steep.report.export import write
from steep.report.runs import Runs, Source, read
from tools.results_page.page import docs


@pytest.fixture
def run(tmp_path: Path) -> Path:
    more = {"energy_before": -5.0, "energy_after": -6.0, "peak_memory": {"bytes": 2**30, "of": "tensors"}}
    rows = [row("source", "fog", 0.5, **more), row("tea", "fog", 0.8, label="=tea/../x", **more)]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rows.jsonl").write_bytes(b"".join(map(encode, rows)))
    return tmp_path / "run"


def test_pictures_in_three_formats_and_the_data_behind_each(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figures"
    assert main(["report", str(run), "--figures", str(out), "--format", "png,svg,pdf"]) == 0
    told = capsys.readouterr().out.split()
    assert {Path(path) for path in told} == set(out.iterdir())
    stems = {path.name.rsplit(".", 1)[0] for path in out.iterdir()}
    assert stems == {f"digits-c-s5-wrn-10-1-reset-{name}" for name in ("energy", "energy-gain", "speed", "memory")}
    starts = {"png": b"\x89PNG\r\n", "svg": b"<svg", "pdf": b"%PDF-"}
    assert "Energy before and after" in (out / "digits-c-s5-wrn-10-1-reset-energy.svg").read_text(encoding="utf-8")
    for stem in stems:
        for kind, start in starts.items():
            assert (out / f"{stem}.{kind}").read_bytes().startswith(start)
    with (out / "digits-c-s5-wrn-10-1-reset-energy-gain.csv").open(encoding="utf-8") as file:
        (point,) = csv.DictReader(file)
    assert point == {"method": "'=tea/../x", "shift": "fog", "severity": "5", "reduction": "1.0", "gain": "30.0"}


def test_only_what_is_asked_for_is_written(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = list(write(read([run]), tmp_path / "f", "svg"))
    assert {path.suffix for path in files} == {".svg", ".csv"}
    assert main(["report", str(run), "--figures", str(tmp_path / "g"), "--format", "gif"]) == 2
    assert "unknown format of a figure 'gif'" in capsys.readouterr().err
    assert not (tmp_path / "g").exists()


def test_without_the_extra_it_says_which(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("vl_convert", "altair"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(InputError, match=r"pip install 'steep\[report\]'"):
            list(write(read([run]), tmp_path / "f"))
        monkeypatch.undo()
    assert not (tmp_path / "f").exists()


def test_two_tables_of_one_title_do_not_overwrite_each_other(tmp_path: Path) -> None:
    more = {"energy_before": -5.0, "energy_after": -6.0}
    rows = [row("tea", "fog", 0.8, weights=name, **more) for name in ("one", "two")]
    (tmp_path / "rows.jsonl").write_bytes(b"".join(map(encode, rows)))
    files = list(write(read([tmp_path]), tmp_path / "f", "svg"))
    assert len(files) == len(set(files)) == len(list((tmp_path / "f").iterdir()))


def test_the_document_keeps_a_strangers_text_as_text() -> None:
    rows = (row("tea", "fog", 0.8, label=NASTY, weights=NASTY),)
    made = docs(Runs((Source("rows", "", rows, ()),)), NASTY)
    assert "<b>" not in made
    assert "[x](" not in made
    assert "\x1b" not in made
    assert made.startswith("# ")


def test_the_document_by_command(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.md"
    assert main(["report", str(run), "--format", "docs", "--title", "Results", "--out", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    assert text.startswith("# Results\n")
    assert "+30.00 points against the source model (50.00 %; within noise)" in text  # of ten images
    assert "| [run](run/rows.jsonl) | 2 | " in text
