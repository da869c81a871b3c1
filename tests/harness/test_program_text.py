"""The program's text of a request: what of it was recorded is taken out, whatever its spelling, and nothing else."""

from __future__ import annotations

import html
import json
import textwrap
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.emission.program_text import PASSAGE, ProgramText
from harness.emission.recorded import RECORDED_MIN
from harness.emission.wording import Passage, words_of

QUERY = "A red reading lamp below 1,500 pesos, please."
RESULT = [
    {
        "product_id": "4410020078",
        "title": "Men's Café “Lumière” Lamp 40W",
        "price": 1249.0,
        "stock": None,
        "is_new": True,
    },
    {"product_id": "4410020031", "title": "Clip Lamp, red/black", "price": 899.5, "stock": 3, "is_new": False},
]
TEXT = json.dumps(RESULT, ensure_ascii=False, separators=(",", ":"))


def left_in(program: ProgramText, *texts: str, role: str = "user") -> tuple[str, ...]:
    messages = [json.dumps({"role": role, "content": text}) for text in texts]
    return tuple(word for word in program.request(messages).words if word != Passage.BREAK)


def recorded(result: str = TEXT) -> ProgramText:
    program = ProgramText(QUERY)
    program.returned("find_product", '{"q":"lamp"}', result, is_programs=False)
    return program


QUOTES = {
    "as it came": TEXT,
    "re-serialised": json.dumps(RESULT),
    "indented": json.dumps(RESULT, indent=4),
    "as Python": repr(RESULT),
    "in a string": json.dumps({"output": TEXT})[11:-1],
    "in a string in a string": json.dumps(json.dumps(TEXT)),
    "as HTML": html.escape(TEXT),
    "URL-encoded": quote(TEXT),
    "wrapped": textwrap.fill(TEXT, 50),
    "upper case": TEXT.upper(),
    "one item a line": "\n".join(f"{n}) {json.dumps(one)}" for n, one in enumerate(RESULT)),
}


@pytest.mark.parametrize("way", QUOTES)
def test_a_result_quoted_inside_a_message_is_taken_out_however_it_is_written(way):
    left = left_in(recorded(), f"Observation begins {QUOTES[way]} observation ends")
    assert set(left) <= {"observation", "begins", "ends", "0", "1"}


def test_the_query_is_taken_out_whole_and_other_words_stay():
    assert left_in(ProgramText(QUERY), f"<user>{QUERY.upper()}</user> be quick") == ("user", "user", "be", "quick")


@pytest.mark.parametrize("letters", [RECORDED_MIN - 1, RECORDED_MIN])
def test_a_match_counts_from_forty_letters_and_digits_on(letters):
    passage = "abcdefghij klmnopqrst uvwxyzabcd efghijklmn opqrst"
    quoted = " ".join(words_of(passage))[: letters + letters // 10 - (letters % 10 == 0)]
    assert sum(map(len, words_of(quoted))) == letters
    program = recorded(quoted + " 1 2 3")
    assert bool(left_in(program, f"xx {quoted} yy")[1:-1]) is (letters < RECORDED_MIN)


def test_text_that_was_recorded_only_after_it_was_sent_is_the_programs():
    program, message = ProgramText(QUERY), json.dumps({"role": "user", "content": TEXT})
    assert left_in(program, TEXT) != ()
    program.completed(TEXT, "", ())
    program.request([message, json.dumps({"role": "user", "content": "Go on."})])
    assert program.wrote_in(message) > RECORDED_MIN


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool", "developer"])
def test_a_role_does_not_make_text_another_writers(role):
    assert left_in(ProgramText(QUERY), "I reasoned long about it.", role=role) == (
        "i",
        "reasoned",
        "long",
        "about",
        "it",
    )


def test_messages_sent_again_are_new_text_only_once_and_keep_the_passage_before_them():
    program = ProgramText(QUERY)
    first = left_in(program, "alpha " * 400)
    again = left_in(program, "alpha " * 400, "omega")
    assert len(first) == 400 and again[-1] == "omega"
    assert PASSAGE <= sum(map(len, again[:-1])) <= PASSAGE + 10
    assert left_in(program, "alpha " * 400, "omega") == ()


@given(st.text(max_size=300))
def test_any_text_has_words_and_they_have_themselves_as_words(text):
    words = words_of(text)
    assert all(word and not word.isspace() for word in words)
    passage = Passage(words)
    assert all(passage.holds(word) for word in words)


SAME = [
    ("Red-Lamp", "red lamp"), ("r\u200bed", "red"), ("ＲＥＤ", "red"), ("𝐫𝐞𝐝", "red"), ("caf\u00e9", "cafe\u0301"),
    ("café", "CAFE"), ("&quot;a&quot;", '"a"'), ("&#114;ed", "red"), ("%72ed", "red"), ("%2572ed", "red"),
    ("\\u0072ed", "red"), ("\\\\nred", "red"), ("1249.0", "1249"), ("899.50", "899.5"), ("None", "null"),
    ("True", "true"), ("\\ud835\\udc2b", "r"), ("1,000.00", "1 000"), ("\\162\\145\\144", "red"),
    ("\\x{72}ed", "red"),
    ("\\u{72}\\u{000065}d", "red"), ("\\N{LATIN SMALL LETTER R}ed", "red"), ("&#114ed", "red"),
    ("&#x00072Red", "&#114;Red"),
    ("&#0000000114;ed", "red"), ("%u0072ed", "red"), ("\x1b[31mred\x1b[0m", "red"), ("\\033[1;31mred", "red"),
    ("\\e[1mred", "red"), ("rеd", "red"), ("ʀᴇᴅ", "red"), ("🅡🅔🅓", "red"), ("&red; &lamp;", "red lamp"),
    ("\\banker", "banker"),
    ("\\4410020078", "4410020078"), ("\\2500", "2500"), ("&copper lamp", "copper lamp"),
    ("\\N{red} lamp", "n red lamp"),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), SAME)
def test_spellings_of_the_same_words(left, right):
    assert words_of(left) == words_of(right)


TORN = {
    "bold tags": lambda text: "".join(f"<b>{c}</b>" for c in text),
    "empty tags": lambda text: "<wbr>".join(text),
    "tags of no name that is known": lambda text: "".join(f"<x>{c}</x>" for c in text),
    "tags in turns": lambda text: "".join(f"<{'xy'[n % 2]}>{c}</{'xy'[n % 2]}>" for n, c in enumerate(text)),
    "escaped tags": lambda text: html.escape("".join(f"<i>{c}</i>" for c in text)),
    "colours": lambda text: "".join(f"\x1b[3{n % 8}m{c}" for n, c in enumerate(text)),
    "joiners": "\u200d".join,
}


@pytest.mark.parametrize("way", TORN)
def test_letters_that_markup_sets_apart_are_still_the_value(way):
    assert Passage(words_of(f"xx {TORN[way]('brass lamp')} yy")).holds("brasslamp")


def test_tags_that_say_something_stay():
    assert words_of("<find_product><q>red</q><page>2</page></find_product>") == words_of(
        "find product q red q page 2 page find product"
    )


@pytest.mark.parametrize("value", ["red lamp", "1000", "usb-c"])
@pytest.mark.parametrize("split", [" ", "-", "**", ".\n", "\u200b"])
def test_a_value_is_found_however_its_letters_are_set_apart_and_only_as_whole_words(value, split):
    needle = "".join(words_of(value))
    assert Passage(words_of(f"xx {split.join(value)} yy")).holds(needle)
    assert not Passage(words_of(f"xx{value}yy")).holds(needle)
