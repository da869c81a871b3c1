"""What the gate knows, and what of it stands in the literals of a file.

It knows catalogue ids, n-grams of known problem texts, phrases of published agents and published texts. The same lists
give the same `inputs_sha256` on every machine, and 2.7 million ids take 22 MB and are found by bisection. Give a gate
whose reports miners see only texts that are public: a finding tells its author that the text is known, so sealed texts
would turn the gate into an oracle.

An id counts as a whole run of digits: plain, joined, packed or as numbers. With millions of ids chance hits happen, so
a table needs several distinct ids, and packed ids must follow each other without a gap.
"""

from __future__ import annotations

import ast
import fcntl
import functools
import hashlib
import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, BinaryIO
from zlib import crc32

import msgspec

from arena.gate.rules import Finding, GateRules, finding
from arena.gate.scopes import Tree

if TYPE_CHECKING:  # it takes NumPy, which the process that reads a source does without
    from arena.gate.likeness import Sketch

ID_DIGITS_MIN, ID_DIGITS_MAX = 6, 18
_SEARCHABLE = re.compile(rf"[1-9][0-9]{{{ID_DIGITS_MIN - 1},{ID_DIGITS_MAX - 1}}}")
_LETTERS = bytes(byte if chr(byte) in "abcdefghijklmnopqrstuvwxyz" else ord(" ") for byte in range(256))


class GateKnowledge(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Sorted, distinct 64-bit values: ids, runs of words of known texts, and what of programs and texts is public."""

    product_ids: memoryview
    id_lengths: tuple[int, ...]
    text_grams: frozenset[int]
    text_sums: frozenset[int]  # sums of these runs, forwards and backwards, which take a quarter of a hash's time
    baseline: memoryview
    baseline_texts: memoryview
    inputs_sha256: str

    @functools.cached_property
    def file(self) -> BinaryIO:
        """The same in memory, for a process to map: nobody can change it."""
        file = os.fdopen(os.memfd_create("gate-knowledge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b")
        file.write(msgspec.msgpack.encode(self))
        file.flush()
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        return file


def make_knowledge(
    product_ids: Iterable[str],
    texts: Iterable[str],
    published_agents: Iterable[str],
    rules: GateRules,
    *,
    published_texts: Iterable[str] = (),
    published_sketches: Iterable[Sketch] = (),
) -> GateKnowledge:
    """Knowledge from catalogue ids, public problem texts, and what belongs to nobody: the sources of published agents,
    other texts, and what the operator publishes.

    An id is searchable when it has 6 to 18 digits and no leading zero. Raises ValueError for a published agent that
    does not parse.
    """
    import numpy as np

    from arena.gate.likeness import distinct, joined, make_sketch, plain_array, text_phrases

    searchable = (product_id for product_id in product_ids if _SEARCHABLE.fullmatch(product_id))
    ids = distinct(np.fromiter(map(int, searchable), dtype=np.uint64))
    known = {run for text in texts for run in _runs(text, rules.ngram_words)}
    grams = frozenset(map(_hash, known))
    sketches = [*map(make_sketch, published_agents), *published_sketches]
    baseline = joined([one.phrases for one in sketches])
    baseline_texts = joined([*(one.texts for one in sketches), *(text_phrases([text]) for text in published_texts)])
    digest = hashlib.sha256(b"agent-arena/gate-inputs/1")
    for values in (ids, np.array(sorted(grams), dtype=np.uint64), baseline, baseline_texts):
        digest.update(len(values).to_bytes(8, "little"))
        digest.update(plain_array(values))
    # ids are sorted, so those of one length are one slice
    bounds = np.array([10 ** (length - 1) for length in range(ID_DIGITS_MIN, ID_DIGITS_MAX + 2)], dtype=np.uint64)
    counts = np.diff(np.searchsorted(ids, bounds))
    return GateKnowledge(
        product_ids=ids.data,
        id_lengths=tuple(ID_DIGITS_MIN + index for index, count in enumerate(counts) if count),
        text_grams=grams,
        text_sums=frozenset(crc32(run[::step]) for run in known for step in (1, -1)),
        baseline=baseline.data,
        baseline_texts=baseline_texts.data,
        inputs_sha256=digest.hexdigest(),
    )


def _runs(text: str, length: int) -> Iterable[bytes]:
    """All runs of so many consecutive words of a text. Only ASCII letters count, whatever their case."""
    if len(text) < 2 * length - 1:
        return ()
    words = text.lower().encode("utf-8", "surrogatepass").translate(_LETTERS).split()
    return map(b" ".join, zip(*(words[start:] for start in range(length)), strict=False))


def _hash(run: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(run, digest_size=8).digest(), "big")


PACKED_DIGITS_MAX = 20_000  # digits of long runs searched for packed ids
_CHARACTERS_MAX = 100_000
_REPEATED_MAX = 2_000
_NUMBER_BITS_MAX = 64
_RUN = re.compile(rf"(?a:\d{{{ID_DIGITS_MIN},}})")
_SEPARATED = re.compile(r"[\d\W_]{18,}", re.ASCII)
_NOT_DIGITS = re.compile(r"\D+", re.ASCII)


class Literal(msgspec.Struct, frozen=True):
    """The text that one expression of constants builds, and its line."""

    text: str
    line: int
    is_docstring: bool = False


# -- folding
def fold(node: ast.AST) -> str | int | None:
    """The text or integer that an expression of constants builds (bytes as Latin-1); None for any other.

    Folds what hides a literal most cheaply: `+`, `*`, slices, f-strings of constants, `sep.join([...])`, `chr`, `str`.
    Nothing that reads a variable is folded: that would be an interpreter.
    """
    match node:
        case ast.Constant(value=value):
            if isinstance(value, float):
                return int(value) if value.is_integer() and abs(value) < 2**63 else None
            if isinstance(value, bytes):
                return value.decode("latin-1")
            return value if isinstance(value, (str, int)) and not isinstance(value, bool) else None
        case ast.Call(func=ast.Attribute(attr="join", value=glue), args=[ast.List() | ast.Tuple() as items]):
            separator = fold(glue)
            return _joined(separator, items.elts) if isinstance(separator, str) else None
        case ast.Call(func=ast.Attribute(attr="decode" | "encode", value=text)):
            return fold(text)
        case ast.Call(func=ast.Name(id="str" | "chr" as name), args=[argument]):
            told = fold(argument)
            if name == "str":
                return None if told is None else str(told)
            return chr(told) if isinstance(told, int) and 0 <= told < 0x110000 else None
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = fold(operand)
            return -number if isinstance(number, int) else None
        case ast.BinOp(left=left, op=op, right=right):
            return _operation(fold(left), op, fold(right))
        case ast.JoinedStr(values=values):
            return _joined("", [part.value if isinstance(part, ast.FormattedValue) else part for part in values])
        case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper, step=step)):
            whole = fold(value)
            bounds = [None if part is None else fold(part) for part in (lower, upper, step)]
            is_open = [part is None for part in (lower, upper, step)] == [bound is None for bound in bounds]
            numbers = [bound for bound in bounds if not isinstance(bound, str)]
            if isinstance(whole, str) and is_open and bounds[2] != 0 and len(numbers) == 3:
                return whole[numbers[0] : numbers[1] : numbers[2]]
    return None


def _operation(left: str | int | None, op: ast.operator, right: str | int | None) -> str | int | None:
    if isinstance(left, str) and isinstance(right, str) and isinstance(op, ast.Add):
        return left + right if len(left) + len(right) <= _CHARACTERS_MAX else None
    if isinstance(left, str) and isinstance(right, int) and isinstance(op, ast.Mult):
        if not left or right <= 0:
            return ""  # how large the number is does not matter
        return left * right if len(left) * right <= _REPEATED_MAX else None
    return None


def _joined(glue: str, items: Sequence[ast.expr]) -> str | None:
    parts = [fold(item) for item in items]
    texts = [part for part in parts if isinstance(part, str)]
    return glue.join(texts) if len(texts) == len(parts) else None


_BUILT = frozenset((ast.Constant, ast.BinOp, ast.JoinedStr, ast.Subscript, ast.Call, ast.UnaryOp))
_DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


def collect_literals(tree: Tree) -> list[Literal]:
    """The texts and numbers of a file, folded where that is cheap."""
    found: list[Literal] = []
    docstrings: set[ast.AST] = set()
    inside: set[ast.AST] = set()  # parts of an expression that was folded whole
    for node in tree.nodes:  # parents first
        if isinstance(node, _DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr):
            docstrings.add(node.body[0].value)
        if type(node) not in _BUILT:
            continue
        if node in inside and not isinstance(node, ast.Constant):
            inside.update(tree.children[node])
            continue
        value = fold(node)
        if isinstance(value, str) or (isinstance(value, int) and value.bit_length() <= _NUMBER_BITS_MAX):
            found.append(Literal(str(value), getattr(node, "lineno", 0), node in docstrings))
            inside.update(tree.children[node])
    return found


# -- ids
def table_findings(
    tree: Tree, literals: Sequence[Literal], rules: GateRules, knowledge: GateKnowledge
) -> list[Finding]:
    """Findings on known ids and texts in the literals and names of a file."""
    found: list[Finding] = []
    if len(knowledge.product_ids):
        names = ((name, places[0]) for name, places in tree.names.items() if any(map(str.isdigit, name)))
        pieces = [*literals, *(Literal(name.replace("_", ""), getattr(at, "lineno", 0)) for name, at in names)]
        pieces += [
            Literal(_NOT_DIGITS.sub("", one.text), one.line) for one in literals if _SEPARATED.fullmatch(one.text)
        ]
        found += _id_findings(pieces, rules, knowledge)
    if len(knowledge.text_grams):
        found += _text_findings(literals, rules, knowledge)
    return found


def _id_findings(pieces: Sequence[Literal], rules: GateRules, knowledge: GateKnowledge) -> list[Finding]:
    lines: dict[str, int] = {}  # of each run of digits
    for piece in pieces:
        for run in _RUN.findall(piece.text):
            lines.setdefault(run, piece.line)
    hits = {value: line for value, line in zip(_ids(lines, knowledge), lines.values(), strict=True) if value}
    if len(hits) >= rules.table_ids:
        return [finding("id-table", min(hits.values()), f"{len(hits)} hard-coded product ids, e.g. {min(hits)}")]
    budget = PACKED_DIGITS_MAX
    for run, line in lines.items():
        chain = _chain(run[:budget], knowledge) if len(run) > min(knowledge.id_lengths) and budget > 0 else ()
        budget -= len(run)
        if len(chain) >= rules.table_ids:
            return [finding("id-table", line, f"{len(chain)} hard-coded product ids without a gap, from {chain[0]}")]
    return []


def _ids(digits: Iterable[str], knowledge: GateKnowledge) -> list[int]:
    """The catalogue's id that each run of digits is; 0 for none."""
    known = knowledge.product_ids.cast("B").cast("Q")
    numbers = [int(run) if len(run) <= ID_DIGITS_MAX and run[0] != "0" else 0 for run in digits]
    places = (bisect_left(known, number) for number in numbers)
    return [one if at < len(known) and known[at] == one else 0 for one, at in zip(numbers, places, strict=True)]


def _chain(run: str, knowledge: GateKnowledge) -> tuple[int, ...]:
    """The longest row of distinct ids that follow each other without a gap inside one run of digits."""
    hits: list[tuple[int, int, int]] = []  # (start, length, id)
    for length in knowledge.id_lengths:
        windows = [run[start : start + length] for start in range(len(run) - length + 1)]
        hits += [(start, length, value) for start, value in enumerate(_ids(windows, knowledge)) if value]
    chains: dict[int, tuple[int, ...]] = {}  # by the position where they end
    for start, length, value in sorted(hits):
        chain = chains.get(start, ())
        if value not in chain and len(chain) >= len(chains.get(start + length, ())):
            chains[start + length] = (*chain, value)
    return max(chains.values(), key=len, default=())


def _text_findings(literals: Sequence[Literal], rules: GateRules, knowledge: GateKnowledge) -> list[Finding]:
    length = rules.ngram_words
    for one in literals:
        # `\u0130` alone becomes two characters in lower case, so that its text has other words backwards
        if "\u0130" not in one.text and knowledge.text_sums.isdisjoint(map(crc32, _runs(one.text, length))):
            continue
        for text in (one.text, one.text[::-1]):
            hits = sum(_hash(run) in knowledge.text_grams for run in _runs(text, length))
            if hits:
                return [finding("benchmark-text", one.line, f"{hits} runs of {length} words")]
    return []
