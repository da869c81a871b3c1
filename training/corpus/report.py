"""What a corpus says of itself: tables for a terminal, one HTML page without scripts, and a dataset card; and a blind
sheet of its traces for people to read.

Pure and deterministic: all three are drawn from the same tables, so they never disagree. Counts and places, never a
trace's text. What a source calls itself (an agent, a day) is shown on one line, without control characters. They are
drawn from the funnel, integers all, the same for the same traces in any order and on any number of processes.

The sheet asks whether the model decided, or a program spoke through it. It shows what was asked, said, called and
answered, and nothing that tells who wrote it or how it was judged: no agent, team, coefficient, outcome, emitter, trace
id or place. The key, a file apart, says which item is which. The draw depends on the seed and the trace alone, so a
second reader gets the same sheet.
"""

from __future__ import annotations

import functools
import hashlib
import heapq
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import get_args

import msgspec
from jinja2 import Template

from arena.export.card import Split, front_matter, markdown_table
from arena.view.page import page_templates
from arena.view.reading import Piece, StepKind, TraceStep
from foundation.canonical import content_hash
from foundation.codes import lookup
from harness.chat import Message
from judge.render import neutral_name, neutral_text
from training.corpus.model import MEANING, Appraisal, CorpusRow, Lineage, RejectCode, Rules, UnreadCount
from training.corpus.selection import Appraisals, Decision


class CodeCount(msgspec.Struct, frozen=True, kw_only=True):
    """A reject code: how many traces broke the rule, and of how many it was the only one. `examples` are places."""

    code: RejectCode
    count: int
    alone: int
    examples: tuple[str, ...] = ()


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """One day, bucket or agent ("" where the source does not say): traces in, kept, and rejected by code.

    `title` is the name that an agent version was submitted under, where an export says it.
    """

    name: str
    traces: int
    kept: int
    codes: tuple[tuple[RejectCode, int], ...]
    title: str = ""


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """A measure over traces: (value, traces) by value, and how many traces have none."""

    counts: tuple[tuple[int, int], ...]
    missing: int = 0

    @property
    def traces(self) -> int:
        """How many traces have a value."""
        return sum(count for _, count in self.counts)

    def quantile(self, share_e4: int) -> int | None:
        """The smallest value that at least `share_e4` ten-thousandths of the traces do not exceed; None of none."""
        wanted, met = max(1, -(-self.traces * share_e4 // 10_000)), 0
        for value, count in self.counts:
            met += count
            if met >= wanted:
                return value
        return None


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """A set measured, and how varied it is. `tokens` is known of traces that every other per-trace rule lets pass."""

    turns: Distribution
    tool_calls: Distribution
    queries: Distribution  # distinct search queries
    tokens: Distribution
    coefficient_e4: Distribution
    teams: int
    agents: int
    problems: int
    top_agent_share_e4: int  # of the agent version with most traces
    shape_entropy_mbit: int  # Shannon entropy of tool-call shapes (names in order), in thousandths of a bit


class Funnel(msgspec.Struct, frozen=True, kw_only=True):
    """One run: `traces` came in, `kept` are the corpus. Codes are in the order they are applied.

    `removed` counts each lost trace once, under the first code in that order, so it adds up to `traces - kept`.
    """

    rules: Rules
    traces: int
    kept: int
    codes: tuple[CodeCount, ...]
    removed: tuple[tuple[RejectCode, int], ...]
    days: tuple[Slice, ...]
    buckets: tuple[Slice, ...]
    agents: tuple[Slice, ...]
    before: Measures
    after: Measures
    unread: tuple[UnreadCount, ...]  # rows that could not be read, beside `traces`
    unjudged: int  # of sources without a judge: the rule `coefficient` was not asked of them

    @property
    def quarantined(self) -> int:
        """How many rows could not be read."""
        return sum(one.count for one in self.unread)


CODES: tuple[RejectCode, ...] = get_args(RejectCode)  # in the order they are applied
EXAMPLES = 5
_READ, _KEPT = "read", "kept"  # counted beside the codes


def funnel_of(appraised: Appraisals, decision: Decision, names: Mapping[str, str] = {}) -> Funnel:
    """The funnel of a decision. Reads every appraisal once. `names` of agent versions by id, where they are known."""
    before, after, whole = _Tally(), _Tally(), Counter[str]()
    days, buckets, agents = (defaultdict[str, Counter[str]](Counter) for _ in range(3))
    alone, removed = Counter[str](), Counter[str]()
    examples: dict[RejectCode, list[tuple[int, str]]] = defaultdict(list)
    unjudged = 0
    for one, rank, found in zip(appraised, decision.ranks, decision.codes, strict=True):
        unjudged += one.is_unjudged
        for measured in (before, after) if rank else (before,):
            measured.add(one)
        for part in (whole, days[one.day], buckets[one.bucket], agents[one.agent]):
            part.update((_READ, _KEPT) if rank else (_READ, *found))
        alone.update(found if len(found) == 1 else ())
        removed.update([min(found, key=CODES.index)] if found else ())
        for code in found:
            # drawn by a hash of the place: a sample, and the same one in any order
            examples[code] = sorted([*examples[code], (zlib.crc32(one.place.encode()), one.place)])[:EXAMPLES]
    return Funnel(
        rules=decision.rules,
        traces=whole[_READ],
        kept=whole[_KEPT],
        codes=tuple(
            CodeCount(code=code, count=count, alone=alone[code], examples=tuple(place for _, place in examples[code]))
            for code, count in _in_order(whole)
        ),
        removed=_in_order(removed),
        days=_slices_of(days),
        buckets=_slices_of(buckets),
        agents=_slices_of(agents, names),
        before=before.measures(),
        after=after.measures(),
        unread=appraised.unread,
        unjudged=unjudged,
    )


class _Tally:
    """The measures of a set while its traces are added."""

    def __init__(self) -> None:
        self._values = {name: Counter[int | None]() for name, _ in _MEASURES}
        self._agents, self._teams, self._problems = Counter[str](), set[str](), set[str]()
        self._shapes = Counter[tuple[str, ...]]()

    def add(self, one: Appraisal) -> None:
        values = (one.turns, len(one.signals.shape), one.signals.reformulations, one.tokens, one.coefficient_e4)
        for counts, value in zip(self._values.values(), values, strict=True):
            counts[value] += 1
        self._agents[one.agent] += 1
        self._teams.add(one.team)
        self._problems.add(one.problem)
        self._shapes[one.signals.shape] += 1

    def measures(self) -> Measures:
        return Measures(
            **{name: _distribution(counts) for name, counts in self._values.items()},
            teams=len(self._teams - {""}),
            agents=len(self._agents.keys() - {""}),
            problems=len(self._problems),
            top_agent_share_e4=max(self._agents.values(), default=0) * 10_000 // max(1, self._agents.total()),
            shape_entropy_mbit=entropy_mbit(list(self._shapes.values())),
        )


def _slices_of(counts: Mapping[str, Counter[str]], titles: Mapping[str, str] = {}) -> tuple[Slice, ...]:
    return tuple(
        Slice(name=name, traces=one[_READ], kept=one[_KEPT], codes=_in_order(one), title=titles.get(name, ""))
        for name, one in sorted(counts.items())
    )


def _in_order(counts: Counter[str]) -> tuple[tuple[RejectCode, int], ...]:
    return tuple((code, counts[code]) for code in CODES if counts[code])


def _distribution(counts: Counter[int | None]) -> Distribution:
    known = tuple(sorted((value, count) for value, count in counts.items() if value is not None))
    return Distribution(counts=known, missing=counts[None])


def entropy_mbit(counts: list[int]) -> int:
    """Shannon entropy of a distribution given as counts above 0, in thousandths of a bit; 0 for none or one."""
    total = sum(counts)
    weighted = math.fsum(count * math.log2(count) for count in counts)
    return round(1_000 * (math.log2(total) - weighted / total)) if total else 0


AGENTS_MAX = 12
BIN_TOKENS = 1_024
STRUCTURE_CODES: tuple[RejectCode, ...] = ("subtask", "subtask_guess")  # axis-B: by recorded emitters, and by a guess
_MEASURES = (
    ("turns", "assistant turns"),
    ("tool_calls", "tool calls"),
    ("queries", "distinct search queries"),
    ("tokens", "tokens"),
    ("coefficient_e4", "coefficient, ten-thousandths"),
)
_COUNTS = (("teams", "teams"), ("agents", "agent versions"), ("problems", "problems"))
_TITLE_CHARS, _ID_CHARS = 11, 8  # together they fit where an id alone is cut
_BAR_CHARS = 30
_NAME_CHARS, _REASON_CHARS = 24, 120
_UNNAMED = "not recorded"


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A table: `rows` have as many cells as `header`; a header that starts with ">" names a column of numbers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def steps(funnel: Funnel) -> tuple[tuple[RejectCode, int, int], ...]:
    """The funnel from all traces down to the kept ones: code, how many it removed first, how many were left then."""
    left, found = funnel.traces, []
    for code, removed in funnel.removed:
        left -= removed
        found.append((code, removed, left))
    return tuple(found)


def length_bins(funnel: Funnel) -> tuple[int, ...]:
    """Traces by their tokens, in bins of `BIN_TOKENS`, every bin from 0 up to the longest or the budget; the last, at
    twice the budget, holds what is longer still."""
    counts, budget = funnel.before.tokens.counts, funnel.rules.tokens_max
    most = max([budget, *(min(value, 2 * budget) for value, _ in counts)]) // BIN_TOKENS
    bins = [0] * (most + 1)
    for value, count in counts:
        bins[min(value // BIN_TOKENS, most)] += count
    return tuple(bins)


def percent(part: int, whole: int) -> str:
    """A share as people read it: `36.3 %`, `<0.1 %` for what is there and small, "-" of nothing."""
    if not whole:
        return "-"
    if part and part * 1_000 < whole:
        return "<0.1 %"
    return f"{part * 100 / whole:.1f} %"


def sections(funnel: Funnel, *, is_whole: bool = False) -> tuple[Section, ...]:
    """The report, the lengths first: a budget is believed after they were looked at. `is_whole`: names are not cut."""
    notes = [f"{funnel.quarantined:,} further rows could not be read"] if funnel.quarantined else []
    if funnel.unjudged:
        off = "the judge's gate (`coefficient`) was off for them, and every other rule on"
        notes.append(f"{funnel.unjudged:,} traces are of a source without a judge: {off}")
    after = [(code, f"{left:,}", f"-{gone:,}", percent(left, funnel.traces)) for code, gone, left in steps(funnel)]
    found = [
        _lengths(funnel),
        Section(
            title="Funnel, in the order rules are applied",
            header=("after", ">left", ">removed", ">of all"),
            rows=(("read", f"{funnel.traces:,}", "", percent(funnel.traces, funnel.traces)), *after),
            note="; ".join(notes),
        ),
        Section(
            title="Rows that could not be read",
            header=("code", ">rows", "the first", "what is wrong with it"),
            rows=tuple((one.code, f"{one.count:,}", _name(one.example), _reason(one)) for one in funnel.unread),
            note="each stands with its reason in rejected.jsonl.zst" if funnel.unread else "",
        ),
        Section(
            title="Why traces are out; one may break several rules",
            header=("code", ">broke it", ">only that", "why"),
            rows=tuple((one.code, f"{one.count:,}", f"{one.alone:,}", MEANING[one.code]) for one in funnel.codes),
            note="examples of each stand on the page" if funnel.codes else "",
        ),
        _split(funnel),
        _before_and_after(funnel),
        _slices("By day", funnel.days, is_whole=is_whole),
        _slices("By bucket", funnel.buckets, is_whole=is_whole),
    ]
    largest = sorted(funnel.agents, key=lambda one: (-one.traces, one.name))
    found.append(_slices("By agent version", largest, most=AGENTS_MAX, is_whole=is_whole))
    return tuple(one for one in found if one.rows)


def _lengths(funnel: Funnel) -> Section:
    bins, budget = length_bins(funnel), funnel.rules.tokens_max
    rows = [
        (
            f"{number * BIN_TOKENS:,}",
            f"{traces:,}",
            "█" * -(-traces * _BAR_CHARS // max(1, *bins)) + (" over" if number * BIN_TOKENS >= budget else ""),
        )
        for number, traces in enumerate(bins)
    ]
    over = sum(count for value, count in funnel.before.tokens.counts if value > budget)
    note = f"{sum(bins):,} counted, {over:,} over the budget of {budget:,}"
    header = (">from", ">traces", "")
    return Section(title="Length in tokens", header=header, rows=tuple(rows) if sum(bins) else (), note=note)


def _split(funnel: Funnel) -> Section:
    """Traces whose model wrote its own calls (axis-A), and that did not: by record, by a guess. Empty where the split
    is switched off: all then count as the first."""
    rows = []
    if not set(STRUCTURE_CODES) <= set(funnel.rules.off):
        every = {one.code: one.count for one in funnel.codes}
        named = [
            ("all", funnel.traces, every),
            *((_name(one.name), one.traces, dict(one.codes)) for one in funnel.buckets),
        ]
        for name, traces, counts in named:
            recorded, guessed = (counts.get(code, 0) for code in STRUCTURE_CODES)
            model = traces - recorded - guessed
            rows.append((name, percent(model, traces), f"{model:,}", f"{recorded:,}", f"{guessed:,}"))
    header = ("bucket", ">agentic", ">by the model", ">sub-task", ">guessed sub-task")
    return Section(title="Who wrote the calls", header=header, rows=tuple(rows))


def _before_and_after(funnel: Funnel) -> Section:
    sides = (funnel.before, funnel.after)
    rows = []
    for name, title in _MEASURES:
        for share, said in ((5_000, "median"), (9_500, "95 %")):
            values = (getattr(side, name).quantile(share) for side in sides)
            rows.append((f"{title}, {said}", *("-" if one is None else f"{one:,}" for one in values)))
    rows += [(title, *(f"{getattr(side, name):,}" for side in sides)) for name, title in _COUNTS]
    rows.append(("share of the top agent", *(f"{side.top_agent_share_e4 / 100:.1f} %" for side in sides)))
    rows.append(("shape entropy, bit", *(f"{side.shape_entropy_mbit / 1_000:.2f}" for side in sides)))
    return Section(title="Before and after", header=("measure", ">before", ">after"), rows=tuple(rows))


def _slices(title: str, slices: Sequence[Slice], *, most: int | None = None, is_whole: bool) -> Section:
    rows = []
    for one in slices[:most]:
        code, count = max(one.codes, key=lambda pair: pair[1], default=("", 0))
        name = f"{one.title} {one.name}".strip() or _UNNAMED
        if not is_whole:
            short = one.title if len(one.title) <= _TITLE_CHARS else f"{one.title[: _TITLE_CHARS - 1]}…"
            name = _name(f"{short} {one.name[:_ID_CHARS]}" if one.title else one.name)
        cells = (f"{one.traces:,}", f"{one.kept:,}", percent(one.kept, one.traces))
        rows.append((name, *cells, f"{code} {count:,}" if code else ""))
    others = 0 if most is None else max(0, len(slices) - most)
    note = f"{others:,} more in funnel.json" if others else ""
    header = ("name", ">traces", ">kept", ">share", "broken most")
    return Section(title=title, header=header, rows=tuple(rows), note=note)


def _reason(unread: UnreadCount) -> str:
    return " ".join(neutral_text(unread.detail or lookup(unread.code).title).split())[:_REASON_CHARS]


def _name(name: str) -> str:
    shown = neutral_name(name)
    return (shown or _UNNAMED) if len(shown) <= _NAME_CHARS else f"{shown[:10]}…{shown[-12:]}"


def render_page(lineage: Lineage, funnel: Funnel) -> str:
    """The page of a corpus: the lengths and the funnel as charts, and the report's tables."""
    return read_template("page.html.j2").render(
        funnel=funnel,
        lineage=lineage,
        identity=content_hash(lineage),
        bins=length_bins(funnel),
        bin_tokens=BIN_TOKENS,
        steps=steps(funnel),
        meaning=MEANING,
        sections=sections(funnel, is_whole=True),
        rules=_rules_text(lineage),
    )


def _rules_text(lineage: Lineage) -> str:
    return msgspec.json.format(msgspec.json.encode(lineage.rules), indent=2).decode()


@functools.cache
def read_template(name: str) -> Template:
    """The template of that file name in `training/corpus`: everything put in is escaped, and nothing may be missing.
    What all pages of traces share is imported from `parts.html.j2` of `arena.view`."""
    text = files("training.corpus").joinpath(name).read_text("utf-8")
    return page_templates().from_string(text)


_CARD = """
# Agent arena corpus

{rows:,} agentic shopping trajectories out of {funnel.traces:,}.
{trusted}
Identity `{identity}` (sha256 of `lineage.json`'s value); rows `{lineage.rows_sha256}`. Tokens are counted by
`{lineage.tokenizer_sha256}`; held-out problems are those of partition `{lineage.partition_sha256}`; code
`{lineage.code_commit}`. Every rejected trace is listed with its codes in `rejected.jsonl.zst`.

Rules:

```json
{rules}
```

"""
_USE = """## Use

A conversation is `prompt` and `completion`, OpenAI chat; arguments of calls and `tools` are JSON text: a table library
would fill them with the keys of other tools. `label` is false where the outcome was no success. TRL's `SFTTrainer` and
`KTOTrainer` take the rows as they are. `chat_template.jinja` is Qwen3's and marks what is to be learnt; messages with
weight 0, which neither model nor host made, are left out:

```python
from datasets import load_dataset
from trl import SFTConfig

rows = load_dataset(".", split="train")
told = SFTConfig(assistant_only_loss=True, chat_template_path="chat_template.jinja", max_length=None)
```

`KTOTrainer` learns results of tools too; `arena train kto` masks them. Problems of the evaluation sets are not in here;
keep it so when you mix in other data.
"""
_TRUSTED = "\n**Read from unsigned or unverified sources, because somebody said to trust them.**\n"


def render_card(lineage: Lineage, funnel: Funnel, rows: int) -> str:
    """The card of a data set, Markdown with front matter."""
    front = front_matter("Agent arena corpus", rows, [Split("train", "data/train.parquet", rows)])
    about = _CARD.format(
        rows=rows,
        funnel=funnel,
        lineage=lineage,
        identity=content_hash(lineage),
        trusted=_TRUSTED if lineage.is_trusted_unsigned else "",
        rules=_rules_text(lineage),
    )
    tables = []
    for one in sections(funnel):
        table = markdown_table(one.header, [[cell.replace("|", "\\|") for cell in row] for row in one.rows])
        tables.append(f"## {one.title}\n\n{table}\n\n{one.note}".rstrip() + "\n")
    return front + about + "\n".join([*tables, _USE])


RESULT_CHARS = 600
SHEET_COLUMNS = ("item", "who_decided", "note")
ANSWERS = ("model", "program", "cannot tell")  # what `who_decided` is to hold


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
    """The form of the answers for a table program; `who_decided` and `note` are to be filled in."""
    return "".join(f"{line}\n" for line in (",".join(SHEET_COLUMNS), *(f"{item.name},," for item in items)))


def sheet_html(items: Sequence[Item]) -> str:
    """The sheet for reading: one file, no script; answers go into the CSV, or onto paper."""
    return read_template("sheet.html.j2").render(items=items, answers=ANSWERS)


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
