"""The code blocks of README.md, the rooms' pages and the guides: what each is, and what its lines call."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from typer.core import TyperCommand, TyperGroup

from neurons.cli.app import load_command

ROOT = Path(__file__).parents[1]
ROOMS = ("foundation", "problems", "harness", "judge", "arena", "training", "neurons", "examples")
PAGES = [ROOT / "README.md", *sorted(page for room in ROOMS for page in (ROOT / room).rglob("README.md"))]
GUIDES = [
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
    *(ROOT / "docs" / f"{name}.md" for name in ("agents", "api", "training", "faq")),
]
_BLOCK = re.compile(r"(?:<!-- needs (.+?) -->\n)?^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """One block. `needs`: what a machine must have to run it, "" where a test runs it."""

    page: str
    heading: str
    language: str
    text: str
    needs: str

    @property
    def lines(self) -> list[str]:
        """Its lines without comments."""
        return [line for one in self.text.splitlines() if (line := one.partition(" #")[0].strip())]


def blocks_of(page: Path) -> list[Block]:
    """The blocks of one page, in order."""
    text = page.read_text("utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        heading = (re.findall(r"^#+ (.+)$", text[: match.start()], re.MULTILINE) or [""])[-1]
        name = page.relative_to(ROOT).as_posix()
        found.append(Block(name, heading, match[2], match[3], match[1] or ""))
    return found


def block_under(heading: str, page: Path = ROOT / "README.md") -> Block:
    """The one block under a heading."""
    (block,) = [each for each in blocks_of(page) if each.heading == heading]
    return block


def resolve(words: list[str]) -> tuple[TyperCommand | TyperGroup, list[str]]:
    """The command that these words name, and what follows it. KeyError for none."""
    command, rest = load_command(words[0]), words[1:]
    while isinstance(command, TyperGroup):
        if words[0] == "validator" and (not rest or rest[0] not in command.commands):
            return command.commands["run"], rest  # type: ignore[return-value]
        command, rest = command.commands[rest[0]], rest[1:]  # type: ignore[assignment]
    return command, rest


def unknown_options(line: str) -> set[str]:
    """Options of an `arena` line that its command does not have."""
    command, rest = resolve(shlex.split(line)[1:])
    parameters = command.get_params(command.make_context(command.name, [], resilient_parsing=True))
    options = {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
    return {word.partition("=")[0] for word in rest if word.startswith("--")} - options
