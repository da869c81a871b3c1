"""Completions kept in a file and answered from it: an agent is changed and run again on the same replies, for free.

A reply is found by the sha256 of the whole rebuilt request (messages, tools, model, sampling), so it is never
given to a request that asks something else; that one is V2180, and nobody guesses. Equal requests get their replies in
the order in which they were recorded. A line that a kill cut short is dropped. The file holds no key.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from foundation.canonical import UNREADABLE_JSON, text_hash
from foundation.codes.names import NOT_RECORDED
from foundation.errors import ArenaError, Failure
from harness.inference.port import ModelReply, Upstream

FORMAT = "agent-arena/completions/1"


class RecordingHead(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a recording: the models that an agent is offered when it is replayed."""

    format: str = FORMAT
    models: tuple[str, ...]


class RecordedReply(msgspec.Struct, frozen=True, kw_only=True):
    """One line: a reply and the request it answers."""

    request_sha256: str
    reply: ModelReply


class CompletionFile:
    """A file of completions, read whole and appended to. Thread-safe."""

    def __init__(self, path: Path, models: Sequence[str], *, is_new: bool) -> None:
        """Open `path`; with `is_new` it may be missing and is begun with `models`. Raises ArenaError V2181."""
        self._path, self._lock = path, threading.Lock()
        self._replies: dict[str, list[ModelReply]] = {}
        self._given: dict[str, int] = {}
        self.models = tuple(models)
        try:
            if is_new and not (path.exists() and path.stat().st_size):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(msgspec.json.encode(RecordingHead(models=self.models)) + b"\n")
            content = path.read_bytes()
        except OSError as error:
            raise ArenaError("V2181", f"{path}: {error.strerror}") from error
        *lines, cut_short = content.split(b"\n")
        try:
            head = msgspec.json.decode(lines[0] if lines else b"", type=RecordingHead)
            if head.format != FORMAT:
                raise ArenaError("V2181", f"{path}: format {head.format!r} is not {FORMAT!r}")
            for line in lines[1:]:
                self._keep(msgspec.json.decode(line, type=RecordedReply))
        except UNREADABLE_JSON as error:
            raise ArenaError("V2181", f"{path}: {error}") from error
        self.models = head.models
        if cut_short:
            os.truncate(path, len(content) - len(cut_short))

    def take(self, request: str) -> ModelReply | None:
        """The next reply to this request in this run, or None."""
        with self._lock:
            key = text_hash(request)
            place = self._given.get(key, 0)
            known = self._replies.get(key, ())
            if place >= len(known):
                return None
            self._given[key] = place + 1
            return known[place]

    def add(self, request: str, reply: ModelReply) -> None:
        """Keep a reply that was just given. Raises OSError."""
        with self._lock, self._path.open("ab") as stream:
            one = RecordedReply(request_sha256=text_hash(request), reply=reply)
            stream.write(msgspec.json.encode(one) + b"\n")
            self._keep(one)
            self._given[one.request_sha256] = len(self._replies[one.request_sha256])

    def _keep(self, one: RecordedReply) -> None:
        self._replies.setdefault(one.request_sha256, []).append(one.reply)


class RecordedUpstream:
    """An `Upstream` before a recording: what is recorded is answered from it, the rest by `live`, where there is one.

    With `is_replayed` off everything is asked of `live` and recorded.
    """

    def __init__(self, recording: CompletionFile, live: Upstream | None, *, is_replayed: bool) -> None:
        self._recording, self._live, self._is_replayed = recording, live, is_replayed

    @property
    def name(self) -> str:
        """The endpoint's name, or that there is none."""
        return self._live.name if self._live else "recording"

    def complete(self, request: str) -> ModelReply:
        """As `Upstream.complete`. Raises ArenaError V2180 for a request that is not recorded where nobody is asked."""
        if self._is_replayed and (known := self._recording.take(request)) is not None:
            return known
        if self._live is None:
            model = msgspec.json.decode(request).get("model")
            messages = len(msgspec.json.decode(request).get("messages") or ())
            raise ArenaError(NOT_RECORDED, f"a request of {messages} messages to {model}")
        reply = self._live.complete(request)
        self._recording.add(request, reply)
        return reply

    def probe(self, request: str) -> Failure | None:
        """As `Upstream.probe`: of the endpoint; a recording alone has nothing to ask."""
        return self._live.probe(request) if self._live else None
