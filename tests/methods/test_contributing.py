"""The method that CONTRIBUTING.md shows is one: it keeps the contract as it stands there."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from contract import RULES, Case
from nets import net

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def louder(tmp_path_factory):
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)
    file = tmp_path_factory.mktemp("contributing") / "louder.py"
    file.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("louder", file)
    module = sys.modules["louder"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Louder


@pytest.mark.parametrize("kind", ["batch", "group", "layer"])
@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__)
def test_it_keeps_every_rule(louder, rule, kind):
    rule(Case(louder, net(kind)))
