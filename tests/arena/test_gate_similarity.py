"""Whose code it is: copies in every disguise are found, strangers and idioms are not, and a hold tells no secret."""

from __future__ import annotations

import ast
import functools
import random
import sysconfig
from pathlib import Path

import msgspec
import numpy as np
import pytest

from arena.gate.inspection import inspect
from arena.gate.knowledge import make_knowledge
from arena.gate.report import GateReport
from arena.gate.similarity.ownership import Author, Neighbour, shared_e4, sources_of
from arena.gate.similarity.sketch import make_sketch
from harness.agents.registry import reference_agents
from tests.arena.gate_disguises import EQUAL, NEAR, Disguise
from tests.arena.gate_stand import END, RULES, knowledge, make_neighbour, rules_met
from tests.arena.gate_wrappers import WRAPPERS

REACT = (Path(__file__).parents[1] / "harness" / "sn15_react_agent.py").read_text(encoding="utf-8")
GOLDEN = 2762012103159273402  # the phrases of the source below, folded by exclusive or


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
            f"    try:\n        state['n'] = max(int(word.{method}()) for word in words if word.isdigit())\n"
            f"    except ValueError:\n        state['n'] = state.get('{other}', {index})\n",
        ]
        chosen = "".join(rnd.sample(bodies, rnd.randint(1, 3)))
        parts.append(f"def step_{index}(state, words):\n{chosen}    return state\n")
    calls = "".join(f"    state = step_{index}(state, problem['query'].split())\n" for index in range(40))
    parts.append(f"def agent_main(problem):\n    state = {{}}\n{calls}    return state\n")
    return "\n".join(parts)


BASES = {"react": REACT, "first": _agent(1), "second": _agent(2), "third": _agent(3)}
# each disguise of an agent as it is raced and of one of these programs in every run of the tests
DISGUISED = ["react", "first", *(pytest.param(name, marks=pytest.mark.prove) for name in ("second", "third"))]


def _author(name: str, block: int, **fields: object) -> Author:
    return msgspec.convert(
        {"agent_version_id": name, "miner_hotkey": f"hotkey-{name}", "commitment_block": block, **fields}, Author
    )


def _report(source: str, *neighbours: Neighbour, author: Author | None = None) -> GateReport:
    return inspect(source, RULES, knowledge(), neighbours, author or _author("later", 900))


@functools.cache
def _earlier(name: str, source: str) -> Neighbour:
    """Another author's agent of block 5, against which many copies are held."""
    return make_neighbour(_author(name, 5), source)


def _similar(report: GateReport) -> set[str]:
    return rules_met(report) & {"copy", "similarity"}


@pytest.mark.parametrize("base", DISGUISED)
@pytest.mark.parametrize("disguise", EQUAL, ids=lambda disguise: disguise.__name__)
def test_a_copy_under_other_names_and_dead_code_is_rejected(base: str, disguise: Disguise) -> None:
    first = _earlier("first", BASES[base])
    report = _report(disguise(BASES[base], random.Random(7)), first)
    assert _similar(report) == {"copy"}
    assert report.failure is not None
    assert report.failure.code == "A1011"


@pytest.mark.parametrize("base", DISGUISED)
@pytest.mark.parametrize("disguise", NEAR, ids=lambda disguise: disguise.__name__)
def test_a_copy_in_another_disguise_is_found(base: str, disguise: Disguise) -> None:
    first = _earlier("first", BASES[base])
    assert _similar(_report(disguise(BASES[base], random.Random(7)), first))


@pytest.mark.parametrize("base", ["react", pytest.param("first", marks=pytest.mark.prove)])
@pytest.mark.parametrize("wrap", WRAPPERS, ids=lambda wrap: wrap.__name__)
def test_a_copy_in_wrappers_is_found(base: str, wrap: Disguise) -> None:
    first = _earlier("first", BASES[base])
    assert _similar(_report(wrap(BASES[base], random.Random(7)), first))


def test_there_are_enough_disguises() -> None:
    assert len(EQUAL) + len(NEAR) >= 10 and len(WRAPPERS) >= 20


HIDING = {  # a second program in a place that a reader could take for a wrapper: it must stay visible
    "own_str": "def str(problem):\n    return second(problem)\n\n\n{second}\n\n\n{first}",
    "own_len_in_dead_looking_code": "def len(x):\n    second(x)\n    return x\n\n\n{second}\n\n\n{first_with}"
    "_a = len(problem)",
    "walrus_in_display": "{second}\n\n\n{first_with}_a = [kept := second, 0][1]\n    kept(problem)",
    "unread_result": "{second}\n\n\n{first_with}_a = second(problem)",
    "beside_the_chosen": "{second}\n\n\n{first_with}_a = (second(problem), 0)[1]",
    "argument_nobody_uses": "{second}\n\n\ndef none_(a):\n    return 0\n\n\n{first_with}_a = none_(second(problem))",
    "both_branches": "{second}\n\n\n{first_with}_a = 1 if second(problem) else 1",
    "operand": "{second}\n\n\n{first_with}_a = second(problem) and None",
    "emptied_loop": "{second}\n\n\n{first_with}for _a in (second(problem),):\n        pass",
    "else_of_a_turn": "{second}\n\n\n{first_with}for _a in (0,):\n        pass\n    else:\n        second(problem)",
    "finally": "{second}\n\n\n{first_with}try:\n        pass\n    finally:\n        second(problem)",
    "context": "{second}\nimport contextlib\n\n\n"
    "{first_with}with contextlib.nullcontext(second(problem)):\n        pass",
    "own_context": "{second}\n\n\nclass contextlib:\n    nullcontext = second\n\n\n"
    "{first_with}with contextlib.nullcontext(problem):\n        pass",
}


@pytest.mark.parametrize("place", HIDING)
def test_no_code_that_could_run_hides_in_a_wrapper(place: str) -> None:
    second = _agent(2).replace("step_", "other_").replace("def agent_main", "def second")
    head, _, body = _agent(1).partition("def agent_main(problem):\n")
    entry = f"{head}def agent_main(problem):\n    "
    call = f"{head}def agent_main(problem):\n    str(problem)\n{body}"
    source = HIDING[place].format(second=second, first=call, first_with=entry) + (
        "" if place == "own_str" else f"\n{body}"
    )
    ast.parse(source)
    assert _similar(_report(source, _earlier("second", _agent(2)))) == {"similarity"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x if y else z", "x if z else y"),
        ("x + 1", "x + 0"),
        ("f'{x:>3}'", "f'{x}'"),
        ("x[1:]", "x[:]"),
        ("(x, y)[0]", "(x, y)[1]"),
        ("x or y", "x"),
        ("{0: x, 1: y}[1]", "{0: x, 1: y}[0]"),
        ("(lambda a, b: a)(x, y)", "(lambda a, b: b)(x, y)"),
        ("x < y", "x <= y"),
        ("'%s %d' % (x, y)", "'%d %s' % (y, x)"),
        ("not x", "x"),
    ],
)
def test_what_does_something_else_is_other_code(one: str, other: str) -> None:
    made = [make_sketch(f"def agent_main(x, y, z):\n    return x, y, z, {text}").code_sha256 for text in (one, other)]
    assert made[0] != made[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("return 'a' + str(x) + 'b'", "return '{}{}b'.format('a', x)"),
        ("return 'a' + str(x) + 'b'", "return 'a%sb' % x"),
        ("return x > y", "return y < x"),
        ("if not x:\n        return y\n    else:\n        return z", "return z if x else y"),
        ("t = x.a\n    u = t(y)\n    return u", "return x.a(y)"),
        ("t = x.a()\n    t = t(y)\n    return t", "return x.a()(y)"),
        (
            "out = []\n    for a in x:\n        if a:\n            out.append(a.b)\n    return out",
            "return [a.b for a in x if a]",
        ),
        ("while True:\n        if x():\n            break\n        y()", "while not x():\n        y()"),
        ("if x:\n        if y:\n            z()", "if x and y:\n        z()"),
        ("a, b = x, y\n    z(b, a, b)", "b = y\n    a = x\n    z(b, a, b)"),
        ("x = x + y()\n    z(x, x)", "x += y()\n    z(x, x)"),
        ("return getattr(x, 'a')", "return x.a"),
        ("return x < y < z", "return x < y and y < z"),
    ],
)
def test_two_ways_to_write_one_thing_are_equal_code(one: str, other: str) -> None:
    made = [make_sketch(f"def agent_main(x, y, z):\n    {text}").code_sha256 for text in (one, other)]
    assert made[0] == made[1]


def test_a_deep_nest_of_wrappers_is_read_in_the_policys_depth() -> None:
    nested = "problem"
    for _ in range(40):
        nested = f"({nested},)[0]"
    report = _report(f"def agent_main(problem):\n    return {nested}\n")
    assert "depth" not in rules_met(report)
    branches = "".join(
        f"    if problem == {index}:\n        return 1\n    else:\n        x = 2\n" for index in range(3_000)
    )
    assert len(make_sketch(f"def agent_main(problem):\n{branches}").code_sha256) == 64


def test_strangers_share_little() -> None:
    names = ("argparse", "calendar", "configparser", "csv", "difflib", "fractions", "heapq", "pathlib", "textwrap")
    files = [_library(name) for name in names]
    sketches = [make_sketch(source).phrases for source in (*files, *BASES.values())]
    shares = [shared_e4(one, two, 100) for i, one in enumerate(sketches) for two in sketches[:i]]
    assert max(shares[: len(files) * (len(files) - 1) // 2]) < 2_500
    for source in files:
        assert _similar(_report(source + END, make_neighbour(_author("a", 1), REACT))) == set()


def test_the_owner_is_whoever_committed_first() -> None:
    copy = NEAR[1](REACT, random.Random(1))
    mine = _author("mine", 10, commitment_order=1)
    for place, is_found in (((9, 7), True), ((10, 0), True), ((10, 2), False), ((11, 0), False)):
        other = make_neighbour(_author("z", place[0], commitment_order=place[1]), REACT)
        assert bool(_similar(_report(copy, other, author=mine))) is is_found


def test_equal_places_are_told_apart_by_the_version() -> None:
    for name, is_found in (("a", True), ("z", False)):
        other = make_neighbour(_author(name, 10), REACT)
        assert bool(_similar(_report(REACT, other, author=_author("m", 10)))) is is_found


@pytest.mark.parametrize("shared", ["miner_hotkey", "miner_coldkey"])
def test_an_owners_own_versions_are_no_matter(shared: str) -> None:
    mine = _author("new", 10, **{shared: "the same"})
    other = make_neighbour(_author("old", 5, **{shared: "the same"}), REACT)
    assert _similar(_report(REACT, other, author=mine)) == set()


def test_the_published_agents_belong_to_nobody() -> None:
    published = make_knowledge([], [], [REACT], RULES)
    report = inspect(NEAR[1](REACT, random.Random(1)), RULES, published, [make_neighbour(_author("a", 1), REACT)])
    assert _similar(report) == set()


def test_a_revealed_winner_may_be_built_upon_but_not_handed_in_again() -> None:
    winner = make_neighbour(_author("winner", 1, is_public=True), REACT, is_winner=True)
    held = make_neighbour(_author("heir", 2), NEAR[1](REACT, random.Random(1)))
    assert _similar(_report(NEAR[1](REACT, random.Random(2)), winner)) == set()
    assert _similar(_report(_agent(1).replace("def agent_main", REACT + "\n\ndef agent_main"), winner, held)) == set()
    assert _similar(_report(REACT, winner)) == {"copy"}


def test_what_three_owners_share_is_common() -> None:
    own = [_library(name) + other_body(REACT) for name in ("difflib", "fractions", "argparse", "textwrap")]
    others = [make_neighbour(_author(f"o{index}", index), source) for index, source in enumerate(own[:3])]
    sisters = [
        make_neighbour(_author(f"o{index}", index, miner_coldkey="one"), source) for index, source in enumerate(own[:3])
    ]
    assert _similar(_report(REACT, *others[:2])) == {"similarity"}
    assert _similar(_report(REACT, *sisters)) == {"similarity"}
    assert _similar(_report(REACT, *others)) == set()
    assert _similar(_report(own[3], *others)) == set()


def _near(index: int) -> str:
    """A near copy unlike the others: its texts are other ones."""
    return NEAR[1](REACT, random.Random(0)).replace("Now: ", f"Now {index}: ")


def test_copies_do_not_make_their_own_source_common() -> None:
    victim = make_neighbour(_author("victim", 1), REACT)
    held = [make_neighbour(_author(f"sybil{index}", 2 + index), _near(index)) for index in range(4)]
    assert sources_of([victim, *held], np.zeros(0, dtype=np.uint64), RULES) == ["hotkey-victim"] * 5
    assert _similar(_report(_near(9), victim, *held)) == {"similarity"}
    assert _similar(_report(_near(9), *reversed(held), victim)) == {"similarity"}


def test_strangers_are_sources_of_their_own() -> None:
    agents = [make_neighbour(_author(f"a{index}", index), _agent(index)) for index in range(1, 4)]
    names = ["difflib", "fractions", "textwrap"]
    agents += [make_neighbour(_author(name, 10), _library(name)) for name in names]
    found = sources_of(agents, np.zeros(0, dtype=np.uint64), RULES)
    assert found[3:] == [f"hotkey-{name}" for name in names]
    assert found[0] == "hotkey-a1"


def test_who_copies_an_agent_gets_no_hold_on_its_next_version() -> None:
    mine = _author("mine2", 10, miner_hotkey="me")
    first = make_neighbour(_author("mine1", 1, miner_hotkey="me"), REACT)
    copy = make_neighbour(_author("copy", 5), _near(1))
    stranger = make_neighbour(_author("new", 6), _agent(1))
    assert _similar(_report(_near(2), first, copy, author=mine)) == set()
    assert _similar(_report(REACT, first, make_neighbour(_author("copy", 5), REACT), author=mine)) == set()
    assert _similar(_report(_near(2), copy, author=mine)) == {"similarity"}
    assert _similar(_report(_agent(1), first, stranger, author=mine)) == {"copy"}
    late = make_neighbour(_author("mine1", 7, miner_hotkey="me"), REACT)  # a thief's own copy is no ground
    assert _similar(_report(_near(2), late, copy, author=mine)) == {"similarity"}


class _Untold(ast.NodeTransformer):
    """Leaves no text of more than a few words."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant("a text") if isinstance(node.value, str) and " " in node.value else node


def test_nobody_owns_an_idiom() -> None:
    baseline = ast.unparse(_Untold().visit(ast.parse(reference_agents()[0].source)))
    loop = baseline.replace("def agent_main", "def other(x):\n    return x\n\n\ndef agent_main")
    assert _similar(_report(loop, make_neighbour(_author("a", 1), baseline))) == set()
    assert len(make_sketch(baseline).phrases) < RULES.remnant_phrases


def test_a_victim_inside_a_file_many_times_its_size_is_found() -> None:
    large = "\n".join(_agent(seed).split("def agent_main")[0].replace("step_", f"s{seed}_") for seed in range(20, 45))
    calls = "\n".join(f"print(s{seed}_{index})" for seed in range(20, 45) for index in range(40))
    report = _report(f"{large}\n{calls}\n{other_body(REACT)}", make_neighbour(_author("a", 1), REACT))
    assert _similar(report) == {"similarity"}


def _library(name: str) -> str:
    """A module of the standard library, all of it reached."""
    source = (Path(sysconfig.get_paths()["stdlib"]) / f"{name}.py").read_text(encoding="utf-8")
    names = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return f"{source.replace('from __future__ import annotations', '')}\nprint([{', '.join(names)}])\n"


def other_body(source: str) -> str:
    """The source with other texts, so that it is no equal code."""
    return NEAR[1](source, random.Random(3))


@pytest.mark.parametrize(("mine", "theirs"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("change", [EQUAL[3], NEAR[1]])
def test_a_hold_under_embargo_names_nothing(mine: bool, theirs: bool, change: Disguise) -> None:
    first = make_neighbour(_author("first", 5, is_public=theirs), REACT)
    report = _report(change(REACT, random.Random(1)), first, author=_author("later", 9, is_public=mine))
    (found,) = [found for found in report.findings if found.rule in ("copy", "similarity")]
    assert (found.detail, found.line) == ("", 0)
    assert "first" not in str(report)


def test_both_versions_are_named_once_both_are_public_and_nothing_else_changes() -> None:
    source = NEAR[1](REACT, random.Random(1))
    reports = [
        _report(
            source,
            make_neighbour(_author("first", 5, is_public=is_public), REACT),
            author=_author("later", 9, is_public=is_public),
        )
        for is_public in (False, True)
    ]
    assert "agent first of hotkey-first" in str(reports[1].findings)
    assert reports[0].outcome == reports[1].outcome
    assert reports[0].inputs_sha256 == reports[1].inputs_sha256


def test_a_verdict_names_its_inputs_in_any_order() -> None:
    one, two = make_neighbour(_author("a", 1), BASES["first"]), make_neighbour(_author("b", 2), BASES["second"])
    assert _report(REACT, one, two) == _report(REACT, two, one)
    hashes = {
        _report(REACT).inputs_sha256,
        _report(REACT, one).inputs_sha256,
        _report(REACT, one, two).inputs_sha256,
        _report(REACT, one, author=_author("later", 901)).inputs_sha256,
        _report(REACT, make_neighbour(_author("a", 2), BASES["first"])).inputs_sha256,
        _report(REACT, make_neighbour(_author("a", 1), BASES["second"])).inputs_sha256,
        _report(REACT, make_neighbour(_author("a", 1), BASES["first"], is_winner=True)).inputs_sha256,
    }
    assert len(hashes) == 7


def test_dead_code_leaves_no_phrase() -> None:
    dead = "def unused(a):\n    return [b for b in a if b]\n\n\nx = len('abc' * 3) + sum([1, 2, 3, 4, 5])\nx = x\n"
    assert np.array_equal(make_sketch(dead + REACT).phrases, make_sketch(REACT).phrases)
    assert make_sketch(dead + REACT).code_sha256 == make_sketch(REACT).code_sha256


def test_other_values_are_other_code() -> None:
    assert make_sketch("x = 1\nprint(x)").code_sha256 != make_sketch("x = 2\nprint(x)").code_sha256
    assert make_sketch("x = 'A  b'\nprint(x)").code_sha256 == make_sketch("y = 'a b'\nprint(y)").code_sha256
    assert make_sketch("print(1 - 2)").code_sha256 != make_sketch("print(1 + 2)").code_sha256


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(a, b):\n    c = a()\n    return c, a", "def f(a, b):\n    c = a()\n    return a, c"),
        ("print(1, end='x')", "print(1, sep='x')"),
        ("def f(a):\n    return a.x", "def f(a):\n    return a.y"),
    ],
)
def test_another_variable_keyword_or_attribute_is_other_code(one: str, other: str) -> None:
    hashes = {make_sketch(f"{source}\nprint(f)").code_sha256 for source in (one, other)}
    assert len(hashes) == 2


def test_a_sketch_is_the_same_in_every_process() -> None:
    phrases = make_sketch("def f(x):\n    return [i.strip() for i in x if len(i) > 3]\n\n\nprint(f(input()))\n").phrases
    assert int(np.bitwise_xor.reduce(phrases)) == GOLDEN


def test_a_source_that_does_not_parse_has_no_sketch() -> None:
    with pytest.raises(ValueError, match="not a parsable source"):
        make_sketch("def f(:")
