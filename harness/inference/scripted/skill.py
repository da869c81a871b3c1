"""Skill levels of the scripted model: what each one bothers to do."""

from __future__ import annotations

import msgspec


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """How thoroughly a level shops."""

    name_words: int  # how many words of a wish's name it searches for, counted from the end, where the noun stands
    uses_filters: bool  # sends price and service filters
    weighs: bool  # ranks hits by how they fit; otherwise the search's order stands
    candidates: int  # hits per wish whose details are read; 0 reads none
    searches_again: bool  # a second search for a wish that no candidate meets
    seeks_one_shop: bool  # minds that products may have to come from one shop
    verifies: bool  # checks match and voucher before it recommends
    analyses: bool  # says what it found
    compares: bool  # weighs candidates against each other in writing
    is_concise: bool = False  # says one sentence in all, which compares what it takes with what it leaves


LEVELS: dict[str, Skill] = {  # what an endpoint lists
    "scripted-expert": Skill(
        name_words=99,
        uses_filters=True,
        weighs=True,
        candidates=4,
        searches_again=True,
        seeks_one_shop=True,
        verifies=True,
        analyses=True,
        compares=True,
    ),
    "scripted-careful": Skill(
        name_words=2,
        uses_filters=True,
        weighs=False,
        candidates=2,
        searches_again=False,
        seeks_one_shop=True,
        verifies=False,
        analyses=True,
        compares=False,
    ),
    "scripted-hasty": Skill(
        name_words=1,
        uses_filters=False,
        weighs=False,
        candidates=0,
        searches_again=False,
        seeks_one_shop=False,
        verifies=False,
        analyses=False,
        compares=False,
    ),
}

CONCISE = "scripted-concise"  # for small models to learn from: everything it does fits 200 tokens
SKILLS: dict[str, Skill] = LEVELS | {
    CONCISE: Skill(
        name_words=99,
        uses_filters=True,
        weighs=False,
        candidates=0,
        searches_again=False,
        seeks_one_shop=True,
        verifies=False,
        analyses=False,
        compares=False,
        is_concise=True,
    ),
}
