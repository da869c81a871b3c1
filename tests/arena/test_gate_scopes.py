"""Routes to refused objects by the rules of scopes, and by what standard functions hand out: each gets a finding."""

from __future__ import annotations

import sys

import pytest

from tests.arena.gate_stand import gate

ROUTES = {
    "a class body sees past its function's parameter": (
        "def f(eval=None):\n    class C:\n        first = eval\n        if first is None:\n"
        "            eval = 1\n    return C\n"
    ),
    "a class body declares a global": (
        "def f(exec=None):\n    class C:\n        global exec\n        first = exec\n    return C\n"
    ),
    "a redirector's own targets": "import contextlib\nclass R(contextlib.redirect_stdout):\n    _stream = 'modules'\n",
    "an attribute chosen for a wrapper": "import functools\nfunctools.update_wrapper(1, 2, assigned=('x',))\n",
    "wraps of a chosen attribute": "import functools\nw = functools.wraps(1, assigned=('x',))\n",
    "wraps as a value": "import functools\nw = functools.wraps\n",
    "a signature's own constructor": "import inspect\ns = inspect.signature(str).from_callable\n",
    "basicConfig as a value": "import logging\nconfigure = logging.basicConfig\n",
    "a field named like a module": "class M:\n    sys: object\n",
    "the module behind warnings": "import warnings\nm = warnings.catch_warnings()._module\n",
    "the file under a stream": "def f(stream):\n    return stream.detach()\n",
}
# Steps of the routes in `gate_deep_routes`, turned in other ways: none reaches anything alone.
STEPS = {
    "partial state": "from functools import partial\np=partial(len)\np.__setstate__((len,(),{},{}))",
    "enum call": "from enum import Enum\nF=Enum.__call__('F',{'a'+str(1):1})",
    "keys mapping": "import warnings\nx=warnings.catch_warnings().__dict__.keys().mapping['_module']",
    "fields getitem": "from dataclasses import fields\ndef f(a):\n    fs=fields(a)\n    return fs.__getitem__(0)",
    "fields enumerate": "from dataclasses import fields\ndef f(a):\n    return [x for _, x in enumerate(fields(a))]",
    "fields tuple target": "from dataclasses import fields\ndef f(a):\n    for x, *y in [fields(a)]:\n"
    "        x.name='a'",
    "field loop setattr": "from dataclasses import fields\ndef f(a):\n    for x in fields(a):\n"
    "        setattr(x,'name','b')",
    "field loop augassign": "from dataclasses import fields\ndef f(a):\n    for x in fields(a):\n        x.name += 'b'",
    "field loop nonlocal": "from dataclasses import fields\ndef f(a):\n    x=None\n    def g():\n"
    "        nonlocal x\n        for x in fields(a):\n            pass\n    g()\n    return x",
    "field loop closure": "from dataclasses import fields\ndef f(a):\n    for x in fields(a):\n"
    "        def g():\n            return x\n    return g()",
    "field loop match": "from dataclasses import fields\ndef f(a):\n    for x in fields(a):\n        match x:\n"
    "            case y:\n                pass\n    y.name='k'",
    "field loop with del": "from dataclasses import fields\ndef f(a):\n"
    "    return [x.name.a for x in fields(a) if (y:=x)]",
    "sys stdout buffer": "import sys\nx=sys.stdout.buffer",
    "own super": "def super():\n    return C\nclass C:\n    pass\nsuper().__setattr__",
    "own object": "class object:\n    pass\nf=object.__setattr__",
    "stream init": "def f(s):\n    s.buffer.__init__('/etc/passwd')",
    "stream init attrgetter": "from operator import methodcaller\nf=methodcaller('__init__','/etc/passwd')",
    "init pattern": "def f(s):\n    match s:\n        case object(__init__=i):\n            i('/etc/passwd')",
    "tame class new": "class A:\n    def m(self, *a):\n        return type(self).__new__(*a)",
    "tb frame getattr": "def f(tb):\n    return getattr(tb,'tb_'+'frame')",
    "type walrus": "(k := type)",
    "type lambda": "f=lambda: type",
    "type return": "def f():\n    return type",
    "typing type": "import typing\nk=typing.Type",
    "get_origin type": "from typing import get_origin\nk=get_origin(type[int])",
    "ann lambda": "x: (lambda: type)()",
    "ann walrus": "x: (y := type) = 1",
    "ann subscript own": "class B:\n    def __class_getitem__(cls, k):\n        return k\nx: B[type]",
    "ann attr": "class B:\n    pass\nx: B().y[type]",
    "ret ann": "def f() -> type: ...\nimport inspect\nk=inspect.signature(f).return_annotation",
    "dict key type": "d={type: 1}",
    "codec via keyword own": "def f(b, e):\n    return b.decode(encoding=e)",
    "codec str var": "def f(b, e):\n    return str(b, e)",
    "codec partial": "from functools import partial\nf=partial(str, encoding='utf-7')",
    "codec in dict": "k={'encoding':'UTF-7'}\nx=str(b'', **k)",
    "codec dict var": "def f(k):\n    return str(b'', **k)",
    "codec bytes.decode": "f=bytes.decode",
    "codec map var": "def f(a,b):\n    return list(map(bytes.decode,a,b))",
    "codec decode star": "def f(a,b):\n    return a.decode(*b)",
    "codec decode kwargs": "def f(a,b):\n    return a.decode(**b)",
    "global builtins": "def f():\n    global __builtins__\n    __builtins__ = {}",
    "mod setattr": "import json\ndef f(x):\n    json.loads = x",
    "except builtins": "try:\n    pass\nexcept Exception as __builtins__:\n    pass",
    "class builtins": "class C:\n    __builtins__ = 1",
    "enum property": "from enum import property",
    "namedtuple var": "from collections import namedtuple\ndef f(n):\n    return namedtuple('A', n)",
    "namedtuple kw": "from collections import namedtuple\ndef f(n):\n    return namedtuple('A', field_names=n)",
    "namedtuple star": "from collections import namedtuple\ndef f(n):\n    return namedtuple(*n)",
    "namedtuple const": "from collections import namedtuple\nA=namedtuple('A','gi_frame')",
    "typed alias": "from typing import NamedTuple as T\ndef f(n):\n    return T('A', n)",
    "match own": "class C:\n    def __init__(self): pass\ndef f(x):\n    match x:\n        case C.D(a):\n"
    "            pass",
    "match alias": "from abc import ABC\nclass C(ABC):\n    pass\ndef f(x):\n    match x:\n        case C(a):\n"
    "            pass",
    "match rebound": "class C:\n    pass\nC=1\ndef f(x):\n    match x:\n        case C(a):\n            pass",
    "match setattr": "class C:\n    pass\nsetattr(C,'__match_args__',('a',))",
    "match attr": "class C:\n    pass\nC.__match_args__=('a',)",
    "class of in list": "def f(x):\n    return [type(x)]",
    "ternary": "def f(x):\n    return (type(x) if x else None)",
    "boolop": "def f(x):\n    return type(x) or 1",
    "await": "async def f(x):\n    await type(x)",
    "sub": "def f(x, d):\n    return d[type(x)]",
    "star": "def f(x, g):\n    return g(*[type(x)])",
    "typ call 1": "def f(x):\n    return type(x)(x)",
    "typ call 3": "def f(x, a, b, c):\n    return type(x)(a, b, c)",
    "typ call star": "def f(x, a):\n    return type(x)(*a)",
    "compare own": "def f(x, y):\n    return type(x) == y",
    "own str": "str=lambda x: x\ndef f(x):\n    return str(type(x))",
    "own str in function": "def f(x, str):\n    return str(type(x))",
    "own str global": "def g():\n    global str\n    str=lambda x: x\ndef f(x):\n    return str(type(x))",
    "own str import": "from json import loads as str\ndef f(x):\n    return str(type(x))",
    "own str class": "class C:\n    def str(x):\n        return x\n    y = str(type(1.0.real))",
    "own str for": "for str in [1]:\n    pass\ndef f(x):\n    return str(type(x))",
    "own str match": "match 1:\n    case str:\n        pass\ndef f(x):\n    return str(type(x))",
    "own str with": "import contextlib\nwith contextlib.nullcontext() as str:\n    pass\ndef f(x):\n"
    "    return str(type(x))",
    "vars": "x=vars",
    "vars two": "def f(o):\n    return vars(*o)",
    "vars get": "def f(o):\n    return vars(o)['a']",
    "vars none": "print(vars())",
    "tb as value": "def f(e):\n    return e.__traceback__.tb_frame",
    "dumps default": "import json\ndef f(o, h):\n    return json.dumps(o.__dict__, default=h)",
    "dumps cls": "import json\ndef f(o, h):\n    return json.dumps(o.__dict__, cls=h)",
    "dumps star": "import json\ndef f(o, h):\n    return json.dumps(o.__dict__, **h)",
    "sorted key": "def f(o):\n    return sorted(o.__dict__.values())",
    "dict in": "def f(o, x):\n    return o.__dict__ in x",
    "async for": "async def f(o):\n    async for x in o.__dict__:\n        pass",
}


@pytest.mark.parametrize("route", ROUTES)
def test_a_route_gets_a_finding(route: str) -> None:
    assert gate(ROUTES[route]).outcome != "accept"


@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_a_route_gets_a_finding(step: str) -> None:
    assert gate(STEPS[step]).outcome != "accept"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are syntax from Python 3.12 on")
@pytest.mark.parametrize(
    "source", ["def f[T: eval](eval=None):\n    pass", "class C[T: eval]:\n    pass", "type X = eval"]
)
def test_a_bound_of_a_type_parameter_is_read(source: str) -> None:
    assert gate(source).outcome == "reject"


def test_a_plain_wrapper_is_fine() -> None:
    source = (
        "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def g(*a):\n        return f(*a)\n    return g\n"
    )
    assert gate(source).outcome == "accept"
