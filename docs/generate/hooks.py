"""What mkdocs calls while it builds the site: README, CONTRIBUTING and their like become pages, and so does the API.

Links are written for the repository; here they are turned towards the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import api_pages
from steep.methods import METHODS

HOME = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "results/README.md": "results-files.md",
}
REFERENCE = ("api/", "results", "changelog")  # found, but below the pages that explain
_COMMENT = re.compile(r"^[ ]*<!--.*?-->\n", re.M | re.S)
_TABLE = "<table>.*?</table>"
_METHOD = r"(?<![\w-])(?:{})(?![\w-])".format("|".join(name for name in METHODS if "-" in name))
_NAME = re.compile(
    rf"{_METHOD}(?=[^<>]*</(?:td|th|strong|a)>)|[^\s<>]*-[^\s<>]*(?=[^<]*</code>)"
    r"|\b(?:Tiny-ImageNet|(?:ImageNet|CIFAR|WRN|ResNet)(?=-))(?:-\w+)*(?![^<>]*>)"  # not inside a tag
)
_OPTION = re.compile(rf"(?:(?<![^\s>])--?[a-z][^\s<>]*|{_METHOD})(?=[^<]*</code>)")
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.M | re.S)
_LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?(?: \"[^\"]*\")?\))")


def on_config(config: Any) -> Any:
    """Fill the place of the API in the navigation."""
    config.nav = [
        {"API": [{module: page} for module, page in api_pages.PAGES.items()]} if entry == {"API": "api"} else entry
        for entry in config.nav
    ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/."""
    for source, page in PAGES.items():
        text = (HOME / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    for module, page in api_pages.PAGES.items():
        files.append(File.generated(config, page, content=api_pages.page(module)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links that leave docs/ towards the site, and let the search put guides before tables and API.

    Comments go: inside a list they end it.
    """
    if page.file.src_uri.startswith(REFERENCE):
        page.meta.setdefault("search", {"boost": 0.2})
    written = {page: source for source, page in PAGES.items()}
    home = posixpath.dirname(written.get(page.file.src_uri, f"docs/{page.file.src_uri}"))

    def turned(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(home, link[2]))
        target = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if target is None:  # a file of the repository that is no page: it comes along as it is
            target = f"files/{path}" + ".txt" * path.endswith(".md")  # which mkdocs would take for a page
            if (HOME / path).is_file() and files.get_file_from_path(target) is None:
                files.append(File.generated(config, target, abs_src_path=str(HOME / path)))
        return link[1] + posixpath.relpath(target, posixpath.dirname(page.file.src_uri) or ".") + link[3]

    pieces = _CODE.split(_COMMENT.sub("", markdown))  # prose, code, prose, ...
    return "".join(piece if index % 2 else _LINK.sub(turned, piece) for index, piece in enumerate(pieces))


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Keep names in tables, options and methods in prose, whole: a browser would break `--set` at its hyphens."""

    def whole(name: re.Match[str]) -> str:
        return f'<span class="whole">{name[0]}</span>'

    parts = re.split(f"({_TABLE})", html, flags=re.S)  # prose, table, prose, ...
    return "".join((_NAME if index % 2 else _OPTION).sub(whole, part) for index, part in enumerate(parts))
