"""Composed texts in one form: `a + "b"`, `f"{a}b"`, `"{}b".format(a)`, `"%sb" % a` and `"".join([a, "b"])` are equal.

The form is a `JoinedStr` whose values are constants and the expressions themselves; only a part with a format of its
own stays a `FormattedValue`.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterable, Sequence

CHARACTERS_MAX = 100_000
_PERCENT = re.compile(r"%([-+ #0]*+\d*+(?:\.\d++)?+)([sdifgexXr%])")
_CONVERSIONS = {114: "repr", 97: "ascii"}


def text_parts(node: ast.expr) -> list[ast.expr] | None:
    """The parts of an expression that is known to be a text, or None."""
    match node:
        case ast.Constant(value=str()):
            return [node]
        case ast.JoinedStr(values=values):
            return values
    return None


def joined(parts: Iterable[ast.expr]) -> ast.expr:
    """The parts as one text: neighbouring constants merged, empty ones left out, a single part by itself."""
    merged: list[ast.expr] = []
    before: str | None = None  # the text at the end
    for part in (inner for outer in parts for inner in (text_parts(outer) or [outer])):
        text = part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else None
        if before is not None and text is not None and len(before) + len(text) <= CHARACTERS_MAX:
            before += text
            merged[-1] = ast.Constant(value=before)
        elif text != "":
            merged.append(part)
            before = text
    if not merged:
        return ast.Constant(value="")
    return merged[0] if len(merged) == 1 else ast.JoinedStr(values=merged)


def formatted(
    value: ast.expr, conversion: int, spec: ast.expr | None, field: ast.FormattedValue | None = None
) -> ast.expr:
    """One field of an f-string whose format, if any, was simplified; the field itself where it is so already."""
    if conversion in _CONVERSIONS:
        value = ast.Call(func=ast.Name(id=_CONVERSIONS[conversion], ctx=ast.Load()), args=[value], keywords=[])
    match spec:
        case None | ast.Constant(value="") | ast.JoinedStr(values=[]):
            return value
    if field is not None and field.conversion not in _CONVERSIONS:
        return field
    return ast.FormattedValue(value=value, conversion=-1, format_spec=spec)


def percent(text: str, right: ast.expr) -> ast.expr | None:
    """`text % right` as a joined text, or None where that is not plain."""
    values = right.elts if isinstance(right, ast.Tuple) else [right]
    pieces = _PERCENT.split(text)  # text, flags, kind, text, ...
    kinds = [kind for kind in pieces[2::3] if kind != "%"]
    if (
        "%" in "".join(pieces[::3])
        or len(kinds) != len(values)
        or any(isinstance(each, ast.Starred) for each in values)
    ):
        return None
    parts: list[ast.expr] = [ast.Constant(value=pieces[0])]
    left = list(values)
    for flags, kind, after in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        if kind == "%":
            parts.append(ast.Constant(value="%"))
        elif kind == "r":
            parts.append(formatted(left.pop(0), 114, None))
        else:
            spec = "" if kind in "sdi" and not flags else f"{flags}{kind}"
            parts.append(formatted(left.pop(0), -1, ast.Constant(value=spec)))
        parts.append(ast.Constant(value=after))
    return joined(parts)


def format_call(text: str, arguments: Sequence[ast.expr], named: Sequence[ast.keyword]) -> ast.expr | None:
    """`text.format(...)` as a joined text, or None where a field is not plain."""
    if any(isinstance(argument, ast.Starred) for argument in arguments) or any(each.arg is None for each in named):
        return None
    values: dict[str, ast.expr] = {str(index): value for index, value in enumerate(arguments)}
    values |= {each.arg: each.value for each in named if each.arg is not None}
    parts: list[ast.expr] = []
    used: set[str] = set()
    try:
        for place, (before, field, spec, conversion) in enumerate(string.Formatter().parse(text)):
            parts.append(ast.Constant(value=before))
            if field is None:
                continue
            name = field or str(len(used))
            if name not in values or "{" in (spec or "") or place > len(text):
                return None
            used.add(name)
            code = ord(conversion) if conversion else -1
            parts.append(formatted(values[name], code, ast.Constant(value=spec or "")))
    except ValueError:
        return None
    return joined(parts) if used == set(values) else None


def joined_by(separator: str, items: Sequence[ast.expr]) -> ast.expr | None:
    """`separator.join([...])` of a display as a joined text."""
    if any(isinstance(item, ast.Starred) for item in items):
        return None
    parts: list[ast.expr] = []
    for item in items:
        parts += [ast.Constant(value=separator), item] if parts else [item]
    return joined(parts)
