"""The one connection from agent code to the host, set by the runner before the agent is loaded.

Holding it lets an agent make recorded calls and nothing else: the host numbers, executes and records each of them.
"""

from __future__ import annotations

from collections.abc import Callable

Transport = Callable[[str, "dict[str, object]"], object]


class ToolError(Exception):
    """A refused tool call or model request. `code` is the registry's (`arena explain CODE`), `message` a sentence."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"{code} {message}" if code else message)


class _Link:
    """What the host told the runner: how to call it, the tool schemas and the models."""

    transport: Transport | None = None
    schemas: str = "[]"
    models: tuple[str, ...] = ()


_link = _Link()


def connect(transport: Transport, *, schemas: str, models: tuple[str, ...]) -> None:
    """Route all requests through `transport(method, params)`. `schemas` is the canonical `tools` array, JSON text."""
    _link.transport, _link.schemas, _link.models = transport, schemas, models


def request(method: str, params: dict[str, object]) -> object:
    """One request to the host. Raises ToolError when it is refused, or when there is no host."""
    if _link.transport is None:
        raise ToolError("", "there is no host here: run this agent with `arena run AGENT.py`")
    return _link.transport(method, params)


def schemas_text() -> str:
    """The canonical tool schemas, JSON text; `[]` outside a jail."""
    return _link.schemas


def model_names() -> tuple[str, ...]:
    """The models the policy allows; empty outside a jail."""
    return _link.models
