"""Which words are plain ones of reasoning, that say nothing of a product by themselves, and what a word is a form of.

Pure. Endings are set aside by rule ("prices", "price"), without knowing the language: two words that share a
stem may differ, and no harm comes of it but a word more that is let pass.
"""

from __future__ import annotations

import functools

from training.rewriting.prompts import listed_words

_STEM_LETTERS = 3
_ENDINGS = (
    ("ies", "y"), ("ied", "y"), ("ier", "y"), ("iest", "y"), ("ily", "y"), ("ves", "f"), ("es", ""), ("s", ""),
    ("ing", ""), ("ing", "e"), ("ed", ""), ("ed", "e"), ("er", ""), ("er", "e"), ("est", ""), ("est", "e"),
    ("ly", ""), ("ly", "le"), ("ness", ""),
)  # fmt: skip
_TOLD_OF_PRODUCTS = frozenset(("black", "white"))  # in the list of openers, and no words of reasoning


@functools.cache
def is_plain(word: str) -> bool:
    """Whether a word says nothing of a product by itself."""
    plain = listed_words("plain_words") | listed_words("function_words") | listed_words("openers") - _TOLD_OF_PRODUCTS
    return not stems(word).isdisjoint(plain)


@functools.lru_cache(maxsize=1 << 14)
def stems(word: str) -> frozenset[str]:
    """The word, and what it may be a form of."""
    found = {word}
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM_LETTERS:
            stem = word[: len(word) - len(ending)]
            found.add(stem + instead)
            if not instead and stem[-1] == stem[-2]:  # "fitting"
                found.add(stem[:-1])
    return frozenset(found)
