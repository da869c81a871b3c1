"""OpenAI function schemas from Python signatures, and arguments checked against the same signatures.

One source for both: the parameters a tool function declares after its context, with their types, defaults and the
`Args:` lines of its docstring. Supported types: str, int, float and Literal of strings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from harness.tools.port import ToolOutcome, quoted

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
