"""Routes that begin with allowed words: classes of classes, names chosen at run time, parts of standard classes.

Each program really gets hold of a forbidden object, as `found`, or (CODECS) of a text that its source does not show.
`_CHOSEN` is a name that no reader of the text sees; the routes stand for every way to choose one.
"""

from __future__ import annotations

_KEY = (
    "held = []\nclass K:\n    def __hash__(self):\n        return hash(type(1).__class__)\n"
    "    def __eq__(self, other):\n        held.append(other)\n        return True\n"
)
_FUNCTION = "def f(a=None):\n    return a\n"
_GENERATOR = "def g():\n    yield 1\nit = g()\n"
_BOX = "class Box:\n    def {dunder}(self, other, *more):\n        return other\n"
_SPY = "held = []\ndef keep(x, *more):\n    held.append(x)\n    return x\n"


def _chosen(name: str) -> str:
    """An expression that comes to `name` without naming it."""
    return f"''.join(chr(c - 1) for c in {[ord(character) + 1 for character in name]})"


_BY_PATTERN = (
    "N = " + _chosen("gi_frame") + "\n" + _GENERATOR + "{made}\nC.register(type(it))\n"
    "match it:\n    case C(found):\n        pass"
)
# A field's name stands in the text that `dataclass` compiles: comparing two objects then calls `k` with `open`.
_NAME = "k(open)"
_RENAMED = (
    "from dataclasses import dataclass, field, fields\nheld = []\nclass K:\n    def k(self, x):\n"
    "        held.append(x)\n"
    "{first}\n@dataclass(init=False, repr=False)\nclass B(A):\n    pass\nB() == B()\nfound = held[0]"
)
_A = "@dataclass(init=False, repr=False)\nclass A(K):\n    x: int = 1\n"

DEEP_ROUTES: dict[str, str] = {
    # -- keys that take hold of a class they are compared with
    "key of a table": _KEY + "x = {K(): 1}[type(int)]\nfound = held[0]",
    "key put into a table": _KEY + "T = {int: 1}\nT[K()] = 2\nx = T[type(int)]\nfound = held[0]",
    "key of a table by another name": _KEY + "T = U = {int: 1}\nU[K()] = 2\nx = T.get(type(int))\nfound = held[0]",
    # -- a name that an except clause binds, and something else
    "error's name bound as a global": "def g():\n    global e\n    e = int\ntry:\n    1 / 0\n"
    "except ArithmeticError as e:\n    g()\n    found = type(e)",
    # -- the class of classes
    "class of a class": "found = (1).__class__.__class__",
    "class of a class by its caller": "class C:\n    def m(self, x):\n        return type(self)(x)\n"
    "found = C.m(int, int)",
    "class of a class by a pattern": "match int:\n    case object(__class__=found):\n        pass",
    "class of a class by getattr": "found = getattr(int, '__class__')",
    "class of a class by attrgetter": "from operator import attrgetter\n"
    "found = attrgetter('real.__class__.__class__')(1)",
    "class made by ABCMeta": "from abc import ABCMeta\nfound = ABCMeta('M', (), {'t': ABCMeta}).t",
    "class made by EnumMeta": "import enum\nfound = enum.EnumMeta",
    "type given to a class's index": _BOX.format(dunder="__class_getitem__") + "found = Box[type]",
    "type given to a comparison": _BOX.format(dunder="__eq__") + "found = Box() == type",
    "type given to a membership test": _SPY
    + "class Box:\n    def __contains__(self, x):\n        return keep(x)\ntype in Box()\nfound = held[0]",
    "type given to a slice": _BOX.format(dunder="__getitem__") + "found = Box()[type:1].start",
    "type in an annotation with an index": _BOX.format(dunder="__getitem__")
    + _SPY
    + "box = Box()\nx: keep(box[type])\nfound = held[0]",
    "type in an annotation with an operator": _SPY
    + "class Box:\n    def __or__(self, x):\n        return keep(x)\nbox = Box()\ndef f(x: box | type):\n    pass\n"
    "found = held[0]",
    "type in an annotation read back": "import inspect\ndef f(x: type):\n    pass\n"
    "found = inspect.signature(f).parameters['x'].annotation",
    "type by a module's getattr": "def __getattr__(name):\n    return type\nfound = __getattr__('x')",
    # -- names chosen at run time
    "pattern by a named tuple of a chosen name": _BY_PATTERN.format(
        made="from collections import namedtuple\nfrom abc import ABCMeta\n"
        "class C(namedtuple('B', N), metaclass=ABCMeta):\n    pass"
    ),
    "pattern by a typed tuple of a chosen name": _BY_PATTERN.format(
        made="from typing import NamedTuple\nfrom abc import ABCMeta\n"
        "class C(NamedTuple('B', [(N, int)]), metaclass=ABCMeta):\n    pass"
    ),
    "pattern by an enum of a chosen name": "import enum\nN = "
    + _chosen("__match_args__")
    + "\nE = enum.Enum('E', {'A': 1, N: ('__class__',)})\nmatch E.A:\n    case E(found):\n"
    "        found = found.__class__",
    "pattern by a renamed setattr": _BY_PATTERN.format(
        made="from abc import ABCMeta\nclass C(metaclass=ABCMeta):\n    pass\n"
        "setattr(C, " + _chosen("__match_args__") + ", (N,))"
    ),
    "field renamed where it is made": _RENAMED.format(
        first="g = field(default=1)\n" + _A.replace("= 1", "= g") + f"g.name = {_NAME!r}"
    ),
    "field renamed by a method": _RENAMED.format(
        first=_A + "class C:\n    def __init__(self, n):\n        self.name = n\n"
        f"C.__init__(list(fields(A))[0], {_NAME!r})"
    ),
    "field renamed in a loop": _RENAMED.format(first=_A + f"for one in fields(A):\n    one.name = {_NAME!r}"),
    "field renamed by a walrus": _RENAMED.format(first=_A + f"[two := one for one in fields(A)]\ntwo.name = {_NAME!r}"),
    "field renamed after a loop": _RENAMED.format(
        first=_A + f"for one in fields(A):\n    pass\ntwo = one\ntwo.name = {_NAME!r}"
    ),
    "field renamed through a class's name": _RENAMED.format(
        first=_A + f"class C:\n    for one in fields(A):\n        pass\nC.one.name = {_NAME!r}"
    ),
    "field renamed by a function's global": _RENAMED.format(
        first=_A + "def see():\n    global one\n    for one in fields(A):\n        pass\nsee()\n"
        f"def turn(x):\n    x.name = {_NAME!r}\nturn(one)"
    ),
    "field renamed by a class body": _RENAMED.format(
        first="kept = []\n" + _A.replace("= 1", "= field(default=1)") + f"    kept.append(x)\nkept[0].name = {_NAME!r}"
    ),
    "field renamed by set_name": _RENAMED.format(
        first="kept = []\nclass See:\n    def __set_name__(self, owner, name):\n        kept.append(owner.x)\n"
        + _A.replace("= 1", "= field(default=1)\n    see = See()")
        + f"kept[0].name = {_NAME!r}"
    ),
    "field renamed by a child of Field": "from dataclasses import Field as found",
    "fields mapped": _RENAMED.format(first=_A + f"list(map(fields, [A]))[0][0].name = {_NAME!r}"),
    "typed dict of a chosen name": "from dataclasses import dataclass\nfrom typing import TypedDict\nheld = []\n"
    "class K:\n    def k(self, x):\n        held.append(x)\n"
    f"T = dataclass(init=False, repr=False)(TypedDict('T', {{{_NAME!r}: int}}))\nT.__eq__(K(), K())\nfound = held[0]"
    "\nT.__eq__(K(), K())",
    "attribute of an enum's property": "import enum\nfound = enum.property",
    # -- parts of standard classes
    "enum of a module's parts": "import enum\nE = enum.Enum._convert_('E', 'builtins', lambda n: n == 'open')\n"
    "found = E.open.value",
    "enum made by its own maker": "from enum import Enum\nfound = Enum._create_",
    "state of a warnings context": "import warnings, copy\nheld = []\nclass S(warnings.catch_warnings):\n"
    "    def __setstate__(self, state):\n        held.append(state)\ncopy.copy(S())\nfound = held[0]['_module']",
    "vars of a warnings context": "import warnings\nfound = vars(warnings.catch_warnings())['_module']",
    "attributes given to a hook": "import warnings, json\nheld = []\n"
    "json.dumps(warnings.catch_warnings().__dict__, default=held.append)\nfound = held[0]",
    "attributes given to an own str": "import warnings\ndef str(x):\n    return x\n"
    "found = str(warnings.catch_warnings().__dict__)['_module']",
    "attributes copied": "import warnings\nfound = dict(warnings.catch_warnings().__dict__)['_module']",
    "attributes of an exception's frame": "try:\n    1 / 0\nexcept Exception as e:\n"
    "    found = e.__traceback__.tb_next\n"
    "    found = e.__traceback__.tb_frame",
    "stream of the standard output": "import sys\nfound = type(sys.stdout.buffer.raw)",
    "object's setattr": "found = object.__setattr__",
    "object's setattr of a chosen name": _BY_PATTERN.format(
        made="from abc import ABCMeta\nclass C(metaclass=ABCMeta):\n    pass\n"
        "type.__setattr__(C, " + _chosen("__match_args__") + ", (N,))"
    ),
    # -- builtins replaced
    "import function of one's own by a star": _SPY
    + "match [1]:\n    case [*__builtins__]:\n        pass\nfound = keep(open) if 0 else open",
    "builtins by an except name": "try:\n    1 / 0\nexcept Exception as __spec__:\n"
    "    found = __spec__.__traceback__.tb_frame",
}

# Encodings that show a reader another text than the program gets.
CODECS: dict[str, str] = {
    "decode under an alias": "t = b'+ADEAMgAz-'.decode('u7')",
    "decode by a str": "t = str(b'+ADEAMgAz-', 'utf-7')",
    "decode as a value": "t = list(map(bytes.decode, [b'+ADEAMgAz-'], ['utf-7']))[0]",
    "punycode": "t = b'tda'.decode('punycode')",
    "unicode escapes": r"t = rb'\x31\x32'.decode('unicode_escape')",
    "punch cards": r"t = b'\xf1\xf2\xf3'.decode('cp037')",
    "encode by bytes": "t = bytes('123', 'cp500')",
}

# Standard helpers that read or write attributes by data: each reaches a forbidden object by a name made at run time.
DATA_ROUTES: dict[str, str] = {
    "annotations copied onto a class": "from functools import wraps\nfrom dataclasses import dataclass\nheld = []\n"
    "class Source:\n    pass\ns = Source()\nsetattr(s, " + _chosen("__annotations__") + f", {{{_NAME!r}: int}})\n"
    "class B:\n    def k(self, x):\n        held.append(x)\ntry:\n    wraps(s)(B)\nexcept AttributeError:\n    pass\n"
    "B = dataclass(init=False, repr=False)(B)\n"
    "B.__eq__(B(), B())\nfound = held[0]",
    "copy of a namespace": "import copy\nfrom types import SimpleNamespace\n" + _FUNCTION + "held = []\n"
    "n = SimpleNamespace(**{" + _chosen("__reduce_ex__") + ": lambda v: (held.append, (open,))})\ncopy.copy(n)\n"
    "found = held[0]",
    "the last handler's stream": "import logging\nfound = type(logging.lastResort.stream.buffer.raw)",
    "annotations copied onto a class that another decorator gives": "from abc import ABCMeta\n"
    "from functools import wraps\nfrom dataclasses import dataclass\nfrom types import SimpleNamespace\n"
    "held, own = [], []\ns = SimpleNamespace(**{"
    + _chosen("__annotations__")
    + f": {{{_NAME!r}: int}}}})\nclass Trap:\n"
    "    def __getattr__(self, name):\n        try:\n            @wraps(s)\n            @(lambda f: own[0]())\n"
    "            def g():\n                pass\n        except (AttributeError, IndexError):\n            pass\n"
    "        raise AttributeError(name)\n@dataclass(init=False, repr=False)\nclass B(metaclass=ABCMeta):\n"
    "    def get():\n        return __class__\n    own.append(get)\n    trap = Trap()\n    def k(self, x):\n"
    "        held.append(x)\nB() == B()\nfound = held[0]",
    "cached property of a chosen name": "import warnings\nfrom functools import cached_property\n"
    "class C(warnings.catch_warnings):\n    @cached_property\n    def x(self):\n        pass\n"
    "C.x.attrname = " + _chosen("_module") + "\nfound = C().x",
    "cached property whose name is a property": "import warnings\nfrom functools import cached_property\n"
    "names = ['x']\nclass P(cached_property):\n    def __init__(self, f):\n        self.func = f\n    @property\n"
    "    def attrname(self):\n        return names[-1]\nclass C(warnings.catch_warnings):\n    x = P(len)\n"
    "names.append(" + _chosen("_module") + ")\nfound = C().x",
}
