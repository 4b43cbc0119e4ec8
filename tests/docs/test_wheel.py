"""The wheel: everything is inside, and it works in an environment of its own, away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import steep
from reading import HOME

SOURCE = HOME / "src"
FEW = [
    *("--only", "method=source,tent", "--only", "shift=fog", "--only", "severity=5"),
    *("--limit", "10", "--set", "weights=untrained"),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(HOME)]
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=out)
    (made,) = out.glob("*.whl")
    return made


def test_everything_is_inside(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    tracked = {
        file.relative_to(SOURCE).as_posix()
        for file in (SOURCE / "steep").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert tracked <= inside
    assert {"steep/py.typed", "steep/assets/cifar10-wrn-40-2.safetensors", "steep/recipes/paper.toml"} <= inside
    assert [name for name in inside if name.endswith("licenses/LICENSE")]
    assert not [
        name for name in inside if name.startswith(("tests", "docs", "benchmarks", "examples", "tools", "experiments"))
    ]
    assert wheel.stat().st_size < 20 * 2**20


def test_it_works_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    place = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    pip = [sys.executable, "-m", "pip", "--python", str(place / "python"), "install", "--quiet", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--disable-pip-version-check", str(wheel)], check=True, capture_output=True)
    (packages,) = (tmp_path / "env").rglob("site-packages")
    # The dependencies are borrowed. A folder named in a .pth is searched, its own .pth files (the checkout) are not.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "STEEP"))}
    clean["STEEP_DATA"] = str(tmp_path / "data")

    def output_of(*words: str) -> str:
        done = subprocess.run([*words], capture_output=True, text=True, cwd=tmp_path, env=clean)
        assert done.returncode == 0, done.stderr
        return done.stdout

    probe = (
        "import steep; from steep import cli, recipes; from steep.predicting import load_model; print(steep.__file__);"
        "print(len(recipes.names()), load_model('wrn-40-2', weights='cifar10-wrn-40-2').classes[0]);"
        f"few = {FEW}; assert not cli.main(['bench', 'digits', *few, '--store', 'runs/few']);"
        "assert not cli.main(['report', 'runs/few']);"
        "assert not cli.main(['report', 'runs/few', '--format', 'html']);"
        "cli.main(['--help'])"
    )
    where, facts, *usage = output_of(str(place / "python"), "-c", probe).splitlines()
    assert Path(where).is_relative_to(packages)
    assert facts == f"{len(list((SOURCE / 'steep' / 'recipes').glob('*.toml'))) - 1} airplane"
    printed = output_of(str(place / "steep"), "info")
    assert f"version            {steep.__version__}\n" in printed
    assert "not from a checkout" in printed
    assert "predict" in " ".join(usage)
    assert [line for line in usage if line.startswith("tent ")]  # of the report's table
    assert (tmp_path / "runs/few/report.html").stat().st_size > 10_000  # with its style sheet and Vega
