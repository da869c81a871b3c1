"""Whose code it is: a file against the agents committed before it, as a pure function of sketches and commitments.

The owner of code is whoever committed it first on chain. What the published agents and the revealed winners contain
belongs to nobody, nor does what three sources have in common: an agent that is like an earlier one counts as that one's
owner's, so copies make nothing common. An owner's own versions are no matter, and who copies them gets no hold on later
ones. Equal code is rejected, a near copy is held, and neither names the other agent before both are public. Less than a
stated remnant of phrases claims nothing, so nobody can own an idiom. Texts have owners by the same rules, apart from
the code: the loop around a prompt is an idiom, and the prompt is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from arena.gate.report import Finding, finding
from arena.gate.similarity.sketch import Phrases, Sketch
from arena.policy import GateRules

COMMON_OWNERS = 3
TEXT_PHRASES = 100  # phrases of texts from which texts count as their committer's
COPIED_TEXT_PHRASES = 20  # and which equal code has to share to be a copy, however little it is: some thirty words
_SAMPLED = np.uint64(8)  # one phrase in so many is compared first
_SAMPLE_MIN = 16  # a smaller sample says nothing, so the agent is compared exactly
_NOTHING: Phrases = np.zeros(0, dtype=np.uint64)


class Author(msgspec.Struct, frozen=True, kw_only=True):
    """Who committed an agent version, and its place among all commitments on chain.

    `commitment_order` tells commitments of one block apart (0 where the chain gives no order); equal places are told
    apart by `agent_version_id`, so every validator sees the same order. `is_public`: everybody may read the source now;
    it decides what a finding may say and never whether there is one.
    """

    agent_version_id: str
    miner_hotkey: str
    commitment_block: int
    commitment_order: int = 0
    miner_coldkey: str = ""
    is_public: bool = False

    @property
    def place(self) -> tuple[int, int, str]:
        """Sorts commitments: first come, first owner."""
        return (self.commitment_block, self.commitment_order, self.agent_version_id)

    @property
    def owner(self) -> str:
        """Who owns the code: the coldkey where it is known."""
        return self.miner_coldkey or self.miner_hotkey

    def is_owner_of(self, other: Author) -> bool:
        """True for the versions of one hotkey or one coldkey."""
        return self.miner_hotkey == other.miner_hotkey or self.owner == other.owner


class Neighbour(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Another agent version. Give every one that was not rejected, in any order: later ones and own ones are left out
    here. `is_winner`: a revealed winner, on whose code all may build.
    """

    author: Author
    sketch: Sketch
    is_winner: bool = False


def similarity_findings(
    sketch: Sketch,
    author: Author | None,
    neighbours: Sequence[Neighbour],
    published: Phrases,
    published_texts: Phrases,
    rules: GateRules,
) -> list[Finding]:
    """At most one finding: on the first committed agent that has equal code, else on the first that is a near copy by
    its code, else by its texts.

    Without an author (at a miner's) every neighbour counts as committed earlier by somebody else. What the author
    committed before another did is the author's: who copies an agent gets no hold on its next version.
    """
    has_code = len(_without(sketch.phrases, published)) >= max(1, rules.remnant_phrases)
    texts = _without(sketch.texts, published_texts)
    if has_code or len(texts) >= COPIED_TEXT_PHRASES:
        _, own, others = _earlier(author, neighbours)
        for other in others:
            if other.sketch.code_sha256 != sketch.code_sha256:
                continue
            shared = np.intersect1d(texts, other.sketch.texts, assume_unique=True)
            if has_code or len(shared) >= COPIED_TEXT_PHRASES:
                if any(mine.sketch.code_sha256 == sketch.code_sha256 for mine in _before(own, other)):
                    break  # the author's own code, which the other handed in again
                return [finding("copy", 0, _named("equal code", author, other))]
    found = _near_copy(sketch.phrases, "", author, neighbours, published, rules) if has_code else []
    if found or len(texts) < TEXT_PHRASES:
        return found
    by_texts = [replace(other, sketch=replace(other.sketch, phrases=other.sketch.texts)) for other in neighbours]
    of_texts = replace(rules, remnant_phrases=TEXT_PHRASES)
    return _near_copy(sketch.texts, " of the texts", author, by_texts, published_texts, of_texts)


def _near_copy(
    phrases: Phrases,
    what: str,
    author: Author | None,
    neighbours: Sequence[Neighbour],
    published: Phrases,
    rules: GateRules,
) -> list[Finding]:
    """A finding on the first committed agent whose phrases hold most of these, or the other way round."""
    earlier, own, others = _earlier(author, neighbours)
    minimum = max(1, rules.remnant_phrases)
    winners = [other.sketch.phrases for other in neighbours if other.is_winner]
    free = np.unique(np.concatenate([published, *winners]))
    free = np.unique(np.concatenate([free, _common(earlier, free, rules)]))
    known, held = free, 0
    for other in others:
        before = _before(own, other)
        if len(before) > held:
            known, held = np.unique(np.concatenate([free, *(mine.sketch.phrases for mine in before)])), len(before)
        ours, theirs = _without(phrases, known), other.sketch.phrases
        if (len(ours) < minimum and len(theirs) < minimum) or not _is_candidate(ours, theirs, known, rules):
            continue
        share = shared_e4(ours, _without(theirs, known), minimum)
        if share >= max(1, rules.similarity_review_e4):
            return [finding("similarity", 0, _named(f"{share / 100:.0f} %{what} shared", author, other))]
    return []


def shared_e4(ours: Phrases, theirs: Phrases, minimum: int) -> int:
    """The greater of the two containments, in ten-thousandths; a side with fewer than `minimum` phrases has none."""
    common = len(np.intersect1d(ours, theirs, assume_unique=True))
    return max((common * 10_000 // len(side) for side in (ours, theirs) if len(side) >= minimum), default=0)


def inputs_hash(inputs_sha256: str, author: Author | None, neighbours: Iterable[Neighbour]) -> str:
    """The hash of everything a verdict follows from beside source and rules. Who may read what is no part of it."""
    rows = [] if author is None else [_row(author, None)]
    rows += sorted(_row(other.author, other) for other in neighbours)
    if not rows:
        return inputs_sha256
    text = "\n".join(["agent-arena/gate-neighbours/3", inputs_sha256, *rows])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _row(author: Author, other: Neighbour | None) -> str:
    sketched = ""
    if other is not None:
        phrases, texts = (
            hashlib.sha256(np.ascontiguousarray(part, dtype="<u8").tobytes()).hexdigest()
            for part in (other.sketch.phrases, other.sketch.texts)
        )
        sketched = f"{other.is_winner} {other.sketch.code_sha256} {phrases} {texts}"
    place = f"{author.commitment_block} {author.commitment_order}"
    return f"{author.agent_version_id} {author.miner_hotkey} {author.miner_coldkey} {place} {sketched}"


def _earlier(
    author: Author | None, neighbours: Sequence[Neighbour]
) -> tuple[list[Neighbour], list[Neighbour], list[Neighbour]]:
    """The neighbours committed before the author's file, in order: all, the author's own, and the others'."""
    earlier = sorted(neighbours, key=lambda other: other.author.place)
    if author is None:
        return earlier, [], earlier
    earlier = [other for other in earlier if other.author.place < author.place]
    own = [other for other in earlier if author.is_owner_of(other.author)]
    return earlier, own, [other for other in earlier if not author.is_owner_of(other.author)]


def _before(own: Sequence[Neighbour], other: Neighbour) -> list[Neighbour]:
    return [mine for mine in own if mine.author.place < other.author.place]


def _common(earlier: Sequence[Neighbour], free: Phrases, rules: GateRules) -> Phrases:
    """Phrases of at least `COMMON_OWNERS` different sources of code."""
    of_source: dict[str, list[Phrases]] = {}
    for other, source in zip(earlier, sources_of(earlier, free, rules), strict=True):
        of_source.setdefault(source, []).append(other.sketch.phrases)
    if len(of_source) < COMMON_OWNERS:
        return _NOTHING
    once = [np.unique(np.concatenate(parts)) for parts in of_source.values()]
    phrases, counts = np.unique(np.concatenate(once), return_counts=True)
    return np.asarray(phrases[counts >= COMMON_OWNERS])


def sources_of(ordered: Sequence[Neighbour], free: Phrases, rules: GateRules) -> list[str]:
    """Whose code each agent is, in the order of commitments: its owner's, or that of the first earlier agent of another
    owner which it is like, by the measure that holds an agent. So copies never make their own source common.

    Counts the shared phrases of all pairs at once; the cost is that of the pairs that share something.
    """
    minimum, least = max(1, rules.remnant_phrases), max(1, rules.similarity_review_e4)
    left = [_without(other.sketch.phrases, free) for other in ordered]
    sizes = np.array([len(phrases) for phrases in left], dtype=np.int64)
    agents = np.repeat(np.arange(len(ordered)), sizes)
    _, numbers = np.unique(np.concatenate([_NOTHING, *left]), return_inverse=True)
    by_phrase = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[by_phrase], np.arange(int(numbers.max(initial=-1)) + 2))
    holders, ends = agents[by_phrase], np.cumsum(sizes)
    found: list[str] = []
    for place, other in enumerate(ordered):
        source = other.author.owner
        mine = numbers[ends[place] - sizes[place] : ends[place]]
        counts = starts[mine + 1] - starts[mine]  # the agents that hold each phrase, one after the other
        held = np.arange(int(counts.sum())) + np.repeat(starts[mine] - (np.cumsum(counts) - counts), counts)
        shared = np.bincount(holders[held], minlength=len(ordered))[:place]
        is_near = shared * 10_000 >= np.minimum(sizes[place], sizes[:place]) * least
        for rival in map(int, np.flatnonzero(is_near)):
            sides = (int(side) for side in (sizes[place], sizes[rival]) if side >= minimum)
            share = max((int(shared[rival]) * 10_000 // side for side in sides), default=0)
            if share >= least and not other.author.is_owner_of(ordered[rival].author):
                source = found[rival]
                break
        found.append(source)
    return found


def _is_candidate(ours: Phrases, theirs: Phrases, free: Phrases, rules: GateRules) -> bool:
    """MinHash recall by the phrases with the smallest remainders: unlike an estimate of Jaccard's index it also finds a
    copy inside a file many times its size. A pair is left out when its samples share less than half of what counts."""
    sample, other = (side[side % _SAMPLED == 0] for side in (ours, _without(theirs[theirs % _SAMPLED == 0], free)))
    smaller = min(len(sample), len(other))
    if smaller < _SAMPLE_MIN:
        return True
    return len(np.intersect1d(sample, other, assume_unique=True)) * 20_000 >= smaller * rules.similarity_review_e4


def _without(phrases: Phrases, free: Phrases) -> Phrases:
    return np.setdiff1d(phrases, free, assume_unique=True)


def _named(what: str, author: Author | None, other: Neighbour) -> str:
    """What a finding may say: nothing about an agent under embargo, and nothing to its reader about his own."""
    if author is None or not (author.is_public and other.author.is_public):
        return ""
    return f"{what} with agent {other.author.agent_version_id} of {other.author.miner_hotkey}"
