"""Literal folding: the text that an expression of constants builds, without running anything.

Folds what hides a literal most cheaply: `+`, f-strings of constants, `sep.join([...])`. Arithmetic and calls are not
folded; that would be an interpreter, and the run-time rule on surfaced ids makes such tables worthless anyway.
"""

from __future__ import annotations

import ast


def fold(node: ast.AST) -> str | None:
    """The string an expression builds (bytes as Latin-1), or None when it isn't one of constants."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Constant(value=bytes() as data):
            return data.decode("latin-1")
        case ast.BinOp(op=ast.Add()):
            return _fold_sum(node)
        case ast.JoinedStr(values=values):
            return _joined("", [part.value if isinstance(part, ast.FormattedValue) else part for part in values])
        case ast.Call(func=ast.Attribute(attr="join", value=separator), args=[ast.List() | ast.Tuple() as items]):
            glue = fold(separator)
            return None if glue is None else _joined(glue, items.elts)
    return None


def _fold_sum(node: ast.BinOp) -> str | None:
    """A chain of `+`, walked along its left spine so that a long chain costs one pass."""
    parts: list[ast.expr] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add):
        parts.append(left.right)
        left = left.left
    return _joined("", [left, *reversed(parts)])


def _joined(glue: str, items: list[ast.expr]) -> str | None:
    folded: list[str] = []
    for item in items:
        text = fold(item)
        if text is None:
            return None
        folded.append(text)
    return glue.join(folded)
