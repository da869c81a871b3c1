"""Bytes to syntax tree: size, encoding, invisible characters, parsing, depth and the entry function.

Gate and guest see the same program. The bytes are decoded once as UTF-8, an encoding cookie or byte order mark
that could make another reader see other text is refused (`arena/gate/README.md`), and nothing is executed.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import unicodedata
import warnings
from collections.abc import Iterator

from arena.gate.report import FINDINGS_PER_RULE, Finding, finding
from arena.gate.tree import Tree
from arena.policy import GateRules

ENTRY = "agent_main"
_COOKIE = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.ASCII)
_NEWLINE = re.compile(r"\r\n|\r|\n")
_HIDDEN_CATEGORIES = frozenset({"Cf", "Co", "Cs"})
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def read_text(source: bytes, rules: GateRules) -> tuple[str, list[Finding]]:
    """The text of a source, or the finding that stops the inspection."""
    if len(source) > rules.source_bytes:
        return "", [finding("size", 0, f"{len(source)} bytes of {rules.source_bytes}")]
    if source.startswith(b"\xef\xbb\xbf"):
        return "", [finding("encoding", 1, "byte order mark")]
    try:
        text = source.decode("utf-8")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        return "", [finding("encoding", line, f"byte {source[error.start]:#04x}")]
    for line, content in enumerate(_NEWLINE.split(text, 2)[:2], 1):
        cookie = _COOKIE.match(content)
        if cookie and cookie[1].lower().replace("_", "-") not in ("utf-8", "utf8"):
            return "", [finding("encoding", line, f"encoding cookie {cookie[1]}")]
    return text, []


def parse(text: str, rules: GateRules) -> tuple[Tree | None, list[Finding]]:
    """The tree, and the findings on hidden characters, syntax, depth and entry.

    There is no tree when a finding stops the inspection.
    """
    found = list(hidden_characters(text))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a doubtful escape sequence is the miner's business
            module = ast.parse(text)
    except SyntaxError as error:
        return None, [*found, finding("parse", error.lineno or 0, error.msg)]
    except (ValueError, RecursionError, MemoryError) as error:
        return None, [*found, finding("parse", 0, type(error).__name__)]
    tree = Tree(module)
    if tree.depth > rules.ast_depth:
        return None, [*found, finding("depth", 0, f"{tree.depth} of {rules.ast_depth}")]
    defined = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == ENTRY]
    if not defined:
        return tree, [*found, finding("entry", 0, ENTRY)]
    arguments = defined[-1].args
    positional = arguments.posonlyargs + arguments.args
    required = len(positional) - len(arguments.defaults)
    keywords = sum(default is None for default in arguments.kw_defaults)
    if required > 1 or keywords or not (positional or arguments.vararg):
        found.append(finding("entry", defined[-1].lineno, f"{ENTRY} does not take exactly one argument"))
    return tree, found


def hidden_characters(text: str) -> Iterator[Finding]:
    """Findings on characters an editor does not show."""
    if text.isascii() and "\0" not in text:
        return
    if not any(map(_is_hidden, set(text))):
        return
    comments = _comment_columns(text)
    hits = 0
    for number, line in enumerate(text.split("\n"), 1):
        if line.isascii() and "\0" not in line:
            continue
        for column, character in enumerate(line):
            if not _is_hidden(character):
                continue
            is_comment = column >= comments.get(number, len(line)) and character not in _BIDI
            yield finding("invisible-comment" if is_comment else "invisible", number, f"U+{ord(character):04X}")
            hits += 1
            if hits == FINDINGS_PER_RULE:
                return


def _is_hidden(character: str) -> bool:
    return character == "\0" or unicodedata.category(character) in _HIDDEN_CATEGORIES


def _comment_columns(text: str) -> dict[int, int]:
    columns: dict[int, int] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                columns[token.start[0]] = token.start[1]
    except (tokenize.TokenError, SyntaxError, ValueError):
        return columns  # up to where the text can be read; what follows counts as code
    return columns
