"""What the product says to people, read from its source and its commands, as one page.

Listed are the codes with what happened and what to do, each command's help with its options, each setting, each text a
command or a log prints, and each detail of an error, with a hole `{}` for every value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from typer.core import TyperCommand, TyperGroup

from foundation.codes import CODES
from neurons.cli.app import COMMANDS, load_command
from neurons.node.settings import Settings

ROOT = Path(__file__).parents[2]
ROOMS = ("foundation", "problems", "harness", "judge", "arena", "training", "neurons")
_SHOWN = frozenset({"echo", "tell", "secho", "BadParameter", "info", "warning", "error", "write"})
_RAISED = re.compile(r"(?:^|[a-z])Error$")
_WORDS_LEAST = 2


def page() -> str:
    """The page, in Markdown."""
    parts = [
        "# Messages and help texts",
        "",
        "Made by `python -m tests.messages > docs/messages.md`; a test holds that it is current. `{}` is a value.",
    ]
    for title, rows in (
        ("Codes", _codes()),
        ("Settings", _settings()),
        ("Commands", _commands()),
        ("Texts in the source", _texts()),
    ):
        parts += ["", f"## {title}", "", *rows]
    return "\n".join(parts) + "\n"


def _codes() -> Iterator[str]:
    for row in sorted(CODES.values(), key=lambda one: one.code):
        yield f"- **{row.code}** {row.title}: {row.cost}. What to do: {row.remedy}"


def _settings() -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        yield f"- **{name}** {field.description}"


def _commands() -> Iterator[str]:
    for entry in sorted(COMMANDS, key=lambda one: one.name):
        if entry.is_listed:
            yield from _of_command(f"arena {entry.name}", load_command(entry.name))


def _of_command(name: str, command: TyperCommand | TyperGroup) -> Iterator[str]:
    yield f"### {name}"
    yield from ("", *(f"    {line}".rstrip() for line in (command.help or "").splitlines()), "")
    options = [f"- `{'/'.join(one.opts)}` {getattr(one, 'help', '') or ''}".rstrip() for one in command.params]
    yield from ([*options, ""] if options else [])
    for inner in command.commands.values() if isinstance(command, TyperGroup) else ():
        if isinstance(inner, TyperCommand | TyperGroup) and (not inner.hidden or inner.name == "run"):
            yield from _of_command(f"{name} {inner.name}", inner)


def _texts() -> Iterator[str]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            said = sorted(set(_said_in(ast.parse(path.read_text("utf-8")))))
            if said:
                yield from (f"### {path.relative_to(ROOT).as_posix()}", "", *(f"- {text}" for text in said), "")


def _said_in(tree: ast.AST) -> Iterator[str]:
    """The texts of calls that print, log or raise, and of generators that yield lines."""
    for node in ast.walk(tree):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _SHOWN or _RAISED.search(name):
                values = [*node.args, *(each.value for each in node.keywords)]
        elif isinstance(node, ast.Yield | ast.Return) and node.value is not None:
            values = [node.value]
        for value in values:
            text = _text_of(value)
            if text is not None and len(re.findall(r"[A-Za-z]{2,}", text.replace("{}", ""))) >= _WORDS_LEAST:
                yield " ".join(text.split()).replace("<", "&lt;")


def _text_of(value: ast.expr) -> str | None:
    """A text with a hole for each value; None for anything else."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if isinstance(value, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in value.values)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        parts = [_text_of(value.left), _text_of(value.right)]
        return "".join(part or "{}" for part in parts) if any(parts) else None
    return None
