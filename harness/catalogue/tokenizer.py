"""Lucene's StandardTokenizer: the longest token at every place, as its scanner cuts it.

UAX #29 word breaks with emoji sequences. A code point counts only by its class, and the classes are data:
`unicode_classes.json` holds those of Lucene 9.9 (Unicode 12.1), so neither Python's nor any package's Unicode version
matters. The grammar becomes a finite automaton, so time is linear in the text.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence, Set
from importlib import resources

import msgspec

TOKEN_UNITS_MAX = 255  # UTF-16 units; the scanner's buffer holds no more, so a longer run is cut there
OTHER = "."  # the class of a code point that is in no token

# A class is one letter. Ignorable ones stick to the character before them; those with a part in emoji stand alone.
# In order: joiner U+200D, skin tone, keycap U+20E3, South-East Asian mark, tag, end of tag, any other; U+FE0F, U+FE0E.
_IGNORABLE_IN_EMOJI = "ZmkctuX"
_IGNORABLE = _IGNORABLE_IN_EMOJI + "FT"
_LETTERS, _HEBREW = "AaH", "H"  # a: a letter that is an emoji too
_NUMBERS = "N"
_MID_LETTER, _MID_NUMBER = "MBQ", "PBQ"  # colon and kin, full stop and kin, single quote; comma and kin
_EMOJI = "Ea"

Node = tuple[str, tuple["Node", ...], str]  # kind, children, classes


class ClassTable(msgspec.Struct, frozen=True):
    """Inclusive code point ranges of every class; what is in none is OTHER."""

    classes: dict[str, tuple[tuple[int, int], ...]]


class Scanner:
    """The automaton: `rows[state]` maps a class to the next state, `is_final[state]` says a token may end there."""

    def __init__(self, table: dict[int, str]) -> None:
        self._table = table
        self._rows, self._is_final = _automaton(_grammar())

    def tokens(self, text: str) -> list[str]:
        """Tokens of any text, in order."""
        classes, out, place, stops, past = text.translate(self._table), [], 0, _stops(text), _PastScans()
        while place < len(text):
            end = self._longest(classes, place, min(stops[place], len(text)), past)
            if end > place:
                out.append(text[place:end])
            place = max(end, place + 1)
        return out

    def _longest(self, classes: str, place: int, stop: int, past: _PastScans) -> int:
        """Where the longest token that starts at `place` and ends by `stop` ends; `place` itself when none does."""
        if place < past.end:
            return self._longest_beside(classes, place, stop, past)
        past.reached.clear()
        rows, is_final, state, end, here = self._rows, self._is_final, 0, place, place
        for here in range(place, stop):
            following = rows[state].get(classes[here])
            if following is None:
                break
            state = following
            if is_final[state]:
                end = here + 1
        return self._longest_beside(classes, place, stop, past) if end == place and here > place else end

    def _longest_beside(self, classes: str, place: int, stop: int, past: _PastScans) -> int:
        """The same, where scans without a token came by before: once one of them was in this state, go on where that
        ended."""
        rows, is_final, state, here, own = self._rows, self._is_final, 0, place, _ScanEnd(place)
        while here < stop and (following := rows[state].get(classes[here])) is not None:
            state, here = following, here + 1
            if is_final[state]:
                return self._longest(classes, place, stop, _PastScans())
            met = past.reached.setdefault((here, state), own)
            if met is not own:
                own, here, state = met, met.place, met.state
            own.place, own.state = here, state
        past.end = max(past.end, own.place)
        return place


class _ScanEnd:
    """The first place that a scan did not take, and its state there."""

    def __init__(self, place: int) -> None:
        self.place, self.state = place, 0


class _PastScans:
    """Where scans that met no token came by, (place, state), and how far each got. Without it a run of characters that
    may open a token but opens none would be read again from each of its places."""

    def __init__(self) -> None:
        self.end = 0  # of the one that got furthest
        self.reached: dict[tuple[int, int], _ScanEnd] = {}


def tokens(text: str) -> list[str]:
    """Tokens as StandardTokenizer emits them."""
    if text.isascii():
        return _ascii_tokens(text)
    out: list[str] = []
    for piece in text.split(" "):  # no token holds a space
        out += _ascii_tokens(piece) if piece.isascii() else _scanner().tokens(piece)
    return out


def _ascii_tokens(text: str) -> list[str]:
    """The pattern finds what the automaton finds, several times faster, but does not cut long runs."""
    found: list[str] = _ASCII.findall(text)
    if "_" in text:
        found = [token for token in found if token.strip("_")]
    is_cut = len(text) > TOKEN_UNITS_MAX and any(len(token) > TOKEN_UNITS_MAX for token in found)
    return _scanner().tokens(text) if is_cut else found


def classes_json() -> bytes:
    """The shipped class table, as stored; part of the identity of the analysis."""
    return resources.files("harness.catalogue").joinpath("unicode_classes.json").read_bytes()


@functools.cache
def _scanner() -> Scanner:
    return Scanner(_Lookup(msgspec.json.decode(classes_json(), type=ClassTable)))


class _Lookup(dict[int, str]):
    """Code point -> class, looked up in the ranges on first sight; made for `str.translate`."""

    def __init__(self, table: ClassTable) -> None:
        super().__init__()
        ranges = sorted((low, high, name) for name, spans in table.classes.items() for low, high in spans)
        self._lows, self._ranges = [low for low, _, _ in ranges], ranges

    def __missing__(self, point: int) -> str:
        place = bisect_right(self._lows, point) - 1
        _, high, name = self._ranges[place] if place >= 0 else (0, -1, OTHER)
        self[point] = found = name if point <= high else OTHER
        return found


# -- the grammar


def _one(classes: str) -> Node:
    return ("one", (), classes)


def _seq(*parts: Node) -> Node:
    return ("seq", parts, "")


def _any(*parts: Node) -> Node:
    return ("any", parts, "")


def _many(*parts: Node) -> Node:
    """None or more times the sequence of parts."""
    return ("many", (_seq(*parts),), "")


def _some(*parts: Node) -> Node:
    return _seq(*parts, _many(*parts))


def _maybe(*parts: Node) -> Node:
    return _any(_seq(*parts), _seq())


def _ex(classes: str) -> Node:
    """A character and the ignorable ones that stick to it (WB4)."""
    return _seq(_one(classes), _many(_one(_IGNORABLE)))


def _grammar() -> Node:
    """A token: an emoji sequence, a word, a South-East Asian run, or an ideograph."""
    # a word, WB5 to WB13b: runs glued by underscores and kin, which may also lead and trail
    joiner, katakana, hebrew = _ex("_"), _ex("K"), _ex(_HEBREW)

    def run(classes: str, mid: str) -> Node:
        return _seq(_ex(classes), _many(_any(_many(joiner), _ex(mid)), _ex(classes)))

    quoted = _seq(hebrew, _any(_ex("Q"), _seq(_ex("U"), hebrew)))
    runs = _some(_any(quoted, run(_NUMBERS, _MID_NUMBER), run(_LETTERS, _MID_LETTER)))
    body = _any(_seq(katakana, _many(_many(joiner), katakana)), runs)
    word = _seq(_many(joiner), body, _many(_some(joiner), body), _many(joiner))

    # emoji, joined or tagged (UTS #51), a skin tone alone, keycaps, flags; skin tones are ignorable after an emoji
    def ex(classes: str) -> Node:
        return _seq(_one(classes), _many(_one(_IGNORABLE_IN_EMOJI)))

    shown = _seq(_many(_one("Z")), ex(_EMOJI), _maybe(_one("F")))
    element = _any(shown, ex("m"))
    sequence = _seq(element, _any(_many(_one("Z"), element), _seq(_some(_one("t")), _one("u"))))
    keycap = _seq(ex("#"), _maybe(_one("F")), ex("k"))  # of # and *; after a digit the number rule finds the same
    emoji = _any(sequence, keycap, _seq(_ex("R"), _ex("R")))
    return _any(emoji, word, _some(_ex("Cc")), _ex("I"))


# -- from grammar to automaton (Glushkov's construction, then sets of places)


class _TokenPart(msgspec.Struct, frozen=True):
    can_be_empty: bool
    first: frozenset[int]
    last: frozenset[int]


def _automaton(grammar: Node) -> tuple[list[dict[str, int]], list[bool]]:
    classes: list[str] = []  # of every place in the grammar
    follow: list[set[int]] = []  # which places may come after it
    whole = _walk(grammar, classes, follow)
    rows: list[dict[str, int]] = []
    start = (whole.first, whole.can_be_empty)
    numbers, waiting = {start: 0}, [start]  # a state: the places that may come next, and whether a token may end here
    for nexts, _ in waiting:  # grows as states are found
        row: dict[str, int] = {}
        for name in sorted({name for place in nexts for name in classes[place]}):
            met = [place for place in nexts if name in classes[place]]
            state = (_union(follow[place] for place in met), not whole.last.isdisjoint(met))
            if state not in numbers:
                numbers[state] = len(numbers)
                waiting.append(state)
            row[name] = numbers[state]
        rows.append(row)
    return rows, [is_final for _, is_final in waiting]


def _walk(node: Node, classes: list[str], follow: list[set[int]]) -> _TokenPart:
    kind, children, names = node
    if kind == "one":
        classes.append(names)
        follow.append(set())
        only = frozenset({len(classes) - 1})
        return _TokenPart(False, only, only)
    parts = [_walk(child, classes, follow) for child in children]
    if kind == "any":
        first, last = _union(part.first for part in parts), _union(part.last for part in parts)
        return _TokenPart(any(part.can_be_empty for part in parts), first, last)
    whole = _TokenPart(True, frozenset(), frozenset())
    for part in parts:
        for place in whole.last:
            follow[place] |= part.first
        whole = _TokenPart(
            whole.can_be_empty and part.can_be_empty,
            whole.first | part.first if whole.can_be_empty else whole.first,
            whole.last | part.last if part.can_be_empty else part.last,
        )
    if kind == "many":
        for place in whole.last:
            follow[place] |= whole.first
        return _TokenPart(True, whole.first, whole.last)
    return whole


def _union(sets: Iterable[Set[int]]) -> frozenset[int]:
    return frozenset(place for each in sets for place in each)


def _stops(text: str) -> Sequence[int]:
    """For every place the last end at which a token from there has no more than TOKEN_UNITS_MAX units. It may lie
    behind the text's own."""
    if max(text, default="") <= "\uffff":
        return range(TOKEN_UNITS_MAX, TOKEN_UNITS_MAX + len(text))
    stops, end, units = [], 0, 0
    for letter in text:
        while end < len(text) and units + 1 + (text[end] > "\uffff") <= TOKEN_UNITS_MAX:
            units += 1 + (text[end] > "\uffff")
            end += 1
        stops.append(end)
        units -= 1 + (letter > "\uffff")
    return stops


# A run of underscores that opens no token is matched alone, and no run is given back (`*+`): otherwise a run would be
# read again from each of its places.
_ASCII_RUN = r"(?:[0-9](?:(?:_*+|[,;.'])[0-9])*|[A-Za-z](?:(?:_*+|[:.'])[A-Za-z])*)+"
_ASCII_TOKEN = f"{_ASCII_RUN}(?:_++{_ASCII_RUN})*_*+"
_ASCII = re.compile(f"_++(?:{_ASCII_TOKEN})?|{_ASCII_TOKEN}")
