"""The door: its routes, and what it does with a submission: refuse it with a reason, or take it in once and answer the
same ever after.

A request is looked at in this order: has its address a share left (`arena.web.server` asks), is the hotkey it names
registered by a fresh view of the chain, is there a place for its body; then the body is read within a size and a time,
the signature checked, the nonce spent in the database, and the key's share. What was taken is a row that waits before
the answer is sent; of one hotkey one waits at a time, which the database decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Path, Request
from starlette.responses import Response

from arena.api.board import Board, RaceView, judged_evaluations
from arena.api.http import PlaceError, add_refusals, discard_body, json_response, make_app, read_body
from arena.api.rows import agent_races, called, race_row
from arena.chain.keys import HttpCheck, verify
from arena.chain.port import Metagraph, Subtensor
from arena.door.answers import DoorState, OwnRace, PauseState, QualifyingStatus, RacedProblem, SubmissionStatus
from arena.door.form import PARTS, Parser, SubmissionForm, read_form
from arena.exchange.peer_service import ShareRules, Shares
from arena.exchange.routes import Places, signed_target
from arena.gate.rules import RULES
from arena.policy import Policy
from arena.race.admission import hold_ends, is_success
from arena.records.model import EvaluationRecord
from arena.records.port import (
    EVERY_STATE,
    GATED,
    HotkeyState,
    StoredSubmission,
    SubmissionState,
)
from arena.store.postgres import PostgresStore
from arena.submissions.submission import SignedSubmission, admit, hold_of, next_allowed_block, read_report, waiting_row
from arena.visibility.rule import may_see
from foundation.canonical import text_hash
from foundation.codes import PEER_LACKS
from foundation.errors import ArenaError
from judge.verdict import Verdict
from problems.model import AXES, POOLS, OutcomeScore

STREAM = "door"
REASON_CHARS_MAX = 500


async def put_pause(store: PostgresStore, state: PauseState) -> None:
    """Change the state. Raises ArenaError V2022 when somebody else changed it at the same moment."""
    events = await store.events(STREAM)
    await store.put_event(STREAM, len(events), msgspec.json.encode(state).decode())


def _pause_of(event: str) -> PauseState:
    return msgspec.json.decode(event, type=PauseState) if event else PauseState()


class Registration:
    """The metagraph of the newest final block; the chain is asked for one at most every `refresh_s`."""

    def __init__(self, chain: Subtensor, *, refresh_s: float = 1.0, stale_s: float = 180.0) -> None:
        self._chain = chain
        self._refresh_s, self._stale_s = refresh_s, stale_s
        self._metagraph: Metagraph | None = None
        self._grew_s = self._asked_s = float("-inf")
        self._turn = asyncio.Lock()

    async def require(self, hotkey: str) -> None:
        """Return for a registered hotkey. Raises ArenaError A1008, V2200."""
        metagraph = await self.metagraph()
        if metagraph.uid_of(hotkey) is None:
            raise ArenaError("A1008", f"{hotkey} on netuid {metagraph.netuid} at block {metagraph.block}")

    async def metagraph(self) -> Metagraph:
        """The subnet. Raises ArenaError V2200 while it is not known well enough."""
        async with self._turn:
            if time.monotonic() - self._asked_s >= self._refresh_s:
                self._asked_s = time.monotonic()
                try:
                    finalized = await self._chain.finalized_block()
                    if self._metagraph is None or finalized > self._metagraph.block:
                        self._metagraph = await self._chain.metagraph(finalized)
                        self._grew_s = time.monotonic()
                except ArenaError as error:  # the chain is away: what was seen last counts until it is stale
                    if not error.entry.is_retryable:
                        raise
        if self._metagraph is None or time.monotonic() - self._grew_s > self._stale_s:
            raise ArenaError("V2200", f"no new final block within {self._stale_s:g} s")
        return self._metagraph


RACES_JUDGED = 2  # released races whose verdicts are kept in memory
RACES_TOLD = 90  # the newest races, which a status tells of: a quarter of a year
RACES_SHOWN = 5  # the newest of them
_TO_DO: dict[SubmissionState, str] = {
    "waiting": "nothing: the gate looks at it once its commitment is final",
    "withdrawn": "nothing, or submit another version",
    "refused": "read the reason; commit and submit again from the block named",
    "rejected": "correct the lines named here, run `arena check AGENT.py`, submit again from the block named",
    "review": "nothing: a person looks at it",
    "accepted": "nothing: it is being qualified",
    "qualified": "nothing: at the next close it may get a seat; one version of an owner races",
    "unqualified": "improve the agent (`arena run AGENT.py`) and submit a new version",
}


class Desk:
    """What one validator's door does with submissions, and where it says they stand."""

    def __init__(
        self,
        store: PostgresStore,
        chain: Subtensor,
        policy: Policy,
        board: Board,
        registration: Registration | None = None,
    ) -> None:
        """`board` is of the same store."""
        self.store, self.chain, self.policy, self._board = store, chain, policy, board
        self.registration = registration or Registration(chain)
        self._parser = Parser(policy.gate)
        self._judged: dict[str, dict[str, tuple[RacedProblem, ...]]] = {}  # by race and agent

    async def take(self, caller: str, form: SubmissionForm, known: HotkeyState) -> SubmissionStatus:
        """Take a submission of the hotkey that signed the request, of which this was `known` when it was let in; where
        it stands.

        Raises PlaceError (A1001 to A1004), CooldownError, ArenaError A1007 to A1012, V2200, V2021, U3030.
        """
        if (pause := _pause_of(known.event)).is_paused:
            raise ArenaError("V2200", pause.reason)
        submission = await self._read(caller, form)
        agent = submission.agent_version_id
        for row in known.submissions:
            if row.subject.agent_version_id == agent and row.state not in ("withdrawn", "refused"):
                return await self.status(caller, agent)
        commitment = await self.chain.commitment(caller)
        metagraph = await self.registration.metagraph()
        # one for this file may become final yet; one for another that is not final may hide the one that is
        if commitment and commitment.sha256 != submission.commitment_sha256 and commitment.block > metagraph.block:
            commitment = await self.chain.commitment(caller, await self.chain.finalized_block())
        block = admit(
            submission,
            commitment=commitment,
            allowed_block=next_allowed_block(known.submissions, caller, self.policy.cooldown),
            metagraph=metagraph,
            verify=verify,
            is_commitment_enough=self.policy.admission.is_commitment_enough,
        )
        waiting = waiting_row(submission, block)
        row = await self.store.put_submission(waiting, submission.source, is_alone=True)
        if row.subject.agent_version_id != agent:
            raise ArenaError("A1012", f"{row.name}, version {row.subject.agent_version_id[:16]}")
        return await self.status(caller, agent)

    async def withdraw(self, caller: str, agent_version_id: str) -> None:
        """Take back what waits for the gate. It costs no cooldown; the same file may come again.

        Raises ArenaError A1012 for a version that is decided, V2113 for no version of the caller's.
        """
        rows = await self.store.submissions(EVERY_STATE, miner_hotkey=caller)
        row = next((row for row in rows if row.subject.agent_version_id == agent_version_id), None)
        if row is None:
            raise ArenaError("V2113", "no version of this hotkey")
        change = self.store.set_submission_state
        if row.state != "withdrawn" and not await change(agent_version_id, "withdrawn", was="waiting"):
            raise ArenaError("A1012", f"{row.name} no longer waits for the gate", fix="submit another version")

    async def _read(self, caller: str, form: SubmissionForm) -> SignedSubmission:
        found = await self._parser.first_finding(form.source)
        if found is not None:
            raise PlaceError(RULES[found.rule].code, f"{found.rule}: {found.detail}", line=found.line)
        source = form.source.decode()
        return SignedSubmission(
            name=form.agent_name,
            source=source,
            hotkey=caller,
            agent_sha256=text_hash(source),
            submitted_ms=form.submitted_ms,
            signature=form.signature,
        )

    async def statuses(self, hotkey: str) -> list[SubmissionStatus]:
        """Every version of a hotkey, the newest commitment first. Raises ArenaError U3030, V2021."""
        rows = await self.store.submissions(EVERY_STATE, miner_hotkey=hotkey)
        if not rows:
            return []
        await self._board.refresh()
        block = await self.chain.finalized_block()
        allowed = next_allowed_block(rows, hotkey, self.policy.cooldown, ("waiting", *GATED))
        found = [await self._status(row, block, allowed) for row in rows]
        return sorted(found, key=lambda each: (-each.commitment_block, each.agent_version_id))

    async def status(self, hotkey: str, version: str) -> SubmissionStatus:
        """Where one version of a hotkey stands. Raises ArenaError V2113 for none of its versions."""
        for each in await self.statuses(hotkey):
            if each.agent_version_id == version:
                return each
        raise ArenaError("V2113", "no version of this hotkey")

    async def _status(self, row: StoredSubmission, block: int, allowed: int) -> SubmissionStatus:
        agent, report = row.subject.agent_version_id, read_report(row)
        is_held = row.state == "review" and hold_of(report) == "heuristic"  # which alone runs out
        counts = await self.store.item_counts(agent) if row.state in GATED else []
        work = {(each.stage, each.race_id): (each.done, each.total) for each in counts}
        qualifying = None
        if row.state in ("accepted", "qualified", "unqualified"):
            done, total = work.get(("qualifying", ""), (0, self.policy.qualifying.problems))
            qualifying = QualifyingStatus(
                done=done,
                total=total,
                score_e4=row.qualifying_e4,
                needed_e4=self.policy.qualifying.score_min_e4,
            )
        own = [race for race in self._board.races()[-RACES_TOLD:] if _is_of(race, agent, row.state)]
        return SubmissionStatus(
            agent_version_id=agent,
            name=row.name,
            hotkey=row.subject.miner_hotkey,
            state=row.state,
            commitment_block=row.subject.commitment_block,
            received_ms=row.received_ms,
            next_allowed_block=allowed,
            block=block,
            failure=row.failure or (report.failure if report else None),
            findings=report.findings if report else (),
            held_until_block=hold_ends(row.subject, self.policy.admission) if is_held else 0,
            qualifying=qualifying,
            agreed=row.agreed,
            races=tuple(
                self._race(race, agent, *work.get(("race", race.race_id), (0, 0)))
                for race in own[: -RACES_SHOWN - 1 : -1]
            ),
            problems=await self._raced(own, agent) if row.state in GATED else (),
            what_to_do=_TO_DO[row.state],
        )

    def _race(self, race: RaceView, agent: str, done: int, total: int) -> OwnRace:
        before = race.told.inputs.incumbent if race.told and race.told.inputs else None
        return OwnRace(
            race=race_row(self._board, race),
            stood=next((one for one in agent_races(race.told) if one.standing.agent_version_id == agent), None),
            reason=race.told.reason if race.told else "",
            against=called(self._board, before.agent_version_id) if before else "",
            done=done,
            total=total,
        )

    async def _raced(self, own: list[RaceView], agent: str) -> tuple[RacedProblem, ...]:
        """How an agent did on each problem of the newest released race that it was in, as this validator saw it."""
        for race in reversed(own):  # its miner asks for it in every pool by name
            if race.release and may_see("owner", "verdict", race.moment, pool=POOLS[0], pools=POOLS).is_seen:
                break
        else:
            return ()
        if race.race_id not in self._judged:
            found: dict[str, dict[str, RacedProblem]] = {}
            rows = await judged_evaluations(self.store, self.store.validator, race.race_id, race.rubric)
            for seq, record, said in rows:
                verdict = said if isinstance(said, Verdict) else None
                found.setdefault(record.subject.agent_version_id, {})[record.context.problem_id] = RacedProblem(
                    race_id=race.race_id,
                    problem_id=record.context.problem_id,
                    record=seq,
                    is_solved=is_success(record),
                    missed=tuple(missed(record)),
                    quality_e4=verdict.quality_e4 if verdict else None,
                    sentences=tuple(one.explanation for one in verdict.opinions) if verdict else (),
                )
            if len(self._judged) == RACES_JUDGED:
                self._judged.clear()
            self._judged[race.race_id] = {name: tuple(rows.values()) for name, rows in found.items()}
        return self._judged[race.race_id].get(agent, ())


def missed(record: EvaluationRecord) -> Iterator[str]:
    """What an episode that solved nothing lacked, as its record says it: how it ended early, and the axes of each
    product that no rule of the request found met."""
    if record.failure is not None:
        yield f"{record.failure.code} {record.stop}"
    outcome = record.outcome
    if not isinstance(outcome, OutcomeScore) or outcome.is_success:
        return
    for number, slot in enumerate(outcome.slots, 1):
        if slot.recommended_id is None or not slot.is_found:
            yield f"product {number}: none that counts"
        elif not slot.is_satisfied:
            axes = [name for name in AXES if getattr(slot, name).hits < getattr(slot, name).total]
            yield f"product {number}: {', '.join(axes)}"
    if outcome.is_one_shop is False:
        yield "not from one shop"
    if outcome.is_within_budget is False:
        yield "over the budget"


def _is_of(race: RaceView, agent_version_id: str, state: SubmissionState) -> bool:
    """Whether a race is an agent's: it is in the field, or may be in the field of one that is open."""
    if race.state is None:
        return False
    if race.state.field is None:
        return state == "qualified" and race.state.opened is not None and race.state.settlement is None
    return any(each.subject.agent_version_id == agent_version_id for each in race.state.field.field)


_FORM_BYTES = 65_536  # of a body beside the file: heads, name, signature
_Version = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="Agent version id.")]


def form_document(names: tuple[str, ...]) -> dict[str, Any]:
    """How a document describes a multipart form with these parts."""
    parts = {name: {"type": "string"} for name in names} | {"file": {"type": "string", "format": "binary"}}
    schema = {"type": "object", "required": list(names), "properties": parts, "additionalProperties": False}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


class DoorRules(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the door one client may take. Bodies at once times the policy's size bounds its memory."""

    body_s: float = 20.0
    bodies: int = 32
    bodies_per_network: int = 4
    address: ShareRules = ShareRules(requests_per_s=20.0, requests_burst=200)
    hotkey: ShareRules = ShareRules(requests_per_s=1.0, requests_burst=30)
    nonce_keep_ms: int = 300_000
    nonces_per_hotkey: int = 1_024


class Door:
    """One validator's door: its ports and the shares of its callers."""

    def __init__(self, desk: Desk, auth: HttpCheck, *, reads_port: int = 0, rules: DoorRules | None = None) -> None:
        self.desk, self.auth, self.netuid, self.rules = desk, auth, desk.chain.netuid, rules or DoorRules()
        self._reads_port = reads_port
        self.addresses = Shares(self.rules.address, time.monotonic)  # the servers' to ask, before a request gets here
        self._hotkeys = Shares(self.rules.hotkey, time.monotonic)
        self._bodies = Places(self.rules.bodies, self.rules.bodies_per_network, "bodies")

    async def state(self) -> DoorState:
        """What anybody may know."""
        events = await self.desk.store.events(STREAM)
        return DoorState(
            validator=self.auth.hotkey,
            netuid=self.netuid,
            policy=self.desk.policy.name,
            policy_sha256=self.desk.policy.policy_sha256,
            traces_licence=self.desk.policy.traces_licence,
            pause=_pause_of(events[-1] if events else ""),
            reads_port=self._reads_port,
        )

    async def caller(self, request: Request, *, check: HttpCheck | None = None) -> tuple[str, bytes, HotkeyState]:
        """The hotkey that signed a request, the body, and what is known of the hotkey, in one round trip with the
        nonce. `check`: by which way of signing; None: `btauth/1`.

        Raises ArenaError A1008, V2081, V2110, V2112, V2200 to V2203.
        """
        check, headers = check or self.auth, {name.lower(): value for name, value in request.headers.items()}
        try:
            if (claimed := check.claimed(headers)) is None:
                raise ArenaError("V2110", "no hotkey is named")
            await self.desk.registration.require(claimed)
        except ArenaError:
            await discard_body(request)
            raise
        address = request.client.host if request.client else ""
        self._bodies.require(address)
        with self._bodies.taken(address):
            most = self.desk.policy.gate.source_bytes + _FORM_BYTES if request.method == "POST" else 0
            body = await read_body(request, most, self.rules.body_s)
        hotkey, nonce = check.signed(headers, request.method, signed_target(request), body)
        keep_ms, most = self.rules.nonce_keep_ms, self.rules.nonces_per_hotkey
        known = await self.desk.store.spend_and_look(hotkey, nonce, keep_ms=keep_ms, most=most, stream=STREAM)
        if known is None:
            raise ArenaError("V2110", "this request was made before, or too many were made at once")
        self._hotkeys.spend_request(hotkey)
        return hotkey, body, known


def make_door_app(door: Door) -> FastAPI:
    """The application of one door."""
    app = make_app("agent-arena door")
    add_refusals(app, unknown_route=PEER_LACKS)

    @app.get("/v1/door")
    async def read_door(request: Request) -> Response:
        """Whose door this is and whether it is open. Not signed."""
        return json_response(await door.state())

    @app.post("/v1/submissions", status_code=202, openapi_extra=form_document(PARTS))
    async def submit(request: Request) -> Response:
        """Hand in an agent file whose commitment stands on chain.

        202: it is in the queue for the gate; the answer is its status, and `location` tells what becomes of it. The
        same file again is the same submission. Signed with `btauth/1` over the whole body.
        """
        hotkey, body, known = await door.caller(request)
        taken = await door.desk.take(hotkey, read_form(request.headers.get("content-type", ""), body), known)
        return json_response(taken, 202, {"location": f"/v1/submissions/{taken.agent_version_id}"})

    @app.get("/v1/submissions")
    async def read_submissions(request: Request) -> Response:
        """Every version of the hotkey that signed, the newest first, and where it stands."""
        hotkey, *_ = await door.caller(request)
        return json_response(await door.desk.statuses(hotkey))

    @app.get("/v1/submissions/{version}")
    async def read_submission(request: Request, version: _Version) -> Response:
        """Where one of the caller's versions stands."""
        hotkey, *_ = await door.caller(request)
        return json_response(await door.desk.status(hotkey, version))

    @app.delete("/v1/submissions/{version}")
    async def withdraw(request: Request, version: _Version) -> Response:
        """Take a version back that waits for the gate."""
        hotkey, *_ = await door.caller(request)
        await door.desk.withdraw(hotkey, version)
        return json_response(await door.desk.status(hotkey, version))

    return app
