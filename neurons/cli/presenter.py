"""How commands print: results as JSON or as lines, fields and tables; progress on standard error.

Progress is a bar per phase on a terminal, a line now and then elsewhere, with the rate and the time left. A phase
counts bytes when its name is in `BYTE_PHASES`, otherwise items.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from foundation.progress import Progress, no_progress

if TYPE_CHECKING:
    from rich.progress import TaskID
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


BYTE_PHASES = frozenset({"read"})
_LINE_EVERY_S = 10.0


@contextmanager
def show_progress(*, is_quiet: bool = False) -> Iterator[Progress]:
    """The function to report to; what it shows goes away with the block on a terminal. Quiet, it shows nothing."""
    if is_quiet:
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    if not console.is_terminal:
        yield PhaseLines(lambda line: console.print(line, highlight=False), time.monotonic)
        return
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[rate]:>16}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}
        pace = PhasePace(time.monotonic)

        def advance(phase: str, done: int, total: int) -> None:
            is_new, so_far, elapsed_s = pace.take(phase, done)
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=total, rate="")
            elif is_new:
                bars.reset(tasks[phase], total=total)
            bars.update(tasks[phase], completed=done, total=total, rate=rate_text(phase, so_far, elapsed_s))

        yield advance


class PhasePace:
    """How far each phase has come since its first report, which may tell of what an earlier run did. One that tells of
    less than before has begun again. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun: dict[str, tuple[float, int]] = {}
        self._last: dict[str, int] = {}

    def take(self, phase: str, done: int) -> tuple[bool, int, float]:
        """Of one report: (whether the phase begins with it, what was done since it began, for how many seconds)."""
        now = self._clock()
        is_new = phase not in self._begun or done < self._last[phase]
        if is_new:
            self._begun[phase] = (now, done)
        self._last[phase] = done
        begun_s, begun_at = self._begun[phase]
        return is_new, done - begun_at, now - begun_s


class PhaseLines:
    """A line when a phase ends, and every ten seconds while it runs. `clock` gives seconds."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._write, self._clock = write, clock
        self._pace = PhasePace(clock)
        self._shown_s = clock()
        self._ended: set[str] = set()

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Take one report."""
        is_new, so_far, elapsed_s = self._pace.take(phase, done)
        if is_new:
            self._ended.discard(phase)
        rate = rate_text(phase, so_far, elapsed_s)
        if done >= total:
            if phase not in self._ended:
                self._ended.add(phase)
                self._write(f"{phase}: done in {elapsed_s:.1f} s{rate and f', {rate}'}")
        elif self._clock() - self._shown_s >= _LINE_EVERY_S and so_far > 0:
            self._shown_s = self._clock()
            left_s = elapsed_s * (total - done) / so_far
            self._write(f"{phase}: {done * 100 // total} %{rate and f', {rate}'}, {left_s:.0f} s left")


def rate_text(phase: str, done: int, elapsed_s: float) -> str:
    """How fast a phase goes; empty while that cannot be said and below one item a second, where time left says more."""
    if elapsed_s <= 0 or done < elapsed_s:
        return ""
    if phase in BYTE_PHASES:
        return f"{done / elapsed_s / 1e6:,.1f} MB/s"
    return f"{done / elapsed_s:,.0f}/s"
