"""The documents can't lie about places: links, anchors, folders and commands that they name exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from typer.core import TyperGroup

from foundation.codes import CODES
from neurons.cli.app import COMMANDS, load_command
from neurons.settings.settings import resolve
from tests.readme_blocks import GUIDES, Block, blocks_of, unknown_options
from tests.readme_blocks import PAGES as READ

ROOT = Path(__file__).parents[1]
ROOMS = ("foundation", "problems", "harness", "judge", "arena", "training", "neurons")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(path for name in ("docs", "examples", *ROOMS) for path in (ROOT / name).rglob("*.md"))]
)
SOURCES = sorted(path for name in (*ROOMS, "tests", "examples") for path in (ROOT / name).rglob("*.py"))
PLACEHOLDER = re.compile(r"@@\w+@@")
LINK = re.compile(r"\]\(([^)\s]+)\)")
CITED = re.compile(r"docs/[\w/-]+\.md(?:#[\w-]+)?")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors_of(page: Path) -> set[str]:
    """The anchors a code host makes of a page's headings."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def is_found(target: str, folder: Path) -> bool:
    """Whether a relative link from a page in `folder` leads to a file and, with `#`, to a heading of it."""
    place, _, anchor = target.partition("#")
    page = (folder / place).resolve()
    return page.exists() and (not anchor or anchor in anchors_of(page))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    links = [target for target in LINK.findall(text) if not target.startswith(("http://", "https://"))]
    assert not [
        target
        for target in links
        if not is_found(f"{page.name}{target}" if target.startswith("#") else target, page.parent)
    ]


def test_no_page_holds_a_placeholder() -> None:
    pages = [*PAGES, *(ROOT / "docs").rglob("*.html")]
    assert not {(name_of(page), found) for page in pages for found in PLACEHOLDER.findall(page.read_text("utf-8"))}


def test_every_page_that_a_comment_cites_exists() -> None:
    cited = {(name_of(path), target) for path in SOURCES for target in CITED.findall(path.read_text("utf-8"))}
    assert cited
    assert not {(path, target) for path, target in cited if not is_found(target, ROOT)}


def test_every_file_that_a_page_of_the_root_or_of_docs_names_exists() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    pattern = re.compile(rf"`((?:{'|'.join((*ROOMS, 'tests'))})/[\w/]+(?:\.\w+)?)`")
    named = {(name_of(page), place) for page in pages for place in pattern.findall(page.read_text("utf-8"))}
    assert named
    assert not {(page, place) for page, place in named if "NAME" not in place and not (ROOT / place).exists()}


FILE_TABLES = [
    (page, table)
    for page in PAGES
    if page.name == "README.md"
    for table in re.findall(r"^\| (?:file|folder) \|.*\n\|[-|]+\n((?:\|.*\n)+)", page.read_text("utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize(("page", "table"), FILE_TABLES, ids=[name_of(page) for page, _ in FILE_TABLES])
def test_every_file_that_a_room_lists_is_in_it(page: Path, table: str) -> None:
    cells = [line.split("|")[1] for line in table.splitlines()]
    names = [name for cell in cells for name in re.findall(r"`([\w./-]+)`", cell)]
    assert names
    found = [any((page.parent / f"{name}{end}").exists() for end in ("", ".py", ".toml")) for name in names]
    assert not [name for name, is_there in zip(names, found, strict=True) if not is_there]


def test_every_command_that_a_page_of_the_root_or_of_docs_or_an_example_names_exists() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*")]
    calls = {call for page in pages for call in re.findall(r"`arena ([^`]+)`", page.read_text("utf-8"))}
    known = {entry.name for entry in COMMANDS}
    for words in (call.split() for call in calls):
        if words[0].startswith("--"):
            continue
        assert words[0] in known, words
        group = load_command(words[0])
        if isinstance(group, TyperGroup) and len(words) > 1 and words[1].isalpha() and words[1].islower():
            assert words[1] in group.commands, words


# -- code blocks of README.md, the rooms' pages and the guides, and what errors tell people to do, name what exists


BLOCKS = [block for page in [*READ, *GUIDES] for block in blocks_of(page)]
SHELL = [block for block in BLOCKS if block.language == "sh"]
ARENA_LINES = sorted({line for block in SHELL for line in block.lines if line.startswith("arena ")})


@pytest.mark.parametrize("line", ARENA_LINES)
def test_a_line_names_a_command_and_options_that_exist(line: str) -> None:
    assert not unknown_options(line.partition(" > ")[0].replace("$R/", "").replace("$POOL", "train"))


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "toml"], ids=lambda block: block.page)
def test_a_settings_file_can_be_read(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tomllib.loads(block.text)
    path = tmp_path / "arena.toml"
    path.write_text(block.text, "utf-8")
    monkeypatch.chdir(tmp_path)
    assert len(resolve({}, path).settings.upstreams) == block.text.count("[[upstreams]]")


def test_every_command_that_a_remedy_names_exists() -> None:
    """Error texts are documentation too."""
    named = {(row.code, call) for row in CODES.values() for call in re.findall(r"`arena ([^`]+)`", row.remedy)}
    assert named
    known = {entry.name for entry in COMMANDS}
    assert not {(code, call) for code, call in named if call.split()[0] not in known}
    groups = {entry.name: load_command(entry.name) for entry in COMMANDS}
    for code, call in named:
        words = call.split()
        group = groups[words[0]]
        if isinstance(group, TyperGroup) and words[0] != "validator":  # `arena validator` alone runs one
            assert words[1] in group.commands, (code, call)
