"""The tools' own words as programs write them into prompts: names, parameters and descriptions in the usual layouts.

They are published here and belong to nobody, so whoever first commits a file that lists them owns nothing by it
(`arena.gate.likeness`). Pure.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator

import msgspec

from harness.tools.registry import PROFILES, profile_schemas, profile_tools
from harness.tools.schema import Parameter, Tool

_HEADS: tuple[Callable[[Tool], str], ...] = (
    lambda tool: tool.name,
    lambda tool: f"{tool.name}({', '.join(one.name for one in tool.parameters)})",
    lambda tool: f"{tool.name}({', '.join(f'{one.name}: {one.type}' for one in tool.parameters)})",
    Tool.usage,
)
_ROWS: tuple[Callable[[Parameter], str], ...] = (
    lambda one: "",
    lambda one: f"{one.name}: {one.description}",
    lambda one: f"{one.name} ({one.type}): {one.description}",
    lambda one: f"{one.name} ({one.type}, {_need(one)}): {one.description}",
)


def printed_tools() -> Iterator[str]:
    """Every profile's tools in every layout: as JSON, and as a list of heads, descriptions and rows of parameters."""
    for profile in PROFILES:
        schemas = profile_schemas(profile)
        yield schemas
        yield json.dumps([schema["function"] for schema in json.loads(schemas)])
        for head, row in itertools.product(_HEADS, _ROWS):
            yield "\n".join(
                f"{head(tool)}: {tool.description}\n" + "\n".join(map(row, tool.parameters))
                for tool in profile_tools(profile).values()
            )


def _need(parameter: Parameter) -> str:
    return "required" if parameter.default is msgspec.UNSET else "optional"
