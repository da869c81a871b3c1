"""Calls that hand a value on: conversions, displays looked into, functions of one expression, names for operators."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Sequence

from arena.gate.normal_form.texts import format_call, formatted, joined_by
from arena.gate.normal_form.trees import is_still, looked_up, replaced, same

_CONVERSIONS = frozenset(
    {"bool", "bytes", "dict", "float", "frozenset", "int", "iter", "list", "set", "str", "tuple", "copy", "deepcopy"}
)
_EMPTY: dict[str, Callable[[], ast.expr]] = {
    "list": lambda: ast.List(elts=[], ctx=ast.Load()),
    "tuple": lambda: ast.Tuple(elts=[], ctx=ast.Load()),
    "dict": lambda: ast.Dict(keys=[], values=[]),
    "str": lambda: ast.Constant(value=""),
    "int": lambda: ast.Constant(value=0),
    "float": lambda: ast.Constant(value=0.0),
    "bool": lambda: ast.Constant(value=False),
}
_OPERATOR_CALLS: dict[str, type[ast.operator]] = {
    "add": ast.Add,
    "sub": ast.Sub,
    "mul": ast.Mult,
    "truediv": ast.Div,
    "concat": ast.Add,
}
_MODULES = frozenset({"copy", "operator", "functools", "typing"})
# what calls are looked at at all: most are of something else
_BUILTINS = _CONVERSIONS | {*_EMPTY, "chr", "format", "getattr", "len", "max", "min", "next", "sorted", "sum"}
_METHODS = frozenset({"__getitem__", "copy", "format", "get", "join", "lower", "pop", "strip", "title", "upper"})
_REPEATED_NODES_MAX = 8  # a longer argument is put in one place only


def called(node: ast.Call) -> ast.expr | None:
    """The simpler expression for a call, or None."""
    match node.func:
        case ast.Name(id=name):
            return _builtin(name, node.args, node.keywords) if name in _BUILTINS else None
        case ast.Attribute(value=ast.Name(id=module), attr=name) if module in _MODULES and not node.keywords:
            return _function(module, name, node.args)
        case ast.Attribute(value=value, attr=name):
            return _method(value, name, node.args, node.keywords) if name in _METHODS else None
        case ast.Lambda(args=parameters, body=body):
            return applied(parameters, body, node)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="functools"), attr="partial"), args=[function, *first], keywords=named
        ):
            return ast.Call(func=function, args=[*first, *node.args], keywords=[*named, *node.keywords])
    return None


def _function(module: str, name: str, arguments: Sequence[ast.expr]) -> ast.expr | None:
    match module, name, arguments:
        case "copy", ("copy" | "deepcopy"), [value]:
            return value
        case "operator", _, [left, right] if name in _OPERATOR_CALLS:
            return ast.BinOp(left=left, op=_OPERATOR_CALLS[name](), right=right)
        case "functools", "partial", [function]:
            return function
        case "typing", "cast", [_, value]:
            return value
    return None


def _builtin(name: str, arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> ast.expr | None:
    is_ordered = name in ("max", "min", "sorted") and {each.arg for each in keywords} <= {"key", "default", "reverse"}
    if keywords and not is_ordered:
        is_plain = name == "dict" and not arguments and all(each.arg for each in keywords)
        keys: list[ast.expr | None] = [ast.Constant(value=each.arg) for each in keywords]
        return ast.Dict(keys=keys, values=[each.value for each in keywords]) if is_plain else None
    match name, arguments:
        case _, [] if name in _EMPTY:
            return _EMPTY[name]()
        case _, [ast.Starred()]:
            return None
        case "set", [ast.ListComp() | ast.GeneratorExp() as inner]:
            return ast.SetComp(elt=inner.elt, generators=inner.generators)
        case _, [value] if name in _CONVERSIONS:
            return value
        case "next", [ast.List(elts=[only]) | ast.Tuple(elts=[only])] if not isinstance(only, ast.Starred):
            return only
        case (("max" | "min"), [one, two]) if same(one, two):
            return one
        case "sorted", [ast.List(elts=[only]) | ast.Tuple(elts=[only])] if not isinstance(only, ast.Starred):
            return ast.List(elts=[only], ctx=ast.Load())
        case (("max" | "min" | "sum"), [ast.List(elts=[only]) | ast.Tuple(elts=[only])]):
            return None if isinstance(only, ast.Starred) else only
        case "format", [value, spec]:
            return formatted(value, -1, spec)
        case "getattr", [value, ast.Constant(value=str() as attribute)]:
            return ast.Attribute(value=value, attr=attribute, ctx=ast.Load())
        case "chr", [ast.Constant(value=int() as code)] if 0 <= code < 0x110000:
            return ast.Constant(value=chr(code))
        case "len", [ast.Constant(value=str() | bytes() as text)]:
            return ast.Constant(value=len(text))
    return None


def _method(
    value: ast.expr, name: str, arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword]
) -> ast.expr | None:
    match value, name, arguments:
        case ast.Constant(value=str() as text), "format", _:
            return format_call(text, arguments, keywords)
        case ast.Constant(value=str() as text), "join", [ast.List(elts=items) | ast.Tuple(elts=items)]:
            return joined_by(text, items)
        case ast.Constant(value=str() as text), ("lower" | "upper" | "strip" | "title"), []:
            return ast.Constant(value=getattr(text, name)())
        case ast.Dict(keys=keys, values=values), "get", [ast.Constant() as key]:
            return looked_up(keys, values, key)
        case ((ast.List(elts=[only]) | ast.Tuple(elts=[only])), "pop", [] | [ast.Constant(value=0 | -1)]):
            return None if isinstance(only, ast.Starred) else only
        case ((ast.List() | ast.Tuple() | ast.Dict()), "__getitem__", [index]):
            return ast.Subscript(value=value, slice=index, ctx=ast.Load())
        case _, "copy", [] if not keywords:
            return value
    return None


def applied(parameters: ast.arguments, body: ast.expr, call: ast.Call) -> ast.expr | None:
    """A function of one expression applied to a call's arguments; None where they don't simply stand for parameters."""
    forwarded = _forwarded(parameters, body)
    if forwarded is not None:
        return ast.Call(func=forwarded, args=call.args, keywords=call.keywords)
    if parameters.kwarg is not None or any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    places = [argument.arg for argument in [*parameters.posonlyargs, *parameters.args]]
    values: dict[str, ast.expr] = dict(zip(places, call.args, strict=False))
    if parameters.vararg is not None:
        values[parameters.vararg.arg] = ast.Tuple(elts=list(call.args[len(places) :]), ctx=ast.Load())
    elif len(call.args) > len(places):
        return None
    given = {each.arg.split("#")[0]: each.value for each in call.keywords if each.arg is not None}
    defaults = dict(zip(reversed(places), reversed(parameters.defaults), strict=False))
    named = [each.arg for each in parameters.kwonlyargs]
    defaults |= {name: value for name, value in zip(named, parameters.kw_defaults, strict=True) if value is not None}
    for name in [*places, *named]:
        value = given.pop(name.split("#")[0], None) or values.get(name) or defaults.get(name)
        if value is None:
            return None
        values[name] = value
    if given or len(call.keywords) != sum(each.arg is not None for each in call.keywords):
        return None
    uses = dict.fromkeys(values, 0)
    for node in ast.walk(body):
        if isinstance(node, ast.Name) and node.id in uses:
            uses[node.id] += 1
    for name, count in uses.items():
        if count == 0 and not is_still(values[name]):
            return None
        if count > 1 and any(True for _ in itertools.islice(ast.walk(values[name]), _REPEATED_NODES_MAX, None)):
            return None
    return replaced(body, values)


def _forwarded(parameters: ast.arguments, body: ast.expr) -> ast.expr | None:
    """The function to which `lambda *a, **k: f(*a, **k)` hands everything on."""
    is_all = parameters.vararg is not None and not (parameters.args or parameters.posonlyargs or parameters.kwonlyargs)
    match body:
        case ast.Call(func=function, args=[ast.Starred(value=ast.Name(id=first))], keywords=keywords) if is_all:
            match keywords, parameters.kwarg:
                case [ast.keyword(arg=None, value=ast.Name(id=second))], ast.arg(arg=rest) if second == rest:
                    return function if parameters.vararg is not None and first == parameters.vararg.arg else None
                case [], None:
                    return function if parameters.vararg is not None and first == parameters.vararg.arg else None
    return None
