"""How commands print their results: as JSON, or for people as lines, fields and tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from arena.view.lines import StyledLine

TEXT_SHOWN = 400  # characters of one text
_WIDEST = 100  # columns of a trace
_STYLES: dict[str, dict[str, Any]] = {
    "heading": {"bold": True},
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "soft": {"dim": True},
    "call": {"fg": "cyan"},
    "mark": {"fg": "yellow"},
    "plain": {},
}


def show(value: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print a value as one line of JSON, or else its lines, each as it is made."""
    if as_json:
        echo_json(value)
        return
    for line in lines:
        typer.echo(line)


def echo_json(value: object, *, is_indented: bool = False) -> None:
    """Print one value as JSON."""
    import msgspec

    encoded = msgspec.json.encode(value)
    typer.echo((msgspec.json.format(encoded) if is_indented else encoded).decode())


def field_lines(fields: Iterable[tuple[str, object]], width: int) -> Iterator[str]:
    """One line a field: its name, filled up to `width` characters, and its value."""
    for name, value in fields:
        yield f"{name:<{width}} {value}"


def text_width() -> int:
    """Columns that running text may fill."""
    import shutil

    return min(_WIDEST, shutil.get_terminal_size((80, 24)).columns)


def echo_styled(lines: Iterable[StyledLine]) -> None:
    """Print lines in the colours of what they are."""
    for line in lines:
        typer.echo(typer.style(line.text, **_STYLES[line.style]))


def make_table(*headings: str, title: str | None = None, right: Collection[str] = (), **look: Any) -> Table:
    """An empty table; the columns in `right` are justified there. `look` goes to rich."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", **look)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    return table


def badge(text: str, colour: str, width: int = 0) -> str:
    """A state in bold colour, filled up to `width` characters."""
    return typer.style(f"{text:<{width}}", fg=colour, bold=True)


def share_text(value_e4: int) -> str:
    """A share of ten-thousandths as a number with four places."""
    return f"{value_e4 / 10_000:.4f}"


def printable(text: str) -> str:
    """The text with control characters replaced, so that a trace can't drive the reader's terminal."""
    return "".join(mark if mark.isprintable() or mark == "\n" else "\N{REPLACEMENT CHARACTER}" for mark in text)


def cut(text: str) -> str:
    """The text, or its beginning and its length."""
    return text if len(text) <= TEXT_SHOWN else f"{text[:TEXT_SHOWN]}… ({len(text)} characters)"
