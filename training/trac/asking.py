"""The one way from the oracle to a model: answers kept, faults retried, tokens counted, limits of cost and time held.

Nothing is asked that was answered before; nothing is asked that could take the run over its limit (V2148). An
endpoint's fault is tried again while its code says that this may help. Then a short question tells whether the endpoint
still answers: if it does, this question alone is at fault (U3054). One that left `SILENT_MAX` questions in a row
without an answer, short ones too, is asked no more by this run. What was answered stays.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from foundation.backoff import Backoff, retried
from foundation.canonical import content_hash
from foundation.codes.names import (
    BAD_REQUEST,
    MODEL_BUSY,
    MODEL_FAILED,
    MODEL_UNREADABLE,
    NO_ANSWER_TO_THIS,
    OVER_LIMIT,
)
from foundation.durable_files import write_whole
from foundation.errors import ArenaError, Failure
from harness.inference.port import ModelReply, RetryLaterError, Upstream
from judge.parse import RefusedReplyError
from training.trac.model import Price, Trial, Usage

_Value = TypeVar("_Value")


class Answers:
    """A folder of answers. Threads may read and write different questions at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, question: object, kind: type[_Value]) -> _Value | None:
        """What was answered, None for nothing."""
        try:
            return msgspec.json.decode(self._path(question).read_bytes(), type=kind)
        except (OSError, msgspec.DecodeError):
            return None

    def keep(self, question: object, answer: object) -> None:
        """Keep an answer. Raises ArenaError V2027."""
        path = self._path(question)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, msgspec.json.encode(answer))
        except OSError as wrong:
            raise ArenaError("V2027", f"{path}: {wrong.strerror}") from None

    def _path(self, question: object) -> Path:
        key = content_hash(question)
        return self._folder / key[:2] / f"{key}.json"


ATTEMPTS = 4
SILENT_MAX = 3
_PAUSES = Backoff(first_ms=1_000, most_ms=60_000)
_BYTES_PER_TOKEN = 3  # fewer than any tokenizer needs for plain text: a bound from above
_FREE = Price()
# a refusal, a timeout or an unreadable reply may be one question's
_OF_ONE_QUESTION = (BAD_REQUEST, MODEL_FAILED, MODEL_UNREADABLE)
Chat = tuple[tuple[str, str], ...]  # (role, text)
_Answer = TypeVar("_Answer")
_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\Z", re.DOTALL)


class ReplyRules(Protocol):
    """How long one reply may be, and how many are asked for, the refused ones included."""

    @property
    def replies_max(self) -> int: ...

    @property
    def reply_tokens_max(self) -> int: ...


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a reply."""

    text: str
    prompt_tokens: int
    completion_tokens: int


class Asker:
    """Asks models and keeps the answers. Thread-safe. `micro_usd_max` and `seconds_max` None: no limit."""

    def __init__(
        self,
        upstream: Upstream,
        answers: Answers,
        prices: Mapping[str, Price],
        *,
        micro_usd_max: int | None = None,
        seconds_max: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`seconds_max` counts from now by `clock_s`."""
        self.upstream, self._answers, self._prices = upstream, answers, prices
        self._micro_usd_max, self._sleep = micro_usd_max, sleep
        self._clock_s, self._seconds_max = clock_s, seconds_max
        self._began_s = clock_s()
        self._unanswered = 0  # questions in a row, short ones too
        self._last_fault = Failure(code=MODEL_FAILED)
        self._usage: dict[str, Usage] = {}
        self._reserved_micro_usd = 0
        self._lock = threading.Lock()
        self._asking: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def ask(self, model: str, chat: Chat, tokens_max: int) -> str:
        """The reply's text.

        Raises ArenaError V2148 before a call that could break a limit, U3054 for a question that the endpoint refuses
        or can't answer while it answers others (too long, or too slow), else what the endpoint raises after its
        retries: A1040, U3001 to U3004.
        """
        messages = [{"role": role, "content": text} for role, text in chat]
        question = {"model": model, "messages": messages, "temperature": 0, "max_tokens": tokens_max}
        with self._alone(question):
            kept = self._answers.find(question, Kept)
            if kept is not None:
                self._count(model, 0, 0, kept=1)
                return kept.text
            with self._reserved(model, prompt_tokens_bound(chat), tokens_max):
                request = msgspec.json.encode(question).decode()
                reply = self._heard(lambda: self._complete(model, request), model)
                kept = Kept(
                    text=reply.content, prompt_tokens=reply.prompt_tokens, completion_tokens=reply.completion_tokens
                )
                self._answers.keep(question, kept)
                self._count(model, kept.prompt_tokens, kept.completion_tokens)
            return kept.text

    def ask_checked(
        self, model: str, chat: Chat, rules: ReplyRules, read: Callable[[str], _Value]
    ) -> tuple[_Value, int]:
        """What `read` makes of a reply, and how many it refused before: a refused one is asked for again with the
        reason.

        Raises RefusedReplyError with the last reason, and what `ask` raises.
        """
        refused = 0
        while True:
            text = self.ask(model, chat, rules.reply_tokens_max)
            try:
                return read(text), refused
            except RefusedReplyError as wrong:
                refused += 1
                if refused >= rules.replies_max:
                    raise
                again = f"That reply is refused: {wrong}. Answer again with the JSON object alone."
                chat = *chat, ("assistant", text), ("user", again)

    def trial(self, model: str, question: object, tokens_max: tuple[int, int], run: Callable[[], Trial]) -> Trial:
        """A trial that was run before, or is run now; `tokens_max` are its bounds: prompt and completion tokens.

        Raises what `run` raises, and V2148: such a trial is none, and is run again when asked for again.
        """
        with self._alone(question):
            found = self._answers.find(question, Trial)
            if found is not None:
                self._count(model, 0, 0, kept=1)
                return found
            with self._reserved(model, *tokens_max):
                trial = self._heard(run, model)
                self._answers.keep(question, trial)
                self._count(model, trial.prompt_tokens, trial.completion_tokens)
            return trial

    def usage(self) -> tuple[Usage, ...]:
        """What every model was asked for so far, by name."""
        with self._lock:
            return tuple(self._usage[model] for model in sorted(self._usage))

    def silence(self) -> Failure | None:
        """The last fault of an endpoint that fell silent; None of one that answers."""
        with self._lock:
            return self._last_fault if self._unanswered >= SILENT_MAX else None

    def require_time(self) -> None:
        """Raises ArenaError V2148 once the run's time is over."""
        if self._seconds_max is not None and self._clock_s() - self._began_s >= self._seconds_max:
            raise ArenaError(OVER_LIMIT, f"the {self._seconds_max:,.0f} seconds of this run are over")

    @contextlib.contextmanager
    def _alone(self, question: object) -> Iterator[None]:
        """Two threads with one question: the second waits, and finds the answer of the first."""
        with self._lock:
            lock = self._asking[content_hash(question)]
        with lock:
            yield

    @contextlib.contextmanager
    def _reserved(self, model: str, prompt_tokens: int, completion_tokens: int) -> Iterator[None]:
        """Set the highest price of a call aside while it runs. Raises ArenaError V2148 where it does not fit."""
        bound = self._prices.get(model, _FREE).micro_usd(prompt_tokens, completion_tokens)
        with self._lock:
            spent = sum(one.micro_usd for one in self._usage.values())
            if self._micro_usd_max is not None and spent + self._reserved_micro_usd + bound > self._micro_usd_max:
                raise ArenaError(OVER_LIMIT, f"${spent / 1e6:.2f} of ${self._micro_usd_max / 1e6:.2f} are spent")
            self._reserved_micro_usd += bound
        try:
            yield
        finally:
            with self._lock:
                self._reserved_micro_usd -= bound

    def _count(self, model: str, prompt_tokens: int, completion_tokens: int, *, calls: int = 1, kept: int = 0) -> None:
        price = self._prices.get(model, _FREE)
        with self._lock:
            one = self._usage.get(model, Usage(model=model))
            self._usage[model] = Usage(
                model=model,
                calls=one.calls + calls,
                kept=one.kept + kept,
                prompt_tokens=one.prompt_tokens + prompt_tokens,
                completion_tokens=one.completion_tokens + completion_tokens,
                micro_usd=one.micro_usd + price.micro_usd(prompt_tokens, completion_tokens),
            )

    def _heard(self, ask: Callable[[], _Answer], model: str) -> _Answer:
        """What an endpoint answers, unless it has fallen silent. Raises as `ask` does, or U3054."""
        if (silent := self.silence()) is not None:
            raise ArenaError(silent.code, f"not asked: {SILENT_MAX} questions in a row had no answer; {silent.detail}")
        self.require_time()
        try:
            answer = ask()
        except ArenaError as error:
            code = error.failure.code
            is_silent = code in (*_OF_ONE_QUESTION, MODEL_BUSY) and not self._answers_others(model)
            with self._lock:
                self._unanswered = self._unanswered + 1 if is_silent else 0
                self._last_fault = error.failure
            if code in _OF_ONE_QUESTION and not is_silent:
                raise ArenaError(NO_ANSWER_TO_THIS, error.failure.detail) from error
            raise
        with self._lock:
            self._unanswered = 0
        return answer

    def _complete(self, model: str, request: str) -> ModelReply:
        def once() -> ModelReply:
            self.require_time()
            return self.upstream.complete(request)

        return retried(once, ATTEMPTS, _pause_ms, self._sleep)

    def _answers_others(self, model: str) -> bool:
        """Whether the endpoint answers a question that any with this model can."""
        said = [{"role": "user", "content": "Say yes."}]
        short = {"model": model, "messages": said, "temperature": 0, "max_tokens": 1}
        return self.upstream.probe(msgspec.json.encode(short).decode()) is None


def _pause_ms(error: ArenaError, failures: int) -> int | None:
    if not error.entry.is_retryable:
        return None
    asked_ms = error.retry_after_ms if isinstance(error, RetryLaterError) else 0
    return max(min(_PAUSES.most_ms, asked_ms), _PAUSES.pause_ms(failures))


def prompt_tokens_bound(chat: Sequence[tuple[str, str]]) -> int:
    """More tokens than the conversation has."""
    return sum(len(text.encode()) // _BYTES_PER_TOKEN + 8 for _, text in chat)


def read_json(text: str, form: type[_Value]) -> _Value:
    """A reply that is one JSON object of a form, alone or in one code fence. Raises RefusedReplyError with a reason."""
    bare = text.strip()
    fenced = _FENCE.match(bare)
    try:
        return msgspec.json.decode(fenced.group(1) if fenced else bare, type=form)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise RefusedReplyError(f"the reply is not one JSON object of the agreed form: {error}") from error
