"""Answer tables and benchmark texts in literals, in plain and in disguise.

An id counts as a whole run of digits, forwards or backwards, with its digits shifted by 0 to 9, in every reading of the
literals; or as a window of a longer run. With millions of ids chance hits happen, so a table needs several distinct ids
in *one* reading, and packed ids must follow each other without a gap (`arena/gate/README.md`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from arena.gate.answer_tables.grams import text_grams
from arena.gate.answer_tables.literals import Literal, Pool, collect_names, decoded_pools, make_pool
from arena.gate.answer_tables.sequences import columns, moved, separated, spelled
from arena.gate.knowledge import ID_DIGITS_MIN, GateKnowledge, contains
from arena.gate.report import Finding, finding
from arena.gate.tree import Tree
from arena.policy import GateRules

PACKED_DIGITS_MAX = 20_000  # digits of long runs searched for packed ids
_COMMENT = re.compile(r"#[^\n]*\d{6}[^\n]*")
_RUN = re.compile(rb"[0-9]{%d,}" % ID_DIGITS_MIN)
_AS_ZEROS, _ZEROS = bytes.maketrans(b"123456789", b"000000000"), b"0" * ID_DIGITS_MIN

Digits = npt.NDArray[np.uint64]


class _Reading(msgspec.Struct, frozen=True):
    """Ids met under one disguise, as (id, line); `packed` is the longest chain of ids without a gap."""

    view: str
    hits: frozenset[tuple[int, int]] = frozenset()
    packed: tuple[int, ...] = ()
    packed_line: int = 0

    @property
    def ids(self) -> set[int]:
        return {value for value, _ in self.hits}


def table_findings(
    tree: Tree, text: str, literals: Sequence[Literal], rules: GateRules, knowledge: GateKnowledge
) -> list[Finding]:
    """Findings on known ids and texts in the literals, names and containers of a file and in its comments."""
    plain = make_pool("plain", ((literal.text, literal.line) for literal in literals))
    pools = [plain, *decoded_pools(plain)]
    found: list[Finding] = []
    if len(knowledge.product_ids):
        names = list(collect_names(tree))
        digits, offset = [], 0  # of literals that are digits and separators
        for piece in plain.data.split(b"\n"):
            if joined := separated(piece):
                digits.append((joined, plain.line_at(offset)))
            offset += len(piece) + 1
        searched = [
            *pools,
            make_pool("names", [*names, *((name.replace(b"_", b""), line) for name, line in names)]),
            make_pool("spelled", spelled(tree)),
            make_pool("without separators", digits),
        ]
        readings = [reading for pool in searched for reading in _readings(pool, knowledge)]
        found += _id_findings(readings, rules)
        found += _moved_findings(tree, rules, knowledge)
        found += _comment_findings(text, rules, knowledge)
        long_digits = sum(len(run) for _, run in _long_runs(plain, knowledge))
        if long_digits > PACKED_DIGITS_MAX:
            found.append(finding("unsearched", 0, f"{long_digits} digits in long runs, {PACKED_DIGITS_MAX} searched"))
    if len(knowledge.text_grams):
        found += _text_findings(pools, rules, knowledge)
    return found


# -- ids
def _moved_findings(tree: Tree, rules: GateRules, knowledge: GateKnowledge) -> list[Finding]:
    """Containers whose numbers are ids after one step of arithmetic: at least half of them, as chance hits some."""
    table = columns(tree)
    for how, numbers in moved(tree, table):
        where = knowledge.holds_ids(np.maximum(numbers, 0).astype(np.uint64))
        hits = np.bincount(table.groups[where], minlength=len(table.lines))
        sizes = np.bincount(table.groups, minlength=len(table.lines))
        for group in np.flatnonzero((hits >= rules.table_ids) & (hits * 2 >= sizes)):
            distinct = len(np.unique(numbers[where & (table.groups == group)]))
            if distinct >= rules.table_ids:
                told = f"{distinct} hard-coded product ids" + ("" if how == "as they are" else f" ({how})")
                return [finding("id-table", table.lines[group], told)]
    return []


def _comment_findings(text: str, rules: GateRules, knowledge: GateKnowledge) -> list[Finding]:
    """Ids in comments: a program can't read them, but somebody wrote them down."""
    comments = [(match[0].encode("utf-8", "surrogatepass"), match.start()) for match in _COMMENT.finditer(text)]
    pool = make_pool("comments", comments)
    ids = {hit for reading in _readings(pool, knowledge) if reading.view == "comments" for hit in reading.hits}
    if len({value for value, _ in ids}) < rules.table_ids:
        return []
    line = text.count("\n", 0, min(start for _, start in ids)) + 1
    return [finding("id-hits", line, f"{len(ids)} product ids in comments")]


def _id_findings(readings: list[_Reading], rules: GateRules) -> list[Finding]:
    for reading in readings:
        if len(reading.ids) >= rules.table_ids:
            line = min(line for _, line in reading.hits)
            told = f"{len(reading.ids)} hard-coded product ids, e.g. {min(reading.ids)}"
            return [finding("id-table", line, told + ("" if reading.view == "plain" else f" ({reading.view})"))]
        if len(reading.packed) >= rules.table_ids:
            detail = (
                f"{len(reading.packed)} hard-coded product ids without a gap ({reading.view}), from {reading.packed[0]}"
            )
            return [finding("id-table", reading.packed_line, detail)]
    hits = {hit for reading in readings for hit in reading.hits}
    if len({value for value, _ in hits}) >= rules.table_ids:
        views = sorted({reading.view for reading in readings if reading.hits})
        return [finding("id-hits", min(line for _, line in hits), f"{len(hits)} product ids ({', '.join(views[:4])})")]
    return []


def _readings(pool: Pool, knowledge: GateKnowledge) -> Iterator[_Reading]:
    """Each disguise of the digit runs of a pool: two directions, ten shifts."""
    offsets: dict[int, list[int]] = {length: [] for length in knowledge.id_lengths}
    for start, end in _runs(pool.data):
        if end - start in offsets:
            offsets[end - start].append(start)
    data = np.frombuffer(pool.data, dtype=np.uint8)
    by_length = [  # runs as a matrix for each length an id can have, with the lines they stand in
        (
            data[np.array(places)[:, None] + np.arange(length)].astype(np.uint64) - np.uint64(ord("0")),
            [pool.line_at(place) for place in places],
        )
        for length, places in offsets.items()
        if places
    ]
    long_runs = _long_runs(pool, knowledge)
    if not by_length and not long_runs:
        return
    for direction in (1, -1):
        for shift in range(10):
            hits: set[tuple[int, int]] = set()
            for digits, lines in by_length:
                values = _values(digits[:, ::direction], shift)
                where = knowledge.holds_ids(values) & (_first_digit(digits[:, ::direction], shift) != 0)
                hits.update((int(values[index]), lines[index]) for index in np.flatnonzero(where))
            chain, line = _longest_chain(long_runs, direction, shift, knowledge)
            if hits or chain:
                view = [pool.name] if pool.name != "plain" or (direction == 1 and shift == 0) else []
                view += ["reversed"] if direction == -1 else []
                view += [f"shifted by {shift}"] if shift else []
                yield _Reading(" and ".join(view), frozenset(hits), chain, line)


def _long_runs(pool: Pool, knowledge: GateKnowledge) -> list[tuple[int, Digits]]:
    """(line, digits) of the runs longer than any id, up to the cap."""
    longest = max(knowledge.id_lengths, default=0)
    data, zero = np.frombuffer(pool.data, dtype=np.uint8), np.uint64(ord("0"))
    runs = [(start, end) for start, end in _runs(pool.data) if end - start > longest]
    return [(pool.line_at(start), data[start:end].astype(np.uint64) - zero) for start, end in runs]


def _runs(data: bytes) -> list[tuple[int, int]]:
    """Where the runs of digits that could hold an id begin and end. Texts hardly have any: that is asked first."""
    return [run.span() for run in _RUN.finditer(data)] if _ZEROS in data.translate(_AS_ZEROS) else []


def _longest_chain(
    runs: list[tuple[int, Digits]], direction: int, shift: int, knowledge: GateKnowledge
) -> tuple[tuple[int, ...], int]:
    """The longest row of ids that follow each other without a gap inside one run, and its line."""
    best: tuple[int, ...] = ()
    best_line, budget = 0, PACKED_DIGITS_MAX
    for line, digits in runs:
        searched = digits[:budget][::direction]
        budget -= len(searched)
        chain = _chain(searched, shift, knowledge)
        if len(chain) > len(best):
            best, best_line = chain, line
        if budget <= 0:
            break
    return best, best_line


def _chain(digits: Digits, shift: int, knowledge: GateKnowledge) -> tuple[int, ...]:
    chains: dict[int, tuple[int, ...]] = {}  # chains by the position where they end
    hits: list[tuple[int, int, int]] = []  # (start, length, id)
    for length in knowledge.id_lengths:
        if length <= len(digits):
            windows = np.lib.stride_tricks.sliding_window_view(digits, length)
            values = _values(windows, shift)
            where = knowledge.holds_ids(values) & (_first_digit(windows, shift) != 0)
            hits += [(int(start), length, int(values[start])) for start in np.flatnonzero(where)]
    for start, length, value in sorted(hits):
        chain = chains.get(start, ())
        if value not in chain and len(chain) >= len(chains.get(start + length, ())):
            chains[start + length] = (*chain, value)
    return max(chains.values(), key=len, default=())


def _values(digits: Digits, shift: int) -> Digits:
    powers = np.array([10**exponent for exponent in range(digits.shape[1] - 1, -1, -1)], dtype=np.uint64)
    return np.asarray(((digits + np.uint64(shift)) % np.uint64(10)) @ powers)


def _first_digit(digits: Digits, shift: int) -> Digits:
    return (digits[:, 0] + np.uint64(shift)) % np.uint64(10)


# -- texts
def _text_findings(pools: list[Pool], rules: GateRules, knowledge: GateKnowledge) -> list[Finding]:
    for pool in pools:
        for name, data in ((pool.name, pool.data), (f"{pool.name}, reversed", pool.data[::-1])):
            grams, offsets = text_grams(data, rules.ngram_words)
            hits = offsets[contains(knowledge.text_grams, grams)]
            if len(hits):
                last = len(data) - 1
                places = [int(hit) if data is pool.data else last - int(hit) for hit in hits]
                line = min(pool.line_at(place) for place in places)
                return [finding("benchmark-text", line, f"{len(hits)} runs of {rules.ngram_words} words, {name}")]
    return []
