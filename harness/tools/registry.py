"""The tool profiles, their OpenAI function schemas, and the one way a call is executed.

A profile is a list of tools, named in every record. Schemas come from signatures: the parameters that a tool's function
declares after its context, with their types, defaults and the `Args:` lines of its docstring; arguments are checked
against the same. Whatever the agent sends gets an answer: a malformed call gets a sentence that says what to change,
and A1050 in the record. Beside them: what a guest reads under SN15's present contract, and the tools' own words.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import orjson

from foundation.canonical import text_hash
from foundation.errors import ArenaError
from harness.catalogue.port import Catalogue
from harness.errors import reading_guest_bytes
from harness.limits import EpisodeLimits, WorkMeter
from harness.tools import compact, functions
from harness.tools.functions import (
    RefusedCallError,
    ToolContext,
    ToolOutcome,
    decode_arguments,
    quoted,
    refuse,
    result_text,
)
from problems.model import Problem
from problems.score import parse_recommendation

ToolFunction = Callable[..., ToolOutcome]

JsonType = Literal["string", "integer", "number"]

_JSON_TYPES: dict[object, JsonType] = {str: "string", int: "integer", float: "number"}
_ACCEPTED: dict[JsonType, tuple[type, ...]] = {"string": (str,), "integer": (int,), "number": (int, float)}
_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n     .*)*)", re.MULTILINE)
_KINDS = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One argument of a tool. `choices` is set for an enumeration; `default` is UNSET when the argument is required."""

    name: str
    type: JsonType
    description: str
    choices: tuple[str, ...] = ()
    default: str | int | float | msgspec.UnsetType = msgspec.UNSET

    def schema(self) -> dict[str, object]:
        """JSON schema of the argument."""
        out: dict[str, object] = {"type": self.type, "description": self.description}
        if self.choices:
            out["enum"] = list(self.choices)
        if self.default is not msgspec.UNSET:
            out["default"] = self.default
        return out

    def complaint(self, value: object) -> str | None:
        """What is wrong with a value, or None."""
        accepted = _ACCEPTED[self.type]
        if isinstance(value, bool) or not isinstance(value, accepted):
            return f"`{self.name}` must be {_KINDS[accepted[-1]]}, not {_KINDS.get(type(value), 'something else')}"
        if self.choices and value not in self.choices:
            return f"`{self.name}` must be one of {', '.join(self.choices)}"
        return None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool: its name, its text for the model, its parameters and the function behind it."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    function: ToolFunction

    def schema(self) -> dict[str, object]:
        """The tool as an entry of OpenAI's `tools` array."""
        parameters = {
            "type": "object",
            "properties": {one.name: one.schema() for one in self.parameters},
            "required": [one.name for one in self.parameters if one.default is msgspec.UNSET],
            "additionalProperties": False,
        }
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def read_arguments(self, given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Arguments to call with, and everything that is wrong with them. Null stands for the default."""
        known = {one.name for one in self.parameters}
        complaints = [f"unknown argument {quoted(name)}" for name in given if name not in known]
        arguments: dict[str, Any] = {}
        for one in self.parameters:
            value = given.get(one.name)
            if value is None and one.default is not msgspec.UNSET:
                continue
            if one.name not in given:
                complaints.append(f"missing argument `{one.name}`")
            elif complaint := one.complaint(value):
                complaints.append(complaint)
            arguments[one.name] = value
        return arguments, complaints

    def usage(self) -> str:
        """The call in one line, for error messages."""
        parts = [one.name if one.default is msgspec.UNSET else f"{one.name}={one.default!r}" for one in self.parameters]
        return f"{self.name}({', '.join(parts)})"


def describe_tool(function: ToolFunction) -> Tool:
    """The tool behind a function whose first parameter is the context.

    Raises TypeError for a parameter without a supported type or without a line in the docstring: a bug of ours.
    """
    hints = get_type_hints(function)
    head, _, tail = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    lines = {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(tail)}
    parameters = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        hint = hints[parameter.name]
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        kind = _JSON_TYPES.get(str if choices else hint)
        if parameter.name not in lines or kind is None:
            raise TypeError(f"{function.__name__}.{parameter.name} has no line in the docstring, or no JSON type")
        has_default = parameter.default is not inspect.Parameter.empty
        parameters.append(
            Parameter(
                name=parameter.name,
                type=kind,
                description=lines[parameter.name],
                choices=choices,
                default=parameter.default if has_default else msgspec.UNSET,
            )
        )
    description = " ".join(head.split())
    return Tool(name=function.__name__, description=description, parameters=tuple(parameters), function=function)


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


_PAPER: tuple[ToolFunction, ...] = (
    functions.find_product,
    functions.view_product_information,
    functions.recommend_product,
    functions.terminate,
)
_SN15: tuple[ToolFunction, ...] = (
    *_PAPER,
    functions.check_product_match,
    functions.find_products_in_same_shop,
    functions.calculate_voucher,
)

_COMPLAINTS_MAX = 5  # named in one answer

PROFILES: dict[str, tuple[ToolFunction, ...]] = {
    "paper4": _PAPER,
    "sn15": _SN15,
    "compact": (
        compact.find_product,
        compact.view_product_information,
        compact.recommend_product,
        compact.terminate,
    ),
    ENVIRONMENT: _SN15,  # sn15's, by SN15's present contract
}
TOOL_NAMES = frozenset(tool.__name__ for tools in PROFILES.values() for tool in tools)
LENIENT_PROFILES = frozenset({ENVIRONMENT})  # arguments that a tool does not declare are left out, as SN15 does


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


class Toolbox:
    """The tools of one profile over one catalogue. Holds no state of its own, so calls may come from any thread."""

    def __init__(self, profile: str, catalogue: Catalogue) -> None:
        """Raises ArenaError V2030 for an unknown profile."""
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
            if tool.name != "recommend_product":
                return refuse(sentence)
            # The scorer reads the call as the agent wrote it, so a list of ids recommends nothing and still replaces
            # an earlier call (docs/benchmark.md#edge-cases, 3 and 4).
            return refuse(sentence, recommended_ids=parse_recommendation(given.get("product_ids"))[0])
        try:
            outcome = tool.function(ToolContext(self._catalogue, work or WorkMeter()), **read)
        except RefusedCallError as refusal:
            return refuse(f"{tool.name}: {refusal}")
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
