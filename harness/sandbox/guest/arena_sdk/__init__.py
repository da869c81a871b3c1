"""The agent's side of the arena: `from arena_sdk import tools, llm`.

Every function here is one request to the host, which executes and records it; nothing is computed or cached in the
agent's process. The package needs only the standard library and imports anywhere, so that an editor can complete and
type-check an agent; outside a jail each request raises `ToolError` with a hint to use `arena run AGENT.py`.
"""

from __future__ import annotations

from arena_sdk import llm, tools
from arena_sdk._link import ToolError
from arena_sdk.llm import Reply

__all__ = ["Reply", "ToolError", "llm", "tools"]
