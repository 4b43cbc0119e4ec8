"""What mkdocs calls while it builds the site: pages from files that live elsewhere, and parts made from code and rows.

Two things happen here. README, CONTRIBUTING and their like become pages, with their links turned towards the site. And
a line `<!-- made: NAME -->` in a page is replaced by what `MADE[NAME]` says: nobody types what can be computed.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import api_pages
import choosing_table
import example_page
import method_page
import streams_table

HOME = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "results/README.md": "results-files.md",
}
MADE = {
    "choosing": choosing_table.table,
    "methods": method_page.methods,
    "examples": example_page.examples,
    "streams": streams_table.table,
}
_MARK = re.compile(r"^<!-- made: (\w+) -->$", re.M)
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
    """Make what is made, then turn links that leave docs/ towards the site."""
    made = _MARK.sub(lambda mark: MADE[mark[1]](), markdown)
    written = {page: source for source, page in PAGES.items()}
    home = posixpath.dirname(written.get(page.file.src_uri, f"docs/{page.file.src_uri}"))

    def turned(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(home, link[2]))
        target = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if target is None:  # a file of the repository that is no page: it comes along as it is
            target = f"files/{path}"
            if (HOME / path).is_file() and files.get_file_from_path(target) is None:
                files.append(File.generated(config, target, abs_src_path=str(HOME / path)))
        return link[1] + posixpath.relpath(target, posixpath.dirname(page.file.src_uri) or ".") + link[3]

    pieces = _CODE.split(made)  # prose, code, prose, ...
    return "".join(piece if index % 2 else _LINK.sub(turned, piece) for index, piece in enumerate(pieces))
