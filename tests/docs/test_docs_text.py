"""What the Markdown promises holds: links lead somewhere, commands exist, and what is generated is up to date."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import griffe
import pytest
import typer
import yaml
from PIL import Image

import steep
from legible import LEAST, PHONE, smallest
from reading import HOME, PAGES, anchors, blocks, commands, links, name, tables
from steep import cli
from steep.methods import look_of

TEMPLATES = HOME / ".github" / "ISSUE_TEMPLATE"
GENERATE = HOME / "docs" / "generate"


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch):
    """Import a module of docs/generate by its name."""
    monkeypatch.syspath_prepend(str(GENERATE))

    def load(module: str) -> ModuleType:
        return importlib.import_module(module)

    return load


def accuracies(file: str) -> dict[str, float]:
    """Percent by method, the mean over the rows of a file of one severity and one seed."""
    rows = [json.loads(line) for line in (HOME / "results" / file).read_text(encoding="utf-8").splitlines()]
    by_method: dict[str, list[float]] = {}
    for row in rows:
        by_method.setdefault(row["spec"]["method"], []).append(100 * row["accuracy"])
    assert all(len(values) == 15 for values in by_method.values())
    return {method: sum(values) / 15 for method, values in by_method.items()}


def cells(page: str, method: str) -> list[str]:
    """The cells of a method's line in a table of a page, without bold."""
    text = (HOME / "docs" / page).read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith(f"| [{method}](methods.md#{method}) |")]
    return [cell.strip(" *") for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: there is no such file"
        assert target.is_relative_to(HOME), f"{link}: leads out of the repository"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: {path or name(page)} has no such heading"


def test_the_link_check_sees_links() -> None:
    assert len(links(HOME / "README.md")) > 20
    assert "when-not-to-use-it" in anchors(HOME / "README.md")


@functools.cache
def command_line() -> Any:
    return typer.main.get_command(cli.app)


def parsed(command: str) -> None:
    """Raise where a subcommand or an option does not exist."""
    words = shlex.split(command)[1:]
    here = command_line()
    while hasattr(here, "commands") and words and not words[0].startswith("-"):
        word = words.pop(0)
        assert word in here.commands, f"{command}: there is no {word!r}"
        here = here.commands[word]
    _, extra, _ = here.make_parser(here.context_class(here)).parse_args(words)
    assert not extra, f"{command}: {extra} too many"


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_every_command_and_option_exists(page: Path) -> None:
    for command in commands(page):
        if not any(sign in command for sign in "|…"):  # a list of commands rather than one
            parsed(command)


@pytest.mark.parametrize("wrong", ["steep bensh digits", "steep bench digits --stor x", "steep info more"])
def test_the_command_check_sees_slips(wrong: str) -> None:
    with pytest.raises(Exception, match=r"no 'bensh'|--stor|too many"):
        parsed(wrong)


def public() -> list[tuple[str, str]]:
    """Every public name of steep and of the packages in it that say what they offer."""
    names = [("steep", each) for each in steep.__all__ if not each.startswith("__")]
    for file in sorted(Path(steep.__file__).parent.glob("*/__init__.py")):
        module = importlib.import_module(f"steep.{file.parent.name}")
        names += [(module.__name__, each) for each in getattr(module, "__all__", ())]
    for file in sorted((Path(steep.__file__).parent / "integrations").glob("[!_]*.py")):  # importing brings frameworks
        defined = re.findall(r"^(?:class|def) ([A-Za-z]\w*)", file.read_text(encoding="utf-8"), flags=re.M)
        names += [(f"steep.integrations.{file.stem}", each) for each in defined]
    return names


def test_every_public_name_says_what_it_is() -> None:
    read = griffe.load("steep", search_paths=[str(HOME / "src")], resolve_aliases=True)
    bare = []
    for module, each in public():
        thing = read[f"{module.removeprefix('steep').lstrip('.')}.{each}".lstrip(".")]
        if thing.docstring is None or not thing.docstring.value.strip():
            bare.append(f"{module}.{each}")
    assert len(public()) > 60
    assert not bare


def test_the_generated_parts_are_up_to_date() -> None:
    """In a process of its own: other tests register methods of theirs."""
    command = [sys.executable, str(GENERATE / "fill_pages.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_stale_part_is_made_anew(generator) -> None:
    page = "Before\n\n<!-- made: streams -->\nold\n<!-- /made -->\n\nAfter\n"
    new = generator("fill_pages").filled(page)
    assert new.startswith("Before\n\n<!-- made: streams -->\n|")
    assert new.endswith("|\n<!-- /made -->\n\nAfter\n")
    assert "old" not in new


def test_the_tables_show_the_means_of_the_rows() -> None:
    for method, accuracy in accuracies("cifar10-c-severity-5.jsonl").items():
        assert cells("choosing.md", method)[1] == f"{accuracy:.1f}"
    for method, accuracy in accuracies("label-shift-1000-h200.jsonl").items():
        assert cells("streams.md", method)[3] == f"{accuracy:.1f}"


def test_every_method_has_a_section_with_its_equation_and_knobs() -> None:
    page = (HOME / "docs" / "methods.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in page.split("\n## ")[1:]}
    for name_, section in sections.items():
        method = steep.METHODS[name_]
        assert "```text" in section
        for field in dataclasses.fields(method):
            row = next(line for line in section.splitlines() if line.startswith(f"| `{field.name}` |"))
            cells = [cell.strip() for cell in row.strip("|").split(" | ")]
            if method() != method.tuned():
                changed = getattr(method(), field.name) != getattr(method.tuned(), field.name)
                assert bool(cells.pop(2)) == changed, row
            assert len(cells) == 4, row
            assert all(cells), row
    packaged = {method.name for method in steep.METHODS.values() if method.__module__.startswith("steep.methods.")}
    assert packaged == set(sections)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_column_of_a_table_is_empty_on_every_row(page: Path) -> None:
    for head, body in tables(page):
        for i, column in enumerate(head):
            assert any(row[i].strip(" –-") for row in body), f"{column}: says nothing in the table of {body[0][0]}"


def test_the_column_check_sees_tables() -> None:
    head, body = next(tables(HOME / "docs" / "results" / "cifar10-c.md"))
    assert head[0] == "method"
    assert {len(row) for row in body} == {len(head)}
    assert len(body) > 5


def test_what_is_installed_is_the_checkout_and_exists() -> None:
    """As long as steep is on no package index, its name alone cannot be installed."""
    project = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    sources = [file for folder in ("src", "docs", "examples") for file in (HOME / folder).rglob("*.py")]
    words = [f"{name(file)}: {line}" for file in (*PAGES, *sources, *(HOME / "examples").rglob("*.ipynb"))
             for line in file.read_text(encoding="utf-8").splitlines() if "pip install" in line]  # fmt: skip
    assert len(words) > 10
    assert not [line for line in words if re.search(r"pip install (-\S+ )*[\"']?steep\b", line)]
    asked = {extra for line in words for names in re.findall(r"\.\[([a-z,]+)\]", line) for extra in names.split(",")}
    assert "demo" in asked <= set(project["optional-dependencies"])


def test_the_demo_installs_little() -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = {
        re.split(r"[>=\[]", one)[0] for one in (*project["dependencies"], *project["optional-dependencies"]["demo"])
    }
    assert {"altair", "scikit-learn"} <= needs  # the page, and digits where there is no network
    assert not needs & {"ray", "lightning", "mkdocs-material", "playwright", "transformers", "tensorboard", "scipy"}
    rule = re.search(r"^\$\(DEMO\):.*\n(?:\t.*\n)+", (HOME / "Makefile").read_text(encoding="utf-8"), flags=re.M)
    assert rule is not None
    assert re.findall(r"\.\[(\w+)\]", rule[0]) == ["demo"]


def test_the_method_of_contributing_is_short() -> None:
    (code,) = [block.code for block in blocks(HOME / "CONTRIBUTING.md") if block.language == "python"]
    assert len(code.splitlines()) < 80  # tests/methods/test_contributing.py runs the contract over it


def test_the_pictures_are_small() -> None:
    for picture in ("headline.png", "protocols.png"):
        assert 5_000 < (HOME / "docs" / picture).stat().st_size < 200_000


def test_the_picture_shows_the_rows(generator) -> None:
    pictures = generator("pictures")
    drawn = json.dumps(pictures.headline().to_dict())
    rows = [json.loads(line) for line in pictures.ROWS.read_text(encoding="utf-8").splitlines()]
    shown = [row for row in rows if row["spec"]["method"] in ("source", "bn", "tent", "tea")]
    assert len(shown) == 60
    assert all(json.dumps(100 * row["accuracy"]) in drawn for row in shown)


def test_the_letters_of_the_pictures_can_be_read_on_a_phone(
    generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = generator("pictures")
    drawn = [pictures.headline(), pictures.protocols()]
    drawn += [generator(module).picture() for module in ("compare_table", "safety_table")]
    specs = [pictures.styled(chart).to_dict() for chart in drawn]

    monkeypatch.syspath_prepend(str(HOME))
    growth, speed_page = (importlib.import_module(f"benchmarks.{name}") for name in ("growth", "speed_page"))
    for module in (growth, speed_page):
        monkeypatch.setattr(module, "render", lambda form: specs.append)
        monkeypatch.setattr(module, "small", lambda content: b"")
    rows = [json.loads(line) for line in (HOME / "results" / "growth-cpu.jsonl").read_text().splitlines()]
    growth.draw(rows, tmp_path / "growth.png")
    speed_page.draw(tmp_path / "speed.png")
    assert len(specs) == 6
    assert min(map(smallest, specs)) >= LEAST


def test_no_method_hides_another_where_both_are_level(generator) -> None:
    spec = generator("safety_table").picture().to_dict()
    (dots,) = (layer for layer in spec["layer"] if "y" in layer["encoding"])
    points = [(p["stream"], p["method"], p["gain"]) for p in dots["data"]["values"] if p["method"] != "another method"]
    assert len({(stream, gain) for stream, _, gain in points}) < len(points) == len(set(points))
    assert dots["encoding"]["yOffset"]["field"] == "method"


def test_the_search_is_drawn_in_the_colours_of_its_methods(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(HOME))
    speed_page = importlib.import_module("benchmarks.speed_page")
    drawn: list[dict[str, Any]] = []
    monkeypatch.setattr(speed_page, "render", lambda form: drawn.append)
    monkeypatch.setattr(speed_page, "small", lambda content: b"")
    speed_page.draw(tmp_path / "speed.png")
    scales = [layer["encoding"]["color"]["scale"] for layer in drawn[0]["layer"] if "color" in layer["encoding"]]
    assert len(scales) == 3
    for scale in scales:
        assert dict(zip(scale["domain"], scale["range"], strict=True)) == {
            name: look_of(name).colour for name in ("tent", "tea", "tea-fast")
        }
    assert "0f766e" not in json.dumps(drawn)


def test_the_committed_charts_are_narrow_enough() -> None:
    """A file has two pixels for each of the chart, whose letters are 12 high: none was drawn by an older layout."""
    charts = [file for file in (HOME / "docs" / "images" / "results").glob("*.png") if file.name[:8] != "samples-"]
    assert len(charts) > 10
    for file in charts:
        with Image.open(file) as picture:
            assert picture.width <= 2 * 12 * PHONE / LEAST, file.name


def test_doctests_become_code_on_the_page(generator) -> None:
    doctests = generator("doctests")
    assert doctests.fenced("Add.\n\n>>> 1\n1\n\nMore.") == "Add.\n\n```pycon\n>>> 1\n1\n```\n\nMore."
    assert doctests.fenced("Add.\n\n>>> 1\n1") == "Add.\n\n```pycon\n>>> 1\n1\n```"


def test_templates_ask_for_what_a_report_needs() -> None:
    forms = {file.stem: yaml.safe_load(file.read_text(encoding="utf-8")) for file in TEMPLATES.glob("*.yml")}
    assert {"bug", "idea", "number"} <= set(forms)
    for name_, form in forms.items():
        if name_ != "config":
            assert form["name"]
            assert form["description"]
            ids = [part["id"] for part in form["body"]]
            assert len(ids) == len(set(ids))
    assert "steep info" in str(forms["bug"])


def test_hooks_need_no_network() -> None:
    config = yaml.safe_load((HOME / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    hooks = {hook["id"]: hook for repo in config["repos"] for hook in repo["hooks"]}
    assert {"ruff", "ruff-format"} <= set(hooks)
    assert all(hook["language"] == "system" for hook in hooks.values())
