"""Classes of likeness: who joins whom, who heads a class, and what belongs to nobody."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from arena.gate.inspection import inspect
from arena.gate.knowledge import make_knowledge
from arena.gate.likeness import Author, Neighbour, Sketch, class_heads, decode_sketch, make_sketch
from arena.policies import PAPER
from foundation.errors import ArenaError
from harness.agents.registry import first_agent, published_sources
from tests.arena.gate_stand import make_neighbour
from tests.arena.test_gate_similarity import PUBLIC, REACT, _library, _prompt

RULES = PAPER.gate


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
    found = class_heads(agents[::-1], numbers(TEMPLATE), numbers(""), RULES)
    assert " ".join(found[each.author.agent_version_id] or "-" for each in agents) == expected


def test_the_untouched_scaffold_is_nobodys_and_a_prompt_of_ones_own_is_its_writers():
    scaffold = first_agent()
    own = scaffold.replace("You shop", f"{_prompt(1)} You shop", 1)
    sources = {"one": scaffold, "two": f"{scaffold}\n# two\n", "own": own, "copy": own, "react": REACT, "fork": REACT}
    agents = [make_neighbour(author(name, block), source) for block, (name, source) in enumerate(sources.items())]
    with_react = make_knowledge([], [], published_sources(), RULES, published_sketches=[make_sketch(REACT)])
    for knowledge, expected in ((PUBLIC, ["react", "react"]), (with_react, ["", ""])):
        found = class_heads(agents, knowledge.baseline, knowledge.baseline_texts, RULES)
        assert list(found.values()) == ["", "", "own", "own", *expected]
    assert inspect(own, RULES, PUBLIC, agents, author("later", 99)).outcome == "accept"
    with pytest.raises(ArenaError, match="V2105"):
        decode_sketch(b"\x80")


def test_heads_are_the_same_in_any_order_and_beside_later_ones():
    sources = [_library(name) for name in ("argparse", "calendar", "difflib") for _ in range(3)]
    agents = [make_neighbour(author(f"v{n}", n), source) for n, source in enumerate(sources)]
    agents[4] = replace(agents[4], revealed_block=6)
    found = class_heads(agents, numbers(""), numbers(""), RULES)
    assert found == class_heads(agents[::-1], numbers(""), numbers(""), RULES)
    first = class_heads(agents[:5], numbers(""), numbers(""), RULES)
    assert found | first == found == class_heads(agents, numbers(""), numbers(""), RULES, first)
    assert [found[f"v{n}"] for n in range(9)] == ["v0"] * 3 + ["v3"] * 3 + ["v6"] * 3
