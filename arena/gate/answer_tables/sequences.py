"""Ids spread over a container: a digit, a character code or a fragment an element, or numbers moved by a constant.

What a container's elements spell is searched like a literal. Whole numbers are also tried with every constant that the
file adds, subtracts or combines by exclusive or, and as running sums; texts count as the numbers that `int` reads in
them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from arena.gate.capabilities.folding import Folding
from arena.gate.tree import Tree

ELEMENTS_MIN = 6
_FRAGMENT_MAX = 100_000
_CONSTANTS_MAX = 16
_NUMBER_MAX = 1 << 62
_TEXT_MAX = 80  # characters of a text that is read as one number
_BASES = (0, 2, 8, 10, 16, 32, 36)  # 0: as its prefix says; 10 also reads the digits of other scripts
_BEYOND = {16: re.compile("[g-wyzG-WYZ]"), 32: re.compile("[w-zW-Z]"), 36: re.compile(r"[^\w\s+-]")}
_TEXTS, _NUMBERS = (str, bytes), (int, float, complex)
_DIGIT = re.compile(r"\d")
_NO_DIGITS = bytes(code for code in range(256) if not 48 <= code < 58)
_LETTERS_MAX = 16  # texts of so few different characters are numbers in some writing
_ROWS = (ast.List, ast.Tuple)
_MOVES = (ast.Add, ast.Sub, ast.BitXor)

Numbers = npt.NDArray[np.int64]


def spelled(tree: Tree) -> Iterator[tuple[bytes, int]]:
    """(text, line) of what the elements of each container spell."""
    folding = Folding()
    for items, line in _containers(tree):
        texts = [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, _TEXTS)]
        if len(texts) == len(items):
            folded = [folding.text(item) or "" for item in items]
            if sum(map(len, folded)) <= _FRAGMENT_MAX and any(text.isdigit() for text in folded):
                yield "".join(folded).encode("utf-8", "surrogatepass"), line
            continue
        numbers = [number for item in items if (number := folding.number(item)) is not None]
        if len(numbers) == len(items) and all(0 <= number < _FRAGMENT_MAX for number in numbers):
            yield "".join(map(str, numbers)).encode(), line
            yield _as_digits(numbers), line


class ContainerColumns(msgspec.Struct, frozen=True):
    """The whole numbers of all containers, one after the other."""

    numbers: Numbers
    groups: Numbers  # the container of each number
    lines: tuple[int, ...]  # the line of each container


def columns(tree: Tree) -> ContainerColumns:
    """The numbers of the containers that hold numbers long enough for ids."""
    numbers: list[int] = []
    groups: list[int] = []
    lines: list[int] = []
    for items, line in _containers(tree, 3):
        folding = Folding()
        values = [item.value if isinstance(item, ast.Constant) else folding.number(item) for item in items]
        rows = [[_whole(value) for value in values if isinstance(value, _NUMBERS)]]
        texts = [value for value in values if isinstance(value, _TEXTS) and 4 < len(value) < _TEXT_MAX]
        if len(texts) * 2 >= len(items):  # the numbers that the texts are in each base
            rows += _numbers_of(texts)
        for every in rows:
            row = [number for number in every if abs(number) < _NUMBER_MAX]
            if len(row) * 2 >= len(items) and max(map(abs, row), default=0) >= _FRAGMENT_MAX:
                numbers += row
                groups += [len(lines)] * len(row)
                lines.append(line)
    return ContainerColumns(np.array(numbers, dtype=np.int64), np.array(groups, dtype=np.int64), tuple(lines))


def moved(tree: Tree, table: ContainerColumns) -> Iterator[tuple[str, Numbers]]:
    """(how, numbers): all numbers after one step of arithmetic."""
    if not len(table.numbers):
        return
    with np.errstate(over="ignore"):
        sums = np.cumsum(table.numbers)
        starts = np.flatnonzero(np.diff(table.groups, prepend=-1))
        yield "running sums", sums - (sums[starts] - table.numbers[starts])[table.groups]
    yield "as they are", table.numbers
    folding = Folding()
    constants: dict[int, None] = {}  # on one side of a sum, difference or exclusive or
    for node in tree.of(ast.BinOp):
        if isinstance(node.op, _MOVES):
            for side in (node.left, node.right):
                number = folding.number(side)
                if number is not None and 9 < abs(number) < _NUMBER_MAX:
                    constants.setdefault(number)
    for constant in list(constants)[:_CONSTANTS_MAX]:
        yield f"plus {constant}", table.numbers + constant
        yield f"minus {constant}", table.numbers - constant
        yield f"xor {constant}", table.numbers ^ constant


def _whole(number: complex) -> int:
    """A number without its sign and point: the imaginary part of one that has nothing else, tenths as ones."""
    if isinstance(number, int):
        return int(number)
    part = number.imag or number.real if isinstance(number, complex) else number
    if not abs(part) < _NUMBER_MAX:
        return 0
    return int(part) if part == int(part) else int(repr(abs(part)).partition("e")[0].replace(".", ""))


def _numbers_of(texts: Sequence[str | bytes]) -> Iterator[list[int]]:
    """The numbers that the texts are in each base. A text is not tried that holds a letter beyond the base, or none of
    the digits that every number up to ten has."""
    written = [(text, text if isinstance(text, str) else text.decode("latin-1")) for text in texts]
    digits = [text for text, letters in written if _DIGIT.search(letters)]
    for base in _BASES:
        beyond = _BEYOND.get(base)
        tried = digits if beyond is None else [text for text, letters in written if not beyond.search(letters)]
        yield [number for text in tried if (number := _read(text, base)) is not None]


def _read(text: str | bytes, base: int) -> int | None:
    try:
        return int(text.replace(" ", "") if isinstance(text, str) else text, base)
    except ValueError:
        return None


def count_numbers(node: ast.AST) -> int:
    """How many elements of a container stand for numbers: integers, and texts of digits or of few letters.

    Beside those of a flat list, row or set only numbers of four characters count, as tables of small ones are common.
    """
    match node:
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            flat = [part for item in items for part in (item.elts if isinstance(item, _ROWS) else [])]
        case ast.Dict(values=items):
            flat, items = items, []
        case _:
            return 0
    values = [item.value for item in [*items, *flat] if isinstance(item, ast.Constant)]
    texts = [value for value in values if isinstance(value, str) and 3 < len(value) < _TEXT_MAX]
    few = len(set().union(*texts)) <= _LETTERS_MAX
    if not few:
        texts = [text for text in texts if _DIGIT.search(text) and _read(text, 10) is not None]
    long = sum(isinstance(part, ast.Constant) and type(part.value) is int and abs(part.value) > 999 for part in flat)
    return max(sum(isinstance(item, ast.Constant) and type(item.value) is int for item in items), long, len(set(texts)))


def separated(text: bytes) -> bytes:
    """The digits of a text that is little else than digits and separators, without those."""
    digits = text.translate(None, _NO_DIGITS)
    return digits if len(digits) >= 18 and len(digits) * 2 >= len(text) and len(digits) < len(text) else b""


def _containers(tree: Tree, minimum: int = ELEMENTS_MIN) -> Iterator[tuple[Sequence[ast.AST], int]]:
    """The elements of each container in the order of the source."""
    for node in tree.in_order(ast.List, ast.Tuple, ast.Set, ast.Dict):
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            if len(node.elts) >= minimum:
                yield node.elts, node.lineno
        elif isinstance(node, ast.Dict) and len(node.values) >= minimum:
            yield [key for key in node.keys if key is not None], node.lineno
            yield node.values, node.lineno


def _as_digits(numbers: Sequence[int]) -> bytes:
    """Character codes and moved digits as digits: the ten neighbouring values that occur most are 0 to 9, all else
    separates. Which of them is 0 is left open: the search tries every shift."""
    counts = np.bincount(np.array(numbers, dtype=np.int64))
    windows = np.convolve(counts, np.ones(10, dtype=np.int64))
    low = max(0, int(np.argmax(windows)) - 9)
    return bytes(48 + number - low if 0 <= number - low < 10 else 32 for number in numbers)
