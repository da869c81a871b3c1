"""Whose prompt it is: a long text has an owner whatever loop it stands in; short, published and quoted ones none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from arena.gate.inspection import inspect
from arena.gate.isolation import inspect_isolated
from arena.gate.knowledge import GateKnowledge, make_knowledge
from arena.gate.report import GateReport
from arena.gate.similarity.ownership import COPIED_TEXT_PHRASES, TEXT_PHRASES, Author, Neighbour
from arena.gate.similarity.sketch import make_sketch
from harness.agents.registry import published_sources
from harness.tools.printed import printed_tools
from harness.tools.registry import profile_schemas, profile_tools
from tests.arena.gate_stand import RULES, make_neighbour

LOOP = (Path(__file__).parents[2] / "examples" / "model_loop.py").read_text(encoding="utf-8")
OPENING = "You shop on a marketplace;"
KNOWLEDGE = make_knowledge([], [], published_sources(), RULES)
QUOTE = (
    "Think step by step and check every requirement of the shopper before you answer, and never make up an id that no "
    "tool has returned to you."
)
OTHER_LOOP = """
from arena_sdk import llm, tools
PROMPT = {prompt}
def agent_main(problem):
    log = [dict(role="system", content={asked}), dict(role="user", content=problem["query"])]
    done = False
    while not done:
        turn = llm.chat(log, tools=tools.schemas())
        log += [turn.message]
        for call in turn.tool_calls:
            log += [dict(role="tool", tool_call_id=call["id"], content=tools.execute(call["name"], call["arguments"]))]
            done = done or call["name"] == "terminate"
"""


def _prompt(seed: int, sentences: int = 40) -> str:
    """Sentences that nobody else has written."""
    rnd = random.Random(seed)
    words = ["price", "colour", "shop", "service", "title", "first", "cheaper", "option", "weigh", "against", "ask"]
    return " ".join(
        " ".join(rnd.choices(words, k=9)).capitalize() + f" {rnd.randrange(10**6)}." for _ in range(sentences)
    )


def _with(prompt: str) -> str:
    """The published loop with a prompt of its own."""
    return LOOP.replace(OPENING, f"{OPENING} {prompt}")


def _other(prompt: str, asked: str = "PROMPT") -> str:
    return OTHER_LOOP.format(prompt=prompt, asked=asked)


def _author(name: str, block: int, coldkey: str = "") -> Author:
    return Author(
        agent_version_id=name, miner_hotkey=f"hot-{name}", miner_coldkey=coldkey or name, commitment_block=block
    )


def _committed(source: str, name: str = "victim", block: int = 10, **fields: bool) -> Neighbour:
    return make_neighbour(_author(name, block), source, **fields)


def _report(source: str, *earlier: Neighbour, knowledge: GateKnowledge = KNOWLEDGE, coldkey: str = "") -> GateReport:
    return inspect(source, RULES, knowledge, earlier, _author("later", 20, coldkey))


def _met(source: str, *earlier: Neighbour, coldkey: str = "") -> tuple[str, set[str]]:
    report = _report(source, *earlier, coldkey=coldkey)
    return report.outcome, {found.rule for found in report.findings}


MINE = _prompt(1)
VICTIM = _with(MINE)


def test_the_same_file_under_another_coldkey_is_a_copy_though_its_code_is_published() -> None:
    assert _met(VICTIM) == _met(VICTIM, _committed(VICTIM), coldkey="victim") == ("accept", set())
    assert _met(VICTIM, _committed(VICTIM)) == ("reject", {"copy"})
    short = _with(_prompt(2, 4))  # thirty-odd words are no coincidence where all the rest is equal
    assert COPIED_TEXT_PHRASES <= len(make_sketch(short).texts) - len(make_sketch(LOOP).texts) < TEXT_PHRASES
    assert _met(short, _committed(short)) == ("reject", {"copy"})


@pytest.mark.parametrize(
    "source",
    [
        _other(repr(MINE)),
        _other(repr(MINE.upper().replace(" ", "\n\t"))),
        _other(repr(MINE.split(". "))),  # a list of sentences
        _other(repr(MINE.encode())),
        _other(" + ".join(repr(part) for part in MINE.partition(". "))),
        _other("None", f'f"{{problem}} {MINE}"'),
        f'"""{MINE}"""\n{_other("None", "__doc__")}',
        _other(repr(f"{_prompt(7)} {MINE} {_prompt(8)}")),  # among twice as many words of its own
    ],
    ids=["loop", "case", "list", "bytes", "sum", "f-string", "docstring", "padded"],
)
def test_a_prompt_that_moved_into_another_file_is_held(source: str) -> None:
    outcome, rules = _met(source, _committed(VICTIM))
    assert outcome != "accept" and "similarity" in rules
    assert "similarity" not in _met(source)[1]


def test_a_text_in_a_script_without_spaces_has_an_owner_too() -> None:
    rnd = random.Random(3)
    text = "".join(chr(rnd.randrange(0x4E00, 0x9000)) for _ in range(400))
    assert _met(_other(repr(text)), _committed(_with(text))) == ("review", {"similarity"})


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (LOOP, LOOP),  # a published file, handed in by two
        (LOOP.replace("MAX_STEPS = 20", "MAX_STEPS = 25"), LOOP.replace("MAX_STEPS = 20", "MAX_STEPS = 25")),
        (_with("Be brief."), _with("Be brief.")),
        (_with(_prompt(4)), _with(_prompt(5))),  # a published prompt, continued by each in another way
        (_other(repr(f"{_prompt(4)} {QUOTE}")), _other(repr(f"{QUOTE} {_prompt(5)}"))),
        (_other(repr(QUOTE)), _with(QUOTE)),
        (_other(repr(LOOP)), _with(_prompt(5))),  # the published file as a text
    ],
    ids=["published", "one number", "short", "published prompt", "quote", "quote alone", "quoted file"],
)
def test_short_published_and_quoted_texts_belong_to_nobody(mine: str, theirs: str) -> None:
    assert _met(mine, _committed(theirs)) == ("accept", set())


def test_the_shipped_agents_stay_accepted_beside_each_other() -> None:
    for source in published_sources():
        others = [_committed(other, f"o{place}", place) for place, other in enumerate(published_sources())]
        assert {"copy", "similarity"}.isdisjoint(_met(source, *others)[1])


def test_a_winners_prompt_and_what_three_owners_share_are_free() -> None:
    source = _other(repr(f"{MINE} {_prompt(9, 5)}"))
    assert _met(source, _committed(VICTIM, is_winner=True)) == ("accept", set())
    owners = [_committed(_with(f"{MINE} {_prompt(30 + index, 120)}"), f"o{index}", index) for index in range(3)]
    assert _met(source, *owners[:2]) == ("review", {"similarity"})
    assert _met(source, *owners) == ("accept", set())


def test_a_held_text_names_nothing_under_embargo_and_says_the_same_in_the_child() -> None:
    source, earlier = _other(repr(MINE)), _committed(VICTIM)
    report = _report(source, earlier)
    assert [(found.line, found.detail) for found in report.findings] == [(0, "")]
    assert inspect_isolated(source, RULES, KNOWLEDGE, [earlier], _author("later", 20)) == report
    assert report.inputs_sha256 != _report(source, _committed(_with(_prompt(6)))).inputs_sha256


TOOLS_KNOWN = make_knowledge([], [], published_sources(), RULES, published_texts=printed_tools())
LISTED = {
    "JSON": profile_schemas("sn15"),
    "a list": "\n".join(
        f"* {tool.name}: {tool.description}\n"
        + "\n".join(f"    {one.name}: {one.description}" for one in tool.parameters)
        for tool in profile_tools("sn15").values()
    ),
    "numbered": "\n".join(
        f"{place}. {tool.usage()}: {tool.description}" for place, tool in enumerate(profile_tools("sn15").values(), 1)
    ),
}


@pytest.mark.parametrize("listed", LISTED.values(), ids=LISTED)
def test_who_first_lists_the_arenas_own_tools_owns_nothing_by_it(listed: str) -> None:
    earlier = _committed(_with(listed))
    for honest in (_with(f"{MINE} {listed}"), _other(repr(f"{_prompt(7)} {listed}")), _other(repr(listed))):
        assert _report(honest, earlier).outcome == "review"  # as long as the tools' words are nobody's known text
        assert _report(honest, earlier, knowledge=TOOLS_KNOWN).outcome == "accept"
    copied = _report(_with(f"{MINE} {listed}"), _committed(VICTIM), knowledge=TOOLS_KNOWN)
    assert copied.outcome == "review"  # and beside another's prompt they hide nothing


def test_a_published_agent_with_a_docstring_of_ones_own_is_no_copy_of_the_same_agent() -> None:
    mine = LOOP.replace('"""', f'"""{_prompt(11, 6)}\n', 1)
    assert len(make_sketch(mine).texts) - len(make_sketch(LOOP).texts) >= COPIED_TEXT_PHRASES
    assert _met(mine, _committed(LOOP)) == ("accept", set())
    assert _met(mine, _committed(mine)) == ("reject", {"copy"})
