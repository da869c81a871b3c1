"""What honest agents write every day, next to the capability rules: none of it leads to a forbidden object."""

from __future__ import annotations

_DATA = "from dataclasses import asdict, dataclass, field, fields, replace\n"
_TRY = "try:\n    x = 1 / 0\nexcept Exception as e:\n    "

IDIOMS: dict[str, str] = {
    # -- what SN15's image has and an agent does not need (the guest's `sn15` has stand-ins)
    "requests": "import requests\nfrom requests.exceptions import Timeout\ndef f(u):\n    try:\n"
    "        return requests.post(u, json={}, timeout=5).json()\n    except (Timeout, requests.RequestException):\n"
    "        return requests.Session().get(u)",
    "urllib": "import urllib.error, urllib.request as r\ndef f(u):\n    try:\n"
    "        return r.urlopen(r.Request(u)).read()\n    except urllib.error.URLError as e:\n        return e.reason",
    "environment": "import os\nfrom os import environ\nx = os.environ.get('MODEL', 'm')\ny = environ['A'] "
    "if 'A' in os.environ else None\nos.environ['B'] = 'c'\nos.environ.setdefault('D', 'e')",
    "log file": "import logging\nlogging.basicConfig(filename='agent.log')\nh = logging.FileHandler('a', mode='a')\n"
    "logging.getLogger().addHandler(h)",
    "log level": "import logging\nfrom os import getenv\na = getattr(logging, getenv('L', 'INFO').upper(), 20)\n"
    "def f(l):\n    return getattr(logging, str(l).upper(), logging.INFO)",
    "part of a module by its name": "import math\nfrom src.agent import proxy_client\nx = getattr(math, 'prod')\n"
    "y = getattr(proxy_client, 'RequestLog', None)",
    "own constant by its name": "MODEL = 'm'\nx = globals().get('MODEL', 'n')",
    "asyncio": "import asyncio\nasync def one(n, s):\n    async with s:\n        await asyncio.sleep(0)\n"
    "        return await asyncio.to_thread(len, 'abc')\nasync def all_of():\n    s = asyncio.Semaphore(4)\n"
    "    return await asyncio.gather(*(asyncio.wait_for(one(n, s), 5) for n in range(3)))\n"
    "def f():\n    return asyncio.run(all_of())",
    # -- failures and logs
    "print_exception": "import traceback\n" + _TRY + "traceback.print_exception(type(e), e, e.__traceback__)",
    "format_exception": "import traceback\n"
    + _TRY
    + "t = ''.join(traceback.format_exception(type(e), e, e.__traceback__))",
    "format_exception of one": "import traceback\n" + _TRY + "t = traceback.format_exception(e)",
    "format_exc": "import traceback\n" + _TRY + "print(traceback.format_exc())",
    "print_exc to stderr": "import sys, traceback\n" + _TRY + "traceback.print_exc(file=sys.stderr)",
    "format_tb": "import traceback\n" + _TRY + "tb = e.__traceback__\n    print(traceback.format_tb(tb))",
    "with_traceback": _TRY + "raise ValueError('x').with_traceback(e.__traceback__) from e",
    "cause": _TRY + "print(e.__cause__ or e.__context__)",
    "class of an error passed on": "import logging\nlog = logging.getLogger(__name__)\nseen = []\n"
    + _TRY
    + "log.error('%s', type(e))\n    seen.append(type(e))",
    "class printed": "def f(x):\n    print(type(x), 'a')\n    raise TypeError(f'{type(x)}')",
    "raise of the same class": _TRY + "raise type(e)(f'while searching: {e}') from e",
    "basicConfig with handlers": "import logging, sys\n"
    "logging.basicConfig(level=logging.DEBUG, handlers=[logging.StreamHandler(sys.stdout)], force=True)",
    "logger": "import logging\nlog = logging.getLogger(__name__)\nlog.info('%s of %d', 'a', 3)\nlog.exception('x')",
    "own formatter": "import json, logging\nclass F(logging.Formatter):\n    def format(self, record):\n"
    "        return json.dumps({'at': record.created, 'text': record.getMessage()})",
    "flush": "import sys\nprint('x', flush=True)\nsys.stdout.flush()\nsys.stderr.write('x')",
    "warnings": "import warnings\nwarnings.filterwarnings('ignore')\nwith warnings.catch_warnings():\n"
    "    warnings.simplefilter('ignore')",
    # -- the file as a program
    "main": "if __name__ == '__main__':\n    print(agent_main({}))",
    "main with an exit": "import sys\ndef main():\n    return 0\nif __name__ == '__main__':\n    sys.exit(main())",
    "version": "import sys\nNEW = sys.version_info >= (3, 11)\n__version__ = '1.0'\n__all__ = ['agent_main']",
    "future": "from __future__ import annotations\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
    "    from typing import Any",
    # -- objects
    "attributes as JSON": "import json\nclass A:\n    def text(self):\n"
    "        return json.dumps(self.__dict__, indent=2, default=str)",
    "attributes of another as JSON": "import json\ndef show(o):\n    return json.dumps(o.__dict__)",
    "attributes in a text": "class A:\n    def __repr__(self):\n"
    "        return f'A({self.__dict__})' + str(self.__dict__)",
    "vars in a text": "import json\ndef show(o):\n    print(vars(o))\n    return json.dumps(vars(o), sort_keys=True)",
    "names of attributes": "def names(o):\n"
    "    return sorted(o.__dict__), list(vars(o)), 'price' in o.__dict__, len(o.__dict__)",
    "loop over attributes": "def names(o):\n    for name in o.__dict__:\n        print(name)\n"
    "    return [n for n in vars(o)]",
    "class name of self": "class A:\n    def __repr__(self):\n"
    "        return f'<{self.__class__.__name__} {type(self).__qualname__}>'",
    "type's name": "def f(x):\n    return type(x).__name__, '{}'.format(type(x)), 'a %s' % type(x)",
    "class kept for a while": "class A:\n    count = 0\n    def f(self):\n        cls = type(self)\n"
    "        return cls.count, cls.__name__",
    "class attribute through self": "class A:\n    count = 0\n    def f(self):\n"
    "        self.__class__.count += 1\n        return type(self).count",
    "table by class": "def a(x):\n    return x\nclass A:\n    pass\n"
    "HANDLERS = {int: a, str: a, A: a, type(None): a}\ndef f(x):\n"
    "    if type(x) in HANDLERS:\n        return HANDLERS[type(x)](x)\n    return HANDLERS.get(type(x), a)(x)",
    "table by class on the spot": "def f(x):\n    names = {int: 'i', str: 's'}\n"
    "    return names[type(x)], {int: 'i', str: 's'}.get(type(x), 'o')",
    "type of None": "def f(x):\n    return isinstance(x, (str, type(None)))",
    "isinstance of type": "def f(x):\n    return isinstance(x, type) and issubclass(x, Exception)",
    "copy of the own class": "class A:\n    def __init__(self, items=(), size=0):\n        self.items = list(items)\n"
    "    def copy(self):\n        return type(self)(list(self.items), 2), self.__class__([*self.items]), type(self)()",
    "super": "class A:\n    def __init__(self, x):\n        self.x = x\nclass B(A):\n    def __init__(self, x):\n"
    "        super().__init__(x)\n        super(B, self).__init__(x)\n        A.__init__(self, x)\n"
    "class E(Exception):\n"
    "    def __init__(self, x):\n        Exception.__init__(self, x)",
    "constant getattr": "def f(x):\n    return getattr(x, 'price', None), hasattr(x, 'title')",
    "constant setattr": "def f(x):\n    setattr(x, 'price', 1)",
    "attribute access of one's own": "class O:\n    def __getattr__(self, name):\n"
    "        return getattr(self._inner, name)\nclass D(dict):\n    def __getattr__(self, name):\n        try:\n"
    "            return self[name]\n"
    "        except KeyError:\n            raise AttributeError(name) from None",
    "setattr of one's own": "class A:\n    def __setattr__(self, name, value):\n        if name == 'x':\n"
    "            value = 1\n"
    "        super().__setattr__(name, value)",
    "setattr by object": "class A:\n    def __setattr__(self, key, value):\n"
    "        object.__setattr__(self, key, value)",
    "context manager": "from types import TracebackType\nclass T:\n    def __enter__(self):\n        return self\n"
    "    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb:"
    " TracebackType | None) -> None:\n"
    "        print(kind, value)",
    "property": "class A:\n    @property\n    def x(self):\n        return self._x\n    @x.setter\n"
    "    def x(self, value):\n        self._x = value",
    "singleton": "class A:\n    _one = None\n    def __new__(cls):\n        if cls._one is None:\n"
    "            cls._one = super().__new__(cls)\n        return cls._one",
    "abstract base": "from abc import ABC, abstractmethod\nclass A(ABC):\n    @abstractmethod\n    def run(self): ...",
    "protocol": "from typing import Protocol, runtime_checkable\n@runtime_checkable\nclass P(Protocol):\n"
    "    def run(self) -> None: ...",
    # -- data classes, enums, tuples
    "dataclass": _DATA + "@dataclass\nclass A:\n    x: int = 0\n    y: list[str] = field(default_factory=list)\n"
    "    z: dict = field(default_factory=lambda: {'a': 1}, repr=False)\na = asdict(replace(A(), x=2))",
    "frozen dataclass": _DATA + "@dataclass(frozen=True)\nclass A:\n    x: str = ''\n    def __post_init__(self):\n"
    "        object.__setattr__(self, 'x', self.x.strip())",
    "fields named": _DATA + "@dataclass\nclass A:\n    x: int = 0\n    @classmethod\n    def of(cls, d):\n"
    "        known = {f.name for f in fields(cls)}\n        return cls(**{k: v for k, v in d.items() if k in known})",
    "fields in a loop": _DATA
    + "def show(a):\n    for one in fields(a):\n        print(one.name, one.default)\n    return len(fields(a))",
    "dataclass in a class": _DATA + "class B:\n    @dataclass\n    class A:\n        x: int = field(default=0)",
    "dataclass with a name of its own": _DATA
    + "@dataclass\nclass A:\n    name: str = ''\n    def rename(self, name):\n        self.name = name",
    "named tuple": "from collections import namedtuple\nfrom typing import NamedTuple\nP = namedtuple('P', 'x y')\n"
    "Q = namedtuple('Q', ['x', 'y'], defaults=[0])\nclass R(NamedTuple):\n    x: int\n    y: str = ''\n"
    "S = NamedTuple('S', [('x', int)])\nx = R(1)._replace(y='b')._asdict()",
    "typed dict": "from typing import TypedDict\nclass A(TypedDict, total=False):\n    x: int\n"
    "B = TypedDict('B', {'in-stock': bool})",
    "enum": "from enum import Enum, IntEnum, auto\nclass C(str, Enum):\n    A = 'a'\n    B = 'b'\n"
    "class N(IntEnum):\n    X = auto()\n"
    "x = C('a').value, C['A'].name, [c.value for c in C], isinstance(C.A, Enum)\nD = Enum('D', 'X Y')",
    "match by class": _DATA
    + "@dataclass\nclass P:\n    x: int\n    y: int\ndef f(v):\n    match v:\n        case P(x, y):\n"
    "            return x + y\n"
    "        case int(n) | float(n):\n            return n\n        case str():\n            return v\n"
    "        case {'a': a, **rest}:\n            return a, rest\n"
    "        case P(x=0):\n            return 0\n        case [first, *_]:\n            return first",
    # -- functions
    "wraps": "import functools\ndef retry(f):\n    @functools.wraps(f)\n    def g(*a, **k):\n"
    "        return f(*a, **k)\n    return g",
    "cache": "from functools import cached_property, lru_cache, partial, reduce\n@lru_cache(maxsize=None)\n"
    "def f(x):\n    return x\n"
    "p = partial(f, 1)\nx = reduce(lambda a, b: a + b, [1, 2], 0)\n"
    "class C:\n    @cached_property\n    def y(self):\n        return 1",
    "name of a function": "def timed(f):\n    print(f.__name__, f.__doc__, f.__module__)\n    return f",
    "key functions": "import operator\nrows = sorted([{'p': 1}], key=operator.itemgetter('p'))\n"
    "x = max([], key=operator.attrgetter('price'), default=None)",
    "schema of a function": "import inspect\ndef schema(f):\n    p = inspect.signature(f).parameters\n"
    "    return {n: {'type': {int: 'integer', str: 'string'}.get(v.annotation, 'object')} for n, v in"
    " p.items()}, inspect.getdoc(f)",
    "union types": "from types import NoneType, UnionType\nfrom typing import Union, get_args, get_origin\n"
    "def is_optional(a):\n    return get_origin(a) in (Union, UnionType) and NoneType in get_args(a)",
    "types in annotations": "from typing import Any, Callable, Optional, Type\nfrom enum import Enum\n"
    "def f(a: type, b: type[int] | None, c: Optional[Type[Exception]], d: Callable[..., Any], e: Enum)"
    " -> dict[str, type]:\n    return {}",
    "generator": "def f():\n    yield from range(3)\nx = next(f(), None)",
    "threads": "import threading\nfrom concurrent.futures import ThreadPoolExecutor, as_completed\n"
    "lock = threading.Lock()\n"
    "with ThreadPoolExecutor(max_workers=4) as pool:\n"
    "    done = [f.result() for f in as_completed([pool.submit(len, 'a')])]",
    # -- texts
    "utf-8": "x = 'é'.encode('utf-8').decode('utf-8', errors='ignore').encode('ascii', 'ignore').decode()",
    "bytes of a text": "x = bytes('é', 'utf-8') + 'a'.encode(encoding='utf-8')\ny = str(x, 'utf-8')",
    "latin": "def f(b):\n    return b.decode('latin-1')",
    "codec by name": "ENCODING = 'utf-8'\ndef f(b):\n    for name in ('utf-8', 'latin-1'):\n        try:\n"
    "            return b.decode(name)\n        except UnicodeDecodeError:\n            pass\n"
    "    return b.decode(ENCODING), dict(encoding=f)",
    "hash of a text": "import hashlib\nx = hashlib.sha256('a'.encode('utf-8')).hexdigest()[:8]",
    "json decoder": "import json\nx = json.JSONDecoder().raw_decode('[1] tail')\ntry:\n"
    "    y = json.loads('{')\nexcept json.JSONDecodeError as e:\n    y = e.msg, e.pos",
    "decode of a variable": "import json\ndecoder = json.JSONDecoder()\ndef f(text):\n    return decoder.decode(text)",
    "regular expressions": "import re\nP = re.compile(r'(?P<price>\\d{1,3}(?:,\\d{3})*(?:\\.\\d{2})?)\\s*"
    "(?:php|pesos?|₱)', re.IGNORECASE | re.VERBOSE)\n"
    "x = P.sub(lambda m: m.group('price'), 'a')",
    "prompt with fields": "P = 'Query: {query}\\nHistory: {history[0]} {user.name}'\n"
    "x = P.format(query='a', history=['b'], user=None)",
    "template": "from string import Template\nx = Template('$a of $b').safe_substitute(a=1)",
    "address": "from urllib.parse import parse_qs, quote_plus, unquote, urlparse\n"
    "x = unquote(quote_plus('a b')), parse_qs('a=1')",
    "entities": "import html, unicodedata\nx = html.unescape('&amp;'), unicodedata.normalize('NFKD', 'é')",
    "literal_eval": "import ast\nx = ast.literal_eval('[1, 2]')",
    "getenv": "import os\nMODEL = os.getenv('MODEL', 'x')",
    "time": "import time, datetime, random, math, uuid\n"
    "x = time.time(), datetime.datetime.now().isoformat(), random.choice([1]), uuid.uuid4().hex",
    "encode of a model": "class Tokenizer:\n    def encode(self, text):\n        return [1]\n"
    "x = Tokenizer().encode('hello world')",
}

# Safe in honest hands, but nothing in the file shows whose: what to write in their place stands in the gate's README.
NOT_ALLOWED: dict[str, str] = {
    "update of attributes": "class A:\n    def __init__(self, **k):\n        self.__dict__.update(k)",
    "field in an annotation": "from dataclasses import Field\ndef f(x: Field) -> str:\n    return x.name",
    "class returned": "class A:\n    def f(self):\n        return type(self)",
    "chosen attribute of another": "class A:\n    def __getattr__(self, name):\n        name = 'x' + name\n"
    "        return getattr(self._inner, name)",
    "constant of a module replaced": "import math\nmath.pi = 3",
    "decorator by its name": "import dataclasses\nmake = getattr(dataclasses, 'dataclass')",
    "setter as a value": "put = object.__setattr__",
    "registry of children": "class A:\n    known = {}\n    def __init_subclass__(cls, **k):\n"
    "        super().__init_subclass__(**k)",
    "environment of anything": "def f(x):\n    return x.environ",
    "frames of a task": "def f(x):\n    return x.get_stack()",
    "log level of anything": "import logging\ndef f(x):\n    return getattr(logging, x.upper(), 20)",
    "capitals of another module": "import random\nx = getattr(random, str('_os').upper())",
    "own name by its name": "import json\nx = globals().get('json')",
    "name bound twice by its name": "def f():\n    global A\n    import json as A\nA = 1\nx = globals().get('A')",
    "escapes undone": "def f(t):\n    return t.encode().decode('unicode_escape')",
    "positional pattern of a child": "class A:\n    __slots__ = ('x',)\nclass B(A):\n    pass\ndef f(v):\n"
    "    match v:\n        case B(x):\n            return x",
}
