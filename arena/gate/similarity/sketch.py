"""Sketches: what a program does as a set of hashed phrases, whatever its names, texts, order and dead code are.

A phrase is a run of syntax inside one statement, led by the end of the statement around it; so a statement put between
others, a new parameter or another order of definitions changes only the phrases it touches. Own names, values and
operators are erased; names of builtins and of attributes that the file doesn't define itself stay. `code_sha256` also
keeps the values: two files with the same one are the same program but for names, order, spacing, case and dead code.
Texts have phrases of their own, of words: a prompt can be the whole of an agent, whatever loop it stands in.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from arena.gate.normal_form.program import normal_form
from arena.gate.normal_form.statements import Statements
from arena.gate.similarity.liveness import LiveCode, child_blocks, headers
from arena.gate.tree import Tree, children

Phrases = npt.NDArray[np.uint64]

PHRASE_TOKENS = 8
CONTEXT_TOKENS = 4
_TEXT_WORDS_MIN = 4  # of a literal whose words count: shorter ones are keys and labels
_UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff"  # Thai, Lao, Japanese, Chinese: a word is one character
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_ASCII = bytes(code if chr(code).isalnum() else 32 for code in range(128)).lower() + bytes(128)
_BASE = 0xD6E8FEB86659FD93
_BUILTINS = frozenset(dir(builtins))
_OPERATIONS = (ast.BinOp, ast.BoolOp, ast.UnaryOp)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Sketch(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """`phrases` are those of the code, `texts` those of its texts; both are sorted and distinct."""

    code_sha256: str
    phrases: Phrases
    texts: Phrases


def make_sketch(source: str) -> Sketch:
    """The sketch of a source. Raises ValueError when it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a doubtful escape sequence is the miner's business
            module = ast.parse(source)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"not a parsable source: {error}") from error
    return sketch_of(Tree(module))


def sketch_of(tree: Tree) -> Sketch:
    """The sketch of a tree, whose module is changed in place. Raises ValueError for one too deep in normal form."""
    words = text_phrases(node.value for node in tree.of(ast.Constant))
    try:
        reader = _Reader(normal_form(tree))
        parts: list[str] = []
        kinds: list[int] = []
        statements: list[int] = []  # the statement of each token
        number = 0
        for statement in reader.live.module():
            values: list[str] = []
            for tokens, texts in reader.statements(statement, (), {}):
                number += 1
                kinds += map(_token_hash, tokens)
                statements += [number] * len(tokens)
                values += texts
            parts.append(hashlib.sha256("\0".join(values).encode("utf-8", "surrogatepass")).hexdigest())
    except (RecursionError, MemoryError) as error:
        raise ValueError(f"not a parsable source: {error}") from error
    code = hashlib.sha256("".join(sorted(parts)).encode()).hexdigest()
    return Sketch(code_sha256=code, phrases=_phrases(kinds, statements), texts=words)


class _Reader:
    """Turns the live statements of one tree into tokens."""

    def __init__(self, program: Statements) -> None:
        self._names: set[str] = set()
        self._attributes: set[str] = set()  # attributes and methods of its own: its own to rename
        parameters: set[str] = set()
        assigned: set[str] = set()
        for parts in program.parts():
            self._names.update(parts.own)
            self._attributes.update(parts.written)
            parameters.update(parts.arguments)
            assigned.update(parts.assigned)
        self._names |= parameters
        for node in program.listed:
            if isinstance(node, ast.ClassDef):
                self._attributes.update(inner.name for inner in node.body if isinstance(inner, _DEFINITIONS))
        self.live = LiveCode(program.module, program.reads, parameters=parameters, assigned=assigned)

    def statements(
        self, statement: ast.stmt, around: tuple[str, ...], order: dict[str, str]
    ) -> Iterator[tuple[tuple[str, ...], Iterable[str]]]:
        """(tokens with their context, tokens with values) of a statement and of all live ones within it.

        `order` numbers own names by their first use in a whole definition: which variable is meant is part of the code.
        """
        own = [type(statement).__name__.replace("AugAssign", "Assign").replace("AnnAssign", "Assign")]
        values: list[str] = list(own)
        for part in headers(statement):
            self._tell(part, order, own, values)
        yield (*around, *own), values
        is_definition = isinstance(statement, _DEFINITIONS)
        context = () if is_definition else (*around, *own)[-CONTEXT_TOKENS:]
        for block in child_blocks(statement):
            for inner in self.live.block(block):
                yield from self.statements(inner, context, order)

    def _tell(self, node: ast.AST, order: dict[str, str], tokens: list[str], values: list[str]) -> None:
        """Add the tokens of a part and of all in it, and the same with values."""
        if isinstance(node, ast.Name):
            name = node.id
            if name in self._names or name not in _BUILTINS:
                tokens.append("Name")
                values.append(order.get(name) or order.setdefault(name, f"name {len(order)}"))
            else:
                tokens.append(f"builtin {name}")
                values.append(tokens[-1])
            return
        kind = value = node.__class__.__name__
        if isinstance(node, ast.Constant):
            held = node.value  # spacing and case of texts can be changed for nothing
            plain = " ".join(held.lower().split()) if isinstance(held, str) else repr(held)
            tokens.append(f"{kind} {held.__class__.__name__}")
            values.append(f"{kind} {plain}")
            return
        if isinstance(node, ast.Attribute):
            kind = value = "Attribute" if node.attr in self._attributes else f"Attribute {node.attr}"
        elif isinstance(node, ast.keyword):
            if node.arg is not None:
                is_own = node.arg in self._names
                value = order.setdefault(node.arg, f"name {len(order)}") if is_own else f"{kind} {node.arg}"
        elif isinstance(node, ast.Compare):
            value = kind + "".join(type(op).__name__ for op in node.ops)
        elif isinstance(node, _OPERATIONS):
            value = kind + type(node.op).__name__
        elif isinstance(node, ast.arguments):
            return
        tokens.append(kind)
        values.append(value)
        for child in children(node):
            self._tell(child, order, tokens, values)


def _phrases(kinds: Sequence[int], statements: Sequence[int]) -> Phrases:
    """The hashes of all runs of tokens that lie within one statement, sorted and distinct."""
    count = len(kinds) - PHRASE_TOKENS + 1
    if count < 1:
        return np.zeros(0, dtype=np.uint64)
    tokens, numbers = np.array(kinds, dtype=np.uint64), np.array(statements, dtype=np.int64)
    hashes = np.zeros(count, dtype=np.uint64)
    for offset in range(PHRASE_TOKENS):
        hashes = hashes * np.uint64(_BASE) + tokens[offset : offset + count]
    return np.unique(hashes[numbers[:count] == numbers[PHRASE_TOKENS - 1 :]])


def text_phrases(constants: Iterable[object]) -> Phrases:
    """The phrases of all texts as one, so that it makes no difference into which literals a text is cut."""
    words: list[int] = []
    for held in constants:
        text = held.decode("utf-8", "replace") if isinstance(held, bytes) else held
        if isinstance(text, str):
            is_plain = text.isascii()  # split in half the time
            found = text.encode().translate(_ASCII).decode().split() if is_plain else _WORD.findall(text.casefold())
            words += map(_token_hash, found) if len(found) >= _TEXT_WORDS_MIN else ()
    return _phrases(words, [0] * len(words))


@functools.lru_cache(maxsize=65_536)
def _token_hash(token: str) -> int:
    return int.from_bytes(hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
