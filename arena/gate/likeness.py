"""Whose code it is: sketches of programs, and a file held against the agents that were committed before it.

A sketch keeps, function by function, what a writer cannot rename: attributes, builtins, keywords and texts, in the
order of the source. Two files are compared by runs of three such tokens over the tokens that both have, so wrappers,
names, order of functions and padding change little. Texts are compared apart, by runs of eight words: a prompt can be
the whole of an agent, whatever loop it stands in.

The owner of code is the hotkey that committed it first. What the published agents and the revealed winners contain is
taken out before anything is compared. Under policies with classes (`class_heads`) likeness decides who is paid and in
which order agents get seats, and no agent is refused for it. Under others what three sources share is taken out too (an
agent that is like an earlier one counts as that one's source, so copies make nothing common), equal code is rejected, a
near copy is held, and neither names the other agent before both are public. Pure.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from arena.gate.knowledge import GateKnowledge
from arena.gate.rules import Finding, GateRules, finding
from arena.gate.scopes import BUILTINS, Tree
from foundation.codes import FILE_UNUSABLE
from foundation.durable_files import coded

Hashes = npt.NDArray[np.uint64]

RUN_TOKENS, RUN_WORDS = 3, 8
COMMON_OWNERS = 3
TEXT_PHRASES = 100  # runs of words from which texts count as their committer's: about 110 words
COPIED_TEXT_PHRASES = 20  # and which equal code has to share to be a copy, however little it is: some thirty words
_TEXT_WORDS_MIN = 4  # of a literal whose words count: shorter ones are keys and labels
_REMNANT_E4 = 4_000  # of the smaller file must lie in what is shared, or the share is lowered in proportion
_OFTEN = 3  # times as frequent in one file as in the other: a token of some wrapper
_UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff"  # Thai, Lao, Japanese, Chinese: a word is one character
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_BLANKS = {byte: " " for byte in range(128) if not chr(byte).isalnum()}  # what stands between words in ASCII
_BASE = np.uint64(0xD6E8FEB86659FD93)
_NOTHING: Hashes = np.zeros(0, dtype=np.uint64)
_GAP = np.uint64(0)  # between two functions
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Sketch(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """`tokens` are those of the code, function after function; `texts` the sorted runs of words of its literals."""

    code_sha256: str
    tokens: Hashes
    texts: Hashes

    @functools.cached_property
    def phrases(self) -> Hashes:
        """The sorted, distinct runs of tokens."""
        return runs(self.tokens)


class Author(msgspec.Struct, frozen=True, kw_only=True):
    """Who committed an agent version, and its place among all commitments on chain.

    `commitment_order` separates commitments of one block (0 where the chain gives no order); equal places are ordered
    by `agent_version_id`, so every validator sees the same order. `is_public`: everybody may read the source now;
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
    here. `revealed_block`: where a winner's source opened, on whose code all may build from then on; 0: not by now.
    """

    author: Author
    sketch: Sketch
    revealed_block: int = 0


# -- sketches
def make_sketch(source: str | bytes) -> Sketch:
    """The sketch of a source. Raises ValueError when it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a doubtful escape sequence is the miner's business
            return sketch_of(Tree(ast.parse(source)))
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"not a parsable source: {error}") from error


def encode_sketch(sketch: Sketch) -> bytes:
    """A sketch as it is published: hashes alone, in MessagePack."""
    return msgspec.msgpack.encode(sketch, enc_hook=plain_array)


def decode_sketch(content: bytes) -> Sketch:
    """A published sketch. Raises ArenaError V2105 for what is none."""
    with coded("a published sketch", FILE_UNUSABLE):
        return msgspec.msgpack.decode(content, type=Sketch, dec_hook=read_array)


def plain_array(values: Hashes) -> bytes:
    """Little-endian 64-bit values, for an encoder."""
    return np.ascontiguousarray(values, dtype="<u8").tobytes()


def read_array(_: type, data: bytes | memoryview | Hashes) -> Hashes:
    """The same values again. Raises ValueError for other bytes."""
    return np.frombuffer(data, dtype="<u8")


def sketch_of(tree: Tree) -> Sketch:
    """The sketch of a syntax tree."""
    own = {node.name for node in tree.nodes if isinstance(node, (*_FUNCTIONS, ast.ClassDef))}
    tokens: list[int] = []
    for node in tree.nodes:
        if isinstance(node, (*_FUNCTIONS, ast.Module)):
            tokens += map(_hash, _tokens(tree, node, BUILTINS - own))
            tokens.append(0)
    literals = (node.value for node in tree.nodes if isinstance(node, ast.Constant))
    code = "".join(sorted(_renamed_sha256(tree, statement) for statement in tree.module.body))
    return Sketch(
        code_sha256=hashlib.sha256(code.encode()).hexdigest(),
        tokens=np.array(tokens, dtype=np.uint64),
        texts=text_phrases(literals),
    )


def _tokens(tree: Tree, function: ast.AST, known: frozenset[str]) -> list[str]:
    """What of a function cannot be renamed, without the functions in it."""
    found: list[str] = []
    waiting: list[ast.AST | str] = [*reversed(tree.children[function])]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):  # what comes after the parts of its node
            found.append(node)
        elif isinstance(node, ast.Name):
            if node.id in known:
                found.append(node.id)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and (words := node.value.lower().split(None, 40)):
                found.append(f"'{' '.join(words)[:40]}")
        elif isinstance(node, ast.Attribute):
            waiting += (f".{node.attr}", node.value)
        elif (parts := tree.children.get(node)) and not isinstance(node, _FUNCTIONS):
            if isinstance(node, ast.keyword) and node.arg:
                found.append(f"{node.arg}=")
            waiting += reversed(parts)
    return found


def _renamed_sha256(tree: Tree, statement: ast.stmt) -> str:
    """The hash of a statement in which every name of its own is a number, by first use; docstrings are left out."""
    numbers: dict[str, int] = {}
    parts: list[str] = []
    nodes: list[ast.AST] = [statement]
    for node in nodes:  # it grows while it is read
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        nodes += tree.children.get(node, ())
        parts.append(type(node).__name__)
        for field in node._fields:
            value = getattr(node, field)
            if isinstance(value, (ast.AST, list)) or field in ("kind", "type_comment"):
                continue
            if field in ("id", "arg", "name") and isinstance(value, str) and value not in BUILTINS:
                parts.append(str(numbers.setdefault(value, len(numbers))))
            else:
                parts.append(" ".join(value.lower().split()) if isinstance(value, str) else repr(value))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def text_phrases(literals: Iterable[object]) -> Hashes:
    """The sorted runs of words of all texts as one, so that it makes no difference into which literals one is cut."""
    words: list[int] = []
    for held in literals:
        text = held.decode("utf-8", "replace") if isinstance(held, bytes) else held
        if isinstance(text, str):
            text = text.casefold()
            found = text.translate(_BLANKS).split() if text.isascii() else _WORD.findall(text)
            words += map(_hash, found) if len(found) >= _TEXT_WORDS_MIN else ()
    return runs(np.array(words, dtype=np.uint64), RUN_WORDS)


def runs(tokens: Hashes, length: int = RUN_TOKENS) -> Hashes:
    """The hashes of all runs of `length` tokens that lie within one function, sorted and distinct."""
    hashes = _run_hashes(tokens, length)
    return distinct(hashes[hashes != _GAP])


def _run_hashes(tokens: Hashes, length: int) -> Hashes:
    """The hash of the run that starts at each place; 0 for one that reaches over a gap."""
    count = len(tokens) - length + 1
    if count < 1:
        return _NOTHING
    hashes, is_whole = np.zeros(count, dtype=np.uint64), np.ones(count, dtype=np.bool_)
    for offset in range(length):
        part = tokens[offset : offset + count]
        hashes = hashes * _BASE + part
        is_whole &= part != _GAP
    return np.asarray(np.where(is_whole, hashes, _GAP))


@functools.lru_cache(maxsize=65_536)
def _hash(token: str) -> int:
    return int.from_bytes(hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") | 1


# -- comparing
def shared_e4(ours: Hashes, theirs: Hashes) -> int:
    """How much of the smaller of two programs, as tokens, stands in the other, in ten-thousandths.

    Only tokens that both have count, and none that one has out of all measure to the other: a wrapper around every
    value adds the same few tokens everywhere. What is then shared must be much of the smaller file.
    """
    (kinds, counts), (other_kinds, other_counts) = (
        np.unique(side[side != _GAP], return_counts=True) for side in (ours, theirs)
    )
    both, here, there = np.intersect1d(kinds, other_kinds, assume_unique=True, return_indices=True)
    if not len(both):
        return 0
    one, other = counts[here] / counts.sum(), other_counts[there] / other_counts.sum()
    kept = both[np.maximum(one, other) <= _OFTEN * np.minimum(one, other) + 0.01]
    kept = np.append(kept, _GAP)
    left, right = (runs(side[np.isin(side, kept)]) for side in (ours, theirs))
    common = len(np.intersect1d(left, right, assume_unique=True))
    share = common * 10_000 // max(1, min(len(left), len(right)))
    whole = min(len(runs(ours)), len(runs(theirs)))
    return share * min(_REMNANT_E4 * whole, common * 10_000) // max(1, _REMNANT_E4 * whole)


def contained_e4(ours: Hashes, theirs: Hashes) -> int:
    """How much of the smaller of two sets stands in the other, in ten-thousandths."""
    smaller = min(len(ours), len(theirs))
    return len(np.intersect1d(ours, theirs, assume_unique=True)) * 10_000 // max(1, smaller)


def similarity_findings(
    sketch: Sketch, author: Author | None, neighbours: Sequence[Neighbour], knowledge: GateKnowledge, rules: GateRules
) -> list[Finding]:
    """At most one finding: on the first committed agent that has equal code, else on the first that is a near copy by
    its code, else by its texts.

    Without an author (at a miner's) every neighbour counts as committed earlier by somebody else. What the author
    committed before another did is the author's: who copies an agent gets no hold on its next version.
    """
    earlier, own, others = _earlier(author, neighbours)
    public, public_texts = (read_array(Hashes, one) for one in (knowledge.baseline, knowledge.baseline_texts))
    has_code = len(runs(_outside(sketch.tokens, public))) >= max(1, rules.remnant_phrases)
    texts = less(sketch.texts, public_texts)
    for other in others:
        if other.sketch.code_sha256 == sketch.code_sha256:
            is_enough = has_code or len(np.intersect1d(texts, other.sketch.texts)) >= COPIED_TEXT_PHRASES
            if is_enough and not any(each.sketch.code_sha256 == sketch.code_sha256 for each in _before(own, other)):
                return [finding("copy", 0, _named("equal code", author, other))]
    winners = [each.sketch for each in earlier if each.revealed_block]
    free = joined([public, *(each.phrases for each in winners)])
    free_texts = joined([public_texts, *(each.texts for each in winners)])
    near = _near_copy(_CODE, sketch, author, others, own, free, max(1, rules.remnant_phrases), rules)
    return near or _near_copy(_TEXTS, sketch, author, others, own, free_texts, TEXT_PHRASES, rules)


class _Kind(msgspec.Struct, frozen=True):
    """How sketches are compared by one of their parts."""

    part: str
    phrases: str  # the attribute that holds its phrases
    outside: Callable[[Hashes, Hashes], Hashes]  # what of a part is not free
    phrases_of: Callable[[Hashes], Hashes]
    likeness: Callable[[Hashes, Hashes], int]  # in ten-thousandths
    shared: str

    def share_e4(self, ours: Hashes, theirs: Hashes, minimum: int) -> int:
        """The likeness of two parts, 0 where fewer than `minimum` phrases are left of either."""
        is_enough = min(len(self.phrases_of(ours)), len(self.phrases_of(theirs))) >= minimum
        return self.likeness(ours, theirs) if is_enough else 0


def _near_copy(
    kind: _Kind,
    sketch: Sketch,
    author: Author | None,
    others: Sequence[Neighbour],
    own: Sequence[Neighbour],
    free: Hashes,
    minimum: int,
    rules: GateRules,
) -> list[Finding]:
    least = max(1, rules.similarity_review_e4)
    for other in others:
        mine = joined([free, *(getattr(each.sketch, kind.phrases) for each in _before(own, other))])
        ours, theirs = (kind.outside(getattr(each, kind.part), mine) for each in (sketch, other.sketch))
        if kind.share_e4(ours, theirs, minimum) < least:
            continue
        parts = [(each, kind.outside(getattr(each.sketch, kind.part), free)) for each in (*others, *own)]
        common = _common(kind, parts, np.intersect1d(kind.phrases_of(ours), kind.phrases_of(theirs)), least)
        share = kind.share_e4(kind.outside(ours, common), kind.outside(theirs, common), minimum)
        if share >= least:
            return [finding("similarity", 0, _named(f"{share // 100} % {kind.shared}", author, other))]
    return []


def _common(kind: _Kind, agents: Sequence[tuple[Neighbour, Hashes]], claimed: Hashes, least: int) -> Hashes:
    """Those of the claimed phrases that at least `COMMON_OWNERS` different sources have. An agent that is like an
    earlier one of another owner has that one's source."""
    holders: list[tuple[str, Hashes]] = []  # source, and what of it is compared
    of_source: dict[str, list[Hashes]] = {}
    for agent, held in sorted(agents, key=lambda each: each[0].author.place):
        shared = np.intersect1d(kind.phrases_of(held), claimed, assume_unique=True)
        if len(shared) * 10 < len(claimed):
            continue  # it makes next to nothing common
        found = (source for source, rival in holders if kind.likeness(held, rival) >= least)
        source = next(found, agent.author.owner)
        holders.append((source, held))
        of_source.setdefault(source, []).append(shared)
    phrases, counts = np.unique(np.concatenate([_NOTHING, *map(joined, of_source.values())]), return_counts=True)
    return np.asarray(phrases[counts >= COMMON_OWNERS])


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


def _outside(tokens: Hashes, free: Hashes) -> Hashes:
    """The tokens with a gap in place of every run that is free."""
    hashes = _run_hashes(tokens, RUN_TOKENS)
    is_free = np.isin(hashes, free) & (hashes != _GAP)
    covered = np.zeros(len(tokens), dtype=np.bool_)
    for offset in range(RUN_TOKENS if len(hashes) else 0):
        covered[offset : offset + len(hashes)] |= is_free
    return np.asarray(np.where(covered, _GAP, tokens))


def less(phrases: Hashes, free: Hashes) -> Hashes:
    """Sorted, distinct values without those that are free, sorted too."""
    if len(free) == 0:
        return phrases
    places = np.searchsorted(free, phrases)
    places[places == len(free)] = 0
    return np.asarray(phrases[free[places] != phrases])


_CODE = _Kind("tokens", "phrases", _outside, runs, shared_e4, "shared")
_TEXTS = _Kind("texts", "texts", less, np.asarray, contained_e4, "of the texts shared")


def joined(parts: Iterable[Hashes]) -> Hashes:
    """The sorted, distinct values of all parts."""
    return distinct(np.concatenate([_NOTHING, *parts]))


def distinct(values: Hashes) -> Hashes:
    """Sorted, each once. (`np.unique` imports masked arrays, 10 ms, and hashes what is then sorted.)"""
    values = np.sort(values)
    return np.asarray(values[np.append(np.ones_like(values[:1]), values[1:] != values[:-1]).astype(np.bool_)])


# -- classes
_OWN_E4 = 2_500  # of what a file has of its own must be the head's, so that a small head claims no large file


class _Part:
    """One kind of phrases of all files, a row each, in the order of commitments."""

    def __init__(self, rows: Sequence[Hashes], public: Hashes | memoryview, minimum: int) -> None:
        self._rows, self._public = rows, read_array(Hashes, public)
        self.minimum = minimum  # of phrases from which they have an owner
        values, holders = np.concatenate([_NOTHING, *rows]), np.repeat(np.arange(len(rows)), list(map(len, rows)))
        order = np.argsort(values, kind="stable")
        self._values, self._holders = values[order], holders[order]

    def left(self, row: int, others: Iterable[int]) -> Hashes:
        """A file's phrases without the public ones and those of other files."""
        return functools.reduce(less, (self._rows[other] for other in others), less(self._rows[row], self._public))

    def sharing(self, ours: Hashes, least: int) -> list[int]:
        """The rows that hold at least `least` of these phrases."""
        first, end = (np.searchsorted(self._values, ours, side) for side in ("left", "right"))
        before = np.cumsum(end - first) - (end - first)
        found = np.repeat(first - before, end - first) + np.arange(int((end - first).sum()))
        return [int(row) for row in np.flatnonzero(np.bincount(self._holders[found]) >= max(1, least))]


def class_heads(
    agents: Iterable[Neighbour],
    published: Hashes | memoryview,
    published_texts: Hashes | memoryview,
    rules: GateRules,
    before: Mapping[str, str] = {},
) -> dict[str, str]:
    """By agent version the one at the head of its class, "" for nobody's. Give every one that was not rejected.

    `before`: what this said of agents among these before which nothing has changed: no later one changes it.

    In the order of commitments a file joins the first head of another owner of which it holds enough (`class_e4`) of
    what is left after the public and the winners revealed by then. A head joins nothing, so there are no chains, and
    the share is the head's, so a large file that is first claims nobody. A file that joins none is a head where it has
    enough of its own, else of the class of the winner that it came from, and nobody's where it came from a template.
    """
    order = sorted(agents, key=lambda each: each.author.place)
    names = [each.author.agent_version_id for each in order]
    code = _Part([each.sketch.phrases for each in order], published, max(1, rules.remnant_phrases))
    parts = (code, _Part([each.sketch.texts for each in order], published_texts, TEXT_PHRASES))
    heads: list[str] = []
    for row, agent in enumerate(order):
        if names[row] in before:
            heads.append(before[names[row]])
            continue
        block = agent.author.commitment_block
        winners = [place for place, each in enumerate(order[:row]) if 0 < each.revealed_block <= block]
        own = [part.left(row, winners) for part in parts]
        near = (part.sharing(own[at], rules.class_e4 * part.minimum // 10_000) for at, part in enumerate(parts))
        rivals = [each for each in sorted(set().union(*near)) if each < row and heads[each] == names[each]]
        joins = next((each for each in rivals if _is_joined(order, parts, row, each, winners, rules.class_e4)), None)
        if joins is None and any(len(own[at]) >= part.minimum for at, part in enumerate(parts)):
            joins = row
        if joins is None:
            winner = _winner_of(parts, row, winners)
            heads.append("" if winner is None else heads[winner])
        else:
            heads.append(names[joins])
    return dict(zip(names, heads, strict=True))


def _is_joined(
    order: Sequence[Neighbour], parts: Iterable[_Part], row: int, head: int, winners: Sequence[int], class_e4: int
) -> bool:
    """Whether a file joins a head: one of another owner, of which it holds enough by code or by texts. What its owner
    committed before the head is left out: who copies an agent gets no claim to its next version."""
    author = order[row].author
    if author.is_owner_of(order[head].author):
        return False
    free = [*winners, *(place for place in range(head) if author.is_owner_of(order[place].author))]
    for part in parts:
        ours, theirs = part.left(row, free), part.left(head, free)
        shared = len(np.intersect1d(ours, theirs, assume_unique=True)) * 10_000
        if len(theirs) >= part.minimum and shared >= max(class_e4 * len(theirs), _OWN_E4 * len(ours)):
            return True
    return False


def _winner_of(parts: Sequence[_Part], row: int, winners: Iterable[int]) -> int | None:
    """The winner that most of a file's unpublished phrases come from, the first of equals; None where they are few."""

    def shared(winner: int) -> list[int]:
        return [len(part.left(row, ())) - len(part.left(row, (winner,))) for part in parts]

    enough = [each for each in winners if any(n >= part.minimum for n, part in zip(shared(each), parts, strict=True))]
    return max(enough, key=lambda winner: sum(shared(winner)), default=None)


def inputs_hash(inputs_sha256: str, author: Author | None, neighbours: Iterable[Neighbour]) -> str:
    """The hash of everything a verdict follows from beside source and rules, but for who may read what."""
    rows = [] if author is None else [_row(author, None)]
    rows += sorted(_row(other.author, other) for other in neighbours)
    if not rows:
        return inputs_sha256
    text = "\n".join(["agent-arena/gate-neighbours/1", inputs_sha256, *rows])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _row(author: Author, other: Neighbour | None) -> str:
    sketched = ""
    if other is not None:
        tokens, texts = (
            hashlib.sha256(np.ascontiguousarray(part, dtype="<u8").tobytes()).hexdigest()
            for part in (other.sketch.tokens, other.sketch.texts)
        )
        sketched = f"{other.revealed_block > 0} {other.sketch.code_sha256} {tokens} {texts}"
    place = f"{author.commitment_block} {author.commitment_order}"
    return f"{author.agent_version_id} {author.miner_hotkey} {author.miner_coldkey} {place} {sketched}"


def _named(what: str, author: Author | None, other: Neighbour) -> str:
    """What a finding may say: nothing about an agent under embargo, and nothing to its reader about his own."""
    if author is None or not (author.is_public and other.author.is_public):
        return ""
    return f"{what} with agent {other.author.agent_version_id} of {other.author.miner_hotkey}"
