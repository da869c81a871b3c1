"""Title releases: per reward title, the ids of the products whose title passes, built once and shipped with a bank.

The release is a pure function of reward titles, catalogue and vectors; building it is resumable, since the
vectors of every finished piece of the catalogue stay in a folder and are used again, by the next release too. Cosine at
least 0.7 passes, as in the reference; an answer always passes its own title. Beside the release stands a report of how
pairs lie around the threshold: what would change if the model's last digits did. `build_lexical` does the same for
`lexical/1`, in integers. A release names its answers: that of a suite is public as the suite is, that of a bank stays
with the bank, and each batch takes its own part inside (`problems.scoring.title_matching.cut_titles`). Nothing here
runs in a validator.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from arena.bank.embeddings import Embedder, Vectors
from foundation.durable_files import replacing
from foundation.errors import ArenaError
from foundation.progress import PhaseProgress
from problems.model import Problem
from problems.product import Product
from problems.scoring.title_index import TitleIndex
from problems.scoring.title_matching import AcceptedTitles
from problems.suites.shipped import accept_lexically

THRESHOLD_E4 = 7_000
NEAR_FROM_E4, NEAR_TO_E4, NEAR_STEP_E4 = 6_000, 8_000, 100
_PIECE = 2_048  # catalogue titles a file of vectors
_REWARDS_AT_ONCE = 1_024


class NearThreshold(msgspec.Struct, frozen=True, kw_only=True):
    """How many (reward title, product) pairs have a similarity in [`from_e4`, `from_e4` + 100)."""

    from_e4: int
    pairs: int


class ReleaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a release was made of, and how firm its verdicts are."""

    name: str
    threshold_e4: int
    reward_titles: int
    products: int
    pairs_accepted: int
    accepted_alone: int  # reward titles that a single product passes
    accepted_most: int  # products that pass one title
    near: tuple[NearThreshold, ...]  # from 0.60 to 0.80

    @property
    def within_a_hundredth(self) -> int:
        """Pairs less than 0.01 away from the threshold, on either side: the verdicts that are the least certain."""
        edges = (self.threshold_e4 - NEAR_STEP_E4, self.threshold_e4)
        return sum(near.pairs for near in self.near if near.from_e4 in edges)


class TitleRelease(msgspec.Struct, frozen=True, kw_only=True):
    """The release and its report. `problems.scoring.title_matching.encode_accepted` gives its bytes."""

    titles: AcceptedTitles
    report: ReleaseReport


class VectorFolder:
    """Vectors of finished pieces, one file each, named by embedder and texts. An unreadable file is made again."""

    def __init__(self, folder: Path) -> None:
        """Raises ArenaError V2064 when the folder can't be made."""
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArenaError("V2064", f"{folder}: {error.strerror or error}") from error

    def vectors(self, texts: Sequence[str], embedder: Embedder) -> Vectors:
        """The vectors of a piece, from its file or else from the embedder. Raises ArenaError V2064, U3001 to U3004."""
        digest = hashlib.sha256("\0".join((embedder.name, *texts)).encode(errors="surrogatepass")).hexdigest()
        path = self._folder / f"{digest}.npy"
        with contextlib.suppress(OSError, ValueError, EOFError):
            kept: Vectors = np.load(path, allow_pickle=False)
            if kept.ndim == 2 and len(kept) == len(texts) and kept.dtype == np.float32:
                return kept
        made = embedder.embed(texts)
        try:
            with replacing(path) as stream:
                np.save(stream, made, allow_pickle=False)
        except OSError as error:
            raise ArenaError("V2064", f"{path}: {error.strerror or error}") from error
        return made


def build_release(
    problems: Iterable[Problem],
    products: Iterable[Product],
    embedder: Embedder,
    folder: VectorFolder,
    *,
    name: str,
    on_progress: PhaseProgress = lambda done, total: None,
) -> TitleRelease:
    """The release of these problems' titles over a catalogue.

    `name` is what outcomes carry; `on_progress` is told catalogue titles done, and all of them. Repeat the call after
    an interruption: finished pieces are not embedded again. Raises ArenaError U3001 to U3004 when the endpoint fails,
    V2064 when the folder can't be written, P4012 for a name without the embedder's in it.
    """
    if embedder.name not in name:
        raise ArenaError("P4012", f"{name!r} does not name its model {embedder.name!r}")
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
        folder.vectors(rewards[start : start + _PIECE], embedder) for start in range(0, len(rewards), _PIECE)
    ]
    near = np.zeros((NEAR_TO_E4 - NEAR_FROM_E4) // NEAR_STEP_E4, dtype=np.int64)
    for start in range(0, len(titles), _PIECE):
        piece = titles[start : start + _PIECE]
        vectors = folder.vectors(piece, embedder)
        listings = np.array([len(ids_of[title]) for title in piece], dtype=np.int64)
        for first, cosines in _cosines(reward_vectors, vectors):
            near += _near(cosines, listings)
            for row, column in np.argwhere(cosines >= np.float32(THRESHOLD_E4) / np.float32(10_000)):
                accepted[rewards[first + int(row)]].update(ids_of[piece[int(column)]])
        on_progress(start + len(piece), len(titles))
    release = AcceptedTitles(name=name, accepted={reward: frozenset(ids) for reward, ids in accepted.items()})
    return TitleRelease(titles=release, report=_report(release, sum(map(len, ids_of.values())), near.tolist()))


def build_lexical(problems: Iterable[Problem], index: TitleIndex, catalogue: str) -> TitleRelease:
    """The release of `lexical/1` over an index, named `lexical/1@<catalogue>`; similarities are shares of words."""
    release = accept_lexically(problems, index, catalogue)
    near = [0] * ((NEAR_TO_E4 - NEAR_FROM_E4) // NEAR_STEP_E4)
    for reward in release.accepted:
        for other in index.likenesses(reward, NEAR_FROM_E4):
            place = (10_000 * other.shared // other.union - NEAR_FROM_E4) // NEAR_STEP_E4
            if place < len(near):
                near[place] += 1
    return TitleRelease(titles=release, report=_report(release, len(index.products), near))


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


def _near(cosines: npt.NDArray[np.float32], listings: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Pairs per step between 0.60 and 0.80; a title listed several times counts as often."""
    edges = np.arange(NEAR_FROM_E4, NEAR_TO_E4 + 1, NEAR_STEP_E4).astype(np.float32) / np.float32(10_000)
    rows, columns = np.nonzero((cosines >= edges[0]) & (cosines < edges[-1]))
    places = np.searchsorted(edges, cosines[rows, columns], side="right") - 1
    return np.bincount(places, weights=listings[columns], minlength=len(edges) - 1).astype(np.int64)


def _report(release: AcceptedTitles, products: int, near: Sequence[int]) -> ReleaseReport:
    sizes = [len(ids) for ids in release.accepted.values()]
    return ReleaseReport(
        name=release.name,
        threshold_e4=THRESHOLD_E4,
        reward_titles=len(sizes),
        products=products,
        pairs_accepted=sum(sizes),
        accepted_alone=sum(size == 1 for size in sizes),
        accepted_most=max(sizes, default=0),
        near=tuple(
            NearThreshold(from_e4=NEAR_FROM_E4 + place * NEAR_STEP_E4, pairs=pairs) for place, pairs in enumerate(near)
        ),
    )
