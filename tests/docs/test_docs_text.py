"""What the Markdown promises holds: links lead somewhere, commands exist, and what is generated is up to date."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import shlex
from pathlib import Path

import griffe
import pytest
import typer
import yaml

import steep
from reading import HOME, PAGES, anchors, blocks, commands, links, name
from steep import cli

TEMPLATES = HOME / ".github" / "ISSUE_TEMPLATE"


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


def parsed(command: str) -> None:
    """Raise where a subcommand or an option does not exist."""
    words = shlex.split(command)[1:]
    here = typer.main.get_command(cli.app)
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
    found = [("steep", each) for each in steep.__all__ if not each.startswith("__")]
    for file in sorted(Path(steep.__file__).parent.glob("*/__init__.py")):
        module = importlib.import_module(f"steep.{file.parent.name}")
        found += [(module.__name__, each) for each in getattr(module, "__all__", ())]
    for file in sorted((Path(steep.__file__).parent / "integrations").glob("[!_]*.py")):  # importing brings frameworks
        named = re.findall(r"^(?:class|def) ([A-Za-z]\w*)", file.read_text(encoding="utf-8"), flags=re.M)
        found += [(f"steep.integrations.{file.stem}", each) for each in named]
    return found


def test_every_public_name_says_what_it_is() -> None:
    read = griffe.load("steep", search_paths=[str(HOME / "src")], resolve_aliases=True)
    bare = []
    for module, each in public():
        thing = read[f"{module.removeprefix('steep').lstrip('.')}.{each}".lstrip(".")]
        if thing.docstring is None or not thing.docstring.value.strip():
            bare.append(f"{module}.{each}")
    assert len(public()) > 60
    assert not bare


def test_every_method_has_a_section_with_its_equation_and_knobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HOME / "docs" / "generate"))
    method_page = importlib.import_module("method_page")
    for method in steep.METHODS.values():
        section = method_page.section(method.name)
        assert section.startswith(f"## {method.name}\n")
        assert "```text" in section
        for field in dataclasses.fields(method):
            row = next(line for line in section.splitlines() if line.startswith(f"| `{field.name}` |"))
            assert all(cell.strip() for i, cell in enumerate(row.split(" | ")) if i != 2), row


def test_the_method_of_contributing_is_short() -> None:
    (code,) = [block.code for block in blocks(HOME / "CONTRIBUTING.md") if block.language == "python"]
    assert len(code.splitlines()) < 80
    assert "class Louder(Method" in code  # tests/methods/test_contributing.py runs the contract over it


def test_the_pictures_are_small() -> None:
    for picture in ("headline.png", "protocols.png"):
        assert 5_000 < (HOME / "docs" / picture).stat().st_size < 200_000


def test_the_picture_shows_the_rows() -> None:
    import json

    spec = importlib.util.spec_from_file_location("pictures", HOME / "docs" / "generate" / "pictures.py")
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    drawn = json.dumps(pictures.headline().to_dict())
    rows = [json.loads(line) for line in pictures.ROWS.read_text(encoding="utf-8").splitlines()]
    shown = [row for row in rows if row["spec"]["method"] in ("source", "bn", "tent", "tea")]
    assert len(shown) == 60
    assert all(json.dumps(100 * row["accuracy"]) in drawn for row in shown)


def test_doctests_become_code_on_the_page() -> None:
    spec = importlib.util.spec_from_file_location("doctests", HOME / "docs" / "generate" / "doctests.py")
    doctests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(doctests)
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
