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
_ARGUMENT_LINE = re.compile(r"^    (\w+): (.*)$")
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
        accepted = {"string": (str,), "integer": (int,), "number": (int, float)}[self.type]
        if isinstance(value, bool) or not isinstance(value, accepted):
            wanted = {"string": "a string", "integer": "an integer", "number": "a number"}[self.type]
            return f"`{self.name}` must be {wanted}, not {_KINDS.get(type(value), 'something else')}"
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
        required = [one.name for one in self.parameters if one.default is msgspec.UNSET]
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": {
                    "type": "object",
                    "properties": {one.name: one.schema() for one in self.parameters},
                    "required": required,
                    "additionalProperties": False,
                },
            },
        }

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
                continue
            complaint = one.complaint(value)
            if complaint:
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
    description, lines = _read_docstring(inspect.getdoc(function) or "")
    parameters = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.name not in lines:
            raise TypeError(f"{function.__name__}.{parameter.name} has no line in the docstring")
        hint, choices = hints[parameter.name], ()
        if get_origin(hint) is Literal:
            hint, choices = str, get_args(hint)
        if hint not in _JSON_TYPES:
            raise TypeError(f"no schema can be made of {hint!r}")
        has_default = parameter.default is not inspect.Parameter.empty
        parameters.append(
            Parameter(
                name=parameter.name,
                type=_JSON_TYPES[hint],
                description=lines[parameter.name],
                choices=choices,
                default=parameter.default if has_default else msgspec.UNSET,
            )
        )
    return Tool(name=function.__name__, description=description, parameters=tuple(parameters), function=function)


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Description (up to `Args:`) and the text of each argument, continuation lines joined."""
    head, _, tail = text.partition("\nArgs:\n")
    lines: dict[str, str] = {}
    name = ""
    for line in tail.splitlines():
        found = _ARGUMENT_LINE.match(line)
        if found:
            name = found[1]
            lines[name] = found[2]
        elif name and line.strip():
            lines[name] += f" {line.strip()}"
    return " ".join(head.split()), lines
