"""Word lists of the naming rules: what an agent may import and which names it may not touch.

An import allow-list alone confines nothing, because allowed modules re-export `os` and `sys`; so module names are
refused as attributes too (gate notes, section 3). The lists are part of the rules' version: change both together.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# -- imports: exact module names, because `logging.config` is not `logging`
MODULES = _words(
    """
    __future__ abc bisect calendar cmath collections collections.abc concurrent.futures contextlib copy csv dataclasses
    datetime decimal difflib enum fractions functools graphlib hashlib heapq hmac html itertools json json.decoder
    logging math numbers operator pprint queue random re secrets statistics string textwrap threading time traceback
    typing unicodedata urllib.parse uuid warnings zoneinfo
    """
)
# The agent's own world: the native SDK and the modules of SN15's interface, which the guest provides.
PACKAGES = ("arena_sdk", "src.agent")
# Modules that honest agents use in small part: allowed for these attributes only.
PARTS: dict[str, frozenset[str]] = {
    "ast": frozenset({"literal_eval"}),
    "inspect": frozenset({"cleandoc", "getdoc", "signature"}),
    "io": frozenset({"StringIO"}),
    "os": frozenset({"getenv", "path"}),
    "os.path": frozenset({"basename", "dirname", "exists", "join"}),
    "sys": frozenset({"maxsize", "stderr", "version_info"}),
    "types": frozenset({"MappingProxyType", "SimpleNamespace"}),
}
DECODERS = _words("base64 binascii bz2 codecs gzip lzma marshal pickle quopri shelve tarfile uu zipfile zlib")

# -- names
BUILTINS = _words(
    """
    eval exec compile __import__ globals locals vars breakpoint open __builtins__ __loader__ __spec__
    """
)
CALLED_BUILTINS = frozenset({"input"})  # a common variable name; calling it would read the guest's RPC channel
DYNAMIC = frozenset({"attrgetter", "delattr", "getattr", "methodcaller", "setattr"})

# -- attributes
DUNDERS = _words(
    """
    __abs__ __add__ __aenter__ __aexit__ __all__ __and__ __annotations__ __bool__ __call__ __class__ __contains__
    __delitem__ __doc__ __enter__ __eq__ __exit__ __float__ __format__ __future__ __ge__ __getitem__ __gt__ __hash__
    __iadd__ __init__ __int__ __iter__ __le__ __len__ __lt__ __main__ __missing__ __module__ __mul__ __name__ __ne__
    __neg__ __new__ __next__ __or__ __post_init__ __qualname__ __radd__ __repr__ __reversed__ __setitem__ __slots__
    __str__ __sub__ __truediv__ __version__
    """
)
ATTRIBUTES = _words(
    """
    ForwardRef _getframe ag_frame co_code cr_frame environ f_back f_builtins f_globals f_locals fromhex
    get_type_hints gi_frame meta_path mro popen tb_frame
    """
)
REEXPORTS = _words(
    """
    builtins codecs ctypes gc importlib linecache marshal multiprocessing os pickle posix runpy shutil socket
    subprocess sys
    """
)
# Also plausible names of an agent's own fields: refused on an imported module, looked at elsewhere.
DOUBTFUL_REEXPORTS = frozenset({"inspect", "io", "tokenize"})
