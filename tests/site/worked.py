"""docs/mechanism.md's numbers, computed from the log of a kept race; `python -m tests.site.worked` rewrites them.

What is shown is worked out here by the page's own formulas; the test compares it with what the log's settlement says.
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import zstandard

from arena.policy import Policy
from arena.records.body import decode_content
from arena.records.model import EvaluationRecord, SettlementRecord, VerdictRecord
from judge.verdict import Verdict
from problems.scoring.outcome import Axis, OutcomeScore, SlotScore

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "mechanism.md"
CASE = ROOT / "tests" / "kept" / "2f1fce3" / "export.tar.xz"
BEGIN, END = "<!-- worked: begin -->\n", "<!-- worked: end -->"
AXES = ("title", "price", "service", "sku", "attribute")


class _Row(msgspec.Struct, frozen=True):
    """What is read of a line of the log: a withheld record has no content."""

    seq: int
    content: msgspec.Raw


class Worked(msgspec.Struct, frozen=True, kw_only=True):
    """The race's settlement, its rules, and of the agent at rank 2 what stands in the log, by drawn problem."""

    settlement: SettlementRecord
    policy: Policy
    rows: tuple[tuple[int, EvaluationRecord, Verdict], ...]


def read(case: Path = CASE) -> Worked:
    """The kept race. Raises StopIteration where the log holds no settlement."""
    with tarfile.open(case) as archive:
        stream = archive.extractfile("export/log/000000.jsonl.zst")
        assert stream is not None
        text = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(stream.read()), read_across_frames=True).read()
    logged = [msgspec.json.decode(line, type=_Row) for line in text.splitlines()]
    held = [(row.seq, decode_content(bytes(row.content)).payload) for row in logged if bytes(row.content) != b"null"]
    settlement = next(payload for _, payload in held if isinstance(payload, SettlementRecord))
    assert settlement.inputs is not None
    second = settlement.standings[1].agent_version_id
    verdicts = {
        payload.context.problem_id: payload.verdict
        for _, payload in held
        if isinstance(payload, VerdictRecord)
        and (payload.subject.agent_version_id, payload.context.stage) == (second, "race")
    }
    rows = {
        payload.context.problem_id: (seq, payload, verdicts[payload.context.problem_id])
        for seq, payload in held
        if isinstance(payload, EvaluationRecord)
        and (payload.subject.agent_version_id, payload.context.stage) == (second, "race")
    }
    policy = msgspec.json.decode(settlement.inputs.policy, type=Policy)
    return Worked(settlement=settlement, policy=policy, rows=tuple(rows[name] for name in settlement.drawn))


def coefficient_e4(quality_e4: int) -> int:
    """The page's formula: 0.3 + 0.875 q, and 1 from 0.8 on."""
    return 10_000 if quality_e4 >= 8_000 else 3_000 + 8_750 * quality_e4 // 10_000


def scores_e4(worked: Worked) -> tuple[int, ...]:
    """The agent's problem scores: outcome times coefficient."""
    return tuple(is_success(row) * coefficient_e4(said.quality_e4) for _, row, said in worked.rows)


def race_score_e4(worked: Worked) -> int:
    """Their mean, half up."""
    scores = scores_e4(worked)
    return (2 * sum(scores) + len(scores)) // (2 * len(scores))


def weights_u16(worked: Worked) -> tuple[int, int]:
    """Of burn and top: the larger of the two shares is 65535."""
    top, burn = worked.policy.weights.top_e4, 10_000 - worked.policy.weights.top_e4
    return 65_535 * burn // max(top, burn), 65_535 * top // max(top, burn)


def is_success(row: EvaluationRecord) -> bool:
    """Whether it counts as solved."""
    assert isinstance(row.outcome, OutcomeScore)
    return row.outcome.is_success


def lines(worked: Worked) -> Iterator[str]:
    """The worked part of the page."""
    seq, row, said = next(each for each in worked.rows if is_success(each[1]))
    lost_seq, lost, _ = next(each for each in worked.rows if not is_success(each[1]))
    worth = e4(coefficient_e4(said.quality_e4))
    yield from (f"### One problem, solved (record {seq})", "", *axes(row), "")
    yield f"Every hit there is: the rule is 1, so the outcome is 1. The judge gave quality {e4(said.quality_e4)}:"
    yield from (
        "",
        f"    coefficient = 0.3 + 0.875 x {e4(said.quality_e4)} = {worth}",
        f"    score       = 1 x {worth}",
        "",
    )
    yield from (f"### One problem, lost (record {lost_seq})", "", *axes(lost), "")
    yield "The rule is below 1, so the outcome is 0, and no quality lifts it: the score is 0."
    yield from ("", *of_race(worked), "", *of_weights(worked))


def of_race(worked: Worked) -> Iterator[str]:
    """The race of the agent at rank 2."""
    first, second = worked.settlement.standings[:2]
    scores = scores_e4(worked)
    yield from (
        "### The race",
        "",
        "| record | bucket | outcome | quality | coefficient | score |",
        "|---|---|---|---|---|---|",
    )
    for (number, each, verdict), score in zip(worked.rows, scores, strict=True):
        assert isinstance(each.outcome, OutcomeScore)
        judged = f"{e4(verdict.quality_e4)} | {e4(verdict.coefficient_e4)}"
        yield f"| {number} | {each.outcome.bucket} | {int(is_success(each))} | {judged} | {e4(score)} |"
    yield from ("", f"    race score = {e4(sum(scores))} / {len(scores)} = {e4(race_score_e4(worked))}", "")
    yield f"Its 95 % interval is {e4(second.low_e4)} to {e4(second.high_e4)}: {len(scores)} problems say little."
    yield f"Rank 1 has {e4(first.race_score_e4)}. Nobody was at the top before, so it takes the top without a margin."


def of_weights(worked: Worked) -> Iterator[str]:
    """The weights of the race."""
    burn_uid, top_uid = worked.settlement.uids
    share_e4 = worked.policy.weights.top_e4
    burn, top = weights_u16(worked)
    yield from ("### The weights", "")
    yield f"{e4(share_e4)} goes to the top agent, the rest to the burn uid; of two agents the upper half is one, so"
    yield "there is no tail. The larger share is 65535:"
    yield from ("", f"    uid {burn_uid} (burn)  {burn}")
    yield f"    uid {top_uid} (top)   {top} = 65535 x {e4(share_e4)} / {e4(10_000 - share_e4)}"


def axes(row: EvaluationRecord) -> Iterator[str]:
    """Hits and totals of each slot."""
    assert isinstance(row.outcome, OutcomeScore)
    yield from (f"| product | {' | '.join(AXES)} | rule |", f"|---|{'---|' * (len(AXES) + 1)}")
    for number, slot in enumerate(row.outcome.slots, 1):
        counts = " | ".join(count(getattr(slot, axis)) for axis in AXES)
        yield f"| {number} | {counts} | {rule(slot)} |"


def rule(slot: SlotScore) -> str:
    """Why the slot's rule is what it is."""
    return "the answer itself: 1" if slot.is_answer else f"{slot.rule_hits} of {slot.rule_total}"


def count(axis: Axis) -> str:
    """`2 of 3`, or that nothing was asked."""
    return f"{axis.hits} of {axis.total}" if axis.total else "not asked"


def e4(value: int) -> str:
    """Ten-thousandths as a decimal."""
    return f"{value / 10_000:.4f}".rstrip("0").rstrip(".")


def renewed(page: str) -> str:
    """The page with its worked part made again."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + "\n" + "\n".join(lines(read())) + "\n\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text("utf-8")), "utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} is current\n")
