"""The API pages: one for each public module, with every name it exports; the text is that of the docstrings."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType

import steep


def exported(module: ModuleType) -> list[str]:
    """Name what a module offers: its `__all__`, or else the public classes and functions it defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    names = [
        name
        for name, thing in vars(module).items()
        if (inspect.isclass(thing) or inspect.isfunction(thing)) and thing.__module__ == module.__name__
    ]
    return [name for name in names if not name.startswith("_")]


def modules() -> dict[str, ModuleType]:
    """Find the public modules: steep, what it exports, and every package in it that says what it offers."""
    public = {"steep": steep}
    for entry in pkgutil.iter_modules(steep.__path__, "steep."):
        short = entry.name.removeprefix("steep.")
        if short.startswith("_"):
            continue
        module = importlib.import_module(entry.name)
        if short in steep.__all__ or hasattr(module, "__all__"):
            public[entry.name] = module
    return public


def integrations() -> dict[str, list[str]]:
    """Read what the modules for other frameworks define, without importing those frameworks."""
    names = {}
    for file in sorted((Path(steep.__file__).parent / "integrations").glob("[!_]*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        things = [node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
        names[f"steep.integrations.{file.stem}"] = [name for name in things if not name.startswith("_")]
    return names


PUBLIC = {name: exported(module) for name, module in modules().items()} | integrations()
PAGES = {name: f"api/{name.removeprefix('steep.')}.md" for name in PUBLIC}
RESULT_TYPES = {"steep": ["steep.core.report.Report"]}  # what public functions return; documented by its fields


def page(module: str) -> str:
    """Write a module's page; modules and dunders among its names have their own page, or need none."""
    file = importlib.util.find_spec(module).origin
    about = ast.get_docstring(ast.parse(Path(file).read_text(encoding="utf-8"))) or ""
    lines = [f"# {module}", "", about.partition("\n")[0], ""]
    for name in PUBLIC[module]:
        full = f"{module}.{name}"
        if full in PAGES:
            lines += [f"[`{full}`]({name}.md)", ""]
        elif not name.startswith("__"):
            lines += [f"::: {full}", ""]
    for full in RESULT_TYPES.get(module, ()):
        lines += [f"::: {full}", "    options:", "      show_if_no_docstring: true", ""]
    return "\n".join(lines)
