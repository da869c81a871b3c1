"""Every literal of a file as bytes with its line, what base64, base32, base85 and hexadecimal text in them decodes to,
and the findings that need nothing but the literal itself."""

from __future__ import annotations

import ast
import base64
import binascii
import bisect
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from arena.gate.answer_tables.sequences import count_numbers
from arena.gate.capabilities.folding import BUILT, Folding
from arena.gate.report import Finding, finding
from arena.gate.tree import Tree, children
from arena.policy import GateRules

_WINDOW_STEP = 20
_NAMES = ("id", "attr", "arg", "name", "asname", "rest")  # fields that hold a name
_NAME_CHARS_MIN = 6
_SIX_DIGITS = re.compile(r"\d{6}|(\d_?){6}")
_ADDRESS = re.compile(rb"\W{0,3}https?://")
_ADDRESS_CHARS_MAX = 400
_KINDS = bytes(
    32 if code > 127 or not chr(code).isalnum() else 48 if code < 58 else 65 if code < 91 else 97 for code in range(256)
)
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")  # no text has them; the last are C1 in UTF-8
_NO_CONTROLS = bytes(code for code in range(256) if (0x1F < code != 0x7F and code != 0xC2) or 0x08 < code < 0x0E)
_CONTROLS_MIN = 16  # ten packed ids have more; a character class or a table of escapes has fewer
_STR_BITS_MAX = 12_000  # an integer of more bits is reported, not printed: Python refuses above 4,300 digits
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{8,}={0,2}")
_BASE32 = re.compile(rb"[A-Za-z2-7]{16,}={0,6}")
_HEX = re.compile(rb"(?:[0-9A-Fa-f]{2}){6,}")
_BASE85 = re.compile(rb"[!-~]{10,}")
_LONG = re.compile(rb"[!-~]{8,}")  # as long as the shortest token of any of these
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_TEXTS, _NUMBERS = (str, bytes), (int, float)
_DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


class Literal(msgspec.Struct, frozen=True, kw_only=True):
    """The text one literal expression builds, as UTF-8 bytes."""

    text: bytes
    line: int
    is_docstring: bool = False


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Literals joined by line feeds, so that one pass searches them all."""

    name: str  # the view: "plain", "base64", ...
    data: bytes
    starts: tuple[int, ...]  # byte offset of each literal
    lines: tuple[int, ...]

    def line_at(self, offset: int) -> int:
        """The source line of the literal at a byte offset."""
        return self.lines[max(0, bisect.bisect_right(self.starts, offset) - 1)] if self.lines else 0


def make_pool(name: str, pieces: Iterable[tuple[bytes, int]]) -> Pool:
    """A pool of (text, line) pieces; a text that occurs again is left out."""
    first_line: dict[bytes, int] = {}
    for text, line in pieces:
        first_line.setdefault(text, line)
    starts, offset = [], 0
    for text in first_line:
        starts.append(offset)
        offset += len(text) + 1
    return Pool(name=name, data=b"\n".join(first_line), starts=tuple(starts), lines=tuple(first_line.values()))


def decoded_pools(pool: Pool) -> Iterator[Pool]:
    """Other readings of a pool: one per encoding that decodes anything.

    Decoding is per token, so that one token that doesn't decode hides nothing else. Reversal and rotation are not made
    here: searches cover them on every reading (`arena.gate.answer_tables.findings`).
    """
    readings: tuple[tuple[str, re.Pattern[bytes], Callable[[bytes], bytes]], ...] = (
        ("base64", _BASE64, _from_base64),
        ("base32", _BASE32, _from_base32),
        ("hex", _HEX, binascii.unhexlify),
        ("base85", _BASE85, base64.b85decode),
        ("ascii85", _BASE85, base64.a85decode),
    )
    # every token lies whole in a long run without spaces, of which a text has few different ones
    places: dict[bytes, int] = {}
    for run in _LONG.finditer(pool.data):
        places.setdefault(run[0], run.start())
    pool = make_pool(pool.name, [(run, pool.line_at(place)) for run, place in places.items()])
    for name, pattern, decode in readings:
        pieces = []
        seen: set[bytes] = set()
        for match in pattern.finditer(pool.data):
            token = match[0]
            if token not in seen:
                seen.add(token)
                try:
                    pieces.append((decode(token), pool.line_at(match.start())))
                except ValueError:  # also binascii.Error
                    continue
        decoded = make_pool(name, pieces)
        if decoded.data:
            yield decoded


def _from_base64(token: bytes) -> bytes:
    token = token.rstrip(b"=").translate(_URL_SAFE)
    return binascii.a2b_base64(token + b"=" * (-len(token) % 4))


def _from_base32(token: bytes) -> bytes:
    token = token.rstrip(b"=")
    return base64.b32decode(token + b"=" * (-len(token) % 8), casefold=True)


def collect_literals(tree: Tree) -> list[Literal]:
    """Strings, bytes and integers of at least six digits, folded where cheap, in the order of the source."""
    literals: list[Literal] = []
    inside: set[ast.AST] = set()  # parts of a folded expression: not folded again
    docstrings = {
        node.body[0].value
        for node in tree.in_order(*_DOCUMENTED)
        if isinstance(node, _DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr)
    }
    folding = Folding()
    for node in reversed(tree.in_order(*BUILT)):  # children first
        folding.text(node)
    for node in tree.in_order(ast.Constant, *BUILT):
        if isinstance(node, ast.Constant):
            value = node.value
            if isinstance(value, _TEXTS):
                if text := value if isinstance(value, str) else value.decode("latin-1"):
                    literals.append(_literal(text, node.lineno, node in docstrings))
            elif isinstance(value, _NUMBERS) and not isinstance(value, bool):
                literals += _number(value, node.lineno)
        elif isinstance(node, BUILT):
            built = None if node in inside else folding.text(node)
            total = folding.number(node) if built is None and isinstance(node, ast.BinOp) else None
            if built:
                literals.append(_literal(built, node.lineno, False))
            elif total is not None and node not in inside:
                literals += _number(total, node.lineno)
            if built is not None or total is not None or node in inside:
                inside.update(children(node))
    return literals


def collect_names(tree: Tree) -> Iterator[tuple[bytes, int]]:
    """(text, line) of the names with digits enough for an id, wherever a name can stand."""
    fields = {kind: [field for field in _NAMES if field in kind._fields] for kind in tree.kinds}
    written = {
        name
        for kind, names in fields.items()
        for field in names
        for name in map(operator.attrgetter(field), tree.of(kind))
    }
    told = {
        name for name in written if isinstance(name, str) and len(name) >= _NAME_CHARS_MIN and _SIX_DIGITS.search(name)
    }
    if not told:
        return
    for node in tree.in_order(*(kind for kind, names in fields.items() if names)):
        for field in fields[node.__class__]:
            name = getattr(node, field, None)
            if name in told:
                yield name.encode("utf-8", "surrogatepass"), getattr(node, "lineno", 0)


def literal_findings(tree: Tree, literals: Sequence[Literal], rules: GateRules) -> list[Finding]:
    """Integer arrays, big integers, random-looking tokens and packed numbers."""
    found: list[Finding] = []
    for display in tree.of(ast.List, ast.Tuple, ast.Set, ast.Dict):
        count = count_numbers(display)
        if count >= rules.array_integers:
            found.append(finding("integer-array", display.lineno, f"{count} numbers"))
    for constant in tree.of(ast.Constant):
        number = constant.value
        if isinstance(number, int) and number.bit_length() > rules.integer_bits:
            found.append(finding("big-integer", constant.lineno, f"{number.bit_length()} bits"))
    token = re.compile(rb"\S{%d,}" % rules.token_chars)
    is_packed = len(b"\n".join([one.text for one in literals]).translate(None, _NO_CONTROLS)) >= _CONTROLS_MIN
    for literal in literals:
        if is_packed and (controls := len(_CONTROLS.findall(literal.text))) >= _CONTROLS_MIN:
            found.append(finding("binary", literal.line, f"{controls} control characters"))
        if not literal.is_docstring and len(literal.text) >= rules.token_chars:
            found += _random_tokens(literal, token, rules)
    return found


def _random_tokens(literal: Literal, token: re.Pattern[bytes], rules: GateRules) -> Iterator[Finding]:
    if max(map(len, literal.text.split()), default=0) < rules.token_chars:  # much faster than the search
        return
    for match in token.finditer(literal.text):
        bits = entropy_bits(match[0])
        if (_ADDRESS.match(match[0]) and len(match[0]) <= _ADDRESS_CHARS_MAX) or bits * 10_000 <= rules.token_bits_e4:
            continue
        windows = (match[0][start : start + rules.token_chars] for start in range(0, len(match[0]), _WINDOW_STEP))
        if any(_looks_random(window, rules) for window in windows if len(window) == rules.token_chars):
            yield finding("entropy", literal.line, f"{len(match[0])} characters, {bits:.2f} bits each")
            return


def _looks_random(window: bytes, rules: GateRules) -> bool:
    """Packed data changes between small and capital letters, digits and signs at half of its places and hardly repeats
    three characters; regular expressions, paths and JSON do one or the other."""
    kinds = window.translate(_KINDS)
    changes = sum(map(operator.ne, kinds, kinds[1:]))
    if changes * 2 < len(window) - 1:
        return False
    triples = {window[start : start + 3] for start in range(len(window) - 2)}
    return len(triples) * 20 >= (len(window) - 2) * 19 and entropy_bits(window) * 10_000 > rules.token_bits_e4


def entropy_bits(data: bytes) -> float:
    """Shannon entropy in bits per byte; 0 for nothing."""
    total = len(data)
    return -sum(n / total * math.log2(n / total) for n in Counter(data).values()) if total else 0.0


def _literal(text: str, line: int, is_docstring: bool) -> Literal:
    return Literal(text=text.encode("utf-8", "surrogatepass"), line=line, is_docstring=is_docstring)


def _number(number: int | float, line: int) -> Iterator[Literal]:
    if isinstance(number, float):
        if not number.is_integer() or abs(number) >= 2**63:
            return
        number = int(number)
    if abs(number) >= 100_000 and number.bit_length() <= _STR_BITS_MAX:
        yield Literal(text=str(abs(number)).encode(), line=line)
