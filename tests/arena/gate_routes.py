"""Every kind of route from an agent's syntax to a forbidden object. Each program really gets hold of it, as `found`."""

from __future__ import annotations

_FUNCTION = "def f(a=None):\n    return a\n"
_GENERATOR = "def g():\n    yield 1\nit = g()\n"
_CLASS_OF_ANYTHING = (
    "class Meta(type):\n    def __instancecheck__(cls, other):\n        return True\n"
    "class Any_(metaclass=Meta):\n    __match_args__ = ({name!r},)\n"
)
_FAILED = "class C:\n    def __init__(self):\n        pass\n"

ROUTES: dict[str, str] = {
    # -- builtins by name
    "exec": "found = exec",
    "import function": "found = __import__",
    "globals": "found = globals",
    "vars called": "found = vars()",
    # -- getattr and its kind as values
    "getattr of a turned text": _FUNCTION + "found = getattr(f, '__slabolg__'[::-1])",
    "getattr under another name": _FUNCTION + "def h(g, n):\n    return g(f, n)\nfound = h(getattr, '__globals__')",
    "attrgetter by its module": _FUNCTION + "import operator\nfound = operator.attrgetter('__globals__')(f)",
    "attrgetter as a value": _FUNCTION + "import operator\na = operator.attrgetter\nfound = a('__globals__')(f)",
    "attrgetter starred": _FUNCTION + "from operator import attrgetter\nfound = attrgetter(*['__globals__'])(f)",
    "super's getattribute": "class C:\n    def m(self):\n        return super().__getattribute__('__dict__')\n"
    "c = C()\nc.os = eval\nfound = c.m()['os']",
    "type's getattribute": "found = type.__getattribute__(object, '__subclasses__')",
    # -- attributes
    "globals of a constructor": _FAILED + "found = C.__init__.__globals__",
    "subclasses": "found = ().__class__.__base__.__subclasses__()",
    "bases": "found = ().__class__.__bases__[0].__subclasses__()",
    "mro method": "found = int.mro()[-1].__subclasses__()",
    "dict of a module": "import json\nfound = json.__dict__",
    "dict of a class": "import random\nclass C:\n    m = random._os\nfound = C.__dict__['m']",
    "spec of a module": "import json\nfound = json.__spec__",
    "traceback in an exit": "class C:\n    def __enter__(self):\n        return self\n"
    "    def __exit__(self, kind, value, tb):\n        global found\n        found = tb.tb_frame\n        return True\n"
    "with C():\n    1 / 0",
    "wrapped function": "from functools import wraps\n@wraps(eval)\ndef f():\n    pass\nfound = f.__wrapped__",
    "object of a look-up by a made text": _FAILED + "t = ''.join(['{0.__ini', 't__.__glo', 'bals__.nothing}'])\n"
    "try:\n    t.format(C())\nexcept AttributeError as e:\n    found = e.obj",
    "type of a raw file": "import sys\nfound = type(sys.stderr.buffer.raw)",
    # -- patterns
    "class pattern on a generator": _GENERATOR + "match it:\n    case object(gi_frame=found):\n        pass",
    "class pattern by match_args": _FUNCTION
    + _CLASS_OF_ANYTHING.format(name="__globals__")
    + "match f:\n    case Any_(found):\n        pass",
    "class pattern by a dataclass": _GENERATOR + "from dataclasses import dataclass\nfrom abc import ABC\n"
    "@dataclass\nclass C(ABC):\n    gi_frame: object\nC.register(type(it))\nmatch it:\n"
    "    case C(found):\n        pass",
    "class pattern by a named tuple": _GENERATOR + "from collections import namedtuple\nfrom abc import ABC\n"
    "class C(namedtuple('B', 'gi_frame'), metaclass=type('M', (type(ABC),), {})):\n    pass\n"
    "C.register(type(it))\nmatch it:\n    case C(found):\n        pass",
    "mapping pattern": _FUNCTION + "match f.__globals__:\n    case {'f': found}:\n        found = found.__code__",
    # -- formats
    "formatter's field": _FUNCTION + "import string\nfound = string.Formatter().get_field('0.__globals__', [f], {})[0]",
    "formatter imported": _FUNCTION
    + "from string import Formatter\nfound = Formatter().get_field('0.__globals__', [f], {})[0]",
    "format of a class": "found = '{0.__class__}'.format(eval)\nfound = eval",
    "str.format as a value": _FUNCTION + "try:\n    list(map(str.format, ['{0.__globals__.x}'], [f]))\n"
    "except AttributeError as e:\n    found = e.obj",
    # -- imports
    "import os": "import os\nfound = os.execv",
    "import sys": "import sys\nfound = sys.modules",
    "import builtins": "import builtins\nfound = builtins.eval",
    "import importlib": "import importlib\nfound = importlib.import_module",
    "import base64": "import base64\nfound = base64",
    "from os": "from os import execv as found",
    "from the sdk": "from arena_sdk.llm import _link\nfound = _link.__builtins__",
    "import star": "from random import *\nimport random\nfound = random._os",
    # -- modules through modules
    "os by its path": "import os.path\nfound = os.path.genericpath.os",
    "sdk's modules": "import arena_sdk\nfound = arena_sdk.tools.json",
    "sn15's base64": "import sn15\nsn15.install()\nimport src.agent.agent_interface as a\nfound = a.base64",
    "sn15's os": "import sn15\nsn15.install()\nfrom src.agent import proxy_client\nfound = proxy_client.os.environ",
    "module as a value": "import random\nm = random\nfound = m._os",
    "module in a container": "import typing\nfound = [typing][0].sys",
    "module given to an operator": "import typing\nclass C:\n    def __eq__(self, other):\n        return other\n"
    "found = (C() == typing).sys",
    "module by getattr": "import random\nfound = getattr(random, '_os')",
    "one name for two modules": "import os as m\nimport random as m\nfound = m._os",
    # -- what evaluates texts
    "type hints": "from typing import get_type_hints\ndef f(x: 'eval'):\n    pass\nfound = get_type_hints(f)['x']",
    "forward reference": "import typing\nr = typing.ForwardRef('eval')\nfound = r._evaluate(None, None, frozenset())",
    "forward reference of an optional": "import typing\nr = typing.List['open'].__args__[0]\n"
    "found = r._evaluate(None, None, frozenset())",
    "signature that evaluates": "import inspect\ndef f(x: '__import__'):\n    pass\n"
    "found = inspect.signature(f, eval_str=True).parameters['x'].annotation",
    "signature as a value": "import inspect\nfrom functools import partial\ndef f(x: 'open'):\n    pass\n"
    "k = 'eval' + '_' + 'str'\nfound = partial(inspect.signature, **{k: True})(f).parameters['x'].annotation",
    "text signature of a class": "import inspect\nclass C:\n    __text_signature__ = '(x=open)'\n"
    "    __signature__ = None\n"
    ""
    "found = open",
    "single dispatch": "from functools import singledispatch\n@singledispatch\ndef f(x):\n    pass\n"
    "class K:\n    pass\nheld = []\ntry:\n    @f.register\n    def _(x: 'held.append(open) or K'):\n        pass\n"
    "except TypeError:\n    pass\nfound = held[0]",
    # -- classes that are made
    "init_subclass": "held = []\nclass B:\n    def __init_subclass__(cls, e):\n        held.append(e)\n"
    "class C(B, e=eval):\n    pass\nfound = held[0]",
    "class_getitem": "class B:\n    def __class_getitem__(cls, key):\n        return eval\nfound = B[0]",
    "prepared namespace": "class M(type):\n    @classmethod\n    def __prepare__(m, n, b):\n"
    "        return {'e': eval}\n"
    "class C(metaclass=M):\n    pass\nfound = C.e",
    "reduce": "import copy\nclass C:\n    def __reduce__(self):\n        return (lambda: eval, ())\n"
    "found = copy.copy(C())",
    "make_dataclass": "from dataclasses import make_dataclass\nC = make_dataclass('C', ['gi_frame'])\n"
    "found = C.__init__.__globals__",
    "namespace with a dunder": "from types import SimpleNamespace\n"
    "found = SimpleNamespace(__globals__=eval).__globals__",
    # -- files and frames through allowed modules
    "log file": "import logging\nfound = logging.io.open_code",
    "walked stack": "import traceback\ndef a():\n    return [frame for frame, _ in traceback.walk_stack(None)]\n"
    "found = (lambda: (lambda: (lambda: a())())())()[0]",
    "type of a function": "found = type(lambda: 0)('C', (), {}) if 0 else type((lambda: 0).__code__)",
    "name in a keyword": "def f(**k):\n    return k\nfound = f(__builtins__=eval)['__builtins__']",
    "names in a docstring-free text": _FUNCTION + "n = 'a __globals__ b'.split()[1]\nfound = getattr(f, n)",
    "names as bytes": _FUNCTION + "found = getattr(f, b'__globals__'.decode())",
    "names in a Global": "def f():\n    global __builtins__\n    return __builtins__\nfound = f()",
}
