"""Model and judge endpoints: from settings to what workers are sent, and whether they answer at a start.

A model that an entry of `[[upstreams]]` names is asked of such entries alone, so a re-entered model's own server stands
beside a provider; entries without models serve every other one. Keys come from the environment and stand in no file.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from typing import Literal

import msgspec

from arena.policy import Policy
from arena.race.forecast import ASSUMED_TOKENS, ASSUMED_VERDICT_TOKENS, Cost
from foundation.canonical import UNREADABLE_JSON
from foundation.codes import MODEL_FAILED, NO_ENDPOINT
from foundation.errors import ArenaError
from harness.inference.client import explain_refusal, explain_silence, open_client
from harness.inference.scripted.model import ScriptedUpstream
from harness.limits import TokenPrice
from judge.client import DEFAULT_PATIENCE
from judge.render import TRACE_BYTES
from judge.verdict import JUDGED_AT
from neurons.settings.settings import Endpoint, Settings

SCRIPTED_PREFIX = "scripted-"
SCRIPTED = (ScriptedUpstream.name, f"{JUDGED_AT}{ScriptedUpstream.name}")  # in accounts
_BYTES_A_TOKEN = 3  # at least, of what a judge reads
_SHOWN = 12  # models named in one line
_LISTING_TIMEOUT_S, _LISTING_BYTES = 20, 16 << 20


class _ListedModel(msgspec.Struct, frozen=True):
    id: str


class _ModelList(msgspec.Struct, frozen=True):
    data: tuple[_ListedModel, ...]


def chosen_endpoints(settings: Settings, policy: Policy) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
    """The model endpoints and the judges' that the settings name; none where the policy's models are scripted ones,
    which answer in the process that asks.

    Raises ArenaError U3001 when the policy's models are real ones and no endpoint is set, V2030 for settings that
    contradict each other, a cap without the prices that it needs, or a key's variable that is not set.
    """
    named, judges = named_endpoints(settings), named_endpoints(settings, "judge")
    if not named and not all(model.startswith(SCRIPTED_PREFIX) for model in policy.inference.models):
        detail = f"policy {policy.name} names {policy.inference.models[0]} and no model endpoint is set"
        raise ArenaError(NO_ENDPOINT, detail)
    unpriced = [one for one in (*named, *judges) if one.price is None]
    if unpriced and (settings.budget.race_usd or settings.budget.day_usd):
        detail = f"[budget] caps what models cost, and {unpriced[0].name} ({unpriced[0].base_url}) has no price"
        raise ArenaError("V2030", detail, fix='give it one in [[upstreams]]; a judge\'s entry has role = "judge"')
    return named, judges


def prices_of(upstreams: Sequence[Endpoint], judges: Sequence[Endpoint]) -> dict[str, TokenPrice]:
    """Known prices by the names that accounts have for endpoints; what is scripted costs nothing."""
    free = TokenPrice(prompt_micro_usd=0, completion_micro_usd=0)
    named = {one.name: one.price for one in upstreams} | {f"{JUDGED_AT}{one.name}": one.price for one in judges}
    return {name: price for name, price in named.items() if price} | dict.fromkeys(SCRIPTED, free)


def most_of_episode(policy: Policy, upstreams: Sequence[Endpoint], judges: Sequence[Endpoint]) -> tuple[Cost, Cost]:
    """What an episode costs that meets its policy's limits, and a verdict for which each judge model is asked as often
    as the rubric allows about the longest trace."""
    limits, asks = policy.limits, policy.rubric.attempts_per_model
    verdict = (asks * TRACE_BYTES // _BYTES_A_TOKEN, asks * DEFAULT_PATIENCE.completion_tokens)
    return episode_costs(policy, upstreams, judges, (limits.prompt_tokens, limits.completion_tokens), verdict)


def episode_costs(
    policy: Policy,
    upstreams: Sequence[Endpoint],
    judges: Sequence[Endpoint],
    tokens: tuple[int, int] = ASSUMED_TOKENS,
    verdict_tokens: tuple[int, int] = ASSUMED_VERDICT_TOKENS,
) -> tuple[Cost, Cost]:
    """What an episode of so many tokens (in, out) costs at the dearest of its endpoints, and its verdict by all models
    of the panel."""

    def dearest(model: str, endpoints: Sequence[Endpoint], read: int, wrote: int) -> Cost:
        own = endpoints_of(model, endpoints)
        costs = [one.price.cost_micro_usd(read, wrote) if one.price else None for one in own]
        costs = costs or [0 if model.startswith(SCRIPTED_PREFIX) else None]
        micro_usd = None if None in costs else max(cost or 0 for cost in costs)
        return Cost(prompt_tokens=read, completion_tokens=wrote, micro_usd=micro_usd)

    asked = [dearest(model, upstreams, *tokens) for model in policy.inference.models]
    panel = [dearest(model, judges, *verdict_tokens) for model in policy.rubric.models]
    most = max(asked, key=lambda one: math.inf if one.micro_usd is None else one.micro_usd)
    return most, functools.reduce(Cost.plus, panel, Cost())


def endpoints_of(model: str, endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """Who is asked for `model`, in this order: the endpoints that name it, else those that name none."""
    own = tuple(one for one in endpoints if model in one.models)
    return own or tuple(one for one in endpoints if not one.models)


def check_endpoints(
    endpoints: Sequence[Endpoint], models: Sequence[str], *, must_answer: bool = False
) -> tuple[str, ...]:
    """Ask every endpoint for its models before anything runs: a line for each that does not answer, which a start need
    not wait for.

    Raises ArenaError U3001 when one refuses its key, a model has no endpoint or none of its endpoints lists it; with
    `must_answer` U3002 for one of which no endpoint answers.
    """
    listed = {one.name: _listed_models(one) for one in endpoints}
    for model in models:
        own = endpoints_of(model, endpoints)
        if not own:
            raise ArenaError(NO_ENDPOINT, f"no entry of [[upstreams]] serves {model}")
        answers = [listed[one.name] for one in own]
        if all(isinstance(answer, frozenset) and model not in answer for answer in answers):
            raise ArenaError(NO_ENDPOINT, f"{model} at {', '.join(one.base_url for one in own)}")
        silent = [answer for answer in answers if isinstance(answer, str)]
        if must_answer and len(silent) == len(answers):
            fix = "check --model-url or OPENAI_BASE_URL and run again"
            raise ArenaError(MODEL_FAILED, "; ".join(silent), fix=fix)
    return tuple(answer for answer in listed.values() if isinstance(answer, str))


def local_models(settings: Settings, policy: Policy) -> tuple[str, ...]:
    """The models of a run that nobody else has to repeat. Where settings name an endpoint and nobody named a model, the
    scripted ones of a policy are no answer: it is what the endpoint lists of the policy, or the one model it lists.

    Raises ArenaError U3001 when it refuses its key, and one that says which models there are to name.
    """
    wanted, endpoints = policy.inference.models, named_endpoints(settings)
    if settings.models or not endpoints or not all(model.startswith(SCRIPTED_PREFIX) for model in wanted):
        return wanted
    answers = [one.models or _listed_models(one) for one in endpoints]
    if any(isinstance(answer, str) for answer in answers):  # one does not answer: the first request says so
        return wanted
    listed = sorted({model for answer in answers for model in answer or ()})
    if known := tuple(model for model in wanted if model in listed):
        return known
    if len(listed) == 1:
        return tuple(listed)
    shown = ", ".join(listed[:_SHOWN]) + (", ..." if len(listed) > _SHOWN else "")
    place = ", ".join(one.base_url for one in endpoints)
    there = f"it lists {shown or 'no models'}"
    raise ArenaError(NO_ENDPOINT, f"no model was named for {place}, and {there}: name one with --model")


def _listed_models(endpoint: Endpoint) -> frozenset[str] | str | None:
    """What the endpoint lists, a line about why it did not answer, or None where it has no such list."""
    import httpx2

    from foundation.bounded_http import UnfitAnswerError

    place = f"{endpoint.name} at {endpoint.base_url}"
    try:
        with open_client(endpoint.base_url, endpoint.api_key, _LISTING_TIMEOUT_S) as client:
            response = client.ask("GET", "models", bytes_max=_LISTING_BYTES, within_s=_LISTING_TIMEOUT_S)
    except UnfitAnswerError as error:
        return f"{place}: {error}"
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return f"{place} does not answer: {explain_silence(error)}"
    if response.status_code in (401, 403):
        raise ArenaError("U3001", f"{place}: {explain_refusal(response)}")
    if response.status_code == 404:
        return None
    if not response.is_success:
        return f"{place}: {explain_refusal(response)}"
    try:
        return frozenset(row.id for row in msgspec.json.decode(response.content, type=_ModelList).data)
    except UNREADABLE_JSON:
        return None


def named_endpoints(settings: Settings, role: Literal["agents", "judge"] = "agents") -> tuple[Endpoint, ...]:
    """The endpoints that the settings name for agents' models or for judges, with their keys. Raises ArenaError
    V2030."""
    entries = [one for one in settings.upstreams if one.role == role]
    name, setting, url, key = "model", "openai_base_url", settings.openai_base_url, settings.openai_api_key
    if role == "judge":
        name, setting, url, key = "judge", "judge_base_url", settings.judge_base_url, settings.judge_api_key
    if url and entries:
        raise ArenaError("V2030", f"{setting} and [[upstreams]] of {role} are both set: make it one entry of those")
    if url:
        return (Endpoint(name=name, base_url=url, api_key=key.text, role=role),)
    names = [one.name for one in settings.upstreams]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ArenaError("V2030", f"two entries of [[upstreams]] are called {twice}")
    return tuple(map(_opened, entries))


def _opened(one: Endpoint) -> Endpoint:
    key = os.environ.get(one.api_key_env, "") if one.api_key_env else ""
    if one.api_key_env and not key:
        raise ArenaError("V2030", f"{one.api_key_env}, the key of upstream {one.name}, is not in the environment")
    return msgspec.structs.replace(one, api_key=key)
