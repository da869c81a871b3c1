"""Embeddings: unit vectors of texts from any OpenAI-compatible `/v1/embeddings` endpoint.

One float32 row per text, in order, of length 1, whatever order the endpoint answers in; faults that pass are
tried again with growing pauses, and what is left is an upstream failure with a code. It runs when a title release is
built, never in a validator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import httpx
import msgspec
import numpy as np
import numpy.typing as npt

from foundation.backoff import Backoff
from foundation.bounded_http import UnfitAnswerError
from foundation.canonical import UNREADABLE_JSON
from foundation.codes.names import NO_ENDPOINT
from foundation.errors import ArenaError
from harness.inference.client import open_client

Vectors = npt.NDArray[np.float32]  # one row per text

_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_DETAIL_CHARS = 200
_VECTOR_BYTES = 1 << 20  # of one text's vector as JSON
_PAUSES = Backoff(first_ms=500, most_ms=60_000)


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    @property
    def name(self) -> str:
        """Model and whatever else decides the vectors: a release carries it, and cached vectors are kept under it."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row of length 1 per text, shape (texts, dimensions). Raises ArenaError U3001 to U3004."""
        ...


class _EmbeddingRow(msgspec.Struct):
    index: int
    embedding: list[float]


class _EmbeddingReply(msgspec.Struct):
    data: list[_EmbeddingRow]


class EmbeddingsEndpoint:
    """An `Embedder` at `base_url` (with its version path, e.g. `https://host/v1`)."""

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str = "",
        timeout_ms: int = 60_000,
        attempts: int = 4,
        batch: int = 64,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`batch` texts go into one request. `sleep` takes seconds."""
        self._model = model
        self._attempts, self._batch, self._sleep = attempts, batch, sleep
        self._timeout_s = timeout_ms / 1000
        self._client = open_client(base_url, api_key, self._timeout_s)

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row of length 1 per text. Raises ArenaError U3001 (refused), U3002, U3003 (unreadable) or U3004."""
        parts = [self._request(texts[start : start + self._batch]) for start in range(0, len(texts), self._batch)]
        if len({part.shape[1] for part in parts}) > 1:
            raise ArenaError("U3003", f"{self._model} changes the length of its vectors")
        return np.concatenate(parts) if parts else np.empty((0, 0), dtype=np.float32)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _request(self, texts: Sequence[str]) -> Vectors:
        failure = ArenaError("U3002", "no attempt was allowed")
        for attempt in range(self._attempts):
            if attempt:
                self._sleep(_PAUSES.pause_ms(attempt) / 1_000)
            try:
                return _unit_rows(self._post(texts), len(texts))
            except ArenaError as error:
                if not error.entry.is_retryable or error.failure.code == NO_ENDPOINT:
                    raise
                failure = error
        raise failure

    def _post(self, texts: Sequence[str]) -> bytes:
        body = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        try:
            response = self._client.ask(
                "POST", "embeddings", json=body, bytes_max=len(texts) * _VECTOR_BYTES, within_s=self._timeout_s
            )
        except UnfitAnswerError as error:
            raise ArenaError("U3003", str(error)) from error
        except httpx.HTTPError as error:
            raise ArenaError("U3002", f"{type(error).__name__}: {error}"[:_DETAIL_CHARS]) from error
        if response.is_success:
            return response.content
        code = "U3004" if response.status_code == 429 else "U3002" if response.status_code in _PASSING else "U3001"
        raise ArenaError(code, f"HTTP {response.status_code}: {response.text}"[:_DETAIL_CHARS])


def _unit_rows(content: bytes, count: int) -> Vectors:
    """Raises ArenaError U3003 when the reply is not `count` vectors of one length, finite and not zero."""
    try:
        rows = sorted(msgspec.json.decode(content, type=_EmbeddingReply).data, key=lambda row: row.index)
        vectors = np.array([row.embedding for row in rows], dtype=np.float64)
    except (*UNREADABLE_JSON, ValueError) as error:
        raise ArenaError("U3003", f"{type(error).__name__}: {error}"[:_DETAIL_CHARS]) from error
    if [row.index for row in rows] != list(range(count)) or vectors.ndim != 2 or not vectors.shape[1]:
        raise ArenaError("U3003", f"{len(rows)} vectors for {count} texts")
    if not np.isfinite(vectors).all() or not np.linalg.norm(vectors, axis=1).all():
        raise ArenaError("U3003", "a vector is zero or not finite")
    unit: Vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit
