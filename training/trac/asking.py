"""The one way from the oracle and the rewriter to a model: answers kept, faults retried, tokens counted, a price held.

Nothing is asked that was answered before. An endpoint's fault is tried again while its code says that this may help,
and then belongs to the trace that met it. A question that could take the run over its limit ends it (V2148), and so
does the last of `SILENT_MAX` questions in a row without an answer. What was answered stays.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import msgspec

from foundation.backoff import Backoff, retried
from foundation.canonical import content_hash
from foundation.codes import BAD_REQUEST, MODEL_BUSY, MODEL_FAILED, MODEL_UNREADABLE
from foundation.durable_files import coded, write_whole
from foundation.errors import ArenaError, Failure
from harness.inference.port import RetryLaterError, Upstream
from harness.limits import TokenPrice
from judge.parse import RefusedReplyError

ATTEMPTS = 4
SILENT_MAX = 3
SILENCE = (MODEL_FAILED, MODEL_UNREADABLE, MODEL_BUSY)  # no answer; a question that is refused was heard
_PAUSES = Backoff(first_ms=1_000, most_ms=60_000)
_BYTES_PER_TOKEN = 3  # fewer than any tokenizer needs for plain text: a bound from above
_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\Z", re.DOTALL)
_FREE = TokenPrice(prompt_micro_usd=0, completion_micro_usd=0)
Chat = tuple[tuple[str, str], ...]  # (role, text)
_Value = TypeVar("_Value")


class SilentEndpointError(ArenaError):
    """The endpoint has fallen silent: this run asks no more."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a model was asked for: `kept` calls were answered by what is stored, and cost nothing."""

    model: str
    calls: int = 0
    kept: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    micro_usd: int = 0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a reply or a trial. `text` is "" for a trial."""

    text: str = ""
    is_solved: bool = False
    prompt_tokens: int
    completion_tokens: int


class Asker:
    """Asks models and keeps the answers in `folder`. Thread-safe. `micro_usd_max` None: no limit."""

    def __init__(
        self,
        upstream: Upstream,
        folder: Path,
        prices: Mapping[str, TokenPrice],
        *,
        micro_usd_max: int | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.upstream, self._folder, self._prices = upstream, folder, prices
        self._micro_usd_max, self._sleep = micro_usd_max, sleep
        self._lock = threading.Lock()  # of what follows
        self._unanswered = 0  # questions in a row
        self._silent: Failure | None = None  # what the last of too many met
        self._usage: dict[str, Counter[str]] = defaultdict(Counter)  # by model, under the names of `Usage`
        self._reserved_micro_usd = 0

    def ask(self, model: str, chat: Chat, tokens_max: int) -> str:
        """The reply's text.

        Raises ArenaError V2148 before a call that could break the limit, else what the endpoint raises after its
        retries: A1040, U3001 to U3004.
        """
        messages = [{"role": role, "content": text} for role, text in chat]
        question = {"model": model, "messages": messages, "temperature": 0, "max_tokens": tokens_max}

        def complete() -> Answer:
            request = msgspec.json.encode(question).decode()
            reply = retried(lambda: self.upstream.complete(request), ATTEMPTS, _pause_ms, self._sleep)
            return Answer(
                text=reply.content, prompt_tokens=reply.prompt_tokens, completion_tokens=reply.completion_tokens
            )

        return self.once(model, question, (prompt_tokens_bound(chat), tokens_max), complete).text

    def ask_checked(
        self, model: str, chat: Chat, tokens_max: int, replies_max: int, read: Callable[[str], _Value]
    ) -> tuple[_Value, int]:
        """What `read` makes of a reply, and how many it refused before: a refused one is asked for again with the
        reason.

        Raises RefusedReplyError with the last reason, and what `ask` raises.
        """
        for refused in range(replies_max):
            text = self.ask(model, chat, tokens_max)
            try:
                return read(text), refused
            except RefusedReplyError as wrong:
                if refused + 1 == replies_max:
                    raise
                again = f"That reply is refused: {wrong}. Answer again with the JSON object alone."
                chat = *chat, ("assistant", text), ("user", again)
        raise AssertionError("the last reply is read or refused")

    def once(self, model: str, question: object, tokens_max: tuple[int, int], answer: Callable[[], Answer]) -> Answer:
        """What was answered before, or is answered now and kept; `tokens_max` are its bounds, of prompt and completion.

        Raises what `answer` raises, V2148, and V2027 for an answer that can't be kept.
        """
        key = content_hash(question)
        path = self._folder / key[:2] / f"{key}.json"
        with contextlib.suppress(OSError, msgspec.DecodeError):
            kept = msgspec.json.decode(path.read_bytes(), type=Answer)
            self._count(model, kept=1, calls=1)
            return kept
        price = self._prices.get(model, _FREE)
        with self._reserved(price.cost_micro_usd(*tokens_max)):
            found = self._heard(answer)
            spent = price.cost_micro_usd(found.prompt_tokens, found.completion_tokens)
            with coded(path, "V2027"):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, msgspec.json.encode(found))
            prompt, completion = found.prompt_tokens, found.completion_tokens
            self._count(model, calls=1, micro_usd=spent, prompt_tokens=prompt, completion_tokens=completion)
        return found

    def usage(self) -> tuple[Usage, ...]:
        """What every model was asked for so far, by name."""
        with self._lock:
            return tuple(Usage(model=model, **counts) for model, counts in sorted(self._usage.items()))

    @contextlib.contextmanager
    def _reserved(self, micro_usd: int) -> Iterator[None]:
        """Set the highest price of a call aside while it runs. Raises ArenaError V2148 where it does not fit."""
        with self._lock:
            spent, limit = sum(one["micro_usd"] for one in self._usage.values()), self._micro_usd_max
            if limit is not None and spent + self._reserved_micro_usd + micro_usd > limit:
                raise ArenaError("V2148", f"${spent / 1e6:.2f} of ${limit / 1e6:.2f} are spent")
            self._reserved_micro_usd += micro_usd
        try:
            yield
        finally:
            with self._lock:
                self._reserved_micro_usd -= micro_usd

    def _count(self, model: str, **more: int) -> None:
        with self._lock:
            self._usage[model].update(more)

    def _heard(self, answer: Callable[[], Answer]) -> Answer:
        """What an endpoint answers. Raises SilentEndpointError where it has not for too long, and asks no more."""
        with self._lock:
            if self._silent is not None:
                raise SilentEndpointError(self._silent.code, self._silent.detail)
        try:
            found = answer()
        except ArenaError as error:
            with self._lock:
                self._unanswered += error.failure.code in SILENCE
                if self._unanswered >= SILENT_MAX:
                    self._silent = error.failure
                    raise SilentEndpointError(error.failure.code, error.failure.detail) from error
            raise
        with self._lock:
            self._unanswered = 0
        return found


def is_of_trace(error: ArenaError) -> bool:
    """Whether the trace that met it goes without an answer, and the run goes on."""
    return error.failure.code in (*SILENCE, BAD_REQUEST) and not isinstance(error, SilentEndpointError)


def _pause_ms(error: ArenaError, failures: int) -> int | None:
    if not error.entry.is_retryable:
        return None
    asked_ms = error.retry_after_ms if isinstance(error, RetryLaterError) else 0
    return max(min(_PAUSES.most_ms, asked_ms), _PAUSES.pause_ms(failures))


def write_results(out: Path, report: tuple[str, msgspec.Struct], rows: Mapping[str, Sequence[object]]) -> None:
    """Write a run's report and its rows, by file name. Raises ArenaError V2027."""
    with coded(out, "V2027"):
        out.mkdir(parents=True, exist_ok=True)
        for name, every in rows.items():
            write_whole(out / name, b"".join(msgspec.json.encode(row) + b"\n" for row in every))
        write_whole(out / report[0], msgspec.json.format(msgspec.json.encode(report[1])) + b"\n")


@functools.cache
def prompt_text(room: str, name: str) -> str:
    """The text of a name among the prompts of a room here, package data."""
    return files(f"training.{room}").joinpath("prompts", f"{name}.txt").read_text("utf-8")


def prompt_tokens_bound(chat: Chat) -> int:
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
