"""Refused words in texts: a name that a program carries as a value can be given to whatever looks things up by name.

A literal that is such a word, or a format field that walks through one, is refused. A word in the middle of a longer
text is looked at: it may be documentation, or a list to be split. Docstrings may say what they like.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from arena.gate.answer_tables.literals import Literal
from arena.gate.capabilities.codings import is_spoken_codec
from arena.gate.capabilities.vocabulary import FRAMES, is_refused_attribute, refused_words
from arena.gate.report import Finding, finding

_CODEC_CHARS_MAX = 40
_FIELD = re.compile(r"\{[^{}]*")
_STEP = re.compile(r"[.\[]\s*([A-Za-z_]\w*)", re.ASCII)
_TELLING = frozenset({"__name__", "__qualname__", "__module__", "__doc__"})


def text_findings(literals: Iterable[Literal]) -> Iterator[Finding]:
    """Findings on the literals of a file, folded."""
    for literal in literals:
        if len(literal.text) <= _CODEC_CHARS_MAX and is_spoken_codec(literal.text):
            yield finding("codec", literal.line, f"text that names the codec {literal.text.decode('utf-8', 'replace')}")
        if b"_" not in literal.text:
            continue
        text = literal.text.decode("utf-8", "replace")
        fields = [step for field in _FIELD.findall(text) for step in _refused_steps(field)] if "{" in text else []
        if fields:
            yield finding("attribute", literal.line, f"format field with {fields[0]}")
        elif not literal.is_docstring and (words := refused_words(text)):
            is_whole = words[0] == text.strip()
            yield finding("attribute" if is_whole else "attribute-name", literal.line, f"text with {words[0]}")


def _refused_steps(field: str) -> list[str]:
    """The steps of a format field that an attribute may not have; a class may be asked for its name."""
    steps = _STEP.findall(field)
    refused = [step for step in steps if step in FRAMES or (step.startswith("__") and is_refused_attribute(step))]
    if not refused and "__class__" in steps and steps[-1] not in _TELLING:
        return ["__class__"]
    return refused
