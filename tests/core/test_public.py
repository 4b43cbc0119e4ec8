"""The public names: few, documented, each with an example that the doctests run."""

from __future__ import annotations

import inspect
import subprocess
import sys

import steep


def test_a_dozen_names_each_with_an_example():
    names = [name for name in steep.__all__ if name != "__version__"]
    assert len(names) <= 13
    for name in names:
        thing = getattr(steep, name)
        described = inspect.isfunction(thing) or inspect.isclass(thing) or inspect.ismodule(thing)
        home = thing if described else {"METHODS": steep.methods, "CORRUPTIONS": steep.corruptions}[name]
        text = inspect.getdoc(home) or ""
        if inspect.ismodule(home):
            text += "".join(inspect.getdoc(v) or "" for v in vars(home).values() if inspect.isclass(v) or callable(v))
        assert ">>>" in text, name
        if not described:
            assert name in text, name


def test_importing_steep_brings_torch_and_little_more():
    code = (
        "import sys, torch, numpy; before = set(sys.modules); import steep; print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    brought = {name.split(".")[0] for name in done.stdout.split()}
    heavy = {
        "torchmetrics",
        "typer",
        "rich",
        "PIL",
        "sklearn",
        "scipy",
        "ray",
        "pandas",
        "transformers",
        "timm",
    }
    assert not brought & heavy
