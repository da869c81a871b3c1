"""Text codecs: one that shows a reader another text than the program gets is a decoder of hidden data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from encodings.aliases import aliases

from arena.gate.capabilities.folding import fold
from arena.gate.capabilities.scopes import Scopes
from arena.gate.report import Finding, finding

_SEPARATORS = re.compile(r"[-_ .]+")
_PLAIN = frozenset(
    {"ascii", "usascii", "utf8", "u8", "utf8sig", "latin1", "latin", "l1", "iso88591", "cp1252", "windows1252"}
)
_ESCAPES = frozenset({"unicodeescape", "rawunicodeescape"})
# ASCII text comes out as other text: nobody stores prompts or pages in these.
_HIDING = frozenset({"utf_7", "punycode", "cp037", "cp273", "cp424", "cp500", "cp875", "cp1026", "cp1140"})
_HIDING_MODULES = {_SEPARATORS.sub("", name): name for name in _HIDING}
_CODECS = {_SEPARATORS.sub("", name): module for name, module in aliases.items()}
_CODECS |= {_SEPARATORS.sub("", module): module for module in aliases.values()} | _HIDING_MODULES
_CODECS |= {name: name for name in _ESCAPES} | {"idna": "idna"}
_METHODS = frozenset({"decode", "encode"})
_BUILTINS = frozenset({"bytearray", "bytes", "str"})
_ADDRESSES = frozenset({"parse_qs", "parse_qsl", "quote", "quote_plus", "unquote", "unquote_plus", "urlencode"})
_LOWER = bytes(range(256)).lower()
_NAMING = _BUILTINS | _ADDRESSES
# Words that name a codec wherever they stand.
_SPOKEN = frozenset(word.encode() for word in {"utf7", "unicode11utf7", *_ESCAPES})


def call_findings(node: ast.Call, scopes: Scopes, *, is_codec_only: bool) -> Iterator[Finding]:
    """The codec that a call decodes or encodes by.

    `is_codec_only`: nothing else in the file is called `decode`, so that any argument of it names a codec.
    """
    meaning = scopes.meaning(node.func)
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if method not in _METHODS and not node.keywords and (meaning is None or meaning.part not in _NAMING):
        return
    is_builtin = meaning is not None and not meaning.module and meaning.part in _BUILTINS
    is_address = meaning is not None and meaning.module == "urllib.parse" and meaning.part in _ADDRESSES
    named = [keyword.value for keyword in node.keywords if keyword.arg == "encoding"]
    if method in _METHODS and meaning is None:
        place = 1 if isinstance(node.func, ast.Attribute) and is_text_type(node.func.value, scopes) else 0
        for argument in node.args[place : place + 1]:
            yield from _codec(
                argument, node.lineno, scopes, is_surely=(is_codec_only and method == "decode") or place == 1
            )
    elif is_builtin or is_address:
        for argument in node.args[1:]:
            yield from _codec(argument, node.lineno, scopes, is_surely=is_builtin)
    elif meaning is None or meaning.part == "dict":
        named = [value for value in named if fold(value) is not None]
    if any(keyword.arg is None for keyword in node.keywords) and (is_builtin or (method in _METHODS and is_codec_only)):
        yield finding("codec", node.lineno, "options that aren't constants")
    for value in named:
        yield from _codec(value, node.lineno, scopes, is_surely=True)


def is_text_type(node: ast.AST, scopes: Scopes) -> bool:
    """Whether a name is `bytes`, `bytearray` or `str`, so that a method of it takes the text first."""
    meaning = scopes.meaning(node)
    return meaning is not None and not meaning.module and meaning.part in _BUILTINS


def is_spoken_codec(text: bytes) -> bool:
    """Whether a whole literal, as UTF-8, is the name of a decoder."""
    return text.translate(_LOWER, b"-_ .") in _SPOKEN


def _codec(argument: ast.expr, line: int, scopes: Scopes, *, is_surely: bool) -> Iterator[Finding]:
    for value in scopes.only_values(argument) or [argument]:
        text = fold(value)
        if text is None:
            if is_surely:
                yield finding("codec", line, "a codec whose name isn't a constant")
            continue
        name = _normal(text) if len(text) <= 40 else ""
        if name in _CODECS and name not in _PLAIN:
            is_hiding = _CODECS[name] in _HIDING
            yield finding("decoder-import" if is_hiding else "codec", line, f"codec {text}")


def _normal(text: str) -> str:
    return _SEPARATORS.sub("", text.lower())
