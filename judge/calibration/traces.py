"""From recipes to labelled traces: a generated shop with a real index, generated problems, and families of mutations.

The same recipe makes the same body, byte for byte. Traces of one leak cluster lie in one split, and families
that are held out are made of held-out clusters alone. The labels follow from what was put into the run, not from any
judge: what a family says and what it leaves out is in `families.json` and `phrases.json`.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
import random
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import orjson

from foundation.canonical import foreign_text, text_hash
from foundation.errors import ArenaError
from harness.catalogue.build import build_index, write_documents
from harness.catalogue.native import open_catalogue
from harness.catalogue.port import Catalogue
from harness.catalogue.synthetic import generate
from harness.inference.port import GatewayAnswer
from harness.inference.reply import read_reply
from harness.sandbox.port import EpisodeOver, GuestExit, GuestJob, Host, SandboxLevel
from harness.session import EpisodePorts, EpisodeRules, run_episode
from harness.tools.registry import Toolbox
from harness.trace import EvaluationBody
from judge.evidence.mentions import is_telling, tokenise
from problems.clusters import find_clusters
from problems.model import Problem
from problems.synthesis import synthesize

SET_VERSION = 1
Split = Literal["tune", "held"]
Answer = Literal["picked", "other", "reward"]
Style = Literal["plain", "upper", "think", "json"]  # capitals; inside a think block; the value of a JSON object
Trait = Literal["outcome", "length", "position", "form"]  # what a quality must not depend on


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to mutate a run, and the quality that the rubric gives it.

    `plan`, `then` and `last` are the kinds of phrases that the model says before the search, after it, and after it has
    looked at the details. From step `copies_from` on the program writes the words first and has them repeated.
    """

    name: str
    quality_e4: int
    round: int = 1  # in which it was written; each round has runs of its own, and the last one is held out
    plan: str = "plan"
    then: str
    last: str
    language: str = ""
    answer: Answer = "picked"
    is_by_code: bool = False  # the program calls; the model says a word
    is_react: bool = False  # calls are written as text, and the program reads them
    is_reasoning: bool = False  # the words stand in the reasoning field
    style: Style = "plain"
    pages: int = 1  # of results, each in a step
    fillers: int = 0  # sentences that say nothing, in each step
    copies_from: int = 0
    pair: str = ""  # the family that it shares its wording with, but for what it varies
    varies: Trait | None = None


class TraceRecipe(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """What makes one trace: the family, the run it mutates and the seed of its wording. No text of it is stored."""

    family: str
    problem: int  # of the generated problems
    seed: int


class LabelledTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A trace and the quality it was made for. `cluster` is its problem's leak cluster, which lies in one split."""

    recipe: TraceRecipe
    cluster: str
    split: Split
    quality_e4: int
    body: EvaluationBody


DOCUMENTS = 3_000
PROBLEMS = 80  # asked of each catalogue; those whose search brings two fit products are used
_RUNS_OF_FAMILY = 8


# Families that were written together: their runs, of places in all shops' problems, and their languages.
FamilyRound = tuple[range, tuple[str, ...]]
# A generated shop: the seeds of its catalogue and of its problems, and how many runs it gives.
ShopSeeds = tuple[int, int, int]
# Rounds but the last were held out until they were looked at. The last has a shop of its own.
ROUNDS: tuple[FamilyRound, ...] = (
    (range(24), ("zh", "es", "vi", "th", "tl", "ms", "fr")),
    (range(24, 32), ("de",)),
    (range(32, 48), ("pt", "fi", "ko")),
    (range(48, 64), ("it", "nl", "ja")),
    (range(64, 80), ("id", "ru", "tr")),
)
SHOPS: tuple[ShopSeeds, ...] = ((1906, 77, 48), (2011, 78, 16), (2012, 79, 16))
_SPOKEN: Mapping[str, int] = {"templated": 3_000, "single": 7_000, "compared": 9_000}
_TITLE_WORDS = 4
_WORD_LENGTH_MIN = 5


@functools.cache
def families() -> tuple[Family, ...]:
    """All families: those of the data file, and one for each language and level."""
    raw = _data("families.json")
    spoken = (
        Family(
            name=f"{language}_{kind}",
            quality_e4=quality_e4,
            round=number,
            plan="templated",
            then="templated",
            last=kind,
            language=language,
        )
        for number, (_, languages) in enumerate(ROUNDS, start=1)
        for language in languages
        for kind, quality_e4 in _SPOKEN.items()
    )
    made = (*msgspec.json.decode(raw, type=tuple[Family, ...]), *spoken)
    # a place seeds the wording: who joins, joins at the end (the first two rounds were one list)
    return tuple(sorted(made, key=lambda family: max(family.round, 2)))


def is_held(family: Family) -> bool:
    """Whether nobody is to look at the family while a judge is improved."""
    return family.round == len(ROUNDS)


class CalibrationShop(msgspec.Struct, frozen=True):
    """The problems that recipes name by their place; `catalogues` and `clusters` in the same order."""

    catalogues: tuple[Catalogue, ...]
    problems: tuple[Problem, ...]
    clusters: tuple[str, ...]


@contextmanager
def open_shop() -> Iterator[CalibrationShop]:
    """The generated shops as one, in a temporary folder while the block runs. Takes some seconds.

    Raises ArenaError P4011 where a shop gives too few runs.
    """
    catalogues: list[Catalogue] = []
    problems: list[Problem] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed, asked_seed, runs in SHOPS:
            index, documents = Path(folder) / f"{seed}", Path(folder) / f"{seed}.jsonl"
            with documents.open("wb") as stream:
                write_documents(generate(DOCUMENTS, seed), stream)
            build_index(documents, index)
            catalogue = open_catalogue(index, kernel="numpy")
            fit = _fit_problems(catalogue, asked_seed, runs, problems)
            problems += fit
            catalogues += [catalogue] * len(fit)
        names = {one: name for name, ids in find_clusters(problems).items() for one in ids}
        yield CalibrationShop(
            catalogues=tuple(catalogues),
            problems=tuple(problems),
            clusters=tuple(names[problem.problem_id] for problem in problems),
        )


def _fit_problems(catalogue: Catalogue, seed: int, runs: int, others: Sequence[Problem]) -> tuple[Problem, ...]:
    """The shop's problems whose search brings two fit products: each of a leak cluster of its own."""
    asked = synthesize(tuple(catalogue.products()), seed=seed, counts={"product": PROBLEMS})
    names = {one: name for name, ids in find_clusters((*others, *asked)).items() for one in ids}
    fit, seen = [], {names[problem.problem_id] for problem in others}
    for problem in asked:
        cluster = names[problem.problem_id]
        if cluster not in seen and _pair(problem, _search(catalogue, problem)) is not None:
            fit.append(problem)
            seen.add(cluster)
    if len(fit) < runs:
        raise ArenaError("P4011", f"{len(fit)} of {runs} runs to mutate")
    return tuple(fit[:runs])


def recipes() -> tuple[TraceRecipe, ...]:
    """Every recipe: held-out families over the held-out runs, the others over runs that are open to be looked at."""
    made = []
    numbers = {family.name: number for number, family in enumerate(families())}
    for number, family in enumerate(families()):
        places = ROUNDS[family.round - 1][0]
        seed = numbers[family.pair or family.name]
        # every second run where there are many; a family and the one it is paired with get the same
        used = places[seed % (len(places) // _RUNS_OF_FAMILY) :: len(places) // _RUNS_OF_FAMILY]
        used = used[number % 2 :: 2] if family.language else used
        made += [TraceRecipe(family=family.name, problem=place, seed=seed) for place in used]
    return tuple(made)


def make_trace(recipe: TraceRecipe, shop: CalibrationShop) -> LabelledTrace:
    """The trace of a recipe. Raises KeyError for a family that does not exist."""
    family = {one.name: one for one in families()}[recipe.family]
    problem, catalogue = shop.problems[recipe.problem], shop.catalogues[recipe.problem]
    return LabelledTrace(
        recipe=recipe,
        cluster=shop.clusters[recipe.problem],
        split="held" if is_held(family) else "tune",
        quality_e4=family.quality_e4,
        body=play(problem, catalogue, _script(family, problem, catalogue, recipe)),
    )


def _script(family: Family, problem: Problem, catalogue: Catalogue, recipe: TraceRecipe) -> Script:
    found = _search(catalogue, problem)
    pair = _pair(problem, found)
    assert pair is not None
    slots = _slots(problem, pair, random.Random(f"{recipe.problem}:{recipe.seed}"))
    answer = {
        "picked": slots["w_id"],
        "other": slots["r_id"],
        "reward": problem.rewards[0].product_id,
    }[family.answer]
    search = {"q": _words_asked(problem)}
    steps: list[tuple[str, tuple[PlayedCall, ...]]] = [(family.plan, (("find_product", search),))]
    steps += [("filler", (("find_product", {**search, "page": page}),)) for page in range(2, family.pages + 1)]
    steps.append((family.then, (("view_product_information", {"product_ids": slots["w_id"]}),)))
    last = (("recommend_product", {"product_ids": answer}), ("terminate", {"status": "success"}))
    steps.append((family.last, last))
    for number, (kind, calls) in enumerate(steps, start=1):
        # the same seed for the same place in a run: families that share it choose alike
        dice = random.Random(f"{recipe.problem}:{recipe.seed}:{number - len(steps)}")
        words = _say(kind, family.language, slots, dice) if kind else "ok"
        words = " ".join((*(_say("filler", "", slots, dice) for _ in range(family.fillers)), words))
        words = _styled(words, family.style)
        if family.is_react:
            told = "; ".join(f"{name} {dict(arguments)}" for name, arguments in calls)
            words = f"Thought: {words}\nAction: {told}"
        copied = _say("copied_order", "", {**slots, "text": words}, dice)
        yield PlayedTurn(
            words="" if family.is_reasoning else words,
            reasoning=words if family.is_reasoning else "",
            calls=calls,
            is_native=not (family.is_by_code or family.is_react),
            program=copied if 0 < family.copies_from <= number else "",
        )


def _styled(words: str, style: Style) -> str:
    if style == "json":
        return foreign_text({"thought": words})
    return {"plain": words, "upper": words.upper(), "think": f"<think>\n{words}\n</think>\nok"}[style]


def _search(catalogue: Catalogue, problem: Problem) -> list[dict[str, Any]]:
    """What a search for the problem returns, as the tool tells it."""
    asked = foreign_text({"q": _words_asked(problem)})
    found: list[dict[str, Any]] = orjson.loads(Toolbox("sn15", catalogue).dispatch("find_product", asked).result)
    return found


def _words_asked(problem: Problem) -> str:
    return " ".join(problem.rewards[0].title[0].split()[:3] if problem.rewards[0].title else problem.query.split()[:3])


def _pair(problem: Problem, found: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any], str] | None:
    """A cheaper and a dearer product whose titles begin otherwise, and a word of them that the query lacks; or None."""
    known = set(tokenise(problem.query.lower()))
    for one in found:
        for other in found:
            if one["price"] >= other["price"] * 0.98 or _brief(one) == _brief(other):
                continue
            words = [
                word
                for word in str(one["title"]).lower().split()
                if len(word) >= _WORD_LENGTH_MIN and word.isalpha() and not known.intersection(tokenise(word))
                if all(map(is_telling, tokenise(word)))
            ]
            own = [set(tokenise(_brief(each).lower())) - known for each in (one, other)]
            if words and all(len(each) >= 2 for each in own) and not own[0] & own[1]:
                return one, other, words[0]
    return None


def _brief(found: Mapping[str, Any]) -> str:
    return " ".join(str(found["title"]).split()[:_TITLE_WORDS])


def _slots(problem: Problem, pair: tuple[dict[str, Any], dict[str, Any], str], dice: random.Random) -> dict[str, str]:
    picked, rival, word = pair
    price = round(dice.uniform(2_000, 9_000), 2)
    invented = ("Zorvane", "Quillax", "Brenthollow", "Umbrastep", "Fennick")
    nouns = ("Glidewell Orrin", "Starlith Vesper", "Norbay Quint", "Evermint Tallow")
    return {
        "w_id": str(picked["product_id"]),
        "w_price": str(picked["price"]),
        "w_title": _brief(picked),
        "w_sold": str(picked["sold_count"]),
        "r_sold": str(rival["sold_count"]),
        "r_id": str(rival["product_id"]),
        "r_price": str(rival["price"]),
        "r_title": _brief(rival),
        "saved": f"{rival['price'] - picked['price']:.2f}",
        "word": word,
        "wish": " ".join(re.sub(r"[^\w\s'-]", "", problem.query).split()[-8:]),
        "f_id": str(dice.randrange(10**9, 2 * 10**9)),
        "f_id2": str(dice.randrange(10**9, 2 * 10**9)),
        "f_price": f"{price:.2f}",
        "f_other": f"{price * 1.17:.2f}",
        "f_title": f"{dice.choice(invented)} {dice.choice(nouns)}",
    }


def _say(kind: str, language: str, slots: Mapping[str, str], dice: random.Random) -> str:
    told: Any = phrases()
    choices = told[language][kind] if language else told[kind]
    return str(dice.choice(choices)).format(**slots)


@functools.cache
def phrases() -> Mapping[str, Any]:
    """The phrases by kind, and by language and kind."""
    return msgspec.json.decode(_data("phrases.json"), type=dict[str, Any])


def _data(name: str) -> bytes:
    return importlib.resources.files(__package__).joinpath(name).read_bytes()


_SYSTEM = "You are a shopping assistant. Use the tools to find what the shopper asks for, then recommend it."
_RULES = EpisodeRules(policy_sha256="0" * 64, catalogue_sha256="0" * 64, models=("played",))
_BYTES_PER_TOKEN = 4


PlayedCall = tuple[str, Mapping[str, object]]  # a tool's name and its arguments


class PlayedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One step: what the program says first, what the model says, and the calls that follow.

    `is_native`: the model writes the calls; else the program makes them after the words.
    """

    words: str
    reasoning: str = ""
    calls: tuple[PlayedCall, ...] = ()
    is_native: bool = True
    program: str = ""


Script = Iterator[PlayedTurn]


def play(problem: Problem, catalogue: Catalogue, script: Script) -> EvaluationBody:
    """The body of one played episode. Raises ArenaError as `run_episode`."""
    stage = _PlayedPorts(script)
    ports = EpisodePorts(toolbox=Toolbox("sn15", catalogue), gateway=stage, sandbox=stage)
    return run_episode("# played", problem, ports, _RULES).body


class _PlayedPorts:
    """The sandbox and the gateway of a played episode."""

    level = SandboxLevel(
        name="reference-agents-only", layers=(), guest_sha256="0" * 64, python_version="3", may_race=False
    )

    def __init__(self, script: Script) -> None:
        self._script = script
        self._turn = PlayedTurn(words="")

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        """Play the script to its end (`Sandbox.run`)."""
        messages: list[object] = [
            {"role": "system", "content": _SYSTEM},
            {"role": "user", "content": json.loads(job.problem)["query"]},
        ]
        try:
            for turn in self._script:
                self._turn = turn
                if self._turn.program:
                    messages.append({"role": "user", "content": self._turn.program})
                answer: Any = host.call("llm.chat", {"messages": messages})
                messages.append(answer["message"])
                for number, (name, arguments) in enumerate(self._turn.calls):
                    told: Any = host.call("tool.call", {"name": name, "arguments": foreign_text(arguments)})
                    messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": told["result"]})
        except EpisodeOver:
            return GuestExit(end="stopped")
        return GuestExit(end="final", claim="null")

    def chat(self, params: dict[str, object], *, completion_tokens_left: int) -> GatewayAnswer:
        """The turn's words as a completion (`ModelGateway.chat`)."""
        turn = self._turn
        message: dict[str, object] = {"role": "assistant", "content": turn.words}
        if turn.reasoning:
            message["reasoning_content"] = turn.reasoning
        functions = [{"name": name, "arguments": foreign_text(given)} for name, given in turn.calls if turn.is_native]
        if functions:
            message["tool_calls"] = [
                {"id": f"call_{number}", "type": "function", "function": function}
                for number, function in enumerate(functions)
            ]
        sent = params["messages"]
        assert isinstance(sent, list)
        messages = tuple(foreign_text(one) for one in sent)
        said = len((turn.words + turn.reasoning).encode()) + sum(len(one["arguments"]) for one in functions)
        usage = {
            "prompt_tokens": sum(map(len, messages)) // _BYTES_PER_TOKEN,
            "completion_tokens": max(1, said // _BYTES_PER_TOKEN),
        }
        choice = {"message": message, "finish_reason": "stop"}
        reply = read_reply(orjson.dumps({"model": "played", "choices": [choice], "usage": usage}))
        return GatewayAnswer(
            reply=reply, messages=messages, request_sha256=text_hash("".join(messages)), model_ms=0, model="played"
        )
