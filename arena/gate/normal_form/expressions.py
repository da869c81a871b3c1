"""Expressions without their wrappers: what hands a value on unchanged is that value. Nothing is executed.

`(x,)[0]`, `x or None`, `x + 0`, `f"{x}"`, `str(x)`, `(lambda a: a)(x)` and their kind are `x`. A value counts as what
the operation expects (`x + 0`: a number), so this is a form to compare programs by and no optimiser's. What is
dropped beside the value is pure, so no code that could run is hidden by a wrapper. Names are resolved already
(`names.py`): a builtin's name is the builtin.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from arena.gate.normal_form.calls import called
from arena.gate.normal_form.texts import formatted, joined, percent, text_parts
from arena.gate.normal_form.trees import is_still, looked_up, replaced, same
from arena.gate.similarity.liveness import truth

STEPS_MAX = 16
_NUMBER_MAX = 1 << 64
_TEXT_MAX = 2_000
_NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Gt: ast.Lt, ast.GtE: ast.LtE}
_FOLDED: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitXor: operator.xor,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}
_NEUTRAL_RIGHT: dict[type[ast.operator], int] = {
    **dict.fromkeys((ast.Add, ast.Sub, ast.BitXor, ast.BitOr, ast.LShift, ast.RShift), 0),
    **dict.fromkeys((ast.Mult, ast.FloorDiv, ast.Div, ast.Pow), 1),
}
_LOOKED_INTO, _PLACES = (ast.List, ast.Tuple, ast.Dict, ast.Constant), (ast.Constant, ast.Slice)
_EVEN = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)
_COMMUTING = (ast.Add, ast.Mult, ast.BitXor, ast.BitOr, ast.BitAnd)


def simplified(node: ast.expr) -> ast.expr:
    """An expression without its outer wrappers; its parts must be simplified already."""
    for _ in range(STEPS_MAX):
        rule = RULES.get(type(node))
        made = rule(node) if rule is not None else None
        if made is None:
            return node
        node = made
    return node


def negated(test: ast.expr) -> ast.expr:
    """`not test`, simplified."""
    return simplified(ast.UnaryOp(op=ast.Not(), operand=test))


def is_negative(test: ast.expr) -> bool:
    """Whether a test says that something is not so: of a branch with two sides the positive form is taken."""
    match test:
        case ast.UnaryOp(op=ast.Not()) | ast.Compare(ops=[ast.NotEq() | ast.IsNot() | ast.NotIn()]):
            return True
    return False


# -- rules by kind: the simpler expression, or None where none applies
def _subscript(node: ast.Subscript) -> ast.expr | None:
    is_plain = isinstance(node.slice, ast.Constant) and not isinstance(node.value, _LOOKED_INTO)
    if is_plain or not isinstance(node.slice, _PLACES) or not isinstance(node.ctx, ast.Load):
        return None
    match node.value, node.slice:
        case ((ast.List(elts=items) | ast.Tuple(elts=items)), ast.Constant(value=int() as place)):
            if not -len(items) <= place < len(items) or any(isinstance(item, ast.Starred) for item in items):
                return None
            chosen = items[place]
            return chosen if all(item is chosen or is_still(item) for item in items) else None
        case ast.Dict(keys=keys, values=values), ast.Constant() as key:
            return looked_up(keys, values, key)
        case ast.Constant(value=str() as text), ast.Constant(value=int() as place) if -len(text) <= place < len(text):
            return ast.Constant(value=text[place])
        case value, ast.Slice(
            lower=None | ast.Constant(value=0 | None),
            upper=None | ast.Constant(value=None),
            step=None | ast.Constant(value=1 | None),
        ):
            return value
        case ast.Constant(value=str() as text), ast.Slice(lower=lower, upper=upper, step=step):
            bounds = [_bound(part) for part in (lower, upper, step)]
            return None if _UNKNOWN in bounds or bounds[2] == 0 else ast.Constant(value=text[slice(*bounds)])
    return None


_UNKNOWN = 1 << 99


def _bound(part: ast.expr | None) -> int | None:
    match part:
        case None | ast.Constant(value=None):
            return None
        case ast.Constant(value=int() as number):
            return number
    return _UNKNOWN


def _if_expression(node: ast.IfExp) -> ast.expr | None:
    known = truth(node.test)
    if known is not None:
        return node.body if known else node.orelse
    if same(node.body, node.orelse) and is_still(node.test):
        return node.body
    if same(node.test, node.body):
        return simplified(ast.BoolOp(op=ast.Or(), values=[node.test, node.orelse]))
    if is_negative(node.test):
        return ast.IfExp(test=negated(node.test), body=node.orelse, orelse=node.body)
    return None


def _logic(node: ast.BoolOp) -> ast.expr | None:
    """Constants and repetitions left out, nested chains made one. `x or None` is `x`."""
    is_or = isinstance(node.op, ast.Or)
    kept: list[ast.expr] = []
    for value in node.values:
        parts = value.values if isinstance(value, ast.BoolOp) and type(value.op) is type(node.op) else [value]
        for part in parts:
            known = truth(part)
            if known is not None and known != is_or and is_still(part):
                continue  # decides nothing
            if kept and any(same(part, before) for before in kept[-4:]):
                continue
            kept.append(part)
            if known == is_or:
                break  # decides: nothing behind it runs
    if not kept:
        return node.values[-1]
    if len(kept) == 1:
        return kept[0]
    if len(kept) == 2 and is_or and truth(kept[1]) and isinstance(kept[0], ast.BoolOp):
        return None
    match kept:  # c and a or b
        case [ast.BoolOp(op=ast.And(), values=[test, body]), orelse] if is_or and truth(body):
            return ast.IfExp(test=test, body=body, orelse=orelse)
    is_new = len(kept) != len(node.values) or any(one is not two for one, two in zip(kept, node.values, strict=True))
    return ast.BoolOp(op=node.op, values=kept) if is_new else None


def _unary(node: ast.UnaryOp) -> ast.expr | None:
    match node.op, node.operand:
        case ast.Not(), ast.UnaryOp(op=ast.Not(), operand=value):
            return value
        case ast.Not(), ast.Compare(left=left, ops=[op], comparators=comparators):
            return ast.Compare(left=left, ops=[_NEGATED[type(op)]()], comparators=comparators)
        case ast.Not(), ast.Constant(value=bool() as value):
            return ast.Constant(value=not value)
        case ast.UAdd(), value:
            return value
        case (ast.USub(), ast.UnaryOp(op=ast.USub(), operand=value)) | (
            ast.Invert(),
            ast.UnaryOp(op=ast.Invert(), operand=value),
        ):
            return value
        case ast.USub(), ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return ast.Constant(value=-number)
        case ast.USub(), ast.BinOp(left=left, op=ast.Sub(), right=right):
            return ast.BinOp(left=right, op=ast.Sub(), right=left)
    return None


def _operation(node: ast.BinOp) -> ast.expr | None:
    left, op, right = node.left, node.op, node.right
    match left, op, right:
        case ast.Constant(value=int() as one), _, ast.Constant(value=int() as two):
            is_by_zero = two == 0 and isinstance(op, ast.FloorDiv | ast.Mod)
            if type(op) not in _FOLDED or max(abs(one), abs(two)) > _NUMBER_MAX or is_by_zero:
                return None
            return ast.Constant(value=_FOLDED[type(op)](one, two))
        case _, _, ast.Constant(value=int() | float() as number) if _NEUTRAL_RIGHT.get(type(op)) == number:
            return left
        case ast.Constant(value=int() | float() as number), _, _ if isinstance(op, _COMMUTING):
            return ast.BinOp(left=right, op=op, right=left)
        case ast.Constant(value=0), ast.Sub(), _:
            return simplified(ast.UnaryOp(op=ast.USub(), operand=right))
        case _, ast.Sub(), ast.UnaryOp(op=ast.USub(), operand=value):
            return ast.BinOp(left=left, op=ast.Add(), right=value)
        case _, (ast.BitAnd() | ast.BitOr()), _ if same(left, right):
            return left
        case ast.Constant(value=str() as text), ast.Mod(), _:
            return percent(text, right)
        case ast.Constant(value=str() as text), ast.Mult(), ast.Constant(value=int() as times):
            return ast.Constant(value=text * times) if len(text) * times <= _TEXT_MAX else None
        case _, ast.Add(), ast.List(elts=[]) | ast.Tuple(elts=[]):
            return left
        case ((ast.List(elts=[]) | ast.Tuple(elts=[])), ast.Add(), _):
            return right
        case (ast.List(elts=one), ast.Add(), ast.List(elts=two)) | (
            ast.Tuple(elts=one),
            ast.Add(),
            ast.Tuple(elts=two),
        ):
            items = [*one, *two]
            is_list = isinstance(left, ast.List)
            return ast.List(elts=items, ctx=ast.Load()) if is_list else ast.Tuple(elts=items, ctx=ast.Load())
        case _, ast.Add(), _ if text_parts(left) is not None or text_parts(right) is not None:
            return joined([left, right])
    return None


def _comparison(node: ast.Compare) -> ast.expr | None:
    known = truth(node)
    if known is not None:
        return ast.Constant(value=known)
    if len(node.ops) > 1:  # a < b < c
        links = [node.left, *node.comparators]
        if not all(is_still(link) for link in links[1:-1]):
            return None
        pairs = [
            simplified(ast.Compare(left=one, ops=[op], comparators=[two]))
            for one, op, two in zip(links, node.ops, links[1:], strict=False)
        ]
        return ast.BoolOp(op=ast.And(), values=pairs)
    op, right = node.ops[0], node.comparators[0]
    if type(op) in _TURNED:
        return ast.Compare(left=right, ops=[_TURNED[type(op)]()], comparators=[node.left])
    is_even = isinstance(op, _EVEN)
    if is_even and isinstance(node.left, ast.Constant) and not isinstance(right, ast.Constant):
        return ast.Compare(left=right, ops=[op], comparators=[node.left])
    match op, right:
        case ((ast.Eq() | ast.Is()), ast.Constant(value=True)):
            return node.left
        case ((ast.Eq() | ast.Is()), ast.Constant(value=False)):
            return negated(node.left)
        case ((ast.In() | ast.NotIn()), (ast.List(elts=[only]) | ast.Tuple(elts=[only]) | ast.Set(elts=[only]))):
            return ast.Compare(
                left=node.left, ops=[ast.Eq() if isinstance(op, ast.In) else ast.NotEq()], comparators=[only]
            )
    return None


def _display(node: ast.List | ast.Tuple | ast.Set) -> ast.expr | None:
    if len(node.elts) != 1 or isinstance(node, ast.Set):
        return None
    only = node.elts[0]
    return only.value if isinstance(only, ast.Starred) and isinstance(node.ctx, ast.Load) else None


def _comprehension(node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> ast.expr | None:
    """`[a for a in x]` is `x`; over one element it is applied."""
    match node.generators:
        case [ast.comprehension(target=ast.Name(id=name), iter=source, ifs=[], is_async=0)]:
            if isinstance(node.elt, ast.Name) and node.elt.id == name:
                return source
            match source:
                case ast.List(elts=[only]) | ast.Tuple(elts=[only]) if not isinstance(only, ast.Starred):
                    return ast.List(elts=[replaced(node.elt, {name: only})], ctx=ast.Load())
    return None


def _text(node: ast.JoinedStr) -> ast.expr | None:
    made = joined(
        formatted(part.value, part.conversion, part.format_spec, part) if isinstance(part, ast.FormattedValue) else part
        for part in node.values
    )
    if not isinstance(made, ast.JoinedStr) or len(made.values) != len(node.values):
        return made
    return made if any(one is not two for one, two in zip(made.values, node.values, strict=True)) else None


RULES: dict[type[ast.AST], Callable[..., ast.expr | None]] = {
    ast.Subscript: _subscript,
    ast.IfExp: _if_expression,
    ast.BoolOp: _logic,
    ast.UnaryOp: _unary,
    ast.BinOp: _operation,
    ast.Compare: _comparison,
    ast.Call: called,
    ast.List: _display,
    ast.Tuple: _display,
    ast.Set: _display,
    ast.Dict: lambda node: node.values[0] if node.keys == [None] else None,
    ast.ListComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.SetComp: _comprehension,
    ast.JoinedStr: _text,
}
