"""What the gate knows: catalogue ids, n-grams of known problem texts, phrases of published agents and published texts.

The same lists give the same `inputs_sha256` on every machine, and 2.7 million ids take 22 MB and are found by
bisection. Give a gate whose reports miners see only texts that are public: a finding tells its author that the text
is known, so sealed texts would turn the gate into an oracle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec
import numpy as np
import numpy.typing as npt

from arena.gate.answer_tables.grams import text_grams
from arena.gate.similarity.sketch import make_sketch, text_phrases
from arena.policy import GateRules

Sorted64 = npt.NDArray[np.uint64]

ID_DIGITS_MIN, ID_DIGITS_MAX = 6, 18


class GateKnowledge(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Sorted, distinct 64-bit values. `skipped_ids` counts ids that are no digit runs and so can't be searched for."""

    product_ids: Sorted64
    id_lengths: tuple[int, ...]
    text_grams: Sorted64
    baseline: Sorted64
    baseline_texts: Sorted64
    skipped_ids: int
    inputs_sha256: str

    def holds_ids(self, values: Sorted64) -> npt.NDArray[np.bool_]:
        """Which of the values are catalogue ids."""
        return contains(self.product_ids, values)


def contains(haystack: Sorted64, needles: Sorted64) -> npt.NDArray[np.bool_]:
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
    numbers: list[int] = []
    skipped = 0
    for product_id in product_ids:
        if is_searchable(product_id):
            numbers.append(int(product_id))
        else:
            skipped += 1
    grams = [text_grams(text.encode("utf-8", "surrogatepass"), rules.ngram_words)[0] for text in texts]
    sketches = [make_sketch(source) for source in published_agents]
    ids = np.unique(np.array(numbers, dtype=np.uint64))
    text = np.unique(_joined(grams))
    baseline, baseline_texts = (
        np.unique(_joined(parts))
        for parts in (
            [one.phrases for one in sketches],
            [*(one.texts for one in sketches), *(text_phrases([text]) for text in published_texts)],
        )
    )
    digest = hashlib.sha256(b"agent-arena/gate-inputs/2")
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
        skipped_ids=skipped,
        inputs_sha256=digest.hexdigest(),
    )


def is_searchable(product_id: str) -> bool:
    """True for a run of 6 to 18 ASCII digits without a leading zero."""
    return (
        product_id.isascii()
        and product_id.isdigit()
        and ID_DIGITS_MIN <= len(product_id) <= ID_DIGITS_MAX
        and product_id[0] != "0"
    )


def _joined(parts: list[Sorted64]) -> Sorted64:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)
