"""Wrappers: every value, statement or call of a program in a shell that changes nothing, to measure what is found."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable

from tests.arena.gate_disguises import Disguise, all_at_once

VALUES = {  # X: the value; N: a number of its own
    "tuple_index": "(X,)[0]",
    "dict_index": "{0: X}[0]",
    "dict_get": "{0: X}.get(0)",
    "pop": "[X].pop()",
    "conditional": "X if 1 else 0",
    "or_none": "X or None",
    "and_true": "True and X",
    "call_of_lambda": "(lambda: X)()",
    "constant_lambda": "(lambda a, b: b)(0, X)",
    "walrus": "(w_N := X)",
    "not_not": "not not X",
    "identity_function": "same_(X)",
    "sorted_one": "sorted((X,), key=id, reverse=True)[0]",
    "cast": "typing.cast(object, X)",
    "next_of_one": "next(iter([X]))",
    "comprehension": "[one_N for one_N in X]",
    "xor_zero": "X ^ (3 - 3)",
    "f_string": "f'{X}'",
    "format": "'{}'.format(X)",
    "partial": "functools.partial(same_, X)()",
}
_IMPORTS = "import functools\nimport typing\n\n\n"
_EXTRA = _IMPORTS + "def same_(a):\n    b = a\n    return b\n"

STATEMENTS = {
    "one_turn": "for _t in (0,):\n    X",
    "while_true": "while True:\n    X\n    break",
    "if_true": "if not 0:\n    X",
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
    everything,
)
