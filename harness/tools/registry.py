"""The tool profiles and the one way a call is executed.

A profile is a list of tools, named in every record. `make_toolbox` binds it to a catalogue. Whatever the
agent sends gets an answer: a malformed call gets a sentence that says what to change, and A1050 in the record. Beside
them: what a guest is told under SN15's present contract, and the tools' own words as programs print them.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator

import msgspec
import orjson

from foundation.canonical import text_hash
from foundation.errors import ArenaError
from harness.catalogue.port import Catalogue
from harness.errors import reading_guest_bytes
from harness.limits import EpisodeLimits, WorkMeter
from harness.tools import compact
from harness.tools.port import (
    RefusedCallError,
    Toolbox,
    ToolContext,
    ToolOutcome,
    decode_arguments,
    quoted,
    refuse,
    result_text,
)
from harness.tools.schema import Parameter, Tool, ToolFunction, describe_tool
from harness.tools.search import find_product, find_products_in_same_shop
from harness.tools.verification import calculate_voucher, check_product_match
from harness.tools.views import recommend_product, terminate, view_product_information
from problems.model import Problem
from problems.score import parse_recommendation

ENVIRONMENT = "environment"  # the tool profile's name
TOOL_CONTRACT = "arena_tools_v1"  # of these tools; an agent sends it back as it got it
CALLS_PER_TURN = 16  # as SN15's session registry has it


def environment_problem(problem: Problem, limits: EpisodeLimits) -> dict[str, object]:
    """What an agent of SN15's present contract may see of a problem: its public view with its environment, to which the
    guest adds `tools`. A problem is run once in a guest, so its id binds the session."""
    return {
        "problem_id": problem.problem_id,
        "category": problem.bucket,
        "query": problem.query,
        "environment": {
            "schema_version": "oro.generated_environment_problem.v1",
            "binding": {"session_id": problem.problem_id, "tool_contract_version": TOOL_CONTRACT},
            "policy_view": {
                "query": problem.query,
                "max_steps": limits.steps,
                "tool_contract_version": TOOL_CONTRACT,
                "max_calls_per_turn": CALLS_PER_TURN,
            },
        },
    }


_PAPER: tuple[ToolFunction, ...] = (find_product, view_product_information, recommend_product, terminate)
_VERIFYING: tuple[ToolFunction, ...] = (check_product_match, find_products_in_same_shop, calculate_voucher)

_COMPLAINTS_MAX = 5  # named in one answer

PROFILES: dict[str, tuple[ToolFunction, ...]] = {
    "paper4": _PAPER,
    "sn15": (*_PAPER, *_VERIFYING),
    "compact": (
        compact.find_product,
        compact.view_product_information,
        compact.recommend_product,
        compact.terminate,
    ),
    ENVIRONMENT: (*_PAPER, *_VERIFYING),  # sn15's, by SN15's present contract
}
TOOL_NAMES = frozenset(tool.__name__ for tools in PROFILES.values() for tool in tools)
LENIENT_PROFILES = frozenset({ENVIRONMENT})  # arguments that a tool does not declare are left out, as SN15 does


def make_toolbox(profile: str, catalogue: Catalogue) -> Toolbox:
    """The tools of `profile` over one catalogue. Raises ArenaError V2030 for an unknown profile."""
    return ProfileTools(profile, catalogue)


@functools.cache
def profile_tools(profile: str) -> dict[str, Tool]:
    """Tools of a profile by name, in their published order. Raises ArenaError V2030 for an unknown profile."""
    if profile not in PROFILES:
        raise ArenaError("V2030", f"tool profile {profile!r}; one of {', '.join(PROFILES)}")
    return {tool.name: tool for tool in map(describe_tool, PROFILES[profile])}


@functools.cache
def profile_schemas(profile: str) -> str:
    """The OpenAI `tools` array of a profile as JSON text; its hash stands in every record."""
    return result_text([tool.schema() for tool in profile_tools(profile).values()])


class ProfileTools:
    """A `Toolbox`. Holds no state of its own, so calls may come from any thread."""

    def __init__(self, profile: str, catalogue: Catalogue) -> None:
        self.profile, self._catalogue = profile, catalogue
        self._tools, self.schemas = profile_tools(profile), profile_schemas(profile)
        self.schemas_sha256 = text_hash(self.schemas)

    def dispatch(self, name: str, arguments: str, work: WorkMeter | None = None) -> ToolOutcome:
        """Execute one call; `arguments` is JSON text, an empty text meaning no arguments.

        Raises UnreadableError for arguments that can't be read at all, WorkExceededError from `work`, ArenaError U3010
        when the catalogue itself failed; every other malformed call gets an answer.
        """
        tool = self._tools.get(name)
        if tool is None:
            return refuse(f"there is no tool {quoted(name)}; the tools are {', '.join(self._tools)}")
        try:
            given = decode_arguments(arguments)
        except orjson.JSONDecodeError as error:
            return refuse(f"{tool.name}: the arguments are not JSON (character {error.pos}); expected {tool.usage()}")
        if not isinstance(given, dict):
            return refuse(f"{tool.name}: the arguments must be a JSON object; expected {tool.usage()}")
        undeclared: tuple[str, ...] = ()
        if self.profile in LENIENT_PROFILES:
            declared = {one.name for one in tool.parameters}
            undeclared = tuple(name for name in given if name not in declared)
            given = {name: value for name, value in given.items() if name in declared}
        with reading_guest_bytes():
            read, complaints = tool.read_arguments(given)
        if complaints:
            sentence = f"{tool.name}: {'; '.join(complaints[:_COMPLAINTS_MAX])}; expected {tool.usage()}"
            if tool.name != recommend_product.__name__:
                return refuse(sentence)
            # The scorer reads the call as the agent wrote it, so a list of ids recommends nothing and still replaces
            # an earlier call (docs/benchmark.md#edge-cases, 3 and 4).
            return refuse(sentence, recommended_ids=parse_recommendation(given.get("product_ids"))[0])
        try:
            outcome = tool.function(ToolContext(self._catalogue, work or WorkMeter()), **read)
        except RefusedCallError as refusal:
            return refuse(f"{tool.name}: {refusal}")
        if not undeclared:
            return outcome
        return msgspec.structs.replace(outcome, ignored_parameters=(*outcome.ignored_parameters, *undeclared))


def printed_tools() -> Iterator[str]:
    """Every profile's tools in every layout: as JSON, and as a list of heads, descriptions and rows of parameters."""
    for profile in PROFILES:
        schemas = profile_schemas(profile)
        yield schemas
        yield json.dumps([schema["function"] for schema in json.loads(schemas)])
        for head, row in itertools.product(range(4), range(4)):
            yield "\n".join(
                f"{_heads(tool)[head]}: {tool.description}\n" + "\n".join(_rows(one)[row] for one in tool.parameters)
                for tool in profile_tools(profile).values()
            )


def _heads(tool: Tool) -> tuple[str, ...]:
    names = ", ".join(one.name for one in tool.parameters)
    typed = ", ".join(f"{one.name}: {one.type}" for one in tool.parameters)
    return tool.name, f"{tool.name}({names})", f"{tool.name}({typed})", tool.usage()


def _rows(one: Parameter) -> tuple[str, ...]:
    need = "required" if one.default is msgspec.UNSET else "optional"
    kinds = ("", f" ({one.type})", f" ({one.type}, {need})")
    return "", *(f"{one.name}{kind}: {one.description}" for kind in kinds)
