"""Submissions: identities, signatures, admission and cooldown, decided from public values alone."""

from __future__ import annotations

import msgspec
import pytest

from arena.chain.keys import keypair_signer, verify
from arena.chain.port import Commitment, Metagraph, Neuron
from arena.gate.rules import GateReport, finding, make_report
from arena.policy import CooldownRules
from arena.submissions.admission import (
    Admission,
    PastSubmission,
    admit,
    cooldown_class,
    next_allowed_block,
)
from arena.submissions.model import (
    SignedSubmission,
    is_authentic,
    make_submission,
)

ALICE, BOB = keypair_signer("//Alice"), keypair_signer("//Bob")
SOURCE = "def agent_main(problem):\n    return 'é'\n"
RULES = CooldownRules()
METAGRAPH = Metagraph(
    netuid=15, block=5_000, tempo=360, neurons=tuple(Neuron(uid=i, hotkey=s.hotkey) for i, s in enumerate((ALICE, BOB)))
)
SUBMISSION = make_submission(ALICE, "agent", SOURCE, 1_700_000_000_000)


def _committed(submission: SignedSubmission = SUBMISSION, block: int = 4_990) -> Commitment:
    return Commitment(hotkey=submission.hotkey, sha256=submission.commitment_sha256, block=block)


def _admit(submission: SignedSubmission = SUBMISSION, **changes: object) -> Admission:
    arguments: dict[str, object] = {
        "commitment": _committed(),
        "past": (),
        "metagraph": METAGRAPH,
        "rules": RULES,
        "verify": verify,
        **changes,
    }
    return admit(submission, **arguments)


def _code(admission: Admission) -> str | None:
    return None if admission.refusal is None else admission.refusal.code


@pytest.mark.parametrize(
    "change",
    [
        *({"source": SOURCE + " "}, {"source": "\ud800"}, {"name": "other"}, {"hotkey": BOB.hotkey}),
        *({"hotkey": "nobody"}, {"agent_sha256": "00" * 32}, {"submitted_ms": 1 << 60}),
        *({"signature": ""}, {"signature": "zz"}, {"signature": "00" * 64}),
    ],
)
def test_any_change_breaks_the_signature(change: dict[str, object]) -> None:
    changed = msgspec.structs.replace(SUBMISSION, **change)
    assert not is_authentic(changed, verify)
    assert _code(_admit(changed)) == "A1007"


def test_a_commitment_stands_for_a_missing_signature_only_where_the_policy_says_so() -> None:
    unsigned = msgspec.structs.replace(SUBMISSION, signature="", name="other")
    assert _code(_admit(unsigned)) == "A1007"
    assert _admit(unsigned, is_commitment_enough=True).is_accepted
    assert _code(_admit(unsigned, is_commitment_enough=True, commitment=None)) == "A1007"
    for change in ({"signature": "00" * 64}, {"signature": "zz"}, {"agent_sha256": "00" * 32}, {"hotkey": BOB.hotkey}):
        assert not _admit(msgspec.structs.replace(unsigned, **change), is_commitment_enough=True).is_accepted
    later = {"commitment": _committed(block=4_995), "past": (PastSubmission(block=4_990, ended="accepted"),)}
    assert _code(_admit(unsigned, is_commitment_enough=True, **later)) == "A1006"


def test_a_committed_signed_submission_of_a_registered_hotkey_is_accepted_and_of_no_other() -> None:
    admission = _admit()
    assert admission.is_accepted
    assert admission.agent_version_id == SUBMISSION.agent_version_id
    assert (admission.submitted_block, admission.next_allowed_block) == (4_990, 4_990 + RULES.accepted_blocks)
    assert _code(_admit(metagraph=msgspec.structs.replace(METAGRAPH, neurons=METAGRAPH.neurons[1:]))) == "A1008"


@pytest.mark.parametrize(
    "commitment",
    [
        None,
        Commitment(hotkey=ALICE.hotkey, sha256="00" * 32, block=4_990),
        Commitment(hotkey=BOB.hotkey, sha256=SUBMISSION.commitment_sha256, block=4_990),
    ],
)
def test_without_its_own_commitment_a_source_is_refused(commitment: Commitment | None) -> None:
    assert _code(_admit(commitment=commitment)) == "A1007"


@pytest.mark.parametrize(
    ("ended", "blocks"), [("accepted", 3_600), ("integrity", 3_600), ("security", 300), ("form", 0)]
)
def test_each_class_costs_what_is_published(ended: str, blocks: int) -> None:
    past = (PastSubmission(block=1_000, ended=ended),)
    assert next_allowed_block(past, RULES) == 1_000 + blocks
    early = _admit(past=past, commitment=_committed(block=1_000 + blocks - 1))
    assert _code(early) == "A1006" and early.next_allowed_block == 1_000 + blocks
    assert early.refusal is not None and str(1_000 + blocks) in early.refusal.detail
    assert _admit(past=past, commitment=_committed(block=1_000 + blocks)).is_accepted


def _report(*rules: str) -> GateReport:
    found = [finding(rule, 1) for rule in rules]
    return make_report(found, rules_version="gate/1", source_sha256="", inputs_sha256="")


@pytest.mark.parametrize(
    ("report", "ended"),
    [
        (None, "accepted"),
        (_report(), "accepted"),
        (_report("benchmark-text"), "accepted"),
        (_report("parse"), "form"),
        (_report("parse", "import"), "security"),
        (_report("import", "id-table"), "integrity"),
    ],
)
def test_a_report_ends_a_submission_in_its_costliest_class(report: GateReport | None, ended: str) -> None:
    assert cooldown_class(report) == ended
