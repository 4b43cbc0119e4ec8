"""Names in the code: none of a method or data set decides anything, and each says what it is of."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from steep.data.known import KNOWN
from steep.methods import METHODS

HOME = Path(__file__).parents[2]
FOLDERS = ("src", "tools", "benchmarks", "docs/generate", "examples")
OTHER_THINGS = {"source", "bn", "energy", "auto"}
"""Words that are more than a name: statistics, layers, a column, a choice."""
OWN_FILES = [HOME / "src/steep/methods", HOME / "src/steep/data/sets"]
SAYING_NOTHING = {"found", "own", "said", "told", "given", "held"}


def parsed(*folders: str) -> list[tuple[Path, ast.AST]]:
    """Every file of some folders."""
    files = [file for folder in folders for file in (HOME / folder).rglob("*.py")]
    return [(file, ast.parse(file.read_text(encoding="utf-8"))) for file in files]


def conditions(tree: ast.AST) -> Iterator[ast.expr]:
    """Every expression that decides something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.Compare):
            yield node


def bound(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that is given to something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def test_names_say_what_they_are_of() -> None:
    trees = parsed(*FOLDERS, "experiments", "tests")
    vague = [(file.name, name, line) for file, tree in trees for name, line in bound(tree) if name in SAYING_NOTHING]
    assert not vague


def test_no_name_of_a_method_or_data_set_decides_anything() -> None:
    names = {*METHODS, *KNOWN, *(f"{name}-c" for name in KNOWN)} - OTHER_THINGS
    deciding = [
        (file.name, part.value, part.lineno)
        for file, tree in parsed(*FOLDERS)
        for condition in conditions(tree)
        for part in ast.walk(condition)
        if isinstance(part, ast.Constant) and part.value in names and file.parent not in OWN_FILES
    ]
    assert not deciding
