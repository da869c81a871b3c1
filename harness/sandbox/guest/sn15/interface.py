"""SN15's `src.agent.agent_interface` over the host: the tool registry, tool calls and dialogue steps.

The names, signatures and shapes are those of SN15's public interface, so that an agent file needs no change. A tool is
the agent's own function and runs as it is written, whatever its name; what it asks of `ProxyClient` is recorded. Since
the answer has to be a recorded call here, recommend_product and terminate are sent to the host beside it
(`sn15`). Nothing here is evidence.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any, TypedDict

import sn15

AgentOutput = list[dict[str, Any]]
ToolResult = Any

_TOOL_REGISTRY: dict[str, Callable[..., Any]] = {}  # the name that agents import


class ToolCallResult(TypedDict):
    """One executed call, as it stands in a dialogue step."""

    name: str
    parameters: dict[str, Any]
    tool_call_id: str
    result: Any


def register_tool(name: str, func: Callable[..., Any]) -> None:
    """Make `func` the tool `name`; a later registration replaces an earlier one."""
    _TOOL_REGISTRY[name] = func


def Tool(name: Any = None) -> Any:  # noqa: N802
    """Register a function as a tool: `@Tool`, `@Tool()` or `@Tool("name")`."""
    if callable(name):
        register_tool(name.__name__, name)
        return name

    def register(func: Callable[..., Any]) -> Callable[..., Any]:
        register_tool(func.__name__ if name is None else name, func)
        return func

    return register


def get_tool(name: str) -> Callable[..., Any]:
    """The function registered as `name`. Raises ValueError when there is none."""
    if name not in _TOOL_REGISTRY:
        known = ", ".join(sorted(_TOOL_REGISTRY)) or "(none)"
        raise ValueError(f"Tool '{name}' is not registered. Available tools: {known}")
    return _TOOL_REGISTRY[name]


def list_tools() -> list[str]:
    """Names of the registered tools, in the order of their registration."""
    return list(_TOOL_REGISTRY)


def generate_tool_call_id(name: str, parameters: dict[str, Any], length: int = 8) -> str:
    """The first characters of the urlsafe base64 of md5 over name, newline and parameters: equal calls share an id."""
    digest = hashlib.md5(f"{name}\n{parameters}".encode(), usedforsecurity=False).digest()
    return base64.urlsafe_b64encode(digest).decode().replace("=", "")[:length]


def execute_tool_call(tool_name: str, parameters: dict[str, Any]) -> ToolCallResult:
    """Run a registered tool. Raises ValueError for one that is not registered, and whatever its function raises."""
    result = get_tool(tool_name)(**parameters)
    if tool_name == "recommend_product":
        sn15.recommend(parameters)
    elif tool_name == "terminate":
        sn15.postpone_terminate(parameters)
    return {
        "name": tool_name,
        "parameters": parameters,
        "tool_call_id": generate_tool_call_id(tool_name, parameters),
        "result": result,
    }


def format_content(think: str, tool_calls: list[Any], response: str) -> str:
    """The tagged text of a step: thinking, calls as a JSON array without their ids and results, response."""
    calls = [{"name": call["name"], "parameters": call["parameters"]} for call in tool_calls or ()]
    parts = {"think": think, "tool_call": json.dumps(calls) if calls else "", "response": response}
    return "\n".join(f"<{tag}>{text}</{tag}>" for tag, text in parts.items() if text)


def create_dialogue_step(
    think: str, tool_results: list[ToolCallResult], response: str, query: str, step: int
) -> dict[str, Any]:
    """One step of the dialogue that `agent_main` returns. Its timestamp is 0: no clock enters a record."""
    parts = {"think": think, "tool_call": tool_results, "response": response}
    return {
        "completion": {
            "reasoning_content": "",
            "content": format_content(think, tool_results, response),
            "message": {key: value for key, value in parts.items() if value},
        },
        "extra_info": {"step": step, "query": query, "timestamp": 0},
    }
