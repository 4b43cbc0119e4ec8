"""A method from outside the package goes everywhere a method of the package goes, and nothing else is touched."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from PIL import Image

import steep
from nets import net
from steep import methods
from steep.bench.rows import read, stable
from steep.cli import main
from steep.core.method import Look, Method
from steep.errors import InputError, SteepWarning, UnknownNameError
from steep.methods import look_of, registry
from steep.methods.tent import Tent
from steep.models import checkpoints

HOME = Path(__file__).parents[2]
RECIPE = """
kind = "bench"
data = "digits-c"
model = "wrn-10-1"
weights = "untrained"
shifts = ["fog", "contrast"]
[methods]
source = {}
louder = { method = "louder.py:Louder", lr = 0.01 }
quick = { method = "louder.py:Louder", lr = 0.1 }
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Iterator[str]:
    """A recipe with a method that lies beside it: the one that CONTRIBUTING.md shows."""
    (code,) = re.findall(r"```python\n(.*?)```", (HOME / "CONTRIBUTING.md").read_text(encoding="utf-8"), flags=re.S)
    (tmp_path / "louder.py").write_text(code, encoding="utf-8")
    (tmp_path / "own.toml").write_text(RECIPE, encoding="utf-8")
    known = dict(methods.METHODS)
    yield str(tmp_path / "own.toml")
    methods.METHODS.clear()
    methods.METHODS.update(known)


def test_from_a_recipe_through_every_command(
    recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = str(tmp_path / "run")
    assert main(["bench", recipe, "--store", store, "--limit", "40", "--dry-run"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "louder" in line]
    assert any(line.split()[-2] == "2" for line in lines), lines  # one forward, one backward
    assert main(["bench", recipe, "--store", store, "--limit", "40"]) == 0
    rows = read(store)
    assert {(row["spec"]["method"], row["spec"]["label"], row["spec"]["hyper"].get("lr")) for row in rows} == {
        ("source", "source", None),
        ("louder", "louder", 0.01),
        ("louder", "quick", 0.1),
    }

    for analysis in ("energy-error", "calibration"):
        out = tmp_path / analysis
        assert main(["analyze", analysis, "--recipe", recipe, "--limit", "40", "--out", str(out)]) == 0
        assert "louder" in {json.loads(line)["label"] for line in (out / "rows.jsonl").read_text().splitlines()}
        assert list(out.glob("*.png"))
        assert list(out.glob("*.svg"))

    capsys.readouterr()
    for form in ("terminal", "markdown", "latex", "csv"):
        assert main(["report", store, "--format", form]) == 0
        assert "louder" in capsys.readouterr().out
    assert main(["report", store, "--format", "html", "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "louder" in page
    assert look_of("louder") == Look("#332288", "circle")

    capsys.readouterr()
    assert main(["methods", "louder"]) == 0
    assert "louder" in capsys.readouterr().out
    monkeypatch.syspath_prepend(str(HOME / "docs" / "generate"))
    page = importlib.import_module("method_page").methods()
    assert "## louder\n" in page
    assert "L = −mean max_k f(x)_k" in page


def test_pictures_are_predicted_with_it(recipe: str, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for number in range(3):
        Image.new("L", (8, 8), 40 * number).save(tmp_path / "pictures" / f"{number}.png")
    weights = checkpoints.save(steep.models.build("wrn-10-1", 10, in_channels=1), tmp_path / "net.safetensors")
    call = ["predict", "--model", "wrn-10-1", "--weights", str(weights), "--images", str(tmp_path / "pictures")]
    out = tmp_path / "answers.csv"
    assert main([*call, "--method", str(tmp_path / "louder.py:Louder"), "--set", "lr=0.01", "--out", str(out)]) == 0
    assert len(out.read_text(encoding="utf-8").splitlines()) == 4


@pytest.mark.slow
def test_workers_of_ray_get_it_from_the_driver(recipe: str, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    assert main(["bench", recipe, "--store", str(tmp_path / "a"), "--limit", "40"]) == 0
    call = ["bench", recipe, "--store", str(tmp_path / "b"), "--limit", "40", "--engine", "ray", "--address", "local"]
    assert main(call) == 0
    here, there = ({row["key"]: stable(row) for row in read(tmp_path / name)} for name in ("a", "b"))
    assert here == there


def test_registered_it_is_adapted_saved_and_resumed_by_name(recipe: str, tmp_path: Path) -> None:
    louder = methods.find("louder.py:Louder", tmp_path)
    adapter = steep.adapt(net(), "louder", lr=0.01)
    assert type(adapter.method) is louder
    x = torch.rand(20, 3, 8, 8)
    adapter(x)
    adapter.save(tmp_path / "state.safetensors")
    assert torch.equal(steep.resume(tmp_path / "state.safetensors", net())(x), adapter(x))
    del methods.METHODS["louder"]
    with pytest.raises(UnknownNameError, match="louder"):
        steep.resume(tmp_path / "state.safetensors", net())


@dataclass(frozen=True, kw_only=True)
class Quiet(Tent):
    """Tent under another name."""

    name: ClassVar = "quiet"


def test_what_can_be_registered() -> None:
    try:
        assert methods.register(Quiet) is Quiet
        assert methods.register(Quiet) is Quiet  # a second time, as a module that is loaded again does
        assert steep.METHODS["quiet"] is Quiet
        assert look_of("quiet") == look_of("quiet") != look_of("tent")
    finally:
        steep.METHODS.pop("quiet", None)
    assert look_of("quiet") == look_of("quiet")  # rows of a method that is not here still have one colour
    taken = type("Other", (Quiet,), {"name": "tent"})
    for wrong in (taken, type("Bad", (Quiet,), {"name": "a.b"}), Quiet(), object, "quiet"):
        with pytest.raises(InputError):
            methods.register(wrong)  # type: ignore[type-var]


def test_no_two_methods_look_alike() -> None:
    looks = [look_of(name) for name in steep.METHODS]
    assert len({look.colour for look in looks}) == len(looks)
    assert all(vars(method).get("look") for method in steep.METHODS.values())
    spare = {look.colour for look in registry._SPARE}
    assert not spare & {look.colour for look in looks}


@pytest.mark.parametrize(
    ("code", "reference"),
    [
        ("", "absent.py:Louder"),
        ("Louder = 3", "code.py:Louder"),
        ("def Louder(): pass", "code.py:Louder"),
        ("raise RuntimeError('no')", "code.py:Louder"),
        ("raise SystemExit", "code.py:Louder"),
        ("from steep.core.method import Method as Louder", "code.py:Loud"),
    ],
)
def test_a_file_that_has_no_method_is_refused(code: str, reference: str, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(code, encoding="utf-8")
    with pytest.raises((InputError, UnknownNameError), match="Loud"):
        methods.find(reference, tmp_path)


def test_a_saved_state_runs_no_file(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('run')", encoding="utf-8")
    with pytest.raises(UnknownNameError):
        methods.make(f"{tmp_path}/evil.py:Louder")  # what resume does with the name in a file


def test_installed_packages_offer_methods_and_a_broken_one_is_left_out(tmp_path: Path) -> None:
    info = tmp_path / "quiet-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: quiet\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[steep.methods]\nquiet = quiet_package:Quiet\nbroken = no_such_package:Method\n", encoding="utf-8"
    )
    (tmp_path / "quiet_package.py").write_text(
        "from steep.methods.tent import Tent\nclass Quiet(Tent):\n    '''Tent.'''\n    name = 'quiet'\n",
        encoding="utf-8",
    )
    code = f"import sys; sys.path.append({str(tmp_path)!r}); import steep; print(steep.METHODS['quiet'].__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "quiet_package"
    assert SteepWarning.__name__ in done.stderr
    assert "broken" in done.stderr


def test_a_method_without_declarations_is_one(recipe: str) -> None:
    class Plain(Method):  # type: ignore[type-arg]
        """No look, no needs, no constraint."""

        name: ClassVar = "plain"
        paper: ClassVar = "–"
        predicts: ClassVar = "before"
        init, step = Tent.init, Tent.step  # type: ignore[assignment]
        lr, optimizer, params, statistics, loss = 1e-3, "adam", "norm", "batch", "entropy"

    methods.register(Plain)
    assert steep.adapt(net(), "plain")(torch.rand(20, 3, 8, 8)).shape == (20, 5)
    assert methods.make("plain").passes(20, 60) == 2
