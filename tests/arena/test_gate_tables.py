"""Answer tables and benchmark texts, in every reading the rules promise to search."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.gate.answer_tables.grams import text_grams
from arena.gate.inspection import inspect
from arena.gate.knowledge import make_knowledge
from tests.arena.gate_stand import END, IDS, RULES, TABLE, TEXTS, gate, knowledge, rules_met, shifted


@pytest.mark.parametrize("separator", [" ", ",", "\n", "-", "/ product "])
@given(data=st.data())
def test_three_ids_are_a_table_under_any_shift_and_direction(separator: str, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(IDS), min_size=3, max_size=8, unique=True))
    text = shifted(separator.join(chosen), data.draw(st.integers(0, 9)))
    report = gate(f"T = {text[:: data.draw(st.sampled_from([1, -1]))]!r}")
    assert "id-table" in rules_met(report)
    assert report.severity == "integrity"


@pytest.mark.parametrize(
    "encode",
    [
        base64.b64encode,
        base64.urlsafe_b64encode,
        base64.b32encode,
        base64.b85encode,
        base64.a85encode,
        base64.b16encode,
    ],
)
def test_encoded_ids_are_a_table_alone_or_together(encode: Callable[[bytes], bytes]) -> None:
    alone = [encode(value.encode()).decode() for value in TABLE]
    together = encode("|".join(TABLE).encode()).decode()
    assert "id-table" in rules_met(gate(f"T = {alone!r}"))
    assert "id-table" in rules_met(gate(f"T = {together!r}"))


@pytest.mark.parametrize("prefix", ["", "7", "0000000"])
def test_ids_packed_without_a_gap_are_a_table(prefix: str) -> None:
    assert "id-table" in rules_met(gate(f"T = '{prefix}{''.join(TABLE)}'"))
    assert "id-table" in rules_met(gate(f"T = '{shifted(prefix + ''.join(TABLE), 4)}'"))
    assert "id-table" in rules_met(gate(f"T = {prefix.lstrip('0')}{''.join(TABLE)}"))


def test_ids_folded_from_pieces_are_a_table() -> None:
    pieces = ", ".join(f'f"{value[:3]}{{{value[3:]!r}}}"' for value in TABLE)
    assert "id-table" in rules_met(gate(f"T = [{pieces}]"))
    joined = ", ".join(repr(value) for value in TABLE)
    assert "id-table" in rules_met(gate(f"T = ', '.join([{joined}])"))


def test_ids_as_bytes_and_floats_are_a_table() -> None:
    assert "id-table" in rules_met(gate(f"T = {[value.encode() for value in TABLE]}"))
    assert "id-table" in rules_met(gate(f"T = {[float(value) for value in TABLE]}"))


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_ids_are_no_table(count: int) -> None:
    assert gate(f"T = {TABLE[:count]}").outcome == "accept"


def test_one_id_repeated_is_no_table() -> None:
    assert gate(f"T = {[TABLE[0]] * 9}").outcome == "accept"
    assert gate(f"T = '{TABLE[0] * 9}'").outcome == "accept"


def test_ids_hidden_in_several_ways_are_looked_at() -> None:
    body = f"T = [{TABLE[0]!r}, {shifted(TABLE[1], 3)!r}, {TABLE[2][::-1]!r}]"
    report = gate(body)
    assert report.outcome == "review"
    assert "id-hits" in rules_met(report)


def test_an_id_inside_a_longer_number_is_not_an_id() -> None:
    assert gate(f"T = {['9' + value + '9' for value in TABLE]}").outcome == "accept"


def test_numbers_that_are_no_ids_are_nothing() -> None:
    rnd = random.Random(4)
    unknown = [str(rnd.randrange(10**9, 2 * 10**9)) for _ in range(60)]
    assert gate(f"T = {unknown}").outcome == "accept"


def test_random_digits_make_no_table_even_in_a_dense_catalogue() -> None:
    rnd = random.Random(5)
    dense = make_knowledge((str(n) for n in rnd.sample(range(10**8, 10**9), 200_000)), [], [], RULES)
    digits = "".join(rnd.choice("0123456789") for _ in range(2_000))
    report = inspect(f"PI = '{digits}'{END}", RULES, dense)
    assert "id-table" not in rules_met(report)


def test_digits_beyond_what_is_searched_are_reported_as_unsearched() -> None:
    rnd = random.Random(6)
    digits = "".join(rnd.choice("0123456789") for _ in range(30_000))
    assert "unsearched" in rules_met(gate(f"T = '{digits}'"))


@given(st.sampled_from(TEXTS), st.integers(0, 25), st.booleans(), st.booleans())
def test_a_known_text_is_found_under_any_letter_shift(text: str, shift: int, is_reversed: bool, is_upper: bool) -> None:
    hidden = shifted(text.upper() if is_upper else text, shift)
    report = gate(f"T = {(hidden[::-1] if is_reversed else hidden)!r}")
    assert rules_met(report) == {"benchmark-text"}
    assert report.outcome == "review"


def test_a_known_text_is_found_encoded_split_and_in_the_middle_of_a_prompt() -> None:
    words = TEXTS[2].split()
    for literal in (
        repr(base64.b64encode(TEXTS[2].encode()).decode()),
        repr(words),
        repr("Answer this: " + TEXTS[2].replace(" ", ",\n") + " and nothing else"),
    ):
        assert "benchmark-text" in rules_met(gate(f"T = {literal}"))


def test_five_words_of_a_known_text_are_ordinary_language() -> None:
    assert gate(f"T = {' '.join(TEXTS[0].split()[:5])!r}").outcome == "accept"


@given(st.text(alphabet=st.characters(codec="ascii"), max_size=200), st.integers(1, 25))
def test_grams_do_not_change_under_a_letter_shift(text: str, shift: int) -> None:
    plain, turned = text_grams(text.encode(), 3), text_grams(shifted(text, shift).encode(), 3)
    assert plain[0].tolist() == turned[0].tolist()
    assert plain[1].tolist() == turned[1].tolist()


def test_grams_of_other_words_differ() -> None:
    grams = text_grams(b"one two three four five six seven eight nine ten", 6)[0]
    assert len(set(grams.tolist())) == 5


def test_knowledge_is_the_same_in_any_order() -> None:
    made = make_knowledge(reversed(IDS), reversed(TEXTS), [], RULES)
    assert made.inputs_sha256 == knowledge().inputs_sha256
    assert made.id_lengths == (10,)
    assert inspect(f"T = {TABLE}{END}", RULES, made) == gate(f"T = {TABLE}")


def test_another_id_makes_another_input_hash() -> None:
    assert make_knowledge([*IDS, "99999999"], TEXTS, [], RULES).inputs_sha256 != knowledge().inputs_sha256


def test_ids_that_cannot_be_searched_for_are_counted() -> None:
    made = make_knowledge(["12345", "0123456789", "abc-1", "1" * 19, "１２３４５６７", IDS[0]], [], [], RULES)
    assert (made.skipped_ids, len(made.product_ids)) == (5, 1)


def _codes(text: str, by: int = 0) -> list[int]:
    return [ord(character) + by for character in text]


def _cheap(table: Sequence[str]) -> dict[str, str]:
    """Programs with the table in disguises that reading undoes."""
    return {
        "dict keys": f"T = {{{', '.join(f'{value!r}: 1' for value in table)}}}",
        "bytes": f"T = {[value.encode() for value in table]}",
        "docstring": f'def f():\n    """{" ".join(table)}"""',
        "function names": "\n".join(f"def p{value}():\n    pass" for value in table),
        "names with separators": "\n".join(f"p_{value[:4]}_{value[4:]} = 1" for value in table),
        "keyword names": f"T = dict({', '.join(f'p{value}=1' for value in table)})",
        "attribute names": "class C:\n    pass\n" + "\n".join(f"C.p{value} = 1" for value in table),
        "character codes": f"T = ''.join(map(chr, {_codes(','.join(table))}))",
        "moved character codes": f"T = ''.join(chr(c - 9) for c in {_codes(','.join(table), 9)})",
        "codes as bytes": f"T = bytes({_codes(' '.join(table))})",
        "calls of chr": f"T = {' + '.join(f'chr({ord(character)})' for character in ' '.join(table[:3]))}",
        "digits one by one": f"T = {[int(character) for character in ''.join(table)]}",
        "digit texts one by one": f"T = {list(''.join(table))}",
        "integers moved by a constant": f"T = [v - 7001 for v in {[int(value) + 7001 for value in table]}]",
        "integers under exclusive or": f"K = 90210\nT = [v ^ 90210 for v in {[int(value) ^ 90210 for value in table]}]",
        "running sums": f"T = {[int(table[0]), *(int(b) - int(a) for a, b in pairwise(table))]}",
        "dict of moved integers": f"S = {dict(enumerate(int(value) - 31 for value in table))}\n"
        "T = {k: v + 31 for k, v in S.items()}",
        "adjacent literals": f"T = [{', '.join(f'{value[:3]!r} {value[3:]!r}' for value in table)}]",
        "separators": f"T = '{'-'.join(value[:3] + '.' + value[3:7] + '.' + value[7:] for value in table)}'",
        "spaced digits": f"T = '{' '.join(''.join(table))}'",
        "turned": f"T = '{' '.join(table)[::-1]}'[::-1]",
        "replaced": f"T = '{'x'.join(''.join(table))}'.replace('x', '')",
        "percent": "T = [" + ", ".join(f"'%s{value[4:]}' % '{value[:4]}'" for value in table) + "]",
        "arithmetic of constants": f"T = [{', '.join(f'{int(value) - 5}+5' for value in table)}]",
    }


CHEAP = _cheap(TABLE)


@pytest.mark.parametrize("kind", CHEAP)
def test_a_table_in_a_cheap_disguise_is_a_table(kind: str) -> None:
    assert "id-table" in rules_met(gate(CHEAP[kind]))


def test_ids_in_comments_are_looked_at() -> None:
    report = gate("\n".join(f"# {value}" for value in TABLE))
    assert rules_met(report) == {"id-hits"}
    assert report.findings[0].line == 1
    assert gate(f"# {TABLE[0]} {TABLE[1]}").outcome == "accept"


@pytest.mark.parametrize("kind", CHEAP)
def test_other_numbers_in_the_same_disguise_are_nothing(kind: str) -> None:
    rnd = random.Random(8)
    others = [str(rnd.randrange(2_100_000_002, 2_100_900_000)) for _ in range(12)]
    assert not rules_met(gate(_cheap(others)[kind])) & {"id-table", "id-hits"}


WRITTEN: dict[str, Callable[[str], object]] = {
    "hexadecimal numbers": lambda number: hex(int(number)),
    "binary numbers": lambda number: bin(int(number)),
    "octal numbers": lambda number: f"{int(number):o}",
    "base 36": lambda number: np.base_repr(int(number), 36).lower(),
    "digits of another script": lambda number: "".join(chr(0x660 + int(digit)) for digit in number),
    "digits apart": " ".join,
    "imaginary numbers": lambda number: complex(0, int(number)),
}


@pytest.mark.parametrize("how", WRITTEN)
def test_ids_that_int_or_complex_reads_are_a_table(how: str) -> None:
    assert "id-table" in rules_met(gate(f"A = {[WRITTEN[how](number) for number in IDS[:12]]!r}"))


LETTERS = str.maketrans("0123456789", "qzxwvkjyhu")
PIECES: dict[str, Callable[[str], object]] = {
    "halves": lambda number: number[:5],
    "halves changed round": lambda number: number[5:] + number[:5],
    "letters for digits": lambda number: number.translate(LETTERS),
    "pairs of numbers": lambda number: divmod(int(number), 65_536),
}


@pytest.mark.parametrize("how", PIECES)
def test_many_numbers_in_any_writing_are_looked_at(how: str) -> None:
    rows = [PIECES[how](number) for number in IDS[::40]]
    assert "integer-array" in rules_met(gate(f"A = {rows!r}"))
    assert "integer-array" in rules_met(gate(f"A = {dict(enumerate(map(str, rows)))!r}")) or how == "pairs of numbers"


def test_many_words_and_small_numbers_are_not() -> None:
    words = [f"{kind} {thing}" for kind in ("red", "blue", "long", "wide") for thing in range(30)]
    weights = {word: place % 7 for place, word in enumerate(words)}
    assert gate(f"A = {words!r}\nB = {weights!r}\nC = {[[place, place + 1] for place in range(90)]!r}").findings == ()
