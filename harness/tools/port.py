"""What a tool call is and what it answers, between the session and the tool registry."""

from __future__ import annotations

from typing import Protocol

import msgspec

from foundation.errors import Failure
from harness.work import WorkMeter


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one tool call. `result` is the JSON text the agent receives, also when the call was malformed."""

    result: str
    failure: Failure | None = None  # A1050, with the same sentence the agent sees
    ignored_parameters: tuple[str, ...] = ()
    found_ids: tuple[str, ...] = ()  # ids in the result, in rank order, for find_* tools only
    recommended_ids: tuple[str, ...] | None = None  # recommend_product only
    is_final: bool = False  # terminate only


class Toolbox(Protocol):
    """The tools of one profile over one catalogue, for one problem."""

    @property
    def profile(self) -> str: ...

    @property
    def schemas(self) -> str:
        """The canonical OpenAI `tools` array as JSON text, generated from signatures."""
        ...

    @property
    def schemas_sha256(self) -> str: ...

    def dispatch(self, name: str, arguments: str, work: WorkMeter | None = None) -> ToolOutcome:
        """Execute one call. `arguments` is JSON text. Raises UnreadableError for arguments that can't be read at all,
        WorkExceededError from `work`, on which the call's searches and products are counted, and ArenaError U3010 when
        the catalogue itself failed."""
        ...
