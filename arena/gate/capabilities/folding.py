"""Literal folding: the text or number that an expression of constants builds, without running anything.

Folds what hides a literal most cheaply: `+`, `%`, `*`, slices, f-strings of constants, `sep.join([...])`, `chr`, `str`
and the plain methods of texts; for numbers the arithmetic of constants. Nothing that reads a variable is folded: that
would be an interpreter.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence

CHARACTERS_MAX = 100_000
REPEATED_MAX = 2_000
NUMBER_BITS_MAX = 64
_METHODS = frozenset(
    {"casefold", "decode", "encode", "lower", "lstrip", "replace", "rstrip", "strip", "title", "upper"}
)
_CALLED = _METHODS | {"chr", "join", "str"}
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitXor: operator.xor,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}
BUILT = (ast.BinOp, ast.JoinedStr, ast.Subscript, ast.Call)  # what may build a text of constants


class Folding:
    """Folds the expressions of one tree. Each node is folded once, so a tree costs one pass, children first."""

    def __init__(self) -> None:
        self._texts: dict[ast.AST, str | None] = {}
        self._numbers: dict[ast.AST, int | None] = {}

    def text(self, node: ast.AST) -> str | None:
        """The string an expression builds (bytes as Latin-1), or None when it isn't one of constants."""
        if isinstance(node, ast.Constant):
            value = node.value
            return value if isinstance(value, str) else value.decode("latin-1") if isinstance(value, bytes) else None
        if node.__class__ not in BUILT:
            return None
        if node not in self._texts:
            folded = self._text(node)
            self._texts[node] = None if folded is not None and len(folded) > CHARACTERS_MAX else folded
        return self._texts[node]

    def number(self, node: ast.AST) -> int | None:
        """The integer an expression of integer constants comes to, or None."""
        if node not in self._numbers:
            self._numbers[node] = self._number(node)
        return self._numbers[node]

    def _text(self, node: ast.AST) -> str | None:
        match node:
            case ast.BinOp(left=left, op=op, right=right) if (before := self.text(left)) is not None:
                match op:
                    case ast.Add():
                        after = self.text(right)
                        return None if after is None else before + after
                    case ast.Mod():
                        return self._percent(before, right)
                    case ast.Mult():
                        times = self.number(right)
                        return before * times if times is not None and len(before) * times <= REPEATED_MAX else None
            case ast.JoinedStr(values=values):
                return self._joined(
                    "", [part.value if isinstance(part, ast.FormattedValue) else part for part in values]
                )
            case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper, step=step)):
                whole = self.text(value)
                bounds = [None if part is None else self.number(part) for part in (lower, upper, step)]
                is_open = [part is None for part in (lower, upper, step)] == [bound is None for bound in bounds]
                return whole[slice(*bounds)] if whole is not None and is_open and bounds[2] != 0 else None
            case ast.Call(func=function, args=arguments, keywords=[]):
                return self._call(function, arguments)
        return None

    def _percent(self, text: str, right: ast.expr) -> str | None:
        """`"..." % constants` where every field is `%s` or `%d`."""
        values = [self._as_text(item) for item in (right.elts if isinstance(right, ast.Tuple) else [right])]
        pieces = text.replace("%d", "%s").split("%s")
        if len(pieces) != len(values) + 1 or None in values or "%" in "".join(pieces):
            return None
        return "".join(piece + (value or "") for piece, value in zip(pieces, [*values, ""], strict=True))

    def _as_text(self, node: ast.AST) -> str | None:
        number = self.number(node)
        return self.text(node) if number is None else str(number)

    def _call(self, function: ast.expr, arguments: Sequence[ast.expr]) -> str | None:
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name not in _CALLED:
            return None
        match function, arguments:
            case ast.Attribute(attr="join", value=separator), [ast.List() | ast.Tuple() as items]:
                glue = self.text(separator)
                return None if glue is None else self._joined(glue, items.elts)
            case ast.Attribute(attr=method, value=value), _ if method in _METHODS:
                return _method(self.text(value), method, [self.text(argument) for argument in arguments])
            case ast.Name(id="chr"), [argument]:
                code = self.number(argument)
                return chr(code) if code is not None and 0 <= code < 0x110000 else None
            case ast.Name(id="str"), [argument]:
                return self._as_text(argument)
        return None

    def _joined(self, glue: str, items: Sequence[ast.expr]) -> str | None:
        folded = [self.text(item) for item in items]
        return None if None in folded else glue.join(text or "" for text in folded)

    def _number(self, node: ast.AST) -> int | None:
        match node:
            case ast.Constant(value=int() as number) if not isinstance(number, bool):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.number(operand)
                return None if value is None else -value
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                first, second = self.number(left), self.number(right)
                if first is None or second is None or max(first.bit_length(), second.bit_length()) > NUMBER_BITS_MAX:
                    return None
                return _ARITHMETIC[type(op)](first, second)
        return None


def fold(node: ast.AST) -> str | None:
    """The string one expression builds, or None."""
    return Folding().text(node)


def _method(text: str | None, method: str, arguments: Sequence[str | None]) -> str | None:
    if text is None or None in arguments:
        return None
    if method in ("decode", "encode"):
        return text
    if method == "replace":
        old, new = (*arguments, None, None)[:2]
        is_small = old is not None and new is not None and len(text) * max(1, len(new)) <= CHARACTERS_MAX
        return text.replace(str(old), str(new)) if is_small and len(arguments) == 2 else None
    return str(getattr(text, method)(*(arguments[:1] if method.endswith("strip") else ())))
