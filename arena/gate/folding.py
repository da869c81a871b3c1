"""Literal folding: the text or number that an expression of constants builds, without running anything.

Folds what hides a literal most cheaply: `+`, `%`, `*`, slices, f-strings of constants, `sep.join([...])`, `chr`, `str`
and the plain methods of texts; for numbers the arithmetic of constants. Nothing that reads a variable is folded: that
would be an interpreter.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence

CHARACTERS_MAX = 200_000
_NUMBER_BITS_MAX = 64
_METHODS = frozenset(
    {"casefold", "decode", "encode", "lower", "lstrip", "replace", "rstrip", "strip", "title", "upper"}
)
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitXor: operator.xor,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}


def fold(node: ast.AST) -> str | None:
    """The string an expression builds (bytes as Latin-1), or None when it isn't one of constants."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Constant(value=bytes() as data):
            return data.decode("latin-1")
        case ast.BinOp(op=ast.Add()):
            return _fold_sum(node)
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return _fold_percent(fold(left), right)
        case ast.BinOp(left=left, op=ast.Mult(), right=ast.Constant(value=int() as times)):
            text = fold(left)
            return text * times if text is not None and len(text) * times <= CHARACTERS_MAX else None
        case ast.JoinedStr(values=values):
            return _joined("", [part.value if isinstance(part, ast.FormattedValue) else part for part in values])
        case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper, step=step)):
            text = fold(value)
            parts = [None if part is None else fold_number(part) for part in (lower, upper, step)]
            is_constant = all(
                (part is None) == (bound is None) for part, bound in zip(parts, (lower, upper, step), strict=True)
            )
            return text[slice(*parts)] if text is not None and is_constant and parts[2] != 0 else None
        case ast.Call(func=ast.Attribute(attr="join", value=separator), args=[ast.List() | ast.Tuple() as items]):
            glue = fold(separator)
            return None if glue is None else _joined(glue, items.elts)
        case ast.Call(func=ast.Attribute(attr=method, value=value), args=arguments, keywords=[]) if method in _METHODS:
            return _fold_method(fold(value), method, [fold(argument) for argument in arguments])
        case ast.Call(func=ast.Name(id="chr"), args=[argument]):
            code = fold_number(argument)
            return chr(code) if code is not None and 0 <= code < 0x110000 else None
        case ast.Call(func=ast.Name(id="str"), args=[argument]):
            number = fold_number(argument)
            return fold(argument) if number is None else str(number)
    return None


def fold_number(node: ast.AST) -> int | None:
    """The integer an expression of integer constants comes to, or None."""
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = fold_number(operand)
            return None if value is None else -value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            first, second = fold_number(left), fold_number(right)
            if first is None or second is None or max(first.bit_length(), second.bit_length()) > _NUMBER_BITS_MAX:
                return None
            return _ARITHMETIC[type(op)](first, second)
    return None


def _fold_sum(node: ast.BinOp) -> str | None:
    """A chain of `+`, walked along its left spine so that a long chain costs one pass."""
    parts: list[ast.expr] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add):
        parts.append(left.right)
        left = left.left
    return _joined("", [left, *reversed(parts)])


def _fold_percent(text: str | None, right: ast.expr) -> str | None:
    """`"..." % constants` where every field is `%s` or `%d`."""
    if text is None:
        return None
    items = right.elts if isinstance(right, ast.Tuple) else [right]
    values = [fold(ast.Call(func=ast.Name(id="str"), args=[item])) for item in items]
    pieces = text.replace("%d", "%s").split("%s")
    if len(pieces) != len(values) + 1 or None in values or "%" in "".join(pieces):
        return None
    return "".join(piece + (value or "") for piece, value in zip(pieces, [*values, ""], strict=True))


def _fold_method(text: str | None, method: str, arguments: Sequence[str | None]) -> str | None:
    if text is None or len(text) > CHARACTERS_MAX or any(argument is None for argument in arguments):
        return None
    if method in ("decode", "encode"):
        return text
    if method == "replace":
        if len(arguments) != 2:
            return None
        old, new = str(arguments[0]), str(arguments[1])
        is_small = len(text) * max(1, len(new)) <= CHARACTERS_MAX
        return text.replace(old, new) if is_small else None
    return str(getattr(text, method)(*arguments[:1])) if method.endswith("strip") else str(getattr(text, method)())


def _joined(glue: str, items: Sequence[ast.expr]) -> str | None:
    folded: list[str] = []
    for item in items:
        text = fold(item)
        if text is None:
            return None
        folded.append(text)
    return glue.join(folded)
