"""Neutral text: what the judged party wrote can't look like what the host wrote.

Neutral text has no double square brackets (the host's header marks), no line separators but `\\n`, no control, format
or surrogate characters, and none that is shown as nothing: a whole sentence can be spelled in those. The host prefixes
every line of it, so no line of it can start a header.
"""

from __future__ import annotations

import re
import unicodedata

_BREAKS = re.compile("\r\n|[\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
_NAME_CHARS = 60
_DROPPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
# Default_Ignorable_Code_Point of Unicode 16.0 (DerivedCoreProperties.txt), written out because Python doesn't know the
# property: variation selectors, fillers and joiners are letters or marks by category. And U+2800, a blank by its shape.
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_NOT_PLAIN = re.compile(r"[^\n\t -~]+")  # all else is looked up character by character, which takes its time
_OPEN, _CLOSE = re.compile(r"\[(?=\[)"), re.compile(r"\](?=\])")
# Compatibility brackets that a model may read as ours.
_LOOKALIKES = str.maketrans({"⟦": "[", "⟧": "]", "［": "[", "］": "]", "〚": "[", "〛": "]", "｜": "/", "│": "/"})


def neutral_text(text: str) -> str:
    """`text` with the delimiters broken by one literal space and invisible characters removed."""
    text = _BREAKS.sub("\n", text).translate(_LOOKALIKES)
    text = _NOT_PLAIN.sub(_kept, text)
    return _CLOSE.sub("] ", _OPEN.sub("[ ", text))


def _kept(found: re.Match[str]) -> str:
    return "".join(c for c in _IGNORABLE.sub("", found.group()) if unicodedata.category(c) not in _DROPPED)


def neutral_name(text: str) -> str:
    """`text` fit for one slot of a header line: one line, no bars, no brackets, at most 60 characters."""
    flat = " ".join(neutral_text(text).split())
    return re.sub(r"[\[\]|]", "/", flat)[:_NAME_CHARS]
