"""Disguises and wrappers: each gives another text that does the same, to measure how well copies are found."""

from __future__ import annotations

import ast
import builtins
import random
from collections.abc import Callable

Disguise = Callable[[str, random.Random], str]

_KEPT = {*dir(builtins), "agent_main"}


def renamed(source: str, rnd: random.Random) -> str:
    """Every name of the file's own replaced."""
    tree = ast.parse(source)
    own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    keywords = {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword)}
    names = {name: f"v{index}" for index, name in enumerate(sorted(own - _KEPT - keywords))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = names.get(node.arg, node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.name = names.get(node.name, node.name)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [names.get(name, name) for name in node.names]
    return ast.unparse(tree)


def reordered(source: str, rnd: random.Random) -> str:
    """Functions of the top level in another order."""
    tree = ast.parse(source)
    places = [index for index, node in enumerate(tree.body) if isinstance(node, ast.FunctionDef)]
    moved = [tree.body[index] for index in places]
    rnd.shuffle(moved)
    for index, node in zip(places, moved, strict=True):
        tree.body[index] = node
    return ast.unparse(tree)


def other_texts(source: str, rnd: random.Random) -> str:
    """Other prompts and other numbers."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 12:
            node.value = "Now: " + node.value.replace("e", "3")
    return ast.unparse(tree)


def unused_functions(source: str, rnd: random.Random) -> str:
    """Half as many functions again, which call each other and which nothing calls."""
    extra = "\n\n".join(
        f"def _u{index}(a, b={index}):\n    total = [a + item * {index} for item in range(b)]\n"
        f"    return _u{(index + 1) % 40}(sorted(total, key=lambda x: -x), len(total)) if total else {{'k': a}}"
        for index in range(40)
    )
    head, _, tail = source.partition("\ndef agent_main")
    return f"{head}\n{extra}\n\n\ndef agent_main{tail}"


def in_functions(source: str, rnd: random.Random) -> str:
    """The entry's body in a function inside a function, called through a third."""
    tree = ast.parse(source)
    entry = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "agent_main")
    argument = entry.args.args[0].arg
    outer = ast.parse(
        f"def outer(x):\n    def inner({argument}):\n        pass\n    return call(inner, x)\n"
        f"def call(f, x):\n    return f(x)\ndef agent_main(q):\n    return outer(q)"
    ).body
    inner = outer[0].body[0]  # type: ignore[attr-defined]
    inner.body = entry.body
    tree.body[tree.body.index(entry) : tree.body.index(entry) + 1] = outer
    return ast.unparse(ast.fix_missing_locations(tree))


def padded(source: str, rnd: random.Random) -> str:
    """Live padding: thirty functions of another kind, called by the entry."""
    extra = "\n\n".join(
        f"def _p{index}(a):\n    rows = {{str(key): value ** {index % 5 + 1} for key, value in enumerate(a)}}\n"
        f"    while len(rows) > {index + 3}:\n        rows.pop(min(rows))\n"
        f"    print('|'.join(rows))\n    return list(rows.values())"
        for index in range(30)
    )
    calls = "".join(f"    _p{index}([{index}])\n" for index in range(30))
    head, _, tail = source.partition("\ndef agent_main")
    first, _, body = tail.partition(":\n")
    return f"{head}\n{extra}\n\n\ndef agent_main{first}:\n{calls}{body}"


def all_at_once(source: str, rnd: random.Random) -> str:
    """One after the other."""
    for disguise in (renamed, other_texts, reordered, in_functions, unused_functions):
        source = disguise(source, rnd)
    return source


EQUAL: tuple[Disguise, ...] = (renamed, reordered, unused_functions)
NEAR: tuple[Disguise, ...] = (other_texts, in_functions, padded, all_at_once)
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

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.JoinedStr | ast.arguments):
            return node
        called = node.func if isinstance(node, ast.Call) else None
        node = self.generic_visit(node)
        if called is not None:
            node.func = called  # as it is: what it is called on may be wrapped
        is_value = isinstance(node, ast.Name | ast.Attribute | ast.Call)
        return self.wrapped(node) if is_value and isinstance(getattr(node, "ctx", ast.Load()), ast.Load) else node

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
