"""Where files written for SN15 meet the host: their imports, their session, and the calls they leave unsaid.

`src.agent.agent_interface` and `src.agent.proxy_client` import inside a jail, and only when an agent asks for
them; so do `requests` and `urllib.request`, as stand-ins that reach the host's own paths or nothing. When `agent_main`
of such a file has returned, `settle` sends the calls that its dialogue tells of and that never went to the host: the
last recommendation, then terminate. They are requests like any other, so the host executes, attributes and records
them by its own rules; what is known here is the agent's to change and proves nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from arena_sdk import _link

TYPE_CHECKING = False  # the name checkers know: at run time, `typing` takes longer than all else that an agent needs
if TYPE_CHECKING:
    from typing import Any

_PACKAGES = ("src", "src.agent")
_MODULES = {"src.agent.agent_interface": "interface", "src.agent.proxy_client": "proxy"}
STAND_INS = {
    "requests": "standin_requests",
    "urllib.error": "standin_urlerror",
    "urllib.request": "standin_urllib",
}

_JsonObject = dict[str, "Any"]


class _Finder:
    """Finds the modules of SN15's runtime and the stand-ins among this package's files, before anything real."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The protocol of `sys.meta_path`."""
        if name in _PACKAGES:
            return ModuleSpec(name, None, is_package=True)
        file = _MODULES.get(name) or STAND_INS.get(name)
        if file is None:
            return _spec_of_logging() if name == "logging" else None
        from importlib.util import spec_from_file_location

        folder = __file__.rpartition("/")[0]
        parts: list[str] | None = [] if name == "requests" else None  # a package whose parts are itself
        return spec_from_file_location(name, f"{folder}/{file}.py", submodule_search_locations=parts)


def _spec_of_logging() -> ModuleSpec | None:
    """The real module, whose handlers that write files are replaced before anybody else sees them."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("logging")
    loader: Any = spec.loader if spec is not None else None
    if loader is not None:
        load = loader.exec_module

        def execute(module: Any) -> None:
            load(module)

            class FileHandler(module.NullHandler):  # type: ignore[misc]
                """Takes what a file handler takes and writes nothing: what an agent prints is kept."""

                def __init__(
                    self,
                    filename: object,
                    mode: str = "a",
                    encoding: str | None = None,
                    delay: bool = False,
                    errors: str | None = None,
                ) -> None:
                    super().__init__()

            FileHandler.__module__ = "logging"
            module.FileHandler = FileHandler

        loader.exec_module = execute
    return spec


class RefusedEnvelopeError(Exception):
    """An envelope that SN15's service refuses. `status` is its HTTP status: 409 for the session's, 422 for the form."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class _Unsaid:
    """What went to the host so far, and what waits until `agent_main` has returned."""

    recommended: _JsonObject | None = None
    terminate: _JsonObject | None = None


class _Opened:
    """The session of a problem that has an environment."""

    session: Any = None


_unsaid = _Unsaid()
_opened = _Opened()


def install() -> None:
    """Make SN15's modules and the stand-ins importable, and of the environment a plain dict that names the folder for
    temporary files and nothing else. Costs nothing until an agent imports one."""
    sys.meta_path.insert(0, _Finder)
    kept = {name: os.environ[name] for name in ("TMPDIR",) if name in os.environ}
    os.environ = kept  # type: ignore[assignment]  # noqa: B003 - the object is what is to be replaced


def open_problem(problem: object) -> None:
    """Open the session of a problem under SN15's present contract; of any other, nothing."""
    environment = problem.get("environment") if isinstance(problem, dict) else None
    if environment is not None:
        from sn15.environment import EnvironmentSession

        _opened.session = EnvironmentSession(environment)


def session() -> Any:
    """The open session, or None under the contract of May 2026."""
    return _opened.session


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
