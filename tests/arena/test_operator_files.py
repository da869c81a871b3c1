"""The operator's files between validators: everybody ends with the same bytes, whoever lies, dies or is late."""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from arena.chain.keys import keypair_signer, verify
from arena.exchange.operator_files import PIECE_BYTES, Operator, ReleaseStore, SharedFile
from arena.exchange.port import FileQuestion, Peer, Question
from arena.exchange.pull import ReleasePuller
from foundation.errors import ArenaError
from tests.arena.exchange_stand import HttpNet, LocalNet, LocalPeers, Node
from tests.arena.operator_stand import (
    HOUR_MS,
    NETUID,
    NOW_MS,
    OPERATOR,
    keep,
    make_folder,
    publish_folder,
    release_of,
    seal,
)
from tests.harness.catalogue_stand import code_of

STRANGER = keypair_signer("//Stranger")
SMALL = SharedFile(kind="policy", name="policy.json", sha256=hashlib.sha256(b"x").hexdigest(), size_bytes=1)


def puller(node: Node, peers, operator: Operator = OPERATOR) -> ReleasePuller:
    return ReleasePuller(peers, node.releases, operator, verify)


def held(store: ReleaseStore) -> dict[str, bytes]:
    """What a store has of its whole release, by name."""
    whole = store.whole()
    return {file.name: store.path_of(file).read_bytes() for file in whole.release.files} if whole else {}


def codes(turn) -> list[str]:
    return [complaint.failure.code for complaint in turn.complaints]


@pytest.fixture(params=[LocalNet, HttpNet], ids=["local", "http"])
async def net(request: pytest.FixtureRequest) -> AsyncIterator[LocalNet | HttpNet]:
    made = request.param()
    yield made
    await made.close()


class Counting(LocalPeers):
    """Counts the pieces asked for, and may stop answering."""

    pieces_left = 1_000

    async def ask(self, peer: Peer, question: Question) -> Any:
        if isinstance(question, FileQuestion):
            if not self.pieces_left:
                raise ArenaError("U3040", f"{peer.hotkey} broke off")
            self.pieces_left -= 1
        return await super().ask(peer, question)


async def test_a_killed_download_goes_on_behind_its_last_whole_piece(tmp_path: Path) -> None:
    permits: set[str] = set()
    owner, reader = Node(tmp_path, permits), Node(tmp_path, permits)
    content = random.Random(1).randbytes(2 * PIECE_BYTES + 77)
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "products.jsonl").write_bytes(content)
    file = keep(owner.releases, "catalogue", tmp_path / "index" / "products.jsonl")
    assert len(file.pieces) == 3
    peers, peer = Counting(reader.hotkey), Peer(hotkey=owner.hotkey, endpoint="local")
    peers.services = {owner.hotkey: owner.desk}
    peers.pieces_left = 2
    turn = await puller(reader, peers).turn([peer])
    assert (codes(turn), turn.lacking, reader.releases.whole()) == (["U3040"], 1, None)
    part = reader.folder / "operator" / "parts" / file.sha256
    with part.open("ab") as stream:  # what a kill in the middle of a write leaves
        stream.write(b"torn")
    reopened = ReleaseStore(reader.folder / "operator")
    peers.pieces_left = 1
    turn = await ReleasePuller(peers, reopened, OPERATOR, verify).turn([peer])
    assert (turn.is_whole, codes(turn), peers.pieces_left) == (True, [], 0)
    assert held(reopened) == {"products.jsonl": content}
    assert not list(part.parent.iterdir())


async def test_a_file_that_was_damaged_here_is_fetched_again(tmp_path: Path) -> None:
    owner, reader = Node(tmp_path, permits := set[str]()), Node(tmp_path, permits)
    (tmp_path / "policy.json").write_bytes(b"a policy")
    keep(owner.releases, "policy", tmp_path / "policy.json")
    peers, peer = LocalPeers(reader.hotkey), Peer(hotkey=owner.hotkey, endpoint="local")
    peers.services = {owner.hotkey: owner.desk}
    assert (await puller(reader, peers).turn([peer])).is_whole
    whole = reader.releases.whole()
    reader.releases.path_of(whole.release.files[0]).write_bytes(b"damaged")
    with pytest.raises(ArenaError, match="V2064"):
        reader.releases.content(whole.release.files[0])
    await puller(reader, peers).turn([peer])
    assert held(reader.releases) == {"policy.json": b"a policy"}


class Answering(LocalPeers):
    """A peer whose answers are given."""

    def __init__(self, shown=None, piece: bytes = b"") -> None:
        super().__init__("5Reader")
        self.shown, self.piece = shown, piece

    async def ask(self, peer, question):
        return self.piece if isinstance(question, FileQuestion) else self.shown


PEER = Peer(hotkey="5Hostile", endpoint="local")


@pytest.mark.parametrize("piece", [b"", b"x" * (1 << 20)], ids=len)
async def test_a_file_of_other_bytes_is_named_and_nothing_of_it_stays(piece: bytes, tmp_path: Path) -> None:
    store = ReleaseStore(tmp_path)
    turn = await ReleasePuller(Answering(release_of(SMALL), piece), store, OPERATOR, verify).turn([PEER])
    assert (codes(turn), turn.lacking, store.whole()) == (["U3042"], 1, None)
    assert [path.name for path in (tmp_path / "parts").iterdir()] == []


WRONG = {
    "of another key": release_of(SMALL, signer=STRANGER),
    "claimed of the operator": replace(release_of(SMALL, signer=STRANGER), release=release_of(SMALL).release),
    "of another subnet": release_of(SMALL, netuid=NETUID + 1),
    "of another format": release_of(SMALL, version=2),
    "unsigned": replace(release_of(SMALL), signature=""),
    "signed in other letters": replace(release_of(SMALL), signature="zz"),
    "numbered 0": release_of(SMALL, sequence=0),
    "with a name twice": release_of(SMALL, replace(SMALL, sha256="ab" * 32)),
    "with two policies": release_of(SMALL, replace(SMALL, name="q.json", sha256="ab" * 32)),
    "with a huge file": release_of(replace(SMALL, size_bytes=9 << 30, pieces=("ab" * 32,) * 2304)),
    "with a hash that is a path": release_of(replace(SMALL, sha256="../../x")),
    "with pieces that are too few": release_of(replace(SMALL, size_bytes=3 * PIECE_BYTES, pieces=("ab" * 32,))),
    "with a name that leads out": release_of(replace(SMALL, name="../policy.json")),
    "with a name of two lines": release_of(replace(SMALL, name="policy.json\n")),
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_release_that_the_operator_did_not_sign_for_us_is_refused_and_named(case: str, tmp_path: Path) -> None:
    store = ReleaseStore(tmp_path)
    turn = await ReleasePuller(Answering(WRONG[case], b"x"), store, OPERATOR, verify).turn([PEER])
    assert (codes(turn), turn.is_new, store.newest()) == (["U3042"], False, None)


async def test_an_older_release_and_another_of_the_same_number_are_refused(tmp_path: Path) -> None:
    store = ReleaseStore(tmp_path)
    second = release_of(SMALL, sequence=2)
    for shown, said in (
        (second, []),
        (release_of(SMALL, sequence=1), ["U3046"]),
        (release_of(SMALL, sequence=2, made_ms=NOW_MS + 1), ["U3046"]),
        (release_of(sequence=3), []),
        (second, ["U3046"]),
    ):
        turn = await ReleasePuller(Answering(shown, b"x"), store, OPERATOR, verify).turn([PEER])
        assert codes(turn) == said, shown.release
    assert store.newest().release.sequence == 3


def test_what_is_published_is_what_validators_may_have(tmp_path: Path) -> None:
    store, folder = ReleaseStore(tmp_path / "operator"), tmp_path / "files"
    names = make_folder(folder)
    first = publish_folder(store, folder).release
    assert {file.name for file in first.files} == names  # no problems or titles of a bank, no notices
    assert (first.sequence, store.whole().release) == (1, first)
    publish_folder(store, folder / "titles.json")
    assert {file.name for file in store.whole().release.files} == names | {"titles.json"}
    assert code_of(lambda: publish_folder(store, folder / "bank.jsonl")) == "V2105"
    assert code_of(lambda: publish_folder(store, folder / "suites" / "s1.jsonl")) == "V2105"
    (folder / "suites" / "s1.titles.json").write_bytes(b"{}")
    assert code_of(lambda: publish_folder(store, folder)) == "P4010"
    assert store.newest().release.sequence == 2


def test_the_next_release_carries_on_but_for_spent_batches(tmp_path: Path) -> None:
    store, folder = ReleaseStore(tmp_path / "operator"), tmp_path / "files"
    names = make_folder(folder)
    publish_folder(store, folder)
    later = set(seal(tmp_path / "more", [NOW_MS + 3 * HOUR_MS], seed=2))
    second = publish_folder(store, tmp_path / "more").release
    assert {file.name for file in second.files} == names | later
    spent_ms = NOW_MS + 7 * 24 * HOUR_MS + 2 * HOUR_MS + 60_000
    third = publish_folder(store, folder / "policy.json", now_ms=spent_ms).release
    assert {file.name for file in third.files} == {name for name in names if "sealed" not in name} | later
    fourth = publish_folder(store, folder / "policy.json", is_carried=False).release
    assert ([file.name for file in fourth.files], fourth.sequence) == (["policy.json"], 4)


def test_batches_of_another_key_or_of_one_round_are_not_published(tmp_path: Path) -> None:
    store = ReleaseStore(tmp_path / "operator")
    seal(tmp_path / "foreign", [NOW_MS + HOUR_MS], signer=STRANGER)
    assert code_of(lambda: publish_folder(store, tmp_path / "foreign")) == "P4010"
    (name,) = seal(tmp_path / "one", [NOW_MS + HOUR_MS], seed=3)
    seal(tmp_path / "two", [NOW_MS + HOUR_MS], seed=4)
    (tmp_path / "two" / name).rename(tmp_path / "two" / f"x{name}")
    with pytest.raises(ArenaError, match=r"V2105.*both of round"):
        publish_folder(store, tmp_path / "one", tmp_path / "two")
    assert store.newest() is None
