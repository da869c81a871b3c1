"""A blind sheet of traces for people to read: did the model decide, or did a program speak through it?

The sheet shows what was asked, said, called and answered, and nothing that tells who wrote it or how it was
judged: no agent, team, coefficient, outcome, emitter, trace id or place. The key, a file apart, says which item is
which. The draw depends on the seed and the trace alone, so a second reader gets the same sheet. Cells that a table
program would run as a formula are kept from it by an apostrophe.
"""

from __future__ import annotations

import csv
import hashlib
import heapq
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from arena.view.reading import Piece, StepKind, TraceStep
from harness.chat import Message
from judge.render import neutral_text
from training.corpus.model import CorpusRow
from training.corpus.report import read_template

RESULT_CHARS = 600
SHEET_COLUMNS = ("item", "query", "conversation", "who_decided", "note")
ANSWERS = ("model", "program", "cannot tell")  # what `who_decided` is to hold
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One trace of the sheet."""

    name: str
    query: str
    steps: tuple[TraceStep, ...]


Key = dict[str, object]  # what an item of the sheet is: its trace, and all that the sheet does not tell


def draw_sample(rows: Iterable[CorpusRow], count: int, seed: int) -> tuple[tuple[Item, ...], tuple[Key, ...]]:
    """`count` rows by lot, named in the order of the lots. Memory: the rows drawn."""

    def lot(row: CorpusRow) -> bytes:
        return hashlib.sha256(f"sheet {seed} {row.trace.trace_id} {row.trace.source.place}".encode()).digest()

    items, keys = [], []
    for number, row in enumerate(heapq.nsmallest(count, rows, key=lot), 1):
        name, trace = f"S{number:03d}", row.trace
        steps = (step for message in trace.messages if message.role != "system" for step in _steps(message))
        items.append(Item(name=name, query=neutral_text(trace.query), steps=tuple(steps)))
        emitters = Counter(call.emitter or "not recorded" for message in trace.messages for call in message.calls)
        key: Key = {"item": name, "trace_id": trace.trace_id, "place": trace.source.place}
        told = ("agent", "team", "coefficient_e4", "is_success", "is_agentic")
        keys.append(key | {fact: getattr(trace.facts, fact) for fact in told} | {"emitters": sorted(emitters.items())})
    return tuple(items), tuple(keys)


def sheet_csv(items: Sequence[Item]) -> str:
    """The sheet for a table program; `who_decided` and `note` are to be filled in."""
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(SHEET_COLUMNS)
    for item in items:
        talk = "\n".join(f"[{step.kind}] {step.text}" for step in item.steps)
        table.writerow([item.name, _cell(item.query), _cell(talk), "", ""])
    return text.getvalue()


def sheet_html(items: Sequence[Item]) -> str:
    """The sheet for reading: one file, no script; answers go into the CSV, or onto paper."""
    return read_template("sheet.html.j2").render(items=items, answers=ANSWERS)


def key_json(keys: Sequence[Key]) -> bytes:
    """The key, one object a line."""
    return b"".join(msgspec.json.encode(key) + b"\n" for key in keys)


def _steps(message: Message) -> Iterator[TraceStep]:
    content = neutral_text(message.content)
    said: list[tuple[StepKind, str]] = [("said", content)]
    if message.role == "user":
        said = [("user", content)]
    elif message.role == "tool":
        cut = len(content) - RESULT_CHARS
        said = [("result", f"{content[:RESULT_CHARS]} … {cut:,} characters more" if cut > 0 else content)]
    else:
        said = [("thought", neutral_text(message.reasoning)), *said]
        said += [("call", neutral_text(f"{call.name} {call.arguments}")) for call in message.calls]
        said = [one for one in said if one[1].strip()]
    return (TraceStep(kind=kind, pieces=(Piece(text=text),)) for kind, text in said)


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
