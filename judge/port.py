"""The judge port: a model that reads a rendered trace and writes a reply. It decides nothing by itself.

A reply is text until `parse` and `citations` have accepted it; the panel owns retries, medians and refusals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from judge.render import RenderedTrace
from judge.rubric import Rubric


class JudgeReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge model answered, as it came."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    is_cut: bool = False  # the endpoint ended it at its limit of tokens


class Judge(Protocol):
    """One judge model. Thread-safe."""

    @property
    def model(self) -> str:
        """The model id as `Rubric.models` names it."""
        ...

    def opine(self, trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> JudgeReply:
        """One reply to one trace. `refusals` are the reasons why earlier replies to this trace were refused.

        Raises ArenaError U3020 when the endpoint failed after its retries.
        """
        ...
