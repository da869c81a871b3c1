"""The agents' sources that a store keeps: one that is not what its submission names is found, by its validator and
by the owner."""

from __future__ import annotations

import pytest

from arena.chain.keys import generate_signer, verify
from arena.chain.port import Signer
from arena.records.model import Subject
from arena.records.port import StoredSubmission
from arena.records.verification import VerifyReport, verify_store
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import SOURCES_PER_PAGE, PostgresStore
from arena.submissions.model import make_submission
from tests.arena.test_store_roles import as_owner

HARMS = {
    "one byte of it": "source = set_byte(source, 3, get_byte(source, 3) # 1)",
    "its end": "source = substring(source from 1 for length(source) - 1)",
    "all of it": "source = ''",
    "another's in its place": "source = (select source from arena.submission o where o.name = 'other' limit 1)",
    "bytes that are no text": "source = '\\xff', agent_sha256 = encode(sha256('\\xff'), 'hex')",
    "its hash": "agent_sha256 = encode(sha256('x'), 'hex')",
    "its miner": "miner_hotkey = (select miner_hotkey from arena.submission o where o.name = 'other' limit 1)",
    "what stands on chain": "commitment_sha256 = encode(sha256('x'), 'hex')",
    "its id": "agent_version_id = encode(sha256('x'), 'hex')",
}


async def put(store: PostgresStore, name: str, source: str) -> str:
    """Keep what a miner submitted; the id of its agent version."""
    made = make_submission(generate_signer(), name, source, 1)
    subject = Subject(
        agent_version_id=made.agent_version_id,
        miner_hotkey=made.hotkey,
        agent_sha256=made.agent_sha256,
        commitment_block=7,
        commitment_sha256=made.commitment_sha256,
    )
    submission = StoredSubmission(subject=subject, name=name, state="review")
    await store.put_submission(submission, source)
    return made.agent_version_id


async def report_of(store: PostgresStore) -> VerifyReport:
    return await verify_store(store, verify, sources=store.sources())


async def test_sources_as_they_were_submitted_are_whole_whatever_they_hold(store: PostgresStore) -> None:
    for number in range(SOURCES_PER_PAGE + 2):
        await put(store, "plain", f"x = {number}  # \0 ü ✓\r\n")
    report = await report_of(store)
    assert (report.is_ok, report.sources) == (True, SOURCES_PER_PAGE + 2)


@pytest.mark.parametrize("harm", HARMS)
async def test_a_source_that_is_not_the_submitted_one_is_found_by_its_validator_and_the_owner(
    harm: str, store: PostgresStore, signer: Signer, postgres: EmbeddedServer
) -> None:
    await put(store, "other", "y = 2")
    agent = await put(store, "one", "x = 1")
    await as_owner(
        postgres,
        f"update arena.submission set {HARMS[harm]} where validator = '{signer.hotkey}' and name = 'one'",
    )
    report = await report_of(store)
    assert (report.sources, [defect.rule for defect in report.defects]) == (2, ["source"])
    assert (agent in report.defects[0].detail) == (harm != "its id")
    owner = await PostgresStore.open(postgres.owner_dsn)
    try:
        assert report.defects[0] in (await report_of(owner)).defects
    finally:
        await owner.close()
