"""A folder of judges' replies, each under a hash of everything that decides it: a re-run asks for nothing twice.

The key is the trace's text, the renderer, the rubric and its prompt, the model, how it is sampled and where, the
refused replies it is told of, and how often it was asked this before in the run. A node does not use it: where a reply
was of no use, a node has to ask anew. Source: docs/architecture.md#the-judge.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from foundation.canonical import content_hash, text_hash
from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from judge.port import Judge, JudgeReply
from judge.render import RENDERER, RenderedTrace
from judge.rubric import Rubric


class ReplyKey(msgspec.Struct, frozen=True, kw_only=True):
    """What decides a reply."""

    trace_sha256: str
    renderer: str
    rubric_id: str
    prompt_sha256: str
    model: str
    sampling: str
    refusals: tuple[str, ...]
    ask: int


class KeptReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply as it is kept, with its key."""

    key: ReplyKey
    reply: JudgeReply


class CachedJudge:
    """A `Judge` that asks another only what the folder does not hold. Thread-safe."""

    def __init__(self, judge: Judge, folder: Path, sampling: str) -> None:
        """`sampling` names endpoint and settings (`OpenAIJudge.sampling`)."""
        self._judge, self._folder, self._sampling = judge, folder, sampling
        self._asked: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._lock = threading.Lock()
        self.found = 0  # replies that were not asked for

    @property
    def model(self) -> str:
        """As the judge's."""
        return self._judge.model

    def opine(self, trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> JudgeReply:
        """As the judge's; an endpoint's failure is not kept. Raises ArenaError V2064 where a reply can't be written."""
        trace_sha256, told = text_hash(trace.text), tuple(refusals)
        with self._lock:
            self._asked[trace_sha256, told] += 1
            ask = self._asked[trace_sha256, told]
        key = ReplyKey(
            trace_sha256=trace_sha256,
            renderer=RENDERER,
            rubric_id=rubric.rubric_id,
            prompt_sha256=rubric.prompt_sha256,
            model=self.model,
            sampling=self._sampling,
            refusals=told,
            ask=ask,
        )
        name = content_hash(key)
        path = self._folder / name[:2] / f"{name}.json"
        kept = _read(path)
        if kept is not None and kept.key == key:
            with self._lock:
                self.found += 1
            return kept.reply
        reply = self._judge.opine(trace, rubric, refusals)
        with self._lock:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, msgspec.json.encode(KeptReply(key=key, reply=reply)))
            except OSError as error:
                raise ArenaError("V2064", f"{path}: {error}") from error
        return reply


def _read(path: Path) -> KeptReply | None:
    """What a file keeps; None where there is none, or none that can be read: it is asked for and written again."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeptReply)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
