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


# What the host told the runner, which sets these: how to call it, the canonical `tools` array as JSON text, and the
# models that the policy allows. Outside a jail nothing is known.
transport: Transport | None = None
schemas = "[]"
models: tuple[str, ...] = ()


def request(method: str, params: dict[str, object]) -> object:
    """One request to the host. Raises ToolError when it is refused, or when there is no host."""
    if transport is None:
        raise ToolError("", "there is no host here: run this agent with `arena run AGENT.py`")
    return transport(method, params)
