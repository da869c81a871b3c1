"""The shipped agents, by name and hash: the only ones that may run where no jail holds.

A source is what stands in this folder, byte for byte, and its sha256 is that of its UTF-8 bytes. The files
are data, run by a guest and never imported by the host; reading them is lazy.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from foundation.canonical import text_hash
from harness.inference.scripted.model import MODELS

EXAMPLES = ("first_search", "model_loop", "compare_and_budget")
_NAMES = ("baseline", "subtask", "nop", "echoer", "cheater")
_PROMPT_BLOCK = re.compile(r'^PROMPT = """.*?"""', re.MULTILINE | re.DOTALL)
_FIND = "Find what the user asks for, recommend it and terminate."
_CARE = f"{_FIND} Use few words and the price and service filters. Say what you found."
PROMPTS = {  # at which the model that obeys its prompt shops as those of these names do
    "scripted-expert": f"{_CARE} Search for every word of a name. Read options with view_product_information. Compare"
    " candidates. One shop has one shop_id. Check a total with calculate_voucher.",
    "scripted-careful": f"{_CARE} Compare candidates.",
    "scripted-hasty": _FIND,
}
_MODEL_LINE = re.compile(r'^MODEL = ""', re.MULTILINE)
_ANSWERS_BLOCK = re.compile(r"^ANSWERS = \{.*?^\}", re.MULTILINE | re.DOTALL)


class ReferenceAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One shipped agent."""

    name: str
    source: str

    @property
    def sha256(self) -> str:
        """Of the source's UTF-8 bytes."""
        return text_hash(self.source)


@functools.cache
def reference_agents() -> tuple[ReferenceAgent, ...]:
    """Every shipped agent, then the baseline pinned to each scripted model (`baseline:scripted-expert`, ...)."""
    sources = {name: _read(name) for name in _NAMES}
    sources |= {f"baseline:{model}": baseline_source(model) for model in MODELS}
    return tuple(ReferenceAgent(name=name, source=source) for name, source in sources.items())


def reference_agent(name: str) -> ReferenceAgent:
    """The shipped agent of that name. Raises KeyError for a name that is not shipped."""
    return {agent.name: agent for agent in reference_agents()}[name]


def shipped_source(sha256: str) -> str | None:
    """The shipped source of that hash; None where this release ships none."""
    return {agent.sha256: agent.source for agent in reference_agents()}.get(sha256)


@functools.cache
def published_sources() -> tuple[str, ...]:
    """Sources that anybody may build on: the shipped agents but the cheater, whose code nobody needs, the examples, and
    the agent that `arena init` writes, with its prompt.

    A checkout and an installed package give the same ones, so that gates on both say the same.
    """
    examples = (_read(f"examples/{name}") for name in EXAMPLES)
    return (*(agent.source for agent in reference_agents() if agent.name != "cheater"), *examples, first_agent())


def first_agent() -> str:
    """What `arena init` writes: the second example under a head that says what counts and where to change it."""
    head = (Path(__file__).parent / "agent_head.txt").read_text(encoding="utf-8")
    return head + _read(f"examples/{EXAMPLES[1]}").partition('"""\n\n')[2]


def reference_sha256s() -> frozenset[str]:
    """Hashes of the sources that the `reference-agents-only` level admits."""
    return frozenset(agent.sha256 for agent in reference_agents())


def baseline_source(model: str) -> str:
    """The baseline with its model preference set to `model`, and for one of the scripted levels a prompt as good."""
    source = _MODEL_LINE.sub(lambda _: f"MODEL = {json.dumps(model)}", _read("baseline"), count=1)
    prompt = PROMPTS.get(model)
    return _PROMPT_BLOCK.sub(lambda _: f"PROMPT = {json.dumps(prompt)}", source, count=1) if prompt else source


def cheater_source(ids: Sequence[str]) -> str:
    """The cheater with an answer table of `ids`, for a gate that knows the catalogue: a table has three at least."""
    rows = "".join(f'    "{index}": "{product_id}",\n' for index, product_id in enumerate(ids))
    return _ANSWERS_BLOCK.sub(lambda _: f"ANSWERS = {{\n{rows}}}", _read("cheater"), count=1)


def _read(name: str) -> str:
    return (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
