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
_RUNTIME = {"src.agent.agent_interface": "sn15.interface", "src.agent.proxy_client": "sn15.proxy"}
# One module under all these names, so that a class is the same wherever it is caught.
STAND_INS = ("requests", "requests.adapters", "requests.exceptions", "urllib.error", "urllib.request")

_JsonObject = dict[str, "Any"]


class _Finder:
    """Finds the modules of SN15's runtime and the stand-ins among this package's files, before anything real."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The protocol of `sys.meta_path`."""
        if name in _PACKAGES:
            return ModuleSpec(name, None, is_package=True)
        if name in _RUNTIME or name in STAND_INS:
            return ModuleSpec(name, _Loader())  # type: ignore[arg-type]
        return _spec_of_changed(name) if name in _CHANGES else None


class _Loader:
    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        """This package's own module under another name."""
        from importlib import import_module

        return import_module(_RUNTIME.get(spec.name, "sn15.standins"))

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Nothing: it has run."""


def _spec_of_changed(name: str) -> ModuleSpec | None:
    """The real module, changed before anybody else sees it."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(name)
    loader: Any = spec.loader if spec is not None else None
    if loader is not None:
        load = loader.exec_module

        def execute(module: Any) -> None:
            load(module)
            _CHANGES[name](module)

        loader.exec_module = execute
    return spec


def _write_no_logs(module: Any) -> None:
    handler = module.NullHandler  # takes what a file handler takes and writes nothing: what is printed is kept
    members = {"__init__": lambda self, *_, **__: handler.__init__(self), "__module__": "logging"}
    module.FileHandler = type("FileHandler", (handler,), members)


def _copy_into_own_class(module: Any) -> None:
    """A copy takes the attributes it is told to set, but no other object does: `asdict` and `UserDict.copy` copy."""
    reconstruct = module._reconstruct

    def guarded(x: object, memo: object, func: Any, args: Any, state: object = None, *rest: Any, **options: Any) -> Any:
        def make(*given: object) -> object:
            made = func(*given)
            if state is not None and type(made) is not type(x):
                raise TypeError(f"a copy of {type(x).__name__} is of another class")
            return made

        return reconstruct(x, memo, make, args, state, *rest, **options)

    module._reconstruct = guarded


_CHANGES = {"logging": _write_no_logs, "copy": _copy_into_own_class}


class RefusedEnvelopeError(Exception):
    """An envelope that SN15's service refuses. `status` is its HTTP status: 409 for the session's, 422 for the form."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


# The session of a problem that has an environment, what went to the host so far, and what waits until `agent_main`
# has returned.
_session: Any = None
_recommended: _JsonObject | None = None
_offered: str | None = None  # the arguments of the model's last recommendation, as it wrote them
_is_by_nonce = False  # the agent hands the model's calls on with their nonces: those are its calls, also unsent
_terminate: _JsonObject | None = None


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
        from sn15.proxy import EnvironmentSession

        global _session
        _session = EnvironmentSession(environment)


def session() -> Any:
    """The open session, or None under the contract of May 2026."""
    return _session


def is_used() -> bool:
    """True once the agent has imported SN15's interface or its proxy client."""
    return any(name in sys.modules for name in _RUNTIME)


def recommend(parameters: _JsonObject) -> None:
    """Send a recommendation now."""
    global _recommended
    _recommended = parameters
    _link.request("tool.call", {"name": "recommend_product", "arguments": parameters})


def note_reply(calls: list[_JsonObject]) -> None:
    """Keep what a reply of the model recommends."""
    global _offered
    _offered = next((each["arguments"] for each in calls if each["name"] == "recommend_product"), _offered)


def note_nonce(name: str) -> None:
    """The agent hands on a call of the model's, as the contract with nonces asks for."""
    global _is_by_nonce, _offered
    _is_by_nonce = True
    if name == "recommend_product":
        _offered = None


def postpone_terminate(parameters: _JsonObject) -> None:
    """Keep a terminate for `settle`: on SN15 it is a mark in the dialogue, and the agent may still recommend after it,
    while here nothing is executed once it was sent."""
    global _terminate
    _terminate = parameters


def settle(dialogue: object) -> None:
    """Send the last recommendation of the returned dialogue unless it is the last one sent, then terminate. Under the
    contract with nonces the model's own is the answer where the agent sent none."""
    said = dict(_calls_of(dialogue))  # the last one of each name
    recommendation = said.get("recommend_product", _recommended)
    if recommendation is not None and recommendation != _recommended:
        recommend(recommendation)
    elif recommendation is None and _is_by_nonce and _offered is not None:
        _link.request("tool.call", {"name": "recommend_product", "arguments": _offered})
    ending = said.get("terminate", _terminate)
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
