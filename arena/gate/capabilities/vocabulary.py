"""Word lists of the capability rules: names, attributes and fields an agent may or may not touch.

What may be taken from which module stands in `modules.py`. The lists are part of the rules' version: change both
together.
"""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


DECODERS = _words("base64 binascii bz2 codecs gzip lzma marshal pickle quopri shelve tarfile uu zipfile zlib")

# -- names
BUILTINS = _words("eval exec compile __import__ globals locals vars breakpoint open __builtins__ __loader__ __spec__")
# Builtins with a plain word's name: refused where nothing of the file's own has taken the name.
COMMON_BUILTINS = _words("input help exit quit copyright credits license __build_class__")
# Builtins that find things by name: called on the spot with a constant, never handed on.
DIRECT_BUILTINS = _words("getattr setattr delattr super")
DYNAMIC_PARTS = {("operator", "attrgetter"), ("operator", "methodcaller")}

# -- attributes
DUNDERS = _words(
    """
    __abs__ __add__ __aenter__ __aexit__ __all__ __and__ __author__ __bool__ __call__ __cause__ __class__ __contains__
    __context__ __copyright__ __credits__ __date__ __debug__ __delitem__ __doc__ __email__ __enter__ __eq__ __exit__
    __file__ __float__ __format__ __future__ __ge__ __getitem__ __gt__ __hash__ __iadd__ __init__ __int__ __iter__
    __le__ __len__ __license__ __lt__ __main__ __maintainer__ __missing__ __module__ __mul__ __name__ __ne__ __neg__
    __new__ __next__ __or__ __package__ __post_init__ __qualname__ __radd__ __repr__ __reversed__ __setitem__
    __slots__ __status__ __str__ __sub__ __traceback__ __truediv__ __version__
    """
)
# A class may also define these: the interpreter calls them, and none leads anywhere by itself.
DEFINED_DUNDERS = DUNDERS | _words(
    """
    __aiter__ __anext__ __await__ __bytes__ __ceil__ __complex__ __copy__ __deepcopy__ __del__ __delattr__ __delete__
    __dir__ __divmod__ __floor__ __floordiv__ __get__ __getattr__ __getnewargs__ __getstate__ __iand__ __ifloordiv__
    __ilshift__ __imatmul__ __imod__ __imul__ __index__ __invert__ __ior__ __ipow__ __irshift__ __isub__ __itruediv__
    __ixor__ __length_hint__ __lshift__ __matmul__ __mod__ __pos__ __pow__ __rand__ __rdivmod__ __rfloordiv__
    __rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__ __round__ __rpow__ __rrshift__ __rshift__ __rsub__ __rtruediv__
    __rxor__ __set__ __setattr__ __sizeof__ __trunc__ __xor__
    """
)
# These see an object's attributes, or a class before it is finished: a person looks.
SEEING_DUNDERS = _words("__init_subclass__ __set_name__ __setstate__")
FRAMES = _words(
    """
    _evaluate _getframe ag_await ag_code ag_frame ag_running co_code co_consts co_names co_varnames cr_await cr_code
    cr_frame cr_origin eval_str f_back f_builtins f_code f_globals f_locals f_trace func_code func_globals gi_code
    gi_frame gi_yieldfrom tb_frame tb_lasti tb_next
    """
)
ATTRIBUTES = FRAMES | _words(
    """
    ForwardRef _convert_ _create_ _get_loop _module detach environ from_callable fromhex get_coro get_loop get_stack
    get_type_hints meta_path mro popen print_stack
    """
)
REEXPORTS = _words(
    """
    builtins codecs ctypes gc importlib linecache marshal multiprocessing os pickle posix runpy shutil socket
    subprocess sys
    """
)
# Modules in which no name in capitals is more than a number or a text: `getattr(logging, str(level).upper(), 20)`.
LEVELLED_MODULES = frozenset({"logging"})
# Plausible names of an agent's own fields that could also lead on: a module reached through another, the object that a
# failed look-up names, the raw file under a text stream.
DOUBTFUL_ATTRIBUTES = frozenset({"inspect", "io", "obj", "raw"})
HELD_ATTRIBUTES = frozenset({"_loop"})  # as written: what a waiting lock or task hangs on
METACLASSES = {("abc", "ABCMeta"), ("enum", "EnumMeta"), ("enum", "EnumType")}
# What makes classes whose attributes are named by texts: those must be constants.
ENUMS = {("enum", name) for name in _words("Enum IntEnum StrEnum ReprEnum Flag IntFlag")}
TUPLE_MAKERS = {("collections", "namedtuple"), ("typing", "NamedTuple"), ("typing", "TypedDict")}
# Builtins that tell of a class, or of an object's attributes, and hand neither on.
TELLING_BUILTINS = _words("bool callable format hasattr hash id isinstance issubclass len print repr str")
MATCHED_BUILTINS = _words("bool bytearray bytes dict float frozenset int list set str tuple")

# Dunders that lead on, when a text names one: to be handed to whatever looks things up by name.
LEADING_DUNDERS = _words(
    """
    __abstractmethods__ __annotations__ __base__ __bases__ __breakpointhook__ __build_class__ __builtins__
    __class_getitem__ __closure__ __code__ __dict__ __displayhook__ __excepthook__ __func__
    __getattribute__ __globals__ __import__ __init_subclass__ __instancecheck__ __kwdefaults__ __loader__
    __match_args__ __mro__ __mro_entries__ __objclass__ __prepare__ __reduce__ __reduce_ex__ __self__ __self_class__
    __signature__ __spec__ __stderr__ __stdin__ __stdout__ __subclasscheck__ __subclasses__ __subclasshook__
    __text_signature__ __thisclass__ __unraisablehook__ __wrapped__
    """
)

_DUNDER = re.compile(r"__[A-Za-z0-9]\w*?__(?![A-Za-z0-9])", re.ASCII)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def is_refused_attribute(name: str) -> bool:
    """A dunder outside the allow-list, or an attribute of frames, code objects and the process."""
    is_dunder = name.startswith("__") and name.endswith("__") and len(name) > 4
    return (is_dunder and name not in DUNDERS) or name in ATTRIBUTES


def refused_words(text: str) -> list[str]:
    """The refused dunders and frame attributes that stand as words in a text."""
    words = [word for word in _DUNDER.findall(text) if word in LEADING_DUNDERS] if "__" in text else []
    if "_" in text:
        words += [word for word in _WORD.findall(text) if word in FRAMES]
    return words
