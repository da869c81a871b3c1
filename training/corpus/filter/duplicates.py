"""Duplicates: traces that teach the same, found by what the model wrote.

Promise: `read` reduces a trace to a fingerprint of a few hundred bytes, and `KeptTraces` says of fingerprints offered
best first which repeat one before; nothing depends on the order traces were read in.

A trace is normalised to what a model would learn from it: the query, and what the assistant wrote (thinking, text,
calls). Tool results are left out: they follow from the calls, and are nine tenths of the bytes. Case, spacing and
punctuation go, and the order of a call's arguments. Long numbers (product ids, times) become "the first, second, ...
id of this trace", so which one is looked at again still counts; other numbers of two digits and more (prices, budgets)
become one sign; single digits stay, since a page or a position is part of the policy. Ids of calls are no part of it.

Two traces are exact duplicates when their normal forms are equal. They are near duplicates when the sets of three-word
phrases are alike (Jaccard, `Rules.near_duplicate_e4`) *and* half of the words they searched for are the same: agents
write filled-in forms, and the same form about another product is another lesson. Both are estimated by MinHash
(`rensa`); a pair is compared when one of 32 bands agrees, which at the default of 0.7 finds 99.9 % of pairs that search
alike. A band remembers the first 32 kept traces of a value, the best by rank: a trace that resembles more than these
ranks far below the one or two that its problem may keep, and the cost stays linear.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from rensa import RMinHash

from training.corpus.filter.emitter_guess import query_of
from training.corpus.model import Trace

SEARCHED_SAME_E4 = 5_000

_BANDS, _PHRASE_ROWS, _SEARCH_ROWS = 32, 4, 1
_PHRASE_HASHES, _SEARCH_HASHES = _BANDS * _PHRASE_ROWS, _BANDS * _SEARCH_ROWS
_SEED = 20_260_801
_DIGEST_BYTES = 4  # of one MinHash value
_BAND_MEMBERS_MAX = 32
_BLOCK = 1024  # rows of a block
_RECENT_TRACES = 2_048

_ID_DIGITS = 6
_NUMBER = re.compile(r"[0-9](?<!\w[0-9])[0-9]*(?:,[0-9]{3})*(?![0-9])(?:\.[0-9]+)?(?!\w)")
_WORD = re.compile(r"\w+")
_TURN = "\x1e"
_WORD_OR_SIGN = re.compile(rf"\w+|#|{_TURN}")

_Words = NDArray[np.uint64]


class TextReading(msgspec.Struct, frozen=True, gc=False):
    """What is read off one trace before its MinHash: hash of its normal form, hashes of phrases and words, repeated
    ones too."""

    normal_sha: bytes  # 16 bytes of sha256
    phrases: _Words
    searched: _Words


class Fingerprint(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a trace to find its duplicates. Bytes are little-endian 32-bit MinHash values."""

    normal_sha: bytes
    phrases: bytes
    searched: bytes


def normal_words(trace: Trace) -> list[str]:
    """The normal form of a trace, word by word, with a sign before each turn."""
    parts = [trace.query or next((m.content for m in trace.messages if m.role == "user"), "")]
    for message in trace.messages:
        if message.role == "assistant":
            parts += (_TURN, message.reasoning, message.content)
            parts += [f"{call.name} {_even(call.arguments)}" for call in message.calls]
    names: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        number = match[0]
        if len(number) == 1:
            return number
        if number.isdigit() and len(number) >= _ID_DIGITS:
            return names.setdefault(number, f"id{len(names)}")
        return "#"

    text = _NUMBER.sub(named, "\n".join(parts).lower())
    return _WORD_OR_SIGN.findall(text)


def read(trace: Trace) -> TextReading:
    """The reading of one trace."""
    words = normal_words(trace)
    queries = " ".join(
        query for m in trace.messages if m.role == "assistant" for c in m.calls if (query := query_of(c))
    )
    searched = _WORD.findall(queries) or _WORD.findall(trace.query.lower())
    hashes = _hashes(words)
    if len(hashes) > 2:
        hashes = hashes[:-2] * _MIX[0] + hashes[1:-1] * _MIX[1] + hashes[2:] * _MIX[2]
    return TextReading(
        normal_sha=hashlib.sha256(" ".join(words).encode("utf-8", "surrogatepass")).digest()[:16],
        phrases=hashes,
        searched=_hashes(searched),
    )


def fingerprints(readings: Sequence[TextReading]) -> list[Fingerprint]:
    """Fingerprints of readings, in their order."""
    phrases = _digests([reading.phrases for reading in readings], _PHRASE_HASHES)
    searched = _digests([reading.searched for reading in readings], _SEARCH_HASHES)
    return [
        Fingerprint(normal_sha=reading.normal_sha, phrases=one, searched=other)
        for reading, one, other in zip(readings, phrases, searched, strict=True)
    ]


class KeptTraces:
    """The fingerprints kept so far. Offer them best first: the order of offers decides which of two alike stays.

    Memory: 1.2 kB a kept trace, and 20 MB.
    """

    def __init__(self, near_e4: int) -> None:
        self._near_e4 = near_e4
        self._normal: set[bytes] = set()
        self._blocks: list[tuple[NDArray[np.uint32], NDArray[np.uint32]]] = []  # phrases, searched: a row a trace
        self._count = 0
        self._bands = _Bands()

    def is_exact(self, fingerprint: Fingerprint) -> bool:
        """Whether a kept trace has the same normal form."""
        return fingerprint.normal_sha in self._normal

    def is_near(self, fingerprint: Fingerprint) -> bool:
        """Whether a kept trace is a near duplicate."""
        met = sorted(self._bands.members(_band_keys(fingerprint)))
        if not met:
            return False
        phrases, searched = _values(fingerprint)
        rows = [(self._blocks[number // _BLOCK], number % _BLOCK) for number in met]
        kept_phrases = np.stack([block[0][place] for block, place in rows])
        kept_searched = np.stack([block[1][place] for block, place in rows])
        alike = (kept_phrases == phrases).sum(axis=1) * 10_000 >= self._near_e4 * _PHRASE_HASHES
        about = (kept_searched == searched).sum(axis=1) * 10_000 >= SEARCHED_SAME_E4 * _SEARCH_HASHES
        return bool((alike & about).any())

    def add(self, fingerprint: Fingerprint) -> None:
        """Keep one."""
        self._normal.add(fingerprint.normal_sha)
        place = self._count % _BLOCK
        if not place:
            shapes = ((_BLOCK, _PHRASE_HASHES), (_BLOCK, _SEARCH_HASHES))
            self._blocks.append((np.zeros(shapes[0], np.uint32), np.zeros(shapes[1], np.uint32)))
        phrases, searched = self._blocks[-1]
        phrases[place], searched[place] = _values(fingerprint)
        self._bands.add(_band_keys(fingerprint), self._count)
        self._count += 1


class _Bands:
    """Which kept traces have a band of that key: the latest in a dict, all before them as two sorted columns.

    A column's entry takes 12 bytes, where the dict's takes 250.
    """

    def __init__(self) -> None:
        self._keys, self._members = np.zeros(0, np.uint64), np.zeros(0, np.uint32)
        self._recent: dict[int, list[int]] = defaultdict(list)
        self._recent_traces = 0

    def members(self, keys: NDArray[np.uint64]) -> set[int]:
        """Of each key, the first members by number, at most `_BAND_MEMBERS_MAX`."""
        found: set[int] = set()
        starts = np.searchsorted(self._keys, keys, "left").tolist()
        ends = np.searchsorted(self._keys, keys, "right").tolist()
        for key, start, end in zip(keys.tolist(), starts, ends, strict=True):
            found.update(self._members[start : min(end, start + _BAND_MEMBERS_MAX)].tolist())
            found.update(self._recent.get(key, ())[: max(0, _BAND_MEMBERS_MAX - (end - start))])
        return found

    def add(self, keys: NDArray[np.uint64], number: int) -> None:
        """A member of these keys; numbers only grow."""
        for key in keys.tolist():
            self._recent[key].append(number)
        self._recent_traces += 1
        if self._recent_traces < _RECENT_TRACES:
            return
        order = sorted(self._recent)
        members = np.fromiter((one for key in order for one in self._recent[key]), np.uint32)
        lengths = [len(self._recent[key]) for key in order]
        keys = np.repeat(np.array(order, np.uint64), lengths)
        places = np.searchsorted(self._keys, keys, "right")  # after those of the same key: they came before
        self._keys, self._members = np.insert(self._keys, places, keys), np.insert(self._members, places, members)
        self._recent.clear()
        self._recent_traces = 0


_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


class _WordHashes(dict[str, int]):
    """64-bit hashes of words, remembered: the common ones come early."""

    def __missing__(self, word: str) -> int:
        data = word.encode("utf-8", "surrogatepass")
        value = zlib.crc32(data) << 32 | zlib.crc32(data, 0x5EED)
        if len(self) < 1 << 16:
            self[word] = value
        return value


_WORD_HASHES = _WordHashes()


def _hashes(words: Sequence[str]) -> _Words:
    return np.fromiter(map(_WORD_HASHES.__getitem__, words), np.uint64, len(words))


def _digests(sets: Sequence[_Words], hashes: int) -> list[bytes]:
    if not sets:
        return []
    rows = RMinHash.digest_matrix_from_flat_token_hashes(
        np.concatenate(sets), [0, *np.cumsum([len(one) for one in sets]).tolist()], hashes, _SEED
    ).to_rows()
    return [np.array(row, "<u4").tobytes() for row in rows]


def _values(fingerprint: Fingerprint) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    return np.frombuffer(fingerprint.phrases, "<u4"), np.frombuffer(fingerprint.searched, "<u4")


def _band_keys(fingerprint: Fingerprint) -> NDArray[np.uint64]:
    """64 bits of each band. Two bands of one key cost a comparison, which decides."""
    width, narrow = _PHRASE_ROWS * _DIGEST_BYTES, _SEARCH_ROWS * _DIGEST_BYTES
    bands = (
        bytes((band,))
        + fingerprint.phrases[band * width : (band + 1) * width]
        + fingerprint.searched[band * narrow : (band + 1) * narrow]
        for band in range(_BANDS)
    )
    return np.frombuffer(b"".join(hashlib.blake2b(band, digest_size=8).digest() for band in bands), "<u8")


def _even(arguments: str) -> str:
    """Arguments with their keys sorted; text that is no JSON as it stands."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic").decode()
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return arguments
