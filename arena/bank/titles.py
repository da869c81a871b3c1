"""Embeddings: unit vectors of texts from any OpenAI-compatible `/v1/embeddings` endpoint.

One float32 row per text, in order, of length 1, whatever order the endpoint answers in; faults that pass are
tried again with growing pauses, and what is left is an upstream failure with a code. It runs when a title release is
built, never in a validator.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from foundation.backoff import Backoff, retried
from foundation.canonical import UNREADABLE_JSON
from foundation.codes import BAD_REQUEST, NO_ENDPOINT
from foundation.durable_files import coded, replacing
from foundation.errors import ArenaError
from foundation.long_work import PhaseProgress
from harness.inference.client import SdkUpstream
from problems.model import Problem, Product
from problems.suites import accept_lexically
from problems.title_index import TitleIndex
from problems.titles import AcceptedTitles

if TYPE_CHECKING:
    import httpx2
    from openai import OpenAI

Vectors = npt.NDArray[np.float32]  # one row per text

_DETAIL_CHARS = 200
_VECTOR_BYTES = 1 << 20  # of one text's vector as JSON
_BATCH, _ATTEMPTS, _TIMEOUT_MS = 64, 4, 60_000  # texts of one request, its tries, and how long each may take
_PAUSES = Backoff(first_ms=500, most_ms=60_000)


class _EmbeddingRow(msgspec.Struct):
    index: int
    embedding: list[float]


class _EmbeddingReply(msgspec.Struct):
    data: list[_EmbeddingRow]


class EmbeddingsEndpoint:
    """Turns texts into unit vectors, at `base_url` (with its version path, e.g. `https://host/v1`)."""

    def __init__(self, base_url: str, model: str, *, api_key: str = "") -> None:
        self.name = model  # a release carries it, and cached vectors are kept under it
        self._client = SdkUpstream("titles", base_url, api_key, _TIMEOUT_MS)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row of length 1 per text. Raises ArenaError U3001 (refused), U3002, U3003 (unreadable) or U3004."""
        parts = [self._request(texts[start : start + _BATCH]) for start in range(0, len(texts), _BATCH)]
        if len({part.shape[1] for part in parts}) > 1:
            raise ArenaError("U3003", f"{self.name} changes the length of its vectors")
        return np.concatenate(parts) if parts else np.empty((0, 0), dtype=np.float32)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _request(self, texts: Sequence[str]) -> Vectors:
        def ask(sdk: OpenAI) -> httpx2.Response:
            api = sdk.embeddings.with_raw_response
            return api.create(model=self.name, input=list(texts), encoding_format="float").http_response

        def once() -> Vectors:
            return _unit_rows(self._client.ask(ask, bytes_max=len(texts) * _VECTOR_BYTES), len(texts))

        try:
            return retried(once, _ATTEMPTS, _pause_ms, time.sleep)
        except ArenaError as error:
            if error.failure.code != BAD_REQUEST:
                raise
            raise ArenaError(NO_ENDPOINT, error.failure.detail) from error


def _pause_ms(error: ArenaError, failures: int) -> int | None:
    is_passing = error.entry.is_retryable and error.failure.code != NO_ENDPOINT
    return _PAUSES.pause_ms(failures) if is_passing else None


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


THRESHOLD_E4 = 7_000
MARGIN_E4 = 100  # a pair nearer to the threshold is an uncertain one
_PIECE = 2_048  # catalogue titles a file of vectors
_REWARDS_AT_ONCE = 1_024


class ReleaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a release was made of, and how firm its verdicts are."""

    name: str
    reward_titles: int
    products: int
    pairs_accepted: int
    accepted_alone: int  # reward titles that a single product passes
    accepted_most: int  # products that pass one title
    uncertain: int  # pairs less than 0.01 away from the threshold, on either side


def _kept_vectors(folder: Path, texts: Sequence[str], embedder: EmbeddingsEndpoint) -> Vectors:
    """The vectors of a piece, from its file, which is named by embedder and texts, or else from the embedder; an
    unreadable file is made again. Raises ArenaError V2064, U3001 to U3004."""
    digest = hashlib.sha256("\0".join((embedder.name, *texts)).encode(errors="surrogatepass")).hexdigest()
    path = folder / f"{digest}.npy"
    with contextlib.suppress(OSError, ValueError, EOFError):
        kept: Vectors = np.load(path, allow_pickle=False)
        if kept.ndim == 2 and len(kept) == len(texts) and kept.dtype == np.float32:
            return kept
    made = embedder.embed(texts)
    with coded(path):
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as stream:
            np.save(stream, made, allow_pickle=False)
    return made


def build_release(
    problems: Iterable[Problem],
    products: Iterable[Product],
    embedder: EmbeddingsEndpoint,
    folder: Path,
    *,
    name: str,
    on_progress: PhaseProgress = lambda done, total: None,
) -> tuple[AcceptedTitles, ReleaseReport]:
    """The release of these problems' titles over a catalogue, and its report.

    `name` is what outcomes carry; `on_progress` gets catalogue titles done, and all of them. Vectors are kept in
    `folder`: repeat the call after an interruption, and finished pieces are not embedded again. Raises ArenaError U3001
    to U3004 when the endpoint fails, V2064 when the folder can't be written, P4001 for a name without the embedder's in
    it.
    """
    if embedder.name not in name:
        raise ArenaError("P4001", f"{name!r} does not name its model {embedder.name!r}")
    accepted: dict[str, set[str]] = {}  # an answer passes its own title
    for problem in problems:
        for item in problem.rewards:
            for title in item.title:
                accepted.setdefault(title, set()).add(item.product_id)
    rewards = sorted(accepted)
    ids_of: dict[str, list[str]] = {}
    for product in products:
        ids_of.setdefault(product.title, []).append(product.product_id)
    titles = sorted(ids_of)
    reward_vectors = [
        _kept_vectors(folder, rewards[start : start + _PIECE], embedder) for start in range(0, len(rewards), _PIECE)
    ]
    low, threshold, high = (
        np.float32(edge) / np.float32(10_000)
        for edge in (THRESHOLD_E4 - MARGIN_E4, THRESHOLD_E4, THRESHOLD_E4 + MARGIN_E4)
    )
    uncertain = 0
    for start in range(0, len(titles), _PIECE):
        piece = titles[start : start + _PIECE]
        for first, cosines in _cosines(reward_vectors, _kept_vectors(folder, piece, embedder)):
            for row, column in np.argwhere(cosines >= low):
                ids, cosine = ids_of[piece[int(column)]], cosines[row, column]
                uncertain += len(ids) if cosine < high else 0
                if cosine >= threshold:
                    accepted[rewards[first + int(row)]].update(ids)
        on_progress(start + len(piece), len(titles))
    release = AcceptedTitles(name=name, accepted={reward: frozenset(ids) for reward, ids in accepted.items()})
    return release, _report(release, sum(map(len, ids_of.values())), uncertain)


def build_lexical(
    problems: Iterable[Problem], index: TitleIndex, catalogue: str
) -> tuple[AcceptedTitles, ReleaseReport]:
    """The release of `lexical/1` over an index, named `lexical/1@<catalogue>`, and its report; similarities are shares
    of words."""
    release = accept_lexically(problems, index, catalogue)
    uncertain = 0
    for reward in release.accepted:
        _, shared, union = index.near(reward, THRESHOLD_E4 - MARGIN_E4)
        uncertain += int(np.count_nonzero(10_000 * shared < (THRESHOLD_E4 + MARGIN_E4) * union))
    return release, _report(release, len(index.products), uncertain)


def _cosines(rewards: Iterable[Vectors], vectors: Vectors) -> Iterable[tuple[int, npt.NDArray[np.float32]]]:
    """(number of the first reward title, cosines of shape (reward titles, catalogue titles)), block by block.

    Raises ArenaError U3003 when the two sides have vectors of different lengths.
    """
    first = 0
    for piece in rewards:
        if piece.shape[1] != vectors.shape[1]:
            raise ArenaError("U3003", f"vectors have {piece.shape[1]} and {vectors.shape[1]} dimensions")
        for start in range(0, len(piece), _REWARDS_AT_ONCE):
            yield first + start, piece[start : start + _REWARDS_AT_ONCE] @ vectors.T
        first += len(piece)


def _report(release: AcceptedTitles, products: int, uncertain: int) -> ReleaseReport:
    sizes = [len(ids) for ids in release.accepted.values()]
    return ReleaseReport(
        name=release.name,
        reward_titles=len(sizes),
        products=products,
        pairs_accepted=sum(sizes),
        accepted_alone=sum(size == 1 for size in sizes),
        accepted_most=max(sizes, default=0),
        uncertain=uncertain,
    )
