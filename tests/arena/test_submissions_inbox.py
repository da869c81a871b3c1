"""The inbox and the miner's side: commit first, whole files, a receipt for every answer."""

from __future__ import annotations

import errno
import os
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from arena.chain.keys import keypair_signer
from arena.chain.local.chain import LocalSubtensor
from arena.submissions.flow import commit
from arena.submissions.inbox import ENTRY_BYTES_MAX, NAMES_PER_LOOK, Inbox, Receipt
from arena.submissions.model import make_submission
from foundation.codes.row import Owner
from foundation.errors import ArenaError
from tests.arena.chain_stands import BLOCK_MS, Clock

ALICE, BOB = keypair_signer("//Alice"), keypair_signer("//Bob")
SOURCE = "def agent_main(problem):\n    return None\n"


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path / "inbox")


@pytest.fixture
def chain(tmp_path: Path) -> LocalSubtensor:
    return LocalSubtensor(tmp_path / "chain.sqlite", now_ms=Clock(), block_ms=BLOCK_MS)


def _receipt(version: str, hotkey: str = ALICE.hotkey, block: int = 3) -> Receipt:
    return Receipt(
        agent_version_id=version,
        name="agent",
        hotkey=hotkey,
        state="accepted",
        submitted_block=block,
        next_allowed_block=block + 3_600,
    )


async def test_a_commitment_is_to_the_source_and_is_made_once(chain: LocalSubtensor) -> None:
    await chain.register(ALICE)
    submission, block = await commit(ALICE, "agent", SOURCE, subtensor=chain, now_ms=5)
    standing = await chain.commitment(ALICE.hotkey)
    assert standing is not None
    assert (standing.sha256, standing.block) == (submission.commitment_sha256, block)
    assert (await commit(ALICE, "agent", SOURCE, subtensor=chain, now_ms=6))[1] == block


async def test_who_is_not_registered_has_no_commitment(chain: LocalSubtensor) -> None:
    with pytest.raises(ArenaError) as caught:
        await commit(ALICE, "agent", SOURCE, subtensor=chain, now_ms=5)
    assert caught.value.failure.code == "A1008"


def test_entries_come_in_the_order_of_submission_then_of_id(inbox: Inbox) -> None:
    times = (30, 10, 20, 20, 1_900_000_000_000, 2**53 - 1, 1 - 2**53)
    made = [make_submission(ALICE, "agent", f"{SOURCE}# {place}\n", now_ms) for place, now_ms in enumerate(times)]
    for submission in made:
        inbox.put(submission)
    found = [
        (one.submission.submitted_ms, one.submission.agent_version_id) for one in inbox.pending() if one.submission
    ]
    assert found == sorted((submission.submitted_ms, submission.agent_version_id) for submission in made)


def litter(folder: Path, names: Iterable[str], content: bytes = b"{}") -> None:
    """Files of one time that are no submissions."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(content)
        os.utime(folder / name, ns=(0, 0))


def test_every_entry_is_met_once_over_many_looks_at_the_folder(inbox: Inbox, tmp_path: Path) -> None:
    names = [f"{number:05}.json" for number in range(2 * NAMES_PER_LOOK + 1)]
    litter(tmp_path / "inbox" / "new", names)
    places = [entry.place for entry in inbox.pending()]
    assert [name for _, name in places] == names
    assert [entry.place for entry in Inbox(tmp_path / "inbox").pending(places[-3])] == places[-2:]
    assert list(inbox.pending(places[-1])) == []


def test_entries_that_come_and_go_meanwhile_cost_no_other(inbox: Inbox, tmp_path: Path) -> None:
    folder = tmp_path / "inbox" / "new"
    litter(folder, [f"{number}.json" for number in "13579"])
    met = []
    for entry in inbox.pending():
        met.append(entry.path.name)
        if met == ["1.json"]:
            (folder / "3.json").unlink()
            litter(folder, ["0.json", "8.json"])
        inbox.discard(entry)
    assert [name for name in met if name != "8.json"] == ["1.json", "5.json", "7.json", "9.json"]
    assert {entry.path.name for entry in inbox.pending()} <= {"0.json", "8.json"}


def test_a_file_that_vanished_is_no_entry(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry without a file would be taken away as unreadable, and with it what is put there next."""
    path = inbox.put(make_submission(ALICE, "agent", SOURCE, 5))
    real = os.open

    def gone(name: Path, flags: int) -> int:
        path.unlink(missing_ok=True)
        return real(name, flags)

    monkeypatch.setattr("arena.submissions.inbox.os.open", gone)
    assert list(inbox.pending()) == []


def peak_bytes(inbox: Inbox) -> int:
    """The most memory that looking through the inbox takes at once."""
    tracemalloc.start()
    try:
        assert all(entry.failure is not None for entry in inbox.pending())
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("few", "many", "size"), [(3, 24, 2 << 20), (2 * NAMES_PER_LOOK, 6 * NAMES_PER_LOOK, 2)])
def test_memory_does_not_grow_with_what_waits(inbox: Inbox, tmp_path: Path, few: int, many: int, size: int) -> None:
    folder = tmp_path / "inbox" / "new"
    litter(folder, (f"{number:064}.json" for number in range(few)), b" " * size)
    before = peak_bytes(inbox)
    litter(folder, (f"{number:064}.json" for number in range(few, many)), b" " * size)
    assert peak_bytes(inbox) <= 1.2 * before


def test_an_empty_inbox_and_an_unknown_receipt_are_nothing(inbox: Inbox) -> None:
    assert list(inbox.pending()) == []
    assert inbox.receipt("ab" * 32) is None
    assert inbox.receipts(ALICE.hotkey) == []


def test_an_answered_entry_leaves_a_receipt(inbox: Inbox) -> None:
    submission = make_submission(ALICE, "agent", SOURCE, 5)
    inbox.put(submission)
    (entry,) = inbox.pending()
    inbox.answer(entry, _receipt(submission.agent_version_id))
    assert list(inbox.pending()) == []
    assert inbox.receipt(submission.agent_version_id) == _receipt(submission.agent_version_id)


def test_receipts_are_a_hotkeys_own_latest_first(inbox: Inbox) -> None:
    for receipt in (_receipt("a"), _receipt("b", block=9), _receipt("c", hotkey=BOB.hotkey)):
        inbox.put_receipt(receipt)
    assert [receipt.agent_version_id for receipt in inbox.receipts(ALICE.hotkey)] == ["b", "a"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"name": 1}',
        b"\xff\xfe",
        b'"' + b"x" * ENTRY_BYTES_MAX + b'"',
        b'{"extra": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        msgspec.json.encode(msgspec.structs.replace(make_submission(ALICE, "agent", SOURCE, 5), hotkey="no address")),
    ],
)
def test_a_file_that_is_no_submission_has_a_failure_and_stops_nobody(
    inbox: Inbox, tmp_path: Path, content: bytes
) -> None:
    path = inbox.put(make_submission(ALICE, "agent", SOURCE, 5))
    bad = path.with_name("bad.json")
    bad.write_bytes(content)
    os.utime(bad, ns=(0, 0))
    first, second = inbox.pending()
    assert first.failure is not None and first.failure.code == "A1009"
    assert second.submission is not None
    inbox.discard(first)
    inbox.discard(first)
    assert len(list(inbox.pending())) == 1


def test_a_folder_named_like_an_entry_is_no_submission(inbox: Inbox) -> None:
    path = inbox.put(make_submission(ALICE, "agent", SOURCE, 5))
    path.with_name("folder.json").mkdir()
    assert [entry.failure is None for entry in inbox.pending()] == [True, False]


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(path)]
)
def test_whatever_else_lies_there_is_looked_at_without_waiting(inbox: Inbox, make) -> None:
    path = inbox.put(make_submission(ALICE, "agent", SOURCE, 5))
    make(path.with_name("odd.json"))
    good, odd = inbox.pending()
    assert odd.failure is not None and odd.failure.code == "A1009" and good.submission is not None
    inbox.discard(odd)
    assert len(list(inbox.pending())) == 1


def test_a_name_that_is_no_text_is_told_in_ascii(inbox: Inbox) -> None:
    path = inbox.put(make_submission(ALICE, "agent", SOURCE, 5))
    (path.parent / os.fsdecode(b"\xff.json")).write_bytes(b"{}")
    odd = next(entry for entry in inbox.pending() if entry.submission is None)
    assert odd.failure.detail.isascii()


def test_this_hosts_trouble_costs_no_entry(inbox: Inbox, monkeypatch) -> None:
    inbox.put(make_submission(ALICE, "agent", SOURCE, 5))

    def full(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("arena.submissions.inbox.os.open", full)
    (entry,) = inbox.pending()
    assert entry.submission is None and entry.failure.owner is Owner.VALIDATOR


def test_a_receipt_never_goes_through_a_link(inbox: Inbox, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    folder = tmp_path / "inbox" / "receipts"
    folder.mkdir(parents=True)
    for name in (".a.json.tmp", f".a.json.{os.getpid()}.tmp", "a.json"):
        (folder / name).symlink_to(precious)
    inbox.put_receipt(_receipt("a"))
    assert precious.read_text() == "mine" and inbox.receipt("a") is not None


def test_a_receipt_that_is_no_file_is_none(inbox: Inbox, tmp_path: Path) -> None:
    inbox.put_receipt(_receipt("a"))
    os.mkfifo(tmp_path / "inbox" / "receipts" / "b.json")
    assert [receipt.agent_version_id for receipt in inbox.receipts(ALICE.hotkey)] == ["a"]


def test_a_half_written_file_is_not_seen(inbox: Inbox) -> None:
    path = inbox.put(make_submission(ALICE, "agent", SOURCE, 5))
    path.with_name(f".{path.name}.99.tmp").write_bytes(b"half")
    assert len(list(inbox.pending())) == 1


def test_a_receipt_of_another_version_of_this_software_is_none(inbox: Inbox, tmp_path: Path) -> None:
    inbox.put_receipt(_receipt("a"))
    (path,) = (tmp_path / "inbox" / "receipts").iterdir()
    path.write_bytes(msgspec.json.encode({"other": 1}))
    assert inbox.receipt("a") is None
    assert inbox.receipts(ALICE.hotkey) == []


def test_a_folder_that_cannot_be_written_is_a_coded_failure(tmp_path: Path) -> None:
    (tmp_path / "inbox").write_text("a file where the folder should be")
    with pytest.raises(ArenaError) as caught:
        Inbox(tmp_path / "inbox").put(make_submission(ALICE, "agent", SOURCE, 5))
    assert caught.value.failure.code == "V2060"
