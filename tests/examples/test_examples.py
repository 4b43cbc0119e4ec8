"""The examples run as they are, and what they print is true."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from contract import RULES, Case
from nets import net

FOLDER = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STEEP_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("STEEP_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def imported(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_is_short_and_tested() -> None:
    names = {file.stem for file in FOLDER.glob("*.py")}
    assert names == {"own_model", "continual_stream", "hugging_face", "custom_method"}
    assert all(len((FOLDER / f"{name}.py").read_text().splitlines()) < 80 for name in names)


def test_own_model() -> None:
    accuracy = imported("own_model").main(epochs=4)
    assert accuracy["source"]["clean"] > 0.95  # it learnt
    assert accuracy["source"]["contrast"] < 0.5  # it is lost where contrast is
    for method in ("bn", "tent", "tea"):
        assert accuracy[method]["contrast"] > 0.9


def test_continual_stream() -> None:
    accuracy = imported("continual_stream").main(epochs=4, limit=200)
    mean = {method: sum(each.values()) / len(each) for method, each in accuracy.items()}
    assert mean["tent"] > mean["source"] + 0.2


def test_hugging_face() -> None:
    fell = imported("hugging_face").main()
    assert set(fell) == {"resnet", "vit"}
    assert all(value > 0 for value in fell.values())  # tent lowers the entropy of what it learns from


def test_custom_method_as_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(FOLDER / "custom_method.py"), run_name="__main__")
    used = [int(number) for number in re.findall(r"used=(\d+)", capsys.readouterr().out)]
    assert len(used) == 3
    assert all(0 < each < 32 for each in used)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_custom_method_keeps_the_contract(rule) -> None:
    rule(Case(imported("custom_method").Anchored, net("batch")))


NET = """
from torch import nn

def make():
    layers = [nn.Conv2d(3, 8, 7, stride=8), nn.BatchNorm2d(8), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8, 1000))
"""


def test_the_notebook_of_a_natural_shift_runs_on_made_pictures(tmp_path, monkeypatch, capsys) -> None:
    for domain, light in (("amazon", 0), ("caltech", 0), ("dslr", 0), ("webcam", 30)):
        for number in range(20):
            file = tmp_path / "data" / "images" / domain / f"class{number % 10}" / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40, 40), (20 * (number % 10) + light,) * 3).save(file)
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.setenv("MODEL", "net.py:make")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code = [c["source"] for c in json.loads((FOLDER / "natural_shift.ipynb").read_text())["cells"] if "outputs" in c]
    scope: dict = {}
    for cell in code:
        exec(compile("".join(cell), "natural_shift.ipynb", "exec"), scope)
    assert set(scope["accuracy"]) == {"source", "bn", "alpha-bn", "tent", "infuse"}
    assert scope["trained"].row["image_shape"] == [224, 224, 3]
    assert "of 20 pictures of webcam" in capsys.readouterr().out


def test_the_notebook_runs_and_keeps_its_pictures() -> None:
    file = FOLDER / "demo.ipynb"
    assert file.stat().st_size < 100_000
    cells = [cell for cell in json.loads(file.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    module = sys.modules["notebook"] = ModuleType("notebook")
    for cell in cells:
        exec(compile("".join(cell["source"]), str(file), "exec"), vars(module))
    shown = [output for cell in cells for output in cell["outputs"]]
    assert len(shown) == 3
    assert all("image/png" in output["data"] for output in shown)
    right = {(row["method"], row["pictures"]): row["accuracy"] for row in module.rows}
    assert right["bn", "contrast"] > right["source", "contrast"] + 0.3
