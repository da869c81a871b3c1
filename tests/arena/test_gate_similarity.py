"""Whose code and whose prompt it is: copies in every disguise are found, strangers, idioms and public code are not."""

from __future__ import annotations

import functools
import random
import sysconfig
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from arena.gate.inspection import inspect
from arena.gate.knowledge import GateKnowledge, make_knowledge
from arena.gate.likeness import Author, Neighbour, Sketch, class_heads, decode_sketch, make_sketch, shared_e4
from arena.gate.rules import GateReport
from arena.policies import PAPER
from foundation.errors import ArenaError
from harness.agents.registry import first_agent, published_sources
from harness.tools.registry import printed_tools, profile_schemas
from tests.arena.gate_disguises import EQUAL, NEAR, WRAPPERS, renamed, reordered
from tests.arena.gate_stand import RULES, knowledge, make_neighbour, rules_met

REACT = (Path(__file__).parents[1] / "harness" / "sn15_react_agent.py").read_text(encoding="utf-8")
LOOP = (Path(__file__).parents[2] / "examples" / "model_loop.py").read_text(encoding="utf-8")
PUBLIC = make_knowledge([], [], published_sources(), RULES, published_texts=printed_tools())
GOLDEN = 5363227616585197715  # the runs of the source below, folded by exclusive or


def _agent(seed: int) -> str:
    """A program of its own: forty functions of random shape over the SDK, all called by the entry."""
    rnd = random.Random(seed)
    parts = ["import json, re", "from arena_sdk import llm, tools"]
    for index in range(40):
        method, other = rnd.sample(["strip", "lower", "split", "title", "upper", "splitlines", "casefold"], 2)
        bodies = [
            f"    found = [w.{method}() for w in words if w.{other}() not in state['{method}']]\n"
            f"    state['{other}'] = sorted(found, key=lambda w: (len(w), -w.count('{index}')))\n",
            f"    for place, word in enumerate(words[{index}:]):\n        if word.{method}() == str(place):\n"
            f"            state.setdefault('{other}', []).append((place, word.{other}()))\n            break\n",
            f"    reply = llm.chat([{{'role': 'user', 'content': words[0].{method}()}}], temperature={index})\n"
            f"    state['{other}'] = json.loads(reply.content)['{method}'] if reply.tool_calls else None\n",
            f"    hits = tools.find_product(q=' '.join(words).{method}(), page={index % 5}, sort='{other}')\n"
            f"    state.update({{hit['product_id']: hit['title'].{other}() for hit in hits or []}})\n",
            f"    match = re.search('{method}' + r'\\d+', ' '.join(words))\n    while match and len(state) < {index}:\n"
            f"        state[match.group(0).{other}()] = match.start() - {index}\n        match = None\n",
        ]
        chosen = "".join(rnd.sample(bodies, rnd.randint(1, 3)))
        parts.append(f"def step_{index}(state, words):\n{chosen}    return state\n")
    calls = "".join(f"    state = step_{index}(state, problem['query'].split())\n" for index in range(40))
    parts.append(f"def agent_main(problem):\n    state = {{}}\n{calls}    return state\n")
    return "\n".join(parts)


def _author(name: str, block: int, **fields: object) -> Author:
    return msgspec.convert(
        {"agent_version_id": name, "miner_hotkey": f"hotkey-{name}", "commitment_block": block, **fields}, Author
    )


def _committed(
    source: str, name: str = "victim", block: int = 5, *, is_winner: bool = False, **fields: object
) -> Neighbour:
    return make_neighbour(_author(name, block, **fields), source, is_winner=is_winner)


def _report(
    source: str, *neighbours: Neighbour, author: Author | None = None, known: GateKnowledge | None = None
) -> GateReport:
    return inspect(source, RULES, known or knowledge(), neighbours, author or _author("later", 900))


def _met(source: str, *neighbours: Neighbour, **more: Any) -> set[str]:
    return rules_met(_report(source, *neighbours, **more)) & {"copy", "similarity"}


def _near(index: int = 0) -> str:
    """A near copy unlike the others: its texts are other ones."""
    return NEAR[0](REACT, random.Random(0)).replace("Now: ", f"Now {index}: ")


@functools.cache
def _victims() -> dict[str, Neighbour]:
    return {source: _committed(source) for source in (REACT, _agent(1))}


def test_a_copy_in_another_disguise_is_found() -> None:
    missed = {
        (disguise.__name__, source[:20])
        for source, victim in _victims().items()
        for disguise in (*EQUAL, *NEAR)
        if not _met(disguise(source, random.Random(7)), victim)
    }
    assert missed == set()


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.prove)])
def test_a_copy_in_wrappers_is_found(every: int) -> None:
    tried = [(wrap, source) for source in _victims() for wrap in WRAPPERS][::every]
    missed = [wrap.__name__ for wrap, source in tried if not _met(wrap(source, random.Random(7)), _victims()[source])]
    assert len(missed) <= 1


def test_equal_code_under_other_names_is_a_copy() -> None:
    for source, victim in _victims().items():
        report = _report(reordered(renamed(source, random.Random(7)), random.Random(7)), victim)
        assert rules_met(report) >= {"copy"} and report.failure is not None and report.failure.code == "A1011"
    values = {make_sketch(f"def f(x):\n    return x {text}").code_sha256 for text in ("+ 1", "+ 2", "- 1", ".a", ".b")}
    assert len(values) == 5


@functools.cache
def _library(name: str) -> str:
    return (Path(sysconfig.get_paths()["stdlib"]) / f"{name}.py").read_text(encoding="utf-8")


def test_strangers_share_little() -> None:
    names = ("argparse", "calendar", "configparser", "csv", "difflib", "fractions", "heapq", "pathlib", "textwrap")
    tokens = [make_sketch(source).tokens for source in (*map(_library, names), *_victims())]
    assert max(shared_e4(one, two) for place, one in enumerate(tokens) for two in tokens[:place]) < 500


def test_a_victim_inside_a_file_many_times_its_size_is_found() -> None:
    large = "\n".join(_agent(seed).split("def agent_main")[0].replace("step_", f"s{seed}_") for seed in range(20, 45))
    assert _met(f"{large}\n{_near()}", _victims()[REACT]) == {"similarity"}


def test_the_owner_is_whoever_committed_first() -> None:
    mine = _author("mine", 10, commitment_order=1)
    for block, order, is_found in ((9, 7, True), (10, 0, True), (10, 2, False), (11, 0, False)):
        assert bool(_met(_near(), _committed(REACT, "z", block, commitment_order=order), author=mine)) is is_found
    for name, is_found in (("a", True), ("z", False)):
        assert bool(_met(REACT, _committed(REACT, name, 10), author=_author("m", 10))) is is_found


@pytest.mark.parametrize("shared", ["miner_hotkey", "miner_coldkey"])
def test_an_owners_own_versions_are_no_matter(shared: str) -> None:
    other = _committed(REACT, "old", 5, **{shared: "the same"})
    assert _met(REACT, other, author=_author("new", 10, **{shared: "the same"})) == set()


def test_what_is_public_belongs_to_nobody() -> None:
    assert _met(_near(), _victims()[REACT], known=make_knowledge([], [], [REACT, _near()], RULES)) == set()
    winner = _committed(REACT, "winner", 1, is_winner=True)
    assert _met(NEAR[0](REACT, random.Random(2)), winner, _committed(EQUAL[2](REACT, random.Random(1)))) == set()
    assert _met(REACT, winner) == {"copy"}
    for place, source in enumerate(published_sources()):
        others = [_committed(other, f"o{index}", index) for index, other in enumerate(published_sources())]
        assert _met(source, *others, known=PUBLIC) == set(), place


def test_what_three_owners_share_is_common_but_copies_make_nothing_common() -> None:
    react = REACT.replace("from __future__ import annotations", "")
    own = [f"{_library(name)}\n{react}" for name in ("argparse", "configparser", "pathlib")]
    others = [_committed(source, f"o{index}", index) for index, source in enumerate(own[:3])]
    sisters = [_committed(source, f"o{index}", index, miner_coldkey="one") for index, source in enumerate(own[:3])]
    assert (_met(REACT, *others[:2]), _met(REACT, *sisters), _met(REACT, *others)) == (
        {"similarity"},
        {"similarity"},
        set(),
    )
    held = [_committed(EQUAL[2](_near(index), random.Random(index)), f"sybil{index}", 6 + index) for index in range(4)]
    assert _met(_near(9), _victims()[REACT], *held) == {"similarity"}


@pytest.mark.parametrize(("mine", "theirs"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_hold_names_an_agent_only_where_both_are_public(mine: bool, theirs: bool) -> None:
    for source in (REACT, _near()):
        report = _report(
            source, _committed(REACT, "first", 5, is_public=theirs), author=_author("later", 9, is_public=mine)
        )
        (found,) = [found for found in report.findings if found.rule in ("copy", "similarity")]
        assert ("agent first of hotkey-first" in found.detail) is (mine and theirs)
        assert found.line == 0 and (found.detail == "") is not (mine and theirs)


def test_a_verdict_names_its_inputs_in_any_order() -> None:
    one, two = _committed(_agent(1), "a", 1), _committed(_agent(2), "b", 2)
    assert _report(REACT, one, two) == _report(REACT, two, one)
    reports = [
        _report(REACT),
        _report(REACT, one),
        _report(REACT, one, two),
        _report(REACT, one, author=_author("later", 901)),
        _report(REACT, _committed(_agent(1), "a", 2)),
        _report(REACT, _committed(_agent(1), "a", 1, is_winner=True)),
    ]
    assert len({report.inputs_sha256 for report in reports}) == 6


def test_a_sketch_is_the_same_in_every_process() -> None:
    source = "def f(x):\n    return [i.strip().title() for i in x if len(i) > 3]\n\n\nprint(f(input()))\n"
    assert int(np.bitwise_xor.reduce(make_sketch(source).phrases)) == GOLDEN
    with pytest.raises(ValueError, match="not a parsable source"):
        make_sketch("def f(:")


# -- texts
OTHER_LOOP = """
from arena_sdk import llm, tools
PROMPT = {prompt}
def agent_main(problem):
    log = [dict(role="system", content={asked}), dict(role="user", content=problem["query"])]
    turn = llm.chat(log, tools=tools.schemas())
    for call in turn.tool_calls:
        log += [dict(role="tool", tool_call_id=call["id"], content=tools.execute(call["name"], call["arguments"]))]
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
    return LOOP.replace("You shop on a marketplace;", f"You shop on a marketplace; {prompt}")


def _other(prompt: str, asked: str = "PROMPT") -> str:
    return OTHER_LOOP.format(prompt=prompt, asked=asked)


MINE = _prompt(1)
HAN = "".join(map(chr, random.Random(3).choices(range(0x4E00, 0x9000), k=400)))
MOVED = {
    "loop": _other(repr(MINE)),
    "case": _other(repr(MINE.upper().replace(" ", "\n\t"))),
    "list": _other(repr(MINE.split(". "))),
    "bytes": _other(repr(MINE.encode())),
    "f-string": _other("None", f'f"{{problem}} {MINE}"'),
    "padded": _other(repr(f"{_prompt(7)} {MINE} {_prompt(8)}")),
}


@pytest.mark.parametrize("how", MOVED)
def test_a_prompt_that_moved_into_another_file_is_held(how: str) -> None:
    assert _met(MOVED[how], _committed(_with(MINE)), known=PUBLIC) == {"similarity"}
    assert _met(MOVED[how], _committed(_with(_prompt(5))), known=PUBLIC) == set()


def test_the_same_prompt_in_a_published_loop_is_a_copy_and_a_script_without_spaces_has_an_owner() -> None:
    for prompt in (MINE, _prompt(2, 4)):
        assert _met(_with(prompt), _committed(_with(prompt)), known=PUBLIC) == {"copy"}
    assert _met(_other(repr(HAN)), _committed(_with(HAN)), known=PUBLIC) == {"similarity"}


def test_short_published_and_listed_texts_belong_to_nobody() -> None:
    tools = profile_schemas("sn15")
    pairs = [(LOOP, LOOP), (_with("Be brief."), _with("Be brief.")), (_with(_prompt(4)), _with(_prompt(5)))]
    pairs += [(_other(repr(f"{_prompt(7)} {tools}")), _with(tools)), (_other(repr(LOOP)), _with(_prompt(5)))]
    assert [_met(mine, _committed(theirs), known=PUBLIC) for mine, theirs in pairs] == [set()] * 5
    source = _other(repr(f"{MINE} {_prompt(9, 5)}"))
    assert _met(source, _committed(_with(MINE), is_winner=True), known=PUBLIC) == set()


# -- classes of likeness: who joins whom, who heads a class, and what belongs to nobody


PUBLISHED = PAPER.gate


class Numbers(Sketch, frozen=True, kw_only=True, eq=False, dict=True):
    """A sketch whose phrases are numbers of our choice."""

    @property
    def phrases(self) -> np.ndarray:
        return self.tokens


def numbers(spans: str) -> np.ndarray:
    """`0-1000,5000-5100`: the numbers in these spans."""
    parts = [range(*map(int, span.split("-"))) for span in spans.split(",") if span]
    return np.unique(np.concatenate([np.asarray(part, dtype=np.uint64) for part in (range(0), *parts)]))


def author(name: str, block: int, owner: str = "", order: int = 0) -> Author:
    hotkey, coldkey = f"hk-{name}", f"ck-{owner or name}"
    return Author(
        agent_version_id=name,
        miner_hotkey=hotkey,
        commitment_block=block,
        commitment_order=order,
        miner_coldkey=coldkey,
    )


def agent(block: int, row: str) -> Neighbour:
    """`NAME CODE [text=SPANS] [owner=WHO] [at=BLOCK.ORDER] [revealed=BLOCK]`, else committed in this block."""
    name, code, *more = row.split()
    given = dict(each.split("=") for each in more)
    at, order = map(int, given.get("at", f"{block}.0").split("."))
    sketch = Numbers(code_sha256="", tokens=numbers(code), texts=numbers(given.get("text", "")))
    by = author(name, at, given.get("owner", ""), order)
    return Neighbour(author=by, sketch=sketch, revealed_block=int(given.get("revealed", 0)))


TEMPLATE = "9000-9900"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("a 0-1000 | copy 0-1000 | other 5000-6000", "a a other"),
        ("a 0-1000 | padded 0-1000,2000-2700 | fourfold 0-1000,3000-6100", "a a fourfold"),
        ("a 0-1000 | most 0-600 | less 401-1000", "a a less"),
        ("a 0-99 | too-small 0-99", "- -"),
        # each keeps 65 % of the one before: nobody gets the class of one with which it shares nothing
        ("a 0-1000 | b 350-1350 | c 700-1700 | d 1050-2050", "a a c c"),
        # a large file that is first claims neither of two strangers that share with it
        ("large 0-5000 | x 0-300,6000-6200 | y 2000-2300,7000-7200", "large x y"),
        (f"t {TEMPLATE} | fork {TEMPLATE},0-200 | other {TEMPLATE},500-700 | again {TEMPLATE},0-50", "- fork other -"),
        ("a 0-500 text=0-300 | moved 5000-5500 text=0-320", "a a"),
        # a winner's code is free once revealed; its forks are of its class unless they bring enough of their own
        (
            f"w {TEMPLATE},0-1000 revealed=3 | early 0-1000,2000-2400 | fork 0-1000,3000-3006 | built 0-1000,4000-4200",
            "w w w built",
        ),
        # versions of one owner don't join each other, and who copies half an agent gets no claim to the next version
        ("a 0-1000 owner=A | thief 0-550 | next 0-900,2000-2100 owner=A", "a thief next"),
        # within one block the chain's order decides, and no name
        ("z 0-500 at=7.1 | a 0-500 at=7.2", "z z"),
        ("z 0-500 at=7.2 | a 0-500 at=7.1", "a a"),
    ],
)
def test_a_file_joins_the_first_head_of_which_it_holds_enough(rows, expected):
    agents = [agent(block, row) for block, row in enumerate(rows.split(" | "), 1)]
    found = class_heads(agents[::-1], numbers(TEMPLATE), numbers(""), PUBLISHED)
    assert " ".join(found[each.author.agent_version_id] or "-" for each in agents) == expected


def test_the_untouched_scaffold_is_nobodys_and_a_prompt_of_ones_own_is_its_writers():
    scaffold = first_agent()
    own = scaffold.replace("You shop", f"{_prompt(1)} You shop", 1)
    sources = {"one": scaffold, "two": f"{scaffold}\n# two\n", "own": own, "copy": own, "react": REACT, "fork": REACT}
    agents = [make_neighbour(author(name, block), source) for block, (name, source) in enumerate(sources.items())]
    with_react = make_knowledge([], [], published_sources(), PUBLISHED, published_sketches=[make_sketch(REACT)])
    for known, expected in ((PUBLIC, ["react", "react"]), (with_react, ["", ""])):
        found = class_heads(agents, known.baseline, known.baseline_texts, PUBLISHED)
        assert list(found.values()) == ["", "", "own", "own", *expected]
    assert inspect(own, PUBLISHED, PUBLIC, agents, author("later", 99)).outcome == "accept"
    with pytest.raises(ArenaError, match="V2105"):
        decode_sketch(b"\x80")


def test_heads_are_the_same_in_any_order_and_beside_later_ones():
    sources = [_library(name) for name in ("argparse", "calendar", "difflib") for _ in range(3)]
    agents = [make_neighbour(author(f"v{n}", n), source) for n, source in enumerate(sources)]
    agents[4] = replace(agents[4], revealed_block=6)
    found = class_heads(agents, numbers(""), numbers(""), PUBLISHED)
    assert found == class_heads(agents[::-1], numbers(""), numbers(""), PUBLISHED)
    first = class_heads(agents[:5], numbers(""), numbers(""), PUBLISHED)
    assert found | first == found == class_heads(agents, numbers(""), numbers(""), PUBLISHED, first)
    assert [found[f"v{n}"] for n in range(9)] == ["v0"] * 3 + ["v3"] * 3 + ["v6"] * 3
