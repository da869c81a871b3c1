"""Where files written for SN15 meet the host: their two imports, and the calls they leave unsaid.

Promise: `src.agent.agent_interface` and `src.agent.proxy_client` import inside a jail, and only when an agent asks for
them. When `agent_main` of such a file has returned, `settle` sends the calls that its dialogue tells of and that never
went to the host: the last recommendation, then terminate. They are requests like any other, so the host executes,
attributes and records them by its own rules; what is known here is the agent's to change and proves nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from arena_sdk import _link

_PACKAGES = ("src", "src.agent")
_MODULES = {"src.agent.agent_interface": "sn15_interface", "src.agent.proxy_client": "sn15_proxy"}

_JsonObject = dict[str, Any]


class _Finder:
    """Finds the modules of SN15's runtime among this package's files."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The protocol of `sys.meta_path`."""
        if name in _PACKAGES:
            return ModuleSpec(name, None, is_package=True)
        if name not in _MODULES:
            return None
        from importlib.util import spec_from_file_location

        return spec_from_file_location(name, f"{__file__.rpartition('/')[0]}/{_MODULES[name]}.py")


class _Unsaid:
    """What went to the host so far, and what waits until `agent_main` has returned."""

    recommended: _JsonObject | None = None
    terminate: _JsonObject | None = None


_unsaid = _Unsaid()


def install() -> None:
    """Make SN15's modules importable. Costs nothing until an agent imports one."""
    sys.meta_path.append(_Finder)


def is_used() -> bool:
    """True once the agent has imported SN15's interface or its proxy client."""
    return any(name in sys.modules for name in _MODULES)


def recommend(parameters: _JsonObject) -> None:
    """Send a recommendation now."""
    _unsaid.recommended = parameters
    _link.request("tool.call", {"name": "recommend_product", "arguments": parameters})


def postpone_terminate(parameters: _JsonObject) -> None:
    """Keep a terminate for `settle`: on SN15 it is a mark in the dialogue, and the agent may still recommend after it,
    while here nothing is executed once it was sent."""
    _unsaid.terminate = parameters


def settle(dialogue: object) -> None:
    """Send the last recommendation of the returned dialogue unless it is the last one sent, then terminate."""
    said = list(_calls_of(dialogue))
    recommendations = [parameters for name, parameters in said if name == "recommend_product"]
    if recommendations and recommendations[-1] != _unsaid.recommended:
        recommend(recommendations[-1])
    endings = [parameters for name, parameters in said if name == "terminate"]
    ending = endings[-1] if endings else _unsaid.terminate
    if ending is not None:
        _link.request("tool.call", {"name": "terminate", "arguments": ending})


def _calls_of(dialogue: object) -> Iterator[tuple[str, _JsonObject]]:
    """The tool calls of a dialogue, in order. Whatever is not in SN15's shape is passed over."""
    for step in dialogue if isinstance(dialogue, list) else ():
        calls = step
        for key in ("completion", "message", "tool_call"):
            calls = calls.get(key) if isinstance(calls, dict) else None
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict) and isinstance(call.get("parameters"), dict):
                yield str(call.get("name")), call["parameters"]
