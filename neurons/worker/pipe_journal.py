"""A journal of completions that lies on the supervisor's machine, asked over the worker's pipe.

An answer is in the supervisor's file before the agent sees it, so a host that is lost has shown nothing that a
restart elsewhere would draw anew.
"""

from __future__ import annotations

from collections.abc import Callable

from foundation.codes.names import HOST_FAILED
from foundation.errors import ArenaError, Failure
from harness.inference.port import CompletionJournal, RecordedAnswer
from neurons.worker.protocol import JournalCall, JournalReply


class PipeJournal:
    """A `CompletionJournal` whose every question is one frame; `ask` sends it and waits for the reply."""

    def __init__(self, ask: Callable[[JournalCall], JournalReply]) -> None:
        self._ask = ask

    def take(self, request_sha256: str) -> RecordedAnswer | None:
        """As `CompletionJournal.take`."""
        return self._told(JournalCall(what="take", request_sha256=request_sha256)).answer

    def add(self, answer: RecordedAnswer) -> None:
        """As `CompletionJournal.add`."""
        self._told(JournalCall(what="add", answer=answer))

    def owed(self) -> int:
        """As `CompletionJournal.owed`."""
        return self._told(JournalCall(what="owed")).owed

    def models(self) -> tuple[str, ...]:
        """As `CompletionJournal.models`."""
        return self._told(JournalCall(what="models")).models

    def forgive(self) -> None:
        """As `CompletionJournal.forgive`."""
        self._told(JournalCall(what="forgive"))

    def _told(self, call: JournalCall) -> JournalReply:
        reply = self._ask(call)
        if reply.failure is not None:
            raise ArenaError(reply.failure.code, reply.failure.detail)
        return reply


def answer_call(journal: CompletionJournal | None, call: JournalCall) -> JournalReply:
    """What the journal says to a worker's question; a failure of the journal is the reply, too."""
    try:
        if journal is None:
            raise ArenaError(HOST_FAILED, "a worker asked for a journal that its job has not")
        match call.what:
            case "take":
                return JournalReply(answer=journal.take(call.request_sha256))
            case "add":
                if call.answer is None:
                    raise ArenaError(HOST_FAILED, "a worker added no answer to its journal")
                journal.add(call.answer)
            case "owed":
                return JournalReply(owed=journal.owed())
            case "models":
                return JournalReply(models=journal.models())
            case "forgive":
                journal.forgive()
        return JournalReply()
    except ArenaError as error:
        return JournalReply(failure=Failure(code=error.failure.code, detail=error.failure.detail))
