"""The scripted model: deterministic, honest about what it read, and as good as its level says."""

from __future__ import annotations

import copy
import functools
import json
import re
from typing import Any

import msgspec
import pytest

from harness.agents.registry import PROMPTS
from harness.catalogue.port import Catalogue
from harness.inference.scripted.model import MODELS, complete
from harness.inference.scripted.shopper import CONCISE, TOY, read_brief
from harness.tools.registry import Toolbox
from problems.model import OutcomeScore, Problem
from problems.score import score
from problems.synthesis import synthesize
from problems.title_index import TitleIndex
from problems.titles import LexicalTitles
from problems.wording import Bounds
from tests.harness.catalogue_stand import catalogue_of
from tests.problems.stand import synthetic_shelf

STEPS_MAX = 20

Message = dict[str, Any]


def _shelf() -> TitleIndex:
    return synthetic_shelf(3_000, 5)


@functools.cache
def _problems() -> tuple[Problem, ...]:
    return synthesize(_shelf(), seed=17, counts={"product": 12, "shop": 12, "voucher": 12})


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    return catalogue_of(_shelf().products, tmp_path_factory.mktemp("scripted"))


class Run:
    """One problem worked on in a plain loop, without jail and gateway."""

    def __init__(
        self, model: str, problem: Problem, catalogue: Catalogue, profile: str = "sn15", system: str = "Shop."
    ) -> None:
        self.problem = problem
        self.catalogue = catalogue
        self.toolbox: Toolbox = Toolbox(profile, catalogue)
        self.requests: list[dict[str, Any]] = []
        self.thoughts: list[str] = []
        self.results: list[str] = []
        self.names: list[str] = []
        self.recommended: tuple[str, ...] = ()
        self.is_terminated = False
        self._messages: list[Message] = [
            {"role": "system", "content": system},
            {"role": "user", "content": problem.query},
        ]
        tools = json.loads(self.toolbox.schemas)
        while not self.is_terminated and len(self.requests) < STEPS_MAX:
            self._step({"model": model, "messages": copy.copy(self._messages), "tools": tools})

    def _step(self, request: dict[str, Any]) -> None:
        self.requests.append(request)
        message = complete(request)["choices"][0]["message"]
        self._messages.append(message)
        self.thoughts.append(message["content"])
        for call in message.get("tool_calls", []):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            outcome = self.toolbox.dispatch(name, arguments)
            assert outcome.failure is None, outcome.failure
            assert outcome.ignored_parameters == ()
            self.names.append(name)
            self.results.append(outcome.result)
            self.recommended = outcome.recommended_ids or self.recommended
            self.is_terminated |= outcome.is_final
            self._messages.append({"role": "tool", "tool_call_id": call["id"], "content": outcome.result})

    @property
    def is_success(self) -> bool:
        outcome = score(self.problem, self.recommended, self.catalogue.product, LexicalTitles())
        assert isinstance(outcome, OutcomeScore)
        return outcome.is_success


def share(runs: list[Run]) -> float:
    return sum(run.is_success for run in runs) / len(runs)


# -- skill


@pytest.mark.parametrize("is_toy", [False, True])
def test_expert_beats_careful_beats_hasty(catalogue: Catalogue, is_toy: bool) -> None:
    """By its name, and where the toy is asked to shop so."""
    asked = [(TOY if is_toy else model, PROMPTS[model] if is_toy else "Shop.") for model in MODELS]
    runs = [[Run(model, one, catalogue, system=text) for one in _problems()] for model, text in asked]
    expert, careful, hasty = map(share, runs)
    assert expert > 0.9 > careful > 0.2 and careful > hasty and hasty <= 0.35


# -- one function of the request


def test_a_dictated_call_is_repeated_word_by_word() -> None:
    order = 'Repeat this tool call: <tool_call>{"name":"terminate","arguments":{"status":"success"}}</tool_call>'
    tools = [{"type": "function", "function": {"name": "terminate"}}]
    request = {"model": MODELS[2], "messages": [{"role": "user", "content": order}], "tools": tools}
    (call,) = complete(request)["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "terminate", "arguments": '{"status":"success"}'}


def test_a_dialogue_in_one_message_as_sn15_writes_it_is_gone_on_with_in_its_form() -> None:
    form = '<tool_call>[{"name": "", "parameters": {}}]</tool_call>'
    system = f"Tools: find_product, recommend_product, terminate. Write {form}"

    def next_calls(history: str) -> list[dict[str, object]]:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": history}]
        content = complete({"model": "scripted-hasty", "messages": messages})["choices"][0]["message"]["content"]
        (block,) = re.findall(r"<tool_call>(.*?)</tool_call>", content)
        return json.loads(block)

    history = "# So far\n<user>Show me a red cotton shirt.</user>"
    (search,) = next_calls(history)
    assert search["name"] == "find_product" and search.keys() == {"name", "parameters"}
    hit = {"product_id": "7", "shop_id": "1", "title": "red cotton shirt", "price": 90.0, "service": []}
    observed = json.dumps([{"tool_call_id": "x", "results": [hit]}])
    (pick,) = next_calls(f"{history}\n<tool_call>{json.dumps([search])}</tool_call>\n<obs>{observed}</obs>")
    assert pick == {"name": "recommend_product", "parameters": {"product_ids": "7"}}
    assert next_calls(f"{history}\n<tool_call>{json.dumps([search])}</tool_call>\n<obs>The server is away.</obs>")


# -- reading requests


def test_every_constraint_of_a_synthesised_problem_is_read_back() -> None:
    for problem in synthesize(_shelf(), seed=99, counts={"product": 60, "shop": 40, "voucher": 40}):
        brief = read_brief(problem.query)
        assert brief.bucket == problem.bucket
        assert len(brief.wishes) == len(problem.rewards), problem.query
        for wish, item in zip(brief.wishes, problem.rewards, strict=True):
            asked = [(key, value) for option in item.sku_options for key, value in option.items()]
            asked += [(key, value) for rule in item.attributes for key, values in rule.items() for value in values]
            assert sorted(wish.phrases) == sorted(f"{key.replace('_', ' ')} {value}" for key, value in asked)
            assert sorted(wish.services) == sorted(item.service)
            rule = item.price[0] if item.price else None
            assert wish.price == (Bounds(rule.low, rule.high) if rule else Bounds())
        voucher = problem.voucher
        assert brief.voucher == (msgspec.structs.replace(voucher, price_after_voucher=None) if voucher else None)


# -- one sentence, or none


def test_the_concise_model_says_one_sentence_of_two_hits_and_is_not_listed(catalogue: Catalogue) -> None:
    found = [Run(CONCISE, problem, catalogue, "compact") for problem in _problems()]
    assert share(found) >= 0.8 and CONCISE not in MODELS
    for run in found:
        said = [thought for thought in run.thoughts if thought]
        assert len(said) == 1 and set(run.names) == {"find_product", "recommend_product", "terminate"}
        rows = [row for result in run.results if result.startswith("[") for row in json.loads(result)]
        if "the only hit" not in said[0]:
            assert sum(f"{row['price']} PHP" in said[0] for row in rows) >= 2  # both stand in a result


def test_without_tools_it_narrates_and_a_reply_longer_than_max_tokens_is_cut() -> None:
    ask = {"model": MODELS[0], "messages": [{"role": "user", "content": "The search found a lamp for 120 PHP."}]}
    message = complete(ask)["choices"][0]["message"]
    assert "a lamp for 120 PHP" in message["content"] and "tool_calls" not in message
    choice = complete({**ask, "max_tokens": 5})["choices"][0]
    assert choice["finish_reason"] == "length" and len(choice["message"]["content"]) == 20
