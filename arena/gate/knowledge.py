"""What the gate knows: catalogue ids, n-grams of known problem texts, phrases of published agents and published texts.

The same lists give the same `inputs_sha256` on every machine, and 2.7 million ids take 22 MB and are found by
bisection. Give a gate whose reports miners see only texts that are public: a finding tells its author that the text
is known, so sealed texts would turn the gate into an oracle.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

import msgspec
import numpy as np
import numpy.typing as npt

from arena.gate.likeness import Hashes, joined, make_sketch, text_phrases
from arena.policy import GateRules

ID_DIGITS_MIN, ID_DIGITS_MAX = 6, 18
_SEARCHABLE = re.compile(rf"[1-9][0-9]{{{ID_DIGITS_MIN - 1},{ID_DIGITS_MAX - 1}}}")
_WORD = re.compile(r"[a-z]+")


class GateKnowledge(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Sorted, distinct 64-bit values: ids, runs of words of known texts, and what of programs and texts is public."""

    product_ids: Hashes
    id_lengths: tuple[int, ...]
    text_grams: Hashes
    baseline: Hashes
    baseline_texts: Hashes
    inputs_sha256: str


def contains(haystack: Hashes, needles: Hashes) -> npt.NDArray[np.bool_]:
    """Which needles stand in the sorted haystack."""
    if len(haystack) == 0 or len(needles) == 0:
        return np.zeros(len(needles), dtype=np.bool_)
    places = np.searchsorted(haystack, needles)
    places[places == len(haystack)] = 0
    return np.asarray(haystack[places] == needles)


def make_knowledge(
    product_ids: Iterable[str],
    texts: Iterable[str],
    published_agents: Iterable[str],
    rules: GateRules,
    *,
    published_texts: Iterable[str] = (),
) -> GateKnowledge:
    """Knowledge from catalogue ids, public problem texts, the sources of published agents, and other texts that belong
    to nobody.

    An id is searchable when it has 6 to 18 digits and no leading zero. Raises ValueError for a published agent that
    does not parse.
    """
    searchable = (product_id for product_id in product_ids if _SEARCHABLE.fullmatch(product_id))
    ids = np.unique(np.fromiter(map(int, searchable), dtype=np.uint64))
    grams = [text_grams(text, rules.ngram_words) for text in texts]
    sketches = [make_sketch(source) for source in published_agents]
    text = joined(grams)
    baseline, baseline_texts = (
        joined(parts)
        for parts in (
            [one.phrases for one in sketches],
            [*(one.texts for one in sketches), *(text_phrases([text]) for text in published_texts)],
        )
    )
    digest = hashlib.sha256(b"agent-arena/gate-inputs/1")
    for values in (ids, text, baseline, baseline_texts):
        digest.update(len(values).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(values, dtype="<u8").data)
    # ids are sorted, so those of one length are one slice
    bounds = np.array([10 ** (length - 1) for length in range(ID_DIGITS_MIN, ID_DIGITS_MAX + 2)], dtype=np.uint64)
    counts = np.diff(np.searchsorted(ids, bounds))
    return GateKnowledge(
        product_ids=ids,
        id_lengths=tuple(ID_DIGITS_MIN + index for index, count in enumerate(counts) if count),
        text_grams=text,
        baseline=baseline,
        baseline_texts=baseline_texts,
        inputs_sha256=digest.hexdigest(),
    )


def text_grams(text: str, words: int) -> Hashes:
    """The hashes of all runs of `words` consecutive words of a text. Only ASCII letters count, whatever their case."""
    found = _WORD.findall(text.lower())
    grams = (" ".join(found[start : start + words]) for start in range(len(found) - words + 1))
    hashes = [int.from_bytes(hashlib.blake2b(gram.encode(), digest_size=8).digest(), "big") for gram in grams]
    return np.array(hashes, dtype=np.uint64)
