"""Blocks without their wrappers: a statement in a shell that changes nothing is that statement. Nothing is executed.

Loops of one turn, branches on constants, `try` that hands every error on, empty contexts and needless nesting vanish;
loops that only collect are comprehensions, branches that only choose a value are expressions. No statement
that could run is dropped.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterable, Iterator, Sequence

from arena.gate.normal_form.expressions import is_negative, negated, simplified
from arena.gate.similarity.liveness import truth

Block = list[ast.stmt]

_JUMPS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_REWRITTEN = (ast.Tuple, ast.List, ast.BinOp, ast.Name)  # values that an assignment may be written otherwise with
_EMPTY_CONTEXTS = frozenset({"nullcontext", "suppress", "ExitStack"})
CHOICES_MAX = 6  # choices in one expression: a longer chain stays branches


def tidy(block: Sequence[ast.stmt]) -> Block:
    """A block whose statements' parts are simplified already."""
    made: Block = []
    rest = [part for statement in block for part in _unwrapped(statement)][::-1]
    while rest:
        statement = rest.pop()
        if isinstance(statement, ast.If) and statement.orelse and isinstance(statement.body[-1], _JUMPS):
            rest += reversed(statement.orelse)  # `else` after a jump is what follows
            statement = ast.If(test=statement.test, body=statement.body, orelse=[])
        made.append(statement)
    cut = next((place for place, each in enumerate(made) if isinstance(each, _JUMPS)), len(made))
    return _chosen(_collected(made[: cut + 1]))


def _unwrapped(statement: ast.stmt) -> Block:
    if isinstance(statement, ast.Assign):
        is_plain = len(statement.targets) == 1 and not isinstance(statement.value, _REWRITTEN)
        return [statement] if is_plain else list(_assignments(statement))
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return []
        case ast.Expr(value=ast.NamedExpr(target=target, value=value)):
            return _assigned(target, value)
        case ast.AnnAssign(target=target, value=value):
            return [] if value is None else _assigned(target, value)
        case ast.Return(value=ast.Constant(value=None)):
            return [ast.Return(value=None)]
        case ast.If():
            return _branch(statement)
        case ast.For():
            return _loop(statement)
        case ast.While():
            return _while(statement)
        case ast.Try():
            return _attempt(statement)
        case ast.With():
            return _context(statement)
        case ast.Match(cases=[ast.match_case(pattern=ast.MatchAs(pattern=None, name=None), guard=None, body=body)]):
            return [ast.Expr(value=statement.subject), *body]
    return [statement]


def _assigned(target: ast.expr, value: ast.expr) -> Block:
    """One assignment; nothing for `x = x`."""
    return list(_assignments(ast.Assign(targets=[target], value=value)))


def _assignments(statement: ast.Assign) -> Iterator[ast.stmt]:
    """One for each target; `a, b = x, y` as two, `x = x + y` as `x += y`."""
    first, *others = statement.targets
    match first, statement.value:
        case ((ast.Tuple(elts=targets) | ast.List(elts=targets)), (ast.Tuple(elts=values) | ast.List(elts=values))) if (
            len(targets) == len(values)
            and not others
            and not any(isinstance(each, ast.Starred) for each in [*targets, *values])
            and not _names(targets) & _names(values)
        ):
            for target, value in zip(targets, values, strict=True):
                yield from _assignments(ast.Assign(targets=[target], value=value))
            return
        case ast.Name(id=name), ast.BinOp(left=ast.Name(id=read), op=op, right=right) if name == read:
            yield ast.AugAssign(target=first, op=op, value=right)
        case ast.Name(id=name), ast.Name(id=read) if name == read:
            pass
        case _, value:
            yield ast.Assign(targets=[first], value=value) if others else statement
    for target in others:
        read_again = ast.Name(id=first.id, ctx=ast.Load()) if isinstance(first, ast.Name) else statement.value
        yield ast.Assign(targets=[target], value=read_again)


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for each in nodes for node in ast.walk(each) if isinstance(node, ast.Name)}


def _branch(statement: ast.If) -> Block:
    known = truth(statement.test)
    if known is not None:
        return tidy(statement.body if known else statement.orelse)
    test, body, orelse = statement.test, tidy(statement.body), tidy(statement.orelse)
    if not body and not orelse:
        return [ast.Expr(value=test)]
    if not body or (orelse and is_negative(test)):
        test, body, orelse = negated(test), orelse, body
    match body, orelse:
        case [ast.If(test=inner, body=deep, orelse=[])], []:
            test, body = simplified(ast.BoolOp(op=ast.And(), values=[test, inner])), deep
    is_same = len(body) == len(statement.body) and len(orelse) == len(statement.orelse)
    if (
        test is statement.test
        and is_same
        and all(map(operator.is_, [*body, *orelse], [*statement.body, *statement.orelse]))
    ):
        return [statement]
    return [ast.copy_location(ast.If(test=test, body=body, orelse=orelse), statement)]


def _chosen(block: Block) -> Block:
    """A branch that only chooses what to return, assign or do as one expression."""
    made: Block = []
    for statement in reversed(block):
        if not isinstance(statement, ast.If):
            made.append(statement)
            continue
        match statement, made[-1:]:
            case ast.If(test=test, body=[ast.Return(value=one)], orelse=[]), [ast.Return(value=two)]:
                value = _choice(test, one or ast.Constant(value=None), two or ast.Constant(value=None))
                if value is not None:
                    made[-1] = ast.Return(value=value)
                    continue
            case ast.If(
                test=test,
                body=[ast.Assign(targets=[ast.Name() as target], value=one)],
                orelse=[ast.Assign(targets=[ast.Name() as other], value=two)],
            ), _ if target.id == other.id:
                value = _choice(test, one, two)
                if value is not None:
                    made.append(ast.Assign(targets=[target], value=value))
                    continue
        made.append(statement)
    return made[::-1]


def _choice(test: ast.expr, one: ast.expr, two: ast.expr) -> ast.expr | None:
    choices, inner = 0, two
    while isinstance(inner, ast.IfExp):
        choices, inner = choices + 1, inner.orelse
    return simplified(ast.IfExp(test=test, body=one, orelse=two)) if choices < CHOICES_MAX else None


def _loop(statement: ast.For) -> Block:
    """A loop of one turn is its body."""
    match statement.iter:
        case ast.List(elts=[only]) | ast.Tuple(elts=[only]) | ast.Set(elts=[only]) if not isinstance(only, ast.Starred):
            value = only
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=1)], keywords=[]):
            value = ast.Constant(value=0)
        case _:
            return [statement]
    body = _once(statement.body)
    if body is None:
        return [statement]
    is_left = any(isinstance(last, ast.Break) for last in statement.body[-1:])
    return tidy([*_assigned(statement.target, value), *body, *([] if is_left else statement.orelse)])


def _while(statement: ast.While) -> Block:
    known = truth(statement.test)
    if known is False:
        return tidy(statement.orelse)
    if known is None:
        body = _once(statement.body) if statement.body and isinstance(statement.body[-1], ast.Break) else None
        return (
            [statement]
            if body is None or statement.orelse
            else _branch(ast.If(test=statement.test, body=body, orelse=[]))
        )
    if statement.body and isinstance(statement.body[-1], ast.Break | ast.Return | ast.Raise):
        body = _once(statement.body)
        if body is not None:
            return tidy(body)
    match statement.body:
        case [ast.If(test=test, body=[ast.Break()], orelse=[]), *rest] if rest and not statement.orelse:
            return [ast.While(test=negated(test), body=rest, orelse=[])]
    return [statement]


def _once(body: Block) -> Block | None:
    """A loop's body as it runs once: without the `break` or `continue` at its end; None where another one leaves it."""
    kept = body[:-1] if body and isinstance(body[-1], ast.Break | ast.Continue) else body
    stack: list[ast.AST] = list(kept)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Break | ast.Continue):
            return None
        if isinstance(node, _LOOPS):
            stack += node.orelse
        elif not isinstance(node, (*_DEFINITIONS, ast.expr)):
            stack += ast.iter_child_nodes(node)
    return list(kept)


def _attempt(statement: ast.Try) -> Block:
    """`try` whose handlers only raise again and whose `finally` is empty."""
    for handler in statement.handlers:
        match tidy(handler.body):
            case [ast.Raise(exc=None)]:
                continue
            case [ast.Raise(exc=ast.Name(id=raised), cause=None)] if raised == handler.name:
                continue
        return [statement]
    after = tidy(statement.finalbody)
    if after and any(isinstance(node, ast.Return | ast.Raise) for each in statement.body for node in ast.walk(each)):
        return [statement]
    return tidy([*statement.body, *statement.orelse, *after])


def _context(statement: ast.With) -> Block:
    """Contexts that do nothing left out, a context directly in another one as one statement."""
    kept: list[ast.withitem] = []
    before: Block = []
    for item in statement.items:
        match item.context_expr:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="contextlib"), attr=name), args=arguments) if (
                name in _EMPTY_CONTEXTS and (name == "nullcontext" or not arguments)
            ):
                value = arguments[0] if arguments else ast.Constant(value=None)
                before += (
                    [ast.Expr(value=value)] if item.optional_vars is None else _assigned(item.optional_vars, value)
                )
            case _:
                kept.append(item)
    if not kept:
        return tidy([*before, *statement.body])
    match statement.body:
        case [ast.With(items=inner, body=body)]:
            return [*before, ast.With(items=[*kept, *inner], body=body)]
    return [*before, ast.With(items=kept, body=statement.body) if len(kept) < len(statement.items) else statement]


def _collected(block: Block) -> Block:
    """`xs = []` and a loop that only appends to it as a comprehension; sets and dictionaries likewise."""
    made: Block = []
    for statement in block:
        if not isinstance(statement, ast.For):
            made.append(statement)
            continue
        match made[-1:], statement:
            case [ast.Assign(targets=[ast.Name(id=name) as target], value=empty)], ast.For(orelse=[]):
                value = _comprehension(name, empty, statement)
                if value is not None:
                    made[-1] = ast.Assign(targets=[target], value=value)
                    continue
        made.append(statement)
    return made


def _comprehension(name: str, empty: ast.expr, loop: ast.For) -> ast.expr | None:
    generators: list[ast.comprehension] = []
    inner: ast.stmt = loop
    while True:
        match inner:
            case ast.For(target=target, iter=source, body=[deeper], orelse=[]):
                generators.append(ast.comprehension(target=target, iter=source, ifs=[], is_async=0))
                inner = deeper
                continue
            case ast.If(test=test, body=[deeper], orelse=[]):
                generators[-1].ifs.append(test)
                inner = deeper
                continue
        break
    if any(name in _names([part.iter, *part.ifs]) for part in generators):
        return None
    match empty, inner:
        case ast.List(elts=[]), ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=grown), attr="append"), args=[value], keywords=[])
        ) if grown == name:
            made: ast.expr = ast.ListComp(elt=value, generators=generators)
        case ast.List(elts=[]), ast.AugAssign(
            target=ast.Name(id=grown), op=ast.Add(), value=ast.List(elts=[value])
        ) if grown == name:
            made = ast.ListComp(elt=value, generators=generators)
        case ast.Call(func=ast.Name(id="set"), args=[]), ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=grown), attr="add"), args=[value], keywords=[])
        ) if grown == name:
            made = ast.SetComp(elt=value, generators=generators)
        case ast.Dict(keys=[]), ast.Assign(
            targets=[ast.Subscript(value=ast.Name(id=grown), slice=key)], value=value
        ) if grown == name:
            made = ast.DictComp(key=key, value=value, generators=generators)
        case _:
            return None
    return None if isinstance(inner, ast.stmt) and name in _names([value]) else simplified(made)
