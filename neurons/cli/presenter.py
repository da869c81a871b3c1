"""How commands print and end: results as JSON or as lines, fields and tables; progress on standard error; exit codes.

Exit codes: 0 ok, 1 the thing tested failed, 2 usage, 3 environment not ready, 4 integrity violation.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec
import typer

from foundation.codes import Owner
from foundation.errors import ArenaError, Failure
from foundation.long_work import Progress, no_progress

EXIT_FAILED, EXIT_USAGE, EXIT_NOT_READY, EXIT_INTEGRITY = 1, 2, 3, 4
EXIT_INTERRUPTED = 130  # the shell's own convention

_BY_OWNER = {Owner.AGENT: EXIT_FAILED, Owner.PROBLEM: EXIT_USAGE}  # of any other the environment is not ready
# A mistyped path or setting is usage (2) whatever the code's owner; a log that fails verification is 4.
_BY_EXIT = {
    EXIT_FAILED: "V2123 V2147 V2148",
    EXIT_USAGE: "A1009 V2027 V2030 V2081 V2082 V2105 V2120",
    EXIT_INTEGRITY: "P4010 V2050 V2080 V2095 V2099 V2166",
}
_BY_CODE = {code: exit_code for exit_code, codes in _BY_EXIT.items() for code in codes.split()}


_IS_JSON = ContextVar("is_json", default=False)  # whether the command that runs was given --json


@contextmanager
def printing_json(is_wanted: bool) -> Iterator[None]:
    """Whether the block shows its results as JSON."""
    token = _IS_JSON.set(is_wanted)
    try:
        yield
    finally:
        _IS_JSON.reset(token)


def is_json() -> bool:
    """Whether the command that runs was given --json."""
    return _IS_JSON.get()


def show(value: object, lines: Iterable[str], code: int = 0) -> None:
    """Print a value as one line of JSON where --json was given, or else its lines, each as it is made. Raises
    typer.Exit for an exit `code` other than 0."""
    if is_json():
        echo_json(value)
    else:
        for line in lines:
            typer.echo(line)
    if code:
        raise typer.Exit(code)


def say(*lines: str) -> None:
    """Print lines for a person; nothing where --json was given."""
    if lines and not is_json():
        typer.echo("\n".join(lines))


def refusal(failure: Failure | None, about: str = "", fix: str = "", code: str = "usage") -> dict[str, Any]:
    """What `--json` prints of a refusal, whatever the command. Without a failure its `code` is a word: `usage` for a
    line that is malformed."""
    code, detail = (failure.code, failure.detail) if failure else (code, about)
    return {"error": {"code": code, "detail": detail, "fix": fix}}


_WORDS = {EXIT_FAILED: "failed", EXIT_USAGE: "usage", EXIT_INTERRUPTED: "stopped"}


def refuse(about: str, code: int) -> typer.Exit:
    """Say why a command ends with exit code `code` and has nothing to show; what to raise then."""
    if is_json():
        echo_json(refusal(None, about, code=_WORDS[code]))
    typer.echo(about, err=True)
    return typer.Exit(code)


def echo_json(value: object, *, is_indented: bool = False) -> None:
    """Print one value as JSON."""
    encoded = msgspec.json.encode(value)
    typer.echo((msgspec.json.format(encoded) if is_indented else encoded).decode())


def field_lines(fields: Iterable[tuple[str, object]], width: int) -> Iterator[str]:
    """One line a field: its name, filled up to `width` characters, and its value."""
    for name, value in fields:
        yield f"{name:<{width}} {value}"


def table_text(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[str] = (), **look: Any
) -> str:
    """A table as the terminal shows it; the columns in `right` are justified there. `look`: its `title` and `width`."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=look.get("width"), markup=False, emoji=False, highlight=False)
    table = Table(title=look.get("title"), title_justify="left", box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    for row in rows:
        table.add_row(*row)
    with console.capture() as shown:
        console.print(table)
    return shown.get().removesuffix("\n")


def badge(text: str, colour: str, width: int = 0) -> str:
    """A state in bold colour, filled up to `width` characters."""
    return typer.style(f"{text:<{width}}", fg=colour, bold=True)


def share_text(value_e4: int) -> str:
    """A share of ten-thousandths as a number with four places."""
    return f"{value_e4 / 10_000:.4f}"


def agent_name(agent_version_id: str, names: Mapping[str, str]) -> str:
    """An agent's name beside its hash, in at most 22 columns."""
    name = names.get(agent_version_id, "").split(" ")[0]
    return f"{name[:13]} {agent_version_id[:8]}".strip()


_LINE_EVERY_S = 10.0


def show_progress() -> Progress:
    """The function to report to: a line when a phase ends, and every ten seconds while one runs, with the time left.
    A phase's first report may tell of what an earlier run did. Nothing is shown where --json was given."""
    begun: dict[str, tuple[float, int]] = {}  # when a phase was first reported, and how far it was
    shown_s = time.monotonic()

    def report(phase: str, done: int, total: int) -> None:
        nonlocal shown_s
        now_s = time.monotonic()
        begun_s, begun_at = begun.setdefault(phase, (now_s, done))
        if done >= total and begun_at < total:  # said once, unless the phase begins again
            begun[phase] = now_s, total
            typer.echo(f"{phase}: done in {now_s - begun_s:.1f} s", err=True)
        elif done < begun_at:
            begun[phase] = now_s, done
        elif done < total and now_s - max(begun_s, shown_s) >= _LINE_EVERY_S and done > begun_at:
            shown_s, left_s = now_s, (now_s - begun_s) * (total - done) / (done - begun_at)
            typer.echo(f"{phase}: {done * 100 // total} %, {left_s:.0f} s left", err=True)

    return no_progress if is_json() else report


def exit_code(error: ArenaError) -> int:
    """The exit code of a coded failure (docs/architecture.md#commands-and-errors)."""
    return _BY_CODE.get(error.failure.code, _BY_OWNER.get(error.owner, EXIT_NOT_READY))
