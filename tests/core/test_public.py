"""The public names: few, documented, each with an example that the doctests run."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import steep


def test_a_dozen_names_each_with_an_example():
    names = [name for name in steep.__all__ if name != "__version__"]
    assert len(names) <= 14  # ten things to call, four modules
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


HEAVY = "torchmetrics typer rich PIL sklearn scipy ray pandas transformers timm"
NOT_BROUGHT = {  # by each part, in this order, beyond what torch and NumPy bring
    "steep": HEAVY,
    "steep.data": "PIL sklearn rich typer",
    "steep.metrics": "torchmetrics",
    "steep.integrations.loggers": "tensorboard lightning transformers onnx",
    "steep.cli.data": "PIL sklearn",
    "steep.cli.corrupt": "PIL sklearn",
}


def test_importing_steep_brings_torch_and_little_more():
    """What is heavy is imported by the call that needs it; one fresh interpreter imports part after part."""
    code = (
        "import importlib, json, sys, torch, numpy; before, brought = set(sys.modules), {}\n"
        "for part in sys.argv[1:]:\n"
        "    importlib.import_module(part); brought[part] = sorted(set(sys.modules) - before)\n"
        "print(json.dumps(brought))"
    )
    done = subprocess.run([sys.executable, "-c", code, *NOT_BROUGHT], capture_output=True, text=True, check=True)
    for part, names in json.loads(done.stdout).items():
        assert names
        assert not {name.split(".")[0] for name in names} & set(NOT_BROUGHT[part].split()), part
