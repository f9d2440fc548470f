#!/usr/bin/env python3
"""Build the documentation as a site into site/, by mkdocs-material. A warning is an error, so a broken link is one.

usage: site.py

The pages are the Markdown files as they lie in the repository. docs/index.md gives the menu: its sections, and in each
the pages in the order of its links. Links to sources, which the site does not have, become text.
"""

from __future__ import annotations

import logging
import posixpath
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
SITE = ROOT / "site"
BESIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "LICENSE", "scripts/site.css")
"""Files outside docs/ that the site has."""
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
SECTION = re.compile(r"^\*\*(.+?)\*\*", re.MULTILINE)
"""The headings of docs/index.md."""


def menu() -> list[dict[str, Any]]:
    """Section → pages."""
    text = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    _, *parts = SECTION.split(text)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    found: list[dict[str, Any]] = [{"Start": "README.md"}, {"All pages": "docs/index.md"}]
    seen = set[str]()
    for title, part in sections.items():
        pages = [posixpath.normpath(f"docs/{target}") for _, target, _ in LINK.findall(part)]
        pages = [page for page in dict.fromkeys(pages) if page.endswith(".md") and page not in seen]
        seen.update(pages)
        found.append({title: pages})
    return [*found, {"The project": [page for page in BESIDE[1:] if page.endswith(".md") and page not in seen]}]


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Take away the links to what the repository has and the site has not. mkdocs calls this for each page."""

    def kept(link: re.Match[str]) -> str:
        text, target, _ = link.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), target))
        here = ":" in target or files.get_file_from_path(path) or not (ROOT / path).exists()
        return link[0] if here else text

    return LINK.sub(kept, markdown)


def main() -> None:
    """Show mkdocs the pages, and nothing else of the repository."""
    from mkdocs.commands.build import build  # noqa: PLC0415 - when mkdocs loads this file, it is loaded
    from mkdocs.config import load_config  # noqa: PLC0415
    from mkdocs.exceptions import Abort  # noqa: PLC0415

    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    with tempfile.TemporaryDirectory() as folder:
        for name in (*BESIDE, "docs"):
            place = Path(folder, name)
            place.parent.mkdir(exist_ok=True)
            place.symlink_to(ROOT / name)
        config = load_config(str(ROOT / "scripts/site.yml"), docs_dir=folder, site_dir=str(SITE), nav=menu())
        config.plugins.on_startup(command="build", dirty=False)
        try:
            build(config)
        except Abort as error:
            sys.exit(f"{sys.argv[0]}: {error}")
    print(f"{SITE}/index.html")


if __name__ == "__main__":
    main()
