"""What the literals of a file say: catalogue ids in plain, joined, shifted, packed or as numbers, and known texts.

An id counts as a whole run of digits, forwards or backwards, with its digits shifted by 0 to 9. With millions of ids
chance hits happen, so a table needs several distinct ids in *one* reading, and packed ids must follow each other
without a gap.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from arena.gate.knowledge import ID_DIGITS_MAX, ID_DIGITS_MIN, GateKnowledge, contains, text_grams
from arena.gate.rules import Finding, finding
from arena.policy import GateRules

PACKED_DIGITS_MAX = 20_000  # digits of long runs searched for packed ids
_CHARACTERS_MAX = 100_000
_REPEATED_MAX = 2_000
_NUMBER_BITS_MAX = 64
_ELEMENTS_MIN = 6  # of a container whose elements are read one after the other
_RUN = re.compile(rf"(?a:\d{{{ID_DIGITS_MIN},}})")
_SEPARATED = re.compile(r"[\d\W_]{18,}", re.ASCII)
_NOT_DIGITS = re.compile(r"\D+", re.ASCII)
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitXor: operator.xor,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}


class Literal(msgspec.Struct, frozen=True):
    """The text that one expression of constants builds, and its line."""

    text: str
    line: int
    is_docstring: bool = False


# -- folding
def fold(node: ast.AST) -> str | int | None:
    """The text or integer that an expression of constants builds (bytes as Latin-1); None for any other.

    Folds what hides a literal most cheaply: `+`, `*`, slices, f-strings of constants, `sep.join([...])`, `chr`, `str`,
    and arithmetic. Nothing that reads a variable is folded: that would be an interpreter.
    """
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=str() | int() as value):
            return value
        case ast.Constant(value=float() as value) if value.is_integer() and abs(value) < 2**63:
            return int(value)
        case ast.Constant(value=bytes() as data):
            return data.decode("latin-1")
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
        case ast.Call(func=ast.Attribute(attr="join", value=glue), args=[ast.List() | ast.Tuple() as items]):
            separator = fold(glue)
            return _joined(separator, items.elts) if isinstance(separator, str) else None
        case ast.Call(func=ast.Attribute(attr="decode" | "encode", value=text)):
            return fold(text)
        case ast.Call(func=ast.Name(id="str"), args=[argument]):
            told = fold(argument)
            return None if told is None else str(told)
        case ast.Call(func=ast.Name(id="chr"), args=[argument]):
            code = fold(argument)
            return chr(code) if isinstance(code, int) and 0 <= code < 0x110000 else None
    return None


def _operation(left: str | int | None, op: ast.operator, right: str | int | None) -> str | int | None:
    if isinstance(left, str) and isinstance(right, str) and isinstance(op, ast.Add):
        return left + right if len(left) + len(right) <= _CHARACTERS_MAX else None
    if isinstance(left, str) and isinstance(right, int) and isinstance(op, ast.Mult):
        return left * right if len(left) * right <= _REPEATED_MAX else None
    if isinstance(left, int) and isinstance(right, int) and type(op) in _ARITHMETIC:
        is_small = max(left.bit_length(), right.bit_length()) <= _NUMBER_BITS_MAX
        return _ARITHMETIC[type(op)](left, right) if is_small else None
    return None


def _joined(glue: str, items: Sequence[ast.expr]) -> str | None:
    parts = [fold(item) for item in items]
    texts = [part for part in parts if isinstance(part, str)]
    return glue.join(texts) if len(texts) == len(parts) else None


_BUILT = (ast.BinOp, ast.JoinedStr, ast.Subscript, ast.Call, ast.UnaryOp)


def collect_literals(module: ast.Module) -> list[Literal]:
    """The texts and numbers of a file, folded where that is cheap, and what the elements of its containers spell."""
    found: list[Literal] = []
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    docstrings = {
        node.body[0].value
        for node in ast.walk(module)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    inside: set[ast.AST] = set()  # parts of an expression that was folded whole
    for node in ast.walk(module):  # parents first
        if isinstance(node, ast.Constant | ast.List | ast.Tuple | ast.Set | ast.Dict):
            found += _spelled(node)
        if not isinstance(node, (ast.Constant, *_BUILT)):
            continue
        if node in inside:
            inside.update(ast.iter_child_nodes(node))
            if not isinstance(node, ast.Constant):
                continue
        value = fold(node)
        if isinstance(value, str) or (isinstance(value, int) and value.bit_length() <= _NUMBER_BITS_MAX):
            found.append(Literal(str(value), node.lineno, node in docstrings))
            inside.update(ast.iter_child_nodes(node))
    return found


def _spelled(node: ast.AST) -> Iterator[Literal]:
    """What the elements of a container spell one after the other, in texts, digits or character codes."""
    match node:
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            rows: list[Sequence[ast.expr | None]] = [items]
        case ast.Dict(keys=keys, values=items):
            rows = [keys, items]
        case _:
            return
    for row in rows:
        values = [fold(item) for item in row if item is not None]
        if len(values) < _ELEMENTS_MIN or None in values:
            continue
        yield Literal("".join(map(str, values)), node.lineno)
        if all(isinstance(value, int) and 32 <= value < 127 for value in values):
            yield Literal("".join(chr(value) for value in values if isinstance(value, int)), node.lineno)


# -- ids
def table_findings(
    module: ast.Module, literals: Sequence[Literal], rules: GateRules, knowledge: GateKnowledge
) -> list[Finding]:
    """Findings on known ids and texts in the literals and names of a file."""
    found: list[Finding] = []
    if len(knowledge.product_ids):
        names = [Literal(name, line) for name, line in names_of(module) if any(map(str.isdigit, name))]
        pieces = [*literals, *(Literal(one.text.replace("_", ""), one.line) for one in names)]
        pieces += [
            Literal(_NOT_DIGITS.sub("", one.text), one.line) for one in literals if _SEPARATED.fullmatch(one.text)
        ]
        found += _id_findings(pieces, rules, knowledge)
    if len(knowledge.text_grams):
        found += _text_findings(literals, rules, knowledge)
    return found


def _id_findings(pieces: Sequence[Literal], rules: GateRules, knowledge: GateKnowledge) -> list[Finding]:
    by_length: dict[int, dict[str, int]] = {}
    long_runs: list[tuple[str, int]] = []
    for piece in pieces:
        for run in _RUN.findall(piece.text):
            if len(run) <= ID_DIGITS_MAX:
                by_length.setdefault(len(run), {}).setdefault(run, piece.line)
            if len(run) > min(knowledge.id_lengths):
                long_runs.append((run[:PACKED_DIGITS_MAX], piece.line))
    for direction in (1, -1):
        for shift in range(10):
            hits: dict[int, int] = {}
            for length in knowledge.id_lengths:
                lines = by_length.get(length, {})
                hits |= dict(zip(_ids(list(lines), direction, shift, knowledge), lines.values(), strict=True))
            hits.pop(0, None)
            disguise = ("" if direction == 1 else " reversed") + (f" shifted by {shift}" if shift else "")
            if len(hits) >= rules.table_ids:
                told = f"{len(hits)} hard-coded product ids, e.g. {min(hits)}"
                return [finding("id-table", min(hits.values()), told + disguise)]
            budget = PACKED_DIGITS_MAX
            for run, line in long_runs:
                chain = _chain(run[:budget][::direction], shift, knowledge) if budget > 0 else ()
                budget -= len(run)
                if len(chain) >= rules.table_ids:
                    told = f"{len(chain)} hard-coded product ids without a gap, from {chain[0]}"
                    return [finding("id-table", line, told + disguise)]
    return []


def _ids(digits: Sequence[str], direction: int, shift: int, knowledge: GateKnowledge) -> list[int]:
    """The catalogue's id that each run of digits of one length is under a disguise; 0 for none."""
    if not digits:
        return []
    matrix = np.frombuffer("".join(digits).encode(), dtype=np.uint8).reshape(len(digits), -1)[:, ::direction]
    moved = (matrix.astype(np.uint64) - np.uint64(48) + np.uint64(shift)) % np.uint64(10)
    values = moved @ np.array([10**place for place in range(moved.shape[1] - 1, -1, -1)], dtype=np.uint64)
    is_id = contains(knowledge.product_ids, values) & (moved[:, 0] != 0)
    return [int(value) for value in np.where(is_id, values, 0)]


def _chain(run: str, shift: int, knowledge: GateKnowledge) -> tuple[int, ...]:
    """The longest row of distinct ids that follow each other without a gap inside one run of digits."""
    hits: list[tuple[int, int, int]] = []  # (start, length, id)
    for length in knowledge.id_lengths:
        windows = [run[start : start + length] for start in range(len(run) - length + 1)]
        ids = _ids(windows, 1, shift, knowledge)
        hits += [(start, length, value) for start, value in enumerate(ids) if value]
    chains: dict[int, tuple[int, ...]] = {}  # by the position where they end
    for start, length, value in sorted(hits):
        chain = chains.get(start, ())
        if value not in chain and len(chain) >= len(chains.get(start + length, ())):
            chains[start + length] = (*chain, value)
    return max(chains.values(), key=len, default=())


def _text_findings(literals: Sequence[Literal], rules: GateRules, knowledge: GateKnowledge) -> list[Finding]:
    for literal in literals:
        for text in (literal.text, literal.text[::-1]):
            hits = int(contains(knowledge.text_grams, text_grams(text, rules.ngram_words)).sum())
            if hits:
                return [finding("benchmark-text", literal.line, f"{hits} runs of {rules.ngram_words} words")]
    return []


# -- names
def names_of(module: ast.AST) -> Iterator[tuple[str, int]]:
    """(name, line) wherever syntax takes a name: also arguments, keywords, imports, patterns, `except`, `global`."""
    for node in ast.walk(module):
        line = getattr(node, "lineno", 0)
        for field in ("id", "attr", "arg", "name", "asname", "rest"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                yield name, line
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield from ((name, line) for name in node.names)
        elif isinstance(node, ast.MatchClass):
            yield from ((name, line) for name in node.kwd_attrs)
