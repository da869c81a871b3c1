"""Word lists: what is known of English shopping words before any catalogue is read (`word_lists.json`).

`stop`: grammar. `seller`: what sellers add whatever they sell; a word is there only if no product is told apart by it.
`seller phrases`: the same for words side by side (`ready+stock`). `variant`: colours, sizes, materials, audiences and
grades, which part one variant from another however often they are seen. `phrase`: what every shopping query says.
Single words are in the form `problems.pools.title_keys.spoken_words` gives.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Literal

import msgspec


@functools.cache
def word_list(name: Literal["stop", "seller", "seller phrases", "variant", "phrase"]) -> frozenset[str]:
    """The words of a list, read on first use."""
    raw = resources.files("problems").joinpath("word_lists.json").read_bytes()
    return frozenset(msgspec.json.decode(raw, type=dict[str, str])[name].split())
