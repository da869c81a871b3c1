"""What judging costs, counted where judges are asked."""

from __future__ import annotations

import time
from collections.abc import Sequence

from harness.inference.gateway import Ledger
from judge.render import Judge, JudgeReply, RenderedTrace
from judge.rubric import Rubric

JUDGED_AT = "judge/"  # what an endpoint's name begins with in accounts of judging


class MeteredJudge:
    """A `Judge` whose requests a ledger counts, also those that failed."""

    def __init__(self, judge: Judge, ledger: Ledger, endpoint: str = "judge") -> None:
        """`endpoint` names where it is asked."""
        self._judge, self._ledger, self._upstream = judge, ledger, f"{JUDGED_AT}{endpoint}"

    @property
    def model(self) -> str:
        """As the judge's."""
        return self._judge.model

    def opine(self, trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> JudgeReply:
        """As the judge's."""
        begun_s, reply = time.monotonic(), JudgeReply(text="")
        try:
            reply = self._judge.opine(trace, rubric, refusals)
            return reply
        finally:
            self._ledger.add(
                self._upstream,
                self.model,
                attempts=1,
                prompt_tokens=reply.prompt_tokens,
                completion_tokens=reply.completion_tokens,
                latency_ms=int((time.monotonic() - begun_s) * 1000),
            )
