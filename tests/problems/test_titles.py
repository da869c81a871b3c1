"""Title matchers."""

from __future__ import annotations

import msgspec
import pytest

from foundation.errors import ArenaError
from problems.titles import (
    AcceptedTitles,
    LexicalTitles,
    cut_titles,
    decode_accepted,
    join_titles,
    reward_titles,
)
from tests.problems.stand import LAMP, PROBLEMS, TWIN

LEXICAL = LexicalTitles()


def titled(title: str):
    return msgspec.structs.replace(LAMP, title=title)


def test_seven_words_of_ten_match_and_two_of_three_do_not():
    assert LEXICAL.matches(titled("a b c d e f g"), "a b c d e f g h i j")
    assert not LEXICAL.matches(titled("a b"), "a b c")


def test_a_release_is_read_back_and_decides_by_membership():
    release = decode_accepted('{"name": "qwen3-0.6b/1", "accepted": {"Lamp": ["101"]}}')
    assert release.name == "qwen3-0.6b/1"
    assert release.matches(LAMP, "Lamp") and not release.matches(TWIN, "Lamp")
    with pytest.raises(ArenaError, match="V2040"):
        release.matches(LAMP, "Kettle")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"name": ""}', '{"name": "", "accepted": {}}', '{"name": "lexical/1", "accepted": {}}', b"\xff"]
)
def test_a_malformed_release_is_refused(text):
    with pytest.raises(ArenaError, match="P4001"):
        decode_accepted(text)


def test_a_release_is_cut_to_the_titles_of_some_problems_and_says_nothing_of_others():
    wanted = reward_titles(PROBLEMS)
    release = AcceptedTitles(name="qwen/1", accepted={title: frozenset({"101"}) for title in (*wanted, "Kettle")})
    cut = cut_titles(release, PROBLEMS)
    assert cut.name == "qwen/1" and cut.accepted.keys() == wanted and "Kettle" not in cut.accepted
    with pytest.raises(ArenaError, match=r"P4001.*qwen/1 does not list"):
        cut_titles(AcceptedTitles(name="qwen/1", accepted={"Kettle": frozenset()}), PROBLEMS)


def test_joined_releases_decide_each_title_by_the_first_that_lists_it_and_are_named_once():
    first = AcceptedTitles(name="suite/1", accepted={"Lamp": frozenset({"101"})})
    second = AcceptedTitles(name="bank/1", accepted={"Lamp": frozenset(), "Kettle": frozenset({"101"})})
    joined = join_titles((first, second, second))
    assert joined.name == "suite/1 + bank/1"
    assert joined.matches(LAMP, "Lamp") and joined.matches(LAMP, "Kettle") and not joined.matches(TWIN, "Kettle")
    with pytest.raises(ArenaError, match=r"V2040.*suite/1 \+ bank/1"):
        joined.matches(LAMP, "Pan")
