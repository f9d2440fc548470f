"""The documentation's site has all pages, and no links to what it does not have. `make site` checks the rest."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
SITE = runpy.run_path(str(ROOT / "scripts/site.py"))


def test_the_menu_has_each_page_once() -> None:
    """In the sections of docs/index.md."""
    menu = SITE["menu"]()
    sections = [title for entry in menu for title in entry]
    assert sections == ["Start", "All pages", "Tutorials", "How to", "Reference", "Explanation", "The project"]
    pages = [page for entry in menu for part in entry.values() for page in ([part] if isinstance(part, str) else part)]
    inside = [str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(pages) == sorted([*inside, "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md"])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("in [`rights.py`](../../lo2io/rights.py), and", "in `rights.py`, and"),
        ("a [folder\nof C](../../lo2io/native/rings)", "a folder\nof C"),
        ("[rights](rights.md#sudo)", "[rights](rights.md#sudo)"),
        ("[above](#there)", "[above](#there)"),
        ("[gone](../../lo2io/gone.py)", "[gone](../../lo2io/gone.py)"),
        ("[far](https://example.org/lo2io)", "[far](https://example.org/lo2io)"),
        ("![picture](../img/a.png)", "![picture](../img/a.png)"),
    ],
)
def test_links_to_sources_become_text(text: str, shown: str) -> None:
    """Links to pages remain, and so do those that lead nowhere, which mkdocs then reports."""
    page = SimpleNamespace(file=SimpleNamespace(src_uri="docs/how-to/x.md"))
    files = SimpleNamespace(get_file_from_path={"docs/how-to/rights.md": page}.get)
    assert SITE["on_page_markdown"](text, page=page, config=None, files=files) == shown
