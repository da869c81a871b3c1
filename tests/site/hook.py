"""What MkDocs does for mkdocs.yml: the site is made of the checkout's own pages, in their folders, and of references.

Every page keeps its place, so that one link serves the code host and the site. A link to something that is no page (a
folder, a file of code) becomes its name; one to nothing stays, and a strict build ends with it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.site.references import REFERENCES

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
FOLDERS = (
    *("docs", "docker", "examples", "foundation", "problems", "harness", "judge", "arena", "training", "neurons"),
    "tests/redteam",
)
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_staged = tempfile.TemporaryDirectory(prefix="arena-docs-")


def pages() -> tuple[Path, ...]:
    """Every page of the site that is kept, relative to the checkout."""
    found = [*ROOT.glob("*.md"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.md"))]
    return tuple(sorted(path.relative_to(ROOT) for path in found))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lay the pages out in a folder of their own and build from that."""
    folder = Path(_staged.name)
    for page in pages():
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / page, folder / page)
    for name in ("docs/picture.svg", "docs/site.css", "docs/site.js"):
        shutil.copyfile(ROOT / name, folder / name)
    reference = folder / "docs" / "reference"
    reference.mkdir(exist_ok=True)
    for name, write in REFERENCES.items():
        (reference / f"{name}.md").write_text(write(), "utf-8")
    config.docs_dir = str(folder)
    return config


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page's text with its links to code as plain names."""
    folder = Path(page.file.src_uri).parent

    def leads(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        place = (ROOT / folder / target).resolve()
        if place.is_dir() and (place / "README.md").exists() and is_page(place / "README.md"):
            return f"[{text}]({target.rstrip('/')}/README.md{anchor})"
        return text if place.exists() and not is_page(place) else match[0]

    return LINK.sub(leads, re.sub(r"^```(\w+) needs=\w+$", r"```\1", markdown, flags=re.MULTILINE))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """The page with a name for the theme's search, which readers of screens would meet as a nameless dialog."""
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )


def is_page(place: Path) -> bool:
    """Whether the site holds that file of the checkout."""
    return place.is_relative_to(ROOT) and place.relative_to(ROOT) in (*pages(), Path("docs/picture.svg"))


def on_shutdown() -> None:
    """Remove what was laid out."""
    _staged.cleanup()
