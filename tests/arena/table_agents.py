"""Agents that carry a table of the public suite, for the tests of qualifying: shop by it where it has an entry, and as
the shipped agents do where it has none. With an empty table each is the honest agent it is compared with."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Sequence

from problems.model import Problem, Product
from problems.title_index import TitleIndex

KINDS = ("query to ids", "query to titles", "hash to titles", "words to titles", "nearest query", "all that would do")

# What every one of them begins with: the table, hidden as well as a reader could wish, and how an entry is found.
_LOOKUP = """
import base64, hashlib, json, re, zlib

TABLE = json.loads(zlib.decompress(base64.b85decode("{packed}")))


def words_of(text):
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def looked_up(problem):
    query = problem["query"]
    keys = [problem["problem_id"], query, hashlib.sha256(query.encode()).hexdigest()[:12]]
    keys += [" ".join(sorted(words_of(query), key=lambda word: (-len(word), word))[:count]) for count in (3, 5)]
    for key in keys:
        if key in TABLE:
            return TABLE[key]
    if {is_nearest} and TABLE:
        said = words_of(query)
        return TABLE[max(TABLE, key=lambda key: (len(said & words_of(key)) / len(said | words_of(key)), key))]
    return None
"""

# An item of an entry is a list of [product_id, title]: one answer, or all that might be asked for.
_BY_TABLE = """

def by_table(problem, entry):
    chosen = []
    for options in entry:
        hits = [hit for _, title in options for hit in found(title)]
        wanted = [hit for hit in hits if hit["product_id"] in [product_id for product_id, _ in options]]
        if not wanted:
            return False
        chosen.append(best(problem["query"], wanted)["product_id"])
    tools.recommend_product(product_ids=",".join(chosen))
    tools.terminate(status="success")
    return True


def found(title):
    hits = tools.find_product(q=title, page=1)
    return hits if isinstance(hits, list) else []


def best(query, hits):
    said = words_of(query)
    return max(hits, key=lambda hit: (len(said & words_of(hit["title"])), hit["product_id"]))


def agent_main(problem):
    entry = looked_up(problem)
    if entry is None or not by_table(problem, entry):
        honest_main(problem)
"""

# The ids alone: searched for in what the honest words of the query find.
_BY_IDS = """

FILLERS = set("i m looking for show me find want to buy can you help these items the following products".split())


def agent_main(problem):
    entry = looked_up(problem)
    wanted = [product_id for options in entry or [] for product_id, _ in options]
    if wanted:
        request = re.split(r"my budget is", problem["query"], flags=re.IGNORECASE)[0]
        seen = set()
        for wish in re.split(r"\\d\\)|;|\\n|\\. |First,|Second,|Third,|Fourth,|Lastly,", request):
            name = [word for word in re.findall(r"[a-z0-9]+", wish.split(",")[0].lower()) if word not in FILLERS]
            for page in (1, 2, 3) if name else ():
                hits = tools.find_product(q=" ".join(name), page=page)
                seen |= {hit["product_id"] for hit in hits} if isinstance(hits, list) else set()
        if seen.issuperset(wanted):
            tools.recommend_product(product_ids=",".join(wanted))
            tools.terminate(status="success")
            return
    honest_main(problem)
"""


def table_agent(kind: str, rows: Sequence[Problem], shelf: TitleIndex, honest: str) -> str:
    """The source of an agent of that kind with a table of `rows`, over the source `honest`. No rows: an empty table."""
    table = {key: _entry(kind, one, shelf) for one in rows for key in _keys(kind, one)}
    packed = base64.b85encode(zlib.compress(json.dumps(table).encode())).decode()
    base = honest.replace("def agent_main(", "def honest_main(")
    lookup = _LOOKUP.replace("{packed}", packed).replace("{is_nearest}", str(kind == "nearest query"))
    act = _BY_IDS if kind == "query to ids" else _BY_TABLE
    return base.replace("\nfrom arena_sdk", lookup + "\nfrom arena_sdk", 1) + act


def _keys(kind: str, problem: Problem) -> Iterable[str]:
    """The keys of a problem's entry, its id always among them."""
    longest = sorted(set(re.findall(r"[a-z0-9]+", problem.query.lower())), key=lambda word: (-len(word), word))
    return {
        "hash to titles": [problem.problem_id, hashlib.sha256(problem.query.encode()).hexdigest()[:12]],
        "words to titles": [" ".join(longest[:3]), " ".join(longest[:5])],
    }.get(kind, [problem.problem_id, problem.query])


def _entry(kind: str, problem: Problem, shelf: TitleIndex) -> list[list[tuple[str, str]]]:
    """Per item the answer, or everything that would satisfy the item without one of its constraints."""
    entry = []
    for item in problem.rewards:
        answer = shelf.product(item.product_id)
        assert answer is not None
        others: tuple[Product, ...] = shelf.accepted(item) if kind == "all that would do" else ()
        options = [answer, *(one for one in others if one.product_id != answer.product_id)]
        entry.append([(one.product_id, one.title) for one in options])
    return entry
