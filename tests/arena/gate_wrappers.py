"""Wrappers: every value, statement or call of a program in a shell that changes nothing, to measure what is found."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable

from tests.arena.gate_disguises import Disguise, all_at_once

VALUES = {  # X: the value; N: a number of its own
    "tuple_index": "(X,)[0]",
    "list_index": "[X][0]",
    "last_of_two": "(None, X)[-1]",
    "dict_index": "{0: X}[0]",
    "dict_get": "{0: X}.get(0)",
    "pop": "[X].pop()",
    "conditional": "X if 1 else 0",
    "late_conditional": "None if 'a' in () else X",
    "or_none": "X or None",
    "and_true": "True and X",
    "call_of_lambda": "(lambda: X)()",
    "identity_lambda": "(lambda a: a)(X)",
    "constant_lambda": "(lambda a, b: b)(0, X)",
    "walrus": "(w_N := X)",
    "not_not": "not not X",
    "identity_function": "same_(X)",
    "identity_through_two": "twice_(X)",
    "maximum": "max(X, X) if False else X",
    "least_by_key": "min([X], key=id)",
    "sorted_one": "sorted((X,), key=id, reverse=True)[0]",
    "cast": "typing.cast(object, X)",
    "next_of_one": "next(iter([X]))",
    "starred": "[*X]",
    "comprehension": "[one_N for one_N in X]",
    "plus_zero": "X + 0",
    "times_one": "1 * X",
    "minus_minus": "-(-X)",
    "xor_zero": "X ^ (3 - 3)",
    "empty_text": "'' + X",
    "f_string": "f'{X}'",
    "format": "'{}'.format(X)",
    "percent": "'%s' % X",
    "joined": "''.join([X])",
    "str": "str(X)",
    "whole_slice": "X[:]",
    "getattr": "(lambda *a: a)(X)[0]",
    "comprehension_of_one": "[v_N for v_N in [X]][0]",
    "partial": "functools.partial(same_, X)()",
}
_IMPORTS = "import functools\nimport typing\n\n\n"
_EXTRA = _IMPORTS + "def same_(a):\n    b = a\n    return b\n\n\ndef twice_(a):\n    return same_(same_(a))\n"

STATEMENTS = {
    "one_turn": "for _t in (0,):\n    X",
    "one_turn_of_range": "for _t in range(1):\n    X",
    "while_true": "while True:\n    X\n    break",
    "if_true": "if not 0:\n    X",
    "if_compared": "if 'a' * 3 == 'aaa':\n    X\nelse:\n    print([1, 2])",
    "try_finally": "try:\n    X\nfinally:\n    pass",
    "try_raise": "try:\n    X\nexcept Exception:\n    raise",
    "null_context": "with contextlib.nullcontext():\n    X",
    "matched": "match 0:\n    case _:\n        X",
}


def _wrapped_values(template: str) -> Disguise:
    def wrap(source: str, rnd: random.Random) -> str:
        tree = _Values(template).visit(ast.parse(source))
        return _with_head(ast.unparse(ast.fix_missing_locations(tree)), _EXTRA)

    return wrap


class _Values(ast.NodeTransformer):
    def __init__(self, template: str) -> None:
        self.template, self.count = template, 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = [self.visit(argument) for argument in node.args]
        node.keywords = [self.visit(keyword) for keyword in node.keywords]
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
        return self.wrapped(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.wrapped(node) if isinstance(node.ctx, ast.Load) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self.wrapped(node) if isinstance(node.ctx, ast.Load) else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = self.visit(node.value) if node.value else None
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def wrapped(self, node: ast.expr) -> ast.expr:
        if self.template.startswith("f'") and not isinstance(node, ast.Name):
            return node  # quotes inside an f-string cannot be written before Python 3.12
        self.count += 1
        made = ast.parse(self.template.replace("_N", f"_{self.count}"), mode="eval").body
        return _Put(node).visit(made)


class _Put(ast.NodeTransformer):
    def __init__(self, node: ast.AST) -> None:
        self.node = node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.node if node.id == "X" else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        is_place = isinstance(node.value, ast.Name) and node.value.id == "X"
        return self.node if is_place and isinstance(self.node, ast.stmt) else self.generic_visit(node)


def _wrapped_statements(template: str) -> Disguise:
    def wrap(source: str, rnd: random.Random) -> str:
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.If | ast.For):
                node.body = [
                    statement
                    if any(isinstance(inner, ast.Break | ast.Continue) for inner in ast.walk(statement))
                    else _Put(statement).visit(ast.parse(template)).body[0]
                    for statement in node.body
                ]
        return _with_head(ast.unparse(ast.fix_missing_locations(tree)), "import contextlib\n")

    return wrap


def _with_head(source: str, extra: str) -> str:
    lines = source.split("\n")
    place = max((index for index, line in enumerate(lines) if line.startswith("from __future__")), default=-1) + 1
    return "\n".join([*lines[:place], extra, *lines[place:]])


def temporaries_everywhere(source: str, rnd: random.Random) -> str:
    """Three-address code: every argument of a statement's call in a variable first."""
    tree = ast.parse(source)
    count = 0
    for node in list(ast.walk(tree)):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if not isinstance(block, list) or not block or not isinstance(block[0], ast.stmt):
                continue
            made: list[ast.stmt] = []
            for statement in block:
                value = getattr(statement, "value", None)
                if isinstance(statement, ast.Assign | ast.Expr | ast.Return) and isinstance(value, ast.Call):
                    for index, argument in enumerate(value.args):
                        if not isinstance(argument, ast.Starred):
                            count += 1
                            target = ast.Name(id=f"t{count}", ctx=ast.Store())
                            made.append(ast.Assign(targets=[target], value=argument))
                            value.args[index] = ast.Name(id=f"t{count}", ctx=ast.Load())
                made.append(statement)
            block[:] = made
    return ast.unparse(ast.fix_missing_locations(tree))


def halves(source: str, rnd: random.Random) -> str:
    """Every longer function as two: the second half is a function of its own."""
    tree = ast.parse(source)
    made: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and len(node.body) > 3:
            middle = len(node.body) // 2
            name = f"{node.name}_rest"
            rest = ast.parse(f"def {name}(state):\n    pass").body[0]
            assert isinstance(rest, ast.FunctionDef)
            rest.body, node.body = node.body[middle:], node.body[:middle]
            node.body += ast.parse(f"def f():\n    return {name}(locals)").body[0].body  # type: ignore[attr-defined]
            made.append(rest)
        made.append(node)
    tree.body = made
    return ast.unparse(ast.fix_missing_locations(tree))


def keywords_for_positions(source: str, rnd: random.Random) -> str:
    """Arguments of own functions by name, in another order."""
    tree = ast.parse(source)
    own = {node.name: [a.arg for a in node.args.args] for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in own:
            names = own[node.func.id]
            if len(node.args) <= len(names) and not any(isinstance(item, ast.Starred) for item in node.args):
                node.keywords += [
                    ast.keyword(arg=name, value=value) for name, value in zip(names, node.args, strict=False)
                ][::-1]
                node.args = []
    return ast.unparse(ast.fix_missing_locations(tree))


class _Loops(ast.NodeTransformer):
    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        value, target = node.value, node.targets[0]
        if not isinstance(value, ast.ListComp) or not isinstance(target, ast.Name):
            return node
        body: list[ast.stmt] = ast.parse(f"{target.id}.append(0)").body
        body[0].value.args = [value.elt]  # type: ignore[attr-defined]
        for generator in reversed(value.generators):
            for test in reversed(generator.ifs):
                body = [ast.If(test=test, body=body, orelse=[])]
            body = [ast.For(target=generator.target, iter=generator.iter, body=body, orelse=[])]
        return [*ast.parse(f"{target.id} = []").body, *body]


def loops_for_comprehensions(source: str, rnd: random.Random) -> str:
    """`xs = [...]` as a loop that appends."""
    return ast.unparse(ast.fix_missing_locations(_Loops().visit(ast.parse(source))))


class _Texts(ast.NodeTransformer):
    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        made: ast.expr | None = None
        for part in node.values:
            value = part
            if isinstance(part, ast.FormattedValue):
                if part.format_spec or part.conversion != -1:
                    return node
                value = ast.Call(func=ast.Name(id="str", ctx=ast.Load()), args=[part.value], keywords=[])
            made = value if made is None else ast.BinOp(left=made, op=ast.Add(), right=value)
        return made or node


def sums_for_f_strings(source: str, rnd: random.Random) -> str:
    """`f"a{b}"` as `"a" + str(b)`."""
    return ast.unparse(ast.fix_missing_locations(_Texts().visit(ast.parse(source))))


def everything(source: str, rnd: random.Random) -> str:
    """A chain of wrappers over a chain of disguises."""
    for name in ("or_none", "dict_index", "call_of_lambda"):
        source = _wrapped_values(VALUES[name])(source, rnd)
    source = _wrapped_statements(STATEMENTS["try_raise"])(source, rnd)
    return _wrapped_statements(STATEMENTS["while_true"])(all_at_once(source, rnd), rnd)


def _named(name: str, disguise: Disguise) -> Disguise:
    disguise.__name__ = name
    return disguise


WRAPPERS: tuple[Callable[[str, random.Random], str], ...] = (
    *(_named(name, _wrapped_values(template)) for name, template in VALUES.items()),
    *(_named(name, _wrapped_statements(template)) for name, template in STATEMENTS.items()),
    temporaries_everywhere,
    halves,
    keywords_for_positions,
    loops_for_comprehensions,
    sums_for_f_strings,
    everything,
)
